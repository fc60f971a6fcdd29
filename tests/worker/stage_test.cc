// What a stage gives its operations, with ranks as threads.
#include "worker/stage.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/passing_backend.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

// Notes the operations of passes through blocks, each as its name and where its operands lie.
class NotingDevice final : public PassingDevice {
 public:
  NotingDevice(Device& inner, std::vector<std::string>& notes)
      : PassingDevice(inner), notes_(notes) {}

  void MatMul(View a, Transpose transpose_a, View b, Transpose transpose_b, float beta,
              View c) override {
    Note("MatMul", {a, b, c});
    inner_.MatMul(a, transpose_a, b, transpose_b, beta, c);
  }
  void Linear(View x, View weight, View bias, View residual, View y) override {
    Note("Linear", {x, weight, bias, residual, y});
    inner_.Linear(x, weight, bias, residual, y);
  }
  void LinearGelu(View x, View weight, View bias, View h, View y) override {
    Note("LinearGelu", {x, weight, bias, h, y});
    inner_.LinearGelu(x, weight, bias, h, y);
  }
  void LayerNorm(View x, View weight, View bias, double eps, View y, View mean,
                 View rstd) override {
    Note("LayerNorm", {x, weight, bias, y, mean, rstd});
    inner_.LayerNorm(x, weight, bias, eps, y, mean, rstd);
  }
  void LayerNormGradient(View dy, View x, View weight, View mean, View rstd, View dx, View dweight,
                         View dbias) override {
    Note("LayerNormGradient", {dy, x, weight, mean, rstd, dx, dweight, dbias});
    inner_.LayerNormGradient(dy, x, weight, mean, rstd, dx, dweight, dbias);
  }
  void Attention(const AttentionShape& shape, View q, View k, View v, View first_visible, View o,
                 View lse, View scratch) override {
    Note("Attention", {q, k, v, first_visible, o, lse, scratch});
    inner_.Attention(shape, q, k, v, first_visible, o, lse, scratch);
  }
  void AttentionGradient(const AttentionShape& shape, View q, View k, View v, View first_visible,
                         View o, View lse, View dout, View dq, View dk, View dv,
                         View scratch) override {
    Note("AttentionGradient", {q, k, v, first_visible, o, lse, dout, dq, dk, dv, scratch});
    inner_.AttentionGradient(shape, q, k, v, first_visible, o, lse, dout, dq, dk, dv, scratch);
  }

 private:
  void Note(const char* operation, const std::vector<View>& operands) {
    std::string note = operation;
    for (const View& view : operands) {
      absl::StrAppend(&note, " ", absl::Hex(reinterpret_cast<uintptr_t>(view.data)), "[", view.rows,
                      ",", view.cols, "]");
    }
    notes_.push_back(std::move(note));
  }

  std::vector<std::string>& notes_;
};

// What is noted of each rank in each step, from the one pass to the norm of its gradients to the
// next.
std::vector<std::vector<std::vector<std::string>>> NotesOf(const JobSpec& job, const Layout& layout,
                                                           const TestFolder& folder) {
  const auto world = static_cast<size_t>(layout.world_size());
  std::vector<std::vector<std::string>> notes(world);
  std::vector<std::vector<std::vector<std::string>>> by_step(world);
  RankThreads run;
  run.assignment = {.job = job,
                    .layout = layout,
                    .run_folder = folder.Make(LayoutText(layout)),
                    .load_checkpoint = ""};
  run.wrap_device = [&](int rank, Device& inner) {
    return std::make_unique<NotingDevice>(inner, notes[static_cast<size_t>(rank)]);
  };
  run.stop_requested = [&](int rank, int64_t) {  // asked once a step, after its passes
    by_step[static_cast<size_t>(rank)].push_back(
        std::exchange(notes[static_cast<size_t>(rank)], {}));
    return false;
  };
  EXPECT_EQ(Train(run).status(), absl::OkStatus()) << LayoutText(layout);
  return by_step;
}

std::vector<Layout> LayoutsOfAllSchedules(const JobSpec& job) {
  std::vector<Layout> layouts;
  for (const int pp : {1, 2, 3}) {
    for (const ScheduleKind schedule : {ScheduleKind::kOneForwardOneBackward, ScheduleKind::kGpipe,
                                        ScheduleKind::kZeroBubbleH1}) {
      if (pp == 1 && schedule != ScheduleKind::kOneForwardOneBackward) continue;
      layouts.push_back(MakeLayout(1, 1, pp, schedule, 1, job));
    }
  }
  for (const int chunks : {2, 3}) {
    layouts.push_back(MakeLayout(1, 1, 2, ScheduleKind::kInterleaved, 1, job));
    layouts.back().virtual_stages = chunks;
  }
  return layouts;
}

// Chunks differ in length: what they give back does not fit together again.
TEST(Stage, GivesTheOperationsOfEachStepTheSameOperands) {
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.model.num_blocks = 7;
  job.training.global_batch_size = 6;
  job.training.steps = 3;
  for (Layout layout : LayoutsOfAllSchedules(job)) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      layout.recompute = recompute;
      SCOPED_TRACE(LayoutText(layout));
      for (const auto& steps : NotesOf(job, layout, folder)) {
        ASSERT_EQ(steps.size(), 3);
        ASSERT_GT(steps[0].size(), 100);
        EXPECT_TRUE(steps[1] == steps[0]);
        EXPECT_TRUE(steps[2] == steps[0]);
      }
    }
  }
}

}  // namespace
}  // namespace weft
