#include "plan/search/search.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "plan/estimate/data_comm.h"
#include "plan/keys/job_rules.h"
#include "plan/search/contradiction.h"
#include "plan/search/cures.h"
#include "plan/search/describe.h"
#include "plan/search/repair.h"
#include "plan/spec/layout_rules.h"
#include "plan/spec/layout_spec.h"
#include "plan/spec/layout_text.h"

namespace weft {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Beside the finalists losers are kept that are as near to the best, and so many of them at most.
constexpr double kNear = 1.005;
constexpr size_t kMostFinds = 2 * kFinalists;

Rejection Slower(Pricer& pricer, const Priced& priced) {
  const MemoryTerm largest = priced.peak.largest();
  return {.layout = priced.layout,
          .cause = RejectionCause::kSlower,
          .time = priced.time,
          .goodput = pricer.Goodput(priced.layout, priced.time.total_s()),
          .memory_bytes = priced.peak.layout_bytes(),
          .guard_bytes = priced.peak.memory.of(MemoryTerm::kGuard),
          .stage = priced.peak.stage,
          .host_bytes = priced.peak.host_bytes,
          .largest = largest,
          .largest_bytes = priced.peak.memory.of(largest)};
}

Rejection Misfit(Pricer& pricer, const Priced& priced) {
  Priced timed = priced;
  timed.time = pricer.Time(priced.layout);
  Rejection rejection = Slower(pricer, timed);
  rejection.cause = RejectionCause::kDoesNotFit;
  return rejection;
}

// Dry runs of schedules, each once for all layouts that differ in where their states are and move
// nothing in passes.
class DryRuns {
 public:
  // Borrows it.
  explicit DryRuns(Pricer& pricer) : pricer_(pricer) {}

  // Replays those of `finds` that may be the best; `best_s`: of all so far. The closed form is a
  // bound from below on the dry run's time, so those that it puts behind what was replayed cannot
  // win. Returns how many were replayed: the first ones.
  absl::StatusOr<int64_t> Replay(std::vector<Priced>& finds, double& best_s) {
    std::sort(finds.begin(), finds.end(), Better);
    int64_t replayed = 0;
    for (Priced& priced : finds) {
      if (priced.objective_s > best_s) break;
      ASSIGN_OR_RETURN(priced.time, TimeOf(priced.layout));
      const double step_s = priced.time.total_s();
      priced.objective_s = step_s / pricer_.Goodput(priced.layout, step_s);
      best_s = std::min(best_s, priced.objective_s);
      ++replayed;
    }
    return replayed;
  }

 private:
  absl::StatusOr<TermSeconds> TimeOf(const Layout& layout) {
    if (MovesInPasses(layout)) return ReplayStep(pricer_.question(), layout);
    Layout shared = layout;
    shared.zero_stage = 0;
    shared.zero_hpz_partition_size = 1;
    shared.offload_optimizer = OffloadDevice::kNone;
    auto known = std::find_if(known_.begin(), known_.end(),
                              [&](const auto& run) { return run.first == shared; });
    if (known == known_.end()) {
      StepPasses passes;
      ASSIGN_OR_RETURN(passes, ReplayPasses(pricer_.question(), shared));
      known = known_.insert(known_.end(), {std::move(shared), passes});
    }
    return pricer_.Time(layout, known->second);
  }

  Pricer& pricer_;
  std::vector<std::pair<Layout, StepPasses>> known_;
};

absl::Status NothingFits(Pricer& pricer, const LayoutSpec& constraints, Purpose purpose,
                         const Priced& nearest) {
  const Question& question = pricer.question();
  return absl::FailedPreconditionError(
      absl::StrCat("nothing fits: the nearest layout, ", LayoutText(nearest.layout), " ",
                   MisfitText(question.cluster, pricer.UsableBytes(nearest.peak.memory),
                              Misfit(pricer, nearest)),
                   CuresText(CuresOf(question, constraints, purpose))));
}

// Finds the best first by closed forms, which come near, then by dry runs, which are dear, of what
// closed forms do not put behind it.
class Solution {
 public:
  // Borrows both.
  Solution(const Space& space, Pricer& pricer, Wanted wanted)
      : space_(space), pricer_(pricer), wanted_(wanted), runs_(pricer) {}

