#include "plan/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

using Pipeline = std::vector<std::vector<Action>>;

Pipeline PipelineOf(ScheduleKind kind, int stages, int microbatches) {
  Pipeline pipeline;
  for (int stage = 0; stage < stages; ++stage) {
    const Layout layout = {.pp = stages, .schedule = kind, .num_microbatches = microbatches};
    pipeline.push_back(StepSchedule(layout, stage, /*tied=*/true));
  }
  return pipeline;
}

// Calls `claim(kind, stages, microbatches, simulation)` for every small pipeline under `seconds`.
template <typename Claim>
void ForSmallPipelines(const ActionSeconds& seconds, Claim claim) {
  for (const ScheduleKind kind : {ScheduleKind::kGpipe, ScheduleKind::kOneForwardOneBackward}) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (int microbatches = 1; microbatches <= 20; ++microbatches) {
        SCOPED_TRACE(absl::StrCat(ScheduleName(kind), " ", stages, " stages, ", microbatches,
                                  " microbatches, forward ", seconds.forward_s, " s, backward ",
                                  seconds.backward_s, " s"));
        const auto simulation =
            Simulate(PipelineOf(kind, stages, microbatches), absl::MakeConstSpan(&seconds, 1));
        ASSERT_TRUE(simulation.ok()) << simulation.status();
        claim(kind, stages, microbatches, *simulation);
      }
    }
  }
}

constexpr ActionSeconds kRatios[] = {{1, 2, 0}, {1, 1, 0}, {3, 1, 0}, {0.25, 0.7, 0}};

// Narayanan et al., SC'21, 2.2: the bubble is (p - 1)(f + b) of (m + p - 1)(f + b) seconds.
TEST(Simulate, BubbleOfEqualStagesIsThePapers) {
  for (const ActionSeconds& seconds : kRatios) {
    ForSmallPipelines(seconds, [&](ScheduleKind, int stages, int microbatches,
                                   const Simulation& simulation) {
      const double cycle_s = seconds.forward_s + seconds.backward_s;
      EXPECT_NEAR(simulation.makespan_s, (microbatches + stages - 1) * cycle_s, 1e-9);
      EXPECT_NEAR(simulation.bubble_fraction, (stages - 1.0) / (microbatches + stages - 1), 1e-9);
      for (const double busy_s : simulation.busy_s) {
        EXPECT_NEAR(busy_s, microbatches * cycle_s, 1e-9);
      }
    });
  }
}

TEST(Simulate, HoldsAtMostStagesMinusStageUnder1f1bAndEverythingUnderGpipe) {
  ForSmallPipelines(
      {1, 2, 0}, [](ScheduleKind kind, int stages, int microbatches, const Simulation& simulation) {
        for (int stage = 0; stage < stages; ++stage) {
          const bool gpipe = kind == ScheduleKind::kGpipe;
          EXPECT_EQ(simulation.peak_live[static_cast<size_t>(stage)],
                    gpipe ? microbatches : std::min(stages - stage, microbatches));
        }
      });
}

TEST(Simulate, CountsTransfersOnTheCriticalPath) {
  const ActionSeconds seconds = {.forward_s = 1, .backward_s = 2, .transfer_s = 0.5};
  const auto simulation = Simulate(PipelineOf(ScheduleKind::kOneForwardOneBackward, 2, 1),
                                   absl::MakeConstSpan(&seconds, 1));
  ASSERT_TRUE(simulation.ok()) << simulation.status();
  // F0, transfer, F0, B0, transfer, B0.
  EXPECT_NEAR(simulation->makespan_s, 1 + 0.5 + 1 + 2 + 0.5 + 2, 1e-12);
}

TEST(Simulate, TheSlowestStageSetsThePace) {
  const std::vector<ActionSeconds> seconds = {{1, 2, 0}, {1, 2, 0}, {2, 4, 0}, {1, 2, 0}};
  const auto simulation =
      Simulate(PipelineOf(ScheduleKind::kOneForwardOneBackward, 4, 10), seconds);
  ASSERT_TRUE(simulation.ok()) << simulation.status();
  EXPECT_NEAR(simulation->busy_s[2], 60, 1e-9);
  EXPECT_GE(simulation->makespan_s, 60);
  EXPECT_LE(simulation->makespan_s, 60 + 3 * 3 + 1e-9);  // the others pass once
}

TEST(Simulate, RunsForwardsOnlyForEvaluation) {
  const ActionSeconds seconds = {1, 2, 0};
  Pipeline pipeline;
  for (int stage = 0; stage < 3; ++stage) pipeline.push_back(EvaluationSchedule(stage, 3, 5));
  const auto simulation = Simulate(pipeline, absl::MakeConstSpan(&seconds, 1));
  ASSERT_TRUE(simulation.ok()) << simulation.status();
  EXPECT_NEAR(simulation->makespan_s, 5 + 2, 1e-12);
}

// Durations of `stages` stages, each between 0.5 and 1.5 times the norm, from `seed` alone.
std::vector<ActionSeconds> UnevenSeconds(int stages, unsigned seed, double transfer_s) {
  std::minstd_rand random(seed);
  std::vector<ActionSeconds> seconds;
  for (int stage = 0; stage < stages; ++stage) {
    const double size = 0.5 + static_cast<double>(random() % 1001) / 1000;
    seconds.push_back({size, 2 * size, transfer_s});
  }
  return seconds;
}

