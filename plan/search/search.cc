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
#include "plan/memory/memory.h"
#include "plan/search/contradiction.h"
#include "plan/search/cures.h"
#include "plan/search/describe.h"
#include "plan/search/neighbours.h"
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
// Sums in another order differ by less.
constexpr double kEqual = 1e-9;
// Pipelines of more stages have dry runs of milliseconds.
constexpr int kShortPipeline = 12;

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
  // Borrows all three.
  Solution(const Space& space, Pricer& pricer, DryRuns& runs, Wanted wanted, double known_s)
      : space_(space), pricer_(pricer), wanted_(wanted), known_s_(known_s), runs_(runs) {}

  absl::StatusOr<Finds> Find() {
    RETURN_IF_ERROR(FindInLattice());
    if (best_s_ == kNever) return std::move(finds_);
    RETURN_IF_ERROR(Descend());
    RETURN_IF_ERROR(AskWithOwnShape());
    Settle();
    return std::move(finds_);
  }

 private:
  absl::Status FindInLattice() {
    LatticeWalk walk(space_, pricer_, Cut::kByBounds, wanted_, 0, known_s_);
    finds_ = walk.LookFirst();
    const double found_s =
        finds_.fitting.empty() ? known_s_ : std::min(known_s_, finds_.fitting.front().objective_s);
    Repaired repaired = RepairFinds(space_, pricer_, finds_, found_s);
    Add(std::move(repaired.fitting));
    KeepNear();
    ASSIGN_OR_RETURN(finds_.counts.replayed, runs_.Replay(finds_.fitting, best_s_));
    if (best_s_ == kNever) return absl::OkStatus();
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
    return absl::OkStatus();
  }

  // Keeps what closed forms put as near to the best as a dry run may tell: where descents start.
  void KeepNear() {
    double best_s = kNever;
    for (const Priced& priced : finds_.fitting) best_s = std::min(best_s, priced.objective_s);
    for (const Priced& priced : finds_.fitting) {
      if (priced.objective_s <= kDryRuns * best_s) AddStart(priced.layout);
    }
  }

  // Long pipelines have dear dry runs: the best of them alone is a start.
  void AddStart(const Layout& layout) {
    if (layout.pp > 1 && layout.pp <= kShortPipeline) starts_.push_back(layout);
  }

  const Priced& BestOfFitting() const {
    return *std::min_element(finds_.fitting.begin(), finds_.fitting.end(), Better);
  }

  // Goes from there to neighbours that are better, then from the best of them, until none has any.
  absl::Status Descend() {
    constexpr int kMostRounds = 64;
    if (BestOfFitting().layout.pp > kShortPipeline) starts_.push_back(BestOfFitting().layout);
    for (int round = 0; round < kMostRounds && !starts_.empty(); ++round) {
      std::vector<Priced> better;
      for (const Layout& start : std::exchange(starts_, {})) {
        for (Priced& near : NeighboursBelow(space_, pricer_, start, LimitOf(start))) {
          const auto is_same = [&](const Priced& other) { return other.layout == near.layout; };
          if (std::none_of(better.begin(), better.end(), is_same)) better.push_back(near);
        }
      }
      const double before_s = best_s_;
      RETURN_IF_ERROR(AddBest(std::move(better)));
      starts_.clear();
      if (best_s_ < before_s * (1 - kEqual)) starts_.push_back(BestOfFitting().layout);
    }
    return absl::OkStatus();
  }

  // The lattice knows even and balanced splits and equal modes alone; a descent has changed the
  // best one's for its own degrees and schedule, and others may be better with them. So it is asked
  // among all that split blocks, or recompute, in this way, as for a person who fixes it. Not of
  // long pipelines: a tenth of the search.
  absl::Status AskWithOwnShape() {
    constexpr int kMostRounds = 8;
    for (int round = 0; round < kMostRounds; ++round) {
      const Layout best = BestOfFitting().layout;
      const double before_s = best_s_;
      if (best.pp > kShortPipeline || best.virtual_stages > 1) break;  // no descent has changed it
      LayoutSpec fixed = space_.fixed();
      if (!best.layers_per_stage.empty() && !fixed.layers_per_stage) {
        fixed.layers_per_stage = best.layers_per_stage;
        RETURN_IF_ERROR(AskAmong(fixed));
      }
      fixed = space_.fixed();
      if (!best.recompute_per_stage.empty() && !fixed.recompute &&
          fixed.recompute_per_stage.empty()) {
        fixed.recompute_per_stage = best.recompute_per_stage;
        RETURN_IF_ERROR(AskAmong(fixed));
      }
      if (best_s_ >= before_s * (1 - kEqual)) break;
      RETURN_IF_ERROR(Descend());
    }
    return absl::OkStatus();
  }

  absl::Status AskAmong(const LayoutSpec& fixed) {
    const Space own(pricer_.question(), fixed, space_.purpose());
    // A dry run never takes less than closed forms say: what they put behind the best is behind it.
    Solution among(own, pricer_, runs_, Wanted::kFitting, best_s_ / kDryRuns);
    RETURN_IF_ERROR(among.FindInLattice());
    return AddBest(std::move(among.finds_.fitting));
  }

  // A neighbour is of use below this, by closed forms: of a short pipeline wherever a dry run may
  // put it before the best, of a long one where closed forms do.
  double LimitOf(const Layout& start) {
    double limit_s = best_s_;
    if (start.pp > kShortPipeline) {
      const double step_s = pricer_.Time(start).total_s();
      limit_s = std::min(limit_s, step_s / pricer_.Goodput(start, step_s));
    }
    return limit_s * (1 - kEqual);
  }

  // Best first, as many as are of use. Nothing leaves the search that was not asked about stage by
  // stage.
  void Settle() {
    std::vector<Priced>& fitting = finds_.fitting;
    std::sort(fitting.begin(), fitting.end(), Better);
    const auto same = [](const Priced& a, const Priced& b) { return a.layout == b.layout; };
    fitting.erase(std::unique(fitting.begin(), fitting.end(), same), fitting.end());
    fitting.resize(std::min(fitting.size(), kMostFinds));
    finds_.counts.disproved = static_cast<int64_t>(
        std::erase_if(fitting, [&](const Priced& p) { return !pricer_.IsProven(p.layout); }));
    finds_.counts.repaired =
        std::count_if(fitting.begin(), fitting.end(), [](const Priced& p) { return p.repaired; });
  }

  // Adds those of `others` that a dry run had to put behind the best, or before it.
  absl::Status AddBest(std::vector<Priced> others) {
    int64_t replayed = 0;
    ASSIGN_OR_RETURN(replayed, runs_.Replay(others, best_s_));
    finds_.counts.replayed += replayed;
    others.resize(static_cast<size_t>(replayed));
    for (const Priced& other : others) AddStart(other.layout);
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
  double known_s_;
  DryRuns& runs_;
  double best_s_ = kNever;
  std::vector<Layout> starts_;  // of descents
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
  plan.fits = pricer.IsProven(layout);
  plan.bubble_fraction = BubbleFraction(plan.time);
  plan.engine_issues = EngineIssues(question.model, layout);
  return plan;
}

