#include "plan/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/golden/golden.h"

namespace weft {
namespace {

constexpr ScheduleKind kSchedules[] = {ScheduleKind::kGpipe, ScheduleKind::kOneForwardOneBackward};

std::string CaseText(ScheduleKind kind, int stage, int stages, int microbatches) {
  return absl::StrCat(ScheduleName(kind), " stage ", stage, " of ", stages, ", ", microbatches,
                      " microbatches");
}

// Calls `claim(kind, stage, stages, microbatches)` for every small pipeline.
template <typename Claim>
void ForSmallPipelines(Claim claim) {
  for (const ScheduleKind kind : kSchedules) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (int microbatches = 1; microbatches <= 20; ++microbatches) {
        for (int stage = 0; stage < stages; ++stage) {
          SCOPED_TRACE(CaseText(kind, stage, stages, microbatches));
          claim(kind, stage, stages, microbatches);
        }
      }
    }
  }
}

std::vector<int> MicrobatchesOf(const std::vector<Action>& actions, Op op) {
  std::vector<int> microbatches;
  for (const Action& action : actions) {
    if (action.op == op) microbatches.push_back(action.microbatch);
  }
  return microbatches;
}

std::vector<int> Ascending(int count) {
  std::vector<int> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

std::string PipelineText(ScheduleKind kind, int stages, int microbatches) {
  std::string text;
  for (int stage = 0; stage < stages; ++stage) {
    absl::StrAppend(&text, ScheduleText(stage, ComputeOrder(kind, stage, stages, microbatches)),
                    "\n");
  }
  return text;
}

TEST(Schedule, OneForwardOneBackwardIsThePictureOfThePaper) {
  ExpectGolden("1f1b_4x6.txt", PipelineText(ScheduleKind::kOneForwardOneBackward, 4, 6));
}

TEST(Schedule, GpipeRunsAllForwardsThenAllBackwards) {
  ExpectGolden("gpipe_4x6.txt", PipelineText(ScheduleKind::kGpipe, 4, 6));
}

TEST(Schedule, RunsEachMicrobatchForwardThenBackwardOnceAndInOrder) {
  ForSmallPipelines([](ScheduleKind kind, int stage, int stages, int microbatches) {
    const std::vector<Action> actions = ComputeOrder(kind, stage, stages, microbatches);
    EXPECT_EQ(MicrobatchesOf(actions, Op::kForward), Ascending(microbatches));
    EXPECT_EQ(MicrobatchesOf(actions, Op::kBackward), Ascending(microbatches));
    for (int m = 0; m < microbatches; ++m) {
      const auto forward =
          std::find(actions.begin(), actions.end(), Action{.op = Op::kForward, .microbatch = m});
      const auto backward =
          std::find(actions.begin(), actions.end(), Action{.op = Op::kBackward, .microbatch = m});
      EXPECT_LT(forward - actions.begin(), backward - actions.begin()) << "microbatch " << m;
    }
  });
}

TEST(OneForwardOneBackward, NeverHoldsMoreThanStagesMinusStage) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int microbatches = 1; microbatches <= 20; ++microbatches) {
      for (int stage = 0; stage < stages; ++stage) {
        EXPECT_EQ(PeakLiveMicrobatches(OneForwardOneBackward(stage, stages, microbatches)),
                  std::min(stages - stage, microbatches))
            << CaseText(ScheduleKind::kOneForwardOneBackward, stage, stages, microbatches);
      }
    }
  }
}

TEST(Gpipe, HoldsEveryMicrobatch) {
  for (int microbatches = 1; microbatches <= 20; ++microbatches) {
    EXPECT_EQ(PeakLiveMicrobatches(Gpipe(microbatches)), microbatches);
  }
}

TEST(WithTransfers, GivesEachActionWhatItNeedsBeforeAndSendsWhatItYieldsAfter) {
  const std::vector<Action> compute = OneForwardOneBackward(/*stage=*/1, /*stages=*/3, 2);
  EXPECT_EQ(ScheduleText(1, compute), "stage 1 | F0 F1 B0 B1");
  EXPECT_EQ(ScheduleText(1, WithTransfers(1, 3, compute)),
            "stage 1 | recv_act0 F0 send_act0 recv_act1 F1 send_act1 "
            "recv_grad0 B0 send_grad0 recv_grad1 B1 send_grad1");
  EXPECT_EQ(ScheduleText(0, WithTransfers(0, 2, Gpipe(1))), "stage 0 | F0 send_act0 recv_grad0 B0");
  EXPECT_EQ(ScheduleText(1, WithTransfers(1, 2, Gpipe(1))), "stage 1 | recv_act0 F0 B0 send_grad0");
  EXPECT_EQ(WithTransfers(0, 1, Gpipe(3)), Gpipe(3));
}

