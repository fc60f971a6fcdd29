#include "plan/search/lattice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/types/span.h"
#include "plan/estimate/data_comm.h"
#include "plan/search/bound.h"
#include "plan/search/room.h"

namespace weft {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// A bound is the same sums in another order: what rounding may make of it.
constexpr double kBelowRounding = 1 - 1e-9;

// Points that share everything but sequence parallelism, schedule, recompute, ZeRO stage and the
// optimizer's place.
struct Item {
  double bound_s = 0;
  double least_s = 0;          // of all its points: a bound that only falls with more stages
  int tp = 0, cp = 0, ep = 0;  // indices into the space's lists
  int dp = 0, cut = 0, pp = 0;
  int group = 0;  // of those that differ in the batch cut alone
  friend bool operator<(const Item& a, const Item& b) {
    return std::tie(a.bound_s, a.tp, a.cp, a.ep, a.dp, a.pp, a.cut) <
           std::tie(b.bound_s, b.tp, b.cp, b.ep, b.dp, b.pp, b.cut);
  }
};

// At most the passes of the choice, and of what repairs make of it for a single microbatch: those
// are asked of what fits as well.
double LeastOfSplits(const Pipeline& pipeline, const ScheduleChoice& choice, double passes_s) {
  return pipeline.microbatches == 1 ? LeastSecondsOfShapes(pipeline, choice, passes_s) : passes_s;
}

}  // namespace

class LatticeWalk::Walk {
 public:
  Walk(const Space& space, Pricer& pricer, Cut cut, Wanted wanted, double complete_to_s,
       double known_s)
      : space_(space),
        pricer_(pricer),
        cut_(cut),
        wanted_(wanted),
        complete_to_s_(complete_to_s),
        model_(pricer.question().model),
        room_(space, pricer) {
    const Layout base = space.Base(1, 1);
    cheapest_ = base.recompute_per_stage.empty()
                    ? *std::min_element(space.recomputes().begin(), space.recomputes().end())
                    : Recompute::kNone;
    uneven_ = !base.layers_per_stage.empty() || !base.recompute_per_stage.empty();
    threshold_s_ = std::max(kDryRuns * known_s, complete_to_s);
    listed_ = base.layers_per_stage.empty() && !base.recompute_per_stage.empty();
  }

  Finds LookFirst() {
    longest_ = CollectLongest();
    Look();
    const bool full = finds_.fitting.size() == kFinalists;
    finds_.fitting_to_s = full ? finds_.fitting.front().objective_s : threshold_s_;
    const bool nothing_fits = finds_.fitting.empty() && wanted_ == Wanted::kAll;
    finds_.nearest = room_.TakeNearest(nothing_fits);
    finds_.counts.points = space_.CountPoints();
    return Result();
  }

  Finds LookAgain(double limit_s) {
    again_ = true;
    threshold_s_ = limit_s;
    Look();
    finds_.fitting_to_s = limit_s;
    return Result();
  }

 private:
  void Look();
  Finds Result();
  std::vector<Item> CollectLongest();
  std::vector<Item> CollectShorter();
  double LeastSeconds(const Layout& layout, const PassSeconds& block);
  double LeastSeconds(const Layout& layout, Recompute recompute) {
    return LeastSeconds(layout, pricer_.BlockOf(layout, recompute));
  }
  // Returns a bound for both looks' points at first, then for the second one's.
  double LeastSecondsOfLook(const Layout& layout) {
    if (again_) return LeastSeconds(layout, cheapest_);
    const absl::Span<const bool> ways = WaysOf(layout.tp, layout.cp);
    return LeastSeconds(layout, pricer_.LeastBlockOf(layout, cheapest_, ways));
  }
  void SetBound(Item& item);
  bool IsTooLarge(const Item& item);
  bool IsCutByMemory(const Item& item, const Layout& layout);
  void EvaluateItem(const Item& item);
  void EvaluateChoice(const Item& item, absl::Span<const Pipeline> pipelines,
                      absl::Span<LeastPasses> least, const ScheduleChoice& choice, Layout& layout);
  void TryMemory(const Item& item, Layout& layout);
  void EvaluatePlaces(const Item& item, const Pipeline& pipeline, const ScheduleChoice& choice,
                      double least_s, double factor, Layout& layout);
  // kSlower: than the finalists, or than the same that fits with less.
  enum class Outcome { kFits, kDoesNotFit, kSlower };
  Outcome EvaluatePlace(const Pipeline& pipeline, const ScheduleChoice& choice, double factor,
                        double& fitting_s, LazyPasses& passes, std::optional<StepPasses>& waiting,
                        const Layout& layout);
  // `peak`: of one that is known to fit.
  Outcome Price(const Layout& layout, const TermSeconds& time, std::optional<Peak> peak);
  // The peak, if the layout fits; counts and keeps those that do not.
  std::optional<Peak> FittingPeak(const Layout& layout);
  void Keep(Priced priced);
  Layout LayoutOf(const Item& item) const;
  int64_t PointsOf(const Item& item) const;
  int64_t PlacesOf(int64_t data_group) const;
  static DegreeGroup GroupOf(const Item& item) {
    return {item.group, static_cast<size_t>(item.dp), static_cast<size_t>(item.pp)};
  }

