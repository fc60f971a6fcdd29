// Optimizer states in host memory change nothing but where they are: every layout, precision and
// optimizer trains the same bits, in exactly the planned memory, and checkpoints do not know.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "plan/block/tensors.h"
#include "plan/memory/memory.h"
#include "plan/spec/layout_text.h"
#include "tests/worker/passing_backend.h"
#include "tests/worker/rank_threads.h"
#include "worker/train/step_report.h"

namespace weft {
namespace {

// Copies as late as the contract of Device allows, where the CPU copies at once: what relies on
// more than the contract breaks here.
class LateDevice : public PassingDevice {
 public:
  using PassingDevice::PassingDevice;

  void Fetch(View to, View from_host) override { queued_.push_back({to, from_host, true}); }
  void Store(View to_host, View from) override { queued_.push_back({to_host, from, false}); }
  void AwaitTransfers() override { CopyAll(); }
  void CopyIn(View to, const void* from_host) override {
    CopyAll();
    inner_.CopyIn(to, from_host);
  }
  void CopyOut(void* to_host, View from) override {
    CopyAll();
    inner_.CopyOut(to_host, from);
  }
  BackendStatus Synchronize() override {
    CopyAll();
    return inner_.Synchronize();
  }

 private:
  void CopyAll() {
    for (const Transfer& each : queued_) {
      each.is_fetch ? inner_.Fetch(each.to, each.from) : inner_.Store(each.to, each.from);
    }
    queued_.clear();
  }

  struct Transfer {
    View to, from;
    bool is_fetch = false;
  };
  std::vector<Transfer> queued_;
};

Layout Offloaded(Layout layout) {
  layout.offload_optimizer = OffloadDevice::kCpu;
  return layout;
}

template <typename Wrapper>
TrainingOutcome TrainOn(const JobSpec& job, const Layout& layout, const std::string& run_folder) {
  RankThreads run;
  run.assignment = {.job = job, .layout = layout, .run_folder = run_folder, .load_checkpoint = ""};
  run.wrap_device = [](int, Device& inner) { return std::make_unique<Wrapper>(inner); };
  return Train(run);
}

void ExpectTheSameBits(const TrainingOutcome& outcome, const TrainingOutcome& expected) {
  ASSERT_EQ(outcome.status(), absl::OkStatus());
  EXPECT_EQ(Bits(outcome.reports.front()), Bits(expected.reports.front()));
  EXPECT_EQ(outcome.weights, expected.weights);
  EXPECT_EQ(outcome.gradients, expected.gradients);
}

struct OffloadCase {
  const char* name;
  OptimizerSpec optimizer;
  Precision precision = Precision::kFp32;
};

void PrintTo(const OffloadCase& c, std::ostream* out) {
  *out << c.name;
}

std::vector<OffloadCase> Cases() {
  const OptimizerSpec adamw = {.lr = 1e-3, .weight_decay = 0.1};
  const OptimizerSpec quantised = {.name = OptimizerKind::kAdamw8bit, .lr = 1e-3};
  const OptimizerSpec lion = {.name = OptimizerKind::kLion, .lr = 3e-4, .beta2 = 0.99};
  const OptimizerSpec sgd = {.name = OptimizerKind::kSgd, .lr = 0.02};
  OptimizerSpec momentum = sgd;
  momentum.momentum = 0.9;
  return {{"adamw", adamw},
          {"adamw_bf16", adamw, Precision::kBf16},
          {"adamw_fp16", adamw, Precision::kFp16},
          {"adamw_8bit", quantised},
          {"adamw_8bit_bf16", quantised, Precision::kBf16},
          {"lion_bf16", lion, Precision::kBf16},
          {"momentum", momentum},
          {"sgd_bf16", sgd, Precision::kBf16}};
}

class Offload : public testing::TestWithParam<OffloadCase> {
 protected:
  // A global batch that 2, 3 and 4 data ranks divide; sizes that 3 does not.
  Offload() {
    job_.optimizer = GetParam().optimizer;
    job_.training.mixed_precision = GetParam().precision;
    job_.cluster.device.peak_flops_per_s = {.fp32 = 1e9, .bf16 = 1e9};
    job_.fp16.initial_scale_power = 25;  // overflows at first: steps that change nothing
    job_.fp16.hysteresis = 1;
    job_.training.global_batch_size = 12;
    job_.training.steps = 6;
    job_.checkpoint.interval = 3;
    layouts_ = ZeroLayouts(job_);
    layouts_.insert(layouts_.begin(),
                    {MakeLayout(1, 1, 1, k1f1b, 4, job_), MakeLayout(1, 2, 4, k1f1b, 4, job_)});
  }

