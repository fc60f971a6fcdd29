// A summary stands above all tables: ten lines at most, every figure with what measured runs would
// have made of it, and advice that never wins.
#include "plan/explain/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "plan/explain/explain.h"
#include "plan/search/search.h"
#include "plan/search/space.h"
#include "plan/spec/layout_text.h"
#include "tests/plan/sample_jobs.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

Plan PlanOf(const JobSpec& job) {
  auto plan = FindPlan(job, Purpose::kEstimate);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

Summary TopOf(const JobSpec& job, const Plan& plan, const ErrorBar& recorded = {}) {
  return SummaryOf(job, plan, WeftProfile(), recorded, {});
}

void ExpectInverse(double work, const Spread& seconds, const Spread& rate) {
  EXPECT_DOUBLE_EQ(rate.predicted, work / seconds.predicted);
  EXPECT_DOUBLE_EQ(rate.least, work / seconds.most);
  EXPECT_DOUBLE_EQ(rate.most, work / seconds.least);
}

TEST(Summary, HoldsWhatMeasuredRunsWouldHaveMadeOfEachFigure) {
  JobSpec job = LargeJob();
  job.cluster.price_per_device_hour = 2.5;
  job.checkpoint.interval = 20;
  const Plan plan = PlanOf(job);
  const Summary top = TopOf(job, plan);
  const ErrorBar bar = PublishedErrorBar("weft", plan.layout.world_size());
  EXPECT_EQ(top.error.source, ErrorSource::kOthers);
  EXPECT_EQ(top.error.runs, bar.runs);
  const double step_s = plan.time.total_s();
  EXPECT_EQ(top.step_s.predicted, step_s);
  const double products_s = plan.time.of(TimeTerm::kMatmul) + plan.time.of(TimeTerm::kAttention);
  EXPECT_LT(step_s / bar.p90, products_s) << "the case is about both ends";
  EXPECT_DOUBLE_EQ(top.step_s.least, products_s);
  EXPECT_DOUBLE_EQ(top.step_s.most, step_s / bar.p10);
  ExpectInverse(512 * 4096, top.step_s, top.tokens_per_s);
  EXPECT_NEAR(top.mfu.least / top.mfu.predicted, bar.p10, 1e-12);
  EXPECT_EQ(top.wall_s.predicted, BillOf(job, plan).wall_s());
  EXPECT_EQ(top.wall_s.most, BillAt(job, plan, top.step_s.most).wall_s());
  EXPECT_GT(top.wall_s.most, top.wall_s.predicted);
  EXPECT_LT(top.wall_s.least, top.wall_s.predicted);
  EXPECT_DOUBLE_EQ(top.cost.predicted, 2.5 * top.device_hours.predicted);
  EXPECT_DOUBLE_EQ(top.cost.most, 2.5 * top.device_hours.most);
  EXPECT_EQ(top.free_bytes, plan.usable_bytes - plan.peak_bytes());
  const std::string text = SummaryText(job, plan, top);
  EXPECT_THAT(text, HasSubstr(" at 2.5 a GPU hour"));
  EXPECT_THAT(text, HasSubstr("weft was never measured on a GPU"));
}

// The same layout by the habits of engines that were measured: what weft's own could be off by.
TEST(Summary, NamesTheFastestAndTheSlowestOfTheOtherEngines) {
  const JobSpec job = LargeJob();
  const Plan plan = PlanOf(job);
  const Summary top = TopOf(job, plan);
  ASSERT_THAT(top.other_engines, SizeIs(2));
  EXPECT_LE(top.other_engines[0].step_s, top.other_engines[1].step_s);
  Question question = QuestionOf(job);
  const double own_s = EstimateStep(question, plan.layout).total_s();
  question.engine.time = EngineProfileNamed(top.other_engines[1].engine)->time;
  EXPECT_NEAR(top.other_engines[1].step_s / plan.time.total_s(),
              EstimateStep(question, plan.layout).total_s() / own_s, 1e-12);
}

TEST(Summary, OfAnEngineThatWasMeasuredSaysSo) {
  const JobSpec job = LargeJob();
  const Plan plan = PlanOf(job);
  const Summary top = SummaryOf(job, plan, *EngineProfileNamed("megatron"), {}, {});
  EXPECT_EQ(top.error.source, ErrorSource::kEngine);
  EXPECT_THAT(top.other_engines, IsEmpty());
  EXPECT_THAT(SummaryText(job, plan, top), HasSubstr("published runs of megatron on "));
}

TEST(Summary, OfACpuGoesByRecordedRunsOrSaysThatThereAreNone) {
  const JobSpec job = SampleJob();
  const Plan plan = PlanOf(job);
  const Summary none = TopOf(job, plan);
  EXPECT_FALSE(none.error.known());
  EXPECT_EQ(none.step_s.most, none.step_s.predicted);
  EXPECT_THAT(SummaryText(job, plan, none), HasSubstr("no run is recorded on this profile"));
  const Summary recorded = TopOf(job, plan, RecordedErrorBar({0.9, 1.0}));
  EXPECT_DOUBLE_EQ(recorded.step_s.most, recorded.step_s.predicted / 0.9);
  EXPECT_THAT(SummaryText(job, plan, recorded),
              HasSubstr("2 runs of weft recorded on this profile"));
  // Runs of weft say nothing of another engine.
  const EngineProfile other = *EngineProfileNamed("megatron");
  EXPECT_FALSE(SummaryOf(job, plan, other, RecordedErrorBar({0.9}), {}).error.known());
}

TEST(Summary, IsTenLinesAtMostOfAHundredColumns) {
  std::vector<JobSpec> jobs = {SampleJob(), LargeJob(), LargeJob(), LargeJob()};
  jobs[1].cluster.price_per_device_hour = 3.14159;
  jobs[2].training.steps = 2000000;  // weeks, without a checkpoint
  jobs[3].training.steps = 2000000;
  jobs[3].checkpoint.interval = 1;
  jobs[3].cluster.device.memory_bytes = int64_t{20} << 30;
  for (const JobSpec& job : jobs) {
    const Plan plan = PlanOf(job);
    const std::string text = SummaryText(job, plan, TopOf(job, plan));
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 11) << text;  // a blank one first
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      EXPECT_LE(line.size(), 100U) << line;
    }
    for (const absl::string_view word :
         {"fits ", "how fast ", "how long ", "how dear ", "how sure "}) {
      EXPECT_TRUE(absl::StrContains(text, word)) << word << text;
    }
  }
}

