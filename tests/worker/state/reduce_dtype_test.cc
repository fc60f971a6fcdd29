// Gradients that travel between data ranks in bf16 (training.reduce_dtype), with ranks as threads:
// each sum is off by what its roundings may make it, the arena is the plan to the byte, runs repeat
// to the bit, and checkpoints do not know of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plan/spec/layout_text.h"
#include "tests/worker/passing_backend.h"
#include "tests/worker/rank_threads.h"
#include "worker/state/zero.h"

namespace weft {
namespace {

using ::testing::ElementsAreArray;

// A Summed is what one rank hands to a sum of gradients, and gets of it.
struct Summed {
  std::vector<double> before, after;  // of the whole run; of the range that is this rank's
  int64_t first = 0;                  // where that range begins
};
using SumsOfRank = std::vector<Summed>;

double ValueOf(View view, int64_t i) {
  if (view.dtype == DType::kF32) return static_cast<const float*>(view.data)[i];
  uint32_t bits = 0;
  bits = static_cast<uint32_t>(static_cast<const uint16_t*>(view.data)[i]) << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

std::vector<double> ValuesOf(View view, int64_t first, int64_t count) {
  std::vector<double> values;
  for (int64_t i = first; i < first + count; ++i) values.push_back(ValueOf(view, i));
  return values;
}

// Notes what is started to be summed, and what of: of gradients alone, as nothing else is started
// but gathers.
class NotingComm final : public AtOnceComm {
 public:
  NotingComm(Comm& inner, int parts, SumsOfRank& sums)
      : AtOnceComm(inner), parts_(parts), sums_(sums) {}

  BackendStatus Start(const CollectiveCall& call, int64_t* ticket) override {
    if (call.kind == CollectiveKind::kAllGather) return AtOnceComm::Start(call, ticket);
    const int64_t elements = call.data.elements();
    const bool scatters = call.kind == CollectiveKind::kReduceScatter;
    const int64_t count = scatters ? elements / parts_ : elements;
    Summed summed{.before = ValuesOf(call.data, 0, elements),
                  .after = {},
                  .first = scatters ? count * (rank() % parts_) : 0};
    const BackendStatus status = AtOnceComm::Start(call, ticket);
    summed.after = ValuesOf(call.data, summed.first, count);
    sums_.push_back(std::move(summed));
    return status;
  }

 private:
  const int parts_;
  SumsOfRank& sums_;
};

struct ReduceCase {
  int zero_stage, dp;
  int zero_hpz_partition_size = 1;
  int pp = 1;
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;
  int64_t num_blocks = 4;
  int cp = 1;
};

JobSpec JobOf(const ReduceCase& c, const TestFolder& folder, ReduceDtype reduce_dtype) {
  JobSpec job = SmallJob(folder.path());
  job.training.global_batch_size = 12;
  job.training.reduce_dtype = reduce_dtype;
  job.model.num_blocks = c.num_blocks;
  return job;
}

Layout LayoutOf(const ReduceCase& c, const JobSpec& job) {
  Layout layout = MakeLayout(c.dp, 1, c.pp, c.schedule, 1, job);
  layout.zero_stage = c.zero_stage;
  layout.zero_hpz_partition_size = c.zero_hpz_partition_size;
  layout.cp = c.cp;
  return layout;
}

void PrintTo(const ReduceCase& c, std::ostream* out) {
  JobSpec job;
  job.training.global_batch_size = 12;
  *out << LayoutText(LayoutOf(c, job));
}

class AnyReduce : public testing::TestWithParam<ReduceCase> {
 protected:
  JobSpec Job(ReduceDtype type) const { return JobOf(GetParam(), folder_, type); }

  const TestFolder folder_;
  const JobSpec wide_ = Job(ReduceDtype::kFp32);
  const JobSpec narrow_ = Job(ReduceDtype::kBf16);
  const Layout layout_ = LayoutOf(GetParam(), narrow_);
};

// The largest difference measured is 8.1e-5, of the losses of 20 steps.
TEST_P(AnyReduce, TrainsCloseToFp32SumsInThePlannedMemory) {
  const TrainingOutcome wide = TrainWith(wide_, layout_, folder_.Make("wide"));
  const TrainingOutcome narrow = TrainWith(narrow_, layout_, folder_.Make("narrow"));
  ASSERT_EQ(wide.status(), absl::OkStatus());
  ASSERT_EQ(narrow.status(), absl::OkStatus());
  EXPECT_EQ(narrow.allocated_bytes, narrow.planned_bytes);
  EXPECT_GT(narrow.planned_bytes.front(), wide.planned_bytes.front());
  EXPECT_GT(RelativeDifference(narrow.losses(), wide.losses()), 0) << "nothing was rounded";
  EXPECT_LT(RelativeDifference(narrow.losses(), wide.losses()), 2e-4);
  // Two roundings, in the sums over shards and over replicas, of the same gradients. Later ones are
  // of other weights: what loss they lead to is bounded above.
  const double two_roundings = std::pow(1 + std::ldexp(1, -8), 2) - 1;
  EXPECT_NEAR(narrow.grad_norms().front() / wide.grad_norms().front(), 1, two_roundings);
  for (const auto& reports : narrow.reports) {
    EXPECT_EQ(Bits(reports), Bits(narrow.reports.front())) << "all ranks report the same";
  }
  const TrainingOutcome again = TrainWith(narrow_, layout_, folder_.Make("again"));
  EXPECT_EQ(Bits(again.reports.front()), Bits(narrow.reports.front()));
  EXPECT_EQ(again.weights, narrow.weights);
}

INSTANTIATE_TEST_SUITE_P(
    Zero, AnyReduce,
    testing::Values(ReduceCase{0, 2}, ReduceCase{0, 3}, ReduceCase{0, 2, 1, 2}, ReduceCase{1, 3},
                    ReduceCase{1, 4, 2}, ReduceCase{0, 1, 1, 1, ScheduleKind::kGpipe, 4, 2},
                    ReduceCase{2, 2}, ReduceCase{2, 4, 2},
                    ReduceCase{2, 2, 1, 2, ScheduleKind::kZeroBubbleH1, 7}, ReduceCase{3, 3},
                    ReduceCase{3, 4, 2, 2, ScheduleKind::kOneForwardOneBackward, 7}));

// There is one microbatch, so that the first step's gradients are summed from the same bits in both
// formats.
std::vector<SumsOfRank> FirstSums(const ReduceCase& c, ReduceDtype type) {
  const TestFolder folder;
  JobSpec job = JobOf(c, folder, type);
  job.training.steps = 1;
  job.training.global_batch_size = c.dp;
  RankThreads run;
  run.assignment = {.job = job,
                    .layout = LayoutOf(c, job),
                    .run_folder = folder.Make("run"),
                    .load_checkpoint = ""};
  const int parts = ShardingOf(run.assignment.layout).parts;
  std::vector<SumsOfRank> sums(static_cast<size_t>(c.dp));
  run.wrap_comm = [&](int rank, Comm& inner) {
    return std::make_unique<NotingComm>(inner, parts, sums[static_cast<size_t>(rank)]);
  };
  EXPECT_EQ(Train(run).status(), absl::OkStatus());
  return sums;
}

// A contribution is rounded, and so is the sum of these: each by up to u = 2^-8 of its magnitude.
// Higham, Accuracy and Stability, section 2.2.
TEST(ReduceDtype, Bf16SumsAreOffByTwoRoundingsOfTheirMagnitudes) {
  constexpr double kRoundoff = 1.0 / 256;
  constexpr double kBound = (1 + kRoundoff) * (1 + kRoundoff) - 1;
  constexpr double kTiny = 1e-37;  // where bf16 has no normal numbers
  for (const ReduceCase& c : {ReduceCase{0, 3}, ReduceCase{1, 3}, ReduceCase{2, 3}}) {
    const std::vector<SumsOfRank> wide = FirstSums(c, ReduceDtype::kFp32);
    const std::vector<SumsOfRank> narrow = FirstSums(c, ReduceDtype::kBf16);
    double worst = 0;
    for (size_t rank = 0; rank < wide.size(); ++rank) {
      ASSERT_EQ(narrow[rank].size(), wide[rank].size());
      ASSERT_FALSE(wide[rank].empty());
      for (size_t call = 0; call < wide[rank].size(); ++call) {
        const Summed& sum = narrow[rank][call];
        for (size_t i = 0; i < sum.after.size(); ++i) {
          double exact = 0, magnitudes = 0;
          for (const SumsOfRank& other : wide) {
            const double part = other[call].before[static_cast<size_t>(sum.first) + i];
            exact += part;
            magnitudes += std::abs(part);
          }
          const double off = std::abs(sum.after[i] - exact);
          ASSERT_LE(off, kBound * magnitudes + kTiny) << "ZeRO " << c.zero_stage;
          if (magnitudes > kTiny) worst = std::max(worst, off / magnitudes);
        }
      }
    }
    EXPECT_GT(worst, kRoundoff / 4) << "sums were not rounded";
  }
}

// Rounding is of what travels alone: one data rank has the same bits and memory in either format.
TEST(ReduceDtype, ChangesNothingWhereNothingIsReduced) {
  const ReduceCase c = {0, 1, 1, 2};
  const TestFolder folder;
  const JobSpec wide = JobOf(c, folder, ReduceDtype::kFp32);
  const JobSpec narrow = JobOf(c, folder, ReduceDtype::kBf16);
  const Layout layout = LayoutOf(c, wide);
  const TrainingOutcome a = TrainWith(wide, layout, folder.Make("wide"));
  const TrainingOutcome b = TrainWith(narrow, layout, folder.Make("narrow"));
  EXPECT_EQ(Bits(b.reports.front()), Bits(a.reports.front()));
  EXPECT_EQ(b.planned_bytes, a.planned_bytes);
}

// A checkpoint of either format is gone on from in the other, and in its own to the bit.
TEST(ReduceDtype, CheckpointsDoNotKnowOfIt) {
  const TestFolder folder;
  const ReduceCase cases[] = {{0, 2}, {2, 4, 2}};
  for (const ReduceDtype from : {ReduceDtype::kFp32, ReduceDtype::kBf16}) {
    JobSpec job = JobOf(cases[0], folder, from);
    job.checkpoint.interval = 10;
    const std::string run_folder = folder.Make("run");
    const TrainingOutcome whole = TrainWith(job, LayoutOf(cases[0], job), run_folder);
    ASSERT_EQ(whole.status(), absl::OkStatus());
    const std::vector<std::string> bits = Bits(whole.reports.front());
    for (const ReduceDtype to : {ReduceDtype::kFp32, ReduceDtype::kBf16}) {
      job.training.reduce_dtype = to;
      for (const ReduceCase& c : cases) {
        const TrainingOutcome resumed = TrainWith(job, LayoutOf(c, job), folder.Make("resumed"),
                                                  run_folder + "/checkpoint/step-10");
        ASSERT_EQ(resumed.status(), absl::OkStatus());
        const std::vector<double> losses = whole.losses();
        EXPECT_LT(RelativeDifference(resumed.losses(), {losses.begin() + 10, losses.end()}), 2e-4);
        if (to != from || &c != &cases[0]) continue;
        EXPECT_THAT(Bits(resumed.reports.front()), ElementsAreArray(bits.begin() + 10, bits.end()));
      }
    }
  }
}

}  // namespace
}  // namespace weft
