#include "worker/backend/cuda/comm/local_comm.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "worker/backend/cuda/comm/call_watch.h"
#include "worker/backend/cuda/comm/combine.h"
#include "worker/backend/cuda/comm/local_block.h"
#include "worker/backend/cuda/runtime/cuda_status.h"
#include "worker/backend/failure.h"
#include "worker/backend/started_call.h"

namespace weft {
namespace {

// How far a rank has come in meeting the others, and in parting from them.
enum Stage : int32_t { kHere = 1, kMapped = 2, kUnmapped = 3 };

constexpr int64_t kAlignment = 256;

// Tracks what is left of one transfer.
struct Progress {
  const Transfer* transfer = nullptr;
  int64_t done = 0;
  bool announced = false;  // the piece that lies in the channel is this message's
};

// Drawn once: containers that share /dev/shm may each have a process of this number.
uint64_t OwnProcess() {
  static const uint64_t drawn = [] {
    std::random_device random;
    return uint64_t{random()} << 32 | random();
  }();
  return drawn;
}

class LocalComm final : public Comm {
 public:
  LocalComm(const CommOptions& options, const Queue& queue, const char* why)
      : rank_(options.rank),
        world_size_(options.world_size),
        queue_(queue),
        watch_(options.rank, options.world_size, options.timeout_ms),
        description_("mapped memory") {
    if (why[0] != '\0') description_ += std::string(": ") + why;
  }

  // Memory that another process has mapped must not be freed (CUDA's cudaIpcOpenMemHandle), so
  // this rank's stays until the others have let go of it; if they do not come, until this process
  // ends.
  ~LocalComm() override {
    if (Part().ok() && staging_ != nullptr) cudaFree(staging_);
  }

  BackendStatus Open(const CommOptions& options) {
    if (BackendStatus s = LocalBlock::Open(options.rendezvous, world_size_, &block_); !s.ok()) {
      return s;
    }
    if (auto s = FromCuda(cudaMalloc(&staging_, static_cast<size_t>(kLocalStagingBytes)),
                          "allocating a staging buffer");
        !s.ok()) {
      return s;
    }
    LocalRank& self = block_->rank(rank_);
    if (self.stage != 0) {
      return Failure(kFailedPrecondition,
                     "rank %d is there already; two workers have the same rank, or %s is left over",
                     rank_, options.rendezvous);
    }
    if (world_size_ > 1) Share(&self);
    self.staging = staging_;
    self.pid = getpid();
    self.process = OwnProcess();
    const std::chrono::milliseconds timeout(options.init_timeout_ms);
    const Call call = {"meeting the other ranks", -1, 0, timeout,
                       std::chrono::steady_clock::now() + timeout};
    if (BackendStatus s = Reach(call, kHere); !s.ok()) return s;
    if (BackendStatus s = MapPeers(); !s.ok()) return s;
    if (BackendStatus s = Reach(call, kMapped); !s.ok()) return s;
    if (rank_ == 0) block_->Unlink();
    return {};
  }

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  const char* description() const override { return description_.c_str(); }

  BackendStatus NewGroup(GroupUse use, const int* ranks, int count, int* group) override {
    if (watch_.rounds() == kMostLocalGroups) {
      return Failure(kInternal, "more than %d rounds of new groups", kMostLocalGroups);
    }
    return watch_.NewGroup(use, ranks, count, group);
  }

  BackendStatus AllReduce(int group, ReduceOp op, View data) override {
    Call call;
    if (BackendStatus s = watch_.Begin("all-reduce", group, &call); !s.ok()) return s;
    if (BackendStatus s = CheckReducible(call, data); !s.ok()) return s;
    if (watch_.group(group).size() == 1) return {};
    const int64_t element = ElementBytes(data.dtype);
    auto* const bytes = static_cast<char*>(data.data);
    for (int64_t at = 0; at < data.bytes(); at += kCollectiveBytes) {
      const int64_t size = std::min(kCollectiveBytes, data.bytes() - at);
      if (BackendStatus s = ToStaging(call, 0, bytes + at, size); !s.ok()) return s;
      if (BackendStatus s = Meet(call); !s.ok()) return s;
      const auto sources = Peers(call, 0);
      Note(QueueCombine(queue_.stream, op, data.dtype, sources.data(),
                        static_cast<int>(sources.size()), bytes + at, size / element),
           "all-reduce");
      if (BackendStatus s = Finish(call); !s.ok()) return s;
      if (BackendStatus s = Meet(call); !s.ok()) return s;
    }
    return {};
  }

