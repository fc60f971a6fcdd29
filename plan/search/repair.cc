#include "plan/search/repair.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "plan/estimate/data_comm.h"
#include "plan/search/bound.h"

namespace weft {
namespace {

// Blocks by which a stage may differ from the mean: what its ends hold besides rarely takes longer.
constexpr int64_t kMostUneven = 3;

bool StageFits(Pricer& pricer, const Layout& layout, int stage) {
  return pricer.Fits(pricer.StageOf(layout, stage));
}

// Most blocks that fit on `stage`, of those that are tried: memory grows with them.
int64_t MostBlocks(Pricer& pricer, const Layout& layout, int stage) {
  const int64_t blocks = pricer.question().model.num_blocks;
  Layout probe = layout;
  probe.stage_blocks.assign(static_cast<size_t>(layout.pp), 1);
  const auto fits = [&](int64_t count) {
    probe.stage_blocks[static_cast<size_t>(stage)] = count;
    return StageFits(pricer, probe, stage);
  };
  int64_t least = 0;
  int64_t most = std::min(blocks - (layout.pp - 1), blocks / layout.pp + kMostUneven);
  if (fits(most)) return most;
  while (least < most) {
    const int64_t middle = (least + most + 1) / 2;
    fits(middle) ? least = middle : most = middle - 1;
  }
  return least;
}

// What a stage takes beside its blocks.
double ExtraSeconds(int stage, int stages, const PassSeconds& embedding, const PassSeconds& head) {
  return (stage == 0 ? embedding.total_s() : 0) + (stage == stages - 1 ? head.total_s() : 0);
}

}  // namespace

std::optional<std::vector<int64_t>> BestSplit(Pricer& pricer, const Layout& layout) {
  const Question& question = pricer.question();
  const int64_t blocks = question.model.num_blocks;
  const PartPasses parts = pricer.PartsOf(layout, layout.recompute);
  const double block_s = parts.block.total_s();
  const PassSeconds& embedding = parts.embedding;
  const PassSeconds& head = parts.head;
  std::vector<int64_t> most;
  for (int stage = 0; stage < layout.pp; ++stage) {
    most.push_back(MostBlocks(pricer, layout, stage));
    if (most.back() < 1) return std::nullopt;
  }
  // The slowest stage takes a whole number of blocks and what its place adds: try these in order.
  std::vector<double> limits;
  for (const double extra_s : {0.0, embedding.total_s(), head.total_s()}) {
    const int64_t mean = blocks / layout.pp;
    for (int64_t count = std::max<int64_t>(1, mean - 2); count <= mean + kMostUneven; ++count) {
      limits.push_back(static_cast<double>(count) * block_s + extra_s);
    }
  }
  std::sort(limits.begin(), limits.end());
  for (const double limit_s : limits) {
    std::vector<int64_t> split;
    int64_t sum = 0;
    for (int stage = 0; stage < layout.pp; ++stage) {
      const double room_s = limit_s - ExtraSeconds(stage, layout.pp, embedding, head);
      const auto count = static_cast<int64_t>(room_s / block_s * (1 + 1e-12));
      split.push_back(std::min(count, most[static_cast<size_t>(stage)]));
      sum += split.back();
    }
    if (sum < blocks || *std::min_element(split.begin(), split.end()) < 1) continue;
    // What is too many comes off where there is most, from the last stage on.
    while (sum > blocks) {
      auto largest = split.rbegin();
      for (auto stage = split.rbegin(); stage != split.rend(); ++stage) {
        if (*stage > *largest) largest = stage;
      }
      if (*largest <= 1) break;
      --*largest;
      --sum;
    }
    if (sum == blocks) return split;
  }
  return std::nullopt;
}

std::optional<std::vector<Recompute>> BestRecompute(Pricer& pricer, const Layout& layout) {
  std::vector<Recompute> modes;
  Layout probe = layout;
  for (int stage = 0; stage < layout.pp; ++stage) {
    bool found = false;
    for (const Recompute mode : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      probe.recompute = mode;
      probe.stage_recompute.clear();
      if (!StageFits(pricer, probe, stage)) continue;
      modes.push_back(mode);
      found = true;
      break;
    }
    if (!found) return std::nullopt;
  }
  if (std::all_of(modes.begin(), modes.end(), [&](Recompute mode) { return mode == modes[0]; })) {
    return std::nullopt;
  }
  return modes;
}

namespace {

// Layouts that differ from `layout` by what each stage holds and recomputes.
std::vector<Layout> Shapes(Pricer& pricer, const Constraints& fixed, const Layout& layout) {
  std::vector<Layout> shapes = {layout};
  if (layout.pp < 2) return shapes;
  const bool free_split = !fixed.stage_blocks && layout.virtual_stages == 1;
  const bool free_recompute = !fixed.recompute && fixed.stage_recompute.empty();
  if (free_split) {
    if (auto split = BestSplit(pricer, layout)) {
      Layout shape = layout;
      shape.stage_blocks = *std::move(split);
      shapes.push_back(std::move(shape));
    }
  }
  if (free_recompute) {
    if (auto modes = BestRecompute(pricer, layout)) {
      Layout shape = layout;
      shape.stage_recompute = *std::move(modes);
      shapes.push_back(std::move(shape));
    }
  }
  return shapes;
}

// Tries repairs; keeps what is better than the best so far and fits.
class Repairs {
 public:
  Repairs(Pricer& pricer, const Constraints& fixed, Purpose purpose, Finds& finds)
      : pricer_(pricer), fixed_(fixed), purpose_(purpose), finds_(finds) {
    if (!finds.fitting.empty()) best_s_ = finds.fitting.front().objective_s;
  }

