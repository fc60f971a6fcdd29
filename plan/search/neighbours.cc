#include "plan/search/neighbours.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "plan/search/head_chunks.h"
#include "plan/spec/layout_rules.h"

namespace weft {
namespace {

// Stages of pipelines up to this long are each tried with each other.
constexpr int kFewStages = 12;

class Neighbourhood {
 public:
  Neighbourhood(const Space& space, Pricer& pricer, const Layout& layout, double limit_s)
      : space_(space),
        pricer_(pricer),
        layout_(layout),
        limit_s_(limit_s),
        most_step_s_(limit_s * pricer.MostGoodput(layout.world_size())) {
    const int64_t blocks = pricer.question().model.num_blocks;
    for (int stage = 0; stage < layout.pp; ++stage) {
      held_.push_back(StageBlockCount(layout, blocks, stage));
      modes_.push_back(layout.recompute_of(stage));
    }
    const PartPasses parts = pricer.PartsOf(layout, layout.recompute);
    embedding_s_ = parts.embedding.total_s();
    head_s_ = parts.head.total_s();
    const LayoutSpec& fixed = space.fixed();
    free_modes_ = !fixed.recompute && fixed.recompute_per_stage.empty();
  }

  std::vector<Priced> Below() {
    if (free_modes_) TryLeastRecompute();
    for (const bool sequence_parallel : space_.sequence_parallels(layout_.tp, layout_.cp)) {
      if (sequence_parallel != layout_.sequence_parallel) TryWay(sequence_parallel);
    }
    if (space_.fixed().layers_per_stage) return std::move(found_);
    for (size_t to = 0; to < held_.size(); ++to) {
      if (!IsTried(to) || IsTooSlow(to)) continue;
      for (size_t from = 0; from < held_.size(); ++from) {
        if (from != to && held_[from] > 1 && IsTried(from)) TryMove(from, to);
      }
    }
    return std::move(found_);
  }

 private:
  bool IsTried(size_t stage) const {
    if (layout_.pp <= kFewStages) return true;
    const auto differs = [&](size_t other) {
      return held_[stage] != held_[other] || modes_[stage] != modes_[other];
    };
    return stage == 0 || stage + 1 == held_.size() || differs(stage - 1) || differs(stage + 1);
  }

  // Whether the passes of the stage with one more block alone take longer than the limit.
  bool IsTooSlow(size_t stage) const {
    // Dense blocks may lie there, which take less.
    if (pricer_.question().model.num_dense_blocks > 0) return false;
    const Recompute least = free_modes_ ? Recompute::kNone : modes_[stage];
    double pass_s =
        static_cast<double>(held_[stage] + 1) * pricer_.BlockOf(layout_, least).total_s();
    if (stage == 0) pass_s += embedding_s_;
    if (stage + 1 == held_.size()) pass_s += head_s_;
    const auto passes = static_cast<double>(layout_.gradient_accumulation_steps);
    return pricer_.SpreadOf(layout_) * passes * pass_s * (1 - 1e-9) >= most_step_s_;
  }

  // Sets the cheapest mode of `stage` that fits, if that is free; false: none does.
  bool SetMode(size_t stage, Layout& layout) {
    const auto fits = [&](Recompute mode) {
      layout.recompute_per_stage[stage] = mode;
      return pricer_.Fits(pricer_.StageOf(layout, static_cast<int>(stage)));
    };
    if (!free_modes_) return fits(modes_[stage]);
    const std::vector<Recompute>& modes = space_.recomputes();
    return std::any_of(modes.begin(), modes.end(), fits);
  }

  // The same with the head in pieces, where it is free and the stage needs it.
  bool Settle(size_t stage, Layout& layout) {
    if (SetMode(stage, layout)) return true;
    if (stage + 1 != held_.size() || !space_.has_free_head()) return false;
    layout.head_chunk_tokens = 0;
    layout.recompute_per_stage[stage] = free_modes_ ? space_.recomputes().back() : modes_[stage];
    layout.head_chunk_tokens = HeadChunksOf(space_, pricer_, layout).enough;
    return layout.head_chunk_tokens > 0 && SetMode(stage, layout);
  }

