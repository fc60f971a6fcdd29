// Whole training jobs with CUDA graphs: a step that is replayed has the bits of one that is queued
// kernel by kernel.
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/gpu/opened_ranks.h"
#include "tests/gpu/tested_api.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

struct GraphCase {
  const char* name;
  Architecture architecture;
  Precision precision;
  ScheduleKind schedule;
  int pp;
  int stretches;  // of the first rank that differ, by kind of pass, chunk and slots
  int virtual_stages = 1;
  Recompute recompute = Recompute::kNone;
  int dp = 1;
  int zero_stage = 0;
  int tp = 1;
  bool masks_documents = false;
};

class CudaGraphs : public ::testing::TestWithParam<GraphCase> {
 protected:
  Layout LayoutOf(const JobSpec& job) const {
    const GraphCase& c = GetParam();
    Layout layout = MakeLayout(c.dp, c.tp, c.pp, c.schedule, 1, job);
    layout.virtual_stages = c.virtual_stages;
    layout.recompute = c.recompute;
    layout.zero_stage = c.zero_stage;
    return layout;
  }
};

// Four steps: stretches of few slots come again within a step already, the others in the second;
// from the third on all are replayed.
TEST_P(CudaGraphs, GiveTheBitsOfSingleKernels) {
  if (TestedApi() == nullptr) GTEST_SKIP() << "no CUDA device here";
  const GraphCase& c = GetParam();
  const TestFolder folder;
  JobSpec job = TinyJob(folder, c.architecture);
  job.training.mixed_precision = c.precision;
  job.training.global_batch_size = 4 * c.dp;
  job.training.steps = 4;
  job.model.num_blocks = c.virtual_stages > 1 ? 5 : 4;
  job.deterministic = true;
  job.data.reset_attention_mask = c.masks_documents;
  const Layout layout = LayoutOf(job);
  const bool is_fp8 = c.precision == Precision::kFp8;
  const auto train = [&](bool replays, std::string* replayed) {
    OpenedRanks ranks(layout.world_size(), TransportKind::kLocal,
                      {.deterministic = true, .replays = replays, .fp8 = is_fp8});
    const TrainingOutcome outcome =
        TrainOn(ranks, job, layout, folder.Make(replays ? "replayed" : "plain"));
    EXPECT_EQ(outcome.status(), absl::OkStatus());
    *replayed = ranks.device(0).DescribeReplays();
    return outcome;
  };
  std::string replayed;
  const TrainingOutcome plain = train(false, &replayed);
  EXPECT_EQ(replayed, "");
  const TrainingOutcome graphs = train(true, &replayed);
  EXPECT_EQ(replayed, "CUDA graphs of " + std::to_string(c.stretches) + " stretches");
  EXPECT_EQ(Bits(graphs.reports.front()), Bits(plain.reports.front()));
  EXPECT_EQ(graphs.weights, plain.weights);
}

