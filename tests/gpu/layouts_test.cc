// Whole training jobs on the CUDA backend, with up to eight ranks on one device, against one rank
// on the CPU backend: the same losses, and gradients that differ by rounding alone.
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "plan/spec/layout_text.h"
#include "tests/gpu/opened_ranks.h"
#include "tests/gpu/tested_api.h"
#include "tests/worker/passing_backend.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

TrainingOutcome TrainOnCuda(const JobSpec& job, const Layout& layout, const std::string& folder,
                            TransportKind transport = TransportKind::kLocal) {
  OpenedRanks ranks(layout.world_size(), transport, {.deterministic = job.deterministic});
  return TrainOn(ranks, job, layout, folder);
}

// Counts the forward calls of attention, over packed documents, whose number is known and whose is
// not: those of microbatches that have too many.
struct AttentionCalls {
  int64_t bounded = 0;
  int64_t beyond = 0;
};
class CountingDevice final : public PassingDevice {
 public:
  CountingDevice(Device& inner, AttentionCalls& calls) : PassingDevice(inner), calls_(calls) {}
  void Attention(const AttentionShape& shape, View q, View k, View v, View first_visible, View o,
                 View lse, View scratch) override {
    ++(shape.documents > 0 ? calls_.bounded : calls_.beyond);
    PassingDevice::Attention(shape, q, k, v, first_visible, o, lse, scratch);
  }

 private:
  AttentionCalls& calls_;
};

// Trains as a worker does, in the memory of its plan.
TrainingOutcome TrainCounting(JobSpec job, const Layout& layout, const std::string& folder,
                              std::vector<AttentionCalls>& calls) {
  job.cluster.device.backend = BackendKind::kCuda;
  calls.assign(static_cast<size_t>(layout.world_size()), {});
  OpenedRanks ranks(layout.world_size(), TransportKind::kLocal, {});
  ranks.SetStarts(layout);
  RankThreads run;
  run.assignment = {.job = job, .layout = layout, .run_folder = folder, .load_checkpoint = ""};
  run.wrap_device = [&](int rank, Device&) -> std::unique_ptr<Device> {
    ranks.OpenDevice(rank);
    return std::make_unique<CountingDevice>(ranks.device(rank), calls[static_cast<size_t>(rank)]);
  };
  run.wrap_comm = [&](int rank, Comm&) { return ranks.OpenComm(rank); };
  run.timeout_ms = 60000;
  return Train(run);
}

struct LayoutCase {
  const char* name;
  Architecture architecture;
  int dp, tp, pp;
};

class CudaLayouts : public ::testing::TestWithParam<LayoutCase> {};

// The bounds of tests/parity, where layouts differ by the order of sums as much as devices do.
// Gradients are those of the first step: AdamW's first updates are of one size whatever the
// gradient's, so that what is rounding in a small one is not any more two steps later.
TEST_P(CudaLayouts, TrainAsOneRankOnTheCpuDoes) {
  if (TestedApi() == nullptr) GTEST_SKIP() << "no CUDA device here";
  const LayoutCase& c = GetParam();
  const TestFolder folder;
  JobSpec job = TinyJob(folder, c.architecture);
  const Layout one = MakeLayout(1, 1, 1, ScheduleKind::kOneForwardOneBackward, 1, job);
  const Layout layout = MakeLayout(c.dp, c.tp, c.pp, ScheduleKind::kOneForwardOneBackward, 1, job);
  const TrainingOutcome cpu = TrainWith(job, one, folder.Make("cpu"));
  ASSERT_TRUE(cpu.status().ok()) << cpu.status();
  const TrainingOutcome cuda = TrainOnCuda(job, layout, folder.Make("cuda"));
  ASSERT_TRUE(cuda.status().ok()) << cuda.status();
  EXPECT_LT(RelativeDifference(cuda.losses(), cpu.losses()), 1e-6);
  EXPECT_LT(RelativeDifference(cuda.grad_norms(), cpu.grad_norms()), 1e-5);
  EXPECT_EQ(cuda.allocated_bytes, cuda.planned_bytes) << "the arena is the plan";
  job.training.steps = 1;
  EXPECT_LT(GradientDifference(TrainOnCuda(job, layout, folder.Make("cuda, one step")),
                               TrainWith(job, one, folder.Make("cpu, one step"))),
            2e-6);
}