  bool MayWin(double objective_s) const { return objective_s < best_s_; }

  // `shape` itself, with narrower ZeRO groups, and with the optimizer on the host: that makes room
  // and nothing else.
  void TryPlacements(const Layout& shape, bool fits) {
    Layout whole = shape;  // what no ZeRO group makes longer
    whole.zero_stage = 0;
    whole.zero_group = 0;
    const StepPasses passes = pricer_.PassesOf(whole);
    if (!MayWin(passes.time.total_s() / pricer_.MostGoodput(shape.world_size()))) return;
    if (!fits) Try(shape, passes);
    if (!fixed_.zero_group && shape.zero_stage > 0) {
      Layout grouped = shape;
      for (const int64_t group : DivisorsOf(shape.data_group())) {
        if (group == 1 || group == shape.data_group()) continue;
        grouped.zero_group = static_cast<int>(group);
        Try(grouped, passes);
      }
    }
    if (!fits && !fixed_.offload_optimizer) {
      Layout offloaded = shape;
      offloaded.offload_optimizer = true;
      Try(offloaded, passes);
    }
  }

 private:
  // `passes`: without waits.
  void Try(const Layout& layout, const StepPasses& passes) {
    const TermSeconds time =
        MovesInPasses(layout) ? pricer_.Time(layout) : pricer_.Time(layout, passes);
    Priced priced{.layout = layout, .time = time, .objective_s = 0, .peak = {}};
    const double step_s = priced.time.total_s();
    priced.objective_s = step_s / pricer_.Goodput(layout, step_s);
    if (!MayWin(priced.objective_s) || !IsSound(layout)) return;
    priced.peak = pricer_.PeakOf(layout);
    if (!pricer_.Fits(layout, priced.peak)) return;
    best_s_ = priced.objective_s;
    ++finds_.counts.repaired;
    finds_.fitting.push_back(std::move(priced));
  }

  bool IsSound(const Layout& layout) const {
    const Question& question = pricer_.question();
    const auto check = purpose_ == Purpose::kRun ? &CheckRunnable : &CheckLayout;
    return check(question.model, question.cluster, question.batch, layout).ok();
  }

  Pricer& pricer_;
  const Constraints& fixed_;
  Purpose purpose_;
  Finds& finds_;
  double best_s_ = std::numeric_limits<double>::infinity();
};

}  // namespace

void RepairFinds(Pricer& pricer, const Constraints& constraints, Purpose purpose, Finds& finds) {
  Repairs repairs(pricer, constraints, purpose, finds);
  for (const Priced& misfit : finds.misfits) {
    if (!repairs.MayWin(misfit.objective_s)) break;
    for (const Layout& shape : Shapes(pricer, constraints, misfit.layout)) {
      repairs.TryPlacements(shape, /*fits=*/false);
    }
  }
  const size_t fitting = finds.fitting.size();
  for (size_t i = 0; i < fitting; ++i) {
    const Layout layout = finds.fitting[i].layout;
    if (layout.zero_stage > 0) repairs.TryPlacements(layout, /*fits=*/true);
  }
  std::sort(finds.fitting.begin(), finds.fitting.end(), Better);
}

}  // namespace weft