  int tp(const Item& item) const { return space_.tps()[static_cast<size_t>(item.tp)]; }
  int cp(const Item& item) const { return space_.cps()[static_cast<size_t>(item.cp)]; }
  int ep(const Item& item) const { return space_.eps()[static_cast<size_t>(item.ep)]; }
  int dp(const Item& item) const { return space_.dps()[static_cast<size_t>(item.dp)]; }
  int pp(const Item& item) const { return space_.pps()[static_cast<size_t>(item.pp)]; }
  const BatchCut& batch_cut(const Item& item) const {
    return space_.cuts(static_cast<size_t>(item.dp))[static_cast<size_t>(item.cut)];
  }
  absl::Span<const bool> WaysOf(int tp, int cp) const { return space_.sequence_parallels(tp, cp); }
  // Whether the item has points in this look.
  bool IsLookedAt(const Item& item) const {
    return !again_ || WaysOf(tp(item), cp(item)).size() > 1;
  }
  const std::vector<ScheduleChoice>& schedules(const Item& item) const {
    return space_.schedules(static_cast<size_t>(item.pp));
  }
  bool IsAnswered() const { return wanted_ == Wanted::kWhetherAnyFits && !finds_.fitting.empty(); }
  // Whether a bound proves that a layout is not among the finalists.
  bool IsLate(double bound_s) const { return bound_s * kBelowRounding > threshold_s_; }

  const Space& space_;
  Pricer& pricer_;
  Cut cut_;
  Wanted wanted_;
  double complete_to_s_;
  const ModelShape& model_;
  Recompute cheapest_ = Recompute::kNone;
  bool uneven_ = false;
  bool listed_ = false;  // stages' recompute modes are fixed, their blocks are not
  bool again_ = false;   // the second look
  double best_s_ = kNever;
  double threshold_s_ = kNever;  // of the last finalist, or what a dry run may make of the best
  std::vector<Item> longest_;
  Finds finds_;
  Room room_;
};

using Walk = LatticeWalk::Walk;

void Walk::Look() {
  for (Item& item : longest_) {
    if (IsAnswered()) break;
    if (!IsLookedAt(item)) continue;
    if (cut_ == Cut::kByBounds) {
      if (IsLate(item.least_s)) continue;
      if (again_) item.least_s = LeastSecondsOfLook(LayoutOf(item));
      if (again_ && IsLate(item.least_s)) continue;
      // Until some time is known that would cut, memory does: few groups, and asked of every item
      // it leaves the bounds on time for those that may fit.
      const bool timed = threshold_s_ != kNever;
      if (!timed && IsTooLarge(item)) continue;
      SetBound(item);
      if (IsLate(item.bound_s)) continue;
      if (timed && IsTooLarge(item)) continue;
    }
    EvaluateItem(item);
  }
  if (IsAnswered()) return;
  for (const Item& item : CollectShorter()) {
    if (IsAnswered() || IsLate(item.bound_s)) break;
    if (cut_ == Cut::kByBounds && IsTooLarge(item)) continue;
    EvaluateItem(item);
  }
}

// Leaves nothing for a second look to find again.
Finds Walk::Result() {
  SearchCounts& counts = finds_.counts;
  counts.cut_by_time = counts.points - counts.evaluated - counts.cut_by_memory;
  std::sort(finds_.fitting.begin(), finds_.fitting.end(), Better);
  finds_.complete_to_s = threshold_s_;
  return std::exchange(finds_, {});
}

Layout Walk::LayoutOf(const Item& item) const {
  Layout layout = space_.Base(tp(item), cp(item));
  if (again_) layout.sequence_parallel = WaysOf(layout.tp, layout.cp).back();
  layout.dp = dp(item);
  layout.pp = pp(item);
  layout.ep = ep(item);
  layout.micro_batch_size = batch_cut(item).micro_batch_size;
  layout.gradient_accumulation_steps = batch_cut(item).gradient_accumulation_steps;
  return layout;
}