// NCCL refuses ranks of one process that share a device, but the one that stands in for it does
// not; its f32 sums are in rank order, as those over mapped memory are.
TEST_P(CudaLayouts, GiveTheSameBitsOverNccl) {
  if (TestedApi() == nullptr) GTEST_SKIP() << "no CUDA device here";
  if (std::string(TestedApi()->name) == "cuda") GTEST_SKIP() << "NCCL is real here";
  const LayoutCase& c = GetParam();
  if (c.dp * c.tp * c.pp == 1) GTEST_SKIP() << "nothing moves";
  const TestFolder folder;
  JobSpec job = TinyJob(folder, c.architecture);
  job.deterministic = true;
  const Layout layout = MakeLayout(c.dp, c.tp, c.pp, ScheduleKind::kOneForwardOneBackward, 1, job);
  const TrainingOutcome mapped = TrainOnCuda(job, layout, folder.Make("mapped"));
  const TrainingOutcome nccl = TrainOnCuda(job, layout, folder.Make("nccl"), TransportKind::kNccl);
  ASSERT_TRUE(mapped.status().ok()) << mapped.status();
  ASSERT_TRUE(nccl.status().ok()) << nccl.status();
  EXPECT_EQ(Bits(mapped.reports.front()), Bits(nccl.reports.front()));
  EXPECT_EQ(mapped.weights, nccl.weights);
}

// The emulated cuBLASLt has another favourite each time that it is opened.
TEST_P(CudaLayouts, GiveTheSameBitsAgainWhereDeterministic) {
  if (TestedApi() == nullptr) GTEST_SKIP() << "no CUDA device here";
  const LayoutCase& c = GetParam();
  const TestFolder folder;
  JobSpec job = TinyJob(folder, c.architecture);
  job.deterministic = true;
  const Layout layout = MakeLayout(c.dp, c.tp, c.pp, ScheduleKind::kOneForwardOneBackward, 1, job);
  const TrainingOutcome first = TrainOnCuda(job, layout, folder.Make("first"));
  ASSERT_TRUE(first.status().ok()) << first.status();
  const TrainingOutcome second = TrainOnCuda(job, layout, folder.Make("second"));
  EXPECT_EQ(Bits(first.reports.front()), Bits(second.reports.front()));
  EXPECT_EQ(first.weights, second.weights);
}

// Copies from and to pinned memory run beside the update here.
TEST_P(CudaLayouts, GiveTheSameBitsWithStatesOnTheHost) {
  if (TestedApi() == nullptr) GTEST_SKIP() << "no CUDA device here";
  const LayoutCase& c = GetParam();
  const TestFolder folder;
  JobSpec job = TinyJob(folder, c.architecture);
  job.deterministic = true;
  Layout layout = MakeLayout(c.dp, c.tp, c.pp, ScheduleKind::kOneForwardOneBackward, 1, job);
  layout.zero_stage = c.dp > 1 ? 1 : 0;
  for (const OptimizerKind optimizer : {OptimizerKind::kAdamw, OptimizerKind::kAdamw8bit}) {
    job.optimizer.name = optimizer;
    layout.offload_optimizer = OffloadDevice::kNone;
    const TrainingOutcome plain = TrainOnCuda(job, layout, folder.Make("plain"));
    ASSERT_TRUE(plain.status().ok()) << plain.status();
    layout.offload_optimizer = OffloadDevice::kCpu;
    const TrainingOutcome offloaded = TrainOnCuda(job, layout, folder.Make("offloaded"));
    ASSERT_TRUE(offloaded.status().ok()) << offloaded.status();
    EXPECT_EQ(Bits(offloaded.reports.front()), Bits(plain.reports.front()));
    EXPECT_EQ(offloaded.weights, plain.weights);
    EXPECT_EQ(offloaded.allocated_bytes, offloaded.planned_bytes) << "the arena is the plan";
  }
}

