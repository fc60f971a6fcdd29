#include "plan/search/lattice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/types/span.h"
#include "plan/estimate/data_comm.h"
#include "plan/search/bound.h"

namespace weft {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// A bound is the same sums in another order: what rounding may make of it.
constexpr double kRounding = 1 - 1e-9;
constexpr size_t kNearest = 8;
constexpr int kMostZero = 3;
// Of a group's least layout: what smaller microbatches may cost in rounded-up buffers.
constexpr double kPadding = 1.125;
// Blocks of a stage up to which what full recompute computes again weighs as much as what it saves.
constexpr int64_t kFewBlocks = 4;

double Ticks(double seconds) {
  return std::round(seconds * 1e12);
}

// Points that share everything but schedule, ZeRO stage and recompute.
struct Item {
  double bound_s = 0;
  double least_s = 0;  // of any split and schedule: a bound that only falls with more stages
  int tp = 0, cp = 0, ep = 0;  // indices into the space's lists
  int dp = 0, cut = 0, pp = 0;
  int group = 0;  // of those that differ in the batch cut alone
  friend bool operator<(const Item& a, const Item& b) {
    return std::tie(a.bound_s, a.tp, a.cp, a.ep, a.dp, a.pp, a.cut) <
           std::tie(b.bound_s, b.tp, b.cp, b.ep, b.dp, b.pp, b.cut);
  }
};

// kMayFitInParts: at ZeRO 2 or 3 only.
enum class GroupMemory : char { kUnknown, kMayFit, kMayFitInParts, kTooLarge };

class Walk {
 public:
  Walk(const Space& space, Pricer& pricer, Cut cut, Wanted wanted)
      : space_(space),
        pricer_(pricer),
        cut_(cut),
        wanted_(wanted),
        model_(pricer.question().model) {
    finds_.counts.points = space.CountPoints();
    const Layout base = space.Base(1, 1);
    cheapest_ = base.stage_recompute.empty()
                    ? *std::min_element(space.recomputes().begin(), space.recomputes().end())
                    : Recompute::kNone;
    uneven_ = !base.stage_blocks.empty() || !base.stage_recompute.empty();
  }

  Finds Run() {
    std::vector<Item> longest = CollectLongest();
    for (Item& item : longest) {
      if (IsAnswered()) break;
      if (cut_ == Cut::kByBounds) {
        if (IsLate(item.least_s) || IsTooLarge(item)) continue;
        SetBound(LayoutOf(item), item);
        if (IsLate(item.bound_s)) continue;
      }
      EvaluateItem(item);
    }
    if (!IsAnswered()) {
      for (const Item& item : CollectShorter(longest)) {
        if (IsAnswered() || IsLate(item.bound_s)) break;
        EvaluateItem(item);
      }
    }
    if (finds_.fitting.empty() && wanted_ == Wanted::kAll) FindNearest();
    SearchCounts& counts = finds_.counts;
    counts.cut_by_time = counts.points - counts.evaluated - counts.cut_by_memory;
    std::sort(finds_.fitting.begin(), finds_.fitting.end(), Better);
    std::sort(finds_.misfits.begin(), finds_.misfits.end(), Better);
    return std::move(finds_);
  }

