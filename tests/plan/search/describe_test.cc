#include "plan/search/describe.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "plan/explain/summary.h"
#include "plan/search/search.h"
#include "tests/golden/golden.h"
#include "tests/plan/sample_jobs.h"

namespace weft {
namespace {

TEST(BytesText, HasThreeDigitsAndAUnit) {
  const std::pair<int64_t, std::string> cases[] = {
      {0, "0 B"},
      {1023, "1023 B"},
      {1024, "1.00 KiB"},
      {12 << 20, "12.0 MiB"},
      {(int64_t{3} << 30) / 2, "1.50 GiB"},
      {int64_t{141} << 30, "141 GiB"},
      {int64_t{5} << 40, "5.00 TiB"},
      {-(int64_t{3} << 29), "-1.50 GiB"},
  };
  for (const auto& [bytes, text] : cases) EXPECT_EQ(BytesText(bytes), text);
}

TEST(SecondsText, HasThreeDigitsAndAUnit) {
  const std::pair<double, std::string> cases[] = {
      {0, "0 s"},
      {1.25, "1.25 s"},
      {0.0341, "34.1 ms"},
      {0.25, "250 ms"},
      {12.34e-6, "12.3 us"},
      {0.99999, "1.00 s"},
      {0.00099999, "1.00 ms"},
      {75.4, "75.4 s"},
      {1234, "1234 s"},
  };
  for (const auto& [seconds, text] : cases) EXPECT_EQ(SecondsText(seconds), text);
}

TEST(FoldedText, BreaksAtSpacesWithinAHundredColumns) {
  const std::string short_text(100, 'x');
  EXPECT_EQ(FoldedText(short_text, 4), short_text);
  const std::string words = "  " + std::string(50, 'a') + " " + std::string(47, 'b');
  EXPECT_EQ(FoldedText(words + " c d", 4), words + "\n    c d");
  const std::string longer(120, 'w');  // no space to break at: whole, alone
  EXPECT_EQ(FoldedText("  a " + longer + " b", 4), "  a\n    " + longer + "\n    b");
  EXPECT_EQ(FoldedText("  " + longer, 4), "  " + longer);
  EXPECT_EQ(FoldedText("", 4), "");
}

std::string PageOf(const JobSpec& job, const Plan& plan, int max_rejections) {
  return PlanText(job, plan, SummaryOf(job, plan, WeftProfile(), {}, {}), max_rejections);
}

std::string TextOf(const JobSpec& job, int max_rejections) {
  const auto plan = FindPlan(job, Purpose::kRun);
  return plan.ok() ? PageOf(job, *plan, max_rejections)
                   : absl::StrCat(plan.status().message(), "\n");
}

TEST(PlanText, OfASmallJobOnFourSlots) {
  ExpectGolden("plan_sample.txt", TextOf(SampleJob(), 8));
}

TEST(PlanText, OfAPipelineWhereMuchDoesNotFit) {
  JobSpec job = SampleJob();
  job.layout.dp = 2;
  job.layout.pp = 2;
  job.layout.recompute = Recompute::kNone;
  job.cluster.device.memory_bytes = int64_t{380} << 20;
  ExpectGolden("plan_dp2_pp2.txt", TextOf(job, 20));
}

TEST(PlanText, OfALargeModelOnEightNodes) {
  ExpectGolden("plan_large.txt", TextOf(LargeJob(), 8));
}

TEST(PlanText, OfAJobThatFitsNowhere) {
  JobSpec job = LargeJob();
  job.cluster.nodes = 1;
  job.cluster.device.memory_bytes = int64_t{121} << 30;
  job.layout.offload_optimizer = OffloadDevice::kNone;
  ExpectGolden("plan_nothing_fits.txt", TextOf(job, 8));
  job.layout.offload_optimizer.reset();
  ExpectGolden("plan_offloaded.txt", TextOf(job, 0));
  job.cluster.host_memory_bytes = int64_t{512} << 30;
  ExpectGolden("plan_fits_no_host.txt", TextOf(job, 8));
}

TEST(PlanText, NamesTheBlocksOfEveryChunk) {
  JobSpec job = SampleJob();
  job.layout.pp = 2;
  job.layout.pp_schedule = ScheduleKind::kInterleaved;
  job.layout.virtual_stages = 2;
  const std::string text = TextOf(job, 0);
  EXPECT_NE(text.find("embedding, blocks 0-1, 4\n"), std::string::npos) << text;
  EXPECT_NE(text.find("blocks 2-3, 5, head and loss\n"), std::string::npos) << text;
}

// As many terms as what the engine does not list has: the table is cut in two, both with the stage.
TEST(PlanText, KeepsTablesWithinAHundredColumns) {
  JobSpec job = LargeJob();
  job.layout.pp = 2;
  job.training.mixed_precision = Precision::kFp8;
  job.cluster.device.peak_flops_per_s = {67e12, 989e12, 1979e12};
  job.lora = LoraSpec{.r = 16};
  const auto plan = FindPlan(job, Purpose::kEstimate);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::string text = TablesText(job, *plan);
  int headings = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, "  stage ")) continue;
    headings += absl::StrContains(line, ":") ? 0 : 1;
    EXPECT_LE(line.size(), 100U) << line;
  }
  EXPECT_EQ(headings, 2) << text;
  for (const absl::string_view term : {"  weights", "  master_weights", "  guard", "  total"}) {
    EXPECT_NE(text.find(std::string(term)), std::string::npos) << term;
  }
}

