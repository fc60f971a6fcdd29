#include "worker/backend/cuda/comm/nccl_comm.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <deque>
#include <numeric>
#include <utility>
#include <vector>

#include "worker/backend/cuda/comm/call_watch.h"
#include "worker/backend/cuda/comm/combine.h"
#include "worker/backend/cuda/comm/nccl_watch.h"
#include "worker/backend/cuda/comm/side_stream.h"
#include "worker/backend/cuda/runtime/cuda_status.h"
#include "worker/backend/failure.h"

namespace weft {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int kHostValuesAtOnce = 64;  // of a host reduction, per rank
constexpr int64_t kMostStarted = 256;  // calls whose ends are told apart: a stage's buckets

size_t IndexOf(GroupUse use) {
  return static_cast<size_t>(use);
}

struct Group {
  ncclComm_t comm = nullptr;  // null: of one rank, or of none
  std::vector<int> peers;     // the others, for messages
};

// Where calls are queued: one after the other, with a buffer for what other ranks send.
struct Lane {
  int index = 0;  // of NcclWatch
  cudaStream_t stream = nullptr;
  char* staging = nullptr;  // kNcclStagingBytes on the device; null: only NCCL's own sums
};

// One side of a message between members of a communicator.
struct Piece {
  bool send = false;
  int peer = 0;
  char* data = nullptr;
  int64_t bytes = 0;
};

// NCCL's name of what its own sums take; false for kF64, whose totals are added in rank order.
bool SumTypeOf(DType dtype, ncclDataType_t* type) {
  if (dtype == DType::kF64) return false;
  *type = dtype == DType::kBf16 ? ncclBfloat16 : dtype == DType::kF16 ? ncclFloat16 : ncclFloat32;
  return true;
}

// All ranks of a world but `rank`.
std::vector<int> Others(int world_size, int rank) {
  std::vector<int> ranks(static_cast<size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::erase(ranks, rank);
  return ranks;
}

// Closes the communicators that a watch has left, in order if nothing has failed: all ranks come
// here.
void CloseFamilies(const NcclLibrary& nccl, NcclFamilies left, NcclWatch& watch, CallWatch& calls) {
  Call call;
  (void)calls.Begin("closing a communicator", -1, &call);
  for (std::vector<ncclComm_t>& family : left) {
    while (!family.empty()) {  // groups before the world they share with
      ncclComm_t const comm = family.back();
      ncclResult_t state = ncclSuccess;
      watch.thread().Post([&nccl, comm] { return nccl.comm_finalize(comm); });
      const BackendStatus through = calls.Wait(call, [&](std::vector<int>*) {
        if (!watch.thread().IsThrough(&state)) return false;
        if (state == ncclSuccess || state == ncclInProgress) {
          nccl.comm_get_async_error(comm, &state);
        }
        return state != ncclInProgress;
      });
      // One that reports an error may still have a kernel on the device, for which destroying it
      // would wait.
      if (!through.ok() || state != ncclSuccess) return AbortFamilies(nccl, left, watch.device());
      nccl.comm_destroy(comm);
      family.pop_back();
    }
  }
}

class NcclComm final : public Comm {
 public:
  NcclComm(const CommOptions& options, const NcclLibrary& nccl, const Queue& queue)
      : rank_(options.rank),
        world_size_(options.world_size),
        rank_order_(options.rank_order),
        starts_calls_(OpensWorldOf(GroupUse::kStarted, options)),
        starts_beside_(OpensWorldOf(GroupUse::kBeside, options)),
        nccl_(nccl),
        queue_(queue),
        calls_(options.rank, options.world_size, options.timeout_ms, CallWatch::Silence::kOfSome),
        init_calls_(options.rank, options.world_size, options.init_timeout_ms,
                    CallWatch::Silence::kOfSome),
        watch_(nccl, calls_) {}

  ~NcclComm() override {
    CloseFamilies(nccl_, watch_.Stop(), watch_, init_calls_);
    if (host_ != nullptr) cudaFreeHost(host_);
    for (const Lane& lane : {main_, side_}) cudaFree(lane.staging);
  }

  BackendStatus Open(const NcclIds& ids, const char* why) {
    ids_ = ids;
    std::snprintf(description_, sizeof(description_), "NCCL %s%s%s: %s",
                  NcclVersionText(nccl_.version).c_str(), rank_order_ ? ", sums in rank order" : "",
                  (starts_calls_ || starts_beside_) && !nccl_.keeps_order
                      ? ", kernels begin in any order"
                      : "",
                  why);
    if (BackendStatus s = Allocate(); !s.ok()) return s;
    if (BackendStatus s = watch_.Start(); !s.ok()) return s;
    world_peers_ = Others(world_size_, rank_);
    exchange_.peers = world_peers_;
    Call call;
    if (BackendStatus s = OpenWorld(GroupUse::kBlocking); !s.ok()) return s;
    if (auto s = init_calls_.Begin("making the group of exchanges", -1, &call); !s.ok()) return s;
    return Split(call, GroupUse::kBlocking, 0, &exchange_);
  }

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  const char* description() const override { return description_; }

  BackendStatus NewGroup(GroupUse use, const int* ranks, int count, int* group) override {
    Call call;
    if (use == GroupUse::kStarted && !starts_calls_) {
      return Failure(kInvalidArgument,
                     "new group: this communicator was opened for calls that block");
    }
    const bool blocks = use == GroupUse::kBeside && !starts_beside_;
    const GroupUse carried_by = blocks ? GroupUse::kBlocking : use;
    if (WorldOf(carried_by) == nullptr) {
      if (BackendStatus s = OpenWorld(carried_by); !s.ok()) return Broken(s);
    }
    if (BackendStatus s = Begin("making a group", -1, &call); !s.ok()) return s;
    if (BackendStatus s = calls_.NewGroup(use, ranks, count, group); !s.ok()) return s;
    Group& made = groups_.emplace_back();
    for (int i = 0; i < count; ++i) {
      if (ranks[i] != rank_) made.peers.push_back(ranks[i]);
    }
    // A group of one needs no communicator, but takes part in making those of the others. In a
    // world of one it has one all the same: so one device proves every call.
    const bool has_comm = count > 1 || (count == 1 && world_size_ == 1);
    return Split(call, carried_by, has_comm ? ranks[0] : NCCL_SPLIT_NOCOLOR, &made);
  }

  BackendStatus AllReduce(int group, ReduceOp op, View data) override {
    return Collect({CollectiveKind::kAllReduce, group, op, data}, main_, nullptr);
  }
  BackendStatus ReduceScatter(int group, ReduceOp op, View data) override {
    return Collect({CollectiveKind::kReduceScatter, group, op, data}, main_, nullptr);
  }
  BackendStatus AllGather(int group, View data) override {
    return Collect({CollectiveKind::kAllGather, group, ReduceOp::kSum, data}, main_, nullptr);
  }

  // On a stream beside the device's, which waits for what is there now.
  BackendStatus Start(const CollectiveCall& collective, int64_t* ticket) override {
    if (auto s = calls_.CheckStart(collective, GroupUse::kStarted); !s.ok()) return s;
    return StartOn(side_stream_, side_, collective, ticket);
  }
  BackendStatus Wait(int64_t ticket) override {
    if (ticket == 0) return {};
    if (BackendStatus s = watch_.failure(); !s.ok()) return Broken(s);
    if (ticket < 0 || ticket > side_stream_.started()) {
      return Failure(kInvalidArgument, "ticket %lld is not of the %lld calls started",
                     static_cast<long long>(ticket),
                     static_cast<long long>(side_stream_.started()));
    }
    return WaitOn(side_stream_, ticket);
  }

  // The same on another stream.
  BackendStatus StartBeside(const CollectiveCall& collective) override {
    if (auto s = calls_.CheckStart(collective, GroupUse::kBeside); !s.ok()) return s;
    if (!starts_beside_) return Collect(collective, main_, nullptr);
    int64_t ticket = 0;
    return StartOn(beside_stream_, beside_, collective, &ticket);
  }
  BackendStatus WaitBeside() override {
    if (BackendStatus s = watch_.failure(); !s.ok()) return Broken(s);
    return WaitOn(beside_stream_, beside_stream_.started());
  }

  BackendStatus AllReduceHost(int group, ReduceOp op, double* values, int count) override {
    Call call;
    if (BackendStatus s = watch_.Drain(); !s.ok()) return Broken(s);
    if (BackendStatus s = Begin("all-reduce", group, &call); !s.ok()) return s;
    const Group& members = GroupOf(group);
    if (members.comm == nullptr) return {};
    const CallGroup& ranks = calls_.group(group);
    for (int at = 0; at < count; at += kHostValuesAtOnce) {
      const int size = std::min(kHostValuesAtOnce, count - at);
      const int64_t part = size * static_cast<int64_t>(sizeof(double));
      const auto own = static_cast<size_t>(part * ranks.position);
      std::copy_n(values + at, size, host_);
      if (BackendStatus s = Mark(call, main_); !s.ok()) return s;
      Note(cudaMemcpyAsync(main_.staging + own, host_, static_cast<size_t>(part),
                           cudaMemcpyHostToDevice, queue_.stream),
           call.name);
      if (auto s = Gather(call, main_, main_.staging, part); !s.ok()) return Broken(s);
      Note(cudaMemcpyAsync(host_, main_.staging, static_cast<size_t>(part * ranks.size()),
                           cudaMemcpyDeviceToHost, queue_.stream),
           call.name);
      if (BackendStatus s = WaitFor(call); !s.ok()) return s;
      std::copy_n(host_, size, values + at);
      for (int i = 1; i < ranks.size(); ++i) {
        CombineHost(op, host_ + static_cast<int64_t>(i) * size, size, values + at);
      }
    }
    return {};
  }

  BackendStatus Exchange(const Transfer* transfers, int count) override {
    Call call;
    if (BackendStatus s = Begin("exchange", -1, &call); !s.ok()) return s;
    std::vector<Piece> pieces;
    std::vector<int> peers;
    for (int i = 0; i < count; ++i) {
      const Transfer& transfer = transfers[i];
      if (transfer.peer < 0 || transfer.peer >= world_size_) {
        return Broken(Failure(kInvalidArgument, "exchange: peer %d is not in the world of %d",
                              transfer.peer, world_size_));
      }
      if (transfer.data.bytes() == 0) continue;
      pieces.push_back({transfer.send, transfer.peer, static_cast<char*>(transfer.data.data),
                        transfer.data.bytes()});
      peers.push_back(transfer.peer);
    }
    if (pieces.empty()) return {};
    if (BackendStatus s = Mark(call, main_); !s.ok()) return s;
    if (BackendStatus s = Move(call, main_, exchange_.comm, std::move(pieces), peers); !s.ok())
      return Broken(s);
    return Broken(watch_.Queued(call, main_.index, main_.stream, nullptr, peers));
  }

  // Ends when the device is through with what was queued before, on all ranks.
  BackendStatus Barrier(int group) override {
    Call call;
    if (BackendStatus s = watch_.Drain(); !s.ok()) return Broken(s);
    if (BackendStatus s = Begin("barrier", group, &call); !s.ok()) return s;
    if (BackendStatus s = Mark(call, main_); !s.ok()) return s;
    if (GroupOf(group).comm != nullptr) {
      if (auto s = Gather(call, main_, main_.staging, 1); !s.ok()) return Broken(s);
    }
    return WaitFor(call);
  }

  BackendStatus FirstFailure() const override { return watch_.failure(); }

  void Interrupt(const char* why) override {
    calls_.Interrupt(why);
    watch_.Fail(Failure(kAborted, "interrupted: %s", why));
  }

 private:
  // Opens a communicator of all ranks, with resources that groups of that use share: NCCL has a
  // stream of its own for each set of them, on which all kernels that use the set follow each
  // other, whatever stream they are given. Calls that started and calls that block must not wait
  // for each other, so the two uses have nothing in common. Never blocks: a peer that does not come
  // must not take this rank with it.
  BackendStatus OpenWorld(GroupUse use) {
    ncclComm_t& world = worlds_[IndexOf(use)];
    Call call;
    if (auto s = init_calls_.Begin("opening a communicator", -1, &call); !s.ok()) return s;
    const NcclThread::Enter enter = [&nccl = nccl_, made = &world, id = ids_.of_use[IndexOf(use)],
                                     size = world_size_, rank = rank_,
                                     config = NcclConfigOf(use, /*blocks=*/false)]() mutable {
      return nccl.comm_init_rank_config(made, size, id, rank, &config);
    };
    if (auto s = watch_.Run(call, nullptr, world_peers_, enter); !s.ok()) return s;
    watch_.Add(world, IndexOf(use));
    return watch_.Settle(call, world, world_peers_);
  }

  // Makes the communicator of those that split with the same color. All ranks of the world come
  // here; those without a color get none.
  BackendStatus Split(const Call& call, GroupUse use, int color, Group* made) {
    ncclComm_t world = WorldOf(use);
    const NcclThread::Enter enter = [&nccl = nccl_, world, color, rank = rank_, made = &made->comm,
                                     config = NcclConfigOf(use, /*blocks=*/true)]() mutable {
      return nccl.comm_split(world, color, rank, made, &config);
    };
    if (auto s = watch_.Run(call, world, world_peers_, enter); !s.ok()) return Broken(s);
    // The new one is there when the old one is through, and ready when it says so itself.
    if (auto s = watch_.Settle(call, world, world_peers_); !s.ok()) return Broken(s);
    if (color == NCCL_SPLIT_NOCOLOR) return {};
    const auto there = [&] { return std::atomic_ref<ncclComm_t>(made->comm).load() != nullptr; };
    const BackendStatus waited = calls_.Wait(call, [&](std::vector<int>* silent) {
      *silent = made->peers;
      return there() || !watch_.failure().ok();
    });
    if (!waited.ok()) return Broken(waited);
    // After a failure too: what was made meanwhile is then aborted.
    if (there()) watch_.Add(made->comm, IndexOf(use));
    if (BackendStatus s = watch_.failure(); !s.ok()) return Broken(s);
    return Broken(watch_.Settle(call, made->comm, made->peers));
  }

  ncclComm_t WorldOf(GroupUse use) const { return worlds_[IndexOf(use)]; }

  BackendStatus Allocate() {
    const auto staging = static_cast<size_t>(kNcclStagingBytes);
    const size_t values = static_cast<size_t>(kHostValuesAtOnce) * static_cast<size_t>(world_size_);
    main_.stream = queue_.stream;
    Note(cudaMalloc(&main_.staging, staging), "allocating a staging buffer");
    Note(cudaMalloc(&side_.staging, staging), "allocating a staging buffer");
    Note(cudaMallocHost(reinterpret_cast<void**>(&host_), values * sizeof(double)),
         "allocating pinned memory");
    for (SideStream* const stream : {&side_stream_, &beside_stream_}) {
      Note(stream->Open(), "making a stream and its events");
    }
    side_.stream = side_stream_.stream();
    beside_.stream = beside_stream_.stream();
    return device_failure_;
  }

  const Group& GroupOf(int group) const { return groups_[static_cast<size_t>(group)]; }

  // Begins a call; a failure that the watch has seen meanwhile comes first.
  BackendStatus Begin(const char* name, int group, Call* call) {
    const BackendStatus begun = calls_.Begin(name, group, call);
    if (begun.code == kAborted) return begun;
    if (BackendStatus s = watch_.failure(); !s.ok()) return Broken(s);
    return begun;
  }

  // Queues it on a stream beside the device's, behind what that holds now.
  BackendStatus StartOn(SideStream& stream, const Lane& lane, const CollectiveCall& collective,
                        int64_t* ticket) {
    Note(stream.Follow(queue_.stream), "waiting for an event");
    if (auto s = Collect(collective, lane, stream.next_done()); !s.ok()) return s;
    *ticket = stream.Count();
    return {};
  }

  BackendStatus WaitOn(SideStream& stream, int64_t ticket) {
    Note(stream.Join(queue_.stream, ticket), "waiting for an event");
    if (BackendStatus s = watch_.failure(); !s.ok()) return Broken(s);
    return Broken(device_failure_);
  }

  // Queues it on `lane`, with the event `done` (or none) behind it.
  BackendStatus Collect(const CollectiveCall& collective, const Lane& lane, cudaEvent_t done) {
    constexpr const char* kNames[] = {"all-reduce", "reduce-scatter", "all-gather"};
    const View data = collective.data;
    const bool reduces = collective.kind != CollectiveKind::kAllGather;
    Call call;
    if (auto s = Begin(kNames[static_cast<int>(collective.kind)], collective.group, &call);
        !s.ok()) {
      return s;
    }
    if (collective.kind != CollectiveKind::kAllReduce) {
      if (auto s = calls_.CheckRanges(call, data.elements()); !s.ok()) return s;
    }
    if (reduces && !IsReducible(data.dtype)) {
      return Failure(kInvalidArgument, "%s: only f32, f64, bf16 and f16 are reduced", call.name);
    }
    const bool moves = GroupOf(call.group).comm != nullptr && data.elements() > 0;
    if (!moves && done == nullptr) return Broken(device_failure_);
    if (auto s = Mark(call, lane); !s.ok()) return s;
    if (moves) {
      if (auto s = Broken(Move(call, lane, collective)); !s.ok()) return s;
    }
    if (!device_failure_.ok()) return Broken(device_failure_);
    return Broken(watch_.Queued(call, lane.index, lane.stream, done, GroupOf(call.group).peers));
  }

  BackendStatus Move(const Call& call, const Lane& lane, const CollectiveCall& collective) {
    const View data = collective.data;
    const CallGroup& ranks = calls_.group(call.group);
    if (collective.kind == CollectiveKind::kAllGather) {
      return Gather(call, lane, static_cast<char*>(data.data), data.bytes() / ranks.size());
    }
    const bool scatters = collective.kind == CollectiveKind::kReduceScatter;
    if (data.dtype == DType::kF64 && !scatters) return AddUp(call, lane, collective.op, data);
    ncclDataType_t type = ncclFloat32;
    if (rank_order_ || collective.op != ReduceOp::kSum || !SumTypeOf(data.dtype, &type)) {
      return scatters ? ReduceScatterByRank(call, lane, collective.op, data)
                      : AllReduceByRank(call, lane, collective.op, data);
    }
    ncclComm_t comm = GroupOf(call.group).comm;
    auto* const values = static_cast<char*>(data.data);
    const auto count = static_cast<size_t>(data.elements());
    if (!scatters) {
      return Enter(call, [&nccl = nccl_, values, count, type, comm, stream = lane.stream] {
        return nccl.all_reduce(values, values, count, type, ncclSum, comm, stream);
      });
    }
    const size_t part = count / static_cast<size_t>(ranks.size());
    char* const own = values + data.bytes() / ranks.size() * ranks.position;
    return Enter(call, [&nccl = nccl_, values, own, part, type, comm, stream = lane.stream] {
      return nccl.reduce_scatter(values, own, part, type, ncclSum, comm, stream);
    });
  }

  // Remembers a failure: all later calls return the first.
  BackendStatus Broken(const BackendStatus& status) {
    return status.ok() ? status : calls_.Break(watch_.Fail(status));
  }

  void Note(cudaError_t code, const char* what) {
    if (device_failure_.ok()) device_failure_ = FromCuda(code, what);
  }

  // Ahead of all that a call queues on `lane`.
  BackendStatus Mark(const Call& call, const Lane& lane) {
    return Broken(watch_.MarkBeginning(call, lane.index, lane.stream));
  }

  // One call into NCCL on the group's communicator, until NCCL has taken it.
  BackendStatus Enter(const Call& call, NcclThread::Enter enter) {
    return watch_.Run(call, GroupOf(call.group).comm, GroupOf(call.group).peers, std::move(enter));
  }

  // Until the device is through with `call`, which is on its stream, and all that was queued or
  // started before.
  BackendStatus WaitFor(const Call& call) {
    const std::vector<int>& peers = GroupOf(call.group).peers;
    if (!device_failure_.ok()) return Broken(device_failure_);
    const BackendStatus s = watch_.Queued(call, main_.index, main_.stream, nullptr, peers);
    return Broken(s.ok() ? watch_.Drain() : s);
  }

  // Each rank's `part` bytes of `data`, to all.
  BackendStatus Gather(const Call& call, const Lane& lane, char* data, int64_t part) {
    const int position = calls_.group(call.group).position;
    return Enter(
        call, [&nccl = nccl_, own = data + part * position, data, bytes = static_cast<size_t>(part),
               comm = GroupOf(call.group).comm, stream = lane.stream] {
          return nccl.all_gather(own, data, bytes, ncclUint8, comm, stream);
        });
  }

  BackendStatus Move(const Call& call, const Lane& lane, ncclComm_t comm, std::vector<Piece> pieces,
                     const std::vector<int>& peers) {
    if (pieces.empty()) return {};
    return watch_.Run(
        call, comm, peers, [&nccl = nccl_, comm, stream = lane.stream, pieces = std::move(pieces)] {
          ncclResult_t code = nccl.group_start();
          for (const Piece& piece : pieces) {
            if (code != ncclSuccess && code != ncclInProgress) break;
            const auto bytes = static_cast<size_t>(piece.bytes);
            code = piece.send ? nccl.send(piece.data, bytes, ncclUint8, piece.peer, comm, stream)
                              : nccl.recv(piece.data, bytes, ncclUint8, piece.peer, comm, stream);
          }
          const ncclResult_t ended = nccl.group_end();
          return code == ncclSuccess || code == ncclInProgress ? ended : code;
        });
  }
  BackendStatus MoveInGroup(const Call& call, const Lane& lane, std::vector<Piece> pieces) {
    return Move(call, lane, GroupOf(call.group).comm, std::move(pieces), GroupOf(call.group).peers);
  }

  // Bytes of one rank's slice, so that those of all fit into the staging buffer.
  int64_t SliceBytes(const CallGroup& ranks) const {
    return kNcclStagingBytes / ranks.size() / kAlignment * kAlignment;
  }

  // own = the slices of all ranks, combined in their order; those of the others lie in the staging
  // buffer, `slice` bytes apart.
  void Combine(const Lane& lane, ReduceOp op, DType dtype, const CallGroup& ranks, int64_t slice,
               char* own, int64_t bytes) {
    const RankSlices slices = {.first = lane.staging,
                               .stride_bytes = slice,
                               .ranks = ranks.size(),
                               .own_rank = ranks.position,
                               .own = own};
    Note(QueueCombineSlices(lane.stream, op, dtype, slices, bytes / ElementBytes(dtype)),
         "a reduction");
  }

  // Each rank takes what all have and adds it up itself: of a few values, in the time of one
  // message.
  BackendStatus AddUp(const Call& call, const Lane& lane, ReduceOp op, View data) {
    const CallGroup& ranks = calls_.group(call.group);
    const int64_t most = kNcclStagingBytes / ranks.size() / ElementBytes(data.dtype);
    const int64_t slice = most * ElementBytes(data.dtype);
    auto* const bytes = static_cast<char*>(data.data);
    if (slice == 0) return Failure(kInternal, "%s: too many ranks", call.name);
    for (int64_t at = 0; at < data.bytes(); at += slice) {
      const int64_t part = std::min(slice, data.bytes() - at);
      Note(cudaMemcpyAsync(lane.staging + part * ranks.position, bytes + at,
                           static_cast<size_t>(part), cudaMemcpyDeviceToDevice, lane.stream),
           call.name);
      if (BackendStatus s = Gather(call, lane, lane.staging, part); !s.ok()) return s;
      Combine(lane, op, data.dtype, ranks, part, bytes + at, part);
    }
    return {};
  }

  // In segments: each rank combines its slice of one, then all take the others' slices.
  BackendStatus AllReduceByRank(const Call& call, const Lane& lane, ReduceOp op, View data) {
    const CallGroup& ranks = calls_.group(call.group);
    const int64_t slice = SliceBytes(ranks);
    auto* const bytes = static_cast<char*>(data.data);
    for (int64_t at = 0; at < data.bytes(); at += slice * ranks.size()) {
      const int64_t segment = std::min(slice * ranks.size(), data.bytes() - at);
      const int64_t even = (segment + ranks.size() - 1) / ranks.size();
      const int64_t part = (even + kAlignment - 1) / kAlignment * kAlignment;
      const auto range = [&](int i) {
        const int64_t first = std::min(part * i, segment);
        return Piece{true, i, bytes + at + first, std::min(part, segment - first)};
      };
      const Piece own = range(ranks.position);
      std::vector<Piece> out;
      std::vector<Piece> back;
      for (int i = 0; i < ranks.size(); ++i) {
        if (i == ranks.position) continue;
        Piece other = range(i);
        if (other.bytes > 0) out.push_back(other);
        if (own.bytes > 0) out.push_back({false, i, lane.staging + slice * i, own.bytes});
        if (own.bytes > 0) back.push_back({true, i, own.data, own.bytes});
        other.send = false;
        if (other.bytes > 0) back.push_back(other);
      }
      if (BackendStatus s = MoveInGroup(call, lane, std::move(out)); !s.ok()) return s;
      Combine(lane, op, data.dtype, ranks, slice, own.data, own.bytes);
      if (BackendStatus s = MoveInGroup(call, lane, std::move(back)); !s.ok()) return s;
    }
    return {};
  }

  BackendStatus ReduceScatterByRank(const Call& call, const Lane& lane, ReduceOp op, View data) {
    const CallGroup& ranks = calls_.group(call.group);
    const int64_t slice = SliceBytes(ranks);
    const int64_t part = data.bytes() / ranks.size();
    auto* const bytes = static_cast<char*>(data.data);
    for (int64_t at = 0; at < part; at += slice) {
      const int64_t size = std::min(slice, part - at);
      std::vector<Piece> pieces;
      for (int i = 0; i < ranks.size(); ++i) {
        if (i == ranks.position) continue;
        pieces.push_back({true, i, bytes + part * i + at, size});
        pieces.push_back({false, i, lane.staging + slice * i, size});
      }
      if (BackendStatus s = MoveInGroup(call, lane, std::move(pieces)); !s.ok()) return s;
      Combine(lane, op, data.dtype, ranks, slice, bytes + part * ranks.position + at, size);
    }
    return {};
  }

  const int rank_;
  const int world_size_;
  const bool rank_order_;
  const bool starts_calls_;
  const bool starts_beside_;
  const NcclLibrary& nccl_;
  const Queue queue_;
  CallWatch calls_;
  CallWatch init_calls_;  // with the longer time of the beginning and the end
  NcclWatch watch_;
  NcclIds ids_;
  // Groups are split from them, each from the one of its use; those of started calls are made with
  // the first group of that use.
  ncclComm_t worlds_[kGroupUses] = {};
  // It has all ranks and is for exchanges alone: the order of these among the collectives differs
  // from stage to stage, and ranks must use a communicator in one order.
  Group exchange_;
  std::vector<int> world_peers_;
  std::deque<Group> groups_;    // by round; NCCL writes into them
  Lane main_ = {.index = 0};    // the device's own stream
  Lane side_ = {.index = 1};    // of what Start() starts
  Lane beside_ = {.index = 2};  // of what StartBeside() starts
  double* host_ = nullptr;      // pinned, kHostValuesAtOnce per rank
  SideStream side_stream_{kMostStarted};
  SideStream beside_stream_{1};  // all that is started there is waited for together
  BackendStatus device_failure_;
  char description_[160] = {};
};

}  // namespace

BackendStatus OpenNcclComm(const CommOptions& options, const NcclIds& ids, const Queue& queue,
                           const char* why, std::unique_ptr<Comm>* comm) {
  const NcclLibrary* nccl = nullptr;
  if (BackendStatus s = LoadNccl(&nccl); !s.ok()) return s;
  auto opened = std::make_unique<NcclComm>(options, *nccl, queue);
  if (BackendStatus s = opened->Open(ids, why); !s.ok()) return s;
  *comm = std::move(opened);
  return {};
}

}  // namespace weft
