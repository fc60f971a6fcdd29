#include "plan/explain/summary.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "plan/engine/engine_profile.h"
#include "plan/estimate/model_flops.h"
#include "plan/estimate/step_estimate.h"
#include "plan/explain/explain.h"
#include "plan/search/describe.h"
#include "plan/search/space.h"
#include "plan/spec/layout_rules.h"
#include "plan/spec/layout_text.h"

namespace weft {
namespace {

constexpr double kWorthSaying = 0.05;  // of the wall time, that another checkpoint.interval saves

bool OnGpus(const JobSpec& job) {
  return job.cluster.device.backend == BackendKind::kCuda;
}

// Returns what is measured of the engine on such a machine. Published runs were on GPUs.
ErrorBar ErrorBarOf(const JobSpec& job, const Plan& plan, const EngineProfile& engine,
                    const ErrorBar& recorded) {
  if (recorded.known() && engine.name == WeftProfile().name) return recorded;
  if (!OnGpus(job)) return {};
  const ErrorBar bar = PublishedErrorBar(engine.name, plan.layout.world_size());
  return job.model.num_experts > 0 ? WidenedForExperts(bar) : bar;
}

// The fastest and the slowest of the measured engines' habits on the same layout. Both are closed
// forms, so their ratio is taken to the plan's dry run.
std::vector<EngineStep> OtherEngines(const JobSpec& job, const Plan& plan) {
  Question question = QuestionOf(job);
  const double own_s = EstimateStep(question, plan.layout).total_s();
  std::vector<EngineStep> steps;
  for (const std::string& name : EngineProfileNames()) {
    if (name == question.engine.name) continue;
    Question other = question;
    other.engine.time = EngineProfileNamed(name)->time;
    const double ratio = EstimateStep(other, plan.layout).total_s() / own_s;
    steps.push_back({name, ratio * plan.time.total_s()});
  }
  std::sort(steps.begin(), steps.end(),
            [](const EngineStep& a, const EngineStep& b) { return a.step_s < b.step_s; });
  return {steps.front(), steps.back()};
}

// Fewer of something are as good as a slower step, so the ends change sides.
Spread Inverse(double work, const Spread& seconds) {
  return {work / seconds.predicted, work / seconds.most, work / seconds.least};
}

Spread Scaled(double factor, const Spread& spread) {
  return {factor * spread.predicted, factor * spread.least, factor * spread.most};
}

double ObjectiveSeconds(const TermSeconds& time, double goodput) {
  return time.total_s() / goodput;
}

// The fastest layout with clearly room, of those that other questions have found.
std::optional<Advice> MoreRoom(const JobSpec& job, const Plan& plan,
                               absl::Span<const FrontPoint> front, double share) {
  const double best_s = ObjectiveSeconds(plan.time, plan.goodput);
  const auto room_bytes = static_cast<int64_t>(kRoomShare * static_cast<double>(plan.usable_bytes));
  std::optional<Advice> found;
  const auto look = [&](const Layout& layout, double objective_s, int64_t memory_bytes) {
    const Advice advice{.kind = Advice::Kind::kMoreRoom,
                        .layout = layout,
                        .slower_share = std::max(0.0, objective_s / best_s - 1),
                        .free_bytes = plan.usable_bytes - memory_bytes};
    if (advice.free_bytes < room_bytes || advice.slower_share > share) return;
    if (plan.runnable() && !EngineIssues(job.model, layout).empty()) return;
    if (!found || advice.slower_share < found->slower_share) found = advice;
  };
  for (const Rejection& loser : plan.rejections) {
    if (loser.cause != RejectionCause::kSlower) continue;
    look(loser.layout, ObjectiveSeconds(loser.time, loser.goodput), loser.memory_bytes);
  }
  for (const FrontPoint& point : front) {
    look(point.layout, ObjectiveSeconds(point.time, point.goodput), point.peak_bytes);
  }
  return found;
}

// Says what saving so seldom, or so often, costs; empty where it is next to nothing.
std::string IntervalWarning(const JobSpec& job, const Bill& bill) {
  const int64_t interval = job.checkpoint.interval.value_or(0);
  const bool never = interval == 0 && bill.best_interval_steps < job.training.steps;
  if (!never && bill.wall_s() <= (1 + kWorthSaying) * bill.best_wall_s) return "";
  const std::string with_auto = absl::StrCat("; auto takes ", LongTimeText(bill.best_wall_s));
  if (!never) return absl::StrCat("checkpoint.interval ", interval, " wastes time", with_auto);
  const std::string stops =
      bill.stops < 9.95 ? absl::StrFormat("%.2g", bill.stops) : CountText(bill.stops);
  return absl::StrCat("checkpoint.interval 0: a stop loses everything, ", stops, " expected",
                      with_auto);
}

std::vector<std::string> WarningsOf(const JobSpec& job, const Plan& plan, const Bill& bill) {
  std::vector<std::string> warnings;
  std::string interval = IntervalWarning(job, bill);
  if (!interval.empty()) warnings.push_back(std::move(interval));
  if (plan.fits && !plan.runnable()) {
    warnings.emplace_back("weft's engine does not run this plan yet; what it lacks stands below");
  }
  return warnings;
}

// "16.4 s a step (14.6 s to 19.8 s)"; without a bar "16.4 s a step".
template <typename Text>
std::string SpreadText(const Summary& summary, const Spread& spread, absl::string_view unit,
                       const Text& text) {
  std::string predicted = absl::StrCat(text(spread.predicted), unit);
  if (!summary.error.known()) return predicted;
  return absl::StrCat(predicted, " (", text(spread.least), " to ", text(spread.most), ")");
}

std::string FitsText(const JobSpec& job, const Plan& plan, const Summary& summary) {
  if (!plan.fits) return absl::StrCat("no: ", MisfitText(job.cluster, plan));
  return absl::StrCat(
      summary.exact ? "yes, exactly: " : "yes, by an estimate with its guard: ",
      BytesText(summary.free_bytes), absl::StrFormat(" (%.1f %%)", 100 * summary.free_share),
      " of the fullest rank are free", summary.free_share < kRoomShare ? ", which is little" : "");
}

std::string FastText(const Summary& summary) {
  const auto percent = [](double share) { return absl::StrFormat("%.1f %%", 100 * share); };
  return absl::StrCat(SpreadText(summary, summary.tokens_per_s, " tokens/s", CountText), ", ",
                      SpreadText(summary, summary.step_s, " a step", SecondsText), ", ",
                      SpreadText(summary, summary.mfu, " MFU", percent));
}

std::string LongText(const JobSpec& job, const Plan& plan, const Summary& summary) {
  const bool warned = !IntervalWarning(job, summary.bill).empty();
  const std::string unit = absl::StrCat(" for ", job.training.steps, " steps");
  return absl::StrCat(SpreadText(summary, summary.wall_s, unit, LongTimeText), ", goodput ",
                      absl::StrFormat("%.1f %%", 100 * summary.bill.goodput),
                      warned ? "" : absl::StrCat(", saves ", SavesText(job, plan)));
}

std::string DearText(const JobSpec& job, const Summary& summary) {
  const std::string unit = OnGpus(job) ? " GPU hour" : " worker hour";
  std::string text = SpreadText(summary, summary.device_hours, absl::StrCat(unit, "s"), HoursText);
  if (summary.price_per_device_hour > 0) {
    absl::StrAppend(&text, "; ", SpreadText(summary, summary.cost, "", HoursText), " at ",
                    absl::StrFormat("%g a", summary.price_per_device_hour), unit);
  }
  return text;
}

std::string GpusText(const ErrorBar& error) {
  if (error.to_gpus == kNoEnd) return absl::StrCat(error.from_gpus, " or more GPUs");
  return absl::StrCat(error.from_gpus, " to ", error.to_gpus, " GPUs");
}

std::string KindText(const ErrorBar& error) {
  if (!error.of_another_kind) return "";
  return absl::StrFormat(
      "; these are of dense models, the one run with experts that was compared took %.2f times "
      "what was predicted",
      kExpertsTookLonger);
}

std::string SureText(const Summary& summary) {
  const ErrorBar& error = summary.error;
  switch (error.source) {
    case ErrorSource::kNone:
      return "not known: no run is recorded on this profile; weft run records its own";
    case ErrorSource::kRecorded:
      return absl::StrCat(
          error.runs, error.runs == 1 ? " run" : " runs",
          " of weft recorded on this profile; ranges: ",
          error.runs < kFewRuns ? "as far as the worst was off" : "8 in 10 of them");
    case ErrorSource::kEngine:
      return absl::StrCat("ranges: 8 in 10 of ", error.runs, " published runs of ", error.engine,
                          " on ", GpusText(error), KindText(error));
    case ErrorSource::kOthers:
      break;
  }
  std::vector<std::string> others;
  for (const EngineStep& other : summary.other_engines) {
    others.push_back(absl::StrCat(SecondsText(other.step_s), " (", other.engine, ")"));
  }
  return absl::StrCat("weft was never measured on a GPU; ranges: the widest 8 in 10 of the ",
                      error.runs, " published runs of other engines on ", GpusText(error),
                      KindText(error), "; by their habits a step takes ",
                      absl::StrJoin(others, " to "));
}

}  // namespace

absl::string_view AdviceName(Advice::Kind kind) {
  return kind == Advice::Kind::kSimpler ? "simpler" : "more_room";
}

Summary SummaryOf(const JobSpec& job, const Plan& plan, const EngineProfile& engine,
                  const ErrorBar& recorded, absl::Span<const FrontPoint> front) {
  const double step_s = plan.time.total_s();
  Summary summary;
  summary.exact = std::all_of(plan.stages.begin(), plan.stages.end(),
                              [](const StageMemory& stage) { return stage.memory.exact; });
  summary.free_bytes = plan.usable_bytes - plan.peak_bytes();
  summary.free_share =
      static_cast<double>(summary.free_bytes) / static_cast<double>(plan.usable_bytes);
  summary.error = ErrorBarOf(job, plan, engine, recorded);
  // However good an engine is, its device takes so long for the products.
  const double products_s = plan.time.of(TimeTerm::kMatmul) + plan.time.of(TimeTerm::kAttention);
  // Where published runs were nearly all slower, or faster, than predicted, the range is theirs and
  // reaches to the prediction.
  summary.step_s = {step_s, std::min(step_s, std::max(summary.error.least_s(step_s), products_s)),
                    std::max(step_s, summary.error.most_s(step_s))};
  const BatchShape batch = job.batch();
  summary.tokens_per_s =
      Inverse(static_cast<double>(batch.global_batch_size * batch.seq_len), summary.step_s);
  const ModelFlopRate rate =
      ModelFlopRateOf(QuestionOf(job), summary.tokens_per_s.predicted, plan.layout.world_size());
  summary.mfu = Scaled(rate.utilisation() / summary.tokens_per_s.predicted, summary.tokens_per_s);
  summary.bill = BillOf(job, plan);
  const Bill least = BillAt(job, plan, summary.step_s.least);
  const Bill most = BillAt(job, plan, summary.step_s.most);
  summary.wall_s = {summary.bill.wall_s(), least.wall_s(), most.wall_s()};
  summary.device_hours = {summary.bill.device_hours, least.device_hours, most.device_hours};
  summary.price_per_device_hour = job.cluster.price_per_device_hour;
  summary.cost = Scaled(summary.price_per_device_hour, summary.device_hours);
  if (summary.error.source == ErrorSource::kOthers) {
    summary.other_engines = OtherEngines(job, plan);
  }
  summary.advice = AdviceOf(job, plan, summary, front);
  summary.warnings = WarningsOf(job, plan, summary.bill);
  return summary;
}

std::vector<Advice> AdviceOf(const JobSpec& job, const Plan& plan, const Summary& summary,
                             absl::Span<const FrontPoint> front) {
  std::vector<Advice> all;
  if (const Rejection* simpler = SimplerWithin(plan, kTypicalError)) {
    const double ratio = ObjectiveSeconds(simpler->time, simpler->goodput) /
                         ObjectiveSeconds(plan.time, plan.goodput);
    all.push_back({.kind = Advice::Kind::kSimpler,
                   .layout = simpler->layout,
                   .slower_share = ratio - 1,
                   .free_bytes = plan.usable_bytes - simpler->memory_bytes});
  }
  if (!plan.fits || summary.free_share >= kRoomShare) return all;
  const double share = std::max(kTypicalError, summary.error.slower_share());
  if (auto roomier = MoreRoom(job, plan, front, share)) all.push_back(*std::move(roomier));
  return all;
}

std::string SummaryText(const JobSpec& job, const Plan& plan, const Summary& summary) {
  std::string text = "\n";
  const auto line = [&](absl::string_view question, absl::string_view answer) {
    absl::StrAppend(&text,
                    FoldedText(absl::StrCat("  ", absl::StrFormat("%-10s", question), answer), 12),
                    "\n");
  };
  line("fits", FitsText(job, plan, summary));
  line("how fast", FastText(summary));
  line("how long", LongText(job, plan, summary));
  line("how dear", DearText(job, summary));
  line("how sure", SureText(summary));
  for (const std::string& warning : summary.warnings) line("beware", warning);
  return text;
}

std::string AdviceText(const Summary& summary) {
  std::string text;
  for (const Advice& advice : summary.advice) {
    const std::string room =
        advice.kind == Advice::Kind::kSimpler
            ? "simpler: "
            : absl::StrCat("more room: ", BytesText(advice.free_bytes), " free instead of ",
                           BytesText(summary.free_bytes), ", ");
    absl::StrAppend(&text, "\n", room, SlowerShareText(advice.slower_share),
                    " slower, within what predictions are off:\n",
                    FoldedText(absl::StrCat("  --layout \"", LayoutText(advice.layout), "\""), 4),
                    "\n");
  }
  return text;
}

std::string AnswerText(const JobSpec& job, const Plan& plan, const Summary& summary) {
  return absl::StrCat(HeadText(job), SummaryText(job, plan, summary), TablesText(job, plan));
}

std::string PlanText(const JobSpec& job, const Plan& plan, const Summary& summary,
                     int max_rejections) {
  return absl::StrCat(AnswerText(job, plan, summary), AdviceText(summary),
                      LosersText(job, plan, max_rejections));
}

}  // namespace weft
