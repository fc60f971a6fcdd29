// The list of buffers is exact from both sides: every buffer is used to its last element, nothing
// writes between two of them, and no workspace is read that its own action has not written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/memory/memory.h"
#include "plan/search/search.h"
#include "plan/shards/buckets.h"
#include "plan/spec/layout_text.h"
#include "tests/worker/painting_device.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

using ::testing::IsEmpty;

struct Watched {
  TrainingOutcome outcome;
  std::vector<std::vector<std::string>> findings;  // by rank
};

// `memory`: what the watcher takes the list to be.
template <typename Memory>
Watched TrainWatched(const JobSpec& job, const Layout& layout, const std::string& run_folder,
                     const Memory& memory) {
  Watched watched;
  watched.findings.resize(static_cast<size_t>(layout.world_size()));
  RankThreads run;
  run.assignment = {.job = job, .layout = layout, .run_folder = run_folder, .load_checkpoint = ""};
  run.wrap_device = [&](int rank, Device& inner) {
    return std::make_unique<PaintingDevice>(
        memory(rank), ShardingOf(layout).parts * BucketUnit(job.numerics().optimizer), inner,
        &watched.findings[static_cast<size_t>(rank)]);
  };
  watched.outcome = Train(run);
  return watched;
}

std::vector<Layout> Layouts(const JobSpec& job) {
  std::vector<Layout> layouts = {MakeLayout(1, 1, 1, k1f1b, 2, job),
                                 MakeLayout(2, 2, 2, k1f1b, 1, job),
                                 MakeLayout(1, 1, 2, ScheduleKind::kGpipe, 2, job)};
  Layout savers = MakeLayout(1, 2, 1, k1f1b, 2, job);
  savers.sequence_parallel = true;
  savers.recompute = Recompute::kFull;
  savers.head_chunk_tokens = (2 * job.training.seq_len + 2) / 3;
  layouts.push_back(savers);
  Layout selective = MakeLayout(1, 1, 2, ScheduleKind::kInterleaved, 2, job);
  selective.virtual_stages = 2;
  selective.recompute_per_stage = {Recompute::kSelective, Recompute::kNone};
  layouts.push_back(selective);
  Layout split = MakeLayout(1, 2, 2, ScheduleKind::kZeroBubbleH1, 2, job);
  split.sequence_parallel = true;
  layouts.push_back(split);
  Layout split_savers = MakeLayout(1, 1, 3, ScheduleKind::kZeroBubbleH1, 1, job);
  split_savers.recompute_per_stage = {Recompute::kFull, Recompute::kSelective, Recompute::kFull};
  layouts.push_back(split_savers);
  Layout context = MakeLayout(1, 1, 1, k1f1b, 2, job);
  context.cp = 2;
  layouts.push_back(context);
  for (const int zero_stage : {1, 2, 3}) {
    Layout zero = MakeLayout(2, 1, 1, k1f1b, 2, job);
    zero.zero_stage = zero_stage;
    layouts.push_back(zero);
  }
  for (const int zero_stage : {2, 3}) {
    for (const ScheduleKind schedule : {k1f1b, ScheduleKind::kZeroBubbleH1}) {
      Layout zero = MakeLayout(2, 1, 2, schedule, 2, job);
      zero.zero_stage = zero_stage;
      zero.layers_per_stage = {3, 1};
      layouts.push_back(zero);
    }
  }
  // Offloaded layouts have stages of several buckets and of one, weights that are cut and others.
  for (const int pp : {1, 4}) {
    Layout offloaded = MakeLayout(pp == 1 ? 2 : 1, 1, pp, k1f1b, 2, job);
    offloaded.offload_optimizer = OffloadDevice::kCpu;
    offloaded.zero_stage = pp == 1 ? 3 : 0;
    layouts.push_back(offloaded);
  }
  return layouts;
}

TEST(ExactMemory, EveryBufferIsUsedToItsEndAndNothingElseIs) {
  const TestFolder folder;
  JobSpec gpt2 = SmallJob(folder.path());
  gpt2.training.steps = 2;
  JobSpec llama = gpt2;
  SetArchitecture(Architecture::kLlama, llama.model);
  llama.model.num_kv_heads = 2;
  llama.model.tied_embeddings = false;
  JobSpec quantised = gpt2;  // with master weights, and with states of several types
  quantised.optimizer.name = OptimizerKind::kAdamw8bit;
  quantised.training.mixed_precision = Precision::kBf16;
  quantised.cluster.device.peak_flops_per_s.bf16 = 1e9;
  JobSpec factored = gpt2;
  factored.optimizer.name = OptimizerKind::kAdafactor;
  JobSpec narrow = llama;  // key heads are fewer, so not the widest of its gradients
  narrow.training.mixed_precision = Precision::kFp8;
  for (const JobSpec& job : {gpt2, llama, quantised, factored, narrow}) {
    for (const Layout& layout : Layouts(job)) {
      if (job.optimizer.name == OptimizerKind::kAdamw8bit && !layout.offloads_optimizer()) continue;
      if (job.optimizer.name == OptimizerKind::kAdafactor && layout.offloads_optimizer()) continue;
      const std::string name =
          absl::StrCat(WordOf(job.model.architecture), " ", WordOf(job.training.mixed_precision),
                       " ", WordOf(job.optimizer.name), " ", LayoutText(layout));
      const TrainingOutcome plain = TrainWith(job, layout, folder.Make(name));
      const Watched watched =
          TrainWatched(job, layout, folder.Make(name + " watched"), [&](int rank) {
            return PlanRankMemory(job.model, job.batch(), layout, rank, job.numerics());
          });
      ASSERT_EQ(watched.outcome.status(), absl::OkStatus()) << name;
      EXPECT_EQ(Bits(watched.outcome.reports.front()), Bits(plain.reports.front())) << name;
      EXPECT_EQ(watched.outcome.weights, plain.weights) << name;
      for (const auto& findings : watched.findings) EXPECT_THAT(findings, IsEmpty()) << name;
    }
  }
}

