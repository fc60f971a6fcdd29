// The door to a backend: a shared object (libweft_cpu.so, libweft_cuda.so) that is loaded at run
// time, so a CPU machine needs no CUDA and a GPU host neither MPI nor OpenBLAS.
//
// A backend exports one function, `weft_backend`, with C linkage. Statuses cross as code and text,
// objects as the interfaces of device.h and comm.h, closed by the side that opened them.
#pragma once
#include <atomic>
#include <cstdint>

#include "worker/backend/comm.h"
#include "worker/backend/device.h"
#include "worker/backend/updates.h"

namespace weft {

// Raised with every change of this header, device.h, adafactor_steps.h or comm.h; updates.h counts
// its own changes.
inline constexpr int kBackendAbiVersion = 33 + kUpdatesVersion;

// Says by what attention is computed, where a backend has several ways (CUDA).
enum class AttentionKind : int32_t {
  kAuto = 0,   // by cuDNN where it serves
  kOwn = 1,    // by weft's own kernels
  kCudnn = 2,  // by cuDNN; what it does not take fails
};

struct DeviceOptions {
  int local_index = 0;         // which device of this host
  bool share_devices = false;  // CUDA: start over at device 0 where there are fewer; for tests
  int threads = 1;             // CPU: threads of this worker, for products and loops
  // CUDA: the same calls give the same bits in another process on such a device: no way of
  // computing is chosen by what it takes, none adds up in an order that is left open.
  bool deterministic = false;
  AttentionKind attention = AttentionKind::kAuto;
  bool replays = false;  // CUDA: what Replay is given is kept as graphs
  bool fp8 = false;      // Fp8MatMul will be called: a device that has none is refused
  // CUDA: products of e4m3 alone, those of forward passes, add up in the tensor cores' own sums.
  bool fp8_fast_accumulation = false;
};

// Carries a few bytes from rank to rank before these have a communicator: the ids and addresses
// that they open one with. The worker's, over its stream to the coordinator; at most 4096 bytes a
// note.
class Relay {
 public:
  virtual ~Relay() = default;
  // To the ranks `to`; to all, this one too, if `count` is 0. One note per topic.
  virtual BackendStatus Send(const char* topic, const int* to, int count, const void* data,
                             int bytes) = 0;
  // Receives what rank `from` sent on that topic; kDeadlineExceeded after timeout_ms. Fails if that
  // is not of `bytes` bytes.
  virtual BackendStatus Receive(const char* topic, int from, int64_t timeout_ms, void* data,
                                int bytes) = 0;
};

// How ranks reach each other, where a backend has several ways (CUDA).
enum class TransportKind : int32_t {
  kAuto = 0,   // by the devices that the ranks hold
  kNccl = 1,   // a device each
  kLocal = 2,  // mapped memory, on one host; ranks may share a device
};

// A thread that waits for other ranks raises `polls` and leaves in `peer` one that it has not heard
// from, plus 1; each has that thread as its only writer and outlives the Comm. Null: nobody looks.
struct WaitMarks {
  std::atomic<int64_t>* polls = nullptr;
  std::atomic<int32_t>* peer = nullptr;

  void Raise(int silent_peer) const {
    if (polls == nullptr) return;
    polls->store(polls->load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    peer->store(silent_peer + 1, std::memory_order_relaxed);
  }
};

struct CommOptions {
  int64_t init_timeout_ms = 300000;
  int64_t timeout_ms = 100000;  // of one call
  // The rest is for backends without a process manager of their own (CUDA); MPI knows itself.
  int rank = 0;
  int world_size = 1;
  // "/weft-..." for shm_open(3): the same for all ranks of a generation on a host, and for no
  // others.
  const char* rendezvous = "";
  // Collectives are ordered with the work queued on it; outlives the Comm.
  Device* device = nullptr;
  // Null: only what needs no agreement, kLocal. Used by open_comm alone.
  Relay* relay = nullptr;
  TransportKind transport = TransportKind::kAuto;
  // Sums in rank order also where another order is faster.
  bool rank_order = false;
  // Whether groups of GroupUse::kStarted and kBeside will be made: what carries them may need to be
  // opened by all ranks together (NCCL).
  bool starts_calls = false;
  bool starts_beside = false;
  // The thread that makes blocking calls has its own, and so has the one that makes started calls.
  WaitMarks blocking_marks = {};
  WaitMarks started_marks = {};
};

struct DeviceDescription {
  char name[128] = {};
  int64_t memory_bytes = 0;
  int32_t compute_units = 0;  // that work in waves (SMs); 0: none, as a host
};

struct BackendApi {
  int abi_version = 0;
  const char* name = nullptr;      // "cpu", "cuda"
  const char* versions = nullptr;  // "OpenBLAS 0.3.21, Open MPI 4.1.4"
  BackendStatus (*device_count)(int* count) = nullptr;
  BackendStatus (*describe_device)(int local_index, DeviceDescription* description) = nullptr;
  BackendStatus (*open_device)(const DeviceOptions* options, Device** device) = nullptr;
  void (*close_device)(Device* device) = nullptr;
  // Collective over the processes that mpirun (or srun) started together. At most once a process.
  BackendStatus (*open_comm)(const CommOptions* options, Comm** comm) = nullptr;
  // Orderly end: collective. After a failure a worker does not call this, it just exits.
  void (*close_comm)(Comm* comm) = nullptr;
};

// Exported by each backend as `weft_backend`; null if it does not speak `abi_version`.
using BackendEntry = const BackendApi* (*)(int abi_version);

}  // namespace weft
