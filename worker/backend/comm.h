// Comm: collectives among the ranks of one generation, and grouped point-to-point transfers.
//
// Contract, the same for MPI and NCCL: every call either completes or fails within the timeout of
// CommOptions, or as soon as Interrupt() is called from another thread. Reductions add in rank
// order of the group, so the same layout gives the same bits. All ranks of a group make the same
// calls in the same order. Used by one thread, but for Interrupt().
//
// This header crosses a shared-object boundary: std and plain types only.
#pragma once
#include <cstdint>

#include "worker/backend/device.h"

namespace weft {

enum class ReduceOp : int32_t { kSum = 0, kMax = 1 };

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

  // Makes a group of `ranks` (ascending; contains this rank), or joins none if count is 0. Every
  // rank of the world calls this the same number of times, in the same order; groups made by one
  // round of calls do not overlap and have distinct `color`s. *group is valid if count > 0.
  virtual BackendStatus NewGroup(int color, const int* ranks, int count, int* group) = 0;

  // data = reduction over the group, everywhere. A group of one returns at once. kF32, kBf16 or
  // kF16; 16-bit elements are accumulated in f32 and rounded once, to the nearest, ties to even.
  virtual BackendStatus AllReduce(int group, ReduceOp op, View data) = 0;
  // The two halves of it, in place. `data` is as many equal ranges of elements, one after the
  // other, as the group has ranks; range i belongs to the group's i-th rank. REQUIRES: the group's
  // size divides data.elements().
  // ReduceScatter: this rank's range becomes the reduction, as AllReduce would make it; what the
  // other ranges hold afterwards is unspecified.
  virtual BackendStatus ReduceScatter(int group, ReduceOp op, View data) = 0;
  // AllGather: every range becomes what its rank holds there. Any dtype.
  virtual BackendStatus AllGather(int group, View data) = 0;
  // The same for a few host doubles.
  virtual BackendStatus AllReduceHost(int group, ReduceOp op, double* values, int count) = 0;
  // Posts all transfers together and waits for all. Between a pair of ranks, messages match in
  // the order in which they are posted.
  virtual BackendStatus Exchange(const Transfer* transfers, int count) = 0;
  virtual BackendStatus Barrier(int group) = 0;

  // From any thread: pending and later calls fail with ABORTED and `why` within 100 ms.
  virtual void Interrupt(const char* why) = 0;
};

}  // namespace weft
