// These tests look at what moves over tp beside a backward pass's products: that it is started
// while there is work to do, that nothing touches its data until it is waited for, and that it is
// waited for before anybody needs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "plan/spec/layout_text.h"
#include "tests/worker/passing_backend.h"
#include "tests/worker/rank_threads.h"
#include "worker/backend/started_call.h"

namespace weft {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

// One rank's: weight gradients so far, and between the start and the wait of each call.
struct Beside {
  int64_t products = 0;
  std::vector<CollectiveKind> kinds;
  std::vector<int64_t> at_start, at_wait;
};

// Keeps what is started to itself: until it is waited for there are only numbers that are none
// where its data was, and what anybody writes there is lost.
class HidingComm final : public PassingComm {
 public:
  HidingComm(Comm& inner, Beside& log) : PassingComm(inner), log_(log) {}

  BackendStatus StartBeside(const CollectiveCall& call) override {
    Hidden hidden = {call.data, std::vector<char>(static_cast<size_t>(call.data.bytes()))};
    std::memcpy(hidden.bytes.data(), call.data.data, hidden.bytes.size());
    CollectiveCall own = call;
    own.data.data = hidden.bytes.data();
    const BackendStatus status = MakeBlocking(inner_, own);
    std::memset(call.data.data, 0xff, hidden.bytes.size());
    hidden_.push_back(std::move(hidden));
    log_.kinds.push_back(call.kind);
    log_.at_start.push_back(log_.products);
    return status;
  }
  BackendStatus WaitBeside() override {
    for (const Hidden& hidden : hidden_) {
      std::memcpy(hidden.data.data, hidden.bytes.data(), hidden.bytes.size());
    }
    hidden_.clear();
    log_.at_wait.resize(log_.at_start.size(), log_.products);
    return inner_.WaitBeside();
  }

 private:
  struct Hidden {
    View data;
    std::vector<char> bytes;
  };
  Beside& log_;
  std::vector<Hidden> hidden_;
};

// Counts products: a linear layer's gradients of weights, and the others.
class CountingProducts final : public PassingDevice {
 public:
  CountingProducts(Device& inner, Beside& log) : PassingDevice(inner), log_(log) {}
  void MatMul(View a, Transpose transpose_a, View b, Transpose transpose_b, float beta,
              View c) override {
    ++log_.products;
    inner_.MatMul(a, transpose_a, b, transpose_b, beta, c);
  }
  void Fp8MatMul(const Fp8View& a, const Fp8View& b, float beta, View c) override {
    ++log_.products;
    inner_.Fp8MatMul(a, b, beta, c);
  }
  void LinearGradient(View dy, View x, View dweight, View dbias) override {
    ++log_.products;
    inner_.LinearGradient(dy, x, dweight, dbias);
  }

 private:
  Beside& log_;
};

TrainingOutcome TrainHiding(const JobSpec& job, const Layout& layout, const std::string& folder,
                            std::vector<Beside>& logs) {
  logs.assign(static_cast<size_t>(layout.world_size()), {});
  RankThreads run;
  run.assignment = {.job = job, .layout = layout, .run_folder = folder, .load_checkpoint = ""};
  run.wrap_comm = [&](int rank, Comm& inner) {
    return std::make_unique<HidingComm>(inner, logs[static_cast<size_t>(rank)]);
  };
  run.wrap_device = [&](int rank, Device& inner) {
    return std::make_unique<CountingProducts>(inner, logs[static_cast<size_t>(rank)]);
  };
  return Train(run);
}

JobSpec LlamaOf(JobSpec job) {
  SetArchitecture(Architecture::kLlama, job.model);
  job.model.num_kv_heads = 2;
  job.model.head_dim = 16;
  job.model.ffn_size = 176;
  job.model.tied_embeddings = false;
  return job;
}

struct BesideCase {
  int dp, tp, pp;
  ScheduleKind schedule;
  bool sequence_parallel;
  Recompute recompute = Recompute::kNone;
  int64_t head_chunk_tokens = 0;
};

class AnyLayoutOverTensor : public testing::TestWithParam<BesideCase> {};

TEST_P(AnyLayoutOverTensor, HasTheBitsOfCallsThatAreDoneAtOnce) {
  const BesideCase& c = GetParam();
  const TestFolder folder;
  JobSpec small = SmallJob(folder.path());
  small.training.steps = 3;
  JobSpec fp8 = small;
  fp8.training.mixed_precision = Precision::kFp8;
  for (const JobSpec& job : {small, LlamaOf(small), fp8}) {
    Layout layout = MakeLayout(c.dp, c.tp, c.pp, c.schedule, 2, job);
    layout.sequence_parallel = c.sequence_parallel;
    layout.recompute = c.recompute;
    layout.head_chunk_tokens = c.head_chunk_tokens;
    SCOPED_TRACE(LayoutText(layout));
    const TrainingOutcome at_once = TrainWith(job, layout, folder.Make("at_once"));
    ASSERT_EQ(at_once.status(), absl::OkStatus());
    std::vector<Beside> logs;
    const TrainingOutcome hidden = TrainHiding(job, layout, folder.Make("hidden"), logs);
    ASSERT_EQ(hidden.status(), absl::OkStatus());
    EXPECT_EQ(Bits(hidden.reports[0]), Bits(at_once.reports[0]));
    EXPECT_EQ(hidden.weights, at_once.weights);
    EXPECT_EQ(hidden.allocated_bytes, hidden.planned_bytes);
    for (const Beside& log : logs) {
      if (c.schedule == k1f1b) {
        EXPECT_THAT(log.kinds, Not(IsEmpty()));
      }
      ASSERT_EQ(log.at_wait.size(), log.at_start.size());
      for (size_t i = 0; i < log.kinds.size(); ++i) {
        EXPECT_GT(log.at_wait[i], log.at_start[i]) << "call " << i << " has nothing beside it";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Trainer, AnyLayoutOverTensor,
    testing::Values(BesideCase{1, 2, 1, k1f1b, false}, BesideCase{1, 2, 1, k1f1b, true},
                    BesideCase{2, 2, 2, k1f1b, false, Recompute::kFull},
                    BesideCase{1, 4, 1, k1f1b, true, Recompute::kSelective, 16},
                    BesideCase{1, 2, 2, ScheduleKind::kZeroBubbleH1, true}));

// Each microbatch has two sums a block and the head's; cut tokens are gathered besides.
TEST(Beside, MovesTheSumsOfABlockAndOfTheHead) {
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.training.steps = 1;
  for (const bool is_cut : {false, true}) {
    Layout layout = MakeLayout(1, 2, 1, k1f1b, 4, job);
    layout.sequence_parallel = is_cut;
    std::vector<Beside> logs;
    const std::string name = is_cut ? "cut" : "whole";
    ASSERT_EQ(TrainHiding(job, layout, folder.Make(name), logs).status(), absl::OkStatus());
    const auto count = [&](CollectiveKind kind) {
      return std::count(logs[0].kinds.begin(), logs[0].kinds.end(), kind);
    };
    const int64_t sums = 2 * (2 * job.model.num_blocks + 1);
    EXPECT_EQ(count(is_cut ? CollectiveKind::kReduceScatter : CollectiveKind::kAllReduce), sums);
    EXPECT_EQ(count(CollectiveKind::kAllGather), is_cut ? 2 * 2 * job.model.num_blocks : 0);
    EXPECT_EQ(std::ssize(logs[0].kinds), sums + count(CollectiveKind::kAllGather));
  }
}

}  // namespace
}  // namespace weft
