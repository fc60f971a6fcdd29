// A planner must not contradict itself: what it answers fits on every stage by the very list that a
// worker allocates, asking for the answer's own values changes nothing, no neighbour of it is
// better, advice holds when it is followed, and a better machine is never slower. Questions are
// drawn from fixed seeds: odd small ones, and published shapes on the machines that people have,
// most of them with as little memory as they can do with.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "plan/keys/layout_reader.h"
#include "plan/memory/memory.h"
#include "plan/search/cures.h"
#include "plan/search/search.h"
#include "plan/spec/layout_spec.h"
#include "plan/spec/layout_text.h"
#include "tests/plan/search/random_question.h"

namespace weft {
namespace {

// Sums of the same terms in another order.
constexpr double kRounding = 1e-9;
// The share by which a neighbour may be better.
constexpr double kNeighbour = 0.001;

ModelShape Llama(int64_t blocks, int64_t hidden, int64_t heads, int64_t kv_heads, int64_t ffn) {
  ModelShape model;
  SetArchitecture(Architecture::kLlama, model);
  model.vocab_size = 128256;
  model.hidden_size = hidden;
  model.num_blocks = blocks;
  model.num_heads = heads;
  model.num_kv_heads = kv_heads;
  model.head_dim = hidden / heads;
  model.ffn_size = ffn;
  model.max_positions = 1 << 17;
  model.tied_embeddings = false;
  return model;
}

ModelShape WithExperts(ModelShape model, int64_t experts, int64_t each, int64_t width) {
  model.num_experts = experts;
  model.experts_per_token = each;
  model.expert_ffn_size = width;
  return model;
}

// Shapes that people train and machines that they have, most of them short of memory.
Question PublishedQuestion(Dice& dice) {
  const std::vector<ModelShape> models = {
      Llama(32, 4096, 32, 8, 14336),                            // Llama-3 8B
      Llama(80, 8192, 64, 8, 28672),                            // Llama-3 70B
      Llama(16, 2048, 32, 8, 8192),                             // Llama-3.2 1B
      Llama(28, 3072, 24, 8, 8192),                             // Llama-3.2 3B
      Llama(36, 4096, 32, 8, 12288),                            // Qwen3-8B
      Llama(40, 5120, 40, 8, 17408),                            // Qwen3-14B
      WithExperts(Llama(32, 4096, 32, 8, 14336), 8, 2, 14336),  // Mixtral 8x7B
      WithExperts(Llama(48, 2048, 32, 4, 6144), 128, 8, 768)};  // Qwen3-30B-A3B
  Question question;
  question.model = dice.Of(models);
  Cluster& cluster = question.cluster;
  cluster.name = "lab";
  cluster.nodes = dice.Of<int>({1, 1, 1, 2, 3, 7});
  cluster.slots_per_node = dice.Of<int>({2, 4, 6, 8, 8});
  if (question.model.num_experts > 0) cluster.nodes = 1;  // closed forms take their time
  cluster.host_memory_bytes = dice.Chance(50) ? int64_t{dice.Of<int>({256, 512, 2048})} << 30 : 0;
  DeviceProfile& device = cluster.device;
  device.name = "gpu";
  device.backend = BackendKind::kCuda;
  const bool is_small = dice.Chance(40);
  device.memory_bytes = (is_small ? int64_t{24} : int64_t{80}) * 1'065'000'000;
  if (dice.Chance(50)) device.memory_bytes = device.memory_bytes * dice.Between(60, 100) / 100;
  device.library_bytes = is_small ? int64_t{3} << 29 : int64_t{3} << 30;
  device.compute_units = is_small ? 128 : 132;
  device.peak_flops_per_s =
      is_small ? PerPrecision{82.6e12, 165.2e12, 330.3e12} : PerPrecision{67e12, 989e12, 1979e12};
  device.matmul_efficiency = {0.75, 0.75, 0.64};
  device.attention_efficiency = 0.4;
  device.peak_memory_bytes_per_s = is_small ? 1.008e12 : 3.35e12;
  device.streaming_efficiency = 0.8;
  device.op_overhead_s = 4e-6;
  cluster.intra_node = {.latency_s = 5e-6, .bytes_per_s = is_small ? 12e9 : 383e9};
  cluster.inter_node = {.latency_s = 2e-5, .bytes_per_s = is_small ? 11e9 : 35e9};
  question.batch = {.global_batch_size = dice.Of<int64_t>({8, 16, 24, 64, 128, 512}),
                    .seq_len = dice.Of<int64_t>({1024, 2048, 4096})};
  question.numerics.precision = Precision::kBf16;
  question.numerics.cudnn_attention = true;
  question.engine = WeftProfile();
  return question;
}

// The best plan, without the search for cures where there is none.
std::optional<Plan> PlanOf(const Question& question, const LayoutSpec& fixed) {
  if (!CheckPrecision(question.cluster.device, question.numerics.precision).ok())
    return std::nullopt;
  Pricer pricer(question);
  const absl::StatusOr<Finds> finds = Solve(pricer, fixed, Purpose::kEstimate, Wanted::kFitting);
  if (!finds.ok() || finds->fitting.empty()) return std::nullopt;
  absl::StatusOr<Plan> plan = PlanFor(question, finds->fitting.front().layout, Purpose::kEstimate);
  if (!plan.ok()) return std::nullopt;
  plan->counts = finds->counts;
  return *std::move(plan);
}

double ObjectiveOf(const Plan& plan) {
  return plan.time.total_s() / plan.goodput;
}

// Two of three questions are small and odd, the others are published shapes; most have less memory
// than their plan would like.
Question QuestionOfSeed(Dice& dice) {
  Question question = dice.Chance(65) ? RandomQuestion(dice) : PublishedQuestion(dice);
  if (!dice.Chance(60)) return question;
  const std::optional<Plan> roomy = PlanOf(question, {});
  if (!roomy) return question;
  DeviceProfile& device = question.cluster.device;
  device.memory_bytes = device.library_bytes + roomy->peak_bytes() * dice.Between(50, 99) / 100;
  return question;
}

// Counts what the questions of some seeds came to.
struct Tally {
  int plans = 0, pins = 0, neighbours = 0, cures = 0, machines = 0, lists = 0;
};

class Claims {
 public:
  // `thorough`: every own value of large questions, too, instead of a few.
  Claims(const Question& question, bool thorough, Tally& tally)
      : question_(question),
        thorough_(thorough),
        all_values_(thorough || question.cluster.slots() * question.model.num_blocks < 200),
        tally_(tally) {}