JobSpec JobForCudnn(const TestFolder& folder) {
  JobSpec job = TinyJob(folder, Architecture::kLlama);
  job.model.num_heads = 2;
  job.model.num_kv_heads = 1;
  job.model.head_dim = 64;
  job.training.mixed_precision = Precision::kBf16;
  return job;
}

// In bf16, with heads of 64. The bound is that of one rounding in 16 bits.
TEST(CudnnInTraining, HasTheScratchItNeedsAndLosesLittle) {
  if (TestedApi() == nullptr) GTEST_SKIP() << "no CUDA device here";
  const TestFolder folder;
  const JobSpec job = JobForCudnn(folder);
  const Layout layout = MakeLayout(1, 1, 1, ScheduleKind::kOneForwardOneBackward, 1, job);
  const TrainingOutcome cpu = TrainWith(job, layout, folder.Make("cpu"));
  ASSERT_TRUE(cpu.status().ok()) << cpu.status();
  std::vector<AttentionCalls> calls;
  const TrainingOutcome cuda = TrainCounting(job, layout, folder.Make("cuda"), calls);
  ASSERT_TRUE(cuda.status().ok()) << cuda.status();
  const std::string& attention = cuda.attention.front();
  for (const char* const lacks : {"cuDNN does not load", "no multiple of 128"}) {
    if (attention.find(lacks) != std::string::npos) GTEST_SKIP() << attention;
  }
  EXPECT_EQ(attention.substr(0, 8), "cuDNN 9.") << attention;
  EXPECT_EQ(attention.find("own"), std::string::npos) << attention;
  EXPECT_LT(RelativeDifference(cuda.losses(), cpu.losses()), 4e-3);
  EXPECT_LT(RelativeDifference(cuda.grad_norms(), cpu.grad_norms()), 1e-2);
  EXPECT_EQ(cuda.allocated_bytes, cuda.planned_bytes);
}

// Two ranks with two runs each of 128 positions. The bounds are those of whole sequences.
TEST(CudnnInTraining, TakesTheRunsOfContextParallelismWithTheScratchThatThePlanHas) {
  if (TestedApi() == nullptr) GTEST_SKIP() << "no CUDA device here";
  const TestFolder folder;
  JobSpec job = JobForCudnn(folder);
  job.model.num_blocks = 1;
  job.model.max_positions = job.training.seq_len = 512;
  job.training.global_batch_size = 2;
  job.training.steps = 2;
  const Layout one = MakeLayout(1, 1, 1, ScheduleKind::kOneForwardOneBackward, 1, job);
  Layout layout = one;
  layout.cp = 2;
  const TrainingOutcome cpu = TrainWith(job, one, folder.Make("cpu"));
  ASSERT_TRUE(cpu.status().ok()) << cpu.status();
  std::vector<AttentionCalls> calls;
  const TrainingOutcome cuda = TrainCounting(job, layout, folder.Make("cuda"), calls);
  ASSERT_TRUE(cuda.status().ok()) << cuda.status();
  for (const std::string& attention : cuda.attention) {
    if (attention.find("cuDNN does not load") != std::string::npos) GTEST_SKIP() << attention;
    EXPECT_EQ(attention.substr(0, 8), "cuDNN 9.") << attention;
    EXPECT_EQ(attention.find("own"), std::string::npos) << attention;
  }
  EXPECT_LT(RelativeDifference(cuda.losses(), cpu.losses()), 4e-3);
  EXPECT_LT(RelativeDifference(cuda.grad_norms(), cpu.grad_norms()), 1e-2);
  EXPECT_EQ(cuda.allocated_bytes, cuda.planned_bytes);
}