TEST(PipelineSeconds, IsTheSimulatorsMakespanForEqualStages) {
  for (const ActionSeconds& seconds : kRatios) {
    ForSmallPipelines(seconds, [&](ScheduleKind kind, int stages, int microbatches,
                                   const Simulation& simulation) {
      const std::vector<ActionSeconds> all(static_cast<size_t>(stages), seconds);
      EXPECT_NEAR(PipelineSeconds(kind, all, microbatches), simulation.makespan_s, 1e-9);
    });
  }
}

TEST(PipelineSeconds, IsNeverAboveTheSimulatorAndAtMostFivePercentBelow) {
  for (const ScheduleKind kind : {ScheduleKind::kGpipe, ScheduleKind::kOneForwardOneBackward}) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (int microbatches = 1; microbatches <= 20; ++microbatches) {
        for (const double transfer_s : {0.0, 0.1}) {
          const auto seed = static_cast<unsigned>(stages * 100 + microbatches);
          const std::vector<ActionSeconds> seconds = UnevenSeconds(stages, seed, transfer_s);
          const auto simulation = Simulate(PipelineOf(kind, stages, microbatches), seconds);
          ASSERT_TRUE(simulation.ok()) << simulation.status();
          const double ratio =
              PipelineSeconds(kind, seconds, microbatches) / simulation->makespan_s;
          EXPECT_LE(ratio, 1 + 1e-9)
              << ScheduleName(kind) << " " << stages << " x " << microbatches;
          EXPECT_GE(ratio, kind == ScheduleKind::kGpipe ? 1 - 1e-9 : 0.95)
              << ScheduleName(kind) << " " << stages << " x " << microbatches;
        }
      }
    }
  }
}

Action* Find(std::vector<Action>& actions, Op op, int microbatch) {
  for (Action& action : actions) {
    if (action.op == op && action.microbatch == microbatch) return &action;
  }
  return nullptr;
}

struct Planted {
  std::string what;
  void (*plant)(Pipeline&);
  std::string message;
};

TEST(Simulate, NamesStageAndActionOfABrokenSchedule) {
  const Planted planted[] = {
      {"two sends swapped",
       [](Pipeline& p) {
         std::swap(*Find(p[0], Op::kSendActivation, 0), *Find(p[0], Op::kSendActivation, 1));
       },
       "schedules disagree: stage 0 runs send_act1 where stage 1 runs recv_act0"},
      {"a send left out",
       [](Pipeline& p) {
         p[1].erase(p[1].begin() + (Find(p[1], Op::kSendGradient, 2) - p[1].data()));
       },
       "schedules deadlock: stage 0 waits in recv_grad2"},
      {"both stages receive first",
       [](Pipeline& p) {
         const Action compute = {.op = Op::kForward, .microbatch = 9};
         p[0] = {{.op = Op::kRecvGradient}, compute, {.op = Op::kSendActivation}};
         p[1] = {{.op = Op::kRecvActivation}, compute, {.op = Op::kSendGradient}};
       },
       "schedules deadlock: stage 0 waits in recv_grad0, stage 1 waits in recv_act0"},
      {"a backward before its forward",
       [](Pipeline& p) { std::swap(*Find(p[1], Op::kForward, 1), *Find(p[1], Op::kBackward, 1)); },
       "schedule is broken: stage 1 runs B1 without the activations of its forward pass"},
      {"the first stage receives activations",
       [](Pipeline& p) { p[0].front() = {.op = Op::kRecvActivation, .microbatch = 0}; },
       "schedule is broken: stage 0 of 2 has no neighbour for recv_act0"},
  };
  const ActionSeconds seconds = {1, 2, 0};
  for (const Planted& p : planted) {
    SCOPED_TRACE(p.what);
    Pipeline pipeline = PipelineOf(ScheduleKind::kOneForwardOneBackward, 2, 3);
    p.plant(pipeline);
    const auto simulation = Simulate(pipeline, absl::MakeConstSpan(&seconds, 1));
    ASSERT_FALSE(simulation.ok());
    EXPECT_EQ(simulation.status().code(), absl::StatusCode::kInternal);
    EXPECT_EQ(simulation.status().message(), p.message);
  }
}

// Two sends facing each other meet only if each stage posts its neighbouring transfers together.
TEST(Simulate, NeighboursMaySendToEachOtherInOneGroup) {
  const ActionSeconds seconds = {1, 2, 0};
  const Action forward = {.op = Op::kForward};
  const Pipeline together = {{forward, {.op = Op::kSendActivation}, {.op = Op::kRecvGradient}},
                             {forward, {.op = Op::kSendGradient}, {.op = Op::kRecvActivation}}};
  EXPECT_TRUE(Simulate(together, absl::MakeConstSpan(&seconds, 1)).ok());
  const Pipeline apart = {
      {forward, {.op = Op::kSendActivation}, forward, {.op = Op::kRecvGradient}},
      {forward, {.op = Op::kSendGradient}, forward, {.op = Op::kRecvActivation}}};
  const auto simulation = Simulate(apart, absl::MakeConstSpan(&seconds, 1));
  EXPECT_EQ(simulation.status().message(),
            "schedules deadlock: stage 0 waits in send_act0, stage 1 waits in send_grad0");
}

}  // namespace
}  // namespace weft