  void Hold(Dice& dice) {
    const std::optional<Plan> plan = PlanOf(question_, {});
    // Cures take many searches.
    if (!plan && !thorough_ && !dice.Chance(25)) return;
    if (!plan) return HoldAdvice();
    ++tally_.plans;
    EXPECT_EQ(plan->counts.disproved, 0);
    HoldRoom(*plan);
    HoldOwnValues(*plan, dice);
    HoldNeighbours(*plan);
    HoldMachines(*plan, dice);
  }

 private:
  // Each stage's list, or the closed form and its guard where there is none, within the device.
  void HoldRoom(const Plan& plan) {
    const DeviceProfile& device = question_.cluster.device;
    for (int stage = 0; stage < plan.layout.pp; ++stage) {
      MemoryEstimate memory = EstimateStageMemory(question_, plan.layout, stage);
      int64_t bytes = memory.total_bytes() + GuardBytes(question_, memory);
      if (memory.exact) {
        ++tally_.lists;
        const int rank = plan.layout.grid().RankOf({.dp = 0, .pp = stage, .cp = 0, .tp = 0});
        const RankMemory list =
            PlanRankMemory(question_.model, question_.batch, plan.layout, rank, question_.numerics);
        bytes = list.total_bytes() + memory.of(MemoryTerm::kContext);
        if (device.backend == BackendKind::kCpu) bytes += list.host_bytes();
      }
      EXPECT_LE(bytes, device.memory_bytes) << "stage " << stage << ": " << LayoutText(plan.layout);
    }
  }

  void HoldOwnValues(const Plan& plan, Dice& dice) {
    for (const PropertyText& property : PropertyTexts(SpecOf(plan.layout))) {
      const bool is_of_stages = property.name == "layers_per_stage" ||
                                property.name == "recompute" ||
                                property.name == "recompute_per_stage";
      if (!all_values_ && !(is_of_stages && plan.layout.pp > 1) && !dice.Chance(10)) continue;
      LayoutSpec fixed;
      ASSERT_TRUE(ReadProperty("own", property.name, property.value, fixed).ok());
      const std::optional<Plan> other = PlanOf(question_, fixed);
      ++tally_.pins;
      ASSERT_TRUE(other) << property.name << "=" << property.value;
      EXPECT_NEAR(ObjectiveOf(*other) / ObjectiveOf(plan), 1, kRounding)
          << property.name << "=" << property.value << ": " << LayoutText(other->layout)
          << "; the plan: " << LayoutText(plan.layout);
    }
  }