// Words are documents: a sample of 16 bytes has up to four of them, which cuDNN takes, or more,
// which it does not. Gradients of one step, of which each microbatch takes a way of its own, and
// with recompute takes it twice.
TEST(CudnnInTraining, TakesPackedDocumentsAndLeavesMicrobatchesOfTooManyToOwnKernels) {
  if (TestedApi() == nullptr) GTEST_SKIP() << "no CUDA device here";
  const TestFolder folder;
  JobSpec job = JobForCudnn(folder);
  job.data.eos_token_id = ' ';
  job.data.reset_attention_mask = true;
  job.validation = {.interval = 2, .steps = 1};
  Layout single = MakeLayout(1, 1, 1, ScheduleKind::kOneForwardOneBackward, 1, job);
  Layout split = MakeLayout(1, 1, 2, ScheduleKind::kZeroBubbleH1, 1, job);
  split.recompute = Recompute::kFull;
  for (const Layout& layout : {single, split}) {
    const std::string name = LayoutText(layout);
    SCOPED_TRACE(name);
    const TrainingOutcome cpu = TrainWith(job, layout, folder.Make(name + " cpu"));
    ASSERT_TRUE(cpu.status().ok()) << cpu.status();
    std::vector<AttentionCalls> calls;
    const TrainingOutcome cuda = TrainCounting(job, layout, folder.Make(name), calls);
    ASSERT_TRUE(cuda.status().ok()) << cuda.status();
    const std::string& attention = cuda.attention.front();
    for (const char* const lacks : {"cuDNN does not load", "before 9.18.1", "compute capability"}) {
      if (attention.find(lacks) != std::string::npos) GTEST_SKIP() << attention;
    }
    EXPECT_EQ(attention.substr(0, 8), "cuDNN 9.") << attention;
    EXPECT_NE(attention.find(" up to 4 documents a microbatch; beyond, kernels of weft's own: "),
              std::string::npos)
        << attention;
    for (const AttentionCalls& of_rank : calls) {
      EXPECT_GT(of_rank.bounded, 0);
      EXPECT_GT(of_rank.beyond, 0);
    }
    EXPECT_LT(RelativeDifference(cuda.losses(), cpu.losses()), 4e-3);
    EXPECT_LT(RelativeDifference(cuda.grad_norms(), cpu.grad_norms()), 1e-2);
    EXPECT_EQ(cuda.allocated_bytes, cuda.planned_bytes) << "the arena is the plan";
  }
}

// A fused operation leaves out roundings, each of half a unit of 16 bits.
TEST(CudaInBf16, TrainsGpt2AsTheCpuDoes) {
  if (TestedApi() == nullptr) GTEST_SKIP() << "no CUDA device here";
  const TestFolder folder;
  JobSpec job = TinyJob(folder, Architecture::kGpt2);
  job.training.mixed_precision = Precision::kBf16;
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    Layout layout = MakeLayout(1, 1, 1, ScheduleKind::kOneForwardOneBackward, 1, job);
    layout.recompute = recompute;
    const TrainingOutcome cpu = TrainWith(job, layout, folder.Make("cpu"));
    ASSERT_TRUE(cpu.status().ok()) << cpu.status();
    const TrainingOutcome cuda = TrainOnCuda(job, layout, folder.Make("cuda"));
    ASSERT_TRUE(cuda.status().ok()) << cuda.status();
    EXPECT_LT(RelativeDifference(cuda.losses(), cpu.losses()), 4e-3);
    EXPECT_LT(RelativeDifference(cuda.grad_norms(), cpu.grad_norms()), 4e-3);
    EXPECT_EQ(cuda.allocated_bytes, cuda.planned_bytes) << "the arena is the plan";
  }
}

