#include "plan/memory/stage_memory.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/spec/layout_text.h"
#include "tests/plan/sample_jobs.h"

namespace weft {
namespace {

constexpr int kBlocks = 7;  // pp does not divide it

ModelShape TinyOf(Architecture architecture) {
  ModelShape model = SampleJob().model;
  SetArchitecture(architecture, model);
  model.vocab_size = 257;  // tp does not divide it
  model.hidden_size = 24;
  model.num_blocks = kBlocks;
  model.num_heads = 4;
  model.num_kv_heads = architecture == Architecture::kGpt2 ? 4 : 2;
  model.head_dim = 6;
  model.ffn_size = 40;
  model.max_positions = 9;
  model.tied_embeddings = architecture == Architecture::kGpt2;
  return model;
}

// Odd sizes on purpose: the alignment of each buffer shows.
std::vector<Layout> PlainLayouts() {
  std::vector<Layout> layouts;
  for (const int dp : {1, 2, 3}) {
    for (const int tp : {1, 2}) {
      for (int pp = 1; pp <= 7; ++pp) {
        for (const int64_t micro_batch_size : {1, 3}) {
          for (const int64_t num_microbatches : {1, 2, 5, 19}) {
            Layout layout = {.dp = dp,
                             .pp = pp,
                             .tp = tp,
                             .micro_batch_size = micro_batch_size,
                             .gradient_accumulation_steps = num_microbatches};
            for (const ScheduleKind schedule :
                 {ScheduleKind::kGpipe, ScheduleKind::kOneForwardOneBackward,
                  ScheduleKind::kZeroBubbleH1}) {
              layout.pp_schedule = schedule;
              layouts.push_back(layout);
            }
            for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
              layout.recompute = recompute;
              layout.head_chunk_tokens = micro_batch_size * (recompute == Recompute::kFull ? 1 : 5);
              for (const ScheduleKind schedule :
                   {ScheduleKind::kZeroBubbleH1, ScheduleKind::kOneForwardOneBackward}) {
                layout.pp_schedule = schedule;
                layouts.push_back(layout);
              }
            }
            layout.head_chunk_tokens = 0;
            if (pp == 3) {
              layout.layers_per_stage = {1, 4, 2};
              layouts.push_back(layout);
              layout.recompute_per_stage = {Recompute::kFull, Recompute::kNone,
                                            Recompute::kSelective};
              layouts.push_back(layout);
              layout.recompute_per_stage.clear();
              layout.layers_per_stage.clear();
            }
            for (layout.zero_stage = 1; layout.zero_stage <= 3; ++layout.zero_stage) {
              layouts.push_back(layout);
              if (pp != 3) continue;
              layouts.push_back(layout);
              layouts.back().layers_per_stage = {1, 4, 2};
            }
            layout.zero_stage = 0;
            if (pp == 1 || 2 * pp > kBlocks) continue;
            layout.pp_schedule = ScheduleKind::kInterleaved;
            layout.gradient_accumulation_steps *= pp;
            for (layout.virtual_stages = 2; layout.virtual_stages * pp <= kBlocks;
                 ++layout.virtual_stages) {
              layouts.push_back(layout);
              layouts.push_back(layout);
              layouts.back().zero_stage = 3;
            }
          }
        }
      }
    }
  }
  return layouts;
}

std::vector<Layout> SmallLayouts() {
  std::vector<Layout> layouts = PlainLayouts();
  // The list divides a sequence by cp wherever it can; that runs come in pairs is CheckLayout's.
  const std::vector<Layout> plain = layouts;
  for (Layout layout : plain) {
    if (layout.micro_batch_size == 1 || layout.gradient_accumulation_steps > 2) continue;
    layout.cp = 3;
    layouts.push_back(layout);
    layout.cp = 1;
    layout.offload_optimizer = OffloadDevice::kCpu;
    layouts.push_back(layout);
  }
  return layouts;
}

TEST(StageMemoryTable, SaysToTheByteWhatTheListOfBuffersSays) {
  constexpr int64_t kSeqLen = 9;
  for (const Architecture architecture : {Architecture::kGpt2, Architecture::kLlama}) {
    for (const OptimizerStates states :
         {OptimizerStates::kNone, OptimizerStates::kTwoMoments, OptimizerStates::kTwoMoments8Bit,
          OptimizerStates::kFactored}) {
      // Both widths, without as many questions again.
      const bool wide = states != OptimizerStates::kTwoMoments;
      // Sums of gradients are in 16 bits in one half, too.
      const bool narrow = states == OptimizerStates::kTwoMoments8Bit || !wide;
      const Numerics numerics = {.precision = wide ? Precision::kFp32 : Precision::kBf16,
                                 .optimizer = states,
                                 .reduce_dtype = narrow ? ReduceDtype::kBf16 : ReduceDtype::kFp32};
      const ModelShape model = TinyOf(architecture);
      // Documents are masked in one half of the cases, to see that they count.
      const bool masks = states == OptimizerStates::kNone;
      StageMemoryTable table(model, {0, kSeqLen, masks}, numerics);
      for (const Layout& layout : SmallLayouts()) {
        // The factored states depend on stages alone.
        if (states == OptimizerStates::kFactored && layout.gradient_accumulation_steps > layout.pp)
          continue;
        const BatchShape batch = {
            layout.dp * layout.micro_batch_size * layout.gradient_accumulation_steps, kSeqLen,
            masks};
        for (int stage = 0; stage < layout.pp; ++stage) {
          const int rank = layout.grid().RankOf({.dp = 0, .pp = stage, .cp = 0, .tp = 0});
          const RankMemory listed = PlanRankMemory(model, batch, layout, rank, numerics);
          const MemoryBytes bytes = table.Of(layout, stage);
          EXPECT_EQ(bytes.by_kind, BytesByKind(listed).by_kind)
              << WordOf(architecture) << " " << LayoutText(layout) << " stage " << stage
              << " optimizer states " << static_cast<int>(states);
          EXPECT_EQ(bytes.total_bytes(), listed.total_bytes());
          EXPECT_EQ(bytes.host_bytes, listed.host_bytes());
        }
      }
    }
  }
}

TEST(StageMemoryTable, SaysSoWhereTokensAreCutOverTp) {
  constexpr int64_t kSeqLen = 10;
  for (const Architecture architecture : {Architecture::kGpt2, Architecture::kLlama}) {
    const ModelShape model = TinyOf(architecture);
    StageMemoryTable table(model, {.seq_len = kSeqLen}, Numerics{});
    for (const int pp : {1, 3}) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        const Layout layout = {.pp = pp,
                               .tp = 2,
                               .micro_batch_size = 3,
                               .gradient_accumulation_steps = 5,
                               .recompute = recompute,
                               .sequence_parallel = true,
                               .head_chunk_tokens = 8};
        for (int stage = 0; stage < pp; ++stage) {
          const int rank = layout.grid().RankOf({.dp = 0, .pp = stage, .cp = 0, .tp = 0});
          const RankMemory listed = PlanRankMemory(model, {15, kSeqLen}, layout, rank, {});
          EXPECT_EQ(table.Of(layout, stage).by_kind, BytesByKind(listed).by_kind)
              << LayoutText(layout) << " stage " << stage;
        }
      }
    }
  }
}

