#include "plan/schedule/makespan.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/plan/schedule/small_pipelines.h"

namespace weft {
namespace {

// Durations of `stages` stages, each between 0.5 and 1.5 times the norm, from `seed` alone.
std::vector<ActionSeconds> UnevenSeconds(int stages, unsigned seed, double transfer_s) {
  std::minstd_rand random(seed);
  std::vector<ActionSeconds> seconds;
  for (int stage = 0; stage < stages; ++stage) {
    const double size = 0.5 + static_cast<double>(random() % 1001) / 1000;
    seconds.push_back({size, 2 * size, transfer_s, 0.8 * size});
  }
  return seconds;
}

// Returns the seconds of all virtual stages, where those of a stage are alike.
std::vector<ActionSeconds> EachChunk(const std::vector<ActionSeconds>& stages, int chunks) {
  std::vector<ActionSeconds> all;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    all.insert(all.end(), stages.begin(), stages.end());
  }
  return all;
}

TEST(PipelineSeconds, IsTheSimulatorsMakespanForEqualStages) {
  for (const ActionSeconds& seconds : kRatios) {
    ForSmallPipelines(seconds, [&](const Shape& shape, const Simulation& simulation) {
      const std::vector<ActionSeconds> all(static_cast<size_t>(shape.stages), seconds);
      EXPECT_NEAR(PipelineSeconds(shape.kind, all, shape.microbatches, shape.chunks),
                  simulation.makespan_s, 1e-9);
    });
  }
}

TEST(PipelineSeconds, IsNeverAboveTheSimulatorAndAtMostAFewPercentBelow) {
  const auto least = [](ScheduleKind kind) {
    switch (kind) {
      case ScheduleKind::kGpipe:
        return 1 - 1e-9;
      case ScheduleKind::kOneForwardOneBackward:
        return 0.95;
      case ScheduleKind::kInterleaved:
        return 0.85;
      case ScheduleKind::kZeroBubbleH1:
        return 0.9;
    }
    return 1.0;
  };
  for (const Shape& shape : SmallPipelines()) {
    for (const double transfer_s : {0.0, 0.1}) {
      const auto seed = static_cast<unsigned>(shape.stages * 100 + shape.microbatches);
      const std::vector<ActionSeconds> seconds = UnevenSeconds(shape.stages, seed, transfer_s);
      const auto simulation =
          Simulate(PipelineOf(shape.kind, shape.stages, shape.microbatches, shape.chunks),
                   EachChunk(seconds, shape.chunks));
      ASSERT_TRUE(simulation.ok()) << simulation.status();
      const double ratio = PipelineSeconds(shape.kind, seconds, shape.microbatches, shape.chunks) /
                           simulation->makespan_s;
      EXPECT_LE(ratio, 1 + 1e-9) << ShapeText(shape) << " transfer " << transfer_s;
      EXPECT_GE(ratio, least(shape.kind)) << ShapeText(shape) << " transfer " << transfer_s;
    }
  }
}

// 13 rounds and a part of one, where a schedule takes parts.
int ManyMicrobatches(const Shape& shape) {
  return 13 * shape.stages + (shape.kind == ScheduleKind::kInterleaved ? 0 : shape.stages - 1);
}

TEST(DryRunSeconds, IsTheMakespanOfADryRunOfAllMicrobatches) {
  for (Shape shape : SmallPipelines()) {
    if (shape.stages == 1 || shape.microbatches > shape.stages) continue;
    const auto seed = static_cast<unsigned>(shape.stages * 100 + shape.microbatches);
    shape.microbatches = ManyMicrobatches(shape);
    for (const double transfer_s : {0.0, 0.1, 0.7}) {
      SCOPED_TRACE(absl::StrCat(ShapeText(shape), " transfer ", transfer_s));
      const std::vector<ActionSeconds> chunks =
          EachChunk(UnevenSeconds(shape.stages, seed, transfer_s), shape.chunks);
      const auto all =
          Simulate(PipelineOf(shape.kind, shape.stages, shape.microbatches, shape.chunks), chunks);
      ASSERT_TRUE(all.ok()) << all.status();
      const auto continued = DryRunSeconds(shape.kind, shape.stages, chunks, shape.microbatches);
      ASSERT_TRUE(continued.ok()) << continued.status();
      EXPECT_NEAR(*continued / all->makespan_s, 1, 1e-9);
    }
  }
}

// Inputs are there when a stage wants them: nothing is longer than what the closed form, which
// takes no account of short turns, says but for a few passes, and no stage is busy for longer.
TEST(DryRunSeconds, OfMicrobatchesThatTheStagesDoNotDivideIsNearItsClosedForm) {
  int cases = 0;
  for (int stages = 2; stages <= 6; ++stages) {
    for (int microbatches = stages + 1; microbatches <= 30; ++microbatches) {
      if (microbatches % stages == 0) continue;
      for (const int chunks : {2, 3}) {
        const ActionSeconds pass = {1, 2, 0, 1};
        const std::vector<ActionSeconds> all(static_cast<size_t>(stages), pass);
        const auto dry =
            DryRunSeconds(ScheduleKind::kInterleaved, stages, EachChunk(all, chunks), microbatches);
        ASSERT_TRUE(dry.ok()) << dry.status();
        const double busy_s = 3.0 * microbatches * chunks;
        const double closed_s =
            PipelineSeconds(ScheduleKind::kInterleaved, all, microbatches, chunks);
        SCOPED_TRACE(absl::StrCat(stages, " stages, ", microbatches, " microbatches, ", chunks,
                                  " chunks: ", *dry, " s, by closed form ", closed_s));
        EXPECT_GE(*dry, busy_s + 3.0 * (stages - 1) - 1e-9);
        EXPECT_LE(closed_s, *dry + 1e-9);
        EXPECT_GE(closed_s, 0.8 * *dry);
        ++cases;
      }
    }
  }
  EXPECT_GT(cases, 100);
}

}  // namespace
}  // namespace weft
