// The accuracy program tells of step times: errors, the choice among measured layouts, rows that
// are left out. Figures are made by hand, so that a wrong statistic shows.
#include "bench/accuracy_steps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <string>
#include <vector>

namespace weft {
namespace {

// A small GPT on one node of A100s, that the time model can be asked about.
MeasuredRun RunOf(const std::string& id, const Layout& layout, double step_s) {
  MeasuredRun run;
  run.id = id;
  run.source = "vTrain";
  run.hardware = "A100-80G";
  run.model = "gpt 4x1024";
  run.tier = "A";
  run.shape = {.vocab_size = 51200,
               .hidden_size = 1024,
               .num_blocks = 4,
               .num_heads = 16,
               .num_kv_heads = 16,
               .head_dim = 64,
               .ffn_size = 4096,
               .max_positions = 1024};
  SetArchitecture(Architecture::kGpt2, run.shape);
  run.layout = layout;
  run.layout.gradient_accumulation_steps = 8 / layout.dp / layout.micro_batch_size;
  run.batch = {.global_batch_size = 8, .seq_len = 1024};
  run.gpus = layout.world_size();
  run.step_s = step_s;
  return run;
}

TEST(EngineOf, GoesByTheSourceWhateverItsCase) {
  EXPECT_EQ(EngineOf("vTrain arXiv 2312.12391"), "megatron-deepspeed");
  EXPECT_EQ(EngineOf("huggingface/Nanotron"), "pytorch-eager");
  EXPECT_EQ(EngineOf("mosaicml/llm-foundry"), "pytorch-fsdp");
  EXPECT_EQ(EngineOf("PTD-P arXiv 2104.04473 Table 1"), "megatron-lm");
  EXPECT_EQ(EngineOf("NVIDIA/dgxc-benchmarking"), "megatron");
  EXPECT_EQ(EngineOf("a source that nobody knows"), "megatron");
}

TEST(Summarize, IsOfAbsoluteErrorsButForTheBias) {
  const ErrorSummary summary = Summarize({0.1, -0.3, 0.2, -0.4, 0.0});
  EXPECT_EQ(summary.count, 5);
  EXPECT_NEAR(summary.mape, 0.2, 1e-12);
  EXPECT_NEAR(summary.median, 0.2, 1e-12);
  EXPECT_NEAR(summary.p90, 0.36, 1e-12);  // between the last two
  EXPECT_NEAR(summary.max, 0.4, 1e-12);
  EXPECT_NEAR(summary.bias, -0.08, 1e-12);
  EXPECT_EQ(Summarize({}).count, 0);
}

// Predictions of given totals for runs of given measured times, all of one group.
class Group {
 public:
  void Add(double measured_s, double predicted_s) {
    runs_.push_back(RunOf("row", {}, measured_s));
    StepPrediction prediction{.run = &runs_.back(), .time = {}};
    prediction.time[TimeTerm::kMatmul] = predicted_s;
    predictions.push_back(prediction);
  }
  std::vector<StepPrediction> predictions;

 private:
  std::deque<MeasuredRun> runs_;
};

TEST(Choices, RegretIsWhatTheLayoutPredictedFastestTakesOverTheBest) {
  Group group;
  group.Add(1.0, 2.0);
  group.Add(1.25, 1.5);  // chosen
  group.Add(2.0, 3.0);
  EXPECT_EQ(Choices(group.predictions).groups, 0);  // too few layouts to choose from
  group.Add(3.0, 4.0);
  const ChoiceSummary summary = Choices(group.predictions);
  EXPECT_EQ(summary.groups, 1);
  EXPECT_NEAR(summary.mean_regret, 0.25, 1e-12);
  EXPECT_NEAR(summary.max_regret, 0.25, 1e-12);
  EXPECT_NEAR(summary.mean_tau, 4.0 / 6, 1e-12);  // five pairs agree, one does not
}

TEST(Choices, AreMadeInsideAGroupOnly) {
  Group group;
  for (const double measured_s : {1.0, 2.0, 3.0, 4.0}) group.Add(measured_s, measured_s);
  std::deque<MeasuredRun> others;
  std::vector<StepPrediction> all = group.predictions;
  for (const StepPrediction& prediction : group.predictions) {
    others.push_back(*prediction.run);
    others.back().gpus = 2;
    all.push_back({.run = &others.back(), .time = {}});
    all.back().time[TimeTerm::kMatmul] = 0.1 / *prediction.run->step_s;  // the slowest is chosen
  }
  const ChoiceSummary summary = Choices(all);
  EXPECT_EQ(summary.groups, 2);
  EXPECT_NEAR(summary.mean_regret, 1.5, 1e-12);  // 0 and 3
  EXPECT_NEAR(summary.max_regret, 3, 1e-12);
  EXPECT_NEAR(summary.mean_tau, 0, 1e-12);  // 1 and -1
}

TEST(PredictSteps, LeavesOutWithTheReasonWhatItCannotPredict) {
  MeasuredTable table;
  table.runs = {RunOf("good", {.dp = 2, .micro_batch_size = 2}, 0.1),
                RunOf("no time", {.dp = 2}, 1), RunOf("unknown part", {.dp = 2}, 1),
                RunOf("broken rule", {.tp = 3}, 1)};
  table.runs[1].step_s.reset();
  table.runs[2].hardware = "abacus";
  const StepAccuracy accuracy = PredictSteps(FittedTimeConstants(), table);
  ASSERT_EQ(accuracy.predictions.size(), 1U);
  EXPECT_EQ(accuracy.predictions[0].run->id, "good");
  EXPECT_TRUE(std::isfinite(accuracy.predictions[0].error()));
  EXPECT_GT(accuracy.predictions[0].time.total_s(), 1e-3);
  ASSERT_EQ(accuracy.left_out.size(), 3U);
  EXPECT_EQ(accuracy.left_out[0].reason, "step_time_s is not stated");
  EXPECT_NE(accuracy.left_out[1].reason.find("abacus"), std::string::npos);
  EXPECT_NE(accuracy.left_out[2].reason.find("parallelism.tp: 3"), std::string::npos);
  const std::string text = StepAccuracyText(accuracy);
  EXPECT_NE(text.find("vTrain"), std::string::npos);
  EXPECT_NE(text.find("1 of vTrain: step_time_s is not stated"), std::string::npos);
  const std::string json = StepAccuracyJson(accuracy);
  EXPECT_EQ(json.find("{\"sources\":[{\"source\":\"vTrain\",\"tier\":\"all\",\"engine\":"
                      "\"megatron-deepspeed\",\"count\":1,"),
            0U)
      << json;
}

}  // namespace
}  // namespace weft
