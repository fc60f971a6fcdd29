#include "plan/search/lattice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "absl/types/span.h"
#include "plan/search/bound.h"

namespace weft {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// A bound is the same sums in another order: what rounding may make of it.
constexpr double kRounding = 1 - 1e-9;
constexpr size_t kNearest = 8;
// A backward pass that recomputes everything over one that recomputes nothing, at most.
constexpr double kMostRecompute = 4;
// Of a group's least layout: what smaller microbatches may cost in rounded-up buffers.
constexpr double kPadding = 1.125;
// Blocks of a stage up to which what full recompute computes again weighs as much as what it saves.
constexpr int64_t kFewBlocks = 4;

double Ticks(double seconds) {
  return std::round(seconds * 1e12);
}

// Passes of a microbatch by the parts of the network; blocks by recompute mode.
struct Passes {
  std::array<PassSeconds, 3> block;
  std::array<bool, 3> priced = {};
  PassSeconds embedding, head;
  bool ends_priced = false;
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
    const Layout base = space.Base(1, 1);
    cheapest_ = base.stage_recompute.empty()
                    ? *std::min_element(space.recomputes().begin(), space.recomputes().end())
                    : Recompute::kNone;
    uneven_ = !base.stage_blocks.empty() || !base.stage_recompute.empty();
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
  void Price(const Layout& layout);
  void Keep(Priced priced);
  void KeepNearest(const Layout& layout, const Peak& peak);
  bool MayFit(const Item& item, const Layout& layout);
  bool IsNear(const Layout& least);
  Passes& PassesOf(const Item& item);
  const PassSeconds& BlockOf(const Item& item, Passes& passes, Recompute recompute);
  EvenPipeline PipelineOf(const Item& item, Recompute recompute);
  double LeastBound(const Item& item);
  void EvaluateChoice(absl::Span<const EvenPipeline> pipelines, const ScheduleChoice& choice,
                      Layout& layout);
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
  using PassKey = std::tuple<int, int, int, int64_t, int64_t>;
  std::map<PassKey, Passes> passes_;
  PassKey last_key_;  // neighbouring items ask for the same
  Passes* last_passes_ = nullptr;
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
Passes& Walk::PassesOf(const Item& item) {
  const int64_t world = int64_t{tp(item)} * cp(item) * dp(item) * pp(item);
  const int64_t within = std::min<int64_t>(world, pricer_.question().cluster.slots_per_node + 1);
  const auto key =
      std::make_tuple(item.tp, item.cp, item.ep, batch_cut(item).micro_batch_size, within);
  if (!last_passes_ || key != last_key_) {
    last_key_ = key;
    last_passes_ = &passes_[key];
  }
  return *last_passes_;
}

const PassSeconds& Walk::BlockOf(const Item& item, Passes& passes, Recompute recompute) {
  const auto kind = static_cast<size_t>(recompute);
  if (!passes.priced[kind]) {
    passes.block[kind] = SumOf(BlockPass(pricer_.question(), LayoutOf(item), recompute));
    passes.priced[kind] = true;
  }
  return passes.block[kind];
}

EvenPipeline Walk::PipelineOf(const Item& item, Recompute recompute) {
  const Question& question = pricer_.question();
  Passes& passes = PassesOf(item);
  const PassSeconds& block = BlockOf(item, passes, recompute);
  const Layout layout = LayoutOf(item);
  if (!passes.ends_priced) {
    passes.embedding = SumOf(EmbeddingPass(question, layout));
    passes.head = SumOf(HeadPass(question, layout));
    passes.ends_priced = true;
  }
  return {.stages = layout.pp,
          .num_blocks = model_.num_blocks,
          .microbatches = layout.num_microbatches,
          .block = block,
          .embedding = passes.embedding,
          .head = passes.head,
          .transfer_s = BoundarySeconds(question, layout),
          .uneven = uneven_,
          .shares_cores = CoreSharing(question.cluster, layout.world_size()) > 1};
}

double Walk::LeastBound(const Item& item) {
  const EvenPipeline pipeline = PipelineOf(item, cheapest_);
  double least_s = kNever;
  for (const ScheduleChoice& choice : schedules(item)) {
    if (!Space::Takes(choice, pp(item), batch_cut(item).num_microbatches)) continue;
    least_s = std::min(least_s, LeastPassesSeconds(pipeline, choice));
  }
  return least_s / pricer_.MostGoodput(pipeline.stages * tp(item) * cp(item) * dp(item));
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

// From the longest pipeline down: the bound without bubble only grows then, but for pipelines whose
// workers share cores.
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
        const int64_t slowest = (model_.num_blocks + pp(item) - 1) / pp(item);
        const auto micros = static_cast<double>(batch_cut(item).num_microbatches);
        const PassSeconds& block = BlockOf(item, PassesOf(item), cheapest_);
        if (IsLate(micros * static_cast<double>(slowest) * block.total_s())) {
          if (CoreSharing(pricer_.question().cluster, LayoutOf(item).world_size()) > 1) continue;
          break;
        }
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
    if (!Space::Takes(choice, pp(item), batch_cut(item).num_microbatches)) continue;
    choices += space_.Recomputes(choice);
  }
  const auto zeros = std::ssize(space_.ZeroStages(pp(item), int64_t{dp(item)} * cp(item)));
  return choices * zeros;
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
  std::array<EvenPipeline, 3> pipelines;  // as space_.recomputes()
  for (size_t i = 0; cut_ == Cut::kByBounds && i < space_.recomputes().size(); ++i) {
    const bool listed = !layout.stage_recompute.empty();
    pipelines[i] = PipelineOf(item, listed ? cheapest_ : space_.recomputes()[i]);
  }
  for (const ScheduleChoice& choice : schedules(item)) {
    if (!Space::Takes(choice, layout.pp, layout.num_microbatches)) continue;
    EvaluateChoice(pipelines, choice, layout);
  }
}

// Every recompute mode and ZeRO stage of one schedule; first what a bound says of them.
void Walk::EvaluateChoice(absl::Span<const EvenPipeline> pipelines, const ScheduleChoice& choice,
                          Layout& layout) {
  const Question& question = pricer_.question();
  const double goodput = pricer_.MostGoodput(layout.world_size());
  const double spread = 1 + question.engine.time.straggler_sigma *
                                std::sqrt(2 * std::log(static_cast<double>(layout.world_size())));
  layout.schedule = choice.kind;
  layout.virtual_stages = choice.virtual_stages;
  for (size_t i = 0; i < space_.recomputes().size(); ++i) {
    layout.recompute = space_.recomputes()[i];
    if (!space_.Pairs(choice, layout.recompute)) continue;
    double passes_s = 0;
    PassSeconds most;
    if (cut_ == Cut::kByBounds) {
      passes_s = LeastPassesSeconds(pipelines[i], choice);
      if (IsLate(spread * passes_s / goodput)) continue;
      most = MostOfAStage(pipelines[i], choice);
      if (!layout.stage_recompute.empty()) most.backward_s *= kMostRecompute;
    }
    for (const int zero : space_.ZeroStages(layout.pp, layout.data_group())) {
      layout.zero_stage = zero;
      if (cut_ == Cut::kByBounds) {
        const double end_s =
            StepEnd(question, layout, 0, most.forward_s, most.backward_s).total_s();
        if (IsLate(spread * (passes_s + end_s) / goodput)) continue;
      }
      Price(layout);
    }
  }
}

void Walk::Price(const Layout& layout) {
  ++finds_.counts.evaluated;
  Priced priced{.layout = layout, .time = pricer_.Time(layout), .objective_s = 0, .peak = {}};
  const double step_s = priced.time.total_s();
  priced.objective_s = step_s / pricer_.Goodput(layout, step_s);
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

// Memory never grows from the smallest microbatches to larger ones, nor, in a pipeline, from ZeRO 1
// to 0, nor, beyond a few blocks per stage, from full recompute to less: if those do not fit,
// nothing of the group does.
bool Walk::MayFit(const Item& item, const Layout& layout) {
  GroupMemory& known = groups_[static_cast<size_t>(item.group)];
  if (known != GroupMemory::kUnknown) return known == GroupMemory::kMayFit;
  known = GroupMemory::kMayFit;
  Layout least = layout;
  const BatchCut& cut = space_.cuts(static_cast<size_t>(item.dp)).front();
  least.micro_batch_size = cut.micro_batch_size;
  least.num_microbatches = cut.num_microbatches;
  least.head_chunks = space_.HeadPieces(least);
  const absl::Span<const int> zeros = space_.ZeroStages(layout.pp, layout.data_group());
  const absl::Span<const Recompute> recomputes = space_.recomputes();
  if (zeros.empty()) return false;
  const size_t few_zeros = layout.pp > 1 ? 1 : zeros.size();
  const size_t few_recomputes = model_.num_blocks <= kFewBlocks * layout.pp ? recomputes.size() : 1;
  bool tried = false;
  for (const ScheduleChoice& choice : schedules(item)) {
    if (!Space::Takes(choice, least.pp, least.num_microbatches)) continue;
    least.schedule = choice.kind;
    least.virtual_stages = choice.virtual_stages;
    for (const int zero : zeros.subspan(zeros.size() - few_zeros)) {
      least.zero_stage = zero;
      for (const Recompute recompute : recomputes.subspan(recomputes.size() - few_recomputes)) {
        if (!space_.Pairs(choice, recompute)) continue;
        least.recompute = recompute;
        tried = true;
        if (IsNear(least)) return true;
      }
    }
  }
  if (tried) known = GroupMemory::kTooLarge;
  return !tried;
}

// Whether `least` fits but for what kPadding allows; without its guard, as layouts that need more
// may be exact and need none.
bool Walk::IsNear(const Layout& least) {
  const Peak peak = pricer_.PeakOf(least);
  if (!pricer_.Fits(peak)) KeepNearest(least, peak);
  const int64_t bytes = peak.total_bytes() - peak.memory.of(MemoryTerm::kGuard);
  return static_cast<double>(bytes) <=
         kPadding * static_cast<double>(pricer_.question().cluster.device.memory_bytes);
}

}  // namespace

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