  BackendStatus ReduceScatter(int group, ReduceOp op, View data) override {
    Call call;
    if (auto s = watch_.BeginRanges("reduce-scatter", group, data.elements(), &call); !s.ok()) {
      return s;
    }
    if (BackendStatus s = CheckReducible(call, data); !s.ok()) return s;
    const CallGroup& members = watch_.group(group);
    if (members.size() == 1) return {};
    const int64_t part = data.bytes() / members.size();
    const int64_t slice = kCollectiveBytes / members.size() / kAlignment * kAlignment;
    auto* const bytes = static_cast<char*>(data.data);
    for (int64_t at = 0; at < part; at += slice) {
      const int64_t size = std::min(slice, part - at);
      for (int i = 0; i < members.size(); ++i) {
        if (auto s = ToStaging(call, slice * i, bytes + part * i + at, size); !s.ok()) return s;
      }
      if (BackendStatus s = Meet(call); !s.ok()) return s;
      const auto sources = Peers(call, slice * members.position);
      Note(QueueCombine(queue_.stream, op, data.dtype, sources.data(),
                        static_cast<int>(sources.size()), bytes + part * members.position + at,
                        size / ElementBytes(data.dtype)),
           "reduce-scatter");
      if (BackendStatus s = Finish(call); !s.ok()) return s;
      if (BackendStatus s = Meet(call); !s.ok()) return s;
    }
    return {};
  }

  BackendStatus AllGather(int group, View data) override {
    Call call;
    if (auto s = watch_.BeginRanges("all-gather", group, data.elements(), &call); !s.ok()) {
      return s;
    }
    const CallGroup& members = watch_.group(group);
    const int64_t part = data.bytes() / members.size();
    auto* const bytes = static_cast<char*>(data.data);
    for (int64_t at = 0; at < part && members.size() > 1; at += kCollectiveBytes) {
      const int64_t size = std::min(kCollectiveBytes, part - at);
      if (auto s = ToStaging(call, 0, bytes + part * members.position + at, size); !s.ok())
        return s;
      if (BackendStatus s = Meet(call); !s.ok()) return s;
      const auto sources = Peers(call, 0);
      for (int i = 0; i < members.size(); ++i) {
        if (i == members.position) continue;
        CopyOnDevice(bytes + part * i + at, sources[static_cast<size_t>(i)], size);
      }
      if (BackendStatus s = Finish(call); !s.ok()) return s;
      if (BackendStatus s = Meet(call); !s.ok()) return s;
    }
    return {};
  }

  BackendStatus AllReduceHost(int group, ReduceOp op, double* values, int count) override {
    Call call;
    if (BackendStatus s = watch_.Begin("all-reduce", group, &call); !s.ok()) return s;
    const CallGroup& members = watch_.group(group);
    for (int at = 0; at < count && members.size() > 1; at += kHostValues) {
      const int size = std::min(kHostValues, count - at);
      std::copy_n(values + at, size, block_->rank(rank_).values);
      if (BackendStatus s = Meet(call); !s.ok()) return s;
      std::copy_n(block_->rank(members.ranks[0]).values, size, values + at);
      for (size_t r = 1; r < members.ranks.size(); ++r) {
        CombineHost(op, block_->rank(members.ranks[r]).values, size, values + at);
      }
      if (BackendStatus s = Meet(call); !s.ok()) return s;
    }
    return {};
  }

