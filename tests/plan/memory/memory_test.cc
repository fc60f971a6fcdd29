#include "plan/memory/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "plan/block/tensors.h"
#include "plan/memory/cudnn_attention.h"
#include "plan/schedule/schedule.h"
#include "plan/schedule/step_schedule.h"
#include "plan/shards/buckets.h"
#include "plan/spec/layout_text.h"

namespace weft {
namespace {

ModelShape Tiny(Architecture architecture = Architecture::kGpt2) {
  ModelShape model;
  SetArchitecture(architecture, model);
  model.vocab_size = 96;
  model.hidden_size = 32;
  model.num_blocks = 4;
  model.num_heads = 4;
  model.num_kv_heads = architecture == Architecture::kGpt2 ? 4 : 2;
  model.head_dim = 8;
  model.ffn_size = 128;
  model.max_positions = 16;
  model.tied_embeddings = architecture == Architecture::kGpt2;
  return model;
}

constexpr BatchShape kBatch{.global_batch_size = 16, .seq_len = 16};

std::vector<Layout> AllLayouts() {
  std::vector<Layout> layouts;
  for (int dp : {1, 2}) {
    for (int pp : {1, 2, 4}) {
      for (int tp : {1, 2}) {
        for (int64_t micro : {1, 2, 4}) {
          Layout layout = {.dp = dp,
                           .pp = pp,
                           .tp = tp,
                           .micro_batch_size = micro,
                           .gradient_accumulation_steps = kBatch.global_batch_size / dp / micro};
          for (const ScheduleKind schedule :
               {ScheduleKind::kGpipe, ScheduleKind::kOneForwardOneBackward,
                ScheduleKind::kZeroBubbleH1}) {
            layout.pp_schedule = schedule;
            layouts.push_back(layout);
          }
          layout.pp_schedule = ScheduleKind::kOneForwardOneBackward;
          for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
            layout.recompute = recompute;
            layouts.push_back(layout);
          }
          layout.recompute = Recompute::kNone;
          if (pp != 2) continue;
          layout.pp_schedule = ScheduleKind::kZeroBubbleH1;
          layout.recompute_per_stage = {Recompute::kFull, Recompute::kSelective};
          layouts.push_back(layout);
          layout.recompute_per_stage.clear();
          layout.layers_per_stage = {3, 1};
          layouts.push_back(layout);
          layout.layers_per_stage.clear();
          layout.pp_schedule = ScheduleKind::kInterleaved;
          layout.virtual_stages = 2;
          layouts.push_back(layout);
        }
      }
    }
  }
  return layouts;
}

int64_t Elements(const RankMemory& memory, MemoryKind kind) {
  int64_t sum = 0;
  for (const BufferSpec& buffer : memory.buffers) {
    if (buffer.kind == kind) sum += buffer.elements;
  }
  return sum;
}

std::map<std::string, int64_t> ByName(const RankMemory& memory) {
  std::map<std::string, int64_t> elements;
  for (const BufferSpec& buffer : memory.buffers) elements[buffer.name] = buffer.elements;
  return elements;
}

// Counted by hand for one rank, B=2, T=16 (N=32), D=32, F=128, V=96, H=4: the list has exactly
// what a step needs, and nothing hides in it.
TEST(PlanRankMemory, CountsEveryBufferOfASingleRank) {
  const Layout layout{.micro_batch_size = 2, .gradient_accumulation_steps = 8};
  const RankMemory memory = PlanRankMemory(Tiny(), kBatch, layout, 0, {});
  const int64_t parameters = ParameterCount(Tiny());
  EXPECT_EQ(Elements(memory, MemoryKind::kWeights), parameters);
  EXPECT_EQ(Elements(memory, MemoryKind::kGradients), parameters);
  EXPECT_EQ(Elements(memory, MemoryKind::kOptimizer), 2 * parameters);
  // One slot: 8 of [N, D], 2 of [N, F], 4 of [N, 1], lse [B*H, T]; and dx.
  const int64_t n = 32, d = 32, f = 128, t = 16;
  const int64_t v = 128;  // 96 logits, in whole lines of 64
  const int64_t block = 8 * n * d + 2 * n * f + 4 * n + n * 4;
  EXPECT_EQ(Elements(memory, MemoryKind::kActivations), 4 * block + n * d);
  // dnorm, dattn, dq, dk, dv; dact; scores; head: x, norm_out, logits, five of [N]; totals.
  EXPECT_EQ(Elements(memory, MemoryKind::kWorkspace),
            5 * n * d + n * f + 2 * t * t + 2 * n * d + n * v + 5 * n + kStepTotals);
  EXPECT_EQ(Elements(memory, MemoryKind::kCommunication), 0);
  // ids, targets, positions.
  EXPECT_EQ(Elements(memory, MemoryKind::kTokens), 3 * kBatch.global_batch_size * t);
}

TEST(PlanRankMemory, HoldsNoMatrixOfAllPairsOfTokens) {
  ModelShape model = Tiny();
  model.max_positions = 1 << 20;
  const auto scores = [&](int64_t seq_len) {
    const RankMemory memory = PlanRankMemory(model, {1, seq_len}, Layout{}, 0, {});
    return ByName(memory).at("work/scores");
  };
  EXPECT_EQ(scores(100), 2 * 100 * 100);
  EXPECT_EQ(scores(200), 2 * 128 * 200);
  EXPECT_EQ(scores(1 << 20), 2 * 128 * 256);
}

// dq [B*H, T, E] and the sums of dO * O [B*H, T] in fp32, 256 bytes of the kernel's own, 192 for
// alignment and 4 MiB of slack; where heads share keys, dk and dv [B*H, T, E] in 16 bits.
TEST(PlanRankMemory, SetsAsideWhatCudnnComputesAttentionInWhereItIsUsed) {
  ModelShape model = Tiny(Architecture::kLlama);
  model.head_dim = 64;
  model.num_heads = 6;
  model.num_kv_heads = 2;
  BatchShape batch = kBatch;
  Layout layout{.micro_batch_size = 2, .gradient_accumulation_steps = 8};
  Numerics numerics{.precision = Precision::kBf16, .cudnn_attention = true};
  const auto scores = [&] {
    return ByName(PlanRankMemory(model, batch, layout, 0, numerics)).at("work/scores");
  };
  const int64_t rows = 2 * 6 * 16;
  const int64_t rest = (256 + 192) / 4 + (1 << 20);
  EXPECT_EQ(scores(), rows * 64 + rows + rest + rows * 64);
  layout.tp = 2;
  EXPECT_EQ(scores(), (rows * 64 + rows + rows * 64) / 2 + 32 + rest)
      << "half the heads; sums of 96 floats are aligned to 128";
  layout.tp = 1;
  model.num_kv_heads = 6;
  EXPECT_EQ(scores(), rows * 64 + rows + rest);
  const int64_t own = 2 * 16 * 16 + 10 * 16 * 64;
  numerics.cudnn_attention = false;
  EXPECT_EQ(scores(), own);
  numerics.cudnn_attention = true;
  layout.cp = 2;
  EXPECT_EQ(scores(), 2 * 4 * 16 + 8 * 16 * 64) << "runs of 4 positions are no whole tiles";
  layout.cp = 1;
  model.head_dim = 32;
  EXPECT_EQ(scores(), 2 * 16 * 16 + 10 * 16 * 32);
}

// Two sequences of four runs of 128, of which a rank has two: dq and the sums of one run, and of
// the keys gradients for each of the heads that share them, of all of them or of half, which then
// has them once more to be added.
TEST(PlanRankMemory, SetsAsideWhatCudnnComputesARunOfQueriesInUnderContextParallelism) {
  ModelShape model = Tiny(Architecture::kLlama);
  model.head_dim = 64;
  model.num_heads = 6;
  BatchShape batch = kBatch;
  batch.seq_len = 512;
  const Layout layout{.cp = 2, .micro_batch_size = 2, .gradient_accumulation_steps = 8};
  const Numerics numerics{.precision = Precision::kBf16, .cudnn_attention = true};
  const int64_t rest = (256 + 192) / 4 + (1 << 20);
  const int64_t of_queries = 2 * 6 * 128 * 64 + 2 * 6 * 128;
  const struct {
    int64_t kv_heads;
    int64_t of_keys;  // in halves of a float, as elements are
  } cases[] = {{2, 2 * 2 * 6 * 512 * 64},
               {6, 2 * 2 * 6 * 256 * 64},
               {3, std::max(2 * 2 * 6 * 512, 2 * 2 * (6 + 3) * 256) * 64}};
  for (const auto& c : cases) {
    model.num_kv_heads = c.kv_heads;
    for (const int rank : {0, 1}) {
      EXPECT_EQ(ByName(PlanRankMemory(model, batch, layout, rank, numerics)).at("work/scores"),
                of_queries + c.of_keys / 2 + rest)
          << c.kv_heads;
    }
  }
  batch.masks_documents = true;
  EXPECT_LT(ByName(PlanRankMemory(model, batch, layout, 0, numerics)).at("work/scores"), rest)
      << "packed documents are left to weft's own kernels";
}

// Up to eight documents, four for each sequence: their lengths and three tables of offsets, one
// entry longer, each to the next 256 bytes, and so much more of the kernel's own. What is made by
// token has no room for whole sequences.
TEST(PlanRankMemory, SetsAsideWhatCudnnKeepsOfPackedDocuments) {
  ModelShape model = Tiny(Architecture::kLlama);
  model.head_dim = 64;
  model.num_heads = 6;
  model.num_kv_heads = 2;
  BatchShape batch = kBatch;
  batch.masks_documents = true;
  Layout layout{.micro_batch_size = 2, .gradient_accumulation_steps = 8};
  Numerics numerics{.precision = Precision::kBf16, .cudnn_attention = true};
  const auto scores = [&] {
    return ByName(PlanRankMemory(model, batch, layout, 0, numerics)).at("work/scores");
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(DocumentBoundsOf(model, batch, layout, numerics), ElementsAre(2, 4, 8));
  const int64_t rows = 2 * 6 * 16;
  const int64_t table = (256 + 3 * 256) / 4;
  const int64_t rest = (1152 + 8 * 448 + 192) / 4 + (1 << 20);
  EXPECT_EQ(scores(), table + rows * 64 + rows + rest + rows * 64);
  model.num_kv_heads = 6;
  EXPECT_EQ(scores(), table + rows * 64 + rows + rest);
  layout.cp = 2;
  EXPECT_THAT(DocumentBoundsOf(model, batch, layout, numerics), ElementsAre());
  EXPECT_EQ(scores(), 2 * 4 * 16 + 8 * 16 * 64);
  layout.cp = 1;
  numerics.cudnn_attention = false;
  EXPECT_THAT(DocumentBoundsOf(model, batch, layout, numerics), ElementsAre());
  EXPECT_EQ(scores(), 2 * 16 * 16 + 10 * 16 * 64);
}

TEST(DocumentBounds, DoubleUpToADocumentFor256TokensOrFourOfASequence) {
  using ::testing::ElementsAre;
  EXPECT_THAT(DocumentBounds(3, 1), ElementsAre(3));
  EXPECT_THAT(DocumentBounds(3, 2), ElementsAre(3, 6));
  EXPECT_THAT(DocumentBounds(16, 1024), ElementsAre(16, 32, 64));
  EXPECT_THAT(DocumentBounds(4, 4096), ElementsAre(4, 8, 16, 32, 64));
  EXPECT_THAT(DocumentBounds(1, 6000), ElementsAre(1, 2, 4, 8, 16));
}

// A thread works on heads of its own: more threads than B * K_local have nothing to do.
TEST(PlanRankMemory, EachThreadComputesAttentionInScratchOfItsOwn) {
  const ModelShape model = Tiny(Architecture::kLlama);  // K=2, T=16, E=8
  Layout layout{.micro_batch_size = 2, .gradient_accumulation_steps = 8};
  const auto scores = [&](Precision precision, int threads) {
    const Numerics numerics = {.precision = precision, .threads = threads};
    return ByName(PlanRankMemory(model, kBatch, layout, 0, numerics)).at("work/scores");
  };
  const int64_t tiles = 2 * 16 * 16;
  const int64_t copies = 10 * 16 * 8;
  EXPECT_EQ(scores(Precision::kFp32, 1), tiles);
  EXPECT_EQ(scores(Precision::kFp32, 2), 2 * tiles);
  EXPECT_EQ(scores(Precision::kBf16, 3), 3 * (tiles + copies));
  EXPECT_EQ(scores(Precision::kFp32, 100), 4 * tiles);
  layout.tp = 2;
  EXPECT_EQ(scores(Precision::kFp32, 100), 2 * tiles);
}

TEST(PlanRankMemory, EachStageKnowsTheDocumentsAndOnlyTheFirstThePositions) {
  BatchShape batch = kBatch;
  batch.masks_documents = true;
  const Layout layout{.dp = 2, .pp = 4, .micro_batch_size = 2, .gradient_accumulation_steps = 4};
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const int stage = layout.grid().CoordinatesOf(rank).pp;
    const auto gpt2 = ByName(PlanRankMemory(Tiny(), batch, layout, rank, {}));
    EXPECT_EQ(gpt2.at("tokens/first_visible"), 4 * 2 * 16);
    EXPECT_EQ(gpt2.count("tokens/positions"), stage == 0 ? 1u : 0u);
    EXPECT_EQ(
        ByName(PlanRankMemory(Tiny(), kBatch, layout, rank, {})).count("tokens/first_visible"), 0u);
    const auto llama = ByName(PlanRankMemory(Tiny(Architecture::kLlama), batch, layout, rank, {}));
    EXPECT_EQ(llama.count("tokens/positions"), 0u) << "its positions are in the rotation";
  }
}

TEST(PlanRankMemory, NamesAreUniqueAndNoBufferIsEmpty) {
  for (const Architecture architecture : {Architecture::kGpt2, Architecture::kLlama}) {
    for (const Layout& layout : AllLayouts()) {
      for (int rank = 0; rank < layout.world_size(); ++rank) {
        std::set<std::string> names;
        for (const BufferSpec& buffer :
             PlanRankMemory(Tiny(architecture), kBatch, layout, rank, {}).buffers) {
          EXPECT_TRUE(names.insert(buffer.name).second) << buffer.name;
          EXPECT_GT(buffer.elements, 0) << LayoutText(layout) << " " << buffer.name;
        }
      }
    }
  }
}

TEST(PlanRankMemory, TotalIsTheSumOfItsKinds) {
  for (const Layout& layout : AllLayouts()) {
    const RankMemory memory = PlanRankMemory(Tiny(), kBatch, layout, 0, {});
    int64_t sum = 0;
    for (int kind = 0; kind <= static_cast<int>(MemoryKind::kTokens); ++kind) {
      sum += memory.bytes(static_cast<MemoryKind>(kind));
    }
    EXPECT_EQ(memory.total_bytes(), sum) << LayoutText(layout);
    EXPECT_EQ(sum % kBufferAlignmentBytes, 0);
  }
}

TEST(PlanRankMemory, PrimaryWeightsOfAReplicaAddUpToTheModel) {
  const int64_t parameters = ParameterCount(Tiny());
  for (const Layout& layout : AllLayouts()) {
    int64_t sum = 0;
    for (int rank : layout.grid().ReplicaGroupOf(0)) {
      const auto elements = ByName(PlanRankMemory(Tiny(), kBatch, layout, rank, {}));
      for (const Bucket& bucket : BucketsOf(Tiny(), layout, rank, OptimizerStates::kTwoMoments)) {
        const auto found = elements.find("weights/" + bucket.name);
        ASSERT_NE(found, elements.end()) << LayoutText(layout) << " " << bucket.name;
        EXPECT_EQ(found->second, bucket.elements);
        for (const TensorShard& shard : bucket.shards) {
          if (shard.primary) sum += shard.elements();
        }
      }
    }
    EXPECT_EQ(sum, parameters) << LayoutText(layout);
  }
}

TEST(PlanRankMemory, HoldsOneSlotForEachBlockOfALiveMicrobatch) {
  for (const Layout& layout : AllLayouts()) {
    for (int stage = 0; stage < layout.pp; ++stage) {
      const int rank = layout.grid().RankOf({.pp = stage});
      const int live = PeakLiveMicrobatches(StepSchedule(Tiny(), layout, stage));
      const int64_t blocks =
          StageBlockCount(layout, Tiny().num_blocks, stage) / layout.virtual_stages;
      const auto elements = ByName(PlanRankMemory(Tiny(), kBatch, layout, rank, {}));
      std::set<std::string> slots;
      for (const auto& [name, count] : elements) {
        if (absl::StartsWith(name, "slot")) slots.insert(name.substr(0, name.find('/')));
      }
      EXPECT_EQ(std::ssize(slots), live * blocks) << LayoutText(layout) << " stage " << stage;
    }
  }
}

TEST(PlanRankMemory, OneForwardOneBackwardNeverNeedsMoreThanGpipe) {
  for (Layout layout : AllLayouts()) {
    if (layout.virtual_stages > 1) continue;
    for (int rank = 0; rank < layout.world_size(); ++rank) {
      layout.pp_schedule = ScheduleKind::kGpipe;
      const int64_t gpipe = PlanRankMemory(Tiny(), kBatch, layout, rank, {}).total_bytes();
      layout.pp_schedule = ScheduleKind::kOneForwardOneBackward;
      EXPECT_LE(PlanRankMemory(Tiny(), kBatch, layout, rank, {}).total_bytes(), gpipe);
    }
  }
}

// 2 (p - 1 - i) + (v - 1) p + 1 passes at once on stage i; not as if each were of two blocks.
TEST(PlanRankMemory, ChunksThatDifferShareSlots) {
  ModelShape model = Tiny();
  Layout layout{.pp = 2,
                .pp_schedule = ScheduleKind::kInterleaved,
                .gradient_accumulation_steps = 4,
                .virtual_stages = 2};
  const auto slots_of = [&](int stage) {
    int64_t slots = 0;
    const int rank = layout.grid().RankOf({.pp = stage});
    for (const auto& [name, count] : ByName(PlanRankMemory(model, kBatch, layout, rank, {}))) {
      slots += absl::StartsWith(name, "slot") && absl::EndsWith(name, "/lse") ? 1 : 0;
    }
    return slots;
  };
  EXPECT_EQ(slots_of(0), 5);
  EXPECT_EQ(slots_of(1), 3);
  model.num_blocks = 5;  // chunks of 2 and 1 blocks; of 1 and 1
  EXPECT_EQ(slots_of(0), 5 + 4) << "F0.0 F1.0 F0.1 F1.1 F2.0 are live, and then F3.0 for B0.1";
  EXPECT_EQ(slots_of(1), 3);
  model.num_blocks = 7;  // of 2 and 2; of 2 and 1
  EXPECT_EQ(slots_of(0), 5 * 2);
  EXPECT_EQ(slots_of(1), 3 * 2) << "F0.0 F1.0 F2.0";
}

// B=2, T=16 (N=32), D=32, F=128, H=4, two microbatches of two blocks: a slot keeps less of a block,
// and what is left is there once.
TEST(PlanRankMemory, RecomputedActivationsAreThereOnce) {
  Layout layout{.pp = 2, .micro_batch_size = 2, .gradient_accumulation_steps = 8};
  const int64_t n = 32, d = 32, f = 128;
  const int64_t input = n * d;
  const int64_t wide = 2 * n * d + n * f;  // norm outputs, the activation's output
  const int64_t block = 8 * n * d + 2 * n * f + 4 * n + n * 4;
  const auto elements = [&](MemoryKind kind) {
    return Elements(PlanRankMemory(Tiny(), kBatch, layout, 0, {}), kind);
  };
  const int64_t workspace = elements(MemoryKind::kWorkspace);
  EXPECT_EQ(elements(MemoryKind::kActivations), 4 * block);
  layout.recompute = Recompute::kSelective;
  EXPECT_EQ(elements(MemoryKind::kActivations), 4 * (block - wide));
  EXPECT_EQ(elements(MemoryKind::kWorkspace), workspace + wide);
  layout.recompute = Recompute::kFull;
  EXPECT_EQ(elements(MemoryKind::kActivations), 4 * input);
  EXPECT_EQ(elements(MemoryKind::kWorkspace), workspace + block - input);
  layout.recompute_per_stage = {Recompute::kNone, Recompute::kFull};
  EXPECT_EQ(elements(MemoryKind::kActivations), 4 * block) << "of this stage, not of the layout";
  EXPECT_EQ(elements(MemoryKind::kWorkspace), workspace);
}

// B=2, T=16 (N=32), D=32, tp 2: 16 rows of residuals; products take all 32.
TEST(PlanRankMemory, CutsResidualsOverTensorRanksUnderSequenceParallelism) {
  Layout layout{.pp = 2, .tp = 2, .micro_batch_size = 2, .gradient_accumulation_steps = 8};
  const auto whole = ByName(PlanRankMemory(Tiny(), kBatch, layout, 0, {}));
  layout.sequence_parallel = true;
  const auto cut = ByName(PlanRankMemory(Tiny(), kBatch, layout, 0, {}));
  for (const char* name :
       {"slot0/x", "slot3/norm1_out", "slot1/x_mid", "slot0/norm2_out", "slot0/norm2_rstd",
        "work/dx", "comm/recv_gradient", "comm/send_activation"}) {
    EXPECT_EQ(2 * cut.at(name), whole.at(name)) << name;
  }
  for (const char* name : {"slot0/qkv", "slot0/act", "slot0/lse", "work/dnorm"}) {
    EXPECT_EQ(cut.at(name), whole.at(name)) << name;
  }
  EXPECT_EQ(whole.count("work/gathered"), 0U);
  EXPECT_EQ(cut.at("work/gathered"), 32 * 32);
  EXPECT_EQ(cut.size(), whole.size() + 1);
}

// N=64 rows; 15 at a time are 5 pieces, of which 13 are the largest, and no more than T=16 pieces
// are made. V=96, in whole lines of 64.
TEST(PlanRankMemory, HoldsTheLogitsOfOnePieceAtATime) {
  Layout layout{.micro_batch_size = 4, .gradient_accumulation_steps = 4};
  const auto logits = [&](int64_t tokens) {
    layout.head_chunk_tokens = tokens;
    return ByName(PlanRankMemory(Tiny(), kBatch, layout, 0, {})).at("work/head/logits");
  };
  EXPECT_EQ(logits(0), 64 * 128);
  EXPECT_EQ(logits(32), 32 * 128);
  EXPECT_EQ(logits(15), 13 * 128);
  EXPECT_EQ(logits(1), 4 * 128);
}

// B=2, T=16, K*E=16: half of everything that has a row per token, and keys and values of whole
// sequences, which are there once.
TEST(PlanRankMemory, ContextAxisHalvesTokensAndGathersKeys) {
  const ModelShape model = Tiny(Architecture::kLlama);
  Layout layout{.micro_batch_size = 2, .gradient_accumulation_steps = 8};
  const auto whole = ByName(PlanRankMemory(model, kBatch, layout, 0, {}));
  layout.cp = 2;
  for (int rank = 0; rank < 2; ++rank) {
    auto half = ByName(PlanRankMemory(model, kBatch, layout, rank, {}));
    EXPECT_EQ(half.at("work/scores"), 2 * 4 * (rank == 0 ? 16 : 12))
        << "runs of 4 queries, the last or the last but one of 4";
    half.erase("work/scores");
    for (const char* name : {"work/keys", "work/values", "work/dkeys", "work/dvalues"}) {
      EXPECT_EQ(half.at(name), 2 * 16 * 16) << name;
      half.erase(name);
    }
    EXPECT_EQ(half.at("work/totals"), whole.at("work/totals"));
    half.erase("work/totals");
    ASSERT_EQ(half.size() + 2, whole.size());
    for (const auto& [name, elements] : half) {
      const bool has_rows = absl::StartsWith(name, "slot") || absl::StartsWith(name, "head") ||
                            absl::StartsWith(name, "tokens") || absl::StartsWith(name, "work");
      EXPECT_EQ(elements * (has_rows ? 2 : 1), whole.at(name)) << name;
    }
  }
}

// N=16, D=32. Output gradients of passes between the halves of their backward pass are the only
// thing that zb_h1 keeps and, on the first stage, 1F1B does not.
TEST(PlanRankMemory, ZeroBubbleKeepsOneGradientPerPendingPass) {
  Layout layout{.pp = 2, .gradient_accumulation_steps = 4};
  const auto activations = [&](int rank) {
    return Elements(PlanRankMemory(Tiny(), kBatch, layout, rank, {}), MemoryKind::kActivations);
  };
  const int64_t first = activations(0);
  const int64_t last = activations(1) - 16 * 32;  // but for the head's gradient
  layout.pp_schedule = ScheduleKind::kZeroBubbleH1;
  EXPECT_EQ(activations(0), first + 16 * 32);
  EXPECT_EQ(activations(1), 2 * last + 2 * 16 * 32 + 16 * 32);
}

TEST(PlanRankMemory, ZeroBubbleOnOneStageIsOneForwardOneBackward) {
  Layout layout{.gradient_accumulation_steps = 4, .recompute = Recompute::kSelective};
  const auto expected = ByName(PlanRankMemory(Tiny(), kBatch, layout, 0, {}));
  layout.pp_schedule = ScheduleKind::kZeroBubbleH1;
  EXPECT_EQ(ByName(PlanRankMemory(Tiny(), kBatch, layout, 0, {})), expected);
}

// A stage makes again as much as it leaves out, for stage + 1 of the pp microbatches: the weight
// gradients need it later.
TEST(PlanRankMemory, ZeroBubbleRecomputesForAllButTheLastStage) {
  Layout layout{
      .pp = 4, .pp_schedule = ScheduleKind::kZeroBubbleH1, .gradient_accumulation_steps = 8};
  for (const Architecture architecture : {Architecture::kGpt2, Architecture::kLlama}) {
    const auto elements = [&](int stage, Recompute recompute) {
      layout.recompute = recompute;
      const RankMemory memory = PlanRankMemory(Tiny(architecture), kBatch, layout, stage, {});
      EXPECT_EQ(ByName(memory).count("work/recomputed/act"), 0u);
      return Elements(memory, MemoryKind::kActivations);
    };
    for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
      const int64_t most = elements(3, Recompute::kNone);
      EXPECT_EQ(elements(3, recompute), most);
      const int64_t left_out = elements(2, Recompute::kNone) - elements(2, recompute);
      EXPECT_GT(left_out, most / 16) << "of one microbatch of four";
      EXPECT_EQ(elements(1, Recompute::kNone) - elements(1, recompute), 2 * left_out);
      EXPECT_EQ(elements(0, Recompute::kNone) - elements(0, recompute), 3 * left_out);
    }
  }
}

