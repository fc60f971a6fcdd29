#include "worker/backend/cpu/comm/collectives.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "worker/backend/cpu/comm/shared_transport.h"
#include "worker/backend/cpu/comm/started_calls.h"
#include "worker/backend/cpu/kernels/element.h"
#include "worker/backend/failure.h"
#include "worker/backend/started_call.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

// Tags keep groups and the steps of a call apart, and started calls from others; the rest is order.
enum class Step { kScatter = 0, kGather = 1, kWhole = 2, kBarrier = 3 };
constexpr int kExchangeTag = 0;
constexpr int kStartedTags = 1 << 14;  // MPI has at least twice as many

// A segment's scratch stays within this for any group of up to 129 ranks.
constexpr int64_t kScratchBytes = 8 << 20;
constexpr int64_t kLeastSliceBytes = 64 << 10;

struct Group {
  std::vector<int> ranks;  // empty: this rank is in no group of that round
  int position = 0;        // of this rank
  GroupUse use = GroupUse::kBlocking;
  int size() const { return static_cast<int>(ranks.size()); }
};

struct Pending {
  int request = 0;
  int peer = 0;
  bool done = false;
};

// Identifies a call, for messages.
struct Call {
  const char* name = "";
  int group = -1;  // -1: none
  int64_t number = 0;
  Clock::time_point deadline;
};

struct Range {
  int64_t first = 0;
  int64_t count = 0;
};

// Part `index` of `parts` of `count` elements, as even as can be.
Range Slice(int64_t count, int index, int parts) {
  const int64_t first = count * index / parts;
  return {first, count * (index + 1) / parts - first};
}

// Values of a type are reduced in its Accumulator::Type.
template <typename T>
struct Accumulator {
  using Type = T;
};
template <>
struct Accumulator<Bf16> {
  using Type = float;
};
template <>
struct Accumulator<Fp16> {
  using Type = float;
};

using weft::Narrow;
using weft::Widen;
double Widen(double x) {
  return x;
}
void Narrow(double x, double* out) {
  *out = x;
}

// out[i] = contributions[0][i] op contributions[1][i] op ..., from left to right. `out` may be one
// of the contributions.
template <typename T>
void Combine(ReduceOp op, const std::vector<const T*>& contributions, T* out, int64_t count) {
  constexpr int64_t kBlock = 1024;
  using Sum = typename Accumulator<T>::Type;
  std::array<Sum, kBlock> block;
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t size = std::min(kBlock, count - first);
    Sum* const sums = block.data();
    for (int64_t i = 0; i < size; ++i) sums[i] = Widen(contributions[0][first + i]);
    for (size_t r = 1; r < contributions.size(); ++r) {
      const T* const x = contributions[r] + first;
      if (op == ReduceOp::kSum) {
        for (int64_t i = 0; i < size; ++i) sums[i] += Widen(x[i]);
      } else {
        // A not-a-number on either side stays.
        for (int64_t i = 0; i < size; ++i) {
          const Sum value = Widen(x[i]);
          sums[i] = value > sums[i] || value != value ? value : sums[i];
        }
      }
    }
    for (int64_t i = 0; i < size; ++i) Narrow(sums[i], out + first + i);
  }
}

// An interruption and a deadline are looked at so often, at least.
constexpr std::chrono::microseconds kAskAgainAfter{1000};

