// The trace of a run, with ranks as threads: what a user opens in Perfetto.
#include "worker/train/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "plan/schedule/schedule.h"
#include "plan/schedule/step_schedule.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

struct Event {
  std::string name;
  int64_t step = 0;
  double begin_us = 0, end_us = 0;
};

std::vector<Event> Read(const std::string& path, int rank) {
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file);
  std::vector<Event> events;
  for (const auto& each : json.at("traceEvents")) {
    EXPECT_EQ(each.at("pid"), rank);
    if (each.at("ph") != "X") continue;
    events.push_back({each.at("name"), each.at("args").at("step"), each.at("ts"), 0});
    events.back().end_us = events.back().begin_us + each.at("dur").get<double>();
  }
  return events;
}

TEST(Trace, HasEveryActionOfATracedStepInItsOrderOnEachRank) {
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.training.steps = 4;
  job.profiler = {.enable = true, .freq = 2};
  const Layout layout = MakeLayout(2, 1, 2, ScheduleKind::kOneForwardOneBackward, 1, job);
  ASSERT_EQ(TrainWith(job, layout, folder.path()).status(), absl::OkStatus());
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const std::vector<Action> actions =
        StepSchedule(job.model, layout, layout.grid().CoordinatesOf(rank).pp);
    std::vector<std::string> expected;
    for (const auto& group : Groups(actions)) {
      std::string name;
      for (const Action& action : group) {
        if (action.op == Op::kReduceGradients && IsPass(group.front().op)) continue;
        absl::StrAppend(&name, name.empty() ? "" : " ", ActionText(action));
      }
      expected.push_back(name);
    }
    for (const int step : {2, 4}) {
      std::vector<std::string> found;
      double end_us = 0;
      for (const Event& event :
           Read(absl::StrCat(folder.path(), "/trace/step-", step, "/rank-", rank, ".json"), rank)) {
        EXPECT_EQ(event.step, step);
        found.push_back(event.name);
        EXPECT_GE(event.begin_us, end_us) << "one after the other";
        end_us = event.end_us;
      }
      EXPECT_EQ(found, expected) << "rank " << rank;
    }
  }
  for (const int step : {1, 3}) {
    EXPECT_FALSE(std::filesystem::exists(absl::StrCat(folder.path(), "/trace/step-", step)));
  }
}

TEST(Trace, IsWrittenOnlyWhenAskedFor) {
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.training.steps = 2;
  const Layout layout = MakeLayout(1, 1, 1, ScheduleKind::kGpipe, 2, job);
  ASSERT_EQ(TrainWith(job, layout, folder.path()).status(), absl::OkStatus());
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/trace"));
}

}  // namespace
}  // namespace weft
