#include "plan/explain/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/block/tensors.h"
#include "plan/explain/schedule_svg.h"
#include "plan/search/search.h"
#include "tests/golden/golden.h"
#include "tests/plan/sample_jobs.h"

namespace weft {
namespace {

TEST(DifferenceText, SumsToTheDifferenceOfTheTotals) {
  TermSeconds ours, theirs;
  ours[TimeTerm::kMatmul] = 1;
  ours[TimeTerm::kBubble] = 0.25;
  theirs[TimeTerm::kMatmul] = 1.5;
  theirs[TimeTerm::kDataComm] = 0.125;
  EXPECT_EQ(DifferenceText("the plan", ours, "tp=4", theirs),
            "  term                 the plan           tp=4     difference\n"
            "  matmul                 1.00 s         1.50 s        +500 ms\n"
            "  bubble                 250 ms            0 s        -250 ms\n"
            "  data_comm                 0 s         125 ms        +125 ms\n"
            "  step                   1.25 s         1.62 s        +375 ms\n");
}

TEST(Sensitivities, MoreMemoryNeverSlowsAndChangesAreNamed) {
  const JobSpec job = SampleJob();
  const auto plan = FindPlan(job, Purpose::kRun);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto all = SensitivitiesOf(job, Purpose::kRun, plan->layout);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].change, "2 x bandwidth inside the node");
  EXPECT_EQ(all[1].change, "20 % more device memory");
  EXPECT_EQ(all[2].change, "2 x global batch");
  for (const Sensitivity& each : all) EXPECT_TRUE(each.fits) << each.change;
  EXPECT_LE(all[0].step_s, plan->time.total_s() * (1 + 1e-9));
  EXPECT_LE(all[1].step_s, plan->time.total_s() * (1 + 1e-9));
}

TEST(Sensitivities, OfFp32OnADeviceThatHasBf16SayWhatThatTakes) {
  JobSpec job = LargeJob();
  const Layout layout = {.dp = 8, .tp = 8, .zero_stage = 1, .gradient_accumulation_steps = 64};
  const auto names_it = [&] {
    for (const Sensitivity& each : SensitivitiesOf(job, Purpose::kEstimate, layout)) {
      if (each.change == "training.mixed_precision bf16") return each.fits;
    }
    return false;
  };
  EXPECT_FALSE(names_it()) << "the device has none";
  job.cluster.device.peak_flops_per_s.bf16 = 400e12;
  EXPECT_TRUE(names_it());
  job.training.mixed_precision = Precision::kBf16;
  EXPECT_FALSE(names_it());
}

// The file fixes what alone keeps a faster layout away.
TEST(Pins, AreTheValuesOfTheFileThatABetterLayoutBreaks) {
  JobSpec job = SampleJob();
  job.cluster.cores_per_node = 1;  // one worker is best
  job.layout.pp = 2;
  job.layout.cp = 1;
  const auto plan = FindPlan(job, Purpose::kRun);
  const auto asked = FindPlanUnder(job, {.pp = 1}, Purpose::kRun);
  ASSERT_TRUE(plan.ok() && asked.ok()) << plan.status() << asked.status();
  const auto pins = PinsAgainst(job, *plan, *asked, Purpose::kRun);
  ASSERT_TRUE(pins.has_value());
  EXPECT_THAT(pins->values, testing::ElementsAre(testing::FieldsAre("pp", "parallelism.pp", "2")));
  ASSERT_TRUE(pins->freed.has_value());
  EXPECT_EQ(pins->freed->layout.pp, 1);
  EXPECT_LE(pins->freed->time.total_s(), asked->time.total_s());
  EXPECT_THAT(PinsText(*plan, *asked, *pins),
              testing::AllOf(testing::HasSubstr("the job file fixes parallelism.pp 2, which"),
                             testing::HasSubstr("% committed tokens/s")));
  // The file does not keep a slower layout away.
  const auto slower = FindPlanUnder(job, {.pp = 4}, Purpose::kRun);
  ASSERT_TRUE(slower.ok()) << slower.status();
  EXPECT_FALSE(PinsAgainst(job, *plan, *slower, Purpose::kRun).has_value());
}

