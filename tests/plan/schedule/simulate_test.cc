#include "plan/schedule/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/plan/schedule/small_pipelines.h"

namespace weft {
namespace {

// Narayanan et al., SC'21, 2.2: the bubble is (p - 1)(f + b) of (m + p - 1)(f + b) seconds, with
// chunks (2.2.2) one v-th of it; here f and b are a chunk's. Qi et al., arXiv:2401.10241, table 1:
// with weight gradients w of b put off (p - 1)(f + b - 2 w), which takes p microbatches.
TEST(Simulate, BubbleOfEqualStagesIsThePapers) {
  for (const ActionSeconds& seconds : kRatios) {
    ForSmallPipelines(seconds, [&](const Shape& shape, const Simulation& simulation) {
      const double cycle_s = seconds.forward_s + seconds.backward_s;
      const double busy_s = shape.microbatches * shape.chunks * cycle_s;
      double bubble_s = (shape.stages - 1) * cycle_s;
      if (shape.kind == ScheduleKind::kZeroBubbleH1) {
        const int put_off = std::min(shape.stages, shape.microbatches) - 1;
        bubble_s -= (shape.stages - 1 + put_off) * seconds.weight_gradient_s;
      }
      EXPECT_NEAR(simulation.makespan_s, busy_s + bubble_s, 1e-9);
      EXPECT_NEAR(simulation.bubble_fraction, bubble_s / (busy_s + bubble_s), 1e-9);
      for (const double stage_busy_s : simulation.busy_s) EXPECT_NEAR(stage_busy_s, busy_s, 1e-9);
    });
  }
}

TEST(Simulate, HoldsAtOnceWhatTheScheduleSays) {
  ForSmallPipelines({1, 2, 0, 1}, [](const Shape& shape, const Simulation& simulation) {
    const Layout layout = {.pp = shape.stages,
                           .pp_schedule = shape.kind,
                           .gradient_accumulation_steps = shape.microbatches,
                           .virtual_stages = shape.chunks};
    for (int stage = 0; stage < shape.stages; ++stage) {
      EXPECT_EQ(simulation.peak_live[static_cast<size_t>(stage)],
                PeakLiveMicrobatches(layout, stage));
    }
  });
}

// A stage keeps what it receives early in the place of what it is for: no more places than passes
// live.
TEST(WithTransfers, ReceivesNothingBeforeThereIsAPlaceForIt) {
  for (const Shape& shape : SmallPipelines()) {
    const Pipeline pipeline =
        PipelineOf(shape.kind, shape.stages, shape.microbatches, shape.chunks);
    for (size_t stage = 0; stage < pipeline.size(); ++stage) {
      int taken = 0;
      int most = 0;
      for (const Action& action : pipeline[stage]) {
        const bool embeds = action.op == Op::kForward && stage == 0 && action.chunk == 0;
        if (action.op == Op::kRecvActivation || embeds) most = std::max(most, ++taken);
        if (action.op == Op::kBackward || action.op == Op::kBackwardWeight) --taken;
      }
      EXPECT_EQ(taken, 0);
      EXPECT_EQ(most, PeakLiveMicrobatches(pipeline[stage]))
          << ShapeText(shape) << " stage " << stage;
    }
  }
}

// The worker has one buffer each for what it receives from and sends to the stage after, and for
// the gradient on its way through; the head has one more gradient, under GPipe one per microbatch.
TEST(WithTransfers, NeedsOneBufferOfEachKind) {
  for (const Shape& shape : SmallPipelines()) {
    const Pipeline pipeline =
        PipelineOf(shape.kind, shape.stages, shape.microbatches, shape.chunks);
    for (int stage = 0; stage < shape.stages; ++stage) {
      SCOPED_TRACE(absl::StrCat(ShapeText(shape), " stage ", stage));
      int received_gradients = 0;
      int activations_to_send = 0;
      int gradients_to_send = 0;
      int head_gradients = 0;
      for (const Action& action : pipeline[static_cast<size_t>(stage)]) {
        const bool is_first = stage == 0 && action.chunk == 0;
        const bool is_last = stage == shape.stages - 1 && action.chunk == shape.chunks - 1;
        const bool is_backward = action.op == Op::kBackward || action.op == Op::kBackwardInput;
        if (action.op == Op::kRecvGradient) ++received_gradients;
        if (is_backward && !is_last) --received_gradients;
        if (action.op == Op::kForward) ++(is_last ? head_gradients : activations_to_send);
        if (action.op == Op::kSendActivation) --activations_to_send;
        if (is_backward && !is_last && !is_first) ++gradients_to_send;
        if (action.op == Op::kSendGradient) --(is_last ? head_gradients : gradients_to_send);
        if (is_backward && is_last && is_first) --head_gradients;
        EXPECT_LE(received_gradients, 1);
        EXPECT_LE(activations_to_send, 1);
        EXPECT_LE(gradients_to_send, 1);
        EXPECT_LE(head_gradients, shape.kind == ScheduleKind::kGpipe ? shape.microbatches : 1);
      }
      EXPECT_EQ(received_gradients + activations_to_send + gradients_to_send + head_gradients, 0);
    }
  }
}

// Start and end of each pass: in order, as long as it takes, after what it needs, not before.
TEST(Simulate, TimelineIsTheStepAsItRan) {
  const std::vector<ActionSeconds> seconds = {{1, 2, 0, 0.5}, {2, 3, 0, 1}};
  const auto simulation = Simulate(PipelineOf(ScheduleKind::kZeroBubbleH1, 2, 2), seconds);
  ASSERT_TRUE(simulation.ok()) << simulation.status();
  std::vector<std::string> lines;
  for (const std::vector<TimedAction>& stage : simulation->timeline) {
    std::string line;
    for (const TimedAction& timed : stage) {
      absl::StrAppend(&line, ActionText(timed.action), " ", timed.start_s, "-", timed.end_s, " ");
    }
    lines.push_back(line);
  }
  EXPECT_EQ(lines,
            (std::vector<std::string>{"F0 0-1 F1 1-2 B0 5-6.5 W0 6.5-7 B1 9-10.5 W1 10.5-11 ",
                                      "F0 1-3 B0 3-5 F1 5-7 B1 7-9 W0 9-10 W1 10-11 "}));
}

TEST(Simulate, ChunksOfAStageMayDiffer) {
  // Virtual stages in order: 1, 1, 1 and, with the head, 3 seconds forward; twice that backward.
  const std::vector<ActionSeconds> seconds = {{1, 2, 0}, {1, 2, 0}, {1, 2, 0}, {3, 6, 0}};
  const auto simulation = Simulate(PipelineOf(ScheduleKind::kInterleaved, 2, 2, 2), seconds);
  ASSERT_TRUE(simulation.ok()) << simulation.status();
  EXPECT_NEAR(simulation->busy_s[0], 2 * (1 + 1) * 3, 1e-12);
  EXPECT_NEAR(simulation->busy_s[1], 2 * (1 + 3) * 3, 1e-12);
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

TEST(Simulate, RunsForwardsOnlyThroughChunksWithoutABubbleBetweenThem) {
  for (int stages = 2; stages <= 8; ++stages) {
    for (const int chunks : {2, 3}) {
      const ActionSeconds seconds = {1, 2, 0};
      const int microbatches = 2 * stages;
      Pipeline pipeline;
      for (int stage = 0; stage < stages; ++stage) {
        pipeline.push_back(EvaluationSchedule(stage, stages, microbatches, chunks));
      }
      const auto simulation = Simulate(pipeline, absl::MakeConstSpan(&seconds, 1));
      ASSERT_TRUE(simulation.ok()) << simulation.status();
      EXPECT_NEAR(simulation->makespan_s, microbatches * chunks + stages - 1, 1e-12);
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
      {"a forward twice",
       [](Pipeline& p) { *Find(p[0], Op::kForward, 1) = *Find(p[0], Op::kForward, 0); },
       "schedule is broken: stage 0 runs F0 twice"},
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

// Two stages, two microbatches, each pass as long as it was: worked out by hand.
TEST(Replay, TakesEachPassForAsLongAsItWas) {
  std::vector<std::vector<Action>> stages;
  for (int stage = 0; stage < 2; ++stage) {
    stages.push_back(WithTransfers(stage, 2, OneForwardOneBackward(stage, 2, 2)));
  }
  // Stage 0: F0 1, F1 2, B0 3, B1 4. Stage 1: F0 5, B0 6, F1 7, B1 8.
  const std::vector<std::vector<double>> pass_s = {{1, 2, 3, 4}, {5, 6, 7, 8}};
  const auto replayed = Replay(stages, pass_s, /*transfer_s=*/0);
  ASSERT_TRUE(replayed.ok()) << replayed.status();
  // Stage 1 starts at 1 and is then never idle; stage 0 ends with B1 after it.
  EXPECT_EQ(replayed->makespan_s, 1 + 5 + 6 + 7 + 8 + 4);
  EXPECT_EQ(replayed->busy_s, (std::vector<double>{10, 26}));
}

}  // namespace
}  // namespace weft