double Walk::LeastSeconds(const Layout& layout, const PassSeconds& block) {
  return LeastSecondsOfAnySplit(layout.pp, model_.num_blocks - model_.num_dense_blocks,
                                layout.gradient_accumulation_steps, block,
                                CoreSharing(pricer_.question().cluster, layout.world_size()) > 1);
}

// The bound holds for the points of this look. With more recompute the same split only takes
// longer: it is of use where it balances otherwise.
void Walk::SetBound(Item& item) {
  const Layout layout = LayoutOf(item);
  item.bound_s = kNever;
  const auto consider = [&](const Pipeline& pipeline, bool even) {
    LeastPasses least(pipeline);
    for (const ScheduleChoice& choice : schedules(item)) {
      if (!Space::Takes(choice, layout.pp, layout.gradient_accumulation_steps)) continue;
      if (choice.balanced ? !pipeline.balanced : !even) continue;
      item.bound_s = std::min(item.bound_s, LeastOfSplits(pipeline, choice, least.Of(choice)));
    }
  };
  const Pipeline cheapest = pricer_.PipelineOf(layout, cheapest_);
  consider(cheapest, true);
  for (const Recompute recompute : space_.recomputes()) {
    if (uneven_ || layout.pp == 1 || recompute == cheapest_) continue;
    const PassSeconds& block = pricer_.BlockOf(layout, recompute);
    if (LeastSeconds(layout, block) >= item.bound_s) continue;
    Pipeline pipeline = cheapest;
    pipeline.block = block;
    pipeline.balanced = BetterSplit(pipeline);
    if (pipeline.balanced != cheapest.balanced) consider(pipeline, false);
  }
  item.bound_s /= pricer_.MostGoodput(layout.world_size());
}

// Returns the longest pipeline for every way to divide the ranks and to cut the batch: the bound
// without bubble is least there. Likely ones come first: what comes later is cut by what was found.
std::vector<Item> Walk::CollectLongest() {
  std::vector<Item> items;
  Item item;
  for (item.tp = 0; item.tp < std::ssize(space_.tps()); ++item.tp) {
    for (item.cp = 0; item.cp < std::ssize(space_.cps()); ++item.cp) {
      if (!space_.Pairs(tp(item), cp(item))) continue;
      Layout layout = space_.Base(tp(item), cp(item));
      for (item.ep = 0; item.ep < std::ssize(space_.eps()); ++item.ep) {
        layout.ep = ep(item);
        for (item.dp = 0; item.dp < std::ssize(space_.dps()); ++item.dp) {
          layout.dp = dp(item);
          const int64_t most = space_.slots() / (int64_t{layout.tp} * layout.cp * layout.dp);
          const auto end = std::upper_bound(space_.pps().begin(), space_.pps().end(), most);
          item.pp = static_cast<int>(end - space_.pps().begin()) - 1;
          const int first_group = item.group;
          item.group += static_cast<int>(space_.pps().size());
          if (item.pp < 0 || !space_.Pairs(layout.tp, layout.dp, layout.cp, layout.ep)) continue;
          layout.pp = pp(item);
          Item added = item;
          added.group = first_group + item.pp;
          const auto cuts = std::ssize(space_.cuts(static_cast<size_t>(item.dp)));
          for (added.cut = 0; added.cut < cuts; ++added.cut) {
            layout.micro_batch_size = batch_cut(added).micro_batch_size;
            layout.gradient_accumulation_steps = batch_cut(added).gradient_accumulation_steps;
            if (cut_ == Cut::kByBounds) {
              added.least_s = LeastSecondsOfLook(layout);
              const auto micros = static_cast<double>(layout.gradient_accumulation_steps);
              added.bound_s = added.least_s * (1 + (layout.pp - 1) / micros);
            }
            items.push_back(added);
          }
        }
      }
    }
  }
  room_.SetGroups(static_cast<size_t>(item.group));
  std::sort(items.begin(), items.end());
  return items;
}

