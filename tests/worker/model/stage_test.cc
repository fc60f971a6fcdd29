// These tests note what a stage gives its operations, with ranks as threads: it is the same in each
// step, and what a device may replay is the same each time.
#include "worker/model/stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/spec/layout_text.h"
#include "tests/worker/model/noting_device.h"
#include "tests/worker/passing_backend.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Collectives and messages within a stretch are findings.
class NotingComm final : public PassingComm {
 public:
  NotingComm(Comm& inner, Notes& notes) : PassingComm(inner), notes_(notes) {}

  BackendStatus AllReduce(int group, ReduceOp op, View data) override {
    notes_.Refuse("AllReduce");
    return inner_.AllReduce(group, op, data);
  }
  BackendStatus AllReduceHost(int group, ReduceOp op, double* values, int count) override {
    notes_.Refuse("AllReduceHost");
    return inner_.AllReduceHost(group, op, values, count);
  }
  BackendStatus ReduceScatter(int group, ReduceOp op, View data) override {
    notes_.Refuse("ReduceScatter");
    return inner_.ReduceScatter(group, op, data);
  }
  BackendStatus AllGather(int group, View data) override {
    notes_.Refuse("AllGather");
    return inner_.AllGather(group, data);
  }
  BackendStatus Exchange(const Transfer* transfers, int count) override {
    notes_.Refuse("Exchange");
    return inner_.Exchange(transfers, count);
  }
  BackendStatus Start(const CollectiveCall& collective, int64_t* ticket) override {
    notes_.Refuse("Start");
    return inner_.Start(collective, ticket);
  }
  BackendStatus Wait(int64_t ticket) override {
    if (ticket != 0) notes_.Refuse("Wait");  // 0: for nothing
    return inner_.Wait(ticket);
  }

 private:
  Notes& notes_;
};

std::vector<Notes> NotesOf(const JobSpec& job, const Layout& layout, const TestFolder& folder) {
  std::vector<Notes> notes(static_cast<size_t>(layout.world_size()));
  RankThreads run;
  run.assignment = {.job = job,
                    .layout = layout,
                    .run_folder = folder.Make(LayoutText(layout)),
                    .load_checkpoint = ""};
  run.wrap_device = [&](int rank, Device& inner) {
    return std::make_unique<NotingDevice>(inner, notes[static_cast<size_t>(rank)]);
  };
  run.wrap_comm = [&](int rank, Comm& inner) {
    return std::make_unique<NotingComm>(inner, notes[static_cast<size_t>(rank)]);
  };
  run.stop_requested = [&](int rank, int64_t) {  // asked once a step, after its passes
    notes[static_cast<size_t>(rank)].EndStep();
    return false;
  };
  EXPECT_EQ(Train(run).status(), absl::OkStatus()) << LayoutText(layout);
  return notes;
}

// Chunks differ in length: what they give back does not fit together again.
JobSpec UnevenJob(const TestFolder& folder) {
  JobSpec job = SmallJob(folder.path());
  job.model.num_blocks = 7;
  job.model.hidden_size = 32;
  job.model.head_dim = 8;
  job.model.ffn_size = 64;
  job.training.seq_len = 16;
  job.training.global_batch_size = 6;
  job.training.steps = 3;
  return job;
}

std::vector<Layout> LayoutsOfAllSchedules(const JobSpec& job) {
  std::vector<Layout> layouts = {MakeLayout(1, 1, 1, ScheduleKind::kOneForwardOneBackward, 1, job)};
  for (const int pp : {2, 3}) {
    for (const ScheduleKind schedule : {ScheduleKind::kOneForwardOneBackward, ScheduleKind::kGpipe,
                                        ScheduleKind::kZeroBubbleH1}) {
      layouts.push_back(MakeLayout(1, 1, pp, schedule, 1, job));
    }
  }
  for (const int chunks : {2, 3}) {
    layouts.push_back(MakeLayout(1, 1, 2, ScheduleKind::kInterleaved, 1, job));
    layouts.back().virtual_stages = chunks;
  }
  return layouts;
}