TEST(PropertyTexts, AreNamedByTheirKeysAndFreedWhereALayoutBreaksThem) {
  const LayoutSpec fixed = {.dp = 2,
                            .zero_stage = 1,
                            .pp_schedule = ScheduleKind::kGpipe,
                            .recompute = Recompute::kFull,
                            .sequence_parallel = true,
                            .offload_optimizer = OffloadDevice::kNone,
                            .head_chunk_tokens = 64,
                            .layers_per_stage = std::vector<int64_t>{4, 2}};
  EXPECT_EQ(KeyedText(PropertyTexts(fixed)),
            "parallelism.dp 2, parallelism.zero_stage 1, parallelism.pp_schedule gpipe, "
            "activation_checkpointing.mode full, parallelism.sequence_parallel true, "
            "offload.optimizer none, training.head_chunk_tokens 64, parallelism.layers_per_stage "
            "4,2");
  const Layout kept = {.dp = 2,
                       .pp = 2,
                       .zero_stage = 1,
                       .pp_schedule = ScheduleKind::kGpipe,
                       .recompute = Recompute::kFull,
                       .head_chunk_tokens = 64,
                       .layers_per_stage = {4, 2}};
  EXPECT_THAT(BrokenBy(kept, fixed).properties, testing::IsEmpty());
  EXPECT_EQ(BrokenBy(kept, fixed).freed, fixed);
  Layout other = kept;
  other.dp = 1;
  other.layers_per_stage = {};
  other.head_chunk_tokens = 0;
  const BrokenProperties broken = BrokenBy(other, fixed);
  EXPECT_EQ(KeyedText(broken.properties),
            "parallelism.dp 2, training.head_chunk_tokens 64, parallelism.layers_per_stage 4,2");
  LayoutSpec freed = fixed;
  freed.dp.reset();
  freed.head_chunk_tokens.reset();
  freed.layers_per_stage.reset();
  EXPECT_EQ(broken.freed, freed);
}

TEST(Bill, IsOfTheJobsStepsAndItsCheckpoints) {
  JobSpec job = SampleJob();
  job.checkpoint.interval = 10;
  const auto plan = FindPlan(job, Purpose::kRun);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const Bill bill = BillOf(job, *plan);
  EXPECT_DOUBLE_EQ(bill.steps_s, plan->time.total_s() * 100);
  EXPECT_EQ(bill.checkpoints, 10);
  EXPECT_EQ(bill.disk_bytes, 4 * 12 * ParameterCount(job.model));
  EXPECT_THAT(BillText(job, bill), testing::HasSubstr("whole job: 100 steps"));
}

Question UniformQuestion() {
  return QuestionOf(SampleJob());
}

TEST(ScheduleLines, ShowTheBubblesOfEverySchedule) {
  std::string text;
  const Layout layouts[] = {
      {.dp = 1, .pp = 3, .pp_schedule = ScheduleKind::kGpipe, .gradient_accumulation_steps = 16},
      {.dp = 1, .pp = 3, .gradient_accumulation_steps = 16},
      {.dp = 1,
       .pp = 3,
       .pp_schedule = ScheduleKind::kInterleaved,
       .gradient_accumulation_steps = 6,
       .virtual_stages = 2},
      {.dp = 1,
       .pp = 3,
       .pp_schedule = ScheduleKind::kZeroBubbleH1,
       .gradient_accumulation_steps = 4},
  };
  for (const Layout& layout : layouts) {
    const auto picture = DrawSchedule(UniformQuestion(), layout);
    ASSERT_TRUE(picture.ok()) << picture.status();
    text += ScheduleLines(*picture, 100);
    for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
      EXPECT_LE(end - at, 100u);
    }
  }
  ExpectGolden("schedule_lines.txt", text);
}

TEST(ScheduleSvg, HasARectangleForEveryPass) {
  const auto picture =
      DrawSchedule(UniformQuestion(), {.dp = 1, .pp = 2, .gradient_accumulation_steps = 4});
  ASSERT_TRUE(picture.ok()) << picture.status();
  const std::string svg = ScheduleSvg(*picture);
  EXPECT_THAT(svg, testing::StartsWith("<svg xmlns="));
  EXPECT_THAT(svg, testing::EndsWith("</svg>\n"));
  size_t passes = 0;
  for (size_t at = 0; (at = svg.find("<title>", at)) != std::string::npos; ++at) ++passes;
  EXPECT_EQ(passes, 2u * 2 * 4);
  EXPECT_FALSE(DrawSchedule(UniformQuestion(), {.dp = 1, .pp = 65}).ok());
}

}  // namespace
}  // namespace weft