// Yields at first: whoever is waited for may need this processor, and on an idle one an answer is
// seen at once. Then naps, so that waiting costs no processor that computing ranks could use. The
// limit is a time and no count of yields: where ranks share a processor each yield is a switch to
// another that looks in vain, and 400 of them kept six ranks of three hosts on two cores from
// their work for two thirds of the time. A nap is a small part of the time that was waited, by
// which an answer is seen too late at most: naps of 50 us alone take a rank that waits for a long
// time a tenth of a processor, as each look asks every socket. A patient wait only naps: beside a
// thread that computes, who yields comes back late, who sleeps is woken in time.
void Pause(std::chrono::nanoseconds waited, bool patient) {
  constexpr std::chrono::microseconds kYieldFor{100};
  constexpr std::chrono::nanoseconds kLeastNap{10'000};
  constexpr std::chrono::nanoseconds kLongestNap{1'000'000};
  if (waited < kYieldFor && !patient) {
    sched_yield();
    return;
  }
  const timespec nap = {0, std::clamp(waited / 64, kLeastNap, kLongestNap).count()};
  nanosleep(&nap, nullptr);
}

// Marks are those of the thread that a Collectives belongs to, and of its lane's.
struct Marks {
  WaitMarks own, started;
  Marks OfLane() const { return {started, {}}; }
};

BackendStatus CheckUse(const std::vector<Group>& groups, const CollectiveCall& call, GroupUse use) {
  const auto at = static_cast<size_t>(call.group);  // Begin names an unknown one
  return at < groups.size() ? CheckStarted(call, use, groups[at].use) : BackendStatus();
}

int64_t SliceBytes(const Group& group) {
  const int64_t others = std::max(1, group.size() - 1);
  return std::clamp(kScratchBytes / others / 64 * 64, kLeastSliceBytes, kReduceSliceBytes);
}

class Collectives final : public Comm {
 public:
  Collectives(std::shared_ptr<Transport> transport, std::chrono::milliseconds timeout,
              int first_tag, Marks marks)
      : transport_(std::move(transport)), timeout_(timeout), first_tag_(first_tag), marks_(marks) {}
  ~Collectives() override {
    if (started_ != nullptr) lane_->Interrupt("the communicator is closed");
    started_.reset();
    GiveUp();
  }

  int rank() const override { return transport_->rank(); }
  int world_size() const override { return transport_->world_size(); }

  // Messages need no set-up: the round's number is the same everywhere and tells groups apart;
  // groups of one round share it but no rank.
  BackendStatus NewGroup(GroupUse use, const int* ranks, int count, int* group) override {
    Group made;
    made.ranks.assign(ranks, ranks + count);
    const auto own = std::find(made.ranks.begin(), made.ranks.end(), rank());
    if (count > 0 &&
        (own == made.ranks.end() || made.ranks.front() < 0 || made.ranks.back() >= world_size() ||
         std::adjacent_find(made.ranks.begin(), made.ranks.end(), std::greater_equal<>()) !=
             made.ranks.end())) {
      return Failure(kInvalidArgument,
                     "new group of %d ranks at rank %d: ranks must ascend within the world of %d "
                     "and contain this rank",
                     count, rank(), world_size());
    }
    made.position = static_cast<int>(own - made.ranks.begin());
    made.use = use;
    if (count > 0) *group = static_cast<int>(groups_.size());
    if (started_ != nullptr) {
      return Failure(kInvalidArgument, "new group: groups are made before the first call starts");
    }
    AddGroup(std::move(made));
    return {};
  }

  BackendStatus AllReduce(int group, ReduceOp op, View data) override {
    switch (data.dtype) {
      case DType::kF32:
        return Reduce(group, op, static_cast<float*>(data.data), data.elements());
      case DType::kBf16:
        return Reduce(group, op, static_cast<Bf16*>(data.data), data.elements());
      case DType::kF16:
        return Reduce(group, op, static_cast<Fp16*>(data.data), data.elements());
      case DType::kF64:
        return Reduce(group, op, static_cast<double*>(data.data), data.elements());
      default:
        return Failure(kInvalidArgument, "all-reduce: only f32, f64, bf16 and fp16 can be reduced");
    }
  }

  BackendStatus AllReduceHost(int group, ReduceOp op, double* values, int count) override {
    return Reduce(group, op, values, count);
  }

  BackendStatus ReduceScatter(int group, ReduceOp op, View data) override {
    switch (data.dtype) {
      case DType::kF32:
        return Scatter(group, op, static_cast<float*>(data.data), data.elements());
      case DType::kBf16:
        return Scatter(group, op, static_cast<Bf16*>(data.data), data.elements());
      case DType::kF16:
        return Scatter(group, op, static_cast<Fp16*>(data.data), data.elements());
      case DType::kF64:
        return Scatter(group, op, static_cast<double*>(data.data), data.elements());
      default:
        return Failure(kInvalidArgument,
                       "reduce-scatter: only f32, f64, bf16 and fp16 can be reduced");
    }
  }

  BackendStatus AllGather(int group, View data) override {
    Call call;
    if (auto s = BeginRanges("all-gather", group, data.elements(), &call); !s.ok()) return s;
    const int64_t part = data.bytes() / Members(call).size();
    return Gather(call, static_cast<char*>(data.data), [part](int i) {
      return Range{part * i, part};
    });
  }

  BackendStatus Exchange(const Transfer* transfers, int count) override {
    Call call;
    if (BackendStatus s = Begin("exchange", -1, &call); !s.ok()) return s;
    for (int i = 0; i < count; ++i) {
      const Transfer& transfer = transfers[i];
      if (transfer.peer < 0 || transfer.peer >= world_size()) {
        return Break(Failure(kInvalidArgument, "exchange: peer %d is not in the world of %d",
                             transfer.peer, world_size()));
      }
      void* const data = transfer.data.data;
      const int64_t bytes = transfer.data.bytes();
      BackendStatus s = transfer.send ? Send(transfer.peer, kExchangeTag, data, bytes)
                                      : Receive(transfer.peer, kExchangeTag, data, bytes);
      if (!s.ok()) return s;
    }
    return WaitForAll(call);
  }

  BackendStatus Barrier(int group) override {
    Call call;
    if (BackendStatus s = Begin("barrier", group, &call); !s.ok()) return s;
    const Group& members = groups_[static_cast<size_t>(group)];
    std::vector<char> heard(members.ranks.size());
    const char token = 1;
    for (int i = 0; i < members.size(); ++i) {
      if (i == members.position) continue;
      const int peer = members.ranks[static_cast<size_t>(i)];
      if (auto s = Send(peer, Tag(group, Step::kBarrier), &token, 1); !s.ok()) return s;
      if (auto s = Receive(peer, Tag(group, Step::kBarrier), &heard[static_cast<size_t>(i)], 1);
          !s.ok()) {
        return s;
      }
    }
    return WaitForAll(call);  // before `heard` and `token` go
  }

  BackendStatus Start(const CollectiveCall& collective, int64_t* ticket) override {
    if (BackendStatus s = BrokenBefore("start"); !s.ok()) return s;
    if (auto s = CheckUse(groups_, collective, GroupUse::kStarted); !s.ok()) return s;
    if (started_ == nullptr) OpenLane();
    *ticket = started_->Start(collective);
    return {};
  }

  BackendStatus Wait(int64_t ticket) override {
    if (ticket == 0) return broken_;
    if (started_ == nullptr || ticket > started_->count()) {
      if (!broken_.ok()) return broken_;
      return Failure(kInvalidArgument, "wait: call %lld was never started",
                     static_cast<long long>(ticket));
    }
    lane_->patient_ = false;
    const BackendStatus waited = started_->Wait(ticket);
    lane_->patient_ = true;
    if (!broken_.ok()) return broken_;
    return waited.ok() ? waited : Break(waited);
  }

  BackendStatus StartBeside(const CollectiveCall& collective) override {
    if (auto s = CheckUse(groups_, collective, GroupUse::kBeside); !s.ok()) return s;
    return MakeBlocking(*this, collective);
  }
  BackendStatus WaitBeside() override { return BrokenBefore("wait"); }

  void Interrupt(const char* why) override {
    const std::lock_guard<std::mutex> lock(why_mutex_);
    if (!interrupted_) why_ = why;
    interrupted_ = true;
    if (lane_ != nullptr) lane_->Interrupt(why);
  }

 private:
  void AddGroup(Group made) {
    const int64_t bytes =
        std::max(0, made.size() - 1) * std::max(SliceBytes(made), kSmallReduceBytes);
    if (bytes > static_cast<int64_t>(scratch_.size() * sizeof(double))) {
      scratch_.resize(static_cast<size_t>(bytes) / sizeof(double));
    }
    groups_.push_back(std::move(made));
  }

  void OpenLane() {
    auto lane = std::make_unique<Collectives>(transport_, timeout_, kStartedTags, marks_.OfLane());
    for (const Group& group : groups_) lane->AddGroup(group);
    lane->patient_ = true;
    const std::lock_guard<std::mutex> lock(why_mutex_);
    if (interrupted_) lane->Interrupt(why_.c_str());
    lane_ = lane.get();
    started_ = std::make_unique<StartedCalls>(std::move(lane));
  }

  int Tag(int group, Step step) const {
    return first_tag_ + 1 + 4 * group + static_cast<int>(step);
  }

  const Group& Members(const Call& call) const { return groups_[static_cast<size_t>(call.group)]; }

  template <typename T>
  BackendStatus Reduce(int group, ReduceOp op, T* data, int64_t count) {
    Call call;
    if (BackendStatus s = Begin("all-reduce", group, &call); !s.ok()) return s;
    const Group& members = Members(call);
    if (members.size() == 1 || count == 0) return {};
    const auto size = static_cast<int64_t>(sizeof(T));
    if (count * size <= kSmallReduceBytes) return ReduceWhole(call, op, data, count);
    const int64_t segment = SliceBytes(members) / size * members.size();
    for (int64_t first = 0; first < count; first += segment) {
      const auto slice_of = [&](int i) {
        return Slice(std::min(segment, count - first), i, members.size());
      };
      if (BackendStatus s = ReduceOwn(call, op, data + first, slice_of); !s.ok()) return s;
      if (BackendStatus s = Gather(call, data + first, slice_of); !s.ok()) return s;
    }
    return {};
  }

  template <typename T>
  BackendStatus Scatter(int group, ReduceOp op, T* data, int64_t count) {
    Call call;
    if (BackendStatus s = BeginRanges("reduce-scatter", group, count, &call); !s.ok()) return s;
    const Group& members = Members(call);
    if (members.size() == 1) return {};
    const int64_t part = count / members.size();
    const int64_t slice = SliceBytes(members) / static_cast<int64_t>(sizeof(T));
    for (int64_t first = 0; first < part; first += slice) {
      const auto slice_of = [&](int i) {
        return Range{part * i + first, std::min(slice, part - first)};
      };
      if (BackendStatus s = ReduceOwn(call, op, data, slice_of); !s.ok()) return s;
    }
    return {};
  }

  // Every rank adds everything.
  template <typename T>
  BackendStatus ReduceWhole(const Call& call, ReduceOp op, T* data, int64_t count) {
    const Group& members = Members(call);
    const int tag = Tag(call.group, Step::kWhole);
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    std::vector<const T*> contributions;
    T* slot = reinterpret_cast<T*>(scratch_.data());
    for (int i = 0; i < members.size(); ++i) {
      if (i == members.position) {
        contributions.push_back(data);
        continue;
      }
      const int peer = members.ranks[static_cast<size_t>(i)];
      if (BackendStatus s = Receive(peer, tag, slot, bytes); !s.ok()) return s;
      if (BackendStatus s = Send(peer, tag, data, bytes); !s.ok()) return s;
      contributions.push_back(slot);
      slot += count;
    }
    if (BackendStatus s = WaitForAll(call); !s.ok()) return s;
    Combine(op, contributions, data, count);
    return {};
  }

  // Every rank adds its own slice of `data`; slice_of(i) is the group's i-th rank's.
  template <typename T, typename SliceOf>
  BackendStatus ReduceOwn(const Call& call, ReduceOp op, T* data, const SliceOf& slice_of) {
    const Group& members = Members(call);
    const auto bytes = [](Range range) { return range.count * static_cast<int64_t>(sizeof(T)); };
    const int tag = Tag(call.group, Step::kScatter);
    const Range own = slice_of(members.position);
    std::vector<const T*> contributions;
    T* slot = reinterpret_cast<T*>(scratch_.data());
    for (int i = 0; i < members.size(); ++i) {
      if (i == members.position) {
        contributions.push_back(data + own.first);
        continue;
      }
      const int peer = members.ranks[static_cast<size_t>(i)];
      const Range theirs = slice_of(i);
      if (auto s = Receive(peer, tag, slot, bytes(own)); !s.ok()) return s;
      if (auto s = Send(peer, tag, data + theirs.first, bytes(theirs)); !s.ok()) return s;
      contributions.push_back(slot);
      slot += own.count;
    }
    if (BackendStatus s = WaitForAll(call); !s.ok()) return s;
    Combine(op, contributions, data + own.first, own.count);
    return {};
  }

  // Every rank tells the others its own slice.
  template <typename T, typename SliceOf>
  BackendStatus Gather(const Call& call, T* data, const SliceOf& slice_of) {
    const Group& members = Members(call);
    const auto bytes = [](Range range) { return range.count * static_cast<int64_t>(sizeof(T)); };
    const int tag = Tag(call.group, Step::kGather);
    const Range own = slice_of(members.position);
    for (int i = 0; i < members.size(); ++i) {
      if (i == members.position) continue;
      const int peer = members.ranks[static_cast<size_t>(i)];
      const Range theirs = slice_of(i);
      if (auto s = Receive(peer, tag, data + theirs.first, bytes(theirs)); !s.ok()) return s;
      if (auto s = Send(peer, tag, data + own.first, bytes(own)); !s.ok()) return s;
    }
    return WaitForAll(call);
  }

  // Begin, for data that is one range per rank.
  BackendStatus BeginRanges(const char* name, int group, int64_t elements, Call* call) {
    if (BackendStatus s = Begin(name, group, call); !s.ok()) return s;
    const int size = Members(*call).size();
    if (elements % size == 0) return {};
    return Failure(kInvalidArgument, "%s: %lld elements are not equal ranges for %d ranks", name,
                   static_cast<long long>(elements), size);
  }

  // Fails if the Comm is broken or interrupted, or `group` is not one of this rank's.
  BackendStatus Begin(const char* name, int group, Call* call) {
    if (BackendStatus s = BrokenBefore(name); !s.ok()) return s;
    const bool known = group >= 0 && group < static_cast<int>(groups_.size()) &&
                       groups_[static_cast<size_t>(group)].size() > 0;
    if (group != -1 && !known) {
      return Failure(kInvalidArgument, "%s: group %d is not one of rank %d's", name, group, rank());
    }
    *call = {name, group, ++calls_, Clock::now() + timeout_};
    return {};
  }

  // Returns what has ended this Comm before `name`, a started call included.
  BackendStatus BrokenBefore(const char* name) {
    if (!broken_.ok()) return broken_;
    if (started_ != nullptr) {
      if (BackendStatus s = started_->failure(); !s.ok()) return Break(s);
    }
    if (interrupted_) return Break(Interruption(name));
    return {};
  }

  // In pieces that the transport takes; cut alike on both sides.
  BackendStatus Send(int peer, int tag, const void* data, int64_t bytes) {
    const int64_t piece = transport_->max_message_bytes();
    for (int64_t at = 0; at < bytes; at += piece) {
      Pending pending = {.peer = peer};
      BackendStatus s = transport_->Send(peer, tag, static_cast<const char*>(data) + at,
                                         std::min(piece, bytes - at), &pending.request);
      if (!s.ok()) return Break(s);
      pending_.push_back(pending);
    }
    return {};
  }
  BackendStatus Receive(int peer, int tag, void* data, int64_t bytes) {
    const int64_t piece = transport_->max_message_bytes();
    for (int64_t at = 0; at < bytes; at += piece) {
      Pending pending = {.peer = peer};
      BackendStatus s = transport_->Receive(peer, tag, static_cast<char*>(data) + at,
                                            std::min(piece, bytes - at), &pending.request);
      if (!s.ok()) return Break(s);
      pending_.push_back(pending);
    }
    return {};
  }

  BackendStatus WaitForAll(const Call& call) {
    const Clock::time_point began = Clock::now();
    for (;;) {
      // Before the look: what came while this thread had no core has come.
      const Clock::time_point now = Clock::now();
      const bool is_late = now > call.deadline;
      int silent = -1;
      for (Pending& pending : pending_) {
        if (pending.done) continue;
        BackendStatus s = transport_->Test(pending.request, &pending.done);
        if (!s.ok()) {
          pending.done = true;  // there is nothing left to give up
          return Break(s);
        }
        if (!pending.done && silent < 0) silent = pending.peer;
      }
      if (silent < 0) break;
      if (interrupted_) return Break(Interruption(call.name));
      if (is_late) return Break(Timeout(call));
      marks_.own.Raise(silent);
      if (!transport_->AwaitChange(&seen_change_, kAskAgainAfter)) Pause(now - began, patient_);
    }
    pending_.clear();
    return {};
  }

  BackendStatus Timeout(const Call& call) const {
    std::vector<int> silent;
    for (const Pending& pending : pending_) {
      if (!pending.done) silent.push_back(pending.peer);
    }
    std::sort(silent.begin(), silent.end());
    silent.erase(std::unique(silent.begin(), silent.end()), silent.end());
    std::string peers;
    for (const int peer : silent) peers += (peers.empty() ? "" : ", ") + std::to_string(peer);
    const std::string where = call.group < 0 ? "" : " of group " + std::to_string(call.group);
    return Failure(kDeadlineExceeded,
                   "%s%s (call %lld of rank %d): not heard from rank %s for %lld ms; its log may "
                   "say why",
                   call.name, where.c_str(), static_cast<long long>(call.number), rank(),
                   peers.c_str(), static_cast<long long>(timeout_.count()));
  }

  BackendStatus Interruption(const char* name) {
    const std::lock_guard<std::mutex> lock(why_mutex_);
    return Failure(kAborted, "%s interrupted: %s", name, why_.c_str());
  }

  BackendStatus Break(const BackendStatus& failure) {
    GiveUp();
    broken_ = failure;
    if (lane_ != nullptr) lane_->Interrupt(failure.text);  // or Wait would last a deadline
    return failure;
  }

  void GiveUp() {
    for (const Pending& pending : pending_) {
      if (!pending.done) transport_->Cancel(pending.request);
    }
    pending_.clear();
  }

  const std::shared_ptr<Transport> transport_;
  const std::chrono::milliseconds timeout_;
  const int first_tag_;
  const Marks marks_;
  std::vector<Group> groups_;     // by round of NewGroup
  std::vector<double> scratch_;   // what the others contribute to this rank's slice
  std::vector<Pending> pending_;  // of the current call
  int64_t seen_change_ = 0;       // of the transport
  int64_t calls_ = 0;
  BackendStatus broken_;

  std::atomic<bool> interrupted_ = false;
  std::mutex why_mutex_;  // guards why_ and the setting of lane_
  std::string why_;

  std::unique_ptr<StartedCalls> started_;  // null before the first
  Collectives* lane_ = nullptr;            // that they are made on
  std::atomic<bool> patient_ = false;
};

}  // namespace

std::unique_ptr<Comm> MakeCollectives(std::unique_ptr<Transport> transport,
                                      const CommOptions& options) {
  return std::make_unique<Collectives>(std::make_shared<SharedTransport>(std::move(transport)),
                                       std::chrono::milliseconds(options.timeout_ms), 0,
                                       Marks{options.blocking_marks, options.started_marks});
}

}  // namespace weft