  void HoldNeighbour(const Plan& plan, const Layout& neighbour) {
    const absl::StatusOr<Plan> other = PlanFor(question_, neighbour, Purpose::kEstimate);
    if (!other.ok() || !other->fits) return;
    ++tally_.neighbours;
    EXPECT_GE(ObjectiveOf(*other), ObjectiveOf(plan) * (1 - kNeighbour))
        << LayoutText(neighbour) << "; the plan: " << LayoutText(plan.layout);
  }

  // One block moved between any two stages, each of the two with any recompute mode.
  void HoldNeighbours(const Plan& plan) {
    const Layout& layout = plan.layout;
    if (layout.pp == 1 || layout.pp > 12 || layout.virtual_stages > 1) return;
    Layout moved = layout;
    std::vector<int64_t> blocks;
    std::vector<Recompute> modes;
    for (int stage = 0; stage < layout.pp; ++stage) {
      blocks.push_back(StageBlockCount(layout, question_.model.num_blocks, stage));
      modes.push_back(layout.recompute_of(stage));
    }
    for (size_t from = 0; from < blocks.size(); ++from) {
      for (size_t to = 0; to < blocks.size(); ++to) {
        if (from == to || blocks[from] < 2) continue;
        moved.layers_per_stage = blocks;
        --moved.layers_per_stage[from];
        ++moved.layers_per_stage[to];
        moved.recompute_per_stage = modes;
        HoldNeighbour(plan, moved);
        for (const Recompute mode : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
          moved.recompute_per_stage = modes;
          if (mode > modes[to]) moved.recompute_per_stage[to] = mode;
          if (mode < modes[from]) moved.recompute_per_stage[from] = mode;
          if (moved.recompute_per_stage != modes) HoldNeighbour(plan, moved);
        }
      }
    }
  }

  void HoldMachines(const Plan& plan, Dice& dice) {
    const auto is_never_slower = [&](const char* what, double times,
                                     const std::function<void(Question&)>& change) {
      Question better = question_;
      change(better);
      const std::optional<Plan> other = PlanOf(better, {});
      ++tally_.machines;
      ASSERT_TRUE(other) << what;
      EXPECT_LE(ObjectiveOf(*other), times * ObjectiveOf(plan) * (1 + kRounding))
          << what << ": " << LayoutText(other->layout) << "; the plan: " << LayoutText(plan.layout);
    };
    DeviceProfile& device = question_.cluster.device;
    const std::vector<std::function<void()>> all = {
        [&] {
          is_never_slower("more memory", 1, [&](Question& q) {
            q.cluster.device.memory_bytes += device.memory_bytes * dice.Between(2, 30) / 100;
          });
        },
        [&] {
          is_never_slower("faster links", 1, [](Question& q) {
            q.cluster.intra_node.bytes_per_s *= 2;
            q.cluster.inter_node.bytes_per_s *= 2;
          });
        },
        [&] {
          // Launches as well: where they are what takes the time, shorter products leave ZB-H1 less
          // to put off (0.17 % slower in a toy).
          is_never_slower("more FLOPs", 1, [](Question& q) {
            q.cluster.device.op_overhead_s /= 1.5;
            PerPrecision& peak = q.cluster.device.peak_flops_per_s;
            peak = {1.5 * peak.fp32, 1.5 * peak.bf16, 1.5 * peak.fp8};
          });
        },
        [&] { is_never_slower("more nodes", 1, [](Question& q) { q.cluster.nodes *= 2; }); },
        [&] {
          is_never_slower("a larger batch", 2, [](Question& q) { q.batch.global_batch_size *= 2; });
        }};
    for (int i = 0; i < (all_values_ ? 2 : 1); ++i) dice.Of(all)();
  }

  // Does what each cure says, and asks again.
  void HoldAdvice();

