// Every example job is read and planned, and its plan's JSON is what docs/plan_json.md says.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "launcher/job_yaml.h"
#include "launcher/plan_json.h"
#include "plan/search/search.h"

namespace weft {
namespace {

std::set<std::string> ExampleJobs() {
  std::set<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(WEFT_SOURCE_DIR "/configs/jobs")) {
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
  const auto file = ReadJobFile(WEFT_SOURCE_DIR "/configs/jobs/quickstart.yaml",
                                {.sets = {}, .check_files = false});
  ASSERT_TRUE(file.ok()) << file.status();
  const auto plan = FindPlan(file->job, Purpose::kRun);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->layout.dp, 2);
  EXPECT_EQ(plan->layout.pp, 2);
  EXPECT_EQ(plan->layout.world_size(), 4);
}

TEST(PlanJson, HasTheDocumentedFields) {
  const auto file = ReadJobFile(WEFT_SOURCE_DIR "/configs/jobs/quickstart.yaml",
                                {.sets = {}, .check_files = false});
  ASSERT_TRUE(file.ok()) << file.status();
  const auto plan = FindPlan(file->job, Purpose::kRun);
  ASSERT_TRUE(plan.ok());
  const auto json = nlohmann::json::parse(PlanJson(*file, {.plan = *plan}, 2));
  EXPECT_EQ(json["format_version"], 3);
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
            (std::set<std::string>{"bill",       "candidates",     "cluster",    "engine_issues",
                                   "fits",       "format_version", "front",      "job",
                                   "layout",     "memory",         "model",      "notes",
                                   "prediction", "recorded_error", "rejections", "run_issues",
                                   "search",     "sensitivities",  "training",   "weft_version"}));
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

// The same differences as in words: they sum to that of the steps.
TEST(WhyJson, ComparesTermByTermOrSaysWhyThereIsNothing) {
  const auto file = ReadJobFile(WEFT_SOURCE_DIR "/configs/jobs/quickstart.yaml",
                                {.sets = {}, .check_files = false});
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
      WEFT_SOURCE_DIR "/configs/jobs/gpt2-124m.yaml",
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

TEST(SettleInterval, TakesTheIntervalThatWastesLeastWhereItIsAuto) {
  for (const bool is_auto : {true, false}) {
    auto file =
        ReadJobFile(WEFT_SOURCE_DIR "/configs/jobs/llama3-8b.yaml",
                    {.sets = {is_auto ? "checkpoint.interval=auto" : "checkpoint.interval=7"},
                     .check_files = false});
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->job.checkpoint.interval, is_auto ? 0 : 7);
    const auto plan = FindPlan(file->job, Purpose::kEstimate);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const int64_t best = BillOf(file->job, *plan).best_interval_steps;
    const size_t notes = file->notes.size();
    file->SettleInterval(*plan);
    EXPECT_EQ(file->job.checkpoint.interval, is_auto ? best : 7);
    EXPECT_EQ(file->notes.size(), notes + (is_auto ? 1 : 0));
    EXPECT_GT(best, 7);
    EXPECT_EQ(BillOf(file->job, *plan).best_interval_steps, best);
  }
}

}  // namespace
}  // namespace weft