  // Between a pair of ranks, the messages of one direction go through their channel one after the
  // other; all channels move together.
  BackendStatus Exchange(const Transfer* transfers, int count) override {
    Call call;
    if (BackendStatus s = watch_.Begin("exchange", -1, &call); !s.ok()) return s;
    std::vector<Progress> left;
    for (int i = 0; i < count; ++i) {
      const Transfer& transfer = transfers[i];
      if (transfer.peer < 0 || transfer.peer >= world_size_) {
        return watch_.Break(Failure(kInvalidArgument, "exchange: peer %d is not in the world of %d",
                                    transfer.peer, world_size_));
      }
      if (transfer.data.bytes() > 0) left.push_back({.transfer = &transfer});
    }
    if (BackendStatus s = Finish(call); !s.ok()) return s;  // what is sent has been computed
    BackendStatus failure;
    const BackendStatus waited = watch_.Wait(call, [&](std::vector<int>* silent) {
      failure = Advance(call, &left, silent);
      return !failure.ok() || left.empty();
    });
    return waited.ok() ? failure : waited;
  }

  BackendStatus Barrier(int group) override {
    Call call;
    if (BackendStatus s = watch_.Begin("barrier", group, &call); !s.ok()) return s;
    if (BackendStatus s = Finish(call); !s.ok()) return s;
    return Meet(call);
  }

  // At once: a call here ends when its data is there.
  BackendStatus Start(const CollectiveCall& collective, int64_t* ticket) override {
    if (auto s = watch_.CheckStart(collective, GroupUse::kStarted); !s.ok()) return s;
    *ticket = ++started_;
    return MakeBlocking(*this, collective);
  }
  BackendStatus Wait(int64_t ticket) override {
    if (ticket <= started_) return {};
    return Failure(kInvalidArgument, "wait: call %lld was never started",
                   static_cast<long long>(ticket));
  }
  BackendStatus StartBeside(const CollectiveCall& collective) override {
    if (auto s = watch_.CheckStart(collective, GroupUse::kBeside); !s.ok()) return s;
    return MakeBlocking(*this, collective);
  }
  BackendStatus WaitBeside() override { return {}; }

  void Interrupt(const char* why) override { watch_.Interrupt(why); }

 private:
  // The first half of the staging buffer is for collectives, the second for messages.
  static constexpr int64_t kCollectiveBytes = kLocalStagingBytes / 2;

  // Returns the size of a piece of one message to one peer.
  int64_t PieceBytes() const {
    return (kLocalStagingBytes - kCollectiveBytes) / world_size_ / kAlignment * kAlignment;
  }

  // Unmaps what is of other processes, once this rank's device has read it, and waits until they
  // have done the same. At once where nothing was mapped.
  BackendStatus Part() {
    if (std::find(mapped_.begin(), mapped_.end(), true) == mapped_.end()) return {};
    std::atomic<int32_t>& stage = block_->rank(rank_).stage;
    Call call;
    BackendStatus s = watch_.Begin("parting from the other ranks", -1, &call);
    if (s.ok()) s = Finish(call);
    for (size_t peer = 0; peer < peers_.size(); ++peer) {
      if (mapped_[peer]) cudaIpcCloseMemHandle(peers_[peer]);
    }
    if (!s.ok()) return s;
    if (stage != kMapped) return Failure(kInternal, "the ranks have never met");
    stage = kUnmapped;
    bool lost = false;
    s = watch_.Wait(call, [&](std::vector<int>* silent) {
      for (int peer = 0; peer < world_size_; ++peer) {
        const LocalRank& theirs = block_->rank(peer);
        if (!mapped_[static_cast<size_t>(peer)] || theirs.stage == kUnmapped) continue;
        silent->push_back(peer);
        lost = lost || (kill(theirs.pid, 0) != 0 && errno == ESRCH);
      }
      return silent->empty() || lost;
    });
    return s.ok() && lost ? Failure(kUnavailable, "a rank ended without parting") : s;
  }