  absl::StatusOr<Finds> Find() {
    LatticeWalk walk(space_, pricer_, Cut::kByBounds, wanted_);
    finds_ = walk.LookFirst();
    const double found_s = finds_.fitting.empty() ? kNever : finds_.fitting.front().objective_s;
    Repaired repaired = RepairFinds(space_, pricer_, finds_, found_s);
    Add(std::move(repaired.fitting));
    ASSIGN_OR_RETURN(finds_.counts.replayed, runs_.Replay(finds_.fitting, best_s_));
    if (best_s_ == kNever) return std::move(finds_);
    DropFar();
    if (best_s_ > repaired.complete_to_s) {
      if (best_s_ > finds_.complete_to_s) {
        finds_.variants = LatticeWalk(space_, pricer_, Cut::kByBounds, Wanted::kAll, best_s_)
                              .LookFirst()
                              .variants;
      }
      RETURN_IF_ERROR(AddBest(AllBelow(space_, pricer_, finds_, best_s_)));
    }
    Finds again = walk.LookAgain(best_s_);
    std::vector<Priced> more = AllBelow(space_, pricer_, again, best_s_);
    RETURN_IF_ERROR(AddBest(std::move(more)));
    RETURN_IF_ERROR(AddBest(std::exchange(again.fitting, {})));
    AddFinds(std::move(again), finds_);
    std::vector<Priced>& fitting = finds_.fitting;
    std::sort(fitting.begin(), fitting.end(), Better);
    fitting.resize(std::min(fitting.size(), kMostFinds));
    finds_.counts.repaired =
        std::count_if(fitting.begin(), fitting.end(), [](const Priced& p) { return p.repaired; });
    return std::move(finds_);
  }

 private:
  // Adds those of `others` that a dry run had to put behind the best, or before it.
  absl::Status AddBest(std::vector<Priced> others) {
    int64_t replayed = 0;
    ASSIGN_OR_RETURN(replayed, runs_.Replay(others, best_s_));
    finds_.counts.replayed += replayed;
    others.resize(static_cast<size_t>(replayed));
    Add(std::move(others));
    return absl::OkStatus();
  }

  // Repairs are asked for that a dry run might have put before the best. Those of them that it did
  // not have to replay say nothing.
  void DropFar() {
    std::vector<Priced>& fitting = finds_.fitting;
    const auto first = fitting.begin() + finds_.counts.replayed;
    const auto is_far = [&](const Priced& priced) {
      return priced.repaired && priced.objective_s > kNear * best_s_;
    };
    fitting.erase(std::remove_if(first, fitting.end(), is_far), fitting.end());
  }

  void Add(std::vector<Priced> repaired) {
    std::move(repaired.begin(), repaired.end(), std::back_inserter(finds_.fitting));
  }

  const Space& space_;
  Pricer& pricer_;
  Wanted wanted_;
  DryRuns runs_;
  double best_s_ = kNever;
  Finds finds_;
};

// Returns the bubble's share of what a stage does from its first to its last pass.
double BubbleFraction(const TermSeconds& time) {
  const double after_s =
      time.of(TimeTerm::kDataComm) + time.of(TimeTerm::kOptimizer) + time.of(TimeTerm::kStragglers);
  const double passes_s = time.total_s() - after_s;
  return passes_s > 0 ? time.of(TimeTerm::kBubble) / passes_s : 0;
}

Plan Detailed(Pricer& pricer, const Layout& layout, const TermSeconds& time) {
  const Question& question = pricer.question();
  Plan plan;
  plan.layout = layout;
  plan.slots = question.cluster.slots();
  plan.time = time;
  plan.goodput = pricer.Goodput(layout, plan.time.total_s());
  plan.usable_bytes = question.cluster.device.usable_bytes();
  for (int stage = 0; stage < layout.pp; ++stage) {
    StageMemory held{.stage = stage,
                     .blocks = ChunkBlocks(layout, question.model.num_blocks, stage, 0),
                     .num_blocks = StageBlockCount(layout, question.model.num_blocks, stage),
                     .memory = pricer.StageOf(layout, stage)};
    const int64_t usable_bytes = pricer.UsableBytes(held.memory);
    plan.usable_bytes = stage == 0 ? usable_bytes : std::min(plan.usable_bytes, usable_bytes);
    plan.stages.push_back(std::move(held));
  }
  plan.fits = pricer.Fits(layout, pricer.PeakOf(layout));
  plan.bubble_fraction = BubbleFraction(plan.time);
  plan.engine_issues = EngineIssues(question.model, layout);
  return plan;
}

}  // namespace

