#include "tests/parity/layout_draw.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "plan/keys/job_rules.h"
#include "plan/shards/whole_places.h"
#include "plan/spec/layout_rules.h"
#include "tests/parity/parity_job.h"

namespace weft {
namespace {

constexpr int kMostRolls = 1000000;
// Each layout is taken out of so many draws, as the one that has the axis drawn least so far: plain
// chance would leave out what many rules have to hold for.
constexpr int kDrawsToChooseFrom = 60;

bool IsRunnable(const JobSpec& job, const Layout& layout) {
  return layout.world_size() <= kMostRanks &&
         CheckRunnable(job.model, job.cluster, job.batch(), layout).ok();
}

// std::mt19937_64's numbers are the standard's, its distributions' are the library's.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  int64_t Below(int64_t count) {
    return static_cast<int64_t>(engine_() % static_cast<uint64_t>(count));
  }
  bool OneIn(int64_t count) { return Below(count) == 0; }
  template <typename T>
  T Of(std::initializer_list<T> choices) {
    return choices.begin()[Below(static_cast<int64_t>(choices.size()))];
  }

 private:
  std::mt19937_64 engine_;
};

// Positive numbers that sum to `blocks`.
std::vector<int64_t> UnevenSplit(int64_t blocks, int stages, Dice& dice) {
  std::vector<int64_t> split(static_cast<size_t>(stages), 1);
  for (int64_t left = blocks - stages; left > 0; --left) {
    ++split[static_cast<size_t>(dice.Below(stages))];
  }
  return split;
}

Recompute AnyRecompute(Dice& dice) {
  return dice.Of({Recompute::kNone, Recompute::kSelective, Recompute::kFull});
}

// Any values at all: most break a rule.
Layout Roll(const JobSpec& job, Dice& dice) {
  Layout layout;
  layout.dp = dice.Of({1, 1, 2, 3, 4, 8});
  layout.tp = dice.Of({1, 1, 2, 4});
  layout.pp = dice.Of({1, 1, 2, 3, 4});
  layout.cp = dice.Of({1, 1, 1, 2, 4});
  layout.zero_stage = dice.Of({0, 1, 2, 3});
  layout.zero_hpz_partition_size = dice.OneIn(3) ? dice.Of({1, 2, 4}) : 1;
  layout.pp_schedule = dice.Of({ScheduleKind::kGpipe, ScheduleKind::kOneForwardOneBackward,
                                ScheduleKind::kInterleaved, ScheduleKind::kZeroBubbleH1});
  layout.virtual_stages = layout.pp_schedule == ScheduleKind::kInterleaved ? dice.Of({2, 3}) : 1;
  layout.micro_batch_size = dice.Of<int64_t>({1, 2, 3, 4, 8});
  layout.gradient_accumulation_steps =
      job.training.global_batch_size / (layout.dp * layout.micro_batch_size);
  layout.recompute = AnyRecompute(dice);
  layout.sequence_parallel = layout.tp > 1 && dice.OneIn(2);
  if (dice.OneIn(4) && OffloadIssues(job).empty()) {
    layout.offload_optimizer = OffloadDevice::kCpu;
  }
  const int64_t tokens = layout.micro_batch_size * job.training.seq_len / layout.cp;
  const int64_t chunks = dice.Of<int64_t>({1, 1, 2, 5});
  if (chunks > 1) layout.head_chunk_tokens = (tokens + chunks - 1) / chunks;
  if (layout.pp > 1 && dice.OneIn(3)) {
    layout.layers_per_stage = UnevenSplit(job.model.num_blocks, layout.pp, dice);
  }
  if (layout.pp > 1 && dice.OneIn(3)) {
    for (int stage = 0; stage < layout.pp; ++stage) {
      layout.recompute_per_stage.push_back(AnyRecompute(dice));
    }
  }
  return layout;
}

// Puts what the engine cannot do yet back to plain, so that a draw is not lost for it.
Layout WithoutWhatCannotRun(const ModelShape& model, Layout layout) {
  const auto settle = [&](auto Layout::*field, auto plain) {
    Layout only;
    only.tp = layout.tp;
    only.*field = layout.*field;
    if (!EngineIssues(model, only).empty()) layout.*field = plain;
  };
  settle(&Layout::cp, 1);
  settle(&Layout::zero_stage, 0);
  settle(&Layout::sequence_parallel, false);
  settle(&Layout::offload_optimizer, OffloadDevice::kNone);
  settle(&Layout::head_chunk_tokens, 0);
  settle(&Layout::recompute, Recompute::kNone);
  if (layout.recompute == Recompute::kNone) layout.recompute_per_stage.clear();
  if (layout.zero_stage == 0) layout.zero_hpz_partition_size = 1;
  return layout;
}

Layout RollRunnable(const JobSpec& job, Dice& dice) {
  for (int roll = 0; roll < kMostRolls; ++roll) {
    Layout layout = WithoutWhatCannotRun(job.model, Roll(job, dice));
    if (IsRunnable(job, layout)) return layout;
  }
  CHECK(false);
  return {};
}