TEST(Summary, SaysWhatDoesNotFit) {
  JobSpec job = LargeJob();
  job.training.steps = 2000000;  // and it would never save
  const auto plan =
      PlanFor(job, Layout{.dp = 64, .micro_batch_size = 1, .gradient_accumulation_steps = 8},
              Purpose::kEstimate);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_FALSE(plan->fits);
  const Summary top = TopOf(job, *plan);
  EXPECT_LT(top.free_bytes, 0);
  const std::string text = SummaryText(job, *plan, top);
  EXPECT_THAT(text, HasSubstr("fits      no: needs "));
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 11) << text;
  EXPECT_THAT(top.advice, IsEmpty());
}

// Weeks without a checkpoint: what it risks stands on top, and auto has nothing to say.
TEST(Summary, WarnsOfAJobThatSavesTooSeldom) {
  JobSpec job = LargeJob();
  job.training.steps = 2000000;
  job.checkpoint.interval = 0;
  const Plan plan = PlanOf(job);
  const Summary never = TopOf(job, plan);
  EXPECT_LT(never.bill.goodput, 0.5);
  ASSERT_THAT(never.warnings,
              ElementsAre(HasSubstr("checkpoint.interval 0: a stop loses everything, ")));
  EXPECT_THAT(never.warnings[0], HasSubstr(" expected; auto takes "));
  EXPECT_THAT(SummaryText(job, plan, never), HasSubstr("\n  beware    checkpoint.interval 0: "));
  job.checkpoint.interval = never.bill.best_interval_steps;
  EXPECT_THAT(TopOf(job, plan).warnings, IsEmpty());
  EXPECT_THAT(SummaryText(job, plan, TopOf(job, plan)), Not(HasSubstr("beware")));
  job.checkpoint.interval = 1;
  EXPECT_THAT(TopOf(job, plan).warnings,
              ElementsAre(HasSubstr("checkpoint.interval 1 wastes time; auto takes ")));
  // Where none pays off there is nothing to warn of.
  job.training.steps = 3;
  job.checkpoint.interval = 0;
  EXPECT_THAT(TopOf(job, plan).warnings, IsEmpty());
  EXPECT_THAT(SummaryText(job, plan, TopOf(job, plan)),
              HasSubstr("failure rate no checkpoint in between pays off"));
}