TEST(WithTransfers, NeighboursAgreeOnEveryMessageAndItsOrder) {
  ForSmallPipelines([](ScheduleKind kind, int stage, int stages, int microbatches) {
    if (stage == stages - 1) return;
    const std::vector<Action> lower =
        WithTransfers(stage, stages, ComputeOrder(kind, stage, stages, microbatches));
    const std::vector<Action> upper =
        WithTransfers(stage + 1, stages, ComputeOrder(kind, stage + 1, stages, microbatches));
    EXPECT_EQ(MicrobatchesOf(lower, Op::kSendActivation),
              MicrobatchesOf(upper, Op::kRecvActivation));
    EXPECT_EQ(MicrobatchesOf(upper, Op::kSendGradient), MicrobatchesOf(lower, Op::kRecvGradient));
    EXPECT_EQ(MicrobatchesOf(lower, Op::kSendActivation).size(), static_cast<size_t>(microbatches));
  });
}

TEST(StepSchedule, EndsWithTheReductionsThatHaveSomebodyToTalkTo) {
  struct Case {
    int dp, pp, tp, stage;
    bool tied;
    std::string tail;
  };
  const Case cases[] = {
      {1, 1, 1, 0, true, "reduce_norm update"},
      {1, 1, 4, 0, true, "reduce_norm update"},
      {2, 1, 1, 0, true, "reduce_grads0 reduce_norm update"},
      {1, 2, 1, 0, true, "reduce_tied reduce_norm update"},
      {1, 2, 1, 0, false, "reduce_norm update"},
      {2, 3, 2, 0, true, "reduce_tied reduce_grads0 reduce_norm update"},
      {2, 3, 2, 1, true, "reduce_grads0 reduce_norm update"},
      {2, 3, 2, 2, true, "reduce_tied reduce_grads0 reduce_norm update"},
      {2, 3, 2, 2, false, "reduce_grads0 reduce_norm update"},
  };
  for (const Case& c : cases) {
    const Layout layout = {.dp = c.dp, .pp = c.pp, .tp = c.tp, .num_microbatches = 3};
    SCOPED_TRACE(absl::StrCat(LayoutText(layout), " stage ", c.stage, " tied ", c.tied));
    const std::vector<Action> actions = StepSchedule(layout, c.stage, c.tied);
    const std::vector<Action> passes =
        WithTransfers(c.stage, c.pp, ComputeOrder(layout.schedule, c.stage, c.pp, 3));
    ASSERT_GE(actions.size(), passes.size());
    const auto end = actions.begin() + static_cast<std::ptrdiff_t>(passes.size());
    EXPECT_EQ(std::vector<Action>(actions.begin(), end), passes);
    std::string tail;
    for (auto it = end; it != actions.end(); ++it) {
      absl::StrAppend(&tail, tail.empty() ? "" : " ", ActionText(*it));
    }
    EXPECT_EQ(tail, c.tail);
  }
}

TEST(EvaluationSchedule, IsForwardsWithTheirTransfersOnly) {
  EXPECT_EQ(ScheduleText(0, EvaluationSchedule(0, 2, 2)), "stage 0 | F0 send_act0 F1 send_act1");
  EXPECT_EQ(ScheduleText(1, EvaluationSchedule(1, 2, 2)), "stage 1 | recv_act0 F0 recv_act1 F1");
  EXPECT_EQ(ScheduleText(0, EvaluationSchedule(0, 1, 2)), "stage 0 | F0 F1");
}

TEST(Groups, JoinNeighbouringTransfersAndNothingElse) {
  ForSmallPipelines([](ScheduleKind kind, int stage, int stages, int microbatches) {
    const Layout layout = {
        .dp = 2, .pp = stages, .schedule = kind, .num_microbatches = microbatches};
    const std::vector<Action> actions = StepSchedule(layout, stage, /*tied=*/true);
    std::vector<Action> joined;
    bool after_transfers = false;
    for (const absl::Span<const Action> group : Groups(actions)) {
      ASSERT_FALSE(group.empty());
      const bool transfers = IsTransfer(group.front().op);
      EXPECT_TRUE(transfers || group.size() == 1);
      EXPECT_FALSE(transfers && after_transfers) << "a run of transfers is cut in two";
      for (const Action& action : group) EXPECT_EQ(IsTransfer(action.op), transfers);
      after_transfers = transfers;
      joined.insert(joined.end(), group.begin(), group.end());
    }
    EXPECT_EQ(joined, actions);
  });
}

}  // namespace
}  // namespace weft
