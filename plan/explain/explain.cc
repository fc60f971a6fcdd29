#include "plan/explain/explain.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plan/keys/job_rules.h"
#include "plan/search/describe.h"
#include "plan/search/search.h"
#include "plan/spec/layout_text.h"

namespace weft {
namespace {

std::string Percent(double share) {
  return absl::StrFormat("%+.1f %%", 100 * share);
}

// Returns committed steps per second, which the search makes large for one batch.
double CommittedRate(const Plan& plan) {
  return plan.goodput / plan.time.total_s();
}
constexpr double kEqual = 1e-9;  // share by which rates may differ that are the same sums

// The best layout of a changed job, without what else FindPlan says of it. `known` bounds the
// search: what is the plan of the job as it is.
Sensitivity Solved(std::string change, const JobSpec& job, Purpose purpose, const Layout& known) {
  Sensitivity result{.change = std::move(change)};
  if (purpose == Purpose::kRun && !RunIssues(job).empty()) return result;
  const Question question = QuestionOf(job);
  if (!CheckPrecision(question.cluster.device, question.numerics.precision).ok()) return result;
  Pricer pricer(question);
  const absl::StatusOr<std::optional<Priced>> best =
      SolveFrom(pricer, AskedLayout(job), purpose, {known});
  if (!best.ok() || !*best) return result;
  const BatchShape batch = job.batch();
  result.fits = true;
  result.layout = (*best)->layout;
  result.step_s = (*best)->time.total_s();
  result.tokens_per_s =
      static_cast<double>(batch.global_batch_size * batch.seq_len) / result.step_s;
  return result;
}

constexpr char kNoneInBetween[] = "at this failure rate no checkpoint in between pays off";

}  // namespace

std::vector<Sensitivity> SensitivitiesOf(const JobSpec& job, Purpose purpose, const Layout& plan) {
  std::vector<Sensitivity> all;
  if (job.cluster.nodes > 1) {
    JobSpec faster = job;
    faster.cluster.inter_node.bytes_per_s *= 2;
    all.push_back(Solved("2 x bandwidth between nodes", faster, purpose, plan));
  } else if (job.cluster.slots_per_node > 1) {
    JobSpec faster = job;
    faster.cluster.intra_node.bytes_per_s *= 2;
    all.push_back(Solved("2 x bandwidth inside the node", faster, purpose, plan));
  }
  JobSpec larger = job;
  larger.cluster.device.memory_bytes += larger.cluster.device.memory_bytes / 5;
  all.push_back(Solved("20 % more device memory", larger, purpose, plan));
  // A job that says nothing of precision may not know of bf16: fp32 is the default.
  if (job.training.mixed_precision == Precision::kFp32 &&
      job.cluster.device.backend == BackendKind::kCuda &&
      job.cluster.device.Offers(Precision::kBf16)) {
    JobSpec narrower = job;
    narrower.training.mixed_precision = Precision::kBf16;
    all.push_back(Solved("training.mixed_precision bf16", narrower, purpose, plan));
  }
  JobSpec batch = job;
  batch.training.global_batch_size *= 2;
  Layout twice = plan;
  twice.gradient_accumulation_steps *= 2;
  if (Validate(batch).empty()) all.push_back(Solved("2 x global batch", batch, purpose, twice));
  return all;
}

std::optional<Pins> PinsAgainst(const JobSpec& job, const Plan& plan, const Plan& other,
                                Purpose purpose) {
  const double gain = CommittedRate(other) / CommittedRate(plan) - 1;
  const bool is_better = gain > kEqual || (gain > -kEqual && Simpler(other.layout, plan.layout));
  BrokenProperties broken = BrokenBy(other.layout, AskedLayout(job));
  if (!is_better || broken.properties.empty()) return std::nullopt;
  Pins pins{.values = std::move(broken.properties), .freed = std::nullopt};
  absl::StatusOr<Plan> freed = FindPlan(QuestionOf(job), broken.freed, purpose);
  if (freed.ok()) pins.freed = *std::move(freed);
  return pins;
}

std::string PinsText(const Plan& plan, const Plan& other, const Pins& pins) {
  const auto gain = [&](const Plan& better) {
    const double share = CommittedRate(better) / CommittedRate(plan) - 1;
    return share < kEqual ? std::string("as fast and simpler")
                          : absl::StrCat(Percent(share), " committed tokens/s");
  };
  std::string text = absl::StrCat("it is better (", gain(other), "), but the job file fixes ",
                                  KeyedText(pins.values), ", which it does not keep");
  if (!pins.freed) return text;
  if (pins.freed->layout == other.layout) {
    return absl::StrCat(text, "; with auto instead it would be the plan");
  }
  return absl::StrCat(text, "; with auto instead the plan would be ",
                      LayoutText(pins.freed->layout), ": ", gain(*pins.freed));
}

Bill BillOf(const JobSpec& job, const Plan& plan) {
  return BillAt(job, plan, plan.time.total_s());
}

Bill BillAt(const JobSpec& job, const Plan& plan, double step_s) {
  const int64_t bytes = CheckpointBytes(QuestionOf(job));
  return BillOf({.step_s = step_s,
                 .steps = job.training.steps,
                 .tokens_per_step = job.training.global_batch_size * job.training.seq_len,
                 .devices = plan.layout.world_size(),
                 .checkpoint_bytes = bytes,
                 .interval_steps = job.checkpoint.interval.value_or(0),
                 .kept_checkpoints = job.checkpoint.keep_latest_k,
                 .faults = FaultCostsOf(job.cluster, bytes, plan.layout.world_size())});
}

std::string DifferenceText(absl::string_view ours, const TermSeconds& our_time,
                           absl::string_view theirs, const TermSeconds& their_time) {
  std::vector<TimeTerm> terms;
  for (size_t i = 0; i < kTimeTerms; ++i) {
    const auto term = static_cast<TimeTerm>(i);
    if (our_time.of(term) != 0 || their_time.of(term) != 0) terms.push_back(term);
  }
  const auto difference = [&](TimeTerm term) { return their_time.of(term) - our_time.of(term); };
  std::stable_sort(terms.begin(), terms.end(), [&](TimeTerm a, TimeTerm b) {
    return std::abs(difference(a)) > std::abs(difference(b));
  });
  constexpr char kRow[] = "  %-14s %14s %14s %14s\n";
  std::string text = absl::StrFormat(kRow, "term", ours, theirs, "difference");
  for (const TimeTerm term : terms) {
    absl::StrAppendFormat(&text, kRow, WordOf(term), SecondsText(our_time.of(term)),
                          SecondsText(their_time.of(term)), SignedSecondsText(difference(term)));
  }
  const double total_s = their_time.total_s() - our_time.total_s();
  absl::StrAppendFormat(&text, kRow, "step", SecondsText(our_time.total_s()),
                        SecondsText(their_time.total_s()), SignedSecondsText(total_s));
  return text;
}

std::string SensitivitiesText(const Plan& plan, const BatchShape& batch,
                              const std::vector<Sensitivity>& sensitivities) {
  if (sensitivities.empty()) return "";
  std::string text = "\nwhat more would buy, each solved anew:\n";
  const double rate = plan.tokens_per_s(batch);
  for (const Sensitivity& each : sensitivities) {
    if (!each.fits) {
      absl::StrAppendFormat(&text, "  %-30s no layout then\n", each.change);
      continue;
    }
    absl::StrAppendFormat(&text, "  %-30s %9s tokens/s, step %s%s\n", each.change,
                          Percent(each.tokens_per_s / rate - 1), SecondsText(each.step_s),
                          each.layout == plan.layout ? "" : ":");
    if (each.layout == plan.layout) continue;
    absl::StrAppend(&text, FoldedText(absl::StrCat("    ", LayoutText(each.layout)), 6), "\n");
  }
  return text;
}

std::string FrontText(const std::vector<FrontPoint>& front) {
  if (front.size() < 2) return "";
  constexpr char kRow[] = "  %9s  %9s  %7s  %s";
  std::string text = absl::StrFormat(
      "\nfront of step time, memory and workers (nothing is better in all three):\n%s\n",
      absl::StrFormat(kRow, "step", "memory", "workers", "layout"));
  for (const FrontPoint& point : front) {
    const std::string row =
        absl::StrFormat(kRow, SecondsText(point.time.total_s()), BytesText(point.peak_bytes),
                        absl::StrCat(point.ranks), LayoutText(point.layout));
    absl::StrAppend(&text, FoldedText(row, 35), "\n");
  }
  return text;
}

std::string HoursText(double hours) {
  return hours < 1000 ? absl::StrFormat("%.3g", hours) : CountText(hours);
}

std::string BillText(const JobSpec& job, const Bill& bill) {
  const bool gpu = job.cluster.device.backend == BackendKind::kCuda;
  std::string text =
      absl::StrFormat("\nwhole job: %d steps, %s tokens: %s, %s %s hours, goodput %.1f %%\n",
                      job.training.steps, CountText(bill.tokens), LongTimeText(bill.wall_s()),
                      HoursText(bill.device_hours), gpu ? "GPU" : "worker", 100 * bill.goodput);
  absl::StrAppendFormat(&text, "  steps %s, saving checkpoints %s, lost to faults %s\n",
                        LongTimeText(bill.steps_s), LongTimeText(bill.saving_s),
                        LongTimeText(bill.lost_s + bill.restarts_s));
  const Cluster& cluster = job.cluster;
  absl::StrAppendFormat(
      &text, "  expected stops %.2g, one in %s device hours (%s)\n", bill.stops,
      CountText(cluster.failures.device_mtbf_hours > 0 ? cluster.failures.device_mtbf_hours
                                                       : kDefaultDeviceMtbfHours),
      cluster.failures.device_mtbf_hours > 0 ? "of the profile" : "Llama 3's, arXiv:2407.21783");
  absl::StrAppendFormat(&text, "  checkpoints: %s on disk at most\n", BytesText(bill.disk_bytes));
  const int64_t interval = job.checkpoint.interval.value_or(0);
  if (bill.best_interval_steps >= job.training.steps) {
    absl::StrAppend(&text, "  ", kNoneInBetween, "\n");
  } else if (interval == bill.best_interval_steps) {
    absl::StrAppend(&text, "  checkpoint.interval ", interval, " is the best one\n");
  } else {
    absl::StrAppend(&text, "  best checkpoint.interval ", bill.best_interval_steps, ": ",
                    LongTimeText(bill.best_wall_s), " in all; the job says ", interval,
                    interval == 0 ? " (only at the end)" : "", "\n");
  }
  return text;
}

std::string SavesText(const JobSpec& job, const Plan& plan) {
  const int64_t interval = job.checkpoint.interval.value_or(0);
  if (interval > 0 && interval < job.training.steps) {
    const double seconds = static_cast<double>(interval) * plan.time.total_s();
    return absl::StrCat("every ", interval, interval == 1 ? " step" : " steps", " (",
                        LongTimeText(seconds), ")");
  }
  const bool pays = BillOf(job, plan).best_interval_steps < job.training.steps;
  return absl::StrCat("at the end only", pays ? "" : "; ", pays ? "" : kNoneInBetween);
}

}  // namespace weft
