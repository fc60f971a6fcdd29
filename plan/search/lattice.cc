#include "plan/search/lattice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "plan/errors.h"

namespace weft {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// A bound is the same sums in another order: what rounding may make of it.
constexpr double kRounding = 1 - 1e-9;
constexpr size_t kNearest = 8;
// Of a group's least layout: what smaller microbatches may cost in rounded-up buffers.
constexpr double kPadding = 1.125;

double Ticks(double seconds) {
  return std::round(seconds * 1e12);
}

// One microbatch through each part of the network, both passes.
struct PassSeconds {
  double block_s = 0;  // by the cheapest recompute mode of the space
  double block_weight_s = 0;
  double embedding_s = 0;
  double head_s = 0;
  double head_weight_s = 0;
};

// Points that share everything but schedule, ZeRO stage and recompute.
struct Item {
  double bound_s = 0;
  int tp = 0, cp = 0, ep = 0;  // indices into the space's lists
  int dp = 0, cut = 0, pp = 0;
  int group = 0;  // of those that differ in the batch cut alone
  friend bool operator<(const Item& a, const Item& b) {
    return std::tie(a.bound_s, a.tp, a.cp, a.ep, a.dp, a.pp, a.cut) <
           std::tie(b.bound_s, b.tp, b.cp, b.ep, b.dp, b.pp, b.cut);
  }
};

enum class GroupMemory : char { kUnknown, kMayFit, kTooLarge };

class Walk {
 public:
  Walk(const Space& space, Pricer& pricer, Cut cut)
      : space_(space), pricer_(pricer), cut_(cut), model_(pricer.question().model) {
    finds_.counts.points = space.CountPoints();
    cheapest_ = *std::min_element(space.recomputes().begin(), space.recomputes().end());
    uneven_ = !space.Base(1, 1).stage_blocks.empty();
    if (!space.Base(1, 1).stage_recompute.empty()) cheapest_ = Recompute::kNone;
  }

  Finds Run() {
    if (cut_ == Cut::kByBounds) {
      std::vector<Item> seeds = Collect(/*most_stages_only=*/true);
      Evaluate(seeds);
    }
    seeded_ = cut_ == Cut::kByBounds;
    std::vector<Item> items = Collect(/*most_stages_only=*/false);
    Evaluate(items);
    SearchCounts& counts = finds_.counts;
    counts.cut_by_time = counts.points - counts.evaluated - counts.cut_by_memory;
    std::sort(finds_.fitting.begin(), finds_.fitting.end(), Better);
    std::sort(finds_.misfits.begin(), finds_.misfits.end(), Better);
    return std::move(finds_);
  }

 private:
  std::vector<Item> Collect(bool most_stages_only);
  void CollectPipelines(Item item, bool most_stages_only, std::vector<Item>& items);
  void Evaluate(std::vector<Item>& items);
  void EvaluateItem(const Item& item);
  void Price(const Item& item, const Layout& layout);
  void Keep(Priced priced);
  void KeepNearest(const Layout& layout, const Peak& peak);
  bool MayFit(const Item& item, const Layout& layout);
  const PassSeconds& PassesOf(const Item& item);
  double Bound(const Item& item, const ScheduleChoice& choice, const PassSeconds& passes) const;
  double LeastBound(const Item& item);
  Layout LayoutOf(const Item& item) const;
  int64_t PointsOf(const Item& item) const;

  int tp(const Item& item) const { return space_.tps()[static_cast<size_t>(item.tp)]; }
  int cp(const Item& item) const { return space_.cps()[static_cast<size_t>(item.cp)]; }
  int ep(const Item& item) const { return space_.eps()[static_cast<size_t>(item.ep)]; }
  int dp(const Item& item) const { return space_.dps()[static_cast<size_t>(item.dp)]; }
  int pp(const Item& item) const { return space_.pps()[static_cast<size_t>(item.pp)]; }
  const BatchCut& batch_cut(const Item& item) const {
    return space_.cuts(static_cast<size_t>(item.dp))[static_cast<size_t>(item.cut)];
  }
  const std::vector<ScheduleChoice>& schedules(const Item& item) const {
    return space_.schedules(static_cast<size_t>(item.pp));
  }
  // Whether a bound proves that a layout is not among the finalists.
  bool IsLate(double bound_s) const { return bound_s * kRounding > threshold_s_; }