// From the longest pipeline down, as far as no bound cuts. What blocks take only grows then, until
// all ranks lie on one node: their groups and the cores that they share change there.
std::vector<Item> Walk::CollectShorter() {
  std::vector<Item> items;
  const bool cuts = cut_ == Cut::kByBounds;
  const int64_t node = pricer_.question().cluster.slots_per_node;
  for (const Item& from : longest_) {
    if (!IsLookedAt(from)) continue;
    const int64_t replica = int64_t{tp(from)} * cp(from) * dp(from);
    bool late = cuts && IsLate(from.least_s);
    if (late && replica > node) continue;
    Layout layout = LayoutOf(from);
    Item item = from;
    for (--item.pp; item.pp >= 0; --item.pp) {
      item.group = from.group - from.pp + item.pp;
      layout.pp = pp(item);
      if (late && replica * layout.pp > node) continue;
      if (cuts) {
        item.least_s = LeastSecondsOfLook(layout);
        late = IsLate(item.least_s);
        if (late || (threshold_s_ == kNever && IsTooLarge(item))) continue;
        SetBound(item);
        if (item.bound_s == kNever || IsLate(item.bound_s)) continue;
      }
      items.push_back(item);
    }
  }
  std::sort(items.begin(), items.end());
  return items;
}

int64_t Walk::PointsOf(const Item& item) const {
  int64_t choices = 0;
  for (const ScheduleChoice& choice : schedules(item)) {
    if (!Space::Takes(choice, pp(item), batch_cut(item).gradient_accumulation_steps)) continue;
    choices += std::ssize(space_.recomputes());
  }
  return choices * PlacesOf(int64_t{dp(item)} * cp(item));
}

// Ways to shard the states and to place them.
int64_t Walk::PlacesOf(int64_t data_group) const {
  return std::ssize(space_.ZeroStages(data_group)) * std::ssize(space_.offloads());
}

bool Walk::IsTooLarge(const Item& item) {
  if (room_.MayFit(GroupOf(item), LayoutOf(item))) return false;
  finds_.counts.cut_by_memory += PointsOf(item);
  return true;
}

void Walk::EvaluateItem(const Item& item) {
  Layout layout = LayoutOf(item);
  std::array<Pipeline, 3> pipelines;  // as space_.recomputes()
  for (size_t i = 0; i < space_.recomputes().size(); ++i) {
    const bool listed = !layout.recompute_per_stage.empty();
    pipelines[i] = pricer_.PipelineOf(layout, listed ? cheapest_ : space_.recomputes()[i]);
  }
  std::array<LeastPasses, 3> least = {LeastPasses(pipelines[0]), LeastPasses(pipelines[1]),
                                      LeastPasses(pipelines[2])};
  const std::vector<int64_t> layers_per_stage = layout.layers_per_stage;
  for (const ScheduleChoice& choice : schedules(item)) {
    if (!Space::Takes(choice, layout.pp, layout.gradient_accumulation_steps)) continue;
    layout.layers_per_stage = layers_per_stage;
    EvaluateChoice(item, pipelines, absl::MakeSpan(least), choice, layout);
  }
}

// Every recompute mode, ZeRO stage and place of the optimizer, of one schedule; first what a bound
// says of them. A balanced split that is no better than the even one is counted with that, what is
// the same as a lower stage of ZeRO with that stage.
void Walk::EvaluateChoice(const Item& item, absl::Span<const Pipeline> pipelines,
                          absl::Span<LeastPasses> least, const ScheduleChoice& choice,
                          Layout& layout) {
  const bool cuts = cut_ == Cut::kByBounds;
  const double goodput = pricer_.MostGoodput(layout.world_size());
  const double spread = pricer_.SpreadOf(layout);
  layout.pp_schedule = choice.kind;
  layout.virtual_stages = choice.virtual_stages;
  for (size_t i = 0; i < space_.recomputes().size(); ++i) {
    layout.recompute = space_.recomputes()[i];
    if (!cuts) finds_.counts.evaluated += PlacesOf(layout.data_group());
    if (choice.balanced && !pipelines[i].balanced) continue;
    const double least_s = cuts ? least[i].Of(choice) : 0;
    if (cuts && IsLate(spread * LeastOfSplits(pipelines[i], choice, least_s) / goodput)) continue;
    if (choice.balanced) layout.layers_per_stage = StageBlocksOf(*pipelines[i].balanced, layout.pp);
    if (wanted_ == Wanted::kWhetherAnyFits) {
      TryMemory(item, layout);
    } else {
      EvaluatePlaces(item, pipelines[i], choice, least_s, spread / goodput, layout);
    }
  }
}

