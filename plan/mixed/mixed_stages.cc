// The stages of one pipeline on parts of several kinds: who holds how many blocks, and computes
// what again.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/mixed/mixed_search.h"
#include "plan/mixed/unequal_split.h"
#include "plan/search/describe.h"

namespace weft {
std::optional<double> MixedSearch::Split(const std::vector<FleetPart*>& part_of_stage,
                                         const std::vector<int64_t>& most, Layout& layout) {
  std::vector<UnequalStage> stages;
  for (int stage = 0; stage < layout.pp; ++stage) {
    const auto index = static_cast<size_t>(stage);
    FleetPart& part = *part_of_stage[index];
    const bool is_like_before =
        stage > 1 && stage < layout.pp - 1 && part_of_stage[index] == part_of_stage[index - 1];
    if (is_like_before) {
      stages.push_back(stages.back());
      stages.back().ends_s = 0;
    } else {
      const bool is_end = stage == 0 || stage == layout.pp - 1;
      stages.push_back({.block_s = part.BlockSeconds(layout, layout.recompute_of(stage)),
                        .ends_s = is_end ? part.EndsSeconds(layout, stage) : 0});
    }
    stages.back().most = most[index];
  }
  auto blocks = UnequalSplit(part_of_stage.front()->question().model.num_blocks, stages);
  if (!blocks) return std::nullopt;
  layout.layers_per_stage = *std::move(blocks);
  double slowest_s = 0;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const auto count = static_cast<double>(layout.layers_per_stage[stage]);
    slowest_s = std::max(slowest_s, stages[stage].ends_s + count * stages[stage].block_s);
  }
  return slowest_s;
}

const MixedSearch::FastestSplit& MixedSearch::Fastest(const std::vector<FleetPart*>& part_of_stage,
                                                      std::optional<FastestSplit>& known,
                                                      Layout& layout) {
  if (known) return *known;
  const std::vector<int64_t> any(part_of_stage.size(), questions_.front().model.num_blocks);
  known.emplace();
  known->slowest_s = Split(part_of_stage, any, layout);
  if (known->slowest_s) known->blocks = layout.layers_per_stage;
  return *known;
}

// No stage holds more than one before it on the same part with as many blocks, but the last one.
std::vector<int> MixedSearch::Misfits(const Shape& shape,
                                      const std::vector<FleetPart*>& part_of_stage,
                                      const Layout& layout) {
  std::vector<int> misfits;
  const FleetPart* failed = nullptr;
  for (int stage = 0; stage < layout.pp; ++stage) {
    const auto index = static_cast<size_t>(stage);
    FleetPart& part = *part_of_stage[index];
    if (&part == failed) continue;
    const bool is_less = stage > 0 && stage < layout.pp - 1 && part_of_stage[index - 1] == &part &&
                         layout.layers_per_stage[index] <= layout.layers_per_stage[index - 1];
    if (is_less) continue;
    const MemoryEstimate memory = part.MemoryOf(layout, stage);
    if (part.Fits(layout, memory)) continue;
    failed = &part;
    misfits.push_back(stage);
    Finds& finds = finds_[GroupOf(shape)];
    const int64_t device_bytes = part.cluster().device.memory_bytes;
    const int64_t over_bytes = memory.total_bytes() - device_bytes;
    if (!finds.nearest.empty() && over_bytes >= finds.nearest_over_bytes) continue;
    finds.nearest_over_bytes = over_bytes;
    finds.nearest = absl::StrCat("the nearest needs ", BytesText(memory.total_bytes()), " of the ",
                                 BytesText(device_bytes), " of ", part.name(),
                                 over_bytes > 0 ? "" : ", and more of its hosts than they have");
  }
  return misfits;
}

std::vector<std::vector<Recompute>> MixedSearch::Modes(size_t parts) const {
  std::vector<Recompute> each = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};
  if (asked_.recompute) each = {*asked_.recompute};
  std::vector<std::vector<Recompute>> modes = {{}};
  for (size_t part = 0; part < parts; ++part) {
    std::vector<std::vector<Recompute>> longer;
    for (const std::vector<Recompute>& before : modes) {
      for (const Recompute recompute : each) {
        longer.push_back(before);
        longer.back().push_back(recompute);
      }
    }
    modes = std::move(longer);
  }
  return modes;
}

