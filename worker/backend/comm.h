// Comm: collectives among the ranks of one generation, and grouped point-to-point transfers.
//
// Contract, the same for MPI and NCCL: every call either completes or fails within the timeout of
// CommOptions, or as soon as Interrupt() is called from another thread. Reductions add in rank
// order of the group, so the same layout gives the same bits; NCCL adds in its own order unless
// CommOptions::rank_order (AllReduce says how far off that is). All ranks of a group make the same
// calls in the same order. Used by one thread, but for Interrupt().
//
// Calls block, but for two asynchronous forms: collectives that move while the device computes and
// blocking calls go on. Start is for what moves beside whole passes, StartBeside for what a pass
// itself soon waits for: neither waits for the other's. What is started by one of them runs one
// after the other in its order, so its results have the bits of the blocking call.
//
// This header crosses a shared-object boundary: std and plain types only.
#pragma once
#include <cstdint>

#include "worker/backend/device.h"

namespace weft {

enum class ReduceOp : int32_t { kSum = 0, kMax = 1 };

// Whether a group's calls all block, or some are started too, by Start or by StartBeside, and move
// beside what blocks. The three must not wait for each other, so a backend may keep what carries
// them apart.
enum class GroupUse : int32_t { kBlocking = 0, kStarted = 1, kBeside = 2 };
inline constexpr int kGroupUses = 3;

enum class CollectiveKind : int32_t { kAllReduce = 0, kReduceScatter = 1, kAllGather = 2 };

// A call as a value: AllReduce(group, op, data) and so on; a gather has no op.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int group = -1;
  ReduceOp op = ReduceOp::kSum;
  View data;
};

struct Transfer {
  bool send = false;
  int peer = 0;  // rank in the world
  View data;
};

class Comm {
 public:
  virtual ~Comm() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  // How ranks are reached, and why so, for the log; may be empty.
  virtual const char* description() const { return ""; }

  // Makes a group of `ranks` (ascending; contains this rank), or joins none if count is 0. Every
  // rank of the world calls this the same number of times, in the same order, with the same `use`;
  // groups made by one round of calls do not overlap. *group is valid if count > 0.
  virtual BackendStatus NewGroup(GroupUse use, const int* ranks, int count, int* group) = 0;

  // data = reduction over the group, everywhere. A group of one returns at once. kF32, kBf16, kF16
  // or kF64; 16-bit elements are accumulated in f32 and rounded once, to the nearest, ties to even;
  // kF64, which is for a few totals, is added in rank order always. NCCL's own sums, unless
  // CommOptions::rank_order, may be rounded after each of the n - 1 additions among n ranks: they
  // are off by up to ((1 + u)^(n-1) - 1) times the sum of magnitudes, with a unit roundoff u of
  // 2^-24 (f32), 2^-8 (bf16) or 2^-11 (f16). Higham, Accuracy and Stability, section 4.2. All ranks
  // get the same bits even so.
  virtual BackendStatus AllReduce(int group, ReduceOp op, View data) = 0;
  // The two halves of it, in place. `data` is as many equal ranges of elements, one after the
  // other, as the group has ranks; range i belongs to the group's i-th rank. REQUIRES: the group's
  // size divides data.elements().
  // ReduceScatter: this rank's range becomes the reduction, as AllReduce would make it; what the
  // other ranges hold afterwards is unspecified.
  virtual BackendStatus ReduceScatter(int group, ReduceOp op, View data) = 0;
  // AllGather: every range becomes what its rank holds there. Any dtype.
  virtual BackendStatus AllGather(int group, View data) = 0;
  // AllReduce of a few doubles that the host needs: they are there when it returns. Not for a step,
  // in which the host would wait for the device: totals are AllReduce's, of kF64.
  virtual BackendStatus AllReduceHost(int group, ReduceOp op, double* values, int count) = 0;
  // Posts all transfers together and waits for all. Between a pair of ranks, messages match in
  // the order in which they are posted.
  virtual BackendStatus Exchange(const Transfer* transfers, int count) = 0;
  virtual BackendStatus Barrier(int group) = 0;

  // Queues a collective and returns; *ticket names it, counted from 1. It begins when what was
  // started before it is done, and sees what device work queued before Start has left in `data`,
  // which is the Comm's until Wait. Its deadline counts from its beginning. Until it is waited for,
  // its group has no blocking call. InvalidArgument for a group that was made for blocking calls.
  //
  // A backend may run it at once. Else, MPI: by a thread of the Comm, over messages of its own. A
  // device with queues: on one of the Comm's, after an event of the device's queue.
  virtual BackendStatus Start(const CollectiveCall& collective, int64_t* ticket) = 0;
  // Device work queued from now on comes after that collective and all started before it; a device
  // with queues makes its own wait for an event, the host goes on. Fails as a blocking call would,
  // by name and rank, or with what broke the Comm before; failures that a queue still hides show
  // at a later call, Device::Synchronize at the latest. However it ends, the host has left `data`
  // of those collectives alone since. Ticket 0 is nothing to wait for.
  virtual BackendStatus Wait(int64_t ticket) = 0;

  // Queues a collective as Start does, in a group of GroupUse::kBeside: a gather, or a sum of f32
  // or of 16-bit elements. It sees what device work queued before has left in `data`, which is the
  // Comm's until WaitBeside; its group has no blocking call until then. InvalidArgument for other
  // groups and reductions.
  //
  // A backend may run it at once: MPI does, since the processor that would move it computes; so
  // does one that adds in rank order (CommOptions::rank_order).
  virtual BackendStatus StartBeside(const CollectiveCall& collective) = 0;
  // Wait, for all that StartBeside has been given.
  virtual BackendStatus WaitBeside() = 0;

  // Returns what broke this Comm, or OK; may be called from any thread, and returns at once. A call
  // that is queued may fail after it has returned: an aborted transfer leaves the device without an
  // error of the device's, so Device::Synchronize says OK, and the data of that call and of all
  // later ones are garbage. So this is asked after it, before anything leaves the rank. Where a
  // call ends when its data is there, it has said so itself.
  virtual BackendStatus FirstFailure() const { return {}; }

  // From any thread, at once: pending and later calls fail with ABORTED and `why` within 100 ms.
  virtual void Interrupt(const char* why) = 0;
};

}  // namespace weft
