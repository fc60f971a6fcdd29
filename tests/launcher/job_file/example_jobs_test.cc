// Every example job is read and planned, and its plan's JSON is what docs/plan_json.md says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/job_file/job_yaml.h"
#include "launcher/job_file/plan_json.h"
#include "plan/keys/job_rules.h"
#include "plan/search/search.h"
#include "plan/spec/layout_properties.h"
#include "plan/spec/layout_text.h"
#include "tests/places.h"

namespace weft {
namespace {

using testing::HasSubstr;

std::set<std::string> ExampleJobs() {
  std::set<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(SourcePath("/configs/jobs"))) {
    if (entry.path().extension() == ".yaml") paths.insert(entry.path().string());
  }
  return paths;
}

TEST(ExampleJobs, AreReadAndPlanned) {
  const std::set<std::string> paths = ExampleJobs();
  EXPECT_GE(paths.size(), 4);
  for (const std::string& path : paths) {
    const auto file = ReadJobFile(path, {.sets = {}, .check_files = false});
    ASSERT_TRUE(file.ok()) << file.status();
    const bool runs = RunIssues(file->job).empty();
    const auto plan = FindPlan(file->job, runs ? Purpose::kRun : Purpose::kEstimate);
    EXPECT_TRUE(plan.ok()) << path << ": " << plan.status();
  }
}

TEST(ExampleJobs, TheQuickstartIsTwoReplicasOfTwoStages) {
  const auto file =
      ReadJobFile(SourcePath("/configs/jobs/quickstart.yaml"), {.sets = {}, .check_files = false});
  ASSERT_TRUE(file.ok()) << file.status();
  const auto plan = FindPlan(file->job, Purpose::kRun);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->layout.dp, 2);
  EXPECT_EQ(plan->layout.pp, 2);
  EXPECT_EQ(plan->layout.world_size(), 4);
}

// Every property of the layout that may be left to the planner.
std::vector<std::string> EverythingAuto() {
  std::vector<std::string> sets;
  EachLayoutProperty([&](const auto& row) {
    if (row.name == "recompute_per_stage" || row.name == "zero_hpz_partition_size") return;
    sets.push_back(absl::StrCat(row.key, "=auto"));
  });
  return sets;
}

// `weft plan` looks at all that can be described, `weft run` and the coordinator at what the engine
// runs today. Where these differ the plan says so; else they are the same to the last bit, and so
// is the plan of a run that goes on with its layout fixed.
TEST(ExampleJobs, RunAsTheyWerePlanned) {
  int compared = 0;
  for (const std::string& path : ExampleJobs()) {
    for (const std::vector<std::string>& sets : {std::vector<std::string>(), EverythingAuto()}) {
      SCOPED_TRACE(absl::StrCat(path, sets.empty() ? "" : " with everything auto"));
      const auto asked = ReadJobFile(path, {.sets = sets, .check_files = false});
      ASSERT_TRUE(asked.ok()) << asked.status();
      const auto plan = FindPlan(asked->job, Purpose::kEstimate);
      ASSERT_TRUE(plan.ok()) << plan.status();
      const auto to_run = ReadJobFile(path, {.sets = sets, .check_files = false, .to_run = true});
      const bool runs = to_run.ok() && RunIssues(asked->job).empty() && plan->engine_issues.empty();
      if (!runs) {
        const auto json = nlohmann::json::parse(PlanJson(
            *asked, {.plan = *plan, .run_issues = RunIssues(asked->job)}, /*max_rejections=*/0));
        EXPECT_FALSE(json["engine_issues"].empty() && json["run_issues"].empty() &&
                     json["notes"].empty());
        continue;
      }
      EXPECT_TRUE(to_run->job == asked->job);
      const auto run = FindPlan(to_run->job, Purpose::kRun);
      const auto again = PlanFor(to_run->job, plan->layout, Purpose::kRun);
      for (const absl::StatusOr<Plan>& other : {run, again}) {
        ASSERT_TRUE(other.ok()) << other.status();
        EXPECT_EQ(LayoutText(other->layout), LayoutText(plan->layout));
        EXPECT_TRUE(other->layout == plan->layout);
        EXPECT_EQ(other->peak_bytes(), plan->peak_bytes());
        EXPECT_EQ(other->host_bytes(), plan->host_bytes());
        EXPECT_EQ(other->time.total_s(), plan->time.total_s());
        EXPECT_EQ(other->goodput, plan->goodput);
      }
      ++compared;
    }
  }
  EXPECT_GE(compared, 4);
}

