// ZeRO and hybrid sharding, with ranks as threads: the same training as on a single rank, in
// exactly the planned memory, with checkpoints that any other sharding loads; and proof that the
// comparison sees what can go wrong in it.
#include "worker/state/zero.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "checkpoint/verify.h"
#include "plan/block/tensors.h"
#include "plan/spec/layout_text.h"
#include "tests/worker/passing_backend.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

struct ZeroCase {
  int zero_stage;
  int dp, tp, pp;
  ScheduleKind schedule;
  int64_t micro_batch_size;
  int zero_hpz_partition_size = 1;
  bool llama = false;  // of 2 kv heads, untied
  int64_t num_blocks = 4;
  std::vector<int64_t> layers_per_stage = {};
};

// A global batch that 2, 3 and 4 data ranks divide; sizes that 3 does not.
JobSpec JobOf(const ZeroCase& c, const TestFolder& folder) {
  JobSpec job = SmallJob(folder.path());
  job.training.global_batch_size = 12;
  job.model.num_blocks = c.num_blocks;
  if (c.llama) {
    SetArchitecture(Architecture::kLlama, job.model);
    job.model.num_kv_heads = 2;
    job.model.ffn_size = 88 * 2;
    job.model.tied_embeddings = false;
  }
  return job;
}

Layout LayoutOf(const ZeroCase& c, const JobSpec& job) {
  Layout layout = MakeLayout(c.dp, c.tp, c.pp, c.schedule, c.micro_batch_size, job);
  layout.zero_stage = c.zero_stage;
  layout.zero_hpz_partition_size = c.zero_hpz_partition_size;
  if (c.schedule == kInterleaved) layout.virtual_stages = 2;
  layout.sequence_parallel = c.llama && c.pp > 1 && c.tp > 1;
  layout.layers_per_stage = c.layers_per_stage;
  return layout;
}

void PrintTo(const ZeroCase& c, std::ostream* out) {
  JobSpec job;
  job.training.global_batch_size = 12;
  *out << (c.llama ? "llama " : "gpt2 ") << LayoutText(LayoutOf(c, job));
}

class AnyZero : public testing::TestWithParam<ZeroCase> {
 protected:
  const TestFolder folder_;
  JobSpec job_ = JobOf(GetParam(), folder_);
  const Layout layout_ = LayoutOf(GetParam(), job_);
  const Layout single_ = MakeLayout(1, 1, 1, kGpipe, 12, job_);
};

TEST_P(AnyZero, TrainsTheSameModelAsASingleRankInThePlannedMemory) {
  job_.validation = {.interval = 10, .steps = 1};
  const TrainingOutcome single = TrainWith(job_, single_, folder_.Make("single"));
  ASSERT_EQ(single.status(), absl::OkStatus());
  ASSERT_LT(single.losses().back(), single.losses().front() - 1) << "the test would prove little";
  const TrainingOutcome spread = TrainWith(job_, layout_, folder_.Make("spread"));
  ASSERT_EQ(spread.status(), absl::OkStatus());
  EXPECT_LT(RelativeDifference(spread.losses(), single.losses()), 1e-6);
  EXPECT_LT(RelativeDifference(spread.grad_norms(), single.grad_norms()), 1e-5);
  const double valid = *single.reports.front().back().valid_loss;
  EXPECT_NEAR(*spread.reports.front().back().valid_loss, valid, 1e-6 * valid);
  for (const auto& reports : spread.reports) {
    EXPECT_EQ(Bits(reports), Bits(spread.reports.front())) << "all ranks report the same";
  }
  EXPECT_EQ(spread.allocated_bytes, spread.planned_bytes);
}

TEST_P(AnyZero, HasTheSameFirstGradientsAsASingleRank) {
  job_.training.steps = 1;
  const TrainingOutcome single = TrainWith(job_, single_, folder_.Make("single"));
  const TrainingOutcome spread = TrainWith(job_, layout_, folder_.Make("spread"));
  ASSERT_EQ(spread.status(), absl::OkStatus());
  ASSERT_EQ(single.gradients.size(), Tensors(job_.model).size());
  EXPECT_LT(GradientDifference(spread, single), 2e-6);
}

