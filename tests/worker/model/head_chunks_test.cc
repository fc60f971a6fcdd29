// Logits in pieces: loss and gradients are those of all logits at once, in less memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/spec/layout_text.h"
#include "tests/worker/backend/same_bits.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

JobSpec OddJob(const std::string& folder) {
  JobSpec job = SmallJob(folder);
  job.model.vocab_size = 259;  // tp does not divide it
  job.training.steps = 5;
  job.data.split = 0.2;
  job.validation = {.interval = 5, .steps = 1};
  return job;
}

// 3 and 5 do not divide a microbatch's tokens; 32 pieces have 2 to 4 tokens each.
TEST(HeadChunks, GiveTheLossAndGradientsOfAllLogitsAtOnce) {
  const TestFolder folder;
  const JobSpec job = OddJob(folder.path());
  Layout zero_bubble = MakeLayout(1, 1, 2, ScheduleKind::kZeroBubbleH1, 2, job);
  Layout interleaved = MakeLayout(1, 1, 2, ScheduleKind::kInterleaved, 2, job);
  interleaved.virtual_stages = 2;
  for (Layout layout : {MakeLayout(1, 1, 1, k1f1b, 4, job), MakeLayout(1, 2, 1, k1f1b, 2, job),
                        MakeLayout(2, 2, 2, kGpipe, 2, job), zero_bubble, interleaved}) {
    const TrainingOutcome whole = TrainWith(job, layout, folder.Make(LayoutText(layout)));
    ASSERT_EQ(whole.status(), absl::OkStatus());
    const int64_t tokens = layout.micro_batch_size * job.training.seq_len;
    for (const int64_t chunks : {2, 3, 5, 32}) {
      layout.head_chunk_tokens = (tokens + chunks - 1) / chunks;
      ASSERT_EQ(layout.head_chunks(job.training.seq_len), chunks);
      const TrainingOutcome pieces = TrainWith(job, layout, folder.Make(LayoutText(layout)));
      ASSERT_EQ(pieces.status(), absl::OkStatus()) << LayoutText(layout);
      EXPECT_LT(RelativeDifference(pieces.losses(), whole.losses()), 1e-6) << LayoutText(layout);
      EXPECT_LT(RelativeDifference(pieces.grad_norms(), whole.grad_norms()), 1e-5);
      EXPECT_LT(GradientDifference(pieces, whole), 2e-5) << LayoutText(layout) << ", after 5 steps";
      const double valid = *whole.reports.front().back().valid_loss;
      EXPECT_NEAR(*pieces.reports.front().back().valid_loss, valid, 1e-6 * valid);
      EXPECT_EQ(pieces.allocated_bytes, pieces.planned_bytes);
      EXPECT_LT(pieces.planned_bytes.back(), whole.planned_bytes.back()) << LayoutText(layout);
    }
  }
}

// The order in which rows are summed does not depend on the pieces; a row's logits do where kernels
// sum a row otherwise among fewer.
TEST(HeadChunks, DoNotChangeTheFirstLoss) {
  const TestFolder folder;
  JobSpec job = OddJob(folder.path());
  job.training.steps = 1;
  job.validation = {};
  Layout layout = MakeLayout(1, 2, 1, k1f1b, 4, job);
  const TrainingOutcome whole = TrainWith(job, layout, folder.Make("whole"));
  ASSERT_EQ(whole.status(), absl::OkStatus());
  for (const int64_t chunks : {2, 4, 8}) {
    layout.head_chunk_tokens = layout.micro_batch_size * job.training.seq_len / chunks;
    const TrainingOutcome pieces = TrainWith(job, layout, folder.Make(absl::StrCat(chunks)));
    ASSERT_EQ(pieces.losses().size(), 1u) << chunks;
    ExpectTheSameLoss(pieces.losses()[0], whole.losses().at(0));
  }
}

}  // namespace
}  // namespace weft