  Layout Start() const {
    Layout layout = layout_;
    layout.recompute_per_stage = modes_;
    return layout;
  }

  void TryLeastRecompute() {
    Layout layout = Start();
    for (size_t stage = 0; stage < held_.size(); ++stage) {
      if (!SetMode(stage, layout)) return;
    }
    if (layout.recompute_per_stage != modes_) Keep(layout);
    KeepInPieces(std::move(layout));
  }

  // The same split with residuals cut over tp, or whole.
  void TryWay(bool sequence_parallel) {
    Layout layout = Start();
    layout.sequence_parallel = sequence_parallel;
    for (size_t stage = 0; stage < held_.size(); ++stage) {
      if (!Settle(stage, layout)) return;
    }
    Keep(layout);
    KeepInPieces(std::move(layout));
  }

  void TryMove(size_t from, size_t to) {
    Layout layout = Start();
    layout.layers_per_stage = held_;
    --layout.layers_per_stage[from];
    ++layout.layers_per_stage[to];
    if (!Settle(to, layout) || !Settle(from, layout)) return;
    Keep(layout);
    KeepInPieces(std::move(layout));
  }

  // The head in pieces may leave the last stage room to make less again.
  void KeepInPieces(Layout layout) {
    const Recompute before = layout.recompute_per_stage.back();
    const bool is_least = before == space_.recomputes().front();
    if (!free_modes_ || is_least || !space_.has_free_head()) return;
    layout.head_chunk_tokens = space_.LeastHeadChunk();
    if (SetMode(held_.size() - 1, layout) && layout.recompute_per_stage.back() != before) {
      Keep(std::move(layout));
    }
  }

  void Keep(Layout layout) {
    const std::vector<Recompute> modes = layout.recompute_per_stage;
    const bool alike =
        std::all_of(modes.begin(), modes.end(), [&](Recompute m) { return m == modes.front(); });
    if (!space_.fixed().recompute_per_stage.empty()) {
      layout.recompute_per_stage = layout_.recompute_per_stage;
    } else if (alike) {
      layout.recompute = modes.front();
      layout.recompute_per_stage.clear();
    }
    if (!space_.fixed().layers_per_stage && IsEven(layout)) layout.layers_per_stage.clear();
    layout = WithBestHead(space_, pricer_, layout);
    Priced priced{.layout = std::move(layout), .time = {}, .objective_s = 0, .peak = {}};
    priced.time = pricer_.Time(priced.layout);
    const double step_s = priced.time.total_s();
    priced.objective_s = step_s / pricer_.Goodput(priced.layout, step_s);
    if (priced.objective_s >= limit_s_) return;
    priced.peak = pricer_.PeakOf(priced.layout);
    if (!pricer_.Fits(priced.layout, priced.peak) || !IsSound(priced.layout)) return;
    priced.repaired = true;
    found_.push_back(std::move(priced));
  }

  bool IsEven(const Layout& layout) const {
    Layout even = layout;
    even.layers_per_stage.clear();
    const int64_t blocks = pricer_.question().model.num_blocks;
    for (int stage = 0; stage < layout.pp; ++stage) {
      if (StageBlockCount(layout, blocks, stage) != StageBlockCount(even, blocks, stage))
        return false;
    }
    return true;
  }

  bool IsSound(const Layout& layout) const {
    const Question& question = pricer_.question();
    const auto check = space_.purpose() == Purpose::kRun ? &CheckRunnable : &CheckLayout;
    return check(question.model, question.cluster, question.batch, layout).ok();
  }

  const Space& space_;
  Pricer& pricer_;
  const Layout& layout_;
  double limit_s_;
  double most_step_s_;
  std::vector<int64_t> held_;     // blocks by stage
  std::vector<Recompute> modes_;  // by stage
  double embedding_s_ = 0, head_s_ = 0;
  bool free_modes_ = false;
  std::vector<Priced> found_;
};

}  // namespace

std::vector<Priced> NeighboursBelow(const Space& space, Pricer& pricer, const Layout& of,
                                    double limit_s) {
  if (of.pp == 1 || of.virtual_stages > 1) return {};
  return Neighbourhood(space, pricer, of, limit_s).Below();
}

}  // namespace weft