TEST(PlanJson, HasTheDocumentedFields) {
  const auto file =
      ReadJobFile(SourcePath("/configs/jobs/quickstart.yaml"), {.sets = {}, .check_files = false});
  ASSERT_TRUE(file.ok()) << file.status();
  const auto plan = FindPlan(file->job, Purpose::kRun);
  ASSERT_TRUE(plan.ok());
  const Summary summary = SummaryOf(file->job, *plan, WeftProfile(), {}, {});
  const auto json = nlohmann::json::parse(PlanJson(*file, {.plan = *plan, .summary = summary}, 2));
  EXPECT_EQ(json["format_version"], kPlanJsonVersion);
  EXPECT_EQ(json["training"]["mixed_precision"], "fp32");
  EXPECT_FALSE(json["prediction"].contains("goodput")) << "the bill has another of that name";
  EXPECT_EQ(json["prediction"]["goodput_at_best_interval"], plan->goodput);
  EXPECT_EQ(json["bill"]["goodput"], BillOf(file->job, *plan).goodput);
  const double rate = json["prediction"]["model_flops_per_s"].get<double>();
  EXPECT_GT(rate, 0);
  EXPECT_NEAR(json["prediction"]["mfu"].get<double>(),
              rate / file->job.cluster.device.peak_flops_per_s.fp32, 1e-12);
  std::set<std::string> fields;
  for (const auto& [name, value] : json.items()) fields.insert(name);
  EXPECT_EQ(fields,
            (std::set<std::string>{"bill",        "candidates",     "cluster",    "engine_issues",
                                   "fits",        "format_version", "front",      "job",
                                   "layout",      "memory",         "model",      "notes",
                                   "prediction",  "recorded_error", "rejections", "run_issues",
                                   "search",      "sensitivities",  "summary",    "training",
                                   "weft_version"}));
  EXPECT_EQ(json["bill"]["interval_steps"], file->job.checkpoint.interval);
  const auto& top = json["summary"];
  EXPECT_EQ(top["free_bytes"], plan->usable_bytes - plan->peak_bytes());
  EXPECT_EQ(top["step_s"]["predicted"], json["prediction"]["step_s"]);
  EXPECT_EQ(top["wall_s"]["predicted"], json["bill"]["wall_s"]);
  EXPECT_TRUE(top["cost"].is_null()) << "the profile states no price";
  EXPECT_EQ(top["error"]["source"], "none") << "no run is recorded, published ones were on GPUs";
  EXPECT_EQ(json["layout"]["world_size"], 4);
  EXPECT_EQ(json["memory"]["stages"].size(), 2);
  EXPECT_EQ(json["memory"]["peak_bytes"], plan->peak_bytes());
  for (const auto& stage : json["memory"]["stages"]) {
    int64_t sum = 0;
    for (const auto& [kind, bytes] : stage["bytes"].items()) sum += bytes.get<int64_t>();
    EXPECT_EQ(stage["total_bytes"], sum);
  }
  double sum_s = 0;
  for (const auto& [term, seconds] : json["prediction"]["terms_s"].items()) {
    sum_s += seconds.get<double>();
  }
  EXPECT_NEAR(json["prediction"]["step_s"].get<double>(), sum_s, 1e-12);
  EXPECT_EQ(json["rejections"].size(), std::min<size_t>(2, plan->rejections.size()));
}

// The page is what other programs are written by.
TEST(PlanJson, HasAPageOfItsVersionThatNamesItsFields) {
  std::ifstream stream(SourcePath("/docs/plan_json.md"));
  const std::string page((std::istreambuf_iterator<char>(stream)), {});
  const std::string version = std::to_string(kPlanJsonVersion);
  EXPECT_THAT(page, HasSubstr("`format_version` is " + version + "; while it stays " + version));
  EXPECT_THAT(page, HasSubstr("- `format_version`: " + version + "."));
  EXPECT_THAT(page, HasSubstr("  - In " + std::to_string(kPlanJsonVersion - 1) + " "));
  const auto file =
      ReadJobFile(SourcePath("/configs/jobs/quickstart.yaml"), {.sets = {}, .check_files = false});
  ASSERT_TRUE(file.ok()) << file.status();
  const auto plan = FindPlan(file->job, Purpose::kRun);
  ASSERT_TRUE(plan.ok());
  const auto json = nlohmann::json::parse(PlanJson(*file, {.plan = *plan}, 2));
  const std::regex word("[a-z_]+");
  std::set<std::string> named;
  for (std::sregex_iterator it(page.begin(), page.end(), word), end; it != end; ++it) {
    named.insert(it->str());
  }
  for (const auto& [field, value] : json.items()) EXPECT_EQ(named.count(field), 1u) << field;
  for (const auto& [field, value] : json["layout"].items()) {
    EXPECT_EQ(named.count(field), 1u) << field;
  }
}

