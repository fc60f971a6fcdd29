#include "plan/schedule/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/schedule/step_schedule.h"
#include "plan/spec/layout_text.h"
#include "plan/spec/model.h"
#include "tests/golden/golden.h"
#include "tests/plan/schedule/small_pipelines.h"

namespace weft {
namespace {

std::string CaseText(const Shape& shape, int stage) {
  return absl::StrCat(WordOf(shape.kind), " stage ", stage, " of ", shape.stages, ", ",
                      shape.microbatches, " microbatches, ", shape.chunks, " chunks");
}

std::vector<Action> OrderOf(const Shape& shape, int stage) {
  return ComputeOrder(shape.kind, stage, shape.stages, shape.microbatches, shape.chunks);
}

Layout LayoutOf(const Shape& shape) {
  return {.pp = shape.stages,
          .pp_schedule = shape.kind,
          .gradient_accumulation_steps = shape.microbatches,
          .virtual_stages = shape.chunks};
}

// Calls `claim(shape, stage)` for every small pipeline.
template <typename Claim>
void ForSmallShapes(Claim claim) {
  for (const Shape& shape : SmallPipelines()) {
    for (int stage = 0; stage < shape.stages; ++stage) {
      SCOPED_TRACE(CaseText(shape, stage));
      claim(shape, stage);
    }
  }
}

// Microbatches of the `op`s of `chunk`, in order.
std::vector<int> MicrobatchesOf(const std::vector<Action>& actions, Op op, int chunk = 0) {
  std::vector<int> microbatches;
  for (const Action& action : actions) {
    if (action.op == op && action.chunk == chunk) microbatches.push_back(action.microbatch);
  }
  return microbatches;
}

std::vector<int> Ascending(int count) {
  std::vector<int> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

std::string PipelineText(const Shape& shape) {
  std::string text;
  for (int stage = 0; stage < shape.stages; ++stage) {
    absl::StrAppend(&text, ScheduleText(stage, OrderOf(shape, stage)), "\n");
  }
  return text;
}

TEST(Schedule, OneForwardOneBackwardIsThePictureOfThePaper) {
  ExpectGolden("1f1b_4x6.txt", PipelineText({ScheduleKind::kOneForwardOneBackward, 4, 6}));
}

TEST(Schedule, GpipeRunsAllForwardsThenAllBackwards) {
  ExpectGolden("gpipe_4x6.txt", PipelineText({ScheduleKind::kGpipe, 4, 6}));
}

TEST(Schedule, InterleavedIsThePictureOfThePaper) {
  ExpectGolden("interleaved_4x8_v2.txt", PipelineText({ScheduleKind::kInterleaved, 4, 8, 2}));
}

TEST(Schedule, ZeroBubbleH1IsThePictureOfThePaper) {
  ExpectGolden("zb_h1_4x8.txt", PipelineText({ScheduleKind::kZeroBubbleH1, 4, 8}));
}

TEST(Schedule, ZeroBubbleH1OnOneStageIsOneForwardOneBackward) {
  EXPECT_EQ(ComputeOrder(ScheduleKind::kZeroBubbleH1, 0, 1, 3), OneForwardOneBackward(0, 1, 3));
}

TEST(Schedule, RunsEachMicrobatchThroughEachChunkOnceInEachDirectionAndInOrder) {
  ForSmallShapes([](const Shape& shape, int stage) {
    const std::vector<Action> actions = OrderOf(shape, stage);
    const bool split = shape.kind == ScheduleKind::kZeroBubbleH1 && shape.stages > 1;
    std::vector<Op> passes = {Op::kForward, split ? Op::kBackwardInput : Op::kBackward};
    if (split) passes.push_back(Op::kBackwardWeight);
    EXPECT_EQ(actions.size(),
              passes.size() * static_cast<size_t>(shape.microbatches * shape.chunks));
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      for (const Op op : passes) {
        EXPECT_EQ(MicrobatchesOf(actions, op, chunk), Ascending(shape.microbatches));
      }
      for (int m = 0; m < shape.microbatches; ++m) {
        auto previous = actions.begin();
        for (const Op op : passes) {
          const auto found =
              std::find(previous, actions.end(), Action{.op = op, .chunk = chunk, .microbatch = m});
          ASSERT_NE(found, actions.end()) << "microbatch " << m << " chunk " << chunk;
          previous = found;
        }
      }
    }
  });
}

TEST(Schedule, HoldsAsMuchAtOnceAsItsClosedFormSays) {
  ForSmallShapes([](const Shape& shape, int stage) {
    EXPECT_EQ(PeakLiveMicrobatches(OrderOf(shape, stage)),
              PeakLiveMicrobatches(LayoutOf(shape), stage));
  });
}

// Blocks that `actions` keep at once at most, pass by pass.
int64_t PeakLiveBlocksOf(const std::vector<Action>& actions, const Layout& layout,
                         int64_t num_blocks, int stage) {
  int64_t live = 0;
  int64_t peak = 0;
  for (const Action& action : actions) {
    const int64_t blocks = ChunkBlocks(layout, num_blocks, stage, action.chunk).size();
    if (action.op == Op::kForward) peak = std::max(peak, live += blocks);
    if (action.op == Op::kBackward || action.op == Op::kBackwardWeight) live -= blocks;
  }
  EXPECT_EQ(live, 0);
  return peak;
}

TEST(Schedule, HoldsAsManyBlocksAtOnceAsItsClosedFormSays) {
  int64_t uneven = 0;
  ForSmallShapes([&](const Shape& shape, int stage) {
    const Layout layout = LayoutOf(shape);
    const std::vector<Action> actions = OrderOf(shape, stage);
    const int round = shape.stages * shape.chunks;
    for (int64_t blocks = round; blocks <= 2 * round; ++blocks) {
      const int64_t live = PeakLiveBlocks(layout, blocks, stage);
      EXPECT_EQ(live, PeakLiveBlocksOf(actions, layout, blocks, stage)) << blocks << " blocks";
      const int64_t largest = ChunkBlocks(layout, blocks, stage, 0).size();
      uneven += live < PeakLiveMicrobatches(layout, stage) * largest ? 1 : 0;
    }
  });
  EXPECT_GT(uneven, 100) << "fewer than as if all chunks were the largest";
}

TEST(Schedule, HoldsAsManyBlocksOfAnUnevenStageAsItHas) {
  Layout layout = LayoutOf({ScheduleKind::kOneForwardOneBackward, 3, 8, 1});
  layout.layers_per_stage = {4, 1, 2};
  EXPECT_EQ(PeakLiveBlocks(layout, 7, 0), 3 * 4);
  EXPECT_EQ(PeakLiveBlocks(layout, 7, 1), 2 * 1);
  EXPECT_EQ(PeakLiveBlocks(layout, 7, 2), 1 * 2);
}

// A forward pass finds a place of a pending one free to work in.
TEST(Schedule, HasAsManyMicrobatchesBetweenHalvesOfBackwardAsItsClosedFormSays) {
  ForSmallShapes([](const Shape& shape, int stage) {
    const int64_t most = PeakPendingMicrobatches(LayoutOf(shape), stage);
    int64_t pending = 0;
    int64_t peak = 0;
    for (const Action& action : OrderOf(shape, stage)) {
      if (action.op == Op::kBackwardInput) peak = std::max(peak, ++pending);
      if (action.op == Op::kBackwardWeight) --pending;
      if (most > 0 && action.op == Op::kForward) {
        EXPECT_LT(pending, most);
      }
    }
    EXPECT_EQ(peak, most);
  });
}

TEST(OneForwardOneBackward, NeverHoldsMoreThanStagesMinusStage) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int microbatches = 1; microbatches <= 20; ++microbatches) {
      for (int stage = 0; stage < stages; ++stage) {
        EXPECT_EQ(PeakLiveMicrobatches(OneForwardOneBackward(stage, stages, microbatches)),
                  std::min(stages - stage, microbatches))
            << stages << " stages, " << microbatches << " microbatches, stage " << stage;
      }
    }
  }
}

