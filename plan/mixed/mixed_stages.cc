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
bool MixedSearch::Split(const std::vector<Part*>& part_of_stage, const std::vector<int64_t>& most,
                        Layout& layout) {
  std::vector<UnequalStage> stages;
  for (int stage = 0; stage < layout.pp; ++stage) {
    const auto index = static_cast<size_t>(stage);
    Part& part = *part_of_stage[index];
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
  if (!blocks) return false;
  layout.layers_per_stage = *std::move(blocks);
  return true;
}

// No stage holds more than one before it on the same part with as many blocks, but the last one.
std::vector<int> MixedSearch::Misfits(const Shape& shape, const std::vector<Part*>& part_of_stage,
                                      const Layout& layout) {
  std::vector<int> misfits;
  const Part* failed = nullptr;
  for (int stage = 0; stage < layout.pp; ++stage) {
    const auto index = static_cast<size_t>(stage);
    Part& part = *part_of_stage[index];
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

bool MixedSearch::TryStages(const Shape& shape, const Placement& placement) {
  Layout layout = shape.layout;
  layout.zero_stage = placement.zero_stage;
  layout.offload_optimizer = placement.offload;
  std::vector<Part*> part_of_stage;
  for (size_t i = 0; i < shape.parts.size(); ++i) {
    part_of_stage.insert(part_of_stage.end(), static_cast<size_t>(shape.counts[i]),
                         parts_[static_cast<size_t>(shape.parts[i])].get());
  }
  std::vector<std::vector<Recompute>> roomy;  // had room for the fastest split
  bool fitted = false;
  for (const std::vector<Recompute>& modes : Modes(shape.parts.size())) {
    const auto computes_no_less = [&](const std::vector<Recompute>& other) {
      for (size_t part = 0; part < modes.size(); ++part) {
        if (modes[part] < other[part]) return false;
      }
      return true;
    };
    if (std::any_of(roomy.begin(), roomy.end(), computes_no_less)) continue;  // slower than that
    layout.recompute_per_stage.clear();
    for (size_t i = 0; i < modes.size(); ++i) {
      layout.recompute_per_stage.insert(layout.recompute_per_stage.end(),
                                        static_cast<size_t>(shape.counts[i]), modes[i]);
    }
    const Fit fit = FitStages(shape, part_of_stage, layout);
    if (fit == Fit::kNone) continue;
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

MixedSearch::Fit MixedSearch::FitStages(const Shape& shape, const std::vector<Part*>& part_of_stage,
                                        Layout& layout) {
  std::vector<int64_t> most(part_of_stage.size(), questions_.front().model.num_blocks);
  if (!Split(part_of_stage, most, layout)) return Fit::kNone;
  const std::vector<int> misfits = Misfits(shape, part_of_stage, layout);
  if (misfits.empty()) return Fit::kFastest;
  for (size_t stage = 0; stage < part_of_stage.size(); ++stage) {
    const bool is_full = std::any_of(misfits.begin(), misfits.end(), [&](int misfit) {
      return part_of_stage[static_cast<size_t>(misfit)] == part_of_stage[stage];
    });
    if (is_full) most[stage] = part_of_stage[stage]->MostBlocks(layout, static_cast<int>(stage));
  }
  const bool fits =
      Split(part_of_stage, most, layout) && Misfits(shape, part_of_stage, layout).empty();
  return fits ? Fit::kMoved : Fit::kNone;
}

}  // namespace weft