// Whether memory rules the layout out, as the group's least says.
bool Walk::IsCutByMemory(const Item& item, const Layout& layout) {
  if (cut_ == Cut::kNothing) return false;
  const int least = room_.LeastZero(GroupOf(item), layout, layout.offload_optimizer);
  if (layout.zero_stage >= least) return false;
  ++finds_.counts.cut_by_memory;
  return true;
}

// ZeRO 2 moves what ZeRO 1 moves, and more: it is of use only where that does not fit. So is ZeRO
// 3 where neither fits, unless it is faster, and the host where the device has no room. Elsewhere
// they are counted with what they would be no better than.
// `least_s`: at most the passes. `factor`: at most the objective over a step's time.
void Walk::EvaluatePlaces(const Item& item, const Pipeline& pipeline, const ScheduleChoice& choice,
                          double least_s, double factor, Layout& layout) {
  layout.zero_stage = 0;
  layout.offload_optimizer = OffloadDevice::kNone;
  Variant variant{.layout = layout, .choice = choice};
  LazyPasses passes = pricer_.LazyPassesOf(layout, least_s);
  double fitting_s = kNever;                     // of stages from 1 on that fit
  std::array<bool, 2> in_vain = {false, false};  // ZeRO 2, with the optimizer there
  for (const int zero : room_.ZerosOf(layout)) {
    layout.zero_stage = zero;
    std::optional<StepPasses> waiting;
    for (const OffloadDevice offload : space_.offloads()) {
      layout.offload_optimizer = offload;
      if (zero == 2 && in_vain[static_cast<size_t>(offload)]) continue;
      const Outcome outcome =
          IsCutByMemory(item, layout)
              ? Outcome::kDoesNotFit
              : EvaluatePlace(pipeline, choice, factor, fitting_s, passes, waiting, layout);
      if (outcome == Outcome::kFits) variant.fits |= PlaceOf(layout);
      if (outcome == Outcome::kDoesNotFit) {
        variant.lacks |= PlaceOf(layout);
        continue;
      }
      if (zero == 1) in_vain = {in_vain[0] || !layout.offloads_optimizer(), true};
      break;  // with the optimizer on the host it would take longer
    }
  }
  if (cut_ == Cut::kNothing) return;
  variant.least_s = passes.seconds();
  variant.bound_s = factor * (listed_ ? LeastPasses(pipeline).Of(choice)
                                      : LeastSecondsOfShapes(pipeline, choice, variant.least_s));
  finds_.variants.push_back(std::move(variant));
}

// `waiting`: the passes with what they wait for, made when first asked for.
Walk::Outcome Walk::EvaluatePlace(const Pipeline& pipeline, const ScheduleChoice& choice,
                                  double factor, double& fitting_s, LazyPasses& passes,
                                  std::optional<StepPasses>& waiting, const Layout& layout) {
  // Until some time is known that would cut, memory does.
  std::optional<Peak> peak;
  if (cut_ == Cut::kByBounds && threshold_s_ == kNever && fitting_s == kNever) {
    peak = FittingPeak(layout);
    if (!peak) {
      ++finds_.counts.evaluated;
      pricer_.PricePasses(layout, passes);  // for the variant's bound
      return Outcome::kDoesNotFit;
    }
  }
  const auto is_cut = [&](double least_s) {
    return cut_ == Cut::kByBounds &&
           ((layout.zero_stage >= 2 && least_s * kBelowRounding >= fitting_s) ||
            IsLate(factor * least_s));
  };
  const std::optional<TermSeconds> time =
      pricer_.TimeUnless(is_cut, pipeline, choice, layout, passes, waiting);
  if (!time) return Outcome::kSlower;
  const double step_s = time->total_s();
  if (layout.zero_stage >= 2 && step_s >= fitting_s) return Outcome::kSlower;
  const Outcome outcome = Price(layout, *time, peak);
  if (outcome == Outcome::kFits && layout.zero_stage >= 1) fitting_s = std::min(fitting_s, step_s);
  return outcome;
}

void Walk::TryMemory(const Item& item, Layout& layout) {
  for (const int zero : room_.ZerosOf(layout)) {
    layout.zero_stage = zero;
    for (const OffloadDevice offload : space_.offloads()) {
      layout.offload_optimizer = offload;
      if (IsAnswered()) return;
      if (IsCutByMemory(item, layout)) continue;
      if (cut_ == Cut::kByBounds) ++finds_.counts.evaluated;
      const Peak peak = pricer_.PeakOf(layout);
      if (!pricer_.Fits(layout, peak)) continue;
      finds_.fitting.push_back({.layout = layout, .time = {}, .objective_s = 0, .peak = peak});
    }
  }
}