TEST(PlanRankMemory, TensorAxisNeverMakesARankLarger) {
  for (Layout layout : AllLayouts()) {
    for (int stage = 0; stage < layout.pp; ++stage) {
      layout.tp = 1;
      const int64_t whole =
          PlanRankMemory(Tiny(), kBatch, layout, layout.grid().RankOf({.pp = stage}), {})
              .total_bytes();
      layout.tp = 2;
      for (int tp = 0; tp < 2; ++tp) {
        const int rank = layout.grid().RankOf({.pp = stage, .tp = tp});
        EXPECT_LT(PlanRankMemory(Tiny(), kBatch, layout, rank, {}).total_bytes(), whole);
      }
    }
  }
}

TEST(PlanRankMemory, SgdHasNoOptimizerState) {
  EXPECT_EQ(PlanRankMemory(Tiny(), kBatch, Layout{.gradient_accumulation_steps = 16}, 0,
                           {.optimizer = OptimizerStates::kNone})
                .bytes(MemoryKind::kOptimizer),
            0);
}

// A byte for each element and four for each block of 256, of runs that are whole blocks.
TEST(PlanRankMemory, HoldsMomentsOfEightBitsAsCodesAndScales) {
  const Layout layout = {.dp = 3, .zero_stage = 1, .gradient_accumulation_steps = 1};
  const RankMemory memory =
      PlanRankMemory(Tiny(), {3, 16}, layout, 1, {.optimizer = OptimizerStates::kTwoMoments8Bit});
  int64_t codes_bytes = 0;
  int64_t scales = 0;
  for (const BufferSpec& buffer : memory.buffers) {
    if (buffer.kind != MemoryKind::kOptimizer) continue;
    if (absl::StrContains(buffer.name, "_scales/")) {
      scales += buffer.elements;
      EXPECT_EQ(buffer.type, ElementType::kFp32) << buffer.name;
    } else {
      codes_bytes += buffer.elements;
      EXPECT_EQ(buffer.type, ElementType::kUint8) << buffer.name;
      EXPECT_EQ(buffer.elements % 256, 0) << buffer.name;
    }
  }
  EXPECT_EQ(codes_bytes, 256 * scales);
  EXPECT_GE(codes_bytes, 2 * ParameterCount(Tiny()) / 3);
}