TEST(PlanText, StatesThePriceOfDeterminism) {
  JobSpec job = LargeJob();
  EXPECT_FALSE(absl::StrContains(TextOf(job, 0), "deterministic"));
  job.deterministic = true;
  EXPECT_TRUE(absl::StrContains(TextOf(job, 0), "  deterministic: "));
  EXPECT_FALSE(absl::StrContains(TextOf(job, 0), "deterministic: 0 s"));
  JobSpec small = SampleJob();
  small.deterministic = true;
  EXPECT_EQ(TextOf(small, 3), TextOf(SampleJob(), 3)) << "a CPU job always is";
}

TEST(PlanText, SaysInWhatGradientsAreReduced) {
  JobSpec job = SampleJob();
  EXPECT_FALSE(absl::StrContains(TextOf(job, 0), "reduced in"));
  job.training.reduce_dtype = ReduceDtype::kBf16;
  EXPECT_TRUE(absl::StrContains(TextOf(job, 0), "fp32, gradients reduced in bf16"));
}

TEST(PlanText, OfADeepPipelineIsShort) {
  JobSpec job = LargeJob();
  job.layout.pp = 16;
  job.layout.dp = 1;
  job.layout.tp = 1;
  const auto plan = FindPlan(job, Purpose::kEstimate);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->layout.pp, 16);
  const std::string text = PageOf(job, *plan, 5);
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    EXPECT_LE(line.size(), 100U) << line;
  }
  EXPECT_NE(text.find("each\n"), std::string::npos) << text;
}

// A rejection's terms sum to the difference, but for what three digits lose.
TEST(RejectionText, NamesTermsThatSumToTheDifference) {
  Plan plan;
  plan.time[TimeTerm::kMatmul] = 1;
  plan.time[TimeTerm::kDataComm] = 0.5;
  Rejection slower;
  slower.time = plan.time;
  slower.time[TimeTerm::kTensorComm] = 0.4;
  slower.time[TimeTerm::kDataComm] = 0.25;
  slower.time[TimeTerm::kOverhead] = 0.015;
  EXPECT_EQ(RejectionText(SampleJob(), plan, slower),
            "11 % slower: tensor_comm +400 ms, data_comm -250 ms, others +15.0 ms");
}

TEST(PlanText, ShowsNoLosersWhenNoneAreWanted) {
  const std::string text = TextOf(SampleJob(), 0);
  EXPECT_EQ(text.find("losers"), std::string::npos);
}

}  // namespace
}  // namespace weft