// Narayanan et al., SC'21, 2.2.2: the price of the smaller bubble is (p - 1) / (p v) more.
TEST(Interleaved, HoldsOnePartInChunksMoreThan1f1b) {
  for (int stages = 2; stages <= 8; ++stages) {
    for (const int chunks : {2, 3, 4}) {
      for (int stage = 0; stage < stages; ++stage) {
        const int live = PeakLiveMicrobatches(Interleaved(stage, stages, 4 * stages, chunks));
        EXPECT_EQ(live, chunks * stages + stages - 1 - 2 * stage)
            << stages << " stages, " << chunks << " chunks, stage " << stage;
      }
    }
  }
}

TEST(Interleaved, TakesTurnsOfMoreMicrobatchesWherePpDoesNotDivideThem) {
  EXPECT_EQ(InterleavedTurn(4, 8), 4);
  EXPECT_EQ(InterleavedTurn(4, 5), 5);
  EXPECT_EQ(InterleavedTurn(4, 9), 5);   // and 4
  EXPECT_EQ(InterleavedTurn(4, 11), 6);  // and 5
  EXPECT_EQ(InterleavedTurn(2, 3), 3);
  const std::vector<Action> forwards = OrderOf({ScheduleKind::kInterleaved, 2, 7, 2}, 0);
  EXPECT_EQ(ScheduleText(0, absl::MakeConstSpan(forwards).first(8)),
            "stage 0 | F0 F1 F2 F3 F0.1 F1.1 F2.1 B0.1");
}