// From step to step a microbatch has another number of documents, and a kernel of cuDNN's is for so
// many: a graph is replayed for its own, or one that has too many would go by one that has not.
TEST(CudaGraphsOverDocuments, AreReplayedForTheirBoundOfDocuments) {
  if (TestedApi() == nullptr) GTEST_SKIP() << "no CUDA device here";
  const TestFolder folder;
  JobSpec job = TinyJob(folder, Architecture::kLlama);
  job.model.num_heads = 2;
  job.model.num_kv_heads = 1;
  job.model.head_dim = 64;
  job.training.mixed_precision = Precision::kBf16;
  job.training.global_batch_size = 2;
  job.training.steps = 12;
  job.data.eos_token_id = ' ';
  job.data.reset_attention_mask = true;
  job.cluster.device.backend = BackendKind::kCuda;
  const Layout layout = MakeLayout(1, 1, 1, ScheduleKind::kOneForwardOneBackward, 1, job);
  const auto train = [&](bool replays, std::string* replayed) {
    OpenedRanks ranks(1, TransportKind::kLocal, {.replays = replays});
    const TrainingOutcome outcome =
        TrainOn(ranks, job, layout, folder.Make(replays ? "replayed" : "plain"));
    EXPECT_EQ(outcome.status(), absl::OkStatus());
    *replayed = ranks.device(0).DescribeReplays();
    return outcome;
  };
  std::string replayed;
  const TrainingOutcome plain = train(false, &replayed);
  const TrainingOutcome graphs = train(true, &replayed);
  const std::string& attention = graphs.attention.front();
  for (const char* const lacks : {"cuDNN does not load", "before 9.18.1", "compute capability"}) {
    if (attention.find(lacks) != std::string::npos) GTEST_SKIP() << attention;
  }
  const int stretches = std::atoi(replayed.substr(std::string("CUDA graphs of ").size()).c_str());
  EXPECT_GT(stretches, 4) << "of two microbatches, forward and backward, there is more than one "
                             "bound: "
                          << replayed;
  EXPECT_EQ(replayed.find("failed"), std::string::npos) << replayed;
  // cuDNN itself adds up dq in no fixed order, and products are timed.
  const double bound = std::string(TestedApi()->name) == "cuda" ? 4e-3 : 1e-6;
  EXPECT_LT(RelativeDifference(graphs.losses(), plain.losses()), bound);
}

constexpr auto kGpt2 = Architecture::kGpt2;
constexpr auto kLlama = Architecture::kLlama;
constexpr auto kFp32 = Precision::kFp32;
constexpr auto kBf16 = Precision::kBf16;

INSTANTIATE_TEST_SUITE_P(
    All, CudaGraphs,
    ::testing::Values(
        GraphCase{"Gpt2", kGpt2, kFp32, k1f1b, 1, 2},
        GraphCase{"LlamaBf16", kLlama, kBf16, k1f1b, 1, 2},
        GraphCase{"Gpt2Fp8", kGpt2, Precision::kFp8, k1f1b, 1, 2},
        GraphCase{"Gpt2Bf16Pp2", kGpt2, kBf16, k1f1b, 2, 4},
        GraphCase{"LlamaGpipe", kLlama, kFp32, ScheduleKind::kGpipe, 2, 8},
        GraphCase{"Gpt2Interleaved", kGpt2, kFp32, ScheduleKind::kInterleaved, 2, 14, 2},
        GraphCase{"LlamaZeroBubble", kLlama, kBf16, ScheduleKind::kZeroBubbleH1, 2, 6},
        GraphCase{"Gpt2ZeroBubbleRecomputes", kGpt2, kFp32, ScheduleKind::kZeroBubbleH1, 2, 6, 1,
                  Recompute::kFull},
        GraphCase{"Gpt2Recomputes", kGpt2, kBf16, k1f1b, 1, 2, 1, Recompute::kSelective},
        GraphCase{"Gpt2Dp2", kGpt2, kFp32, k1f1b, 1, 2, 1, Recompute::kNone, 2},
        // With each of the four blocks of the first forward pass, which waits for its weights:
        GraphCase{"Gpt2Zero1", kGpt2, kFp32, k1f1b, 1, 6, 1, Recompute::kNone, 2, 1},
        GraphCase{"LlamaZero2", kLlama, kFp32, k1f1b, 1, 5, 1, Recompute::kNone, 2, 2},
        GraphCase{"Gpt2Zero3", kGpt2, kFp32, k1f1b, 1, 0, 1, Recompute::kNone, 2, 3},
        GraphCase{"Gpt2Tp2", kGpt2, kFp32, k1f1b, 1, 0, 1, Recompute::kNone, 1, 0, 2},
        GraphCase{"Gpt2Documents", kGpt2, kFp32, k1f1b, 1, 8, 1, Recompute::kNone, 1, 0, 1, true}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace weft
