#include "launcher/job_file/layout_flag.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

JobSpec Job() {
  JobSpec job;
  job.training.global_batch_size = 64;
  job.training.seq_len = 128;
  return job;
}

TEST(LayoutFlag, ReadsEveryName) {
  const auto fixed = ParseConstraints(
      "--layout",
      "dp=2, tp=3,pp=4,cp=2,ep=1,zero_stage=1,zero_hpz_partition_size=2,virtual_stages=1,"
      "micro_batch_size=4,gradient_accumulation_steps=8,head_chunk_tokens=64,"
      "sequence_parallel=true,pp_schedule=zb_h1,recompute=full,offload=cpu,"
      "layers_per_stage=1/2/3/4");
  ASSERT_TRUE(fixed.ok()) << fixed.status();
  const auto layout = LayoutFrom(*fixed, Job());
  ASSERT_TRUE(layout.ok()) << layout.status();
  const Layout expected = {.dp = 2,
                           .pp = 4,
                           .cp = 2,
                           .tp = 3,
                           .zero_stage = 1,
                           .schedule = ScheduleKind::kZeroBubbleH1,
                           .micro_batch_size = 4,
                           .num_microbatches = 8,
                           .recompute = Recompute::kFull,
                           .zero_group = 2,
                           .sequence_parallel = true,
                           .offload_optimizer = true,
                           .head_chunks = 4,
                           .stage_blocks = {1, 2, 3, 4}};
  EXPECT_TRUE(*layout == expected) << LayoutText(*layout);
}

TEST(LayoutFlag, CutsTheJobsBatchWhereItIsNotSaid) {
  const auto layout = LayoutFrom(*ParseConstraints("--layout", "dp=8,virtual_stages=2"), Job());
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->num_microbatches, 8);
  EXPECT_EQ(layout->schedule, ScheduleKind::kInterleaved);
  EXPECT_EQ(LayoutFrom(*ParseConstraints("--layout", "dp=9"), Job()).status().message(),
            "--layout: dp 9 x micro_batch_size 1 does not make training.global_batch_size 64; "
            "change one of them, or --set training.global_batch_size");
}

TEST(LayoutFlag, TakesTheNamesThatPlansArePrintedWith) {
  const auto fixed = ParseConstraints("--why", "micro_batch=4,microbatches=2");
  ASSERT_TRUE(fixed.ok()) << fixed.status();
  EXPECT_EQ(fixed->micro_batch_size, 4);
  EXPECT_EQ(fixed->num_microbatches, 2);
}

TEST(LayoutFlag, ReadsALayoutThatWasFoldedOnTheScreen) {
  const auto fixed = ParseConstraints("--layout", "dp=4 tp=2\n    sequence_parallel");
  ASSERT_TRUE(fixed.ok()) << fixed.status();
  EXPECT_EQ(fixed->tp, 2);
  EXPECT_EQ(fixed->sequence_parallel, true);
}

TEST(LayoutFlag, ReadsBackWhatPlansPrint) {
  const Layout layouts[] = {
      {.dp = 2, .tp = 2, .micro_batch_size = 4, .num_microbatches = 8},
      {.dp = 2,
       .pp = 9,
       .cp = 2,
       .tp = 4,
       .zero_stage = 1,
       .schedule = ScheduleKind::kZeroBubbleH1,
       .micro_batch_size = 2,
       .num_microbatches = 16,
       .zero_group = 2,
       .sequence_parallel = true,
       .offload_optimizer = true,
       .stage_blocks = {1, 2, 2, 2, 2, 2, 2, 2, 1}},
      {.pp = 2,
       .schedule = ScheduleKind::kInterleaved,
       .num_microbatches = 64,
       .recompute = Recompute::kFull,
       .virtual_stages = 4},
      {.dp = 4, .micro_batch_size = 2, .num_microbatches = 8, .head_chunks = 3},
      {.pp = 2,
       .num_microbatches = 64,
       .stage_blocks = {3, 1},
       .stage_recompute = {Recompute::kFull, Recompute::kNone}},
  };
  for (const Layout& layout : layouts) {
    const auto fixed = ParseConstraints("--layout", LayoutText(layout));
    ASSERT_TRUE(fixed.ok()) << fixed.status();
    const auto read = LayoutFrom(*fixed, Job());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, layout) << LayoutText(layout) << "\n" << LayoutText(*read);
  }
}

TEST(LayoutFlag, SaysWhichPartIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "--why: is empty; use e.g. tp=4,pp=2"},
      {"tp=x", "--why: tp: found x; expected a whole number, 1 or more"},
      {"tp=0", "--why: tp: found 0; expected a whole number, 1 or more"},
      {"tp", "--why: tp: found ; expected a whole number, 1 or more"},
      {"tp=2,tp=4", "--why: tp: given twice; keep one"},
      {"head_chunks=4,head_chunk_tokens=64",
       "--why: head_chunks: is what head_chunk_tokens makes, given as well; keep one"},
      {"micro_batchsize=2", "--why: micro_batchsize: unknown; did you mean micro_batch_size?"},
      {"pp_schedule=zb",
       "--why: pp_schedule: found zb; expected 1f1b, gpipe, interleaved_1f1b or "
       "zb_h1"},
      {"offload=gpu", "--why: offload: found gpu; expected cpu or none"},
      {"layers_per_stage=1/x",
       "--why: layers_per_stage: found 1/x; expected even, or one number a "
       "stage: 10/11/11; 62x2: 62 stages of 2"},
      {"layers_per_stage=x2",
       "--why: layers_per_stage: found x2; expected even, or one number a "
       "stage: 10/11/11; 62x2: 62 stages of 2"},
  };
  for (const auto& [text, message] : cases) {
    const auto status = ParseConstraints("--why", text).status();
    EXPECT_EQ(status.message(), message) << text;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace weft
