#include "plan/estimate/prediction_error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "plan/engine/engine_profile.h"

namespace weft {
namespace {

std::vector<ErrorRow> RowsOf(absl::string_view engine) {
  std::vector<ErrorRow> rows;
  for (const ErrorRow& row : ErrorRows()) {
    if (row.engine == engine) rows.push_back(row);
  }
  return rows;
}

TEST(ErrorRows, CoverEveryMeasuredEngineAtEveryScale) {
  for (const std::string& engine : EngineProfileNames()) {
    SCOPED_TRACE(engine);
    const std::vector<ErrorRow> rows = RowsOf(engine);
    if (engine == WeftProfile().name) {
      EXPECT_TRUE(rows.empty()) << "nobody has measured it on GPUs";
      continue;
    }
    if (engine == "megatron-lm") {
      EXPECT_TRUE(rows.empty()) << "it has the bar of all engines";
      continue;
    }
    ASSERT_FALSE(rows.empty());
    int next = 1;
    for (const ErrorRow& row : rows) {
      EXPECT_EQ(row.from_gpus, next);
      EXPECT_GE(row.to_gpus, row.from_gpus);
      EXPECT_GE(row.rows, kFewestErrorRows);
      EXPECT_LT(0.5, row.p10);
      EXPECT_LT(row.p10, row.median);
      EXPECT_LT(row.median, row.p90);
      EXPECT_LT(row.p90, 2);
      // A bar that leaves out the prediction itself would be a bias that nobody corrected.
      EXPECT_LT(row.p10, 1);
      EXPECT_GT(row.p90, 1);
      next = row.to_gpus == kNoEnd ? kNoEnd : row.to_gpus + 1;
    }
    EXPECT_EQ(rows.back().to_gpus, kNoEnd);
  }
}

TEST(PublishedErrorBar, IsOfTheEngineOnAboutAsManyGpus) {
  for (const ErrorRow& row : ErrorRows()) {
    for (const int gpus : {row.from_gpus, row.to_gpus}) {
      const ErrorBar bar = PublishedErrorBar(row.engine, gpus);
      EXPECT_EQ(bar.source, ErrorSource::kEngine);
      EXPECT_EQ(bar.engine, row.engine);
      EXPECT_EQ(bar.runs, row.rows);
      EXPECT_EQ(bar.p10, row.p10);
      EXPECT_EQ(bar.median, row.median);
      EXPECT_EQ(bar.p90, row.p90);
    }
  }
}

TEST(PublishedErrorBar, IsTheWidestOfAllWhereTheEngineWasNeverMeasured) {
  for (const int gpus : {1, 8, 9, 64, 65, 512, 513, 131072}) {
    const ErrorBar bar = PublishedErrorBar("weft", gpus);
    EXPECT_EQ(bar.source, ErrorSource::kOthers);
    double least = 1, most = 1;
    int runs = 0;
    for (const ErrorRow& row : ErrorRows()) {
      if (gpus < row.from_gpus || gpus > row.to_gpus) continue;
      least = std::min(least, row.p10);
      most = std::max(most, row.p90);
      runs += row.rows;
      EXPECT_LE(bar.from_gpus, row.from_gpus);
      EXPECT_GE(bar.to_gpus, row.to_gpus);
    }
    EXPECT_EQ(bar.p10, least);
    EXPECT_EQ(bar.p90, most);
    EXPECT_EQ(bar.runs, runs);
  }
}

TEST(ErrorBar, SaysWhatMeasuredStepsTook) {
  const ErrorBar bar{.source = ErrorSource::kEngine, .p10 = 0.8, .median = 1, .p90 = 1.25};
  EXPECT_DOUBLE_EQ(bar.least_s(10), 8);
  EXPECT_DOUBLE_EQ(bar.most_s(10), 12.5);
  EXPECT_DOUBLE_EQ(bar.slower_share(), 0.25);
  EXPECT_EQ(ErrorBar{}.least_s(3), 3);
  EXPECT_FALSE(ErrorBar{}.known());
}

TEST(RecordedErrorBar, IsAsWideAsTheWorstOfFewRuns) {
  EXPECT_FALSE(RecordedErrorBar({}).known());
  const ErrorBar one = RecordedErrorBar({0.8});
  EXPECT_EQ(one.source, ErrorSource::kRecorded);
  EXPECT_EQ(one.runs, 1);
  EXPECT_DOUBLE_EQ(one.p10, 0.8);
  EXPECT_DOUBLE_EQ(one.p90, 1.25);
  EXPECT_DOUBLE_EQ(RecordedErrorBar({0.9, 1.25}).p10, 0.8);
  std::vector<double> many;
  for (int i = 0; i <= 10; ++i) many.push_back(0.5 + 0.1 * i);
  const ErrorBar deciles = RecordedErrorBar(many);
  EXPECT_NEAR(deciles.p10, 0.6, 1e-12);
  EXPECT_NEAR(deciles.median, 1.0, 1e-12);
  EXPECT_NEAR(deciles.p90, 1.4, 1e-12);
}

TEST(ErrorBars, OfModelsWithExpertsReachToTheOneRunThatWasCompared) {
  const ErrorBar dense = PublishedErrorBar("megatron", 16);
  const ErrorBar sparse = WidenedForExperts(dense);
  EXPECT_TRUE(sparse.of_another_kind);
  EXPECT_GE(sparse.most_s(1), kExpertsTookLonger * (1 - 1e-9));
  EXPECT_EQ(sparse.least_s(1), dense.least_s(1));
  EXPECT_FALSE(WidenedForExperts(ErrorBar{}).known());
}

}  // namespace
}  // namespace weft