 private:
  std::vector<Item> CollectLongest();
  std::vector<Item> CollectShorter(const std::vector<Item>& longest);
  double LeastSeconds(const Layout& layout, Recompute recompute);
  void SetBound(const Layout& layout, Item& item);
  bool IsTooLarge(const Item& item);
  void EvaluateItem(const Item& item);
  void EvaluateChoice(absl::Span<const Pipeline> pipelines, const ScheduleChoice& choice,
                      int least_zero, Layout& layout);
  void TryMemory(Layout& layout, absl::Span<const int> zeros);
  void EvaluateZeros(const Pipeline& pipeline, const ScheduleChoice& choice,
                     absl::Span<const int> zeros, double factor, Layout& layout);
  bool Price(const Layout& layout, const TermSeconds& time);
  bool Keep(Priced priced);
  void KeepNearest(const Layout& layout, const Peak& peak);
  void FindNearest();
  template <typename Visit>
  void EachState(Layout& layout, const ScheduleChoice& choice, bool least, int most_zero,
                 const Visit& visit);
  bool OnlyFalls(const Layout& layout) const;
  bool MayFit(const Item& item, const Layout& layout);
  bool IsNear(const Layout& least, const ScheduleChoice& choice);
  bool IsNear(const Peak& peak) const;
  absl::Span<const int> ZerosOf(const Layout& layout) const;
  Pipeline PipelineOf(const Layout& layout, Recompute recompute);
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
  bool IsAnswered() const { return wanted_ == Wanted::kWhetherAnyFits && !finds_.fitting.empty(); }
  // Whether a bound proves that a layout is not among the finalists.
  bool IsLate(double bound_s) const { return bound_s * kRounding > threshold_s_; }

  const Space& space_;
  Pricer& pricer_;
  Cut cut_;
  Wanted wanted_;
  const ModelShape& model_;
  Recompute cheapest_ = Recompute::kNone;
  bool uneven_ = false;
  double threshold_s_ = kNever;  // of the last finalist
  Finds finds_;
  std::vector<GroupMemory> groups_;
  struct TooLarge {
    Item item;
    double least_bytes = 0;  // of its even splits
  };
  std::vector<TooLarge> too_large_;
  double least_bytes_ = kNever;  // of what IsNear looked at since it was last set
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

// ZeRO stages to choose from, without those that are the same as a lower one on these stages.
absl::Span<const int> Walk::ZerosOf(const Layout& layout) const {
  const absl::Span<const int> zeros = space_.ZeroStages(layout.data_group());
  const Question& question = pricer_.question();
  const bool has_places = question.engine.memory.arena && !question.adapters;
  if (!has_places || SharesPlaces(layout, model_.num_blocks, model_.tied_embeddings)) return zeros;
  const auto same = std::upper_bound(zeros.begin(), zeros.end(), 1) - zeros.begin();
  return same == 0 ? zeros : zeros.first(static_cast<size_t>(same));
}

Pipeline Walk::PipelineOf(const Layout& layout, Recompute recompute) {
  const PartPasses parts = pricer_.PartsOf(layout, recompute);
  Pipeline pipeline = {
      .stages = layout.pp,
      .num_blocks = model_.num_blocks,
      .microbatches = layout.num_microbatches,
      .block = parts.block,
      .embedding = parts.embedding,
      .head = parts.head,
      .transfer_s = parts.transfer_s,
      .balanced = std::nullopt,
      .uneven = uneven_,
      .shares_cores = CoreSharing(pricer_.question().cluster, layout.world_size()) > 1};
  if (!uneven_) pipeline.balanced = BetterSplit(pipeline);
  return pipeline;
}

double Walk::LeastSeconds(const Layout& layout, Recompute recompute) {
  return LeastSecondsOfAnySplit(
      {.stages = layout.pp,
       .num_blocks = model_.num_blocks,
       .microbatches = layout.num_microbatches,
       .block = pricer_.BlockOf(layout, recompute),
       .shares_cores = CoreSharing(pricer_.question().cluster, layout.world_size()) > 1});
}

// With more recompute an even split only takes longer; a balanced one may be another split.
void Walk::SetBound(const Layout& layout, Item& item) {
  item.bound_s = kNever;
  const auto consider = [&](Recompute recompute, bool even) {
    const Pipeline pipeline = PipelineOf(layout, recompute);
    for (const ScheduleChoice& choice : schedules(item)) {
      if (!Space::Takes(choice, layout.pp, layout.num_microbatches)) continue;
      if (choice.balanced ? !pipeline.balanced : !even) continue;
      item.bound_s = std::min(item.bound_s, LeastPassesSeconds(pipeline, choice));
    }
  };
  consider(cheapest_, true);
  for (const Recompute recompute : space_.recomputes()) {
    if (uneven_ || layout.pp == 1 || recompute == cheapest_) continue;
    if (LeastSeconds(layout, recompute) < item.bound_s) consider(recompute, false);
  }
  item.bound_s /= pricer_.MostGoodput(layout.world_size());
}

// Of every way to divide the ranks and to cut the batch, the longest pipeline: the bound without
// bubble is least there. Likely ones first: what comes later is cut by what was found.
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
          if (item.pp < 0 || !space_.Pairs(layout.dp, layout.cp, layout.ep)) continue;
          layout.pp = pp(item);
          Item added = item;
          added.group = first_group + item.pp;
          const auto cuts = std::ssize(space_.cuts(static_cast<size_t>(item.dp)));
          for (added.cut = 0; added.cut < cuts; ++added.cut) {
            layout.micro_batch_size = batch_cut(added).micro_batch_size;
            layout.num_microbatches = batch_cut(added).num_microbatches;
            layout.head_chunks = space_.HeadPieces(layout);
            if (cut_ == Cut::kByBounds) {
              added.least_s = LeastSeconds(layout, cheapest_);
              const auto micros = static_cast<double>(layout.num_microbatches);
              added.bound_s = added.least_s * (1 + (layout.pp - 1) / micros);
            }
            items.push_back(added);
          }
        }
      }
    }
  }
  groups_.resize(static_cast<size_t>(item.group), GroupMemory::kUnknown);
  std::sort(items.begin(), items.end());
  return items;
}

