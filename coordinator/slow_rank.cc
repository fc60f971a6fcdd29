#include "coordinator/slow_rank.h"

#include <algorithm>

namespace weft {
namespace {

// A Pace is what a rank did in a window.
struct Pace {
  const RankSeen* seen = nullptr;
  int64_t steps = 0;
  double busy_ms = 0;  // per step
};

// Data ranks whose state is sharded are one another's replicas no more, but share its shards.
bool DoTheSame(const RankSeen& a, const RankSeen& b) {
  for (const MeetingAxis axis : {MeetingAxis::kTensor, MeetingAxis::kReplicas, MeetingAxis::kShards,
                                 MeetingAxis::kContext}) {
    const auto index = static_cast<size_t>(axis);
    const uint64_t key = a.page.groups[index].key;
    if (key != 0 && key == b.page.groups[index].key) return true;
  }
  return false;
}

// The median of what its peers compute for; none: it has no peers.
std::optional<double> PeersBusyMs(const Pace& pace, absl::Span<const Pace> all) {
  std::vector<double> peers;
  for (const Pace& other : all) {
    const bool is_other = other.seen->rank != pace.seen->rank;
    if (is_other && DoTheSame(*other.seen, *pace.seen)) peers.push_back(other.busy_ms);
  }
  if (peers.empty()) return std::nullopt;
  const auto middle = peers.begin() + static_cast<int64_t>(peers.size() / 2);
  std::nth_element(peers.begin(), middle, peers.end());
  return *middle;
}

SlowRank Slowest(absl::Span<const Pace> all, double window_ms) {
  SlowRank slowest;
  for (const Pace& pace : all) {
    const std::optional<double> peers_ms = PeersBusyMs(pace, all);
    if (!peers_ms) continue;
    const double step_ms = window_ms / static_cast<double>(pace.steps);
    const double times = pace.busy_ms / std::max(*peers_ms, 0.001 * step_ms);
    const bool is_slow = times >= kSlowTimes && pace.busy_ms - *peers_ms >= kSlowShare * step_ms;
    if (!is_slow || times <= slowest.times) continue;
    slowest = {.rank = pace.seen->rank,
               .host = pace.seen->host,
               .share = std::min(1.0, pace.busy_ms / step_ms),
               .times = times};
  }
  return slowest;
}

}  // namespace

void SlowWatch::Begin(int64_t now_ms, absl::Span<const RankSeen> ranks) {
  begun_ms_ = now_ms;
  begun_.clear();
  for (const RankSeen& seen : ranks) begun_[seen.rank] = {seen.page.step, seen.page.busy_ms};
}

// A window without a slow rank is that of all ranks: the one that is furthest behind counts.
int64_t SlowWatch::BegunStep(int rank) const {
  const auto found = begun_.find(rank);
  if (found != begun_.end()) return found->second.step;
  const auto least = std::min_element(
      begun_.begin(), begun_.end(),
      [](const auto& one, const auto& other) { return one.second.step < other.second.step; });
  return least == begun_.end() ? 0 : least->second.step;
}

std::optional<SlowRank> SlowWatch::Look(int64_t now_ms, absl::Span<const RankSeen> ranks) {
  std::vector<Pace> paces;
  for (const RankSeen& seen : ranks) {
    const auto found = begun_.find(seen.rank);
    if (found == begun_.end() || seen.page.step < found->second.step) break;
    const int64_t steps = seen.page.step - found->second.step;
    const auto busy_ms = static_cast<double>(seen.page.busy_ms - found->second.busy_ms);
    paces.push_back({&seen, steps, steps > 0 ? busy_ms / static_cast<double>(steps) : 0});
  }
  if (paces.size() != ranks.size() || begun_.size() != ranks.size()) {
    Begin(now_ms, ranks);
    return std::nullopt;
  }
  const bool is_whole = std::all_of(
      paces.begin(), paces.end(), [](const Pace& pace) { return pace.steps >= kSlowWindowSteps; });
  if (now_ms - begun_ms_ < kSlowWindowMs || !is_whole) return std::nullopt;
  SlowRank slowest = Slowest(paces, static_cast<double>(now_ms - begun_ms_));
  if (windows_ == 0 || slowest.rank != candidate_) {
    windows_ = 0;
    since_step_ = BegunStep(slowest.rank);
  }
  Begin(now_ms, ranks);
  ++windows_;
  candidate_ = slowest.rank;
  if (windows_ < kSlowWindows || candidate_ == named_) return std::nullopt;
  named_ = candidate_;
  slowest.since_step = since_step_;
  return slowest;
}

}  // namespace weft