  const Space& space_;
  Pricer& pricer_;
  Cut cut_;
  const ModelShape& model_;
  Recompute cheapest_ = Recompute::kNone;
  bool uneven_ = false;
  bool seeded_ = false;
  double threshold_s_ = kNever;  // of the last finalist
  Finds finds_;
  std::vector<GroupMemory> groups_;
  // By tp, cp, ep, micro batch, and ranks up to one more than a node holds.
  std::map<std::tuple<int, int, int, int64_t, int64_t>, PassSeconds> passes_;
};

Layout Walk::LayoutOf(const Item& item) const {
  Layout layout = space_.Base(tp(item), cp(item));
  layout.dp = dp(item);
  layout.pp = pp(item);
  layout.ep = ep(item);
  layout.micro_batch_size = batch_cut(item).micro_batch_size;
  layout.num_microbatches = batch_cut(item).num_microbatches;
  layout.head_chunks = space_.HeadPieces(layout);
  return layout;
}

// Passes know of dp and pp only whether there is more than one node, and who shares its cores.
const PassSeconds& Walk::PassesOf(const Item& item) {
  const int64_t world = int64_t{tp(item)} * cp(item) * dp(item) * pp(item);
  const int64_t within = std::min<int64_t>(world, pricer_.question().cluster.slots_per_node + 1);
  const auto key =
      std::make_tuple(item.tp, item.cp, item.ep, batch_cut(item).micro_batch_size, within);
  const auto [found, is_new] = passes_.try_emplace(key);
  PassSeconds& passes = found->second;
  if (!is_new) return passes;
  const Layout layout = LayoutOf(item);
  const Question& question = pricer_.question();
  const PassCost block = BlockPass(question, layout, cheapest_);
  const PassCost head = HeadPass(question, layout);
  passes = {.block_s = block.total_s(),
            .block_weight_s = block.weight_gradient_s,
            .embedding_s = EmbeddingPass(question, layout).total_s(),
            .head_s = head.total_s(),
            .head_weight_s = head.weight_gradient_s};
  return passes;
}

// Blocks of stage `stage` of an even split into pp * chunks parts, earlier parts the larger.
int64_t EvenBlocks(int64_t blocks, int64_t pp, int64_t chunks, int64_t stage) {
  const int64_t remainder = blocks % (pp * chunks);
  const int64_t larger = remainder > stage ? (remainder - stage + pp - 1) / pp : 0;
  return chunks * (blocks / (pp * chunks)) + larger;
}

// Compute of the slowest stage, and the least its neighbours can make it wait; no transfers, no
// step end.
double Walk::Bound(const Item& item, const ScheduleChoice& choice,
                   const PassSeconds& passes) const {
  const int64_t stages = pp(item);
  const int64_t blocks = model_.num_blocks;
  const int chunks = choice.virtual_stages;
  const auto micros = static_cast<double>(batch_cut(item).num_microbatches);
  const double sum_s =
      static_cast<double>(blocks) * passes.block_s + passes.embedding_s + passes.head_s;
  if (stages == 1) return micros * sum_s;
  const auto most = [&](int64_t stage) {
    return static_cast<double>(EvenBlocks(blocks, stages, chunks, stage)) * passes.block_s;
  };
  double own_s = most(0);
  if (!uneven_) {
    own_s = std::max(most(0) + passes.embedding_s, most(stages - 1) + passes.head_s);
  }
  const double others_s = sum_s - own_s;
  switch (choice.kind) {
    case ScheduleKind::kGpipe:
    case ScheduleKind::kOneForwardOneBackward:
      return micros * own_s + others_s;
    case ScheduleKind::kInterleaved:
      return micros * own_s + others_s / chunks;
    case ScheduleKind::kZeroBubbleH1: {
      const double weights_s =
          static_cast<double>(blocks) * passes.block_weight_s + passes.head_weight_s;
      return micros * own_s + std::max(0.0, others_s - 2 * weights_s);
    }
  }
  return micros * own_s;
}

double Walk::LeastBound(const Item& item) {
  const PassSeconds& passes = PassesOf(item);
  double least_s = kNever;
  for (const ScheduleChoice& choice : schedules(item)) {
    if (!Space::Takes(choice, pp(item), batch_cut(item).num_microbatches)) continue;
    least_s = std::min(least_s, Bound(item, choice, passes));
  }
  return least_s;
}

std::vector<Item> Walk::Collect(bool most_stages_only) {
  std::vector<Item> items;
  Item item;
  for (item.tp = 0; item.tp < std::ssize(space_.tps()); ++item.tp) {
    for (item.cp = 0; item.cp < std::ssize(space_.cps()); ++item.cp) {
      if (!space_.Pairs(tp(item), cp(item))) continue;
      for (item.ep = 0; item.ep < std::ssize(space_.eps()); ++item.ep) {
        for (item.dp = 0; item.dp < std::ssize(space_.dps()); ++item.dp) {
          CollectPipelines(item, most_stages_only, items);
          item.group += static_cast<int>(space_.pps().size());
        }
      }
    }
  }
  groups_.resize(static_cast<size_t>(item.group), GroupMemory::kUnknown);
  std::sort(items.begin(), items.end());
  return items;
}

// From the longest pipeline down: the bound without bubble only grows then.
void Walk::CollectPipelines(Item item, bool most_stages_only, std::vector<Item>& items) {
  if (!space_.Pairs(dp(item), cp(item), ep(item))) return;
  const int64_t most = space_.slots() / (int64_t{tp(item)} * cp(item) * dp(item));
  const auto end = std::upper_bound(space_.pps().begin(), space_.pps().end(), most);
  const int first_group = item.group;
  const int longest = static_cast<int>(end - space_.pps().begin()) - 1;
  const auto cuts = std::ssize(space_.cuts(static_cast<size_t>(item.dp)));
  for (item.cut = 0; item.cut < cuts; ++item.cut) {
    for (item.pp = longest; item.pp >= 0; --item.pp) {
      item.group = first_group + item.pp;
      if (cut_ == Cut::kByBounds) {
        const auto slowest = static_cast<double>((model_.num_blocks + pp(item) - 1) / pp(item));
        const auto micros = static_cast<double>(batch_cut(item).num_microbatches);
        if (IsLate(micros * slowest * PassesOf(item).block_s)) break;
        item.bound_s = LeastBound(item);
        if (item.bound_s < kNever && !IsLate(item.bound_s)) items.push_back(item);
      } else {
        items.push_back(item);
      }
      if (most_stages_only) break;
    }
  }
}

void Walk::Evaluate(std::vector<Item>& items) {
  for (const Item& item : items) {
    if (cut_ == Cut::kByBounds && IsLate(item.bound_s)) break;
    EvaluateItem(item);
  }
}

int64_t Walk::PointsOf(const Item& item) const {
  int64_t choices = 0;
  for (const ScheduleChoice& choice : schedules(item)) {
    choices += Space::Takes(choice, pp(item), batch_cut(item).num_microbatches) ? 1 : 0;
  }
  const auto zeros = std::ssize(space_.ZeroStages(pp(item), int64_t{dp(item)} * cp(item)));
  return choices * zeros * std::ssize(space_.recomputes());
}

void Walk::EvaluateItem(const Item& item) {
  // The seeds are the longest pipelines; they are not priced twice.
  if (seeded_) {
    const int64_t most = space_.slots() / (int64_t{tp(item)} * cp(item) * dp(item));
    const auto next = static_cast<size_t>(item.pp) + 1;
    if (next == space_.pps().size() || space_.pps()[next] > most) return;
  }
  Layout layout = LayoutOf(item);
  if (cut_ == Cut::kByBounds && !MayFit(item, layout)) {
    finds_.counts.cut_by_memory += PointsOf(item);
    return;
  }
  const auto zeros = space_.ZeroStages(layout.pp, layout.data_group());
  for (const ScheduleChoice& choice : schedules(item)) {
    if (!Space::Takes(choice, layout.pp, layout.num_microbatches)) continue;
    if (cut_ == Cut::kByBounds && IsLate(Bound(item, choice, PassesOf(item)))) continue;
    layout.schedule = choice.kind;
    layout.virtual_stages = choice.virtual_stages;
    for (const Recompute recompute : space_.recomputes()) {
      layout.recompute = recompute;
      for (const int zero : zeros) {
        layout.zero_stage = zero;
        Price(item, layout);
      }
    }
  }
}

void Walk::Price(const Item&, const Layout& layout) {
  ++finds_.counts.evaluated;
  Priced priced{.layout = layout, .time = pricer_.Time(layout), .objective_s = 0, .peak = {}};
  priced.objective_s = priced.time.total_s() / pricer_.Goodput(layout, priced.time.total_s());
  if (cut_ == Cut::kByBounds && IsLate(priced.objective_s)) return;
  priced.peak = pricer_.PeakOf(layout);
  Keep(std::move(priced));
}

void Walk::Keep(Priced priced) {
  const bool fits = pricer_.Fits(priced.peak);
  if (!fits) {
    ++finds_.counts.misfits;
    KeepNearest(priced.layout, priced.peak);
  }
  std::vector<Priced>& heap = fits ? finds_.fitting : finds_.misfits;  // the worst is on top
  heap.push_back(std::move(priced));
  std::push_heap(heap.begin(), heap.end(), Better);
  if (heap.size() > kFinalists) {
    std::pop_heap(heap.begin(), heap.end(), Better);
    heap.pop_back();
  }
  if (fits && heap.size() == kFinalists) threshold_s_ = heap.front().objective_s;
}

void Walk::KeepNearest(const Layout& layout, const Peak& peak) {
  std::vector<Priced>& nearest = finds_.nearest;
  const auto less = [](const Priced& a, const Priced& b) {
    const int64_t bytes_a = a.peak.total_bytes();
    const int64_t bytes_b = b.peak.total_bytes();
    return bytes_a != bytes_b ? bytes_a < bytes_b : Simpler(a.layout, b.layout);
  };
  const Priced priced{.layout = layout, .time = {}, .objective_s = 0, .peak = peak};
  if (nearest.size() == kNearest && !less(priced, nearest.back())) return;
  const auto place = std::lower_bound(nearest.begin(), nearest.end(), priced, less);
  if (place != nearest.end() && place->layout == layout) return;
  nearest.insert(place, priced);
  if (nearest.size() > kNearest) nearest.pop_back();
}

// Memory never grows from the smallest microbatches, most recompute and highest ZeRO stage to less
// of each: if that does not fit, nothing of the group does.
bool Walk::MayFit(const Item& item, const Layout& layout) {
  GroupMemory& known = groups_[static_cast<size_t>(item.group)];
  if (known != GroupMemory::kUnknown) return known == GroupMemory::kMayFit;
  Layout least = layout;
  const BatchCut& cut = space_.cuts(static_cast<size_t>(item.dp)).front();
  least.micro_batch_size = cut.micro_batch_size;
  least.num_microbatches = cut.num_microbatches;
  least.head_chunks = space_.HeadPieces(least);
  least.recompute = *std::max_element(space_.recomputes().begin(), space_.recomputes().end());
  const auto zeros = space_.ZeroStages(layout.pp, layout.data_group());
  if (zeros.empty()) return false;
  least.zero_stage = zeros.back();
  known = GroupMemory::kTooLarge;
  const auto capacity = static_cast<double>(pricer_.question().cluster.device.memory_bytes);
  bool tried = false;
  for (const ScheduleChoice& choice : schedules(item)) {
    if (!Space::Takes(choice, least.pp, least.num_microbatches)) continue;
    tried = true;
    least.schedule = choice.kind;
    least.virtual_stages = choice.virtual_stages;
    const Peak peak = pricer_.PeakOf(least);
    if (!pricer_.Fits(peak)) KeepNearest(least, peak);
    if (static_cast<double>(peak.total_bytes()) <= capacity * kPadding) {
      known = GroupMemory::kMayFit;
      break;
    }
  }
  if (!tried) known = GroupMemory::kMayFit;
  return known == GroupMemory::kMayFit;
}

}  // namespace

bool Simpler(const Layout& a, const Layout& b) {
  const auto key = [](const Layout& layout) {
    return std::make_tuple(layout.recompute, layout.tp, layout.cp, layout.ep, layout.zero_stage,
                           layout.offload_optimizer, layout.virtual_stages, layout.pp,
                           layout.schedule != ScheduleKind::kOneForwardOneBackward, layout.schedule,
                           layout.dp, layout.micro_batch_size);
  };
  return key(a) < key(b);
}

bool Better(const Priced& a, const Priced& b) {
  const double ticks_a = Ticks(a.objective_s);
  const double ticks_b = Ticks(b.objective_s);
  return ticks_a != ticks_b ? ticks_a < ticks_b : Simpler(a.layout, b.layout);
}

Finds SearchLattice(const Space& space, Pricer& pricer, Cut cut) {
  const bool empty = space.tps().empty() || space.cps().empty() || space.eps().empty() ||
                     space.dps().empty() || space.pps().empty() || space.recomputes().empty();
  if (empty) return {};
  return Walk(space, pricer, cut).Run();
}

}  // namespace weft