// From the longest pipeline down, as far as no bound cuts. What blocks take only grows then, until
// all ranks lie on one node: their groups and the cores that they share change there.
std::vector<Item> Walk::CollectShorter(const std::vector<Item>& longest) {
  std::vector<Item> items;
  const bool cuts = cut_ == Cut::kByBounds;
  const int64_t node = pricer_.question().cluster.slots_per_node;
  for (const Item& from : longest) {
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
        item.least_s = LeastSeconds(layout, cheapest_);
        late = IsLate(item.least_s);
        if (late || IsTooLarge(item)) continue;
        SetBound(layout, item);
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
    if (!Space::Takes(choice, pp(item), batch_cut(item).num_microbatches)) continue;
    choices += std::ssize(space_.recomputes());
  }
  const auto zeros = std::ssize(space_.ZeroStages(int64_t{dp(item)} * cp(item)));
  return choices * zeros;
}

// As long as no time is known that would cut: whether its memory does, which is asked of every item
// then, and of few groups. It leaves the bounds on time for those that may fit.
bool Walk::IsTooLarge(const Item& item) {
  if (threshold_s_ != kNever || MayFit(item, LayoutOf(item))) return false;
  finds_.counts.cut_by_memory += PointsOf(item);
  return true;
}

void Walk::EvaluateItem(const Item& item) {
  Layout layout = LayoutOf(item);
  if (cut_ == Cut::kByBounds && !MayFit(item, layout)) {
    finds_.counts.cut_by_memory += PointsOf(item);
    return;
  }
  const bool in_parts = groups_[static_cast<size_t>(item.group)] == GroupMemory::kMayFitInParts;
  const int least_zero = in_parts ? 2 : 0;
  std::array<Pipeline, 3> pipelines;  // as space_.recomputes()
  for (size_t i = 0; i < space_.recomputes().size(); ++i) {
    const bool listed = !layout.stage_recompute.empty();
    pipelines[i] = PipelineOf(layout, listed ? cheapest_ : space_.recomputes()[i]);
  }
  const std::vector<int64_t> stage_blocks = layout.stage_blocks;
  for (const ScheduleChoice& choice : schedules(item)) {
    if (!Space::Takes(choice, layout.pp, layout.num_microbatches)) continue;
    layout.stage_blocks = stage_blocks;
    EvaluateChoice(pipelines, choice, least_zero, layout);
  }
}