// How often what `layout` has that is rarest among those drawn was drawn.
int SeenOfRarestAxis(const ModelShape& model, const Layout& layout, const AxisCounts& seen) {
  int least = std::numeric_limits<int>::max();
  for (const std::string& axis : AxesOf(model, layout)) {
    const auto found = seen.find(axis);
    least = std::min(least, found == seen.end() ? 0 : found->second);
  }
  return least;
}

// Where AdamW would make much of roundings: see BoundsOf.
JobSpec WithSgd(JobSpec job) {
  job.optimizer = {.name = OptimizerKind::kSgd, .lr = 0.05, .weight_decay = 0};
  job.lr_scheduler = {.type = LrSchedule::kConstant};
  job.training.gradient_clipping = 0;
  return job;
}

JobSpec WithLossTerms(JobSpec job) {
  job.training.z_loss = 0.01;
  job.training.label_smoothing = 0.1;
  return job;
}

}  // namespace

std::vector<DrawnModel> ModelsToDrawFor() {
  std::vector<DrawnModel> models;
  models.push_back({"gpt2_4_blocks", EnglishJob(), 7, false});
  JobSpec seven = EnglishJob();
  seven.model.num_blocks = 7;
  seven.model.tied_embeddings = false;
  seven.training.global_batch_size = 12;  // dp 3; 3 microbatches on 4 stages
  models.push_back({"gpt2_7_blocks", seven});
  models.push_back({"llama_2_kv_heads", EnglishLlamaJob(), 7, false});
  JobSpec one = EnglishLlamaJob();
  one.model.num_blocks = 7;
  one.model.num_kv_heads = 1;
  one.model.tied_embeddings = true;
  one.training.global_batch_size = 12;
  models.push_back({"llama_1_kv_head", one});
  models.push_back({"qwen3_2_kv_heads", EnglishJobOf("qwen3"), 5, false});
  models.push_back({"granite_2_kv_heads", WithLossTerms(EnglishJobOf("granite")), 4, false});
  models.push_back({"starcoder2_2_kv_heads", EnglishJobOf("starcoder2"), 4, false});
  models.push_back({"mistral_2_kv_heads", EnglishJobOf("mistral"), 4, false});
  models.push_back({"smollm3_2_kv_heads", EnglishJobOf("smollm3"), 5, false});
  models.push_back({"gemma2_2_kv_heads", EnglishJobOf("gemma2"), 4, false});
  models.push_back({"gemma3_2_kv_heads", EnglishJobOf("gemma3"), 5, false});
  models.push_back({"glm4_2_kv_heads", EnglishJobOf("glm4"), 4, false});
  models.push_back({"gpt_neox", EnglishJobOf("gpt_neox"), 4, false});
  models.push_back({"gpt_neox_in_sequence", EnglishJobOf("gpt_neox_in_sequence"), 3, false});
  models.push_back({"olmo2_2_kv_heads", EnglishJobOf("olmo2"), 5, false});
  models.push_back({"olmo3_2_kv_heads", EnglishJobOf("olmo3"), 4, false});
  models.push_back({"cohere2_2_kv_heads", EnglishJobOf("cohere2"), 4, false});
  JobSpec packed = WithSgd(EnglishJob());
  packed.data.eos_token_id = ' ';  // documents of a word each
  packed.data.reset_attention_mask = true;
  packed.data.reset_position_ids = true;
  models.push_back({"nemotron_2_kv_heads", EnglishJobOf("nemotron"), 4, false});
  models.push_back({"gpt2_packed_with_sgd", packed, 4, false});
  models.push_back({"llama_with_sgd", WithSgd(EnglishLlamaJob()), 4, false});
  models.push_back({"gpt2_in_bf16", In(Precision::kBf16, EnglishJob()), 5, false});
  JobSpec narrow = In(Precision::kBf16, EnglishLlamaJob());
  narrow.training.seed = 1;  // the order of seed 42 has an ill-conditioned step (curve.h)
  models.push_back({"llama_in_bf16", narrow, 5, false});
  // Norms of heads make attention sharp from the first step on: from step 10 on gradient norms of
  // one rank, too, differ by up to 3 % with the rows that are multiplied at once.
  JobSpec narrow_qwen3 = In(Precision::kBf16, WithSgd(EnglishJobOf("qwen3")));
  narrow_qwen3.training.steps = 9;
  models.push_back({"qwen3_in_bf16_with_sgd", narrow_qwen3, 4, false});
  JobSpec lion = In(Precision::kBf16, EnglishJob());
  lion.optimizer = {.name = OptimizerKind::kLion, .lr = 5e-4, .beta2 = 0.99};
  models.push_back({"gpt2_in_bf16_with_lion", lion, 4, false});
  JobSpec factored = EnglishLlamaJob();
  factored.optimizer = {.name = OptimizerKind::kAdafactor, .lr = 1e-3};
  models.push_back({"llama_with_adafactor", factored, 4, false});
  models.push_back({"gpt2_in_fp16", In(Precision::kFp16, EnglishJob()), 4, false});
  models.push_back(
      {"llama_in_fp16_with_sgd", In(Precision::kFp16, WithSgd(EnglishLlamaJob())), 4, false});
  return models;
}

