// How often the host calls the driver to queue the work of a step: with CUDA graphs once for the
// blocks of a pass, whatever their kernels.
#include <memory>

#include "gtest/gtest.h"
#include "tests/gpu/opened_ranks.h"
#include "tests/worker/rank_threads.h"
#include "worker/backend/cuda/device_cuda.h"

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
  JobSpec job = TinyJob(folder, ModelFamily::kGpt2);
  job.model.num_blocks = num_blocks;
  job.training.global_batch_size = kMicrobatches;
  job.training.steps = steps;
  job.deterministic = true;
  const Layout layout = MakeLayout(1, 1, 1, ScheduleKind::kOneForwardOneBackward, 1, job);
  OpenedRanks ranks(1, TransportKind::kLocal, {.deterministic = true, .replays = replays});
  EXPECT_EQ(TrainOn(ranks, job, layout, folder.Make("run")).status(), absl::OkStatus());
  const cudaStream_t stream = QueueOf(ranks.device(0)).stream;
  return {.host_calls = stream->host_calls, .captures = stream->captures};
}

// Of a step in which all is replayed that can be.
int64_t CallsOfStep(int64_t num_blocks, bool replays) {
  return CallsOf(num_blocks, 4, replays).host_calls - CallsOf(num_blocks, 3, replays).host_calls;
}

// Of the tensors of a block, each is updated by a kernel, and has squares that are summed by two
// and copied to the host.
constexpr int64_t kTensors = 16;  // GPT-2's
constexpr int64_t kUpdateCalls = 4 * kTensors;

TEST(HostCalls, OfAReplayedPassAreOneWhateverTheBlocks) {
  const auto calls_of_a_block = [](bool replays) {
    return CallsOfStep(3, replays) - CallsOfStep(2, replays);
  };
  EXPECT_EQ(calls_of_a_block(/*replays=*/true), kUpdateCalls);
  EXPECT_GT(calls_of_a_block(/*replays=*/false), kUpdateCalls + kMicrobatches * 50);
}

TEST(HostCalls, CaptureNothingUnlessAsked) {
  EXPECT_EQ(CallsOf(2, 3, /*replays=*/false).captures, 0);
  EXPECT_EQ(CallsOf(2, 3, /*replays=*/true).captures, 2);
}

}  // namespace
}  // namespace weft
