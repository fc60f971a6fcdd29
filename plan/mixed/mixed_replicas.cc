// Replicas of one pipeline on parts of several kinds: who takes how many microbatches.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "plan/mixed/mixed_search.h"
#include "plan/mixed/unequal_split.h"
#include "plan/search/describe.h"

namespace weft {
namespace {

// A replica takes first_s + (n - 1) * next_s for n microbatches.
struct Pace {
  double first_s = 0;
  double next_s = 0;
  double Seconds(int64_t microbatches) const {
    return first_s + static_cast<double>(microbatches - 1) * next_s;
  }
};

// Numbers of microbatches of a replica of each part, such that all together take `total` and the
// slowest part is as fast as can be, as far as numbers near the uncut best tell.
class Counts {
 public:
  Counts(absl::Span<const Pace> paces, absl::Span<const int> replicas, int64_t total)
      : paces_(paces), replicas_(replicas), total_(total), counts_(paces.size()) {}

  std::optional<std::vector<int64_t>> Best() {
    double rate = 0;
    double spare = static_cast<double>(total_);
    for (size_t part = 0; part < paces_.size(); ++part) {
      const double times = replicas_[part];
      rate += times / paces_[part].next_s;
      spare += times * (paces_[part].first_s / paces_[part].next_s - 1);
    }
    even_s_ = spare / rate;
    Choose(0, total_);
    return best_;
  }

 private:
  void Choose(size_t part, int64_t left) {
    const int64_t times = replicas_[part];
    if (part + 1 == paces_.size()) {
      if (left < times || left % times != 0) return;
      counts_[part] = left / times;
      return Judge();
    }
    const double uncut = 1 + (even_s_ - paces_[part].first_s) / paces_[part].next_s;
    const int64_t middle = std::llround(std::clamp(uncut, 1.0, static_cast<double>(total_)));
    // So many numbers of each part that they all come to some thousands at most.
    const int64_t around = paces_.size() == 2 ? 64 : paces_.size() == 3 ? 16 : 4;
    for (int64_t count = std::max<int64_t>(1, middle - around); count <= middle + around; ++count) {
      if (count * times >= left) break;
      counts_[part] = count;
      Choose(part + 1, left - count * times);
    }
  }

  void Judge() {
    double slowest_s = 0;
    for (size_t part = 0; part < paces_.size(); ++part) {
      slowest_s = std::max(slowest_s, paces_[part].Seconds(counts_[part]));
    }
    if (best_ && slowest_s >= best_s_) return;
    best_ = counts_;
    best_s_ = slowest_s;
  }

  const absl::Span<const Pace> paces_;
  const absl::Span<const int> replicas_;
  const int64_t total_;
  double even_s_ = 0;
  std::vector<int64_t> counts_;
  std::optional<std::vector<int64_t>> best_;
  double best_s_ = 0;
};

// The replica of a part: its pipeline, and where that lies.
std::vector<FleetPart*> AllStagesOn(FleetPart& part, const Layout& layout) {
  return std::vector<FleetPart*>(static_cast<size_t>(layout.pp), &part);
}

}  // namespace

std::optional<std::vector<int64_t>> MixedSearch::Microbatches(const Shape& shape,
                                                              absl::Span<const Layout> layouts) {
  std::vector<Pace> paces;
  for (size_t i = 0; i < layouts.size(); ++i) {
    FleetPart& part = *joined_[static_cast<size_t>(shape.parts[i])];
    Layout layout = layouts[i];
    const std::vector<FleetPart*> on = AllStagesOn(part, layout);
    layout.gradient_accumulation_steps = 2 * int64_t{layout.pp};
    const double some_s = EstimateMixed(layout, on).passes_s;
    layout.gradient_accumulation_steps *= 2;
    const double more_s = EstimateMixed(layout, on).passes_s;
    const double next_s = (more_s - some_s) / (2.0 * layout.pp);
    paces.push_back({.first_s = some_s - (2.0 * layout.pp - 1) * next_s, .next_s = next_s});
  }
  const Question& question = questions_.front();
  return Counts(paces, shape.counts,
                question.batch.global_batch_size / shape.layout.micro_batch_size)
      .Best();
}

bool MixedSearch::TryReplicas(const Shape& shape, const Placement& placement, Tries& tries) {
  std::vector<Layout> layouts;
  std::vector<Recompute> recomputes;
  for (const int index : shape.parts) {
    FleetPart& part = *joined_[static_cast<size_t>(index)];
    Layout layout = shape.layout;
    layout.zero_stage = placement.zero_stage;
    layout.offload_optimizer = placement.offload;
    // More than are in flight, whatever the part will take.
    layout.gradient_accumulation_steps = 2 * int64_t{layout.pp};
    if (layouts.empty()) {
      layout.recompute_per_stage.assign(static_cast<size_t>(layout.pp),
                                        asked_.recompute.value_or(Recompute::kNone));
      const FastestSplit& split = Fastest(AllStagesOn(part, layout), tries.fastest[0], layout);
      if (!split.slowest_s) return false;
      layout.layers_per_stage = split.blocks;
    } else {
      layout.layers_per_stage = layouts.front().layers_per_stage;
    }
    bool fits = false;
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      if (asked_.recompute.value_or(recompute) != recompute) continue;
      layout.recompute_per_stage.assign(static_cast<size_t>(layout.pp), recompute);
      fits = Misfits(shape, AllStagesOn(part, layout), layout).empty();
      if (fits) break;
    }
    if (!fits) return false;
    layouts.push_back(std::move(layout));
  }
  const std::optional<std::vector<int64_t>> counts = Microbatches(shape, layouts);
  if (!counts) {
    Finds& finds = finds_[GroupOf(shape)];
    if (finds.nearest.empty()) finds.nearest = "no numbers of microbatches make up the batch";
    return true;  // there is room
  }
  MixedPlan plan{.way = MixedWay::kReplicas, .layout = layouts.front()};
  plan.layout.gradient_accumulation_steps = counts->front();
  for (size_t i = 0; i < layouts.size(); ++i) {
    FleetPart& part = *joined_[static_cast<size_t>(shape.parts[i])];
    layouts[i].gradient_accumulation_steps = (*counts)[i];
    const MixedStep step = EstimateMixed(layouts[i], AllStagesOn(part, layouts[i]));
    plan.step_s = std::max(plan.step_s, step.total_s);
    plan.uses.push_back({.part = shape.parts[i],
                         .first_stage = 0,
                         .stages = plan.layout.pp,
                         .replicas = shape.counts[i],
                         .microbatches = (*counts)[i],
                         .blocks = plan.layout.layers_per_stage,
                         .recompute = layouts[i].recompute_of(0)});
    plan.goodput = std::min(plan.goodput, part.Goodput(layouts[i], plan.step_s));
  }
  Record(shape, {std::move(plan), {}});
  return true;
}

}  // namespace weft