// Sums over tp are of 16-bit elements. In rank order they have the bits of those over mapped
// memory; NCCL's own round after each of three additions. Losses and norms are then off by what
// three roundings of half a unit, 2^-9, come to: the mean over many elements hides the rest.
TEST(CudaInBf16, HasTheSameBitsOverNcclInRankOrderAndIsAFewRoundingsOffElsewhere) {
  if (TestedApi() == nullptr) GTEST_SKIP() << "no CUDA device here";
  if (std::string(TestedApi()->name) == "cuda") GTEST_SKIP() << "NCCL is real here";
  const TestFolder folder;
  JobSpec job = TinyJob(folder, Architecture::kGpt2);
  job.training.mixed_precision = Precision::kBf16;
  job.training.steps = 1;
  job.deterministic = true;
  Layout plain = MakeLayout(1, 4, 1, ScheduleKind::kOneForwardOneBackward, 1, job);
  Layout sequence_parallel = plain;
  sequence_parallel.sequence_parallel = true;
  for (const Layout& layout : {plain, sequence_parallel}) {
    const std::string name = LayoutText(layout);
    SCOPED_TRACE(name);
    job.deterministic = true;
    const TrainingOutcome mapped = TrainOnCuda(job, layout, folder.Make(name + " mapped"));
    const TrainingOutcome nccl =
        TrainOnCuda(job, layout, folder.Make(name + " nccl"), TransportKind::kNccl);
    ASSERT_TRUE(mapped.status().ok()) << mapped.status();
    ASSERT_TRUE(nccl.status().ok()) << nccl.status();
    EXPECT_EQ(Bits(mapped.reports.front()), Bits(nccl.reports.front()));
    EXPECT_EQ(mapped.weights, nccl.weights);
    job.deterministic = false;
    const TrainingOutcome own =
        TrainOnCuda(job, layout, folder.Make(name + " own"), TransportKind::kNccl);
    ASSERT_TRUE(own.status().ok()) << own.status();
    EXPECT_LT(RelativeDifference(own.losses(), mapped.losses()), 3 * 0x1p-9);
    EXPECT_LT(RelativeDifference(own.grad_norms(), mapped.grad_norms()), 3 * 0x1p-9);
  }
}

// Gradients travel in 16 bits. Against the CPU backend a sum may be rounded to the other side where
// what is summed differs by its own rounding; over NCCL in rank order the bits are those over
// mapped memory, and NCCL's own sums of three are off by two roundings of half a unit more.
TEST(CudaReduceDtype, ReducesGradientsInBf16AsTheCpuDoes) {
  if (TestedApi() == nullptr) GTEST_SKIP() << "no CUDA device here";
  const TestFolder folder;
  JobSpec job = TinyJob(folder, Architecture::kGpt2);
  job.training.reduce_dtype = ReduceDtype::kBf16;
  job.training.global_batch_size = 6;
  for (const int zero_stage : {0, 1, 2, 3}) {
    Layout layout = MakeLayout(3, 1, 1, ScheduleKind::kOneForwardOneBackward, 1, job);
    layout.zero_stage = zero_stage;
    const std::string name = LayoutText(layout);
    SCOPED_TRACE(name);
    job.deterministic = true;
    const TrainingOutcome cpu = TrainWith(job, layout, folder.Make(name + " cpu"));
    ASSERT_TRUE(cpu.status().ok()) << cpu.status();
    const TrainingOutcome mapped = TrainOnCuda(job, layout, folder.Make(name + " mapped"));
    ASSERT_TRUE(mapped.status().ok()) << mapped.status();
    EXPECT_LT(RelativeDifference(mapped.losses(), cpu.losses()), 2e-4);
    EXPECT_LT(RelativeDifference(mapped.grad_norms(), cpu.grad_norms()), 8e-3);
    EXPECT_EQ(mapped.allocated_bytes, mapped.planned_bytes) << "the arena is the plan";
    if (std::string(TestedApi()->name) == "cuda") continue;  // NCCL is real there
    const TrainingOutcome nccl =
        TrainOnCuda(job, layout, folder.Make(name + " nccl"), TransportKind::kNccl);
    ASSERT_TRUE(nccl.status().ok()) << nccl.status();
    EXPECT_EQ(Bits(nccl.reports.front()), Bits(mapped.reports.front()));
    EXPECT_EQ(nccl.weights, mapped.weights);
    job.deterministic = false;
    const TrainingOutcome own =
        TrainOnCuda(job, layout, folder.Make(name + " own"), TransportKind::kNccl);
    ASSERT_TRUE(own.status().ok()) << own.status();
    EXPECT_LT(RelativeDifference(own.losses(), cpu.losses()), 2e-4);
    EXPECT_LT(RelativeDifference(own.grad_norms(), cpu.grad_norms()), 8e-3 + 2 * 0x1p-9);
  }
}