std::vector<Layout> OddLayouts(const DrawnModel& model) {
  constexpr ScheduleKind k1f1b = ScheduleKind::kOneForwardOneBackward;
  constexpr ScheduleKind kZeroBubble = ScheduleKind::kZeroBubbleH1;
  std::vector<Layout> odd = {
      {.pp = 3, .pp_schedule = k1f1b, .micro_batch_size = 4},        // 7 blocks on 3 stages
      {.pp = 4, .pp_schedule = kZeroBubble, .micro_batch_size = 4},  // 3 microbatches on 4 stages
      // 7 blocks in chunks of 2 and 1, which share slots
      {.pp = 2,
       .pp_schedule = ScheduleKind::kInterleaved,
       .micro_batch_size = 2,
       .virtual_stages = 3},
      {.tp = 4, .micro_batch_size = 2},  // kv heads fewer than tp
      {.dp = 3, .tp = 2, .micro_batch_size = 2},
      {.dp = 2, .cp = 2, .tp = 2, .micro_batch_size = 1},
      {.dp = 2, .tp = 4, .zero_stage = 3, .micro_batch_size = 1, .recompute = Recompute::kFull},
      // 7 blocks in chunks of 2, 2, 2 and 1; 4 on stages of which one is cut
      {.dp = 2,
       .pp = 2,
       .zero_stage = 3,
       .pp_schedule = ScheduleKind::kInterleaved,
       .micro_batch_size = 1,
       .virtual_stages = 2},
      {.dp = 2,
       .pp = 2,
       .zero_stage = 2,
       .pp_schedule = ScheduleKind::kInterleaved,
       .micro_batch_size = 3,
       .virtual_stages = 3},
      {.dp = 2, .pp = 2, .zero_stage = 2, .pp_schedule = kZeroBubble, .layers_per_stage = {1, 3}},
  };
  std::vector<Layout> runnable;
  for (Layout& layout : odd) {
    layout.gradient_accumulation_steps =
        model.job.training.global_batch_size / (layout.dp * layout.micro_batch_size);
    if (IsRunnable(model.job, layout)) runnable.push_back(std::move(layout));
  }
  return runnable;
}

std::vector<Layout> DrawLayouts(const DrawnModel& model, uint64_t seed, int count) {
  AxisCounts seen;
  return DrawLayouts(model, seed, count, seen);
}

std::vector<Layout> DrawLayouts(const DrawnModel& model, uint64_t seed, int count,
                                AxisCounts& seen) {
  Dice dice(seed);
  std::vector<Layout> drawn;
  while (std::ssize(drawn) < count) {
    std::optional<Layout> best;
    int best_seen = 0;
    for (int draw = 0; draw < kDrawsToChooseFrom; ++draw) {
      const Layout layout = RollRunnable(model.job, dice);
      if (std::find(drawn.begin(), drawn.end(), layout) != drawn.end()) continue;
      const int least_seen = SeenOfRarestAxis(model.job.model, layout, seen);
      if (best && best_seen <= least_seen) continue;
      best = layout;
      best_seen = least_seen;
    }
    CHECK(best.has_value());
    for (const std::string& axis : AxesOf(model.job.model, *best)) ++seen[axis];
    drawn.push_back(*std::move(best));
  }
  return drawn;
}

std::vector<std::string> AxesOf(const ModelShape& model, const Layout& layout) {
  std::vector<std::string> axes;
  const auto add = [&](bool is_used, const auto&... words) {
    if (is_used) axes.push_back(absl::StrCat(words...));
  };
  add(layout.dp > 1, "dp");
  add(layout.tp > 1, "tp");
  add(layout.pp > 1, "pp");
  add(layout.cp > 1, "cp");
  add(layout.pp > 1, WordOf(layout.pp_schedule));
  add(layout.zero_stage > 0, "zero_stage=", layout.zero_stage);
  if (layout.pp > 1 && layout.zero_stage >= 2 && layout.data_group() > 1 &&
      SharesPlaces(layout, model.num_blocks, model.tied_embeddings)) {
    add(true, "zero_stage=", layout.zero_stage, " in a pipeline");
    add(true, "gradients cut under ", WordOf(layout.pp_schedule));
  }
  add(layout.has_zero_groups() && layout.zero_hpz_partition_size < layout.data_group(),
      "zero_hpz_partition_size");
  add(layout.sequence_parallel, "sequence_parallel");
  add(layout.offloads_optimizer(), "offload");
  add(layout.head_chunk_tokens > 0, "head_chunk_tokens");
  add(!layout.layers_per_stage.empty(), "layers_per_stage");
  add(layout.recompute == Recompute::kSelective, "recompute=selective");
  add(layout.recompute == Recompute::kFull, "recompute=full");
  add(!layout.recompute_per_stage.empty(), "recompute per stage");
  add(layout.gradient_accumulation_steps > 1, "accumulation");
  return axes;
}

}  // namespace weft