// Every recompute mode, and ZeRO stage from `least_zero` on, of one schedule; first what a bound
// says of them. A balanced split that is no better than the even one is counted with that, what is
// the same as a lower stage of ZeRO with that stage.
void Walk::EvaluateChoice(absl::Span<const Pipeline> pipelines, const ScheduleChoice& choice,
                          int least_zero, Layout& layout) {
  const bool cuts = cut_ == Cut::kByBounds;
  const double goodput = pricer_.MostGoodput(layout.world_size());
  const double spread = 1 + pricer_.question().engine.time.straggler_sigma *
                                std::sqrt(2 * std::log(static_cast<double>(layout.world_size())));
  layout.schedule = choice.kind;
  layout.virtual_stages = choice.virtual_stages;
  const auto all_zeros = std::ssize(space_.ZeroStages(layout.data_group()));
  for (size_t i = 0; i < space_.recomputes().size(); ++i) {
    layout.recompute = space_.recomputes()[i];
    if (choice.balanced && !pipelines[i].balanced) {
      if (!cuts) finds_.counts.evaluated += all_zeros;
      continue;
    }
    if (cuts && IsLate(spread * LeastPassesSeconds(pipelines[i], choice) / goodput)) continue;
    if (choice.balanced) layout.stage_blocks = StageBlocksOf(*pipelines[i].balanced, layout.pp);
    absl::Span<const int> zeros = ZerosOf(layout);
    if (!cuts) finds_.counts.evaluated += all_zeros - std::ssize(zeros);
    while (!zeros.empty() && zeros.front() < least_zero) {
      zeros.remove_prefix(1);
      ++finds_.counts.cut_by_memory;
    }
    if (zeros.empty()) continue;
    if (wanted_ == Wanted::kWhetherAnyFits) {
      TryMemory(layout, zeros);
      continue;
    }
    EvaluateZeros(pipelines[i], choice, zeros, spread / goodput, layout);
  }
}

// ZeRO 2 moves what ZeRO 1 moves, and more: it is of use only where that does not fit. So is ZeRO
// 3 where neither fits, unless it is faster. Elsewhere they are counted with the lower stage.
// `factor`: at most the objective over a step's time.
void Walk::EvaluateZeros(const Pipeline& pipeline, const ScheduleChoice& choice,
                         absl::Span<const int> zeros, double factor, Layout& layout) {
  layout.zero_stage = 0;
  const StepPasses passes = pricer_.PassesOf(layout);  // without what ZeRO 2 and 3 wait for
  const bool cuts = cut_ == Cut::kByBounds;
  double fitting_s = kNever;  // of stages from 1 on that fit
  bool late = false;          // of stage 1
  for (const int zero : zeros) {
    layout.zero_stage = zero;
    if (zero == 2 && (late || fitting_s < kNever)) {
      if (!cuts) ++finds_.counts.evaluated;
      continue;
    }
    const TermSeconds end = pricer_.FirstEndOf(layout, passes);
    const auto is_cut = [&](double passes_s) {
      const double least_s = passes_s + end.total_s();
      return cuts && ((zero == 3 && least_s * kRounding >= fitting_s) || IsLate(factor * least_s));
    };
    // Waits make passes longer, never shorter: first none, then those of the pipeline's ends.
    StepPasses own = passes;
    bool cut = is_cut(own.time.total_s());
    if (!cut && MovesInPasses(layout)) {
      const Pipeline waiting = pricer_.WithWaits(pipeline, layout, passes.network);
      cut = is_cut(LeastPassesSeconds(waiting, choice));
      if (!cut) own = pricer_.PassesOf(layout);
    }
    if (cut && zero == 1) late = true;
    if (cut) continue;
    const TermSeconds time = pricer_.Time(layout, own, end);
    if (zero == 3 && time.total_s() >= fitting_s) {
      if (!cuts) ++finds_.counts.evaluated;
    } else if (Price(layout, time) && zero >= 1) {
      fitting_s = std::min(fitting_s, time.total_s());
    }
  }
}