// Kernels of the ranks of cp take different amounts of scratch; all set the largest aside.
TEST(StageMemoryTable, SaysSoOfWhatCudnnComputesRunsIn) {
  constexpr int64_t kSeqLen = 1536;
  const Numerics numerics = {.precision = Precision::kBf16, .cudnn_attention = true};
  for (const Architecture architecture : {Architecture::kGpt2, Architecture::kLlama}) {
    ModelShape model = TinyOf(architecture);
    model.head_dim = 64;
    model.max_positions = kSeqLen;
    StageMemoryTable table(model, {.seq_len = kSeqLen}, numerics);
    for (const int cp : {1, 2, 3, 6}) {
      const Layout layout = {.cp = cp, .micro_batch_size = 2, .gradient_accumulation_steps = 3};
      for (int rank = 0; rank < cp; ++rank) {
        const RankMemory listed = PlanRankMemory(model, {6, kSeqLen}, layout, rank, numerics);
        EXPECT_EQ(table.Of(layout, 0).by_kind, BytesByKind(listed).by_kind)
            << WordOf(architecture) << " " << LayoutText(layout) << " rank " << rank;
      }
    }
  }
}

// Each block has its codes of weights, but under ZeRO 3.
TEST(StageMemoryTable, SaysSoInEightBits) {
  constexpr int64_t kSeqLen = 16;
  const Numerics numerics = {.precision = Precision::kFp8};
  for (const Architecture architecture : {Architecture::kGpt2, Architecture::kLlama}) {
    ModelShape model = TinyOf(architecture);
    model.hidden_size = 64;
    model.head_dim = 16;
    model.ffn_size = 96;
    model.max_positions = kSeqLen;
    StageMemoryTable table(model, {.seq_len = kSeqLen}, numerics);
    for (const Layout& layout : SmallLayouts()) {
      if (layout.cp > 1 || layout.gradient_accumulation_steps > layout.pp) continue;
      const BatchShape batch = {
          layout.dp * layout.micro_batch_size * layout.gradient_accumulation_steps, kSeqLen};
      for (int stage = 0; stage < layout.pp; ++stage) {
        const int rank = layout.grid().RankOf({.dp = 0, .pp = stage, .cp = 0, .tp = 0});
        const RankMemory listed = PlanRankMemory(model, batch, layout, rank, numerics);
        EXPECT_EQ(table.Of(layout, stage).by_kind, BytesByKind(listed).by_kind)
            << WordOf(architecture) << " " << LayoutText(layout) << " stage " << stage;
      }
    }
  }
}