// A number for each row and column of a whole matrix and for each element of a whole vector, on
// every rank that holds a part of it.
TEST(PlanRankMemory, HoldsFactoredMomentsWholeHoweverTensorsAreCut) {
  int64_t elements = 0;
  int64_t tensors = 0;
  for (const TensorSpec& tensor : Tensors(Tiny())) {
    for (const int64_t dim : tensor.dims) elements += dim;
    ++tensors;
  }
  for (const Layout& layout : {Layout{}, Layout{.tp = 2}, Layout{.dp = 3, .zero_stage = 3},
                               Layout{.dp = 3, .tp = 2, .zero_stage = 1}}) {
    for (int rank = 0; rank < layout.world_size(); ++rank) {
      const RankMemory memory =
          PlanRankMemory(Tiny(), {3, 16}, layout, rank, {.optimizer = OptimizerStates::kFactored});
      EXPECT_EQ(Elements(memory, MemoryKind::kOptimizer), elements) << LayoutText(layout);
      std::map<std::string, int64_t> by_name = ByName(memory);
      EXPECT_EQ(by_name["comm/square_sums"], elements);
      EXPECT_EQ(by_name["comm/norms"], 2 * tensors);
      EXPECT_EQ(by_name["work/row_means"], tensors);
    }
  }
}