  // Other processes map it by a handle, which not every device gives; threads of this one do
  // without.
  void Share(LocalRank* self) {
    cudaIpcMemHandle_t handle = {};
    self->share_error = cudaIpcGetMemHandle(&handle, staging_);
    if (self->share_error != cudaSuccess) cudaGetLastError();  // told to whom it concerns
    static_assert(sizeof(handle) == sizeof(self->staging_handle));
    std::memcpy(self->staging_handle, &handle, sizeof(handle));
  }

  BackendStatus Reach(const Call& call, Stage stage) {
    block_->rank(rank_).stage = stage;
    return watch_.Wait(call, [&](std::vector<int>* silent) {
      for (int peer = 0; peer < world_size_; ++peer) {
        if (block_->rank(peer).stage < stage) silent->push_back(peer);
      }
      return silent->empty();
    });
  }

  BackendStatus MapPeers() {
    peers_.assign(static_cast<size_t>(world_size_), nullptr);
    mapped_.assign(static_cast<size_t>(world_size_), false);
    for (int peer = 0; peer < world_size_; ++peer) {
      const auto index = static_cast<size_t>(peer);
      const LocalRank& theirs = block_->rank(peer);
      // A thread of this process, or this rank itself.
      if (theirs.pid == getpid() && theirs.process == OwnProcess()) {
        peers_[index] = theirs.staging;
        continue;
      }
      if (theirs.share_error != cudaSuccess) {
        return Failure(kFailedPrecondition,
                       "rank %d's device does not let other processes map its memory (%s), as in "
                       "some sandboxes, virtual GPUs and MIG; give each rank a device of its own",
                       peer, cudaGetErrorString(static_cast<cudaError_t>(theirs.share_error)));
      }
      cudaIpcMemHandle_t handle;
      std::memcpy(&handle, theirs.staging_handle, sizeof(handle));
      if (auto s =
              FromCuda(cudaIpcOpenMemHandle(&peers_[index], handle, cudaIpcMemLazyEnablePeerAccess),
                       "mapping another rank's staging buffer");
          !s.ok()) {
        return s;
      }
      mapped_[index] = true;
    }
    return {};
  }

  static BackendStatus CheckReducible(const Call& call, View data) {
    if (IsReducible(data.dtype)) return {};
    return Failure(kInvalidArgument, "%s: only f32, f64, bf16 and fp16 can be reduced", call.name);
  }

  // Each member's staging buffer at `offset`, in the order of the group.
  std::vector<const void*> Peers(const Call& call, int64_t offset) const {
    std::vector<const void*> sources;
    for (const int peer : watch_.group(call.group).ranks) {
      sources.push_back(static_cast<const char*>(peers_[static_cast<size_t>(peer)]) + offset);
    }
    return sources;
  }

  void Note(cudaError_t code, const char* what) {
    if (failure_.ok()) failure_ = FromCuda(code, what);
  }
  void CopyOnDevice(void* to, const void* from, int64_t bytes) {
    Note(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                         queue_.stream),
         "copying to or from a staging buffer");
  }
  BackendStatus ToStaging(const Call& call, int64_t offset, const void* from, int64_t bytes) {
    CopyOnDevice(static_cast<char*>(staging_) + offset, from, bytes);
    return Finish(call);
  }

  // Waits for the device, so that others may read what was queued. A kernel that hangs ends the
  // call by its deadline.
  BackendStatus Finish(const Call& call) {
    cudaError_t code = cudaSuccess;
    if (BackendStatus s = watch_.Wait(call,
                                      [&](std::vector<int>* silent) {
                                        silent->push_back(rank_);
                                        code = cudaStreamQuery(queue_.stream);
                                        return code != cudaErrorNotReady;
                                      });
        !s.ok()) {
      return s;
    }
    Note(code, call.name);
    return failure_.ok() ? BackendStatus{} : watch_.Break(failure_);
  }

