// The error bars' figures over rows made by hand, so that a wrong decile, band or choice of rows
// shows.
#include "bench/residuals.h"

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

namespace weft {
namespace {

class Predicted {
 public:
  void Add(const std::string& source, const std::string& tier, int gpus, double ratio) {
    MeasuredRun& run = runs_.emplace_back();
    run.source = source;
    run.tier = tier;
    run.gpus = gpus;
    run.step_s = 2;
    StepPrediction prediction{.run = &run, .time = {}};
    prediction.time[TimeTerm::kMatmul] = 2 * ratio;
    predictions.push_back(prediction);
  }
  ErrorRow Row(absl::string_view engine, int gpus) const {
    for (const ErrorRow& row : ErrorRowsOf(predictions)) {
      if (row.engine == engine && row.from_gpus <= gpus && gpus <= row.to_gpus) return row;
    }
    ADD_FAILURE() << engine << " on " << gpus;
    return {};
  }
  std::vector<StepPrediction> predictions;

 private:
  std::deque<MeasuredRun> runs_;
};

TEST(ErrorRowsOf, AreDecilesOfPredictedOverMeasuredByEngineAndScale) {
  Predicted all;
  for (int i = 0; i <= 10; ++i) {
    all.Add("NVIDIA/dgxc-benchmarking", "A", 32, 0.5 + 0.1 * i);
    all.Add("NVIDIA/dgxc-benchmarking", "B", 1024, 2);
    all.Add("InternLM/InternEvo", "B", 8, 3);
  }
  const ErrorRow row = all.Row("megatron", 32);
  EXPECT_EQ(row.rows, 11);
  EXPECT_NEAR(row.p10, 0.6, 1e-12);
  EXPECT_NEAR(row.median, 1.0, 1e-12);
  EXPECT_NEAR(row.p90, 1.4, 1e-12);
  EXPECT_EQ(all.Row("megatron", 8).rows, 0);
  EXPECT_NEAR(all.Row("megatron", 1024).median, 2, 1e-12);
  EXPECT_NEAR(all.Row("pytorch-eager", 8).p90, 3, 1e-12);
  const std::string text = ErrorRowsText("title:", ErrorRowsOf(all.predictions));
  EXPECT_NE(text.find("title:\nengine profile"), std::string::npos) << text;
  EXPECT_NE(text.find("megatron             9-64             11   0.600   1.000   1.400\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("megatron             1-8               0\n"), std::string::npos) << text;
}

// An engine without constants of its own has no bar, and nanotron has what its network does not
// slow.
TEST(ErrorRowsOf, LeaveOutWhatSaysNothingOfTheModel) {
  Predicted all;
  all.Add("PTD-P arXiv 2104.04473 Table 1", "C", 8, 1.1);
  all.Add("bigscience-workshop/bigscience", "C", 8, 7);
  all.Add("huggingface/nanotron", "B", 64, 0.2);
  all.Add("huggingface/nanotron", "A", 16, 0.9);
  EXPECT_EQ(all.Row("megatron-deepspeed", 8).rows, 0);
  EXPECT_EQ(all.Row("pytorch-eager", 16).rows, 1);
  EXPECT_NEAR(all.Row("pytorch-eager", 16).median, 0.9, 1e-12);
  EXPECT_EQ(all.Row("pytorch-eager", 600).rows, 0);
}

}  // namespace
}  // namespace weft