// GPT-2 of 4 blocks over 3 ranks of a data group: what each stage of ZeRO cuts is a third, and what
// passes work on is whole in two places, of two blocks each. The table has nobody to share one
// with.
TEST(PlanRankMemory, ZeroCutsWhatItsStageSays) {
  Layout layout{.dp = 3, .gradient_accumulation_steps = 1};
  const int64_t parameters = ParameterCount(Tiny());
  const auto elements = [&](MemoryKind kind) {
    return Elements(PlanRankMemory(Tiny(), {3, 16}, layout, 1, {}), kind);
  };
  const auto buckets = BucketsOf(Tiny(), layout, 0, OptimizerStates::kTwoMoments);
  ASSERT_EQ(buckets[0].name, "embedding");
  ASSERT_EQ(buckets[1].name, "blocks.0");
  const int64_t table = buckets[0].elements;
  const int64_t blocks = parameters - table;
  const int64_t places = 2 * buckets[1].elements;
  // Five buckets, cut on multiples of 16.
  const auto expect_about = [](int64_t got, int64_t expected) {
    EXPECT_LE(std::abs(got - expected), 2 * 5 * 3 * 16) << got << ", not about " << expected;
  };
  for (layout.zero_stage = 0; layout.zero_stage <= 3; ++layout.zero_stage) {
    const int64_t zero = layout.zero_stage;
    SCOPED_TRACE(zero);
    expect_about(elements(MemoryKind::kWeights), table + blocks / (zero >= 3 ? 3 : 1));
    expect_about(elements(MemoryKind::kGradients), table + blocks / (zero >= 2 ? 3 : 1));
    expect_about(elements(MemoryKind::kOptimizer), 2 * parameters / (zero >= 1 ? 3 : 1));
    expect_about(elements(MemoryKind::kCommunication), std::max<int64_t>(0, zero - 1) * places);
  }
}

