#include "plan/keys/layout_reader.h"

#include <gtest/gtest.h>

#include "plan/spec/layout_text.h"

namespace weft {
namespace {

JobSpec Job() {
  JobSpec job;
  job.training.global_batch_size = 64;
  job.training.seq_len = 128;
  return job;
}

TEST(ParseLayoutSpec, ReadsEveryName) {
  const auto fixed = ParseLayoutSpec(
      "--layout",
      "dp=2, tp=3,pp=4,cp=2,ep=1,zero_stage=1,zero_hpz_partition_size=2,virtual_stages=1,"
      "micro_batch_size=4,gradient_accumulation_steps=8,head_chunk_tokens=64,"
      "sequence_parallel=true,pp_schedule=zb_h1,recompute=full,offload_optimizer=cpu,"
      "layers_per_stage=1/2/3/4");
  ASSERT_TRUE(fixed.ok()) << fixed.status();
  const auto layout = LayoutFrom(*fixed, Job());
  ASSERT_TRUE(layout.ok()) << layout.status();
  const Layout expected = {.dp = 2,
                           .pp = 4,
                           .cp = 2,
                           .tp = 3,
                           .zero_stage = 1,
                           .pp_schedule = ScheduleKind::kZeroBubbleH1,
                           .micro_batch_size = 4,
                           .gradient_accumulation_steps = 8,
                           .recompute = Recompute::kFull,
                           .zero_hpz_partition_size = 2,
                           .sequence_parallel = true,
                           .offload_optimizer = OffloadDevice::kCpu,
                           .head_chunk_tokens = 64,
                           .layers_per_stage = {1, 2, 3, 4}};
  EXPECT_TRUE(*layout == expected) << LayoutText(*layout);
}

TEST(ParseLayoutSpec, CutsTheJobsBatchWhereItIsNotSaid) {
  const auto layout = LayoutFrom(*ParseLayoutSpec("--layout", "dp=8,virtual_stages=2"), Job());
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->gradient_accumulation_steps, 8);
  EXPECT_EQ(layout->pp_schedule, ScheduleKind::kInterleaved);
  EXPECT_EQ(LayoutFrom(*ParseLayoutSpec("--layout", "dp=9"), Job()).status().message(),
            "--layout: dp 9 x micro_batch_size 1 does not make training.global_batch_size 64; "
            "change one of them, or --set training.global_batch_size");
}

TEST(ParseLayoutSpec, TakesKeysOfTheJobFile) {
  const auto spec = ParseLayoutSpec("--why", "parallelism.tp=2,activation_checkpointing.mode=full");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(*spec, (LayoutSpec{.tp = 2, .recompute = Recompute::kFull}));
}

TEST(ParseLayoutSpec, ReadsOneModeAStage) {
  const auto spec = ParseLayoutSpec("--why", "recompute=full/none");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(*spec, (LayoutSpec{.recompute_per_stage = {Recompute::kFull, Recompute::kNone}}));
}

TEST(ParseLayoutSpec, ReadsALayoutThatWasFoldedOnTheScreen) {
  const auto fixed = ParseLayoutSpec("--layout", "dp=4 tp=2\n    sequence_parallel=true");
  ASSERT_TRUE(fixed.ok()) << fixed.status();
  EXPECT_EQ(fixed->tp, 2);
  EXPECT_EQ(fixed->sequence_parallel, true);
}

TEST(ParseLayoutSpec, ReadsBackWhatPlansPrint) {
  const Layout layouts[] = {
      {.dp = 2, .tp = 2, .micro_batch_size = 4, .gradient_accumulation_steps = 8},
      {.dp = 2,
       .pp = 9,
       .cp = 2,
       .tp = 4,
       .zero_stage = 1,
       .pp_schedule = ScheduleKind::kZeroBubbleH1,
       .micro_batch_size = 2,
       .gradient_accumulation_steps = 16,
       .zero_hpz_partition_size = 2,
       .sequence_parallel = true,
       .offload_optimizer = OffloadDevice::kCpu,
       .layers_per_stage = {1, 2, 2, 2, 2, 2, 2, 2, 1}},
      {.pp = 2,
       .pp_schedule = ScheduleKind::kInterleaved,
       .gradient_accumulation_steps = 64,
       .recompute = Recompute::kFull,
       .virtual_stages = 4},
      {.dp = 4, .micro_batch_size = 2, .gradient_accumulation_steps = 8, .head_chunk_tokens = 86},
      {.pp = 2,
       .gradient_accumulation_steps = 64,
       .layers_per_stage = {3, 1},
       .recompute_per_stage = {Recompute::kFull, Recompute::kNone}},
  };
  for (const Layout& layout : layouts) {
    const auto fixed = ParseLayoutSpec("--layout", LayoutText(layout));
    ASSERT_TRUE(fixed.ok()) << fixed.status();
    const auto read = LayoutFrom(*fixed, Job());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, layout) << LayoutText(layout) << "\n" << LayoutText(*read);
  }
}

TEST(ParseLayoutSpec, SaysWhichPartIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "--why: is empty; use e.g. tp=4,pp=2"},
      {"tp=x", "--why: tp: found x; expected a whole number or auto"},
      {"tp", "--why: tp: has no value; use name=value, e.g. tp=4,pp=2"},
      {"tp=2,tp=4", "--why: tp: given twice; keep one"},
      {"zero_hpz_partition_size=0",
       "--why: zero_hpz_partition_size: 0 is out of range; use 1 to 1048576"},
      {"micro_batchsize=2", "--why: micro_batchsize: unknown; did you mean micro_batch_size?"},
      {"pp_schedule=zb",
       "--why: pp_schedule: found zb; expected auto, gpipe, 1f1b, interleaved_1f1b or zb_h1"},
      {"offload_optimizer=gpu", "--why: offload_optimizer: found gpu; expected auto, none or cpu"},
      {"recompute=full/some",
       "--why: recompute_per_stage: found full/some; expected none, selective or full, one a "
       "stage: a/b"},
      {"layers_per_stage=1/x",
       "--why: layers_per_stage: found 1/x; expected even, or numbers, one a stage: 10/11/11, "
       "62x2 for 62 times 2"},
      {"layers_per_stage=x2",
       "--why: layers_per_stage: found x2; expected even, or numbers, one a stage: 10/11/11, "
       "62x2 for 62 times 2"},
  };
  for (const auto& [text, message] : cases) {
    const auto status = ParseLayoutSpec("--why", text).status();
    EXPECT_EQ(status.message(), message) << text;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace weft