  // Returns when all members have come as often as this rank.
  BackendStatus Meet(const Call& call) {
    const CallGroup& members = watch_.group(call.group);
    const auto group = static_cast<size_t>(call.group);
    const int64_t arrivals = ++block_->rank(rank_).arrivals[group];
    return watch_.Wait(call, [&](std::vector<int>* silent) {
      for (const int peer : members.ranks) {
        if (block_->rank(peer).arrivals[group] < arrivals) silent->push_back(peer);
      }
      return silent->empty();
    });
  }

  // Moves what can be moved; drops what is done; names the peers of what is not.
  BackendStatus Advance(const Call& call, std::vector<Progress>* left, std::vector<int>* silent) {
    std::vector<bool> busy(static_cast<size_t>(2 * world_size_));  // by direction and peer
    for (Progress& progress : *left) {
      const Transfer& transfer = *progress.transfer;
      const auto lane = static_cast<size_t>((transfer.send ? 0 : world_size_) + transfer.peer);
      if (busy[lane]) continue;
      busy[lane] = true;
      BackendStatus s = transfer.send ? SendPiece(call, &progress) : TakePiece(call, &progress);
      if (!s.ok()) return watch_.Break(s);
      if (progress.done < transfer.data.bytes()) silent->push_back(transfer.peer);
    }
    std::erase_if(*left, [](const Progress& progress) {
      return progress.done == progress.transfer->data.bytes();
    });
    return {};
  }

  BackendStatus SendPiece(const Call& call, Progress* progress) {
    const Transfer& transfer = *progress->transfer;
    LocalChannel& channel = block_->channel(rank_, transfer.peer);
    if (channel.refused) return WrongLength(transfer.peer, rank_);
    if (channel.taken != channel.posted) return {};
    const int64_t bytes = transfer.data.bytes();
    if (progress->announced) {
      progress->done += channel.piece_bytes;
      progress->announced = false;
      if (progress->done == bytes) return {};
    }
    const int64_t size = std::min(PieceBytes(), bytes - progress->done);
    if (BackendStatus s =
            ToStaging(call, kCollectiveBytes + PieceBytes() * transfer.peer,
                      static_cast<const char*>(transfer.data.data) + progress->done, size);
        !s.ok()) {
      return s;
    }
    channel.message_bytes = bytes;
    channel.piece_bytes = size;
    progress->announced = true;
    ++channel.posted;
    return {};
  }

  BackendStatus TakePiece(const Call& call, Progress* progress) {
    const Transfer& transfer = *progress->transfer;
    LocalChannel& channel = block_->channel(transfer.peer, rank_);
    if (channel.posted == channel.taken) return {};
    if (channel.message_bytes != transfer.data.bytes()) {
      channel.refused = true;
      return WrongLength(rank_, transfer.peer);
    }
    CopyOnDevice(static_cast<char*>(transfer.data.data) + progress->done,
                 static_cast<const char*>(peers_[static_cast<size_t>(transfer.peer)]) +
                     kCollectiveBytes + PieceBytes() * rank_,
                 channel.piece_bytes);
    if (BackendStatus s = Finish(call); !s.ok()) return s;
    progress->done += channel.piece_bytes;
    ++channel.taken;
    return {};
  }

  static BackendStatus WrongLength(int receiver, int sender) {
    return Failure(kInternal, "rank %d sent rank %d a message of another length than was due",
                   sender, receiver);
  }

  const int rank_;
  const int world_size_;
  const Queue queue_;
  CallWatch watch_;
  std::string description_;
  int64_t started_ = 0;
  std::unique_ptr<LocalBlock> block_;
  void* staging_ = nullptr;
  std::vector<void*> peers_;  // staging buffers, by rank, as this process sees them
  std::vector<bool> mapped_;  // of them, those of other processes
  BackendStatus failure_;     // of the device
};

}  // namespace

BackendStatus OpenLocalComm(const CommOptions& options, const Queue& queue, const char* why,
                            std::unique_ptr<Comm>* comm) {
  auto opened = std::make_unique<LocalComm>(options, queue, why);
  if (BackendStatus s = opened->Open(options); !s.ok()) return s;
  *comm = std::move(opened);
  return {};
}

}  // namespace weft