INSTANTIATE_TEST_SUITE_P(
    Zero, AnyZero,
    testing::Values(ZeroCase{1, 2, 1, 1, k1f1b, 2}, ZeroCase{1, 3, 1, 1, kGpipe, 2},
                    ZeroCase{1, 2, 2, 2, k1f1b, 1}, ZeroCase{1, 2, 1, 2, kInterleaved, 1},
                    ZeroCase{1, 2, 1, 2, kZeroBubble, 2}, ZeroCase{1, 4, 1, 2, k1f1b, 1, 2},
                    ZeroCase{1, 2, 4, 1, k1f1b, 3, 1, true}, ZeroCase{2, 2, 1, 1, k1f1b, 2},
                    ZeroCase{2, 3, 2, 1, kGpipe, 1}, ZeroCase{2, 4, 1, 1, k1f1b, 1, 2},
                    ZeroCase{2, 3, 4, 1, k1f1b, 2, 1, true}, ZeroCase{3, 2, 1, 1, k1f1b, 2},
                    ZeroCase{3, 3, 1, 1, kGpipe, 1}, ZeroCase{3, 2, 2, 1, k1f1b, 1},
                    ZeroCase{3, 4, 1, 1, k1f1b, 1, 2}, ZeroCase{3, 2, 4, 1, k1f1b, 3, 1, true},
                    ZeroCase{3, 3, 1, 1, kZeroBubble, 2, 1, true}));

// Seven blocks: two stages hold four and three, the latter in turns of two and one, which is whole.
// The llama has four: with seven, norms under two data ranks alone are 1.6e-5 from a single rank's.
INSTANTIATE_TEST_SUITE_P(ZeroInAPipeline, AnyZero,
                         testing::Values(ZeroCase{2, 2, 1, 2, kGpipe, 2, 1, false, 7},
                                         ZeroCase{2, 2, 1, 2, k1f1b, 1, 1, false, 7},
                                         ZeroCase{2, 2, 1, 2, kInterleaved, 1, 1, false, 7},
                                         ZeroCase{2, 2, 1, 2, kZeroBubble, 2, 1, false, 7},
                                         ZeroCase{2, 4, 1, 2, k1f1b, 1, 2, false, 7},
                                         ZeroCase{3, 2, 1, 2, kGpipe, 2, 1, false, 7},
                                         ZeroCase{3, 2, 1, 2, k1f1b, 1, 1, false, 7},
                                         ZeroCase{3, 2, 1, 2, kInterleaved, 1, 1, false, 7},
                                         ZeroCase{3, 2, 1, 2, kZeroBubble, 2, 1, false, 7},
                                         ZeroCase{3, 4, 1, 2, kZeroBubble, 1, 2, false, 7},
                                         ZeroCase{3, 2, 2, 2, k1f1b, 2, 1, true, 4, {3, 1}},
                                         ZeroCase{3, 2, 1, 3, k1f1b, 2, 1, false, 7, {1, 5, 1}},
                                         ZeroCase{3, 2, 1, 3, k1f1b, 2, 1, false, 4}));

TEST(Zero, KeepsTheScaleOfGradientsWithSgdAndNoClipping) {
  for (const ZeroCase& c : {ZeroCase{2, 3, 1, 1, k1f1b, 2}, ZeroCase{3, 4, 1, 1, k1f1b, 1, 2}}) {
    const TestFolder folder;
    JobSpec job = JobOf(c, folder);
    job.optimizer.name = OptimizerKind::kSgd;
    job.optimizer.lr = 0.1;
    job.training.gradient_clipping = 0;
    const TrainingOutcome single =
        TrainWith(job, MakeLayout(1, 1, 1, k1f1b, 12, job), folder.Make("single"));
    const TrainingOutcome spread = TrainWith(job, LayoutOf(c, job), folder.Make("spread"));
    ASSERT_EQ(spread.status(), absl::OkStatus());
    ASSERT_LT(single.losses().back(), single.losses().front() - 0.5);
    EXPECT_LT(RelativeDifference(spread.losses(), single.losses()), 1e-6);
  }
}