// A plan that fills its device, with a loser made by hand beside it.
class Room : public ::testing::Test {
 protected:
  Room() : job_(LargeJob()) {
    job_.layout.head_chunk_tokens = 0;  // a short name: it stands in one line
    plan_ = PlanOf(job_);
    plan_.usable_bytes = plan_.peak_bytes() + (int64_t{1} << 20);
    plan_.rejections.clear();
  }
  Rejection Loser(double slower, double used_share, int micro_batch_size) const {
    Rejection loser;
    loser.layout = plan_.layout;
    loser.layout.micro_batch_size = micro_batch_size;  // only a name here
    loser.time = plan_.time;
    loser.time[TimeTerm::kMatmul] += slower * plan_.time.total_s();
    loser.goodput = plan_.goodput;
    loser.memory_bytes = static_cast<int64_t>(used_share * static_cast<double>(plan_.usable_bytes));
    return loser;
  }
  // Bars are 25 % to the slow side.
  Summary Top() const {
    return TopOf(job_, plan_,
                 {.source = ErrorSource::kRecorded, .p10 = 0.8, .p90 = 1.1, .runs = 9});
  }

  JobSpec job_;
  Plan plan_;
};

TEST_F(Room, IsAdvisedWhereItMayBeAsFastAndDoesNotWin) {
  plan_.rejections = {Loser(0.02, 0.97, 1),  // no room to speak of
                      Loser(0.20, 0.5, 2),   // slower than the next
                      Loser(0.06, 0.90, 3),  // this one
                      Loser(0.30, 0.1, 4)};  // beyond the bar
  const Summary top = Top();
  ASSERT_THAT(top.advice, SizeIs(1));
  EXPECT_EQ(top.advice[0].kind, Advice::Kind::kMoreRoom);
  EXPECT_EQ(top.advice[0].layout.micro_batch_size, 3);
  EXPECT_NEAR(top.advice[0].slower_share, 0.06, 1e-9);
  EXPECT_THAT(SummaryText(job_, plan_, top), HasSubstr("are free, which is little\n"));
  const std::string text = AdviceText(top);
  EXPECT_THAT(text, HasSubstr("\nmore room: "));
  EXPECT_THAT(text, HasSubstr(" free instead of 1.00 MiB, 6.0 % slower, within"));
  EXPECT_THAT(text, HasSubstr("--layout \"dp="));
  EXPECT_NE(PlanText(job_, plan_, top, 0).find(LayoutText(plan_.layout)), std::string::npos);
}

TEST_F(Room, IsFoundOnTheFrontToo) {
  FrontPoint point{.layout = plan_.layout, .time = plan_.time, .goodput = plan_.goodput};
  point.layout.micro_batch_size = 7;
  point.peak_bytes = plan_.usable_bytes / 2;
  const Summary top = SummaryOf(job_, plan_, WeftProfile(), {}, absl::MakeConstSpan(&point, 1));
  ASSERT_THAT(top.advice, SizeIs(1));
  EXPECT_EQ(top.advice[0].layout.micro_batch_size, 7);
}

TEST_F(Room, IsNotSoughtWhereThereIsEnough) {
  plan_.usable_bytes = plan_.peak_bytes() * 2;
  plan_.rejections = {Loser(0.01, 0.1, 1)};
  EXPECT_THAT(Top().advice, IsEmpty());
  EXPECT_THAT(SummaryText(job_, plan_, Top()), Not(HasSubstr("which is little")));
}

TEST_F(Room, BeyondTheBarIsNotAdvised) {
  plan_.rejections = {Loser(0.26, 0.1, 1)};
  EXPECT_THAT(Top().advice, IsEmpty());
  EXPECT_THAT(SummaryText(job_, plan_, Top()), HasSubstr("are free, which is little\n"));
}

}  // namespace
}  // namespace weft
