#include "launcher/commands/plan_questions.h"

#include <algorithm>
#include <iostream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "data/whole_file.h"
#include "launcher/commands/commands.h"
#include "launcher/job_file/plan_json.h"
#include "launcher/run/ledger.h"
#include "plan/errors.h"
#include "plan/explain/explain.h"
#include "plan/explain/schedule_svg.h"
#include "plan/explain/summary.h"
#include "plan/keys/job_rules.h"
#include "plan/keys/layout_reader.h"
#include "plan/placement/placement.h"
#include "plan/search/describe.h"
#include "plan/search/search.h"
#include "plan/spec/layout_text.h"
#include "text/json_lines.h"

namespace weft {
namespace {

constexpr int kTerminalWidth = 100;

int FailPlan(const JobFile& file, const absl::Status& status) {
  std::cerr << FoldedText(file.Locate(status.message()), 2) << "\n";
  std::cerr << "weft: " << (absl::IsFailedPrecondition(status) ? "nothing fits" : "no plan")
            << "\n";
  return ExitCodeOf(status);
}

// Draws the schedule; returns an exit code.
int WriteSvg(const std::string& path, const Question& question, const Layout& layout) {
  const absl::StatusOr<SchedulePicture> picture = DrawSchedule(question, layout);
  if (!picture.ok()) return Fail(picture.status());
  const absl::Status written = WriteWholeFile(path, ScheduleSvg(*picture));
  if (written.ok()) return kExitOk;
  return Fail(absl::InvalidArgumentError(absl::StrCat("--svg: ", written.message())));
}

std::string ScheduleText(const Question& question, const Layout& layout) {
  if (layout.pp == 1) return "";
  const absl::StatusOr<SchedulePicture> picture = DrawSchedule(question, layout);
  return picture.ok() ? ScheduleLines(*picture, kTerminalWidth) : "";
}

void PrintNotes(const JobFile& file) {
  for (const std::string& note : file.notes) {
    std::cout << FoldedText(absl::StrCat("note: ", note), 6) << "\n";
  }
}

// Prints why weft's engine does not run `what` yet: `issues`, of a job whatever its layout, and
// those of `plan`. Returns whether there are any.
bool PrintIssues(absl::string_view what, std::vector<SpecIssue> issues, const Plan& plan) {
  for (const SpecIssue& issue : plan.engine_issues) {
    if (std::find(issues.begin(), issues.end(), issue) == issues.end()) issues.push_back(issue);
  }
  if (issues.empty()) return false;
  std::cout << "\nestimate only, weft's engine does not run " << what << " yet:\n";
  for (const SpecIssue& issue : issues) {
    std::cout << FoldedText(absl::StrCat("  ", issue.key, ": ", issue.message), 4) << "\n";
  }
  return true;
}

// Prints why weft's engine cannot run the plan yet, if it cannot, and the best that it can run.
void PrintRunnable(const PlanReport& report) {
  if (!PrintIssues("this", report.run_issues, report.plan)) return;
  if (!report.run_issues.empty()) return;
  if (!report.today) {
    std::cout << "nothing of what it runs today fits\n";
    return;
  }
  const Plan& today = *report.today;
  std::cout << "the best of what it runs today, fullest rank " << BytesText(today.peak_bytes())
            << ":\n"
            << FoldedText(absl::StrCat("  ", LayoutText(today.layout)), 4) << "\n"
            << DifferenceText("the plan", report.plan.time, "today", today.time);
}

// Returns which rank would be on which of the hosts that are named; nothing if none is.
absl::StatusOr<std::optional<PlanReport::Hosts>> PlacedHosts(const PlanArguments& arguments,
                                                             const JobSpec& job,
                                                             const Layout& layout) {
  if (arguments.hosts.empty()) return std::nullopt;
  std::vector<ListedHost> named = arguments.hosts;
  RETURN_IF_ERROR(SetDomains(job.hosts.failure_domains, &named));
  PlanReport::Hosts hosts;
  for (const ListedHost& host : named) {
    const int slots = UsedSlotCount(host);
    const int most = job.cluster.slots_per_node;
    hosts.offers.push_back({host.name, slots > 0 ? std::min(slots, most) : most, host.domain});
  }
  ASSIGN_OR_RETURN(hosts.placement, PlaceRanks(layout, hosts.offers));
  return hosts;
}

void PrintHosts(const PlanReport& report) {
  if (!report.hosts) return;
  const auto& [offers, placement] = *report.hosts;
  std::cout << "\nhosts:\n" << PlacementText(report.plan.layout, offers, placement);
}

// The plan before so many nodes were lost.
std::optional<PlanReport::Whole> WholeOf(JobSpec job, int lost_nodes) {
  if (lost_nodes == 0) return std::nullopt;
  job.cluster.nodes += lost_nodes;
  absl::StatusOr<Plan> plan = FindPlan(job, Purpose::kEstimate);
  if (!plan.ok()) return std::nullopt;
  return PlanReport::Whole{lost_nodes, *std::move(plan)};
}

void PrintLoss(const JobSpec& job, const PlanReport& report) {
  if (!report.whole) return;
  const auto& [lost_nodes, whole] = *report.whole;
  const BatchShape batch = job.batch();
  const double left = report.plan.tokens_per_s(batch) / whole.tokens_per_s(batch);
  std::cout << absl::StrFormat(
                   "\nwithout %d of %d nodes %.1f %% of %s tokens/s are left; with all:\n",
                   lost_nodes, job.cluster.nodes + lost_nodes, 100 * left,
                   CountText(whole.tokens_per_s(batch)))
            << FoldedText(absl::StrCat("  ", LayoutText(whole.layout)), 4) << "\n";
}

ErrorBar BarOf(const std::optional<RecordedError>& recorded) {
  return recorded ? recorded->bar : ErrorBar{};
}

// The report of the plan alone: what a few milliseconds answer.
PlanReport ReportOf(const JobSpec& job, Plan plan, LinesLeftOut* unread) {
  PlanReport report{.plan = std::move(plan), .run_issues = RunIssues(job)};
  const std::optional<RecordedError> recorded = RecordedErrorOn(job.cluster, unread);
  report.recorded_error = RecordedErrorText(recorded);
  report.summary = SummaryOf(job, report.plan, WeftProfile(), BarOf(recorded), {});
  return report;
}

// The front and the advice take searches of their own: they come behind the first answer.
void AddFront(const JobSpec& job, PlanReport* report) {
  report->front = ParetoFront(QuestionOf(job), AskedLayout(job), Purpose::kEstimate, report->plan);
  report->summary.advice = AdviceOf(job, report->plan, report->summary, report->front);
}

void AddToday(const JobSpec& job, int lost_nodes, PlanReport* report) {
  report->whole = WholeOf(job, lost_nodes);
  if (report->plan.runnable() || !report->run_issues.empty()) return;
  absl::StatusOr<Plan> today = FindPlan(job, Purpose::kRun);
  if (today.ok()) report->today = *std::move(today);
}

void AddSensitivities(const JobSpec& job, PlanReport* report) {
  report->sensitivities = SensitivitiesOf(job, Purpose::kEstimate, report->plan.layout);
}

// Prints each part as soon as it is known: the answer first, then what has to be searched for.
void PrintReport(const PlanArguments& arguments, const JobFile& file, PlanReport report) {
  const JobSpec& job = file.job;
  PrintNotes(file);
  std::cout << AnswerText(job, report.plan, report.summary) << std::flush;
  if (!std::cout.good()) return;  // nobody reads the rest
  AddFront(job, &report);
  std::cout << AdviceText(report.summary) << LosersText(job, report.plan, arguments.explain)
            << std::flush;
  PrintHosts(report);
  AddToday(job, arguments.without_nodes, &report);
  PrintLoss(job, report);
  PrintRunnable(report);
  std::cout << ScheduleText(QuestionOf(job), report.plan.layout)
            << BillText(job, report.summary.bill) << FrontText(report.front) << std::flush;
  AddSensitivities(job, &report);
  std::cout << SensitivitiesText(report.plan, job.batch(), report.sensitivities);
  if (!report.recorded_error.empty()) std::cout << "\n" << report.recorded_error << "\n";
}

}  // namespace

int AnswerPlan(const PlanArguments& arguments, JobFile file) {
  absl::StatusOr<Plan> plan = FindPlan(file.job, Purpose::kEstimate);
  if (!plan.ok()) return FailPlan(file, plan.status());
  file.SettleInterval(*plan);
  if (file.job.layout.sequence_parallel.value_or(false) && plan->layout.tp == 1) {
    file.notes.emplace_back(
        "parallelism.sequence_parallel: true has nothing to share with tp 1, which the plan takes");
  }
  if (!arguments.svg.empty()) {
    const int written = WriteSvg(arguments.svg, QuestionOf(file.job), plan->layout);
    if (written != kExitOk) return written;
  }
  LinesLeftOut unread;  // of the ledger
  PlanReport report = ReportOf(file.job, *std::move(plan), &unread);
  if (unread.count > 0) file.notes.push_back(unread.Text());
  auto placed = PlacedHosts(arguments, file.job, report.plan.layout);
  if (!placed.ok()) return Fail(placed.status());
  report.hosts = *std::move(placed);
  if (arguments.json) {
    AddFront(file.job, &report);
    AddToday(file.job, arguments.without_nodes, &report);
    AddSensitivities(file.job, &report);
    std::cout << PlanJson(file, report, arguments.explain);
    return kExitOk;
  }
  PrintReport(arguments, file, std::move(report));
  return kExitOk;
}

// A layout is judged as it is given: on as many nodes as it takes, if the file's cluster has fewer
// and nobody said how many.
void MakeRoom(const PlanArguments& arguments, const Layout& layout, JobFile& file) {
  constexpr int64_t kMostNodes = 1 << 20;
  Cluster& cluster = file.job.cluster;
  const int64_t workers = int64_t{layout.dp} * layout.tp * layout.pp * layout.cp;
  const int64_t nodes = (workers + cluster.slots_per_node - 1) / cluster.slots_per_node;
  const bool said = arguments.options.nodes.has_value() || arguments.without_nodes > 0;
  if (said || nodes <= cluster.nodes || nodes > kMostNodes) return;
  file.notes.push_back(absl::StrCat("the layout's ", workers, " workers take ", nodes, " nodes of ",
                                    cluster.name, "; the job has ", cluster.nodes));
  cluster.nodes = static_cast<int>(nodes);
}

int AnswerLayout(const PlanArguments& arguments, JobFile file) {
  const absl::StatusOr<LayoutSpec> fixed = ParseLayoutSpec("--layout", *arguments.layout);
  if (!fixed.ok()) return Fail(fixed.status());
  const absl::StatusOr<Layout> layout = LayoutFrom(*fixed, file.job);
  if (!layout.ok()) return Fail(layout.status());
  MakeRoom(arguments, *layout, file);
  Question question = QuestionOf(file.job);
  if (!arguments.engine.empty()) {
    const absl::StatusOr<EngineProfile> engine = EngineProfileNamed(arguments.engine);
    if (!engine.ok())
      return Fail(absl::Status(engine.status().code(),
                               absl::StrCat("--engine: ", engine.status().message())));
    question.engine = *engine;
  }
  const absl::StatusOr<Plan> plan = PlanFor(question, *layout, Purpose::kEstimate);
  if (!plan.ok())
    return Fail(
        absl::Status(plan.status().code(), absl::StrCat("--layout: ", plan.status().message())));
  file.SettleInterval(*plan);
  if (!arguments.svg.empty()) {
    const int written = WriteSvg(arguments.svg, question, *layout);
    if (written != kExitOk) return written;
  }
  PlanReport report = {.plan = *plan, .run_issues = RunIssues(file.job)};
  report.summary =
      SummaryOf(file.job, *plan, question.engine, BarOf(RecordedErrorOn(file.job.cluster)), {});
  auto placed = PlacedHosts(arguments, file.job, *layout);
  if (!placed.ok()) return Fail(placed.status());
  report.hosts = *std::move(placed);
  if (arguments.json) {
    std::cout << PlanJson(file, report, 0);
    return kExitOk;
  }
  PrintNotes(file);
  if (question.engine.name != "weft") {
    std::cout << "with the habits of " << question.engine.name << ":\n";
  }
  std::cout << PlanText(file.job, *plan, report.summary, 0);
  PrintHosts(report);
  if (question.engine.name == "weft") PrintIssues("this", report.run_issues, *plan);
  std::cout << ScheduleText(question, *layout) << BillText(file.job, report.summary.bill);
  return kExitOk;
}

// Says why `other` is not the plan, where it would be better or its steps are no slower than the
// plan's.
void PrintVerdict(const JobFile& file, const Plan& plan, const Plan& other) {
  if (const auto pins = PinsAgainst(file.job, plan, other, Purpose::kEstimate)) {
    std::cout << FoldedText(PinsText(plan, other, *pins), 2) << "\n";
    return;
  }
  if (other.time.total_s() > plan.time.total_s()) return;
  std::cout << "its steps are no slower; the plan wins by goodput, or is the simpler of equals\n";
}

int AnswerWhy(const PlanArguments& arguments, const JobFile& file) {
  const std::string& asked = *arguments.why;
  const absl::StatusOr<LayoutSpec> fixed = ParseLayoutSpec("--why", asked);
  if (!fixed.ok()) return Fail(fixed.status());
  const absl::StatusOr<Plan> plan = FindPlan(file.job, Purpose::kEstimate);
  if (!plan.ok()) return FailPlan(file, plan.status());
  const absl::StatusOr<Plan> other = FindPlanUnder(file.job, *fixed, Purpose::kEstimate);
  if (arguments.json) {
    std::cout << WhyJson(file, *plan, asked, other);
    return other.ok() ? kExitOk : ExitCodeOf(other.status());
  }
  PrintNotes(file);
  std::cout << FoldedText(absl::StrCat("plan: ", LayoutText(plan->layout)), 4) << "\n";
  if (!other.ok()) {
    std::cout << "with " << asked << ": there is none\n" << std::flush;
    std::cerr << FoldedText(absl::StrCat("weft: --why: ", other.status().message()), 2) << "\n";
    return ExitCodeOf(other.status());
  }
  std::cout << FoldedText(absl::StrCat("with ", asked, ": ", LayoutText(other->layout)), 4) << "\n";
  if (other->layout == plan->layout) {
    std::cout << "that is the plan\n";
    PrintIssues("it", RunIssues(file.job), *plan);
    return kExitOk;
  }
  std::cout << "\nstep time, the best of each:\n"
            << DifferenceText("the plan", plan->time, asked.size() <= 14 ? asked : "asked",
                              other->time);
  std::cout << "\nfullest rank: " << BytesText(plan->peak_bytes()) << " and "
            << BytesText(other->peak_bytes()) << " of " << BytesText(plan->usable_bytes)
            << " usable; workers: " << plan->layout.world_size() << " and "
            << other->layout.world_size() << "\n";
  PrintVerdict(file, *plan, *other);
  const std::vector<SpecIssue> run_issues = RunIssues(file.job);
  if (!run_issues.empty()) {
    PrintIssues("either", run_issues, *plan);
    return kExitOk;
  }
  PrintIssues("the plan", {}, *plan);
  PrintIssues("what was asked", {}, *other);
  return kExitOk;
}

}  // namespace weft