// The same differences as in words: they sum to that of the steps.
TEST(WhyJson, ComparesTermByTermOrSaysWhyThereIsNothing) {
  const auto file =
      ReadJobFile(SourcePath("/configs/jobs/quickstart.yaml"), {.sets = {}, .check_files = false});
  ASSERT_TRUE(file.ok()) << file.status();
  const auto plan = FindPlan(file->job, Purpose::kEstimate);
  const auto other = FindPlanUnder(file->job, {.tp = 2, .pp = 1}, Purpose::kEstimate);
  ASSERT_TRUE(plan.ok() && other.ok());
  const auto json = nlohmann::json::parse(WhyJson(*file, *plan, "tp=2,pp=1", other));
  EXPECT_EQ(json["asked"], "tp=2,pp=1");
  EXPECT_TRUE(json["found"]);
  EXPECT_FALSE(json["is_the_plan"]);
  EXPECT_EQ(json["other"]["layout"]["tp"], 2);
  double sum_s = 0;
  for (const auto& [term, seconds] : json["difference"]["terms_s"].items()) {
    sum_s += seconds.get<double>();
  }
  const double difference_s = json["other"]["prediction"]["step_s"].get<double>() -
                              json["plan"]["prediction"]["step_s"].get<double>();
  EXPECT_NEAR(sum_s, difference_s, 1e-12);
  EXPECT_NEAR(json["difference"]["step_s"].get<double>(), difference_s, 1e-12);

  const auto none = FindPlanUnder(file->job, {.tp = 3}, Purpose::kEstimate);
  const auto refusal = nlohmann::json::parse(WhyJson(*file, *plan, "tp=3", none));
  EXPECT_FALSE(refusal["found"]);
  EXPECT_EQ(refusal["reason"], std::string(none.status().message()));
}

TEST(WhyJson, NamesWhatTheFileFixesAndThePlanWithoutIt) {
  const auto file = ReadJobFile(
      SourcePath("/configs/jobs/gpt2-124m.yaml"),
      {.sets = {"parallelism.pp=2"}, .check_files = false, .cluster = "a100-40gx8", .nodes = 1});
  ASSERT_TRUE(file.ok()) << file.status();
  const auto plan = FindPlan(file->job, Purpose::kEstimate);
  const auto better = FindPlanUnder(file->job, {.pp = 1}, Purpose::kEstimate);
  ASSERT_TRUE(plan.ok() && better.ok());
  const auto json = nlohmann::json::parse(WhyJson(*file, *plan, "pp=1", better));
  EXPECT_EQ(json["pinned"], nlohmann::json::parse(R"([{"key":"parallelism.pp","value":"2"}])"));
  EXPECT_EQ(json["freed"]["layout"]["pp"], 1);
  EXPECT_LE(json["freed"]["prediction"]["step_s"], json["other"]["prediction"]["step_s"]);
  const auto slower = FindPlanUnder(file->job, {.pp = 4}, Purpose::kEstimate);
  ASSERT_TRUE(slower.ok());
  EXPECT_FALSE(nlohmann::json::parse(WhyJson(*file, *plan, "pp=4", slower)).contains("pinned"));
}

TEST(SettleInterval, TakesTheIntervalThatWastesLeastWhereItIsAutoOrNothingIsSaid) {
  struct Case {
    const char* set;
    std::optional<int64_t> stays;  // nullopt: what wastes least
  };
  const Case cases[] = {{"checkpoint.interval=auto", std::nullopt},
                        {"checkpoint={}", std::nullopt},
                        {"checkpoint=null", std::nullopt},
                        {"checkpoint.interval=7", 7},
                        {"checkpoint.interval=0", 0}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.set);
    auto file = ReadJobFile(SourcePath("/configs/jobs/llama3-8b.yaml"),
                            {.sets = {c.set, "training.steps=2000000"}, .check_files = false});
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->job.checkpoint.interval, c.stays);
    const auto plan = FindPlan(file->job, Purpose::kEstimate);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const int64_t best = BillOf(file->job, *plan).best_interval_steps;
    EXPECT_GT(best, 7);
    EXPECT_LT(best, file->job.training.steps);
    const std::string note = file->SettleInterval(*plan);
    EXPECT_EQ(file->job.checkpoint.interval, c.stays.value_or(best));
    EXPECT_EQ(BillOf(file->job, *plan).best_interval_steps, best);
    if (c.stays) {
      EXPECT_EQ(note, "");
      continue;
    }
    const std::string begin = absl::StrCat("checkpoint.interval: auto: every ", best, " steps (");
    EXPECT_EQ(note.substr(0, begin.size()), begin) << note;
    EXPECT_GT(BillOf(file->job, *plan).goodput, 0.9);
  }
}

// A run that is over before a checkpoint has paid for itself saves once, at its end.
TEST(SettleInterval, SavesAtTheEndAloneWhereNothingInBetweenPaysOff) {
  auto file = ReadJobFile(SourcePath("/configs/jobs/quickstart.yaml"),
                          {.sets = {"checkpoint=null"}, .check_files = false});
  ASSERT_TRUE(file.ok()) << file.status();
  const auto plan = FindPlan(file->job, Purpose::kRun);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(file->SettleInterval(*plan),
            "checkpoint.interval: auto: at the end only; at this failure rate no checkpoint in "
            "between pays off");
  EXPECT_EQ(file->job.checkpoint.interval, file->job.training.steps);
  EXPECT_EQ(BillOf(file->job, *plan).checkpoints, 1);
}

}  // namespace
}  // namespace weft
