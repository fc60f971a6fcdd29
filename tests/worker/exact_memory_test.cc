// The list of buffers is exact from both sides: every buffer is used to its last element, nothing
// writes between two of them, and no workspace is read that its own action has not written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "plan/memory.h"
#include "tests/worker/passing_backend.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

using ::testing::IsEmpty;

constexpr uint32_t kPaint = 0x7fc0dead;  // a NaN: whatever reads it, spreads it
constexpr unsigned char kGap = 0xa5;

// Paints the arena before the run, and workspace again before every forward pass and after every
// backward pass of a first stage. Looks at it all when it is freed.
class PaintingDevice final : public PassingDevice {
 public:
  PaintingDevice(RankMemory memory, Device& inner, std::vector<std::string>* findings)
      : PassingDevice(inner),
        memory_(std::move(memory)),
        used_(memory_.buffers.size()),
        findings_(findings) {}

  void* Allocate(int64_t bytes) override {
    base_ = static_cast<unsigned char*>(inner_.Allocate(bytes));
    return base_;
  }
  void Free(void* data, int64_t bytes) override {
    Look();
    Report();
    inner_.Free(data, bytes);
  }
  void Zero(View x) override {
    inner_.Zero(x);
    if (x.data == base_ && !std::exchange(is_painted_, true)) Paint(/*all=*/true);
  }
  void Embed(View ids, View table, int64_t first_id, View positions, View position_ids,
             View out) override {
    Repaint();
    inner_.Embed(ids, table, first_id, positions, position_ids, out);
  }
  void EmbedGradient(View ids, View dout, int64_t first_id, View position_ids, View dtable,
                     View dpositions) override {
    inner_.EmbedGradient(ids, dout, first_id, position_ids, dtable, dpositions);
    Repaint();
  }

 private:
  template <typename Visit>
  void ForEach(const Visit& visit) {
    unsigned char* data = base_;
    for (size_t i = 0; i < memory_.buffers.size(); ++i) {
      visit(i, memory_.buffers[i], data);
      data += memory_.buffers[i].aligned_bytes();
    }
  }
  // Model states start as zeros, and gradients are cleared and reduced with the gaps between them.
  static bool IsPainted(const BufferSpec& spec) {
    return spec.kind != MemoryKind::kWeights && spec.kind != MemoryKind::kGradients &&
           spec.kind != MemoryKind::kOptimizer;
  }
  static bool DiesWithItsAction(const BufferSpec& spec) {
    return spec.kind == MemoryKind::kWorkspace && spec.name != "work/rotary";
  }
  void Paint(bool all) {
    ForEach([&](size_t, const BufferSpec& spec, unsigned char* data) {
      if (!(all ? IsPainted(spec) : DiesWithItsAction(spec))) return;
      const int64_t bytes = spec.elements * ElementBytes(spec.type);
      for (int64_t i = 0; i + 4 <= bytes; i += 4) std::memcpy(data + i, &kPaint, 4);
      if (!all) return;
      std::memset(data + bytes, kGap, static_cast<size_t>(spec.aligned_bytes() - bytes));
    });
  }
  void Repaint() {
    Look();
    Paint(/*all=*/false);
  }
  void Look() {
    ForEach([&](size_t i, const BufferSpec& spec, const unsigned char* data) {
      const int64_t bytes = spec.elements * ElementBytes(spec.type);
      if (bytes >= 4 && std::memcmp(data + bytes - 4, &kPaint, 4) != 0) used_[i] = true;
      for (int64_t gap = bytes; IsPainted(spec) && gap < spec.aligned_bytes(); ++gap) {
        if (data[gap] != kGap) overrun_.push_back(spec.name);
      }
    });
  }
  void Report() {
    for (const std::string& name : overrun_) findings_->push_back("overrun: " + name);
    ForEach([&](size_t i, const BufferSpec& spec, const unsigned char*) {
      if (!used_[i]) findings_->push_back("not used to its end: " + spec.name);
    });
  }

  const RankMemory memory_;
  std::vector<bool> used_;
  std::vector<std::string> overrun_;
  std::vector<std::string>* findings_;
  unsigned char* base_ = nullptr;
  bool is_painted_ = false;
};

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
    return std::make_unique<PaintingDevice>(memory(rank), inner,
                                            &watched.findings[static_cast<size_t>(rank)]);
  };
  watched.outcome = Train(run);
  return watched;
}

std::vector<Layout> Layouts(const JobSpec& job) {
  constexpr ScheduleKind k1f1b = ScheduleKind::kOneForwardOneBackward;
  std::vector<Layout> layouts = {MakeLayout(1, 1, 1, k1f1b, 2, job),
                                 MakeLayout(2, 2, 2, k1f1b, 1, job),
                                 MakeLayout(1, 1, 2, ScheduleKind::kGpipe, 2, job)};
  Layout savers = MakeLayout(1, 2, 1, k1f1b, 2, job);
  savers.sequence_parallel = true;
  savers.recompute = Recompute::kFull;
  savers.head_chunks = 3;
  layouts.push_back(savers);
  Layout selective = MakeLayout(1, 1, 2, ScheduleKind::kInterleaved, 2, job);
  selective.virtual_stages = 2;
  selective.stage_recompute = {Recompute::kSelective, Recompute::kNone};
  layouts.push_back(selective);
  Layout split = MakeLayout(1, 2, 2, ScheduleKind::kZeroBubbleH1, 2, job);
  split.sequence_parallel = true;
  layouts.push_back(split);
  for (const int zero_stage : {1, 2, 3}) {
    Layout zero = MakeLayout(2, 1, 1, k1f1b, 2, job);
    zero.zero_stage = zero_stage;
    layouts.push_back(zero);
  }
  return layouts;
}

TEST(ExactMemory, EveryBufferIsUsedToItsEndAndNothingElseIs) {
  const TestFolder folder;
  JobSpec gpt2 = SmallJob(folder.path());
  gpt2.training.steps = 2;
  JobSpec llama = gpt2;
  llama.model.family = ModelFamily::kLlama;
  llama.model.num_kv_heads = 2;
  llama.model.tied_embeddings = false;
  for (const JobSpec& job : {gpt2, llama}) {
    for (const Layout& layout : Layouts(job)) {
      const std::string name = absl::StrCat(FamilyName(job.model.family), " ", LayoutText(layout));
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

// The watcher takes a buffer to be one element shorter than it is: what is written there is seen.
TEST(ExactMemory, AWriteBeyondABufferIsSeen) {
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.training.steps = 1;
  const Layout layout = MakeLayout(1, 1, 1, ScheduleKind::kOneForwardOneBackward, 2, job);
  const Watched watched = TrainWatched(job, layout, folder.Make("run"), [&](int rank) {
    RankMemory memory = PlanRankMemory(job.model, job.batch(), layout, rank, job.numerics());
    for (BufferSpec& buffer : memory.buffers) {
      if (buffer.name == "slot0/block0/norm1_mean") --buffer.elements;
    }
    return memory;
  });
  ASSERT_EQ(watched.outcome.status(), absl::OkStatus());
  EXPECT_THAT(watched.findings.front(), testing::Contains("overrun: slot0/block0/norm1_mean"));
}

}  // namespace
}  // namespace weft