// Bounds of tests/worker/state/fp8_test.cc: devices differ by the order of sums before a rounding
// to bf16.
TEST(CudaFp8, TrainsAsOneRankOnTheCpuDoes) {
  if (TestedApi() == nullptr) GTEST_SKIP() << "no CUDA device here";
  const TestFolder folder;
  const DeviceOptions asks_for_fp8 = {.share_devices = true, .fp8 = true};
  Device* device = nullptr;
  const BackendStatus offered = TestedApi()->open_device(&asks_for_fp8, &device);
  if (!offered.ok()) GTEST_SKIP() << offered.text;
  TestedApi()->close_device(device);
  JobSpec job = TinyJob(folder, Architecture::kLlama);
  job.training.mixed_precision = Precision::kFp8;
  job.training.steps = 1;
  job.deterministic = true;
  const Layout single = MakeLayout(1, 1, 1, ScheduleKind::kOneForwardOneBackward, 1, job);
  const TrainingOutcome cpu = TrainWith(job, single, folder.Make("cpu"));
  ASSERT_TRUE(cpu.status().ok()) << cpu.status();
  Layout cut = MakeLayout(2, 2, 1, ScheduleKind::kOneForwardOneBackward, 1, job);
  cut.zero_stage = 1;
  const Layout split = MakeLayout(1, 1, 2, ScheduleKind::kZeroBubbleH1, 1, job);
  for (const Layout& layout : {single, cut, split}) {
    const std::string name = LayoutText(layout);
    const TrainingOutcome cuda = TrainOnCuda(job, layout, folder.Make(name));
    ASSERT_TRUE(cuda.status().ok()) << name << cuda.status();
    EXPECT_LT(GradientDifference(cuda, cpu), 0x1p-3) << name;
    EXPECT_LT(RelativeDifference(cuda.losses(), cpu.losses()), 0x1p-8 / 4) << name;
    EXPECT_EQ(cuda.allocated_bytes, cuda.planned_bytes) << name;
    EXPECT_EQ(Bits(TrainOnCuda(job, layout, folder.Make(name + " again")).reports.front()),
              Bits(cuda.reports.front()))
        << name;
  }
}

// Its sums go over all axes, and each rank has parts of tensors.
TEST(CudaAdafactor, TrainsAsOneRankOnTheCpuDoes) {
  if (TestedApi() == nullptr) GTEST_SKIP() << "no CUDA device here";
  const TestFolder folder;
  JobSpec job = TinyJob(folder, Architecture::kGpt2);
  job.optimizer = {.name = OptimizerKind::kAdafactor, .lr = 5e-4};
  const Layout single = MakeLayout(1, 1, 1, ScheduleKind::kOneForwardOneBackward, 1, job);
  const TrainingOutcome cpu = TrainWith(job, single, folder.Make("cpu"));
  ASSERT_TRUE(cpu.status().ok()) << cpu.status();
  Layout layout = MakeLayout(2, 2, 2, ScheduleKind::kOneForwardOneBackward, 1, job);
  layout.zero_stage = 1;
  const TrainingOutcome cuda = TrainOnCuda(job, layout, folder.Make("cuda"));
  ASSERT_TRUE(cuda.status().ok()) << cuda.status();
  EXPECT_LT(RelativeDifference(cuda.losses(), cpu.losses()), 1e-6);
  EXPECT_LT(RelativeDifference(cuda.grad_norms(), cpu.grad_norms()), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(All, CudaLayouts,
                         ::testing::Values(LayoutCase{"Gpt2", Architecture::kGpt2, 1, 1, 1},
                                           LayoutCase{"Llama", Architecture::kLlama, 1, 1, 1},
                                           LayoutCase{"Gpt2Dp2", Architecture::kGpt2, 2, 1, 1},
                                           LayoutCase{"LlamaTp2", Architecture::kLlama, 1, 2, 1},
                                           LayoutCase{"Gpt2Pp2", Architecture::kGpt2, 1, 1, 2},
                                           LayoutCase{"Gpt2Dp2Tp2Pp2", Architecture::kGpt2, 2, 2,
                                                      2}),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace weft