  Question question_;
  bool thorough_;
  bool all_values_;
  Tally& tally_;
};

// "135 GiB" as a person would write it into a cluster's file.
std::optional<int64_t> BytesIn(const std::string& text) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  double number = 0;
  if (words.size() != 2 || !absl::SimpleAtod(words[0], &number)) return std::nullopt;
  for (const auto& [unit, shift] : {std::pair{"B", 0}, std::pair{"KiB", 10}, std::pair{"MiB", 20},
                                    std::pair{"GiB", 30}, std::pair{"TiB", 40}}) {
    if (words[1] == unit) {
      return static_cast<int64_t>(number * static_cast<double>(int64_t{1} << shift));
    }
  }
  return std::nullopt;
}

void Claims::HoldAdvice() {
  if (!CheckPrecision(question_.cluster.device, question_.numerics.precision).ok()) return;
  if (Space(question_, {}, Purpose::kEstimate).CountPoints() == 0) return;
  for (const Cure& cure : CuresOf(question_, {}, Purpose::kEstimate)) {
    Question followed = question_;
    std::string value = cure.change;
    const auto says = [&](const char* what) {
      if (!absl::StartsWith(cure.change, what)) return false;
      value = cure.change.substr(std::string(what).size());
      return true;
    };
    int64_t number = 0;
    LayoutSpec fixed;
    if (says("devices with ")) {
      followed.cluster.device.memory_bytes = BytesIn(value).value_or(0);
    } else if (says("hosts with ")) {
      followed.cluster.host_memory_bytes = BytesIn(value).value_or(0);
    } else if (says("cluster.nodes ")) {
      ASSERT_TRUE(absl::SimpleAtoi(value, &number));
      followed.cluster.nodes = static_cast<int>(number);
    } else if (says("training.seq_len ")) {
      ASSERT_TRUE(absl::SimpleAtoi(value, &followed.batch.seq_len));
    } else if (says("training.head_chunk_tokens ")) {
      ASSERT_TRUE(absl::SimpleAtoi(value, &number));
      fixed.head_chunk_tokens = number;
    } else if (says("offload.optimizer ")) {
      fixed.offload_optimizer = OffloadDevice::kCpu;
    } else if (says("optimizer.name ")) {
      followed.numerics.optimizer = OptimizerStates::kTwoMoments8Bit;
    } else if (says("lora ")) {
      followed.adapters =
          LowRankAdapters{.rank = 16,
                          .frozen = absl::StrContains(value, "double") ? FrozenFormat::kNf4Double
                                                                       : FrozenFormat::kNf4};
    } else {
      ADD_FAILURE() << "unknown advice: " << cure.change;
    }
    ++tally_.cures;
    EXPECT_TRUE(PlanOf(followed, fixed)) << cure.change << ", followed, fits nothing";
  }
}

Tally HoldClaims(uint32_t first, uint32_t last, bool thorough = false) {
  Tally tally;
  for (uint32_t seed = first; seed <= last; ++seed) {
    Dice dice(seed);
    const Question question = QuestionOfSeed(dice);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ", ", question.engine.name));
    Claims(question, thorough, tally).Hold(dice);
  }
  return tally;
}

// Four tests, so that they run beside each other.
TEST(Planner, DoesNotContradictItselfFirst) {
  const Tally tally = HoldClaims(1, 50);
  EXPECT_GT(tally.plans, 15);
  EXPECT_GT(tally.lists, 20);
}
TEST(Planner, DoesNotContradictItselfSecond) {
  EXPECT_GT(HoldClaims(51, 100).pins, 200);
}
TEST(Planner, DoesNotContradictItselfThird) {
  EXPECT_GT(HoldClaims(101, 150).neighbours, 100);
}
TEST(Planner, DoesNotContradictItselfFourth) {
  EXPECT_GT(HoldClaims(151, 200).cures, 0);
}

class PlannerInLong : public testing::TestWithParam<uint32_t> {};

TEST_P(PlannerInLong, DoesNotContradictItselfInManyMoreQuestions) {
  const Tally tally = HoldClaims(GetParam() + 1, GetParam() + 200, /*thorough=*/true);
  EXPECT_GT(tally.plans, 60);  // two of three questions have none in some ranges of seeds
  EXPECT_GT(tally.pins, 500);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PlannerInLong, testing::Range(200U, 2200U, 200U));

}  // namespace
}  // namespace weft
