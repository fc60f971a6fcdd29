// These tests count what the host does for a step: how often it calls the driver to queue work,
// with CUDA graphs once for the blocks of a pass whatever their kernels; and how often it waits for
// the device, once.
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tests/gpu/opened_ranks.h"
#include "tests/worker/rank_threads.h"
#include "worker/backend/cuda/device_cuda.h"
#include "worker/backend/updates.h"

namespace weft {
namespace {

constexpr int64_t kMicrobatches = 4;

struct Called {
  int64_t host_calls = 0;
  int64_t captures = 0;
};

// By one rank, for so many steps and what goes before and after them.
Called CallsOf(int64_t num_blocks, int64_t steps, bool replays) {
  const TestFolder folder;
  JobSpec job = TinyJob(folder, Architecture::kGpt2);
  job.model.num_blocks = num_blocks;
  job.training.global_batch_size = kMicrobatches;
  job.training.steps = steps;
  job.deterministic = true;
  const Layout layout = MakeLayout(1, 1, 1, k1f1b, 1, job);
  OpenedRanks ranks(1, TransportKind::kLocal, {.deterministic = true, .replays = replays});
  EXPECT_EQ(TrainOn(ranks, job, layout, folder.Make("run")).status(), absl::OkStatus());
  const cudaStream_t stream = QueueOf(ranks.device(0)).stream;
  return {.host_calls = stream->host_calls, .captures = stream->captures};
}

// Counts the calls of a step in which all is replayed that can be.
int64_t CallsOfStep(int64_t num_blocks, bool replays) {
  return CallsOf(num_blocks, 4, replays).host_calls - CallsOf(num_blocks, 3, replays).host_calls;
}

// The update makes no more calls for more blocks, as its tables of tensors hold those of all blocks
// here.
TEST(HostCalls, OfAReplayedStepAreAsManyWhateverTheBlocks) {
  const auto calls_of_a_block = [](bool replays) {
    return CallsOfStep(3, replays) - CallsOfStep(2, replays);
  };
  EXPECT_EQ(calls_of_a_block(/*replays=*/true), 0);
  EXPECT_GT(calls_of_a_block(/*replays=*/false), kMicrobatches * 30);
}

TEST(HostCalls, CaptureNothingUnlessAsked) {
  EXPECT_EQ(CallsOf(2, 3, /*replays=*/false).captures, 0);
  EXPECT_EQ(CallsOf(2, 3, /*replays=*/true).captures, 2);
}

struct StepCase {
  const char* name;
  Architecture architecture;
  Precision precision;
  int64_t microbatches;
  int64_t queued, replayed;  // calls of a step, kernel by kernel and with graphs
};

class HostCallsOfAStep : public ::testing::TestWithParam<StepCase> {};

// The step is of four blocks on one rank; widths do not count. The table is in bench/README.md.
TEST_P(HostCallsOfAStep, AreThoseOfTheTable) {
  const StepCase& c = GetParam();
  const auto calls_of = [&](int64_t steps, bool replays) {
    const TestFolder folder;
    JobSpec job = TinyJob(folder, c.architecture);
    job.model.num_blocks = 4;
    job.training.global_batch_size = c.microbatches;
    job.training.steps = steps;
    job.training.mixed_precision = c.precision;
    job.deterministic = true;
    const Layout layout = MakeLayout(1, 1, 1, k1f1b, 1, job);
    OpenedRanks ranks(
        1, TransportKind::kLocal,
        {.deterministic = true, .replays = replays, .fp8 = c.precision == Precision::kFp8});
    EXPECT_EQ(TrainOn(ranks, job, layout, folder.Make("run")).status(), absl::OkStatus());
    return QueueOf(ranks.device(0)).stream->host_calls;
  };
  EXPECT_EQ(calls_of(4, false) - calls_of(3, false), c.queued);
  EXPECT_EQ(calls_of(4, true) - calls_of(3, true), c.replayed);
}

INSTANTIATE_TEST_SUITE_P(
    All, HostCallsOfAStep,
    ::testing::Values(StepCase{"Gpt2Bf16", Architecture::kGpt2, Precision::kBf16, 1, 146, 28},
                      StepCase{"Gpt2Bf16Of4", Architecture::kGpt2, Precision::kBf16, 4, 551, 79},
                      StepCase{"LlamaBf16", Architecture::kLlama, Precision::kBf16, 1, 126, 24},
                      StepCase{"LlamaBf16Of4", Architecture::kLlama, Precision::kBf16, 4, 477, 69},
                      StepCase{"LlamaFp8", Architecture::kLlama, Precision::kFp8, 1, 326, 72},
                      StepCase{"LlamaFp8Of4", Architecture::kLlama, Precision::kFp8, 4, 1133, 117}),
    [](const auto& instance) { return std::string(instance.param.name); });

// A kernel's parameters hold 66 segments of AdamW, or 198 arrays whose squares are added; one call
// more adds up the latter's sums.
TEST(HostCalls, OfAnUpdateAreThoseOfItsTables) {
  std::unique_ptr<Device> opened;
  ASSERT_TRUE(OpenCudaDevice({}, &opened).ok());
  Device& device = *opened;
  const cudaStream_t stream = QueueOf(device).stream;
  constexpr int64_t kBytes = 64;
  void* const memory = device.Allocate(kBytes);
  const View x = {memory, 1, 4, DType::kF32};
  const View total = {static_cast<char*>(memory) + 32, 1, 1, DType::kF64};
  const AdamwSegment segment = {x, x, x, x};
  const auto calls_of = [&](const auto& work) {
    const int64_t before = stream->host_calls;
    work();
    EXPECT_TRUE(device.Synchronize().ok());
    return stream->host_calls - before;
  };
  for (const auto& [tensors, updates, sums] : {std::tuple<int64_t, int64_t, int64_t>{0, 0, 0},
                                               {1, 1, 2},
                                               {66, 1, 2},
                                               {196, 3, 2},
                                               {772, 12, 5}}) {
    const std::vector<AdamwSegment> segments(static_cast<size_t>(tensors), segment);
    const std::vector<View> views(static_cast<size_t>(tensors), x);
    EXPECT_EQ(calls_of([&] { device.updates().Adamw({.step = 1}, segments.data(), tensors); }),
              updates)
        << tensors;
    EXPECT_EQ(calls_of([&] { device.AddSumOfSquares(views.data(), tensors, total); }), sums)
        << tensors;
  }
  device.Free(memory, kBytes);
}

struct WaitCase {
  const char* name;
  TransportKind transport;
  int dp = 1;
  int tp = 1;
  int pp = 1;
  int zero_stage = 0;
  OptimizerKind optimizer = OptimizerKind::kAdamw;
  bool offloads = false;
  Precision precision = Precision::kFp32;
};

class HostWaits : public ::testing::TestWithParam<WaitCase> {
 protected:
  // By rank, up to the end of each step's passes. In the first one products are timed.
  std::vector<std::vector<int64_t>> WaitsOf(int64_t steps) {
    const WaitCase& c = GetParam();
    const TestFolder folder;
    JobSpec job = TinyJob(folder, Architecture::kGpt2);
    job.training.global_batch_size = kMicrobatches * c.dp;
    job.training.steps = steps;
    job.training.gradient_clipping = 1;
    job.training.mixed_precision = c.precision;
    job.optimizer.name = c.optimizer;
    Layout layout = MakeLayout(c.dp, c.tp, c.pp, k1f1b, 1, job);
    layout.zero_stage = c.zero_stage;
    if (c.offloads) layout.offload_optimizer = OffloadDevice::kCpu;
    OpenedRanks ranks(layout.world_size(), c.transport, {});
    std::vector<std::vector<int64_t>> waits(static_cast<size_t>(layout.world_size()));
    const auto note = [&](int rank) {
      waits[static_cast<size_t>(rank)].push_back(QueueOf(ranks.device(rank)).stream->host_waits);
    };
    EXPECT_EQ(TrainOn(ranks, job, layout, folder.Make("run"), note).status(), absl::OkStatus());
    return waits;
  }
};

// It reads the step's totals once all of the step is queued: loss, norm and whether the update was
// left out. Whatever the layout: collectives wait on the device.
TEST_P(HostWaits, OfAStepAreOne) {
  for (const std::vector<int64_t>& of_rank : WaitsOf(4)) {
    ASSERT_EQ(of_rank.size(), 4U);
    for (size_t step = 1; step < of_rank.size(); ++step) {
      EXPECT_EQ(of_rank[step] - of_rank[step - 1], 1) << "from step " << step;
    }
  }
}

constexpr auto kNccl = TransportKind::kNccl;
constexpr auto kAdamw = OptimizerKind::kAdamw;

INSTANTIATE_TEST_SUITE_P(
    All, HostWaits,
    ::testing::Values(
        WaitCase{"OneRank", TransportKind::kLocal},
        WaitCase{"OneRankFp16", TransportKind::kLocal, 1, 1, 1, 0, kAdamw, false, Precision::kFp16},
        WaitCase{"OneRankAdafactor", TransportKind::kLocal, 1, 1, 1, 0, OptimizerKind::kAdafactor},
        WaitCase{"OneRankOffloads", TransportKind::kLocal, 1, 1, 1, 0, kAdamw, true},
        WaitCase{"NcclOfOneRank", kNccl}, WaitCase{"Dp2", kNccl, 2},
        WaitCase{"Dp2Zero1", kNccl, 2, 1, 1, 1}, WaitCase{"Dp2Zero3", kNccl, 2, 1, 1, 3},
        WaitCase{"Tp2", kNccl, 1, 2}, WaitCase{"Pp2", kNccl, 1, 1, 2}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace weft
