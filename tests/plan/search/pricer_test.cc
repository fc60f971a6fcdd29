// The keys by which a Pricer keeps figures are written by hand: each names what they depend on of a
// layout. So every property of the table of layouts is varied, and what a pricer says that has
// answered for all others before is held to what a new one says.
#include "plan/search/pricer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "plan/spec/layout_properties.h"
#include "plan/spec/layout_rules.h"
#include "plan/spec/layout_text.h"

namespace weft {
namespace {

ModelShape SmallLlama() {
  ModelShape model;
  SetArchitecture(Architecture::kLlama, model);
  model.vocab_size = 1000;
  model.head_dim = 16;
  model.num_heads = 8;
  model.num_kv_heads = 8;
  model.hidden_size = 128;
  model.num_blocks = 8;
  model.ffn_size = 384;
  model.max_positions = 4096;
  model.tied_embeddings = false;
  return model;
}

ModelShape SmallMixtral() {
  ModelShape model = SmallLlama();
  model.num_experts = 4;
  model.experts_per_token = 2;
  model.expert_ffn_size = model.ffn_size;
  return model;
}

Question QuestionAbout(const ModelShape& model, BackendKind backend, const std::string& engine) {
  const bool is_cpu = backend == BackendKind::kCpu;
  Question question;
  question.model = model;
  Cluster& cluster = question.cluster;
  cluster.name = "lab";
  cluster.nodes = 4;
  cluster.slots_per_node = 4;
  cluster.cores_per_node = is_cpu ? 6 : 0;
  cluster.host_memory_bytes = int64_t{64} << 30;
  cluster.device.name = "device";
  cluster.device.backend = backend;
  cluster.device.memory_bytes = int64_t{1} << 32;
  cluster.device.library_bytes = int64_t{1} << 28;
  cluster.device.peak_flops_per_s = {1e12, 2e12, 4e12};
  cluster.device.peak_memory_bytes_per_s = 2e11;
  cluster.device.op_overhead_s = 4e-6;
  cluster.intra_node = {.latency_s = 5e-6, .bytes_per_s = 2e10};
  cluster.inter_node = {.latency_s = 1e-5, .bytes_per_s = 2e9};
  cluster.failures = {5e4, 300};
  question.batch = {.global_batch_size = 64, .seq_len = 256};
  question.numerics.precision = is_cpu ? Precision::kFp32 : Precision::kBf16;
  question.engine = EngineProfileNamed(engine).value();
  return question;
}

std::vector<Question> Questions() {
  return {QuestionAbout(SmallLlama(), BackendKind::kCuda, "weft"),
          QuestionAbout(SmallLlama(), BackendKind::kCpu, "weft"),
          QuestionAbout(SmallMixtral(), BackendKind::kCuda, "megatron")};
}

// Layouts around which one property at a time is varied.
std::vector<Layout> Bases() {
  const Layout plain = {.dp = 2, .micro_batch_size = 4, .gradient_accumulation_steps = 8};
  Layout zero = plain;
  zero.dp = 4;
  zero.gradient_accumulation_steps = 4;
  zero.zero_stage = 1;
  Layout gathered = zero;
  gathered.zero_stage = 3;
  Layout wide = plain;
  wide.tp = 2;
  wide.cp = 2;
  Layout deep = plain;
  deep.pp = 2;
  deep.tp = 2;
  deep.sequence_parallel = true;
  Layout deeper = plain;
  deeper.pp = 4;
  deeper.recompute = Recompute::kSelective;
  Layout chunks = plain;
  chunks.pp = 2;
  chunks.pp_schedule = ScheduleKind::kInterleaved;
  chunks.virtual_stages = 2;
  return {plain, zero, gathered, wide, deep, deeper, chunks};
}

// Values that a property may take: those that break a rule are left out later.
std::vector<int> ValuesOf(const Layout&, int) {
  return {0, 1, 2, 3, 4, 8};
}
std::vector<int64_t> ValuesOf(const Layout&, int64_t) {
  return {0, 1, 2, 4, 8, 16, 100};
}
std::vector<bool> ValuesOf(const Layout&, bool) {
  return {false, true};
}
std::vector<std::vector<int64_t>> ValuesOf(const Layout& layout, const std::vector<int64_t>&) {
  if (layout.pp == 1) return {{}};
  std::vector<int64_t> first(static_cast<size_t>(layout.pp), 1);
  std::vector<int64_t> last = first;
  first.front() = last.back() = SmallLlama().num_blocks - layout.pp + 1;
  return {{}, first, last};
}
std::vector<std::vector<Recompute>> ValuesOf(const Layout& layout, const std::vector<Recompute>&) {
  std::vector<Recompute> first(static_cast<size_t>(layout.pp), Recompute::kNone);
  std::vector<Recompute> last = first;
  first.front() = Recompute::kFull;
  last.back() = Recompute::kSelective;
  return {{}, first, last};
}
template <typename E, typename = std::enable_if_t<std::is_enum_v<E>>>
std::vector<E> ValuesOf(const Layout&, E) {
  std::vector<E> values;
  for (size_t i = 0; i < WordsOf(E{}).size(); ++i) values.push_back(static_cast<E>(i));
  return values;
}

// The layout as it is, and with what else has to change for the batch and the schedule to hold.
std::vector<Layout> Mended(const Question& question, const Layout& layout) {
  const int64_t batch = question.batch.global_batch_size;
  std::vector<Layout> mended = {layout};
  Layout steps = layout, micro = layout;
  steps.gradient_accumulation_steps =
      batch / std::max<int64_t>(1, layout.dp * layout.micro_batch_size);
  micro.micro_batch_size =
      batch / std::max<int64_t>(1, layout.dp * layout.gradient_accumulation_steps);
  mended.insert(mended.end(), {steps, micro});
  for (Layout& each : mended) {
    const bool interleaves = each.pp_schedule == ScheduleKind::kInterleaved;
    if (interleaves != (each.virtual_stages > 1)) each.virtual_stages = interleaves ? 2 : 1;
  }
  std::erase_if(mended, [&](const Layout& each) {
    return !CheckLayout(question.model, question.cluster, question.batch, each).ok();
  });
  return mended;
}

struct Variant {
  absl::string_view property;
  Layout layout;
};

std::vector<Variant> VariantsOf(const Question& question, const Layout& base) {
  std::vector<Variant> variants;
  EachLayoutProperty([&](const auto& row) {
    for (const auto& value : ValuesOf(base, base.*row.value)) {
      Layout layout = base;
      layout.*row.value = value;
      for (Layout& each : Mended(question, layout)) {
        if (each.*row.value == value && !(each == base)) {
          variants.push_back({row.name, std::move(each)});
        }
      }
    }
  });
  return variants;
}

void Append(const PassSeconds& pass, std::vector<double>& figures) {
  figures.insert(figures.end(), {pass.forward_s, pass.backward_s, pass.weight_gradient_s});
}

void Append(const TermSeconds& time, std::vector<double>& figures) {
  for (size_t i = 0; i < kTimeTerms; ++i) figures.push_back(time.of(static_cast<TimeTerm>(i)));
}

void Append(const MemoryEstimate& memory, std::vector<double>& figures) {
  for (const int64_t bytes : memory.bytes) figures.push_back(static_cast<double>(bytes));
  figures.push_back(static_cast<double>(memory.host_bytes));
}

// All that a search asks of a layout.
std::vector<double> FiguresOf(Pricer& pricer, const Layout& layout) {
  std::vector<double> figures;
  for (const Recompute recompute : ValuesOf(layout, Recompute{})) {
    Append(pricer.BlockOf(layout, recompute), figures);
    const PartPasses parts = pricer.PartsOf(layout, recompute);
    for (const PassSeconds& pass : {parts.block, parts.embedding, parts.head}) {
      Append(pass, figures);
    }
    figures.push_back(parts.transfer_s);
  }
  const TermSeconds time = pricer.Time(layout);
  Append(time, figures);
  figures.push_back(pricer.Goodput(layout, time.total_s()));
  for (int stage = 0; stage < layout.pp; ++stage) Append(pricer.StageOf(layout, stage), figures);
  const Peak peak = pricer.PeakOf(layout);
  figures.push_back(peak.stage);
  Append(peak.memory, figures);
  figures.push_back(static_cast<double>(peak.host_bytes));
  for (const StageDues& dues : pricer.FirstDuesOf(layout)) {
    Append(dues.after, figures);
    figures.push_back(dues.offloaded_update_s);
  }
  return figures;
}

std::vector<double> AfreshOf(const Question& question, const Layout& layout) {
  Pricer pricer(question);
  return FiguresOf(pricer, layout);
}

// The table of stage memory measures by its key: where that lacks something, the list of buffers
// tells.
void ExpectAsListed(const Question& question, Pricer& pricer, const Layout& layout) {
  for (int stage = 0; stage < layout.pp; ++stage) {
    const MemoryEstimate memory = pricer.StageOf(layout, stage);
    if (!memory.exact) continue;
    const int rank = layout.grid().RankOf({.dp = 0, .pp = stage, .cp = 0, .tp = 0});
    const RankMemory listed =
        PlanRankMemory(question.model, question.batch, layout, rank, question.numerics);
    EXPECT_EQ(
        memory.total_bytes() - memory.of(MemoryTerm::kContext) - memory.of(MemoryTerm::kGuard),
        listed.total_bytes())
        << LayoutText(layout) << " stage " << stage;
    EXPECT_EQ(memory.host_bytes, listed.host_bytes()) << LayoutText(layout) << " stage " << stage;
  }
}

TEST(Pricer, SaysOfEachLayoutWhatItWouldSayIfItHadSeenNoOther) {
  std::map<absl::string_view, int> matters;  // by property: variants that a figure depends on
  EachLayoutProperty([&](const auto& row) { matters[row.name] = 0; });
  for (const Question& question : Questions()) {
    Pricer warm(question);
    for (const Layout& base : Bases()) {
      ASSERT_EQ(CheckLayout(question.model, question.cluster, question.batch, base),
                absl::OkStatus());
      const std::vector<double> of_base = AfreshOf(question, base);
      EXPECT_EQ(FiguresOf(warm, base), of_base) << LayoutText(base);
      for (const Variant& variant : VariantsOf(question, base)) {
        const std::vector<double> afresh = AfreshOf(question, variant.layout);
        EXPECT_EQ(FiguresOf(warm, variant.layout), afresh)
            << variant.property << ": " << LayoutText(variant.layout) << ", by "
            << question.engine.name;
        ExpectAsListed(question, warm, variant.layout);
        if (afresh != of_base) ++matters[variant.property];
      }
      EXPECT_EQ(FiguresOf(warm, base), of_base) << LayoutText(base) << ", again";
    }
  }
  for (const auto& [property, variants] : matters) {
    EXPECT_GT(variants, 0) << property << " is not varied, or no figure depends on it";
  }
}

// Stages that are alike but for passes in flight are not all asked about.
TEST(Pricer, TakesForThePeakWhatTheFullestOfAllStagesHolds) {
  int inner = 0;  // peaks between the second stage and the last
  for (Question question : Questions()) {
    question.model.num_blocks = 23;
    Pricer pricer(question);
    for (const ScheduleKind kind : {ScheduleKind::kOneForwardOneBackward, ScheduleKind::kGpipe,
                                    ScheduleKind::kZeroBubbleH1}) {
      for (const Recompute mode : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
        for (int pp = 2; pp <= 8; ++pp) {
          Layout layout{.dp = 2, .pp = pp, .gradient_accumulation_steps = 32};
          layout.pp_schedule = kind;
          layout.recompute = mode;
          const auto hold = [&] {
            int64_t most = 0;
            for (int stage = 0; stage < pp; ++stage) {
              const MemoryEstimate memory = pricer.StageOf(layout, stage);
              const bool same = question.cluster.device.backend == BackendKind::kCpu;
              most = std::max(most, memory.total_bytes() + (same ? memory.host_bytes : 0));
            }
            const Peak peak = pricer.PeakOf(layout);
            const bool same = question.cluster.device.backend == BackendKind::kCpu;
            EXPECT_EQ(peak.total_bytes() + (same ? peak.host_bytes : 0), most)
                << LayoutText(layout) << ", by " << question.engine.name;
            if (peak.stage > 1 && peak.stage < pp - 1) ++inner;
          };
          hold();
          layout.layers_per_stage.assign(static_cast<size_t>(pp), 23 / pp);
          layout.layers_per_stage[static_cast<size_t>(pp / 2)] += 23 % pp;
          hold();
          for (int64_t& blocks : layout.layers_per_stage) blocks = 1;
          layout.layers_per_stage.front() = 23 - pp + 1;
          hold();
        }
      }
    }
  }
  EXPECT_GT(inner, 0);
}

}  // namespace
}  // namespace weft
