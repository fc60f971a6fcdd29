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
    const auto plan = FindPlan(file->job, Purpose::kRun);
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
  EXPECT_EQ(json["format_version"], 2);
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

}  // namespace
}  // namespace weft