TEST(Interleaved, RunsEachMicrobatchOnceAndHoldsWhatItsClosedFormSaysWhateverTheirNumber) {
  for (int stages = 2; stages <= 6; ++stages) {
    for (int microbatches = stages; microbatches <= 20; ++microbatches) {
      for (const int chunks : {2, 3}) {
        const Shape shape = {ScheduleKind::kInterleaved, stages, microbatches, chunks};
        for (int stage = 0; stage < stages; ++stage) {
          SCOPED_TRACE(CaseText(shape, stage));
          const std::vector<Action> actions = OrderOf(shape, stage);
          for (int chunk = 0; chunk < chunks; ++chunk) {
            EXPECT_EQ(MicrobatchesOf(actions, Op::kForward, chunk), Ascending(microbatches));
            EXPECT_EQ(MicrobatchesOf(actions, Op::kBackward, chunk), Ascending(microbatches));
          }
          const Layout layout = LayoutOf(shape);
          EXPECT_EQ(PeakLiveMicrobatches(layout, stage), PeakLiveMicrobatches(actions));
          const int64_t blocks = stages * chunks + 1;
          EXPECT_EQ(PeakLiveBlocks(layout, blocks, stage),
                    PeakLiveBlocksOf(actions, layout, blocks, stage));
        }
      }
    }
  }
}

