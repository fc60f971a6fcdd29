#include "plan/search/search.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "plan/errors.h"
#include "plan/schedule.h"
#include "plan/search/describe.h"
#include "plan/simulate.h"
#include "plan/stage_memory.h"

namespace weft {
namespace {

std::vector<int64_t> Divisors(int64_t number) {
  std::vector<int64_t> small, large;
  for (int64_t divisor = 1; divisor * divisor <= number; ++divisor) {
    if (number % divisor != 0) continue;
    small.push_back(divisor);
    if (divisor != number / divisor) large.push_back(number / divisor);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

// Degrees beyond this are candidates only if they break no rule: nobody asks why not dp=1021.
constexpr int64_t kListedDegrees = 64;

// The fixed degree, or 1..most; never empty, so that a contradiction has a layout to be shown on.
std::vector<int> Degrees(std::optional<int> fixed, int64_t most) {
  if (fixed) return {*fixed};
  std::vector<int> degrees(static_cast<size_t>(std::max<int64_t>(most, 1)));
  std::iota(degrees.begin(), degrees.end(), 1);
  return degrees;
}

// The same for dp, which has to divide the batch; `broken` also lists small ones that do not.
std::vector<int> DataDegrees(std::optional<int> fixed, int64_t most, int64_t global, bool broken) {
  if (fixed) return {*fixed};
  std::vector<int> degrees = {1};
  for (int64_t dp = 2; dp <= std::min(most, kListedDegrees); ++dp) {
    if (broken || global % dp == 0) degrees.push_back(static_cast<int>(dp));
  }
  for (const int64_t dp : Divisors(global)) {
    if (dp > kListedDegrees && dp <= most) degrees.push_back(static_cast<int>(dp));
  }
  return degrees;
}

// How one replica's share of the batch may be cut: (micro_batch_size, num_microbatches). What does
// not divide is rounded down, for CheckLayout to refuse.
std::vector<std::pair<int64_t, int64_t>> BatchCuts(const TrainingSpec& training, int dp) {
  const std::optional<int64_t> micro = training.micro_batch_size;
  const std::optional<int64_t> accumulation = training.gradient_accumulation_steps;
  const int64_t share = training.global_batch_size / std::max(dp, 1);
  const auto cut = [&](int64_t by) {
    return std::max<int64_t>(1, share / std::max<int64_t>(1, by));
  };
  if (micro && accumulation) return {{*micro, *accumulation}};
  if (micro) return {{*micro, cut(*micro)}};
  if (accumulation) return {{cut(*accumulation), *accumulation}};
  if (share * dp != training.global_batch_size) return {{1, cut(1)}};
  std::vector<std::pair<int64_t, int64_t>> cuts;
  for (const int64_t divisor : Divisors(share)) cuts.emplace_back(divisor, share / divisor);
  return cuts;
}

std::vector<ScheduleKind> Schedules(const ParallelismSpec& parallelism, int pp) {
  if (parallelism.pp_schedule) return {*parallelism.pp_schedule};
  if (pp == 1) return {ScheduleKind::kOneForwardOneBackward};
  return {ScheduleKind::kOneForwardOneBackward, ScheduleKind::kGpipe};
}

// CheckLayout, in the words of what the job fixed: what the search chose is not to blame.
absl::Status CheckCandidate(const JobSpec& job, const Layout& layout) {
  RETURN_IF_ERROR(FirstIssue(EngineIssues(job.model, layout)));
  RETURN_IF_ERROR(FirstIssue(DegreeIssues(job.model, job.cluster, layout)));
  RETURN_IF_ERROR(
      FirstIssue(BatchIssues(job.model, job.batch(), layout.dp, job.training.micro_batch_size,
                             job.training.gradient_accumulation_steps)));
  return CheckRunnable(job.model, job.cluster, job.batch(), layout);
}

// Step time in picoseconds: sums of the same work in another order count as equal.
double Ticks(const StepTime& time) {
  return std::round(time.total_s() * 1e12);
}

struct Candidate {
  Layout layout;
  StepTime time;
  MemoryBytes memory;  // of the fullest stage
  int fullest_stage = 0;
};

Candidate Price(const JobSpec& job, const Layout& layout, StageMemoryTable& table) {
  Candidate candidate = {.layout = layout, .time = {}, .memory = {}};
  for (int stage = 0; stage < layout.pp; ++stage) {
    const MemoryBytes memory = table.Of(layout, stage);
    if (memory.total_bytes() <= candidate.memory.total_bytes()) continue;
    candidate.memory = memory;
    candidate.fullest_stage = stage;
  }
  candidate.time = EstimateStepTime(job.model, job.cluster, job.batch(), layout,
                                    OptimizerStates(job.optimizer.name));
  return candidate;
}

// "needs 3.20 GiB on stage 0, 0.70 GiB above the 2.50 GiB of cpu-slot: activations 1.90 GiB is the
// largest part"
std::string MisfitText(const Cluster& cluster, int stage, const MemoryBytes& memory) {
  const int64_t usable = cluster.device.usable_bytes();
  const MemoryKind largest = memory.largest();
  return absl::StrCat("needs ", BytesText(memory.total_bytes()), " on stage ", stage, ", ",
                      BytesText(memory.total_bytes() - usable), " above the ", BytesText(usable),
                      " of ", cluster.device.name, ": ", MemoryKindName(largest), " ",
                      BytesText(memory.bytes(largest)), " is the largest part");
}

// "12 % slower: bubble +310 ms, pipeline_comm +50.0 ms": the terms that grew most, at most three,
// none below a twentieth of the largest.
std::string SlowerText(const StepTime& winner, const StepTime& loser) {
  if (Ticks(loser) <= Ticks(winner)) return "just as fast; of equals the first in order wins";
  std::vector<std::pair<double, std::string>> grown;  // (-seconds, name): largest first
  const auto before = winner.terms();
  const auto after = loser.terms();
  for (size_t i = 0; i < after.size(); ++i) {
    const double growth_s = after[i].second - before[i].second;
    if (growth_s > 0) grown.emplace_back(-growth_s, after[i].first);
  }
  std::sort(grown.begin(), grown.end());
  std::vector<std::string> parts;
  for (const auto& [growth_s, name] : grown) {
    if (parts.size() == 3 || growth_s > grown.front().first / 20) break;
    parts.push_back(absl::StrCat(name, " +", SecondsText(-growth_s)));
  }
  const double percent = 100 * (loser.total_s() / winner.total_s() - 1);
  const std::string share = percent < 0.05   ? "less than 0.1"
                            : percent < 9.95 ? absl::StrFormat("%.1f", percent)
                                             : absl::StrFormat("%.0f", percent);
  return absl::StrCat(share, " % slower: ", absl::StrJoin(parts, ", "));
}

Rejection DoesNotFit(const JobSpec& job, const Candidate& candidate) {
  return {.layout = candidate.layout,
          .cause = RejectionCause::kDoesNotFit,
          .reason = MisfitText(job.cluster, candidate.fullest_stage, candidate.memory),
          .step_s = 0,
          .memory_bytes = candidate.memory.total_bytes()};
}

absl::Status NothingFits(absl::string_view which, const Layout& layout, absl::string_view reason) {
  return absl::FailedPreconditionError(absl::StrCat(
      which, " ", LayoutText(layout), " ", reason,
      "; use more slots, devices with more memory, a smaller model or a shorter training.seq_len"));
}

// The plan of `layout` with every buffer of every stage listed; whether it fits is not asked.
absl::StatusOr<Plan> Detailed(const JobSpec& job, const Layout& layout, const StepTime& time) {
  Plan plan;
  plan.layout = layout;
  plan.time = time;
  plan.usable_bytes = job.cluster.device.usable_bytes();
  std::vector<std::vector<Action>> schedules;
  for (int stage = 0; stage < layout.pp; ++stage) {
    // tp index 0 takes the remainder of every cut; replicas of dp are alike.
    const int rank = layout.grid().RankOf({.dp = 0, .pp = stage, .cp = 0, .tp = 0});
    plan.stages.push_back({.stage = stage,
                           .blocks = ChunkBlocks(layout, job.model.num_blocks, stage, 0),
                           .memory = PlanRankMemory(job.model, job.batch(), layout, rank,
                                                    OptimizerStates(job.optimizer.name))});
    schedules.push_back(StepSchedule(layout, stage, job.model.tied_embeddings));
  }
  ASSIGN_OR_RETURN(
      const Simulation simulation,
      Simulate(schedules, EstimateActionSeconds(job.model, job.cluster, job.batch(), layout)));
  plan.bubble_fraction = simulation.bubble_fraction;
  return plan;
}

// Candidates sorted by what becomes of them.
struct Sorted {
  std::vector<Candidate> fitting;  // fastest first; of equals the earlier candidate
  std::vector<Candidate> misfits;  // least bytes first
  std::vector<Rejection> rules;    // one per broken rule
  int64_t candidates = 0;
};

Sorted SortCandidates(const JobSpec& job) {
  Sorted sorted;
  std::set<std::string> rules;
  StageMemoryTable table(job.model, job.training.seq_len, OptimizerStates(job.optimizer.name));
  for (const Layout& layout : CandidateLayouts(job)) {
    ++sorted.candidates;
    const absl::Status rule = CheckCandidate(job, layout);
    if (!rule.ok()) {
      std::string reason(rule.message());
      if (!rules.insert(reason).second) continue;
      sorted.rules.push_back(
          {.layout = layout, .cause = RejectionCause::kBrokenRule, .reason = std::move(reason)});
      continue;
    }
    const Candidate candidate = Price(job, layout, table);
    const bool fits = candidate.memory.total_bytes() <= job.cluster.device.usable_bytes();
    (fits ? sorted.fitting : sorted.misfits).push_back(candidate);
  }
  std::stable_sort(
      sorted.fitting.begin(), sorted.fitting.end(),
      [](const Candidate& a, const Candidate& b) { return Ticks(a.time) < Ticks(b.time); });
  std::stable_sort(sorted.misfits.begin(), sorted.misfits.end(),
                   [](const Candidate& a, const Candidate& b) {
                     return a.memory.total_bytes() < b.memory.total_bytes();
                   });
  return sorted;
}

// Best losers, then misfits, then rules. `fitting` is without the winner.
std::vector<Rejection> Rejections(const JobSpec& job, const StepTime& winner,
                                  const Sorted& sorted) {
  std::vector<Rejection> rejections;
  for (const Candidate& candidate : sorted.fitting) {
    rejections.push_back({.layout = candidate.layout,
                          .cause = RejectionCause::kSlower,
                          .reason = SlowerText(winner, candidate.time),
                          .step_s = candidate.time.total_s(),
                          .memory_bytes = candidate.memory.total_bytes()});
  }
  for (const Candidate& candidate : sorted.misfits)
    rejections.push_back(DoesNotFit(job, candidate));
  rejections.insert(rejections.end(), sorted.rules.begin(), sorted.rules.end());
  return rejections;
}

}  // namespace

int64_t Plan::peak_bytes() const {
  int64_t peak = 0;
  for (const StageMemory& stage : stages) peak = std::max(peak, stage.memory.total_bytes());
  return peak;
}

double Plan::tokens_per_s(const BatchShape& batch) const {
  return static_cast<double>(batch.global_batch_size * batch.seq_len) / time.total_s();
}

std::vector<Layout> CandidateLayouts(const JobSpec& job) {
  const ParallelismSpec& fixed = job.parallelism;
  const int64_t slots = job.cluster.slots();
  const int64_t global = job.training.global_batch_size;
  std::vector<Layout> layouts;
  Layout layout;
  layout.cp = fixed.cp;
  layout.zero_stage = fixed.zero_stage;
  const auto add_cuts = [&] {
    for (const auto& [micro_batch_size, num_microbatches] : BatchCuts(job.training, layout.dp)) {
      layout.micro_batch_size = micro_batch_size;
      layout.num_microbatches = num_microbatches;
      for (const ScheduleKind schedule : Schedules(fixed, layout.pp)) {
        layout.schedule = schedule;
        layouts.push_back(layout);
      }
    }
  };
  // A degree that breaks a rule by itself is listed once, for its reason, and not multiplied out.
  const int64_t fixed_dp = std::max(fixed.dp.value_or(1), 1);
  const int64_t fixed_pp = std::max(fixed.pp.value_or(1), 1);
  const std::vector<int> tps =
      Degrees(fixed.tp, std::min(slots / fixed_dp / fixed_pp, job.model.num_heads));
  for (const int tp : tps) {
    Layout alone;
    alone.tp = layout.tp = tp;
    const bool tp_is_sound = DegreeIssues(job.model, job.cluster, alone).empty() &&
                             EngineIssues(job.model, alone).empty();
    const int64_t beside_tp = slots / std::max(tp, 1);
    const std::vector<int> pps =
        Degrees(fixed.pp, std::min(beside_tp / fixed_dp, job.model.num_blocks));
    for (const int pp : pps) {
      layout.pp = pp;
      if (pp != pps.front() && !tp_is_sound) break;
      const bool simplest = tp == tps.front() && pp == pps.front();
      const std::vector<int> dps =
          DataDegrees(fixed.dp, std::min(beside_tp / std::max(pp, 1), global), global, simplest);
      for (const int dp : dps) {
        layout.dp = dp;
        if (dp != dps.front() && !tp_is_sound) break;
        add_cuts();
      }
    }
  }
  return layouts;
}

absl::StatusOr<Plan> FindPlan(const JobSpec& job) {
  Sorted sorted = SortCandidates(job);
  if (sorted.fitting.empty() && sorted.misfits.empty()) {
    return absl::InvalidArgumentError(sorted.rules.front().reason);
  }
  if (sorted.fitting.empty()) {
    const Rejection nearest = DoesNotFit(job, sorted.misfits.front());
    return NothingFits("nothing fits: the nearest layout,", nearest.layout, nearest.reason);
  }
  const Candidate winner = sorted.fitting.front();
  sorted.fitting.erase(sorted.fitting.begin());
  ASSIGN_OR_RETURN(Plan plan, Detailed(job, winner.layout, winner.time));
  if (plan.peak_bytes() != winner.memory.total_bytes()) {
    return absl::InternalError(absl::StrCat(
        "stage_memory says ", winner.memory.total_bytes(), " bytes where the buffers of ",
        LayoutText(winner.layout), " are ", plan.peak_bytes(), "; this is a bug of weft"));
  }
  plan.rejections = Rejections(job, winner.time, sorted);
  plan.candidates = sorted.candidates;
  return plan;
}

absl::StatusOr<Plan> PlanFor(const JobSpec& job, const Layout& layout) {
  RETURN_IF_ERROR(CheckRunnable(job.model, job.cluster, job.batch(), layout));
  const StepTime time = EstimateStepTime(job.model, job.cluster, job.batch(), layout,
                                         OptimizerStates(job.optimizer.name));
  ASSIGN_OR_RETURN(Plan plan, Detailed(job, layout, time));
  plan.candidates = 1;
  for (const StageMemory& stage : plan.stages) {
    if (stage.memory.total_bytes() <= plan.usable_bytes) continue;
    return NothingFits("does not fit:", layout,
                       MisfitText(job.cluster, stage.stage, BytesByKind(stage.memory)));
  }
  return plan;
}

}  // namespace weft