TEST(StageMemoryTable, NoRankOfAStageHoldsMore) {
  const ModelShape model = TinyOf(Architecture::kGpt2);
  for (const Layout& layout : SmallLayouts()) {
    if (layout.gradient_accumulation_steps > 2) continue;
    StageMemoryTable table(model, {.seq_len = 9}, Numerics{});
    const BatchShape batch = {
        layout.dp * layout.micro_batch_size * layout.gradient_accumulation_steps, 9};
    for (int rank = 0; rank < layout.world_size(); ++rank) {
      const int stage = layout.grid().CoordinatesOf(rank).pp;
      EXPECT_LE(PlanRankMemory(model, batch, layout, rank, {}).total_bytes(),
                table.Of(layout, stage).total_bytes())
          << LayoutText(layout) << " rank " << rank;
    }
  }
}

// There is a place for embedding or head and two for blocks in turns, whatever the stage of ZeRO;
// nothing where nobody sums.
TEST(PlanRankMemory, HoldsThreePlacesForSumsIn16Bits) {
  const ModelShape model = TinyOf(Architecture::kGpt2);
  const auto bytes_of = [&](const Layout& layout, ReduceDtype type) {
    const BatchShape batch = {layout.dp * layout.micro_batch_size, 9};
    return PlanRankMemory(model, batch, layout, 0, {.reduce_dtype = type}).total_bytes();
  };
  const auto buckets = BucketsOf(model, {}, 0, OptimizerStates::kTwoMoments);
  const BucketElements elements = BucketElementsOf(buckets);
  EXPECT_EQ(bytes_of({}, ReduceDtype::kBf16), bytes_of({}, ReduceDtype::kFp32));
  for (const int zero_stage : {0, 1, 2, 3}) {
    const Layout layout = {.dp = 2, .zero_stage = zero_stage};
    const int parts = zero_stage == 0 ? 1 : 2;
    const auto place = [&](int64_t run) {
      const int64_t part = PartElements(run, parts, BucketUnit(OptimizerStates::kTwoMoments));
      return AlignedBytes(parts * part, ElementType::kBf16);
    };
    EXPECT_EQ(bytes_of(layout, ReduceDtype::kBf16) - bytes_of(layout, ReduceDtype::kFp32),
              place(elements.end) + 2 * place(elements.block))
        << zero_stage;
  }
}

TEST(MemoryBytes, NamesTheLargestKind) {
  MemoryBytes bytes;
  bytes.by_kind[static_cast<size_t>(MemoryKind::kOptimizer)] = 5;
  bytes.by_kind[static_cast<size_t>(MemoryKind::kActivations)] = 7;
  EXPECT_EQ(bytes.largest(), MemoryKind::kActivations);
  EXPECT_EQ(bytes.total_bytes(), 12);
}

}  // namespace
}  // namespace weft
