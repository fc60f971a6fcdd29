#include "plan/estimate/goodput.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plan/block/tensors.h"
#include "plan/estimate/bill.h"
#include "plan/estimate/model_flops.h"

namespace weft {
namespace {

// Llama 3's failures (arXiv:2407.21783): 3.09 h between stops on 16,384 GPUs.
FaultCosts At(int ranks, double save_s, double restart_s) {
  return {.between_stops_s = kDefaultDeviceMtbfHours * 3600 / ranks,
          .save_s = save_s,
          .restart_s = restart_s};
}

TEST(Goodput, AgreesWithTheWorkedNumbersOfLargeRuns) {
  EXPECT_NEAR(At(16384, 30, 600).between_stops_s / 3600, 3.09, 0.005);
  EXPECT_NEAR(At(98304, 30, 600).between_stops_s / 3600, 0.516, 0.0005);
  const struct {
    int ranks;
    double save_s, restart_s, waste;
  } cases[] = {{16384, 30, 600, 0.127},
               {98304, 30, 600, 0.50},
               {16384, 5, 300, 0.057},
               {98304, 5, 300, 0.235},
               {98304, 2, 60, 0.079}};
  for (const auto& each : cases) {
    const FaultCosts costs = At(each.ranks, each.save_s, each.restart_s);
    EXPECT_NEAR(WasteAt(costs, YoungIntervalSeconds(costs)).total(), each.waste,
                each.waste == 0.50 ? 0.005 : 0.0006)
        << each.ranks << " " << each.save_s << " " << each.restart_s;
  }
}

TEST(Goodput, DalysIntervalIsYoungsCorrected) {
  const FaultCosts rare = At(16, 30, 600);
  EXPECT_NEAR(BestIntervalSeconds(rare) / YoungIntervalSeconds(rare), 1, 0.01);
  // tau = sqrt(2 d M) (1 + sqrt(d / 2M) / 3 + d / 18M) - d, by hand for d = 30, M = 1857 s.
  const FaultCosts often = {.between_stops_s = 1857, .save_s = 30, .restart_s = 0};
  const double young = std::sqrt(2.0 * 30 * 1857);
  EXPECT_NEAR(BestIntervalSeconds(often),
              young * (1 + std::sqrt(30 / (2 * 1857.0)) / 3 + 30 / (18 * 1857.0)) - 30, 1e-9);
  const FaultCosts hopeless = {.between_stops_s = 10, .save_s = 30, .restart_s = 0};
  EXPECT_EQ(BestIntervalSeconds(hopeless), 10);
}

// Daly's interval is optimal for the exact cost; WasteAt is its first order, least at Young's.
TEST(Goodput, NoNumberOfStepsWastesAThousandthLess) {
  for (const double step_s : {0.02, 3.0, 40.0, 5000.0}) {
    const FaultCosts costs = At(16384, 30, 600);
    const int64_t steps = BestIntervalSteps(costs, step_s);
    const auto at = [&](int64_t n) {
      return WasteAt(costs, static_cast<double>(n) * step_s).total();
    };
    ASSERT_GE(steps, 1);
    for (const int64_t other : {steps / 2, steps - 1, steps + 1, steps + steps / 20, steps * 2}) {
      if (other < 1) continue;
      EXPECT_LE(at(steps), at(other) * 1.001) << step_s << " " << other;
    }
  }
}

TEST(Goodput, FallsWithEveryCostAndStaysPositive) {
  const double step_s = 10;
  double before = 1;
  for (const int ranks : {1, 64, 1024, 16384, 131072, 1 << 24}) {
    const double goodput = BestGoodput(At(ranks, 30, 600), step_s);
    EXPECT_LT(goodput, before);
    EXPECT_GT(goodput, 0);
    before = goodput;
  }
  const double base = BestGoodput(At(16384, 30, 600), step_s);
  EXPECT_LT(BestGoodput(At(16384, 60, 600), step_s), base);
  EXPECT_LT(BestGoodput(At(16384, 30, 1200), step_s), base);
  EXPECT_NEAR(GoodputOf({.saving = 0.5}), 0.5, 1e-12);
  EXPECT_NEAR(GoodputOf({.saving = 0.5 + 1e-9}), 0.5, 1e-8);  // no jump where the curve changes
}

Question GptQuestion(Precision precision, OptimizerStates states) {
  Question question;
  question.model = {.vocab_size = 100,
                    .hidden_size = 8,
                    .num_blocks = 2,
                    .num_heads = 2,
                    .num_kv_heads = 2,
                    .head_dim = 4,
                    .ffn_size = 32,
                    .max_positions = 16};
  SetArchitecture(Architecture::kGpt2, question.model);
  question.numerics.precision = precision;
  question.numerics.optimizer = states;
  return question;
}

// worker/train/checkpoint_io.cc writes master weights and moments, both in fp32 (its own test holds
// the files against this).
TEST(CheckpointBytes, AreTwelvePerParameterOfAdamwInEveryPrecision) {
  const int64_t parameters = ParameterCount(GptQuestion(Precision::kFp32, {}).model);
  for (const Precision precision :
       {Precision::kFp32, Precision::kBf16, Precision::kFp16, Precision::kFp8}) {
    const auto bytes = [&](OptimizerStates states) {
      return CheckpointBytes(GptQuestion(precision, states));
    };
    EXPECT_EQ(bytes(OptimizerStates::kTwoMoments), 12 * parameters) << WordOf(precision);
    EXPECT_EQ(bytes(OptimizerStates::kTwoMoments8Bit), 12 * parameters) << WordOf(precision);
    EXPECT_EQ(bytes(OptimizerStates::kOneMoment), 8 * parameters) << WordOf(precision);
    EXPECT_EQ(bytes(OptimizerStates::kNone), 4 * parameters) << WordOf(precision);
  }
}

TEST(CheckpointBytes, AreOfTheAdaptersAloneInFineTuning) {
  Question question = GptQuestion(Precision::kBf16, OptimizerStates::kTwoMoments);
  question.adapters = LowRankAdapters{.rank = 2};
  // Two blocks, q and v of 8 x 8: 2 * 2 * 2 * (8 + 8) parameters.
  EXPECT_EQ(CheckpointBytes(question), 12 * 128);
}

// NVIDIA's figure for Llama 3 8B on 8 GPUs of 989.5 TFLOP/s: 12,036 tokens/s per GPU at 8192 tokens
// in fp8 are 697 TFLOP/s (NeMo 24.07 performance summary).
TEST(ModelFlops, OfLlama8bAreThePublishedOnes) {
  Question question;
  question.model = {.architecture = Architecture::kLlama,
                    .vocab_size = 128256,
                    .hidden_size = 4096,
                    .num_blocks = 32,
                    .num_heads = 32,
                    .num_kv_heads = 8,
                    .head_dim = 128,
                    .ffn_size = 14336,
                    .max_positions = 8192};
  question.batch = {.global_batch_size = 8, .seq_len = 8192};
  question.numerics.precision = Precision::kFp8;
  question.cluster.device.peak_flops_per_s = {.fp32 = 67e12, .bf16 = 989.5e12, .fp8 = 1979e12};
  const ModelFlopRate rate = ModelFlopRateOf(question, 8 * 12036.0, 8);
  EXPECT_NEAR(rate.flops_per_s, 697e12, 0.5e12);
  EXPECT_NEAR(rate.utilisation(), 0.704, 0.0005);
  // By hand: 6 N + 12 L q T with N of all matrices and the head.
  constexpr double kMatrices = 32 * (2.0 * 4096 * (4096 + 1024) + 3.0 * 4096 * 14336);
  constexpr double kHead = 128256.0 * 4096;
  constexpr double kAttention = 12.0 * 32 * 4096 * 8192;
  EXPECT_DOUBLE_EQ(ModelFlopsPerToken(question), 6 * (kMatrices + kHead) + kAttention);
  question.adapters = LowRankAdapters{.rank = 8};
  EXPECT_DOUBLE_EQ(ModelFlopsPerToken(question), 4 * (kMatrices + kHead) + kAttention);
  question.numerics.precision = Precision::kFp32;
  EXPECT_EQ(ModelFlopRateOf(question, 1, 1).peak_flops_per_s, 67e12);
}

TEST(FaultCosts, ComeFromTheClusterOrTheStatedDefaults) {
  Cluster cluster;
  cluster.nodes = 4;
  cluster.slots_per_node = 8;
  const FaultCosts unstated = FaultCostsOf(cluster, int64_t{16'000'000'000}, 16);
  EXPECT_DOUBLE_EQ(unstated.between_stops_s, 5.07e4 * 3600 / 16);
  EXPECT_DOUBLE_EQ(unstated.save_s, 4);  // two nodes of 2 GB/s
  EXPECT_DOUBLE_EQ(unstated.restart_s, kDefaultRestartS + 4);
  cluster.storage = {.node_bytes_per_s = 4e9, .total_bytes_per_s = 5e9};
  cluster.failures = {.device_mtbf_hours = 1000, .restart_s = 60};
  const FaultCosts stated = FaultCostsOf(cluster, int64_t{16'000'000'000}, 32);
  EXPECT_DOUBLE_EQ(stated.between_stops_s, 1000.0 * 3600 / 32);
  EXPECT_DOUBLE_EQ(stated.save_s, 3.2);  // the four nodes share 5 GB/s
  EXPECT_DOUBLE_EQ(stated.restart_s, 63.2);
}

TEST(Bill, IsTheSumOfItsParts) {
  const Bill bill = BillOf({.step_s = 2,
                            .steps = 10000,
                            .tokens_per_step = 1000,
                            .devices = 1024,
                            .checkpoint_bytes = 1000,
                            .interval_steps = 250,
                            .kept_checkpoints = 3,
                            .faults = At(1024, 30, 600)});
  EXPECT_DOUBLE_EQ(bill.steps_s, 20000);
  EXPECT_EQ(bill.checkpoints, 40);
  EXPECT_DOUBLE_EQ(bill.saving_s, 1200);
  EXPECT_NEAR(bill.wall_s(), bill.steps_s + bill.saving_s + bill.lost_s + bill.restarts_s, 1e-9);
  EXPECT_NEAR(bill.goodput, bill.steps_s / bill.wall_s(), 1e-12);
  EXPECT_NEAR(bill.device_hours, bill.wall_s() * 1024 / 3600, 1e-6);
  EXPECT_EQ(bill.disk_bytes, 4000);  // three kept, and the one that is being written
  EXPECT_EQ(bill.tokens, 1e7);
  // Each stop costs its restart, and half an interval on average.
  EXPECT_NEAR(bill.restarts_s, bill.stops * 600, 1e-6);
  EXPECT_NEAR(bill.lost_s, bill.stops * 250, 1e-6);
}

// The best interval of a job without end may leave a short rest, and a save for it.
TEST(Bill, TheBestIntervalIsTheBestOfAll) {
  for (const int64_t steps : {1000, 1500, 4000, 6000}) {
    BillInput input = {.step_s = 5,
                       .steps = steps,
                       .tokens_per_step = 1,
                       .devices = 64,
                       .checkpoint_bytes = 1,
                       .kept_checkpoints = 2,
                       .faults = At(64, 30, 600)};
    const Bill bill = BillOf(input);
    double least_s = bill.wall_s();
    for (input.interval_steps = 1; input.interval_steps <= steps; ++input.interval_steps) {
      least_s = std::min(least_s, BillOf(input).wall_s());
    }
    EXPECT_NEAR(bill.best_wall_s, least_s, 1e-9 * least_s) << steps;
    input.interval_steps = bill.best_interval_steps;
    EXPECT_DOUBLE_EQ(BillOf(input).wall_s(), bill.best_wall_s);
  }
}

TEST(Bill, TheBestIntervalIsNoWorse) {
  for (const int64_t interval : {0, 1, 10, 100, 1000, 100000}) {
    const Bill bill = BillOf({.step_s = 5,
                              .steps = 20000,
                              .tokens_per_step = 1,
                              .devices = 16384,
                              .checkpoint_bytes = 1,
                              .interval_steps = interval,
                              .kept_checkpoints = 2,
                              .faults = At(16384, 30, 600)});
    EXPECT_LE(bill.best_wall_s, bill.wall_s() * 1.0005) << interval;
    EXPECT_TRUE(std::isfinite(bill.wall_s()));
  }
}

}  // namespace
}  // namespace weft