absl::StatusOr<Finds> Solve(Pricer& pricer, const LayoutSpec& constraints, Purpose purpose,
                            Wanted wanted) {
  const Space space(pricer.question(), constraints, purpose);
  return Solution(space, pricer, wanted).Find();
}

absl::StatusOr<Plan> FindPlan(const Question& question, const LayoutSpec& constraints,
                              Purpose purpose) {
  Pricer pricer(question);
  return FindPlan(pricer, constraints, purpose);
}

absl::StatusOr<Plan> FindPlan(Pricer& pricer, const LayoutSpec& constraints, Purpose purpose) {
  const Question& question = pricer.question();
  RETURN_IF_ERROR(CheckPrecision(question.cluster.device, question.numerics.precision));
  Finds finds;
  ASSIGN_OR_RETURN(finds, Solve(pricer, constraints, purpose));
  if (finds.counts.points == 0) return Contradiction(question, constraints, purpose);
  if (finds.fitting.empty()) {
    return NothingFits(pricer, constraints, purpose, finds.nearest.front());
  }
  const Priced& winner = finds.fitting.front();
  Plan plan = Detailed(pricer, winner.layout, winner.time);
  if (!plan.fits) {
    return absl::InternalError(absl::StrCat("the search took ", LayoutText(plan.layout),
                                            " for one that fits; this is a bug of weft"));
  }
  plan.counts = finds.counts;
  for (size_t i = 1; i < finds.fitting.size(); ++i) {
    plan.rejections.push_back(Slower(pricer, finds.fitting[i]));
  }
  for (const Priced& priced : finds.nearest) {
    plan.rejections.push_back(Misfit(pricer, priced));
  }
  for (Rejection& example : RuleExamples(question, constraints, purpose)) {
    plan.rejections.push_back(std::move(example));
  }
  return plan;
}

absl::StatusOr<Plan> FindPlan(const JobSpec& job, Purpose purpose) {
  return FindPlanUnder(job, {}, purpose);
}

absl::StatusOr<Plan> FindPlanUnder(const JobSpec& job, const LayoutSpec& constraints,
                                   Purpose purpose) {
  if (purpose == Purpose::kRun) RETURN_IF_ERROR(FirstIssue(RunIssues(job)));
  return FindPlan(QuestionOf(job), Override(AskedLayout(job), constraints), purpose);
}

absl::StatusOr<Plan> PlanFor(const Question& question, const Layout& layout, Purpose purpose) {
  RETURN_IF_ERROR(CheckPrecision(question.cluster.device, question.numerics.precision));
  RETURN_IF_ERROR(CheckLayout(question.model, question.cluster, question.batch, layout));
  if (purpose == Purpose::kRun) RETURN_IF_ERROR(FirstIssue(EngineIssues(question.model, layout)));
  Pricer pricer(question);
  TermSeconds time;
  ASSIGN_OR_RETURN(time, ReplayStep(question, layout));
  Plan plan = Detailed(pricer, layout, time);
  plan.counts = {.points = 1, .evaluated = 1, .replayed = 1};
  if (plan.fits || purpose == Purpose::kEstimate) return plan;
  return absl::FailedPreconditionError(absl::StrCat(
      "does not fit: ", LayoutText(layout), " ", MisfitText(question.cluster, plan),
      "; use more slots, devices with more memory, a smaller model or a shorter training.seq_len"));
}

absl::StatusOr<Plan> PlanFor(const JobSpec& job, const Layout& layout, Purpose purpose) {
  if (purpose == Purpose::kRun) RETURN_IF_ERROR(FirstIssue(RunIssues(job)));
  return PlanFor(QuestionOf(job), layout, purpose);
}

}  // namespace weft