// Later stages have room for more blocks, but for the last one with its head.
bool MixedSearch::MayFit(const Shape& shape, const std::vector<FleetPart*>& part_of_stage,
                         Layout layout) {
  layout.recompute_per_stage.assign(part_of_stage.size(),
                                    asked_.recompute.value_or(Recompute::kFull));
  layout.layers_per_stage.assign(part_of_stage.size(), 1);
  int64_t most = 0;
  int end = 0;
  for (const int count : shape.counts) {
    end += count;
    const int stage = end == layout.pp && count > 1 ? end - 2 : end - 1;
    most += count * part_of_stage[static_cast<size_t>(stage)]->MostBlocks(layout, stage);
  }
  const int64_t num_blocks = questions_.front().model.num_blocks;
  if (most >= num_blocks) return true;
  // For the reason.
  const std::vector<int64_t> any(part_of_stage.size(), num_blocks);
  if (Split(part_of_stage, any, layout)) Misfits(shape, part_of_stage, layout);
  return false;
}

bool MixedSearch::TryStages(const Shape& shape, const Placement& placement, Tries& tries) {
  Layout layout = shape.layout;
  layout.zero_stage = placement.zero_stage;
  layout.offload_optimizer = placement.offload;
  const std::vector<FleetPart*>& part_of_stage = tries.part_of_stage;
  if (!MayFit(shape, part_of_stage, layout)) return false;
  std::vector<std::vector<Recompute>> roomy;  // had room for the fastest split
  bool fitted = false;
  for (size_t mode = 0; mode < tries.modes.size(); ++mode) {
    const std::vector<Recompute>& modes = tries.modes[mode];
    const auto computes_no_less = [&](const std::vector<Recompute>& other) {
      for (size_t part = 0; part < modes.size(); ++part) {
        if (modes[part] < other[part]) return false;
      }
      return true;
    };
    if (std::any_of(roomy.begin(), roomy.end(), computes_no_less)) continue;  // slower than that
    // A bound is the same sums in another order.
    constexpr double kBelowRounding = 1 - 1e-9;
    if (static_cast<double>(layout.gradient_accumulation_steps) * tries.least_s[mode] *
            kBelowRounding >
        LimitOf(GroupOf(shape))) {
      fitted = true;  // behind, as of FitStages
      continue;
    }
    layout.recompute_per_stage.clear();
    for (size_t i = 0; i < modes.size(); ++i) {
      layout.recompute_per_stage.insert(layout.recompute_per_stage.end(),
                                        static_cast<size_t>(shape.counts[i]), modes[i]);
    }
    const Fit fit = FitStages(shape, part_of_stage, tries.fastest[mode], layout);
    if (fit == Fit::kNone) continue;
    if (fit == Fit::kBehind) {
      fitted = true;  // what has more room by taking longer is behind as well
      continue;
    }
    if (fit == Fit::kFastest) roomy.push_back(modes);
    fitted = true;
    const MixedStep step = EstimateMixed(layout, part_of_stage);
    MixedPlan plan{.way = MixedWay::kStages, .layout = layout, .step_s = step.total_s};
    for (const int part : shape.parts) {
      plan.goodput =
          std::min(plan.goodput, parts_[static_cast<size_t>(part)]->Goodput(layout, plan.step_s));
    }
    Record(shape, {std::move(plan), part_of_stage});
  }
  return fitted;
}

MixedSearch::Fit MixedSearch::FitStages(const Shape& shape,
                                        const std::vector<FleetPart*>& part_of_stage,
                                        std::optional<FastestSplit>& known, Layout& layout) {
  const auto is_behind = [&](std::optional<double> slowest_s) {
    return slowest_s && static_cast<double>(layout.gradient_accumulation_steps) * *slowest_s >
                            LimitOf(GroupOf(shape));
  };
  const FastestSplit& fastest = Fastest(part_of_stage, known, layout);
  if (!fastest.slowest_s) return Fit::kNone;
  if (is_behind(fastest.slowest_s)) return Fit::kBehind;
  layout.layers_per_stage = fastest.blocks;
  const std::vector<int> misfits = Misfits(shape, part_of_stage, layout);
  if (misfits.empty()) return Fit::kFastest;
  std::vector<int64_t> most(part_of_stage.size(), questions_.front().model.num_blocks);
  for (size_t stage = 0; stage < part_of_stage.size(); ++stage) {
    const bool is_full = std::any_of(misfits.begin(), misfits.end(), [&](int misfit) {
      return part_of_stage[static_cast<size_t>(misfit)] == part_of_stage[stage];
    });
    if (is_full) most[stage] = part_of_stage[stage]->MostBlocks(layout, static_cast<int>(stage));
  }
  const std::optional<double> moved_s = Split(part_of_stage, most, layout);
  if (!moved_s) return Fit::kNone;
  if (is_behind(moved_s)) return Fit::kBehind;
  return Misfits(shape, part_of_stage, layout).empty() ? Fit::kMoved : Fit::kNone;
}

}  // namespace weft