// Qi et al., 2.2: no stage holds more than the first one under 1F1B.
TEST(ZeroBubbleH1, HoldsNoMoreThanTheFirstStageOf1f1b) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int microbatches = 1; microbatches <= 20; ++microbatches) {
      for (int stage = 0; stage < stages; ++stage) {
        EXPECT_LE(PeakLiveMicrobatches(ZeroBubbleH1(stage, stages, microbatches)),
                  PeakLiveMicrobatches(OneForwardOneBackward(0, stages, microbatches)))
            << stages << " stages, " << microbatches << " microbatches, stage " << stage;
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

TEST(WithTransfers, LastStageFeedsTheFirstStagesNextChunk) {
  EXPECT_EQ(ScheduleText(1, WithTransfers(1, 2, Interleaved(1, 2, 2, 2), 2)),
            "stage 1 | recv_act0 F0 send_act0 recv_act1 F1 send_act1 recv_act0.1 "
            "F0.1 B0.1 send_grad0.1 recv_act1.1 F1.1 B1.1 send_grad1.1 recv_grad0 "
            "B0 send_grad0 recv_grad1 B1 send_grad1");
  EXPECT_EQ(PeerStage(Op::kSendActivation, 3, 4), 0);
  EXPECT_EQ(PeerStage(Op::kRecvActivation, 0, 4), 3);
  EXPECT_EQ(PeerStage(Op::kSendGradient, 0, 4), 3);
  EXPECT_EQ(PeerStage(Op::kRecvGradient, 1, 4), 2);
}

TEST(WithTransfers, SendsAnInputGradientWhenTheStageBeforeCanTakeIt) {
  EXPECT_EQ(ScheduleText(1, WithTransfers(1, 2, ZeroBubbleH1(1, 2, 3))),
            "stage 1 | recv_act0 F0 B0 send_grad0 recv_act1 F1 B1 W0 send_grad1 recv_act2 "
            "F2 B2 send_grad2 W1 W2");
}

TEST(WithTransfers, NeighboursAgreeOnEveryMessageAndItsOrder) {
  ForSmallShapes([](const Shape& shape, int stage) {
    if (stage == shape.stages - 1) return;
    const auto with = [&](int at) {
      return WithTransfers(at, shape.stages, OrderOf(shape, at), shape.chunks);
    };
    const std::vector<Action> lower = with(stage);
    const std::vector<Action> upper = with(stage + 1);
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      EXPECT_EQ(MicrobatchesOf(lower, Op::kSendActivation, chunk),
                MicrobatchesOf(upper, Op::kRecvActivation, chunk));
      EXPECT_EQ(MicrobatchesOf(upper, Op::kSendGradient, chunk),
                MicrobatchesOf(lower, Op::kRecvGradient, chunk));
      EXPECT_EQ(MicrobatchesOf(lower, Op::kSendActivation, chunk), Ascending(shape.microbatches));
    }
  });
}

// Three blocks, one for each stage; 2 kv heads.
ModelShape TinyModel(bool tied) {
  ModelShape model;
  model.num_blocks = 3;
  model.num_heads = 4;
  model.num_kv_heads = 2;
  model.tied_embeddings = tied;
  return model;
}

struct EndCase {
  Layout layout;
  int stage;
  bool tied;
  std::string rest;  // of the schedule, without passes and transfers
};

void ExpectRest(EndCase c) {
  c.layout.gradient_accumulation_steps = 3;
  SCOPED_TRACE(absl::StrCat(LayoutText(c.layout), " stage ", c.stage, " tied ", c.tied));
  const std::vector<Action> actions = StepSchedule(TinyModel(c.tied), c.layout, c.stage);
  std::vector<Action> pipeline;
  std::string rest;
  for (const Action& action : actions) {
    if (IsPass(action.op) || IsTransfer(action.op)) {
      pipeline.push_back(action);
    } else {
      absl::StrAppend(&rest, rest.empty() ? "" : " ", ActionText(action));
    }
  }
  EXPECT_EQ(pipeline, WithTransfers(c.stage, c.layout.pp,
                                    ComputeOrder(c.layout.pp_schedule, c.stage, c.layout.pp, 3)));
  EXPECT_EQ(rest, c.rest);
}

TEST(StepSchedule, HasTheReductionsThatHaveSomebodyToTalkTo) {
  const std::string reduce2 = "reduce_grads1 reduce_grads0 ";
  const std::string reduce4 = "reduce_grads3 reduce_grads2 " + reduce2;
  const std::string end = "await_grads reduce_norm update";
  for (const EndCase& c : {
           EndCase{{.dp = 1}, 0, true, "reduce_norm update"},
           EndCase{{.dp = 1, .tp = 4}, 0, true, "reduce_parts reduce_norm update"},
           EndCase{{.tp = 2}, 0, true, "reduce_norm update"},
           EndCase{
               {.tp = 2, .sequence_parallel = true}, 0, true, "reduce_parts reduce_norm update"},
           EndCase{{.dp = 2}, 0, true, reduce4 + end},
           EndCase{{.dp = 2}, 0, false, "reduce_grads4 " + reduce4 + end},
           EndCase{{.pp = 2}, 0, true, "reduce_tied reduce_norm update"},
           EndCase{{.pp = 2}, 0, false, "reduce_norm update"},
           EndCase{{.dp = 2, .pp = 3, .tp = 2},
                   0,
                   true,
                   "reduce_grads1 reduce_tied reduce_grads0 " + end},
           EndCase{{.dp = 2, .pp = 3, .tp = 2}, 1, true, "reduce_grads0 " + end},
           EndCase{{.dp = 2, .pp = 3, .tp = 2},
                   2,
                   true,
                   "reduce_grads0 reduce_tied reduce_grads1 " + end},
           EndCase{{.dp = 2, .pp = 3, .tp = 2}, 2, false, reduce2 + end},
           EndCase{{.dp = 2, .pp = 3, .tp = 4},
                   1,
                   false,
                   "reduce_grads0 await_grads reduce_parts reduce_norm update"},
       }) {
    ExpectRest(c);
  }
}

// Three blocks: the first and the third share a place, the second and the table are alone and so
// kept whole.
TEST(StepSchedule, OfZeroGathersWhatWasUpdatedAndSumsWhatPassesDidNot) {
  const std::string reduce = "reduce_grads3 reduce_grads2 reduce_grads1 reduce_grads0 ";
  const std::string reduce_whole = "reduce_grads2 reduce_grads0 ";
  const std::string end = "await_grads reduce_norm update";
  const std::string gather = " gather_params0 gather_params1 gather_params2 gather_params3";
  const std::string gather_whole = " gather_params0 gather_params2";
  for (const EndCase& c : {
           EndCase{{.dp = 1, .zero_stage = 1}, 0, true, "reduce_norm update"},
           EndCase{{.dp = 4, .zero_stage = 1}, 0, true, reduce + end + gather},
           EndCase{{.dp = 4, .zero_stage = 2}, 0, true, reduce_whole + end + gather},
           EndCase{{.dp = 4, .zero_stage = 3}, 0, true, reduce_whole + end + gather_whole},
           // Embedding and head share a place.
           EndCase{
               {.dp = 4, .zero_stage = 3}, 0, false, "reduce_grads2 " + end + " gather_params2"},
           // Between replicas of the parts.
           EndCase{{.dp = 4, .zero_stage = 2, .zero_hpz_partition_size = 2},
                   0,
                   true,
                   reduce + end + gather},
           EndCase{{.dp = 4, .zero_stage = 3, .zero_hpz_partition_size = 2},
                   0,
                   true,
                   reduce + end + gather_whole},
       }) {
    ExpectRest(c);
  }
}

// The last pass of each bucket is F2 for the head of the last stage, the last backward passes for
// blocks and embedding.
TEST(StepSchedule, StartsReductionsInsideTheLastPassOfTheirBuckets) {
  const auto text = [](Layout layout, int stage, bool tied) {
    layout.dp = 2;
    layout.gradient_accumulation_steps = 2;
    return ScheduleText(stage, StepSchedule(TinyModel(tied), layout, stage));
  };
  constexpr ScheduleKind k1f1b = ScheduleKind::kOneForwardOneBackward;
  const std::string end = " await_grads reduce_norm update";
  EXPECT_EQ(text({.pp_schedule = k1f1b}, 0, false),
            "stage 0 | F0 B0 F1 reduce_grads4 B1 reduce_grads3 reduce_grads2 reduce_grads1 "
            "reduce_grads0" +
                end);
  EXPECT_EQ(text({.pp = 3, .pp_schedule = k1f1b}, 1, true),
            "stage 1 | recv_act0 F0 send_act0 recv_act1 F1 send_act1 recv_grad0 B0 send_grad0 "
            "recv_grad1 B1 reduce_grads0 send_grad1" +
                end);
  // Weight gradients come last, but for those of the embedding.
  EXPECT_EQ(text({.pp = 3, .pp_schedule = ScheduleKind::kZeroBubbleH1}, 0, false),
            "stage 0 | F0 send_act0 F1 send_act1 recv_grad0 B0 W0 recv_grad1 B1 reduce_grads0 W1 "
            "reduce_grads1" +
                end);
}

// Stages of a pipeline have one end of the network at most, which is whole. Of blocks, so are up to
// two; more are reduced inside their passes, of replicas of the parts last of all.
TEST(StepSchedule, OfZeroInAPipelineSumsATiedTableWhileItIsWhole) {
  const std::string end = "await_grads reduce_norm update";
  const std::string first = "reduce_tied reduce_grads0 ";
  const Layout layout = {.dp = 4, .pp = 2, .zero_stage = 3, .layers_per_stage = {1, 2}};
  Layout uneven = layout;
  uneven.layers_per_stage = {};  // two blocks, then one
  for (const EndCase& c : {
           EndCase{layout, 0, true,
                   "reduce_grads1 " + first + end + " gather_params0 gather_params1"},
           EndCase{
               uneven, 1, true,
               "reduce_grads0 reduce_tied reduce_grads1 " + end + " gather_params0 gather_params1"},
           EndCase{layout, 1, false,
                   "reduce_grads2 reduce_grads1 reduce_grads0 " + end +
                       " gather_params0 gather_params1 gather_params2"},
       }) {
    ExpectRest(c);
  }
}

TEST(StepSchedule, OfZeroInAPipelineLeavesWhatPassesSumToThem) {
  ModelShape model = TinyModel(/*tied=*/true);
  model.num_blocks = 8;  // four each: buckets 1 to 4 of the first stage
  const auto text = [&](int zero_stage, int zero_hpz_partition_size) {
    const Layout layout = {.dp = 4,
                           .pp = 2,
                           .zero_stage = zero_stage,
                           .gradient_accumulation_steps = 1,
                           .zero_hpz_partition_size = zero_hpz_partition_size};
    return ScheduleText(0, StepSchedule(model, layout, 0));
  };
  const std::string passes = "stage 0 | F0 send_act0 recv_grad0 B0 ";
  const std::string end = "reduce_tied reduce_grads0 await_grads reduce_norm update gather_params0";
  EXPECT_EQ(text(3, 1), passes + end);
  EXPECT_EQ(text(2, 1),
            passes + end + " gather_params1 gather_params2 gather_params3 gather_params4");
  EXPECT_EQ(text(3, 2), passes + "reduce_grads4 reduce_grads3 reduce_grads2 reduce_grads1 " + end);
}

TEST(EvaluationSchedule, IsForwardsWithTheirTransfersOnly) {
  EXPECT_EQ(ScheduleText(0, EvaluationSchedule(0, 2, 2)), "stage 0 | F0 send_act0 F1 send_act1");
  EXPECT_EQ(ScheduleText(1, EvaluationSchedule(1, 2, 2)), "stage 1 | recv_act0 F0 recv_act1 F1");
  EXPECT_EQ(ScheduleText(0, EvaluationSchedule(0, 1, 2)), "stage 0 | F0 F1");
  EXPECT_EQ(ScheduleText(0, EvaluationSchedule(0, 2, 2, /*chunks=*/2)),
            "stage 0 | F0 send_act0 F1 send_act1 recv_act0.1 F0.1 send_act0.1 recv_act1.1 "
            "F1.1 send_act1.1");
}

TEST(Groups, JoinNeighbouringTransfersAndAPassWithTheReductionsThatStartInIt) {
  ForSmallShapes([](const Shape& shape, int stage) {
    Layout layout = LayoutOf(shape);
    layout.dp = 2;
    const std::vector<Action> actions = StepSchedule(TinyModel(/*tied=*/true), layout, stage);
    std::vector<Action> joined;
    bool after_transfers = false;
    for (const absl::Span<const Action> group : Groups(actions)) {
      ASSERT_FALSE(group.empty());
      const bool transfers = IsTransfer(group.front().op);
      EXPECT_TRUE(transfers || IsPass(group.front().op) || group.size() == 1);
      EXPECT_FALSE(transfers && after_transfers) << "a run of transfers is cut in two";
      for (const Action& action : group.subspan(1)) {
        EXPECT_TRUE(transfers ? IsTransfer(action.op) : action.op == Op::kReduceGradients);
      }
      after_transfers = transfers;
      joined.insert(joined.end(), group.begin(), group.end());
    }
    EXPECT_EQ(joined, actions);
  });
}

}  // namespace
}  // namespace weft
