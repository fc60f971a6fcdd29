#include "worker/backend/cuda/comm/call_watch.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <functional>

#include "worker/backend/failure.h"
#include "worker/backend/started_call.h"

namespace weft {

BackendStatus CallWatch::NewGroup(GroupUse use, const int* ranks, int count, int* group) {
  CallGroup made;
  made.ranks.assign(ranks, ranks + count);
  const auto own = std::find(made.ranks.begin(), made.ranks.end(), rank_);
  const bool ascends = std::adjacent_find(made.ranks.begin(), made.ranks.end(),
                                          std::greater_equal<>()) == made.ranks.end();
  if (count > 0 && (own == made.ranks.end() || made.ranks.front() < 0 ||
                    made.ranks.back() >= world_size_ || !ascends)) {
    return Failure(kInvalidArgument,
                   "new group of %d ranks at rank %d: ranks must ascend within the world of %d and "
                   "contain this rank",
                   count, rank_, world_size_);
  }
  made.position = static_cast<int>(own - made.ranks.begin());
  made.use = use;
  if (count > 0) *group = rounds();
  groups_.push_back(std::move(made));
  return {};
}

BackendStatus CallWatch::Begin(const char* name, int group, Call* call) {
  if (!broken_.ok()) return broken_;
  if (interrupted_) return Break(Interruption(name));
  const bool known = group >= 0 && group < rounds() && this->group(group).size() > 0;
  if (group != -1 && !known) {
    return Failure(kInvalidArgument, "%s: group %d is not one of rank %d's", name, group, rank_);
  }
  *call = {name, group, ++calls_, timeout_, std::chrono::steady_clock::now() + timeout_};
  return {};
}

BackendStatus CallWatch::CheckStart(const CollectiveCall& call, GroupUse use) const {
  const bool known = call.group >= 0 && call.group < rounds();
  return known ? CheckStarted(call, use, group(call.group).use) : BackendStatus();
}

BackendStatus CallWatch::CheckRanges(const Call& call, int64_t elements) const {
  const int size = group(call.group).size();
  if (elements % size == 0) return {};
  return Failure(kInvalidArgument, "%s: %lld elements are not equal ranges for %d ranks", call.name,
                 static_cast<long long>(elements), size);
}

BackendStatus CallWatch::BeginRanges(const char* name, int group, int64_t elements, Call* call) {
  if (BackendStatus s = Begin(name, group, call); !s.ok()) return s;
  return CheckRanges(*call, elements);
}

BackendStatus CallWatch::Break(const BackendStatus& failure) {
  if (broken_.ok()) broken_ = failure;
  return failure;
}

void CallWatch::Interrupt(const char* why) {
  const std::lock_guard<std::mutex> lock(why_mutex_);
  if (!interrupted_) why_ = why;
  interrupted_ = true;
}

void CallWatch::Pause(int64_t round) {
  constexpr int64_t kYields = 400;
  if (round < kYields) {
    sched_yield();
    return;
  }
  const timespec nap = {0, round < 2 * kYields ? 10'000 : 50'000};
  nanosleep(&nap, nullptr);
}

// "all-reduce of group 2 (call 17 of rank 0)"
std::string CallWatch::NameOf(const Call& call) const {
  std::string name = call.name;
  if (call.group >= 0) name += " of group " + std::to_string(call.group);
  return name + " (call " + std::to_string(call.number) + " of rank " + std::to_string(rank_) + ")";
}

BackendStatus CallWatch::Timeout(const Call& call, std::vector<int> silent) const {
  std::sort(silent.begin(), silent.end());
  silent.erase(std::unique(silent.begin(), silent.end()), silent.end());
  std::string peers;
  for (const int peer : silent) peers += (peers.empty() ? "" : ", ") + std::to_string(peer);
  const auto waited_ms = static_cast<long long>(call.timeout.count());
  if (silence_ == Silence::kOfSome) {
    return Failure(kDeadlineExceeded,
                   "%s: not done after %lld ms; it needs rank %s, one of whose logs may say why",
                   NameOf(call).c_str(), waited_ms, peers.c_str());
  }
  return Failure(kDeadlineExceeded, "%s: not heard from rank %s for %lld ms; its log may say why",
                 NameOf(call).c_str(), peers.c_str(), waited_ms);
}

BackendStatus CallWatch::During(const Call& call, const BackendStatus& failure) const {
  return Failure(static_cast<FailureCode>(failure.code), "%s: %s", NameOf(call).c_str(),
                 failure.text);
}

BackendStatus CallWatch::Interruption(const char* name) {
  const std::lock_guard<std::mutex> lock(why_mutex_);
  return Failure(kAborted, "%s interrupted: %s", name, why_.c_str());
}

}  // namespace weft
