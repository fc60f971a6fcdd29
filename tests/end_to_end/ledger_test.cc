// The ledger of real runs: one line a run, in the state folder that the test gave; a run does not
// depend on it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/end_to_end/tiny_run.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::filesystem::path StateFolder(const TinyRun& run) {
  return std::filesystem::path(run.run_folder()).parent_path() / "state";
}

TEST(Ledger, OfARunHasPredictedBesideMeasured) {
  TinyRun run;
  const TinyRun::Outcome outcome = run.RunToEnd();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, Not(HasSubstr("warning")));
  const std::string text = ReadText(StateFolder(run) / "weft/ledger.jsonl");
  ASSERT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["job"], "tiny");
  EXPECT_EQ(json["workers"], 4);
  EXPECT_EQ(json["steps"], TinyRun::kSteps - 2);
  EXPECT_THAT(json["hardware"].get<std::string>(), HasSubstr("cpu/"));
  const double measured_s = json["measured_step_s"];
  EXPECT_GT(measured_s, 0);
  EXPECT_LT(measured_s, 10);
  double sum_s = 0;
  for (const auto& [name, seconds] : json["terms_s"].items()) sum_s += seconds.get<double>();
  EXPECT_NEAR(sum_s, json["predicted_step_s"].get<double>(), 1e-9);
  // Two stages: all parts of the step but no more than it.
  sum_s = 0;
  for (const char* part : {"forward", "backward", "transfers", "reductions", "update"}) {
    ASSERT_TRUE(json["parts"].contains(part)) << text;
    EXPECT_GT(json["parts"][part]["predicted_s"].get<double>(), 0) << part;
    EXPECT_GT(json["parts"][part]["measured_s"].get<double>(), 0) << part;
    sum_s += json["parts"][part]["predicted_s"].get<double>();
  }
  EXPECT_NEAR(sum_s, json["predicted_step_s"].get<double>(), 1e-9);
  EXPECT_GT(json["planned_bytes"], 0);
  EXPECT_LE(json["peak_bytes"], json["planned_bytes"]);

  // The next plan on this profile tells what was recorded.
  const TinyRun::Outcome plan = TinyRun::Finish(*run.Weft({"plan", run.job_path()}), 240);
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("recorded: 1 run on this profile, median error "));
  EXPECT_THAT(plan.out, HasSubstr("\n  of the step: forward "));

  // Saying that it is done is no run.
  EXPECT_EQ(run.RunToEnd().exit_code, 0);
  EXPECT_EQ(ReadText(StateFolder(run) / "weft/ledger.jsonl"), text);
}

// The layout is found by a search each time: for the plan, before the run, and by the coordinator
// where no plan comes.
TEST(Ledger, OfARunHasTheLayoutBytesAndTimeThatWereBefore) {
  TinyRun run;
  const std::vector<std::string> sets = {
      "--set", "parallelism.dp=auto", "--set", "parallelism.pp=auto", "--set", "training.steps=8"};
  const auto plan = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"plan", run.job_path()});
    arguments.insert(arguments.end(), sets.begin(), sets.end());
    const TinyRun::Outcome outcome = TinyRun::Finish(*run.Weft(arguments), 240);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  };
  const std::string text = plan({});
  const auto json = nlohmann::json::parse(plan({"--json"}));
  const TinyRun::Outcome outcome = run.RunToEnd(sets);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto entry = nlohmann::json::parse(ReadText(StateFolder(run) / "weft/ledger.jsonl"));
  EXPECT_THAT(text, HasSubstr("\nlayout: " + entry["layout"].get<std::string>() + "\n"));
  EXPECT_EQ(entry["predicted_step_s"], json["prediction"]["step_s"]);
  const std::string planned = json["memory"]["peak_bytes"].dump();
  EXPECT_THAT(ReadText(run.run_folder() + "/resolved.yaml"),
              HasSubstr("planned_bytes: " + planned + "\n"));
}

TEST(Ledger, ThatCannotBeWrittenIsAWarning) {
  TinyRun run;
  std::ofstream(StateFolder(run)) << "a file where the folder should be";
  const TinyRun::Outcome outcome = run.RunToEnd();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("warning: "));
  EXPECT_THAT(outcome.err, HasSubstr("ledger.jsonl: cannot be written"));
}

}  // namespace
}  // namespace weft