// States and master weights are offloaded, and are staged on the device while the update works on
// them.
TEST(PlanRankMemory, OffloadsStatesAndMasterWeightsAndNothingElse) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    Layout layout = {.dp = 3, .zero_stage = 1, .gradient_accumulation_steps = 1};
    const Numerics numerics = {.precision = precision};
    const RankMemory plain = PlanRankMemory(Tiny(), {3, 16}, layout, 1, numerics);
    layout.offload_optimizer = OffloadDevice::kCpu;
    const RankMemory memory = PlanRankMemory(Tiny(), {3, 16}, layout, 1, numerics);
    EXPECT_EQ(plain.host_bytes(), 0);
    EXPECT_EQ(memory.bytes(MemoryKind::kOptimizer), 0);
    EXPECT_EQ(memory.bytes(MemoryKind::kMasterWeights), 0);
    EXPECT_EQ(memory.host_bytes(),
              plain.bytes(MemoryKind::kOptimizer) + plain.bytes(MemoryKind::kMasterWeights));
    for (const MemoryKind kind : {MemoryKind::kWeights, MemoryKind::kGradients,
                                  MemoryKind::kActivations, MemoryKind::kCommunication}) {
      EXPECT_EQ(memory.bytes(kind), plain.bytes(kind)) << WordOf(kind);
    }
    // Two places, each with room for a third of a block and of its moments.
    const auto elements = ByName(memory);
    const int64_t block = elements.at("exp_avg/blocks.0");
    std::vector<std::string> staged;
    for (const auto& [name, count] : elements) {
      if (!absl::StartsWith(name, "work/staging")) continue;
      EXPECT_EQ(count, block) << name;
      staged.push_back(name.substr(std::string("work/").size()));
    }
    const std::vector<std::string> moments = {"staging0/exp_avg", "staging0/exp_avg_sq",
                                              "staging1/exp_avg", "staging1/exp_avg_sq"};
    const std::vector<std::string> all = {"staging0/exp_avg",    "staging0/exp_avg_sq",
                                          "staging0/master",     "staging1/exp_avg",
                                          "staging1/exp_avg_sq", "staging1/master"};
    EXPECT_EQ(staged, precision == Precision::kFp32 ? moments : all);
  }
}