TEST(Stage, GivesTheOperationsOfEachStepTheSameOperands) {
  const TestFolder folder;
  const JobSpec job = UnevenJob(folder);
  for (Layout layout : LayoutsOfAllSchedules(job)) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      layout.recompute = recompute;
      SCOPED_TRACE(LayoutText(layout));
      for (const Notes& notes : NotesOf(job, layout, folder)) {
        ASSERT_THAT(notes.steps, SizeIs(3));
        ASSERT_GT(notes.steps[0].size(), 100);
        EXPECT_TRUE(notes.steps[1] == notes.steps[0]);
        EXPECT_TRUE(notes.steps[2] == notes.steps[0]);
        EXPECT_THAT(notes.findings, IsEmpty());
      }
    }
  }
}

// Llama in 8 bits, and GPT-2 whose documents do not see each other.
TEST(Stage, QueuesTheSameUnderTheKeyOfAStretch) {
  const TestFolder folder;
  JobSpec fp8 = UnevenJob(folder);
  SetArchitecture(Architecture::kLlama, fp8.model);
  fp8.model.num_kv_heads = 2;
  fp8.training.mixed_precision = Precision::kFp8;
  JobSpec documents = UnevenJob(folder);
  documents.data.reset_attention_mask = true;
  documents.validation = {.interval = 1, .steps = 1};
  for (const JobSpec& job : {fp8, documents}) {
    for (const Layout& layout : LayoutsOfAllSchedules(job)) {
      SCOPED_TRACE(LayoutText(layout));
      for (const Notes& notes : NotesOf(job, layout, folder)) {
        EXPECT_THAT(notes.findings, IsEmpty());
        EXPECT_GT(notes.stretches.size(), 1);
      }
    }
  }
}

struct StretchCase {
  const char* name;
  Layout layout;
  size_t stretches;  // that differ, of rank 0
  int calls;         // of a step
  // The same of steps after an update that gathers weights: the first forward pass waits for them,
  // and is a stretch for each of its four blocks.
  int later_calls = calls;
};

// Nothing moves between ranks within them, and they are as many as slots want, not microbatches.
TEST(Stage, HasStretchesWhereNothingMovesBetweenRanks) {
  const TestFolder folder;
  JobSpec job = UnevenJob(folder);
  job.model.num_blocks = 4;
  job.training.global_batch_size = 8;
  const auto with = [&](Layout layout, int zero_stage, int cp = 1) {
    layout.zero_stage = zero_stage;
    layout.cp = cp;
    return layout;
  };
  const Layout one = MakeLayout(1, 1, 1, k1f1b, 1, job);
  const Layout dp2 = MakeLayout(2, 1, 1, k1f1b, 1, job);
  const StretchCase cases[] = {
      {"one rank", one, 2, 16},
      {"few microbatches", MakeLayout(1, 1, 1, k1f1b, 4, job), 2, 4},
      {"data ranks: the last backward pass reduces", dp2, 2, 7},
      {"zero 1", with(dp2, 1), 6, 7, 10},
      {"zero 2: gradients move in each backward pass", with(dp2, 2), 5, 4, 7},
      {"zero 3: weights too", with(dp2, 3), 0, 0},
      {"tensor ranks", MakeLayout(1, 2, 1, k1f1b, 1, job), 0, 0},
      {"context ranks", with(one, 0, 2), 0, 0},
      {"two stages", MakeLayout(1, 1, 2, k1f1b, 1, job), 4, 16},
      {"two stages, few microbatches", MakeLayout(1, 1, 2, k1f1b, 2, job), 4, 8},
  };
  for (const StretchCase& c : cases) {
    SCOPED_TRACE(c.name);
    const std::vector<Notes> notes = NotesOf(job, c.layout, folder);
    for (const Notes& each : notes) EXPECT_THAT(each.findings, IsEmpty());
    EXPECT_THAT(notes[0].stretches, SizeIs(c.stretches));
    EXPECT_THAT(notes[0].calls, ElementsAre(c.calls, c.later_calls, c.later_calls));
  }
}

}  // namespace
}  // namespace weft