  const TestFolder folder_;
  JobSpec job_ = SmallJob(folder_.path());
  std::vector<Layout> layouts_;
};

TEST_P(Offload, TrainsTheSameBitsInThePlannedMemory) {
  for (const Layout& layout : layouts_) {
    SCOPED_TRACE(LayoutText(layout));
    const TrainingOutcome plain = TrainWith(job_, layout, folder_.Make("plain"));
    ASSERT_EQ(plain.status(), absl::OkStatus());
    if (GetParam().precision == Precision::kFp16) {
      const StepReport& last = plain.reports.front().back();
      ASSERT_GT(last.skipped_steps, 0) << "the test would prove little";
      ASSERT_FALSE(last.skipped) << "the test would prove little";
    }
    const TrainingOutcome offloaded =
        TrainOn<LateDevice>(job_, Offloaded(layout), folder_.Make("offloaded"));
    ExpectTheSameBits(offloaded, plain);
    EXPECT_EQ(offloaded.allocated_bytes, offloaded.planned_bytes);
  }
}

TEST_P(Offload, ContinuesWhatTrainedWithoutItAndTheOtherWayRound) {
  for (const Layout& layout : {layouts_[0], layouts_[2], layouts_[4]}) {
    SCOPED_TRACE(LayoutText(layout));
    const std::string run_folder = folder_.Make("plain");
    const TrainingOutcome plain = TrainWith(job_, layout, run_folder);
    ASSERT_EQ(plain.status(), absl::OkStatus());
    const std::string other_folder = folder_.Make("offloaded");
    ASSERT_EQ(TrainWith(job_, Offloaded(layout), other_folder).status(), absl::OkStatus());
    const std::vector<std::string> bits = Bits(plain.reports.front());
    const std::vector<std::string> tail(bits.begin() + 3, bits.end());
    const std::string step = "/checkpoint/step-3";
    for (const TrainingOutcome& resumed :
         {TrainWith(job_, Offloaded(layout), folder_.Make("to"), run_folder + step),
          TrainWith(job_, layout, folder_.Make("from"), other_folder + step),
          TrainWith(job_, Offloaded(layout), folder_.Make("both"), other_folder + step)}) {
      ASSERT_EQ(resumed.status(), absl::OkStatus());
      EXPECT_EQ(Bits(resumed.reports.front()), tail);
      EXPECT_EQ(resumed.weights, plain.weights);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Offload, testing::ValuesIn(Cases()),
                         [](const auto& tested) { return std::string(tested.param.name); });

// A block's part is more than a stretch: it is cut in the middle of its tensors, and of a block of
// states in 8 bits never.
TEST(OffloadedStretches, CutABlockThatIsLargerThanOne) {
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.model.hidden_size = 640;
  job.model.num_heads = 10;
  job.model.num_kv_heads = 10;
  job.model.head_dim = 64;
  job.model.ffn_size = 2564;
  job.model.num_blocks = 1;
  job.optimizer.name = OptimizerKind::kAdamw8bit;
  job.training.seq_len = 8;
  job.training.global_batch_size = 1;
  job.training.steps = 2;
  ASSERT_GT(ParameterCount(job.model), kMostStagedElements + 256 * 640);
  const Layout layout = MakeLayout(1, 1, 1, k1f1b, 1, job);
  const TrainingOutcome plain = TrainWith(job, layout, folder.Make("plain"));
  ASSERT_EQ(plain.status(), absl::OkStatus());
  ExpectTheSameBits(TrainOn<LateDevice>(job, Offloaded(layout), folder.Make("late")), plain);
}

// ---- the comparison bites

class LosingDevice : public PassingDevice {
 public:
  using PassingDevice::PassingDevice;
  void Store(View to_host, View from) override {
    if (++stores_ != 4) inner_.Store(to_host, from);
  }

 private:
  int stores_ = 0;
};

class ImpatientDevice final : public LateDevice {
 public:
  using LateDevice::LateDevice;
  void AwaitTransfers() override {
    if (++awaits_ % 3 != 0) LateDevice::AwaitTransfers();
  }

 private:
  int awaits_ = 0;
};

TEST(OffloadTest, SeesAStateThatDoesNotComeBackAndAStretchThatIsNotAwaited) {
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.training.steps = 3;
  const Layout layout = MakeLayout(1, 1, 1, k1f1b, 2, job);
  const TrainingOutcome plain = TrainWith(job, layout, folder.Make("plain"));
  ASSERT_EQ(plain.status(), absl::OkStatus());
  const TrainingOutcome loses = TrainOn<LosingDevice>(job, Offloaded(layout), folder.Make("loses"));
  ASSERT_EQ(loses.status(), absl::OkStatus());
  EXPECT_FALSE(loses.weights == plain.weights);
  const TrainingOutcome impatient =
      TrainOn<ImpatientDevice>(job, Offloaded(layout), folder.Make("impatient"));
  ASSERT_EQ(impatient.status(), absl::OkStatus());
  EXPECT_FALSE(impatient.weights == plain.weights);
}

}  // namespace
}  // namespace weft