// Each thread computes attention in scratch of its own: the plan's table counts them all.
TEST(ExactMemory, IsThePlansOnAnyNumberOfThreads) {
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.training.steps = 1;
  int64_t of_fewer_threads = 0;
  for (const int threads : {1, 2, 4}) {
    job.threads_per_worker = threads;
    const Layout layout = MakeLayout(1, 1, 1, ScheduleKind::kOneForwardOneBackward, 2, job);
    const absl::StatusOr<Plan> plan = PlanFor(job, layout, Purpose::kRun);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_TRUE(plan->fullest().memory.exact);
    const TrainingOutcome outcome =
        TrainWith(job, layout, folder.Make(absl::StrCat(threads, " threads")));
    ASSERT_EQ(outcome.status(), absl::OkStatus());
    EXPECT_EQ(plan->peak_bytes(), outcome.allocated_bytes[0]) << threads;
    EXPECT_GT(outcome.allocated_bytes[0], of_fewer_threads);
    of_fewer_threads = outcome.allocated_bytes[0];
  }
}

// Chunks of two blocks and of one share slots.
TEST(ExactMemory, ChunksThatDifferLeaveNoSlotUnused) {
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.training.steps = 1;
  job.validation = {.interval = 1, .steps = 1};
  for (const int64_t blocks : {5, 7}) {
    job.model.num_blocks = blocks;
    for (const int chunks : {2, 3}) {
      Layout layout = MakeLayout(1, 1, 2, ScheduleKind::kInterleaved, 1, job);
      layout.virtual_stages = chunks;
      if (chunks * layout.pp > blocks) continue;
      const std::string name = absl::StrCat(blocks, " blocks ", LayoutText(layout));
      const Watched watched = TrainWatched(job, layout, folder.Make(name), [&](int rank) {
        return PlanRankMemory(job.model, job.batch(), layout, rank, job.numerics());
      });
      ASSERT_EQ(watched.outcome.status(), absl::OkStatus()) << name;
      for (const auto& findings : watched.findings) EXPECT_THAT(findings, IsEmpty()) << name;
    }
  }
}

// The watcher takes the host's list to be longer, by what nobody uses.
TEST(ExactMemory, HostMemoryThatNobodyUsesIsSeen) {
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.training.steps = 1;
  Layout layout = MakeLayout(1, 1, 1, ScheduleKind::kOneForwardOneBackward, 2, job);
  layout.offload_optimizer = OffloadDevice::kCpu;
  const Watched watched = TrainWatched(job, layout, folder.Make("run"), [&](int rank) {
    RankMemory memory = PlanRankMemory(job.model, job.batch(), layout, rank, job.numerics());
    for (BufferSpec& buffer : memory.buffers) {
      if (buffer.name == "exp_avg_sq/blocks.3") buffer.elements += 16;  // the last on the host
    }
    return memory;
  });
  ASSERT_EQ(watched.outcome.status(), absl::OkStatus());
  EXPECT_THAT(watched.findings.front(),
              testing::ElementsAre("not used to its end: exp_avg_sq/blocks.3"));
}

TEST(ExactMemory, EachThreadUsesItsScratchToTheEnd) {
  const TestFolder folder;
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    JobSpec job = SmallJob(folder.path());
    job.training.steps = 2;
    job.training.mixed_precision = precision;
    job.threads_per_worker = 3;
    const Layout layout = MakeLayout(1, 2, 1, ScheduleKind::kOneForwardOneBackward, 2, job);
    const std::string name(WordOf(precision));
    const Watched watched = TrainWatched(job, layout, folder.Make(name), [&](int rank) {
      return PlanRankMemory(job.model, job.batch(), layout, rank, job.numerics());
    });
    ASSERT_EQ(watched.outcome.status(), absl::OkStatus()) << name;
    for (const auto& findings : watched.findings) EXPECT_THAT(findings, IsEmpty()) << name;
  }
}

// The watcher takes a buffer to be one element shorter than it is: what is written there is seen.
TEST(ExactMemory, AWriteBeyondABufferIsSeen) {
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.training.steps = 1;
  const Layout layout = MakeLayout(1, 1, 1, ScheduleKind::kOneForwardOneBackward, 2, job);
  const Watched watched = TrainWatched(job, layout, folder.Make("run"), [&](int rank) {
    RankMemory memory = PlanRankMemory(job.model, job.batch(), layout, rank, job.numerics());
    for (BufferSpec& buffer : memory.buffers) {
      if (buffer.name == "slot0/norm1_mean") --buffer.elements;
    }
    return memory;
  });
  ASSERT_EQ(watched.outcome.status(), absl::OkStatus());
  EXPECT_THAT(watched.findings.front(), testing::Contains("overrun: slot0/norm1_mean"));
}

}  // namespace
}  // namespace weft
