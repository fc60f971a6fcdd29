#include "worker/backend/cuda/call_watch.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <functional>

#include "worker/backend/failure.h"

namespace weft {

BackendStatus CallWatch::NewGroup(const int* ranks, int count, int* group) {
  RankGroup made;
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
  *call = {name, group, ++calls_, std::chrono::steady_clock::now() + timeout_};
  return {};
}

BackendStatus CallWatch::BeginRanges(const char* name, int group, int64_t elements, Call* call) {
  if (BackendStatus s = Begin(name, group, call); !s.ok()) return s;
  const int size = this->group(group).size();
  if (elements % size == 0) return {};
  return Failure(kInvalidArgument, "%s: %lld elements are not equal ranges for %d ranks", name,
                 static_cast<long long>(elements), size);
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

BackendStatus CallWatch::Timeout(const Call& call, std::vector<int> silent) const {
  std::sort(silent.begin(), silent.end());
  silent.erase(std::unique(silent.begin(), silent.end()), silent.end());
  std::string peers;
  for (const int peer : silent) peers += (peers.empty() ? "" : ", ") + std::to_string(peer);
  const std::string where = call.group < 0 ? "" : " of group " + std::to_string(call.group);
  return Failure(kDeadlineExceeded,
                 "%s%s (call %lld of rank %d): not heard from rank %s for %lld ms; its log may say "
                 "why",
                 call.name, where.c_str(), static_cast<long long>(call.number), rank_,
                 peers.c_str(), static_cast<long long>(timeout_.count()));
}

BackendStatus CallWatch::Interruption(const char* name) {
  const std::lock_guard<std::mutex> lock(why_mutex_);
  return Failure(kAborted, "%s interrupted: %s", name, why_.c_str());
}

}  // namespace weft