// Holds what is to be run against the very list that each stage's worker will allocate.
absl::Status HoldAgainstLists(const Question& question, const Plan& plan) {
  const RankGrid grid = plan.layout.grid();
  for (const StageMemory& stage : plan.stages) {
    if (!stage.memory.exact) continue;
    const int rank = grid.RankOf({.dp = 0, .pp = stage.stage, .cp = 0, .tp = 0});
    const RankMemory list =
        PlanRankMemory(question.model, question.batch, plan.layout, rank, question.numerics);
    if (list.total_bytes() == stage.layout_bytes()) continue;
    return absl::InternalError(absl::StrCat("stage ", stage.stage, " of ", LayoutText(plan.layout),
                                            " would allocate ", list.total_bytes(),
                                            " bytes where the plan says ", stage.layout_bytes(),
                                            "; this is a bug of weft"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Finds> Solve(Pricer& pricer, const LayoutSpec& constraints, Purpose purpose,
                            Wanted wanted, double known_s) {
  const Space space(pricer.question(), constraints, purpose);
  DryRuns runs(pricer);
  return Solution(space, pricer, runs, wanted, known_s).Find();
}

absl::StatusOr<std::optional<Priced>> SolveFrom(Pricer& pricer, const LayoutSpec& constraints,
                                                Purpose purpose, absl::Span<const Layout> known) {
  const Question& question = pricer.question();
  const auto check = purpose == Purpose::kRun ? &CheckRunnable : &CheckLayout;
  std::optional<Priced> best;
  for (const Layout& layout : known) {
    if (!check(question.model, question.cluster, question.batch, layout).ok()) continue;
    if (!BrokenBy(layout, constraints).properties.empty() || !pricer.IsProven(layout)) continue;
    Priced priced{.layout = layout, .time = pricer.Time(layout), .objective_s = 0, .peak = {}};
    const double least_s = priced.time.total_s();
    priced.objective_s = least_s / pricer.Goodput(layout, least_s);
    if (!best || Better(priced, *best)) best = std::move(priced);
  }
  if (best) {
    ASSIGN_OR_RETURN(best->time, ReplayStep(question, best->layout));
    const double step_s = best->time.total_s();
    best->objective_s = step_s / pricer.Goodput(best->layout, step_s);
    best->peak = pricer.PeakOf(best->layout);
  }
  Finds finds;
  ASSIGN_OR_RETURN(finds, Solve(pricer, constraints, purpose, Wanted::kFitting,
                                best ? best->objective_s : kUnknownSeconds));
  if (!finds.fitting.empty() && (!best || Better(finds.fitting.front(), *best))) {
    best = std::move(finds.fitting.front());
  }
  return best;
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
  if (purpose == Purpose::kRun) RETURN_IF_ERROR(HoldAgainstLists(question, plan));
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
  if (purpose == Purpose::kRun) RETURN_IF_ERROR(HoldAgainstLists(question, plan));
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
