// These tests look at what moves beside the passes, with ranks as threads: that it is started while
// there is still work to do, and waited for before anybody needs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/worker/passing_backend.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

struct Moved {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int64_t work_at_start = 0;
  int64_t work_at_wait = -1;  // -1: nobody has waited
};

// A Log is of one rank: its products and look-ups so far, and what it has started.
struct Log {
  int64_t work = 0;
  std::map<int64_t, Moved> moved;  // by ticket
};

class CountingDevice final : public PassingDevice {
 public:
  CountingDevice(Device& inner, Log& log) : PassingDevice(inner), log_(log) {}
  void MatMul(View a, Transpose transpose_a, View b, Transpose transpose_b, float beta,
              View c) override {
    ++log_.work;
    inner_.MatMul(a, transpose_a, b, transpose_b, beta, c);
  }
  void Linear(View x, View weight, View bias, View residual, View y) override {
    ++log_.work;
    inner_.Linear(x, weight, bias, residual, y);
  }
  void Embed(View ids, View table, int64_t first_id, View positions, View position_ids,
             View out) override {
    ++log_.work;
    inner_.Embed(ids, table, first_id, positions, position_ids, out);
  }
  void EmbedGradient(View ids, View dout, int64_t first_id, View position_ids, View dtable,
                     View dpositions) override {
    ++log_.work;
    inner_.EmbedGradient(ids, dout, first_id, position_ids, dtable, dpositions);
  }

 private:
  Log& log_;
};

class LoggingComm final : public PassingComm {
 public:
  LoggingComm(Comm& inner, Log& log) : PassingComm(inner), log_(log) {}
  BackendStatus Start(const CollectiveCall& call, int64_t* ticket) override {
    const BackendStatus status = inner_.Start(call, ticket);
    log_.moved[*ticket] = {.kind = call.kind, .work_at_start = log_.work};
    return status;
  }
  // A ticket stands for all before it.
  BackendStatus Wait(int64_t ticket) override {
    for (auto& [each, moved] : log_.moved) {
      if (each <= ticket && moved.work_at_wait < 0) moved.work_at_wait = log_.work;
    }
    return inner_.Wait(ticket);
  }

 private:
  Log& log_;
};

std::vector<Moved> MovedInSteps(int64_t steps, int zero_stage, int64_t micro_batch_size) {
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.training.steps = steps;
  job.checkpoint.interval = 0;
  Layout layout = MakeLayout(2, 1, 1, ScheduleKind::kOneForwardOneBackward, micro_batch_size, job);
  layout.zero_stage = zero_stage;
  std::vector<Log> logs(2);
  RankThreads run;
  run.assignment = {
      .job = job, .layout = layout, .run_folder = folder.Make("run"), .load_checkpoint = ""};
  run.wrap_device = [&](int rank, Device& inner) {
    return std::make_unique<CountingDevice>(inner, logs[static_cast<size_t>(rank)]);
  };
  run.wrap_comm = [&](int rank, Comm& inner) {
    return std::make_unique<LoggingComm>(inner, logs[static_cast<size_t>(rank)]);
  };
  EXPECT_EQ(Train(run).status(), absl::OkStatus());
  std::vector<Moved> moved;
  for (const auto& [ticket, each] : logs[0].moved) moved.push_back(each);
  EXPECT_EQ(moved.size(), logs[1].moved.size());
  return moved;
}

// Five buckets; the embedding's, which is the head's as well, is complete last.
TEST(Overlap, GradientsAreSummedBesideTheRestOfTheLastBackwardPass) {
  for (const int zero_stage : {0, 1}) {
    std::vector<Moved> moved = MovedInSteps(1, zero_stage, 2);
    ASSERT_EQ(moved.size(), zero_stage == 0 ? 5U : 5U + 5U) << "and the gathers after the update";
    moved.resize(5);
    for (size_t i = 0; i < moved.size(); ++i) {
      EXPECT_EQ(moved[i].kind,
                zero_stage == 0 ? CollectiveKind::kAllReduce : CollectiveKind::kReduceScatter);
      EXPECT_EQ(moved[i].work_at_wait > moved[i].work_at_start, i < 4) << i;
      EXPECT_EQ(moved[i].work_at_wait, moved.front().work_at_wait) << "one wait, before the update";
    }
  }
}

// Five buckets: the table, which is looked up first, then the blocks.
TEST(Overlap, ZeroOneGathersWeightsBesideTheNextStepsForwardPass) {
  std::vector<Moved> gathers;
  for (const Moved& each : MovedInSteps(2, 1, 2)) {
    if (each.kind == CollectiveKind::kAllGather) gathers.push_back(each);
  }
  ASSERT_EQ(gathers.size(), 2 * 5U);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(gathers[i].work_at_start, gathers[0].work_at_start) << "right after the update";
    EXPECT_EQ(gathers[5 + i].work_at_wait, gathers[5 + i].work_at_start) << "there is no next step";
  }
  EXPECT_EQ(gathers[0].work_at_wait, gathers[0].work_at_start);
  for (size_t i = 1; i < 5; ++i) {
    EXPECT_GT(gathers[i].work_at_wait, gathers[i - 1].work_at_wait) << i;
  }
}

TEST(Overlap, ZeroTwoSumsABucketBesideTheNextOne) {
  const std::vector<Moved> moved = MovedInSteps(1, 2, 2);
  ASSERT_EQ(moved.size(), 2 * 4U + 1 + 5)
      << "of each microbatch: four blocks; last the table, whole; all weights after the update";
  for (size_t i = 0; i < 2 * 4U; ++i) {
    EXPECT_GT(moved[i].work_at_wait, moved[i].work_at_start) << i;
  }
}

// The table is whole, so the first block's weights come beside the look-ups in it. The last two
// blocks of a forward pass, with which the backward pass begins, lie where they were.
TEST(Overlap, ZeroThreeGathersTheNextBucketBesideTheOneInWork) {
  const std::vector<Moved> moved = MovedInSteps(1, 3, 4);
  std::vector<Moved> gathers;
  for (const Moved& each : moved) {
    if (each.kind == CollectiveKind::kAllGather) gathers.push_back(each);
  }
  ASSERT_EQ(gathers.size(), 4U + 2U + 1U) << "last the table, after the update";
  for (size_t i = 0; i < 4U + 2U; ++i) {
    EXPECT_GT(gathers[i].work_at_wait, gathers[i].work_at_start) << i;
  }
}

}  // namespace
}  // namespace weft