TEST(StagingOf, IsBoundedAndHasNoPlaceThatNothingFills) {
  constexpr int64_t kMost = kMostStagedElements;
  const Layout offloads = {.offload_optimizer = OffloadDevice::kCpu};
  const auto of = [&](const BucketElements& elements) {
    const StagingRoom staging = StagingOf(elements, offloads, {});
    return std::pair(staging.elements, staging.places);
  };
  EXPECT_EQ(of({.end = 0, .block = 160, .counts = {.blocks = 1}}), std::pair(int64_t{160}, 1));
  EXPECT_EQ(of({.end = 144, .block = 160, .counts = {.blocks = 1}}), std::pair(int64_t{160}, 1));
  EXPECT_EQ(of({.end = 160, .block = 160, .counts = {.blocks = 1}}), std::pair(int64_t{160}, 2));
  EXPECT_EQ(of({.end = 0, .block = 160, .counts = {.blocks = 2}}), std::pair(int64_t{160}, 2));
  EXPECT_EQ(of({.end = 0, .block = 2 * kMost - 16, .counts = {.blocks = 1}}), std::pair(kMost, 1));
  EXPECT_EQ(of({.end = 0, .block = 2 * kMost, .counts = {.blocks = 1}}), std::pair(kMost, 2));
  EXPECT_EQ(kMost % kStateBlock, 0);
  EXPECT_EQ(StagingOf({.block = 160, .counts = {.blocks = 2}}, Layout{}, {}).places, 0);
  EXPECT_EQ(StagingOf({.block = 160, .counts = {.blocks = 2}}, offloads,
                      {.optimizer = OptimizerStates::kNone})
                .places,
            0);
}

// A group of one is no group: nothing is cut, nothing needs to be made whole.
TEST(PlanRankMemory, ZeroOnASingleDataRankChangesNothing) {
  const auto list = [](int zero_stage) {
    const Layout layout{.zero_stage = zero_stage, .gradient_accumulation_steps = 16};
    return ByName(PlanRankMemory(Tiny(), kBatch, layout, 0, {}));
  };
  EXPECT_EQ(list(3), list(0));
}

// Whole lines of 128 bytes in 16 bits, GPT-2's vocabulary and what tp leaves of it among them.
TEST(LogitStride, IsTheNextMultipleOf64) {
  const std::pair<int64_t, int64_t> cases[] = {{1, 64},         {64, 64},       {65, 128},
                                               {50257, 50304},  {50304, 50304}, {25129, 25152},
                                               {128256, 128256}};
  for (const auto& [vocab, stride] : cases) EXPECT_EQ(LogitStride(vocab), stride) << vocab;
}

}  // namespace
}  // namespace weft