void Walk::TryMemory(Layout& layout, absl::Span<const int> zeros) {
  for (const int zero : zeros) {
    if (IsAnswered()) return;
    layout.zero_stage = zero;
    ++finds_.counts.evaluated;
    const Peak peak = pricer_.PeakOf(layout);
    if (!pricer_.Fits(layout, peak)) continue;
    finds_.fitting.push_back({.layout = layout, .time = {}, .objective_s = 0, .peak = peak});
  }
}

// Returns whether it is known to fit.
bool Walk::Price(const Layout& layout, const TermSeconds& time) {
  ++finds_.counts.evaluated;
  Priced priced{.layout = layout, .time = time, .objective_s = 0, .peak = {}};
  const double step_s = priced.time.total_s();
  priced.objective_s = step_s / pricer_.Goodput(layout, step_s);
  if (cut_ == Cut::kByBounds && IsLate(priced.objective_s)) return false;
  priced.peak = pricer_.PeakOf(layout);
  return Keep(std::move(priced));
}

// Returns whether it fits.
bool Walk::Keep(Priced priced) {
  const bool fits = pricer_.Fits(priced.layout, priced.peak);
  if (!fits) {
    ++finds_.counts.misfits;
    // The lattice's own splits are repaired by memory: the even one stands for all.
    if (uneven_ || priced.layout.stage_blocks.empty()) KeepNearest(priced.layout, priced.peak);
  }
  std::vector<Priced>& heap = fits ? finds_.fitting : finds_.misfits;  // the worst is on top
  heap.push_back(std::move(priced));
  std::push_heap(heap.begin(), heap.end(), Better);
  if (heap.size() > kFinalists) {
    std::pop_heap(heap.begin(), heap.end(), Better);
    heap.pop_back();
  }
  if (fits && heap.size() == kFinalists) threshold_s_ = heap.front().objective_s;
  return fits;
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

// Memory never grows from the smallest microbatches to larger ones, nor, of what weft lists in a
// pipeline, from a lower stage of ZeRO to a higher one (plan/whole_places.h), nor, beyond a few
// blocks per stage, from full recompute to less: if those do not fit, nothing of the group does.
bool Walk::MayFit(const Item& item, const Layout& layout) {
  GroupMemory& known = groups_[static_cast<size_t>(item.group)];
  if (known != GroupMemory::kUnknown) return known != GroupMemory::kTooLarge;
  known = GroupMemory::kMayFit;
  Layout least = layout;
  const BatchCut& cut = space_.cuts(static_cast<size_t>(item.dp)).front();
  least.micro_batch_size = cut.micro_batch_size;
  least.num_microbatches = cut.num_microbatches;
  least.head_chunks = space_.HeadPieces(least);
  if (space_.ZeroStages(layout.data_group()).empty()) return false;
  bool tried = false;
  least_bytes_ = kNever;
  const auto any_is_near = [&](int most_zero) {
    bool near = false;
    for (const ScheduleChoice& choice : schedules(item)) {
      if (near || !Space::Takes(choice, least.pp, least.num_microbatches)) continue;
      EachState(least, choice, /*least=*/true, most_zero, [&] {
        tried = true;
        near = near || IsNear(least, choice);
      });
    }
    return near;
  };
  if (OnlyFalls(least) && any_is_near(/*most_zero=*/1)) return true;
  if (any_is_near(kMostZero)) {
    if (OnlyFalls(least)) known = GroupMemory::kMayFitInParts;
    return true;
  }
  if (!tried) return true;
  known = GroupMemory::kTooLarge;
  too_large_.push_back({item, least_bytes_});
  return false;
}

// Whether memory only falls with the stage of ZeRO.
bool Walk::OnlyFalls(const Layout& layout) const {
  return layout.pp > 1 && HasListedMemory(pricer_.question(), layout);
}

// All ZeRO stages up to `most_zero` and recompute modes of a schedule, set in `layout`; or those
// that hold the least.
template <typename Visit>
void Walk::EachState(Layout& layout, const ScheduleChoice& choice, bool least, int most_zero,
                     const Visit& visit) {
  // Of a balanced split the stages are not known here.
  absl::Span<const int> zeros =
      choice.balanced ? space_.ZeroStages(layout.data_group()) : ZerosOf(layout);
  absl::Span<const Recompute> recomputes = space_.recomputes();
  const auto end = std::upper_bound(zeros.begin(), zeros.end(), most_zero);
  zeros = zeros.first(static_cast<size_t>(end - zeros.begin()));
  if (zeros.empty()) return;
  if (least && OnlyFalls(layout)) zeros.remove_prefix(zeros.size() - 1);
  if (least && model_.num_blocks > kFewBlocks * layout.pp) {
    recomputes.remove_prefix(recomputes.size() - 1);
  }
  layout.schedule = choice.kind;
  layout.virtual_stages = choice.virtual_stages;
  for (const int zero : zeros) {
    layout.zero_stage = zero;
    for (const Recompute recompute : recomputes) {
      layout.recompute = recompute;
      visit();
    }
  }
}

// Where nothing fits, the layout that needs the least may be in a group that was cut: all that may
// be less than the least so far are looked at. Balanced splits are left out, as they are in Keep.
void Walk::FindNearest() {
  const auto may_be_less = [&](double least_bytes) {
    return finds_.nearest.empty() ||
           least_bytes <= kPadding * static_cast<double>(finds_.nearest.front().peak.total_bytes());
  };
  std::stable_sort(too_large_.begin(), too_large_.end(), [](const TooLarge& a, const TooLarge& b) {
    return a.least_bytes < b.least_bytes;
  });
  for (const auto& [item, least_bytes] : too_large_) {
    if (!may_be_less(least_bytes)) break;
    Layout layout = LayoutOf(item);
    for (const BatchCut& cut : space_.cuts(static_cast<size_t>(item.dp))) {
      layout.micro_batch_size = cut.micro_batch_size;
      layout.num_microbatches = cut.num_microbatches;
      layout.head_chunks = space_.HeadPieces(layout);
      for (const ScheduleChoice& choice : schedules(item)) {
        if (choice.balanced || !Space::Takes(choice, layout.pp, layout.num_microbatches)) continue;
        least_bytes_ = kNever;
        EachState(layout, choice, /*least=*/true, kMostZero, [&] { IsNear(layout, choice); });
        if (!may_be_less(least_bytes_)) continue;
        EachState(layout, choice, /*least=*/false, kMostZero, [&] { IsNear(layout, choice); });
      }
    }
  }
}

// Whether `least` fits but for what kPadding allows.
bool Walk::IsNear(const Layout& least, const ScheduleChoice& choice) {
  if (!choice.balanced) {
    const Peak peak = pricer_.PeakOf(least);
    if (!pricer_.Fits(least, peak)) KeepNearest(least, peak);
    const int64_t bytes = peak.total_bytes() - peak.memory.of(MemoryTerm::kGuard);
    least_bytes_ = std::min(least_bytes_, static_cast<double>(bytes));
    return IsNear(peak);
  }
  // Whatever the ends weigh: of two stages one holds the mean or more, and stage 1 of several at
  // most one block less than the mean, rounded up.
  const int64_t mean = (model_.num_blocks + least.pp - 1) / least.pp;
  Layout balanced = least;
  const int64_t blocks = least.pp == 2 ? mean : std::max<int64_t>(1, mean - 1);
  balanced.stage_blocks.assign(static_cast<size_t>(least.pp), blocks);
  const auto fits = [&](int stage) {
    return IsNear(Peak{.stage = stage, .memory = pricer_.StageOf(balanced, stage)});
  };
  return fits(1) || (least.pp == 2 && fits(0));
}

// Without its guard, as layouts that need more may be exact and need none.
bool Walk::IsNear(const Peak& peak) const {
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

Finds SearchLattice(const Space& space, Pricer& pricer, Cut cut, Wanted wanted) {
  const bool empty = space.tps().empty() || space.cps().empty() || space.eps().empty() ||
                     space.dps().empty() || space.pps().empty() || space.recomputes().empty();
  if (empty) return {};
  return Walk(space, pricer, cut, wanted).Run();
}

}  // namespace weft