Walk::Outcome Walk::Price(const Layout& layout, const TermSeconds& time, std::optional<Peak> peak) {
  if (cut_ == Cut::kByBounds) ++finds_.counts.evaluated;
  Priced priced{.layout = layout, .time = time, .objective_s = 0, .peak = {}};
  const double step_s = priced.time.total_s();
  priced.objective_s = step_s / pricer_.Goodput(layout, step_s);
  if (cut_ == Cut::kByBounds && IsLate(priced.objective_s)) return Outcome::kSlower;
  if (!peak) peak = FittingPeak(layout);
  if (!peak) return Outcome::kDoesNotFit;
  priced.peak = *peak;
  Keep(std::move(priced));
  return Outcome::kFits;
}

std::optional<Peak> Walk::FittingPeak(const Layout& layout) {
  const std::optional<Peak> peak = pricer_.PeakUpTo(layout, room_.MostBytes());
  if (peak && pricer_.Fits(layout, *peak)) return peak;
  ++finds_.counts.misfits;
  // The lattice's own splits are repaired by memory: the even one stands for all.
  const bool is_own = !again_ && (uneven_ || layout.layers_per_stage.empty());
  if (peak && is_own) room_.KeepNearest(layout, *peak);
  return std::nullopt;
}

void Walk::Keep(Priced priced) {
  std::vector<Priced>& heap = finds_.fitting;  // the worst is on top
  if (again_) {
    if (priced.objective_s <= threshold_s_) heap.push_back(std::move(priced));
    return;
  }
  best_s_ = std::min(best_s_, priced.objective_s);
  heap.push_back(std::move(priced));
  std::push_heap(heap.begin(), heap.end(), Better);
  if (heap.size() > kFinalists) {
    std::pop_heap(heap.begin(), heap.end(), Better);
    heap.pop_back();
  }
  const double near_s = std::max(kDryRuns * best_s_, complete_to_s_);
  if (wanted_ == Wanted::kFitting) {
    threshold_s_ = std::min(threshold_s_, near_s);
  } else if (heap.size() == kFinalists) {
    threshold_s_ = std::max(heap.front().objective_s, near_s);
  }
}

LatticeWalk::LatticeWalk(const Space& space, Pricer& pricer, Cut cut, Wanted wanted,
                         double complete_to_s, double known_s) {
  const bool empty = space.tps().empty() || space.cps().empty() || space.eps().empty() ||
                     space.dps().empty() || space.pps().empty() || space.recomputes().empty();
  if (!empty) walk_ = std::make_unique<Walk>(space, pricer, cut, wanted, complete_to_s, known_s);
}

LatticeWalk::~LatticeWalk() = default;

Finds LatticeWalk::LookFirst() {
  return walk_ == nullptr ? Finds() : walk_->LookFirst();
}

Finds LatticeWalk::LookAgain(double limit_s) {
  return walk_ == nullptr ? Finds() : walk_->LookAgain(limit_s);
}

void AddFinds(Finds more, Finds& finds) {
  std::move(more.fitting.begin(), more.fitting.end(), std::back_inserter(finds.fitting));
  std::sort(finds.fitting.begin(), finds.fitting.end(), Better);
  std::move(more.variants.begin(), more.variants.end(), std::back_inserter(finds.variants));
  finds.complete_to_s = std::min(finds.complete_to_s, more.complete_to_s);
  finds.fitting_to_s = std::min(finds.fitting_to_s, more.fitting_to_s);
  finds.counts.evaluated += more.counts.evaluated;
  finds.counts.misfits += more.counts.misfits;
  finds.counts.cut_by_memory += more.counts.cut_by_memory;
  finds.counts.cut_by_time += more.counts.cut_by_time;
}

Finds SearchLattice(const Space& space, Pricer& pricer, Cut cut, Wanted wanted,
                    double complete_to_s) {
  LatticeWalk walk(space, pricer, cut, wanted, complete_to_s);
  Finds finds = walk.LookFirst();
  // Where whole sequences fit, shared ones do: to know that anything fits one look is enough.
  const bool nothing_fits = finds.fitting.empty();
  if (wanted != Wanted::kAll || (nothing_fits && cut == Cut::kByBounds)) return finds;
  const double best_s = nothing_fits ? kNever : finds.fitting.front().objective_s;
  AddFinds(walk.LookAgain(std::max(complete_to_s, kDryRuns * best_s)), finds);
  return finds;
}

}  // namespace weft