// Trains it on one rank and under ZeRO, and goes on from the one's checkpoint under ZeRO.
void ExpectCutByZero(const OptimizerSpec& optimizer) {
  const ZeroCase c = {2, 3, 1, 1, k1f1b, 2};
  const TestFolder folder;
  JobSpec job = JobOf(c, folder);
  job.optimizer = optimizer;
  job.checkpoint.interval = 10;
  const std::string single_folder = folder.Make("single");
  const TrainingOutcome single = TrainWith(job, MakeLayout(1, 1, 1, k1f1b, 12, job), single_folder);
  const TrainingOutcome spread = TrainWith(job, LayoutOf(c, job), folder.Make("spread"));
  ASSERT_EQ(spread.status(), absl::OkStatus());
  ASSERT_LT(single.losses().back(), single.losses().front() - 0.5);
  EXPECT_LT(RelativeDifference(spread.losses(), single.losses()), 1e-6);
  EXPECT_EQ(spread.allocated_bytes, spread.planned_bytes);
  const TrainingOutcome resumed = TrainWith(job, LayoutOf(c, job), folder.Make("resumed"),
                                            single_folder + "/checkpoint/step-10");
  const std::vector<double> losses = single.losses();
  EXPECT_LT(RelativeDifference(resumed.losses(), {losses.begin() + 10, losses.end()}), 1e-6);
}

TEST(Zero, CutsTheOneMomentOfLion) {
  ExpectCutByZero({.name = OptimizerKind::kLion, .lr = 3e-4, .beta2 = 0.99});
}

// The first update is as long as lr even of a gradient that is next to 0, whose sign hangs on the
// order of a sum: eps is above such gradients.
TEST(Zero, CutsTheSumOfSquaresOfAdagrad) {
  ExpectCutByZero({.name = OptimizerKind::kAdagrad, .lr = 1e-2, .eps = 1e-4});
}

// From each sharding into itself and those that stand so many places behind it in the table.
void ExpectToContinue(std::initializer_list<size_t> distances) {
  const TestFolder folder;
  JobSpec job = JobOf({}, folder);
  job.checkpoint.interval = 10;
  const ZeroCase cases[] = {{0, 1, 1, 1, k1f1b, 4},
                            {1, 2, 2, 2, k1f1b, 1},
                            {2, 3, 1, 1, k1f1b, 2},
                            {3, 2, 2, 1, k1f1b, 2},
                            {3, 4, 1, 1, kGpipe, 1, 2},
                            {2, 2, 1, 2, kInterleaved, 1},
                            {3, 2, 1, 2, k1f1b, 2, 1, false, 4, {3, 1}}};
  for (size_t from = 0; from < std::size(cases); ++from) {
    const Layout layout = LayoutOf(cases[from], job);
    const std::string run_folder = folder.Make(LayoutText(layout));
    const TrainingOutcome whole = TrainWith(job, layout, run_folder);
    ASSERT_EQ(whole.status(), absl::OkStatus());
    for (const size_t distance : distances) {
      const ZeroCase& to = cases[(from + distance) % std::size(cases)];
      const TrainingOutcome resumed = TrainWith(job, LayoutOf(to, job), folder.Make("resumed"),
                                                run_folder + "/checkpoint/step-10");
      SCOPED_TRACE(LayoutText(layout) + " -> " + LayoutText(LayoutOf(to, job)));
      ASSERT_EQ(resumed.status(), absl::OkStatus());
      const std::vector<double> losses = whole.losses();
      EXPECT_LT(RelativeDifference(resumed.losses(), {losses.begin() + 10, losses.end()}), 1e-6);
      if (distance != 0) continue;
      const std::vector<std::string> bits = Bits(whole.reports.front());
      EXPECT_EQ(Bits(resumed.reports.front()),
                std::vector<std::string>(bits.begin() + 10, bits.end()));
      EXPECT_EQ(resumed.weights, whole.weights);
    }
  }
}

TEST(Zero, ContinuesFromACheckpointOfAnotherSharding) {
  ExpectToContinue({0, 1, 3});
}

TEST(Zero, ContinuesFromACheckpointOfAnyOtherSharding) {
  ExpectToContinue({2, 4, 5, 6});
}

// Every element is written once, by a rank that owns it, and none by two.
TEST(Zero, SharesTheWorkOfASaveAmongItsRanks) {
  const TestFolder folder;
  JobSpec job = JobOf({}, folder);
  job.training.steps = 1;
  for (const ZeroCase& c : {ZeroCase{1, 4, 1, 1, k1f1b, 3}, ZeroCase{3, 4, 1, 1, k1f1b, 3, 2}}) {
    const std::string run_folder = folder.Make("run");
    ASSERT_EQ(TrainWith(job, LayoutOf(c, job), run_folder).status(), absl::OkStatus());
    const auto manifest = VerifyCheckpoint(run_folder + "/checkpoint/step-1");
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    const int64_t values_bytes = int64_t{3} * 4 * ParameterCount(job.model);
    int64_t sum = 0;
    for (const ShardRecord& shard : manifest->shards) {
      sum += shard.bytes;
      EXPECT_GT(shard.bytes, values_bytes / 6) << shard.file;
    }
    EXPECT_GT(sum, values_bytes);
    EXPECT_LT(sum, values_bytes + (int64_t{128} << 10)) << "more than headers is written twice";
  }
}

// ---- the comparison bites

// Breaks one thing of what ZeRO asks of the Comm, on every rank.
class BrokenComm : public AtOnceComm {
 public:
  enum class ZeroBug { kNoGather, kNoScatter, kShiftedPart, kNoReplicas };
  BrokenComm(Comm& inner, ZeroBug bug) : AtOnceComm(inner), bug_(bug) {}

  BackendStatus AllGather(int group, View data) override {
    if (bug_ == ZeroBug::kNoGather) return {};
    return inner_.AllGather(group, data);
  }
  BackendStatus ReduceScatter(int group, ReduceOp op, View data) override {
    if (bug_ == ZeroBug::kNoScatter) return {};
    const BackendStatus status = inner_.ReduceScatter(group, op, data);
    // This shifts the data as if parts began one element later than they do.
    if (bug_ == ZeroBug::kShiftedPart) {
      auto* values = static_cast<float*>(data.data);
      std::memmove(values, values + 1, static_cast<size_t>(data.bytes()) - sizeof(float));
    }
    return status;
  }
  BackendStatus AllReduce(int group, ReduceOp op, View data) override {
    if (bug_ == ZeroBug::kNoReplicas && data.elements() > 256) return {};
    return inner_.AllReduce(group, op, data);
  }

 private:
  const ZeroBug bug_;
};

struct BugCase {
  BrokenComm::ZeroBug bug;
  ZeroCase layout;
};

class PlantedInZero : public testing::TestWithParam<BugCase> {};

TEST_P(PlantedInZero, IsSeenInTheCurve) {
  const TestFolder folder;
  const JobSpec job = JobOf(GetParam().layout, folder);
  RankThreads run;
  run.assignment = {.job = job,
                    .layout = LayoutOf(GetParam().layout, job),
                    .run_folder = folder.Make("bug"),
                    .load_checkpoint = ""};
  run.wrap_comm = [](int, Comm& inner) {
    return std::make_unique<BrokenComm>(inner, GetParam().bug);
  };
  const TrainingOutcome bug = Train(run);
  ASSERT_EQ(bug.status(), absl::OkStatus());
  const TrainingOutcome single =
      TrainWith(job, MakeLayout(1, 1, 1, k1f1b, 12, job), folder.Make("single"));
  EXPECT_GT(RelativeDifference(bug.losses(), single.losses()), 100 * 1e-6);
}

using ZeroBug = BrokenComm::ZeroBug;
INSTANTIATE_TEST_SUITE_P(
    Zero, PlantedInZero,
    testing::Values(BugCase{ZeroBug::kNoGather, {1, 2, 1, 1, k1f1b, 2}},
                    BugCase{ZeroBug::kNoGather, {3, 2, 1, 1, k1f1b, 2}},
                    BugCase{ZeroBug::kNoScatter, {1, 3, 1, 1, k1f1b, 2}},
                    BugCase{ZeroBug::kNoScatter, {2, 3, 1, 1, k1f1b, 2}},
                    BugCase{ZeroBug::kShiftedPart, {1, 2, 1, 1, k1f1b, 2}},
                    BugCase{ZeroBug::kShiftedPart, {3, 2, 1, 1, k1f1b, 2}},
                    BugCase{ZeroBug::kNoReplicas, {2, 4, 1, 1, k1f1b, 1, 2}},
                    BugCase{ZeroBug::kNoGather, {3, 2, 1, 2, k1f1b, 2, 1, false, 7}},
                    BugCase{ZeroBug::kNoScatter, {2, 2, 1, 2, kZeroBubble, 2, 1, false, 7}},
                    BugCase{ZeroBug::kNoReplicas, {3, 4, 1, 2, k1f1b, 1, 2, false, 7}}));

}  // namespace
}  // namespace weft
