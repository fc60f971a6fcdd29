#include "plan/search/repair.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "plan/estimate/data_comm.h"
#include "plan/search/bound.h"
#include "plan/search/head_chunks.h"
#include "plan/search/lone_microbatch.h"
#include "plan/search/room.h"
#include "plan/search/shape.h"
#include "plan/spec/layout_key.h"
#include "plan/spec/layout_rules.h"

namespace weft {
namespace {

enum class Which { kNearBest, kAllBelow, kAny };

// ShapeRoom says whether a layout has a shape that fits, whatever its places, without pricing any.
class ShapeRoom {
 public:
  // Borrows all.
  ShapeRoom(const Space& space, Pricer& pricer, const Room& room)
      : space_(space), pricer_(pricer), room_(room) {}

  // Whether some shape may fit where states take the least of the device, recomputing as much as
  // may be, the head in chunks of so many tokens: asked once for all recompute modes.
  bool AnyFits(const Layout& of, const FreeShape& free, int64_t head_chunk_tokens) {
    const ShapeKey key = {Shapeless(of), head_chunk_tokens, free.split};
    const auto [found, is_new] = shape_fits_.try_emplace(key, false);
    if (!is_new) return found->second;
    Layout least = of;
    least.head_chunk_tokens = head_chunk_tokens;
    least.layers_per_stage = space_.fixed().layers_per_stage.value_or(std::vector<int64_t>());
    // Closed forms only grow with microbatches, and are the least under 1f1b.
    const bool is_ordered = head_chunk_tokens <= 1 && of.virtual_stages == 1 &&
                            !HasListedMemory(pricer_.question(), least);
    if (!is_ordered) return found->second = HasRoomSomewhere(free, std::move(least));
    ShapeKey smallest = key;
    smallest.layout.Set<&Layout::micro_batch_size>(0);
    const auto is_known = [&](ScheduleKind schedule) {
      smallest.layout.Set<&Layout::pp_schedule>(schedule);
      for (size_t recompute = free.recompute ? 1 : 0; recompute < lacking_.size(); ++recompute) {
        const auto lacking = lacking_[recompute].find(smallest);
        if (lacking == lacking_[recompute].end()) continue;
        if (lacking->second <= of.micro_batch_size) return true;
      }
      return false;
    };
    if (is_known(ScheduleKind::kOneForwardOneBackward) || is_known(of.pp_schedule)) return false;
    found->second = HasRoomSomewhere(free, std::move(least));
    if (found->second) return true;
    auto& known = lacking_[free.recompute ? 1 : 0];
    const auto lacking = known.try_emplace(smallest, of.micro_batch_size).first;
    lacking->second = std::min(lacking->second, of.micro_batch_size);
    return false;
  }

 private:
  // The highest stages of ZeRO come first, which hold the least as a rule, with the optimizer on
  // the host; states that are as small as the highest stage makes them may take more of the device
  // there than they leave. Of stages of few blocks (plan/search/room.cc) another mode may hold less
  // as well: all are tried.
  bool HasRoomSomewhere(const FreeShape& free, Layout least) {
    const bool few = pricer_.question().model.num_blocks <= Room::kFewBlocks * least.pp;
    const bool free_split = !space_.fixed().layers_per_stage && least.virtual_stages == 1;
    const bool free_recompute = few && free.recompute;
    const auto fits_by = [&](Recompute mode) {
      least.recompute = mode;
      return pricer_.FitsEverywhere(least) ||
             (free_split && !free_recompute && HasRoomForSplit(pricer_, least, false));
    };
    const auto has_room = [&] {
      absl::Span<const Recompute> modes = space_.recomputes();
      if (!few) modes = modes.last(1);
      if (std::any_of(modes.rbegin(), modes.rend(), fits_by)) return true;
      if (!free_recompute) return false;
      return free_split ? HasRoomForSplit(pricer_, least, true)
                        : BestRecompute(pricer_, least).has_value();
    };
    const absl::Span<const int> zeros = room_.ZerosOf(least);
    for (auto zero = zeros.rbegin(); zero != zeros.rend(); ++zero) {
      least.zero_stage = *zero;
      absl::Span<const OffloadDevice> offloads = space_.offloads();
      if (!few && zero != zeros.rbegin()) offloads = offloads.last(1);
      for (auto offload = offloads.rbegin(); offload != offloads.rend(); ++offload) {
        least.offload_optimizer = *offload;
        if (has_room()) return true;
      }
    }
    return false;
  }

  // It holds what decides whether some shape fits.
  using Shapeless = LayoutKey<&Layout::zero_stage, &Layout::zero_hpz_partition_size,
                              &Layout::gradient_accumulation_steps, &Layout::recompute,
                              &Layout::offload_optimizer, &Layout::head_chunk_tokens>;
  struct ShapeKey {
    Shapeless layout;
    int64_t head_chunk_tokens;
    bool free_split;
    friend auto operator<=>(const ShapeKey&, const ShapeKey&) = default;
  };

  const Space& space_;
  Pricer& pricer_;
  const Room& room_;
  std::map<ShapeKey, bool> shape_fits_;
  // The least micro_batch_size without room, by whether recompute was free; keys have 0 of it.
  std::array<std::map<ShapeKey, int64_t>, 2> lacking_;
};

class Repairs {
 public:
  Repairs(const Space& space, Pricer& pricer, const Finds& finds, double limit_s, Which which)
      : space_(space),
        fixed_(space.fixed()),
        pricer_(pricer),
        room_(space, pricer),
        finds_(finds),
        limit_s_(limit_s),
        which_(which),
        shape_room_(space, pricer, room_) {}

  Repaired Run() {
    std::vector<const Variant*> open;  // least bound first
    for (const Variant& variant : finds_.variants) {
      if (MayWin(variant.bound_s)) open.push_back(&variant);
    }
    std::stable_sort(open.begin(), open.end(),
                     [](const Variant* a, const Variant* b) { return a->bound_s < b->bound_s; });
    for (const Variant* variant : open) {
      if (!MayWin(variant->bound_s)) break;
      TryVariant(*variant);
    }
    return {std::move(made_), limit_s_};
  }

 private:
  // A bound is the same sums in another order: what rounding may make of it.
  bool MayWin(double bound_s) const { return bound_s * (1 - 1e-9) < limit_s_; }

  // Whether the search has found all of the lattice that fits and may win.
  bool FindsAreComplete() const { return limit_s_ <= finds_.fitting_to_s; }

  // Holds what layouts share that differ in where their states are.
  struct Shared {
    const Variant& variant;
    LazyPasses passes;
    Pipeline pipeline;
    FreeShape free;
    double factor = 1;      // at most the objective over a step's time
    uint8_t shapeless = 0;  // places where no shape fits with the widest group
  };

  void TryVariant(const Variant& variant) {
    Layout layout = variant.layout;
    const bool is_free = layout.pp > 1 && (!fixed_.layers_per_stage || !fixed_.recompute);
    const bool has_widths = !fixed_.zero_hpz_partition_size && layout.data_group() > 1;
    const bool has_pieces = space_.has_free_head() && variant.lacks != 0;
    if (FindsAreComplete() && !is_free && !has_widths && !has_pieces) return;
    layout.layers_per_stage = fixed_.layers_per_stage.value_or(std::vector<int64_t>());
    Shared shared{.variant = variant,
                  .passes = pricer_.LazyPassesOf(variant.layout, variant.least_s),
                  .pipeline = pricer_.PipelineOf(layout, layout.recompute),
                  .free = {},
                  .factor = pricer_.SpreadOf(layout) / pricer_.MostGoodput(layout.world_size())};
    shared.free = FreeOf(shared);
    layout = variant.layout;
    TryPlaces(shared, /*whole=*/true, layout);
    if (!has_widths || space_.ZeroStages(layout.data_group()).back() == 0) return;
    const absl::Span<const int64_t> widths = pricer_.ZeroWidths(layout.data_group());
    const double passes_s = shared.passes.seconds() - SavedSeconds(shared);
    const ActionSeconds first = pricer_.FirstStageOf(layout, shared.passes);
    layout.zero_stage = 1;
    const absl::Span<const StageDues> dues = pricer_.FirstDuesOf(layout);
    for (size_t i = 1; i < widths.size(); ++i) {
      // Few widths are left by what each takes at least, whatever its places.
      const double end_s = IsLone(shared) ? 0 : LeastStepEnd(layout, first, dues[i]);
      if (!MayWin(shared.factor * (passes_s + end_s))) continue;
      layout.zero_hpz_partition_size = static_cast<int>(widths[i]);
      TryPlaces(shared, /*whole=*/false, layout);
    }
  }

  // Whether each stage is asked to recompute by a mode of its own: no even or balanced split stands
  // for others then.
  bool HasListedModes(const FreeShape& free) const {
    return free.split && !fixed_.recompute_per_stage.empty();
  }

  // Returns what another shape may save of the passes.
  double SavedSeconds(const Shared& shared) const {
    if (!shared.free.split && !shared.free.recompute) return 0;
    const double passes_s = shared.passes.seconds();
    if (HasListedModes(shared.free)) {
      return std::max(0.0, passes_s - LeastPasses(shared.pipeline).Of(shared.variant.choice));
    }
    return passes_s - LeastSecondsOfShapes(shared.pipeline, shared.variant.choice, passes_s);
  }

  // Where any layout will do, shapes that fit are enough.
  bool IsLone(const Shared& shared) const {
    return which_ != Which::kAny && shared.free.split && HasLoneMicrobatch(shared.variant.layout);
  }

  // The balanced split stands for all with its recompute, the cheapest mode for all with its split.
  FreeShape FreeOf(const Shared& shared) const {
    const Layout& layout = shared.variant.layout;
    if (layout.pp < 2) return {};
    return {.split = !fixed_.layers_per_stage && layout.virtual_stages == 1 &&
                     shared.variant.choice.balanced == shared.pipeline.balanced.has_value(),
            .recompute = !fixed_.recompute && fixed_.recompute_per_stage.empty() &&
                         layout.recompute == space_.recomputes().front()};
  }

  // ZeRO stages and places of the optimizer. As in the lattice ZeRO 2 is of use where ZeRO 1 does
  // not fit, and the host where the device has no room. A narrower group holds more.
  void TryPlaces(Shared& shared, bool whole, Layout layout) {
    std::array<bool, 2> in_vain = {false, false};
    // A stage of ZeRO that is the same as a lower one on this split may not be on another.
    const absl::Span<const int> zeros =
        IsLone(shared) ? space_.ZeroStages(layout.data_group()) : room_.ZerosOf(layout);
    for (const int zero : zeros) {
      if (zero == 0 && !whole) continue;
      layout.zero_stage = zero;
      std::optional<StepPasses> waiting;
      for (const OffloadDevice offload : space_.offloads()) {
        layout.offload_optimizer = offload;
        if (zero == 2 && in_vain[static_cast<size_t>(offload)]) continue;
        if (TryPlace(shared, whole, waiting, layout)) continue;
        if (zero == 1) in_vain = {in_vain[0] || !layout.offloads_optimizer(), true};
        break;
      }
    }
  }

  // Returns whether only memory keeps the layout from being better.
  bool TryPlace(Shared& shared, bool whole, std::optional<StepPasses>& waiting,
                const Layout& layout) {
    const bool lone_lacks = IsLone(shared) && TryLoneSplits(shared, layout);
    return TryOwnSplit(shared, whole, waiting, layout) || lone_lacks;
  }

  // Takes the best split for a single microbatch. Returns whether memory keeps a better one away.
  bool TryLoneSplits(const Shared& shared, const Layout& layout) {
    if (std::isinf(limit_s_) && !AnyShapeFits(shared, space_.LeastHeadChunk())) return true;
    const double passes_s = shared.passes.seconds() - SavedSeconds(shared);
    const double end_s = LeastLoneEnd(pricer_, layout, shared.passes);
    if (!MayWin(shared.factor * (passes_s + end_s))) return false;
    const double limit_s = limit_s_ / (1 - 1e-9) * pricer_.MostGoodput(layout.world_size());
    const LoneBounds bounds{shared.passes, passes_s, limit_s};
    const LoneSplits splits =
        FastestLoneSplits(space_, pricer_, layout, bounds, shared.free.recompute);
    TakeAll(splits.near_best);
    return splits.lacks;
  }

  bool TryOwnSplit(Shared& shared, bool whole, std::optional<StepPasses>& waiting,
                   const Layout& layout) {
    const uint8_t place = PlaceOf(layout);
    const bool lacks = (shared.variant.lacks & place) != 0;
    const bool is_free = shared.free.split || shared.free.recompute;
    if (lacks && !is_free && !space_.has_free_head()) return true;
    if (lacks && (shared.shapeless & place) != 0) return true;
    // Until a time is known that would cut, memory does.
    if (lacks && std::isinf(limit_s_) && !AnyShapeFits(shared, space_.LeastHeadChunk()))
      return true;
    const bool listed = HasListedModes(shared.free);
    if (whole && FindsAreComplete() && !listed) {
      if ((shared.variant.fits & place) != 0) return false;
      // Nor has it been cut by more than may win.
      if (!lacks && SavedSeconds(shared) == 0) return false;
    }
    const auto is_cut = [&](double least_s) {  // what is saved is so with waits as well
      return !MayWin(shared.factor * (least_s - SavedSeconds(shared)));
    };
    const std::optional<TermSeconds> time = pricer_.TimeUnless(
        is_cut, shared.pipeline, shared.variant.choice, layout, shared.passes, waiting);
    if (!time) return false;
    Priced priced = PricedOf(layout, *time);
    if (SavedSeconds(shared) == 0 && !MayWin(priced.objective_s)) return false;
    if (!lacks) {
      priced.peak = pricer_.PeakOf(layout);
      if (pricer_.Fits(layout, priced.peak)) {
        if (MayWin(priced.objective_s)) Take(std::move(priced));
        if (listed) TryShapes(shared, layout);
        return false;
      }
    }
    const bool any = TryShapes(shared, layout);
    if (whole && !any) shared.shapeless |= place;
    return true;
  }

  // Tries what makes a layout fit that does not: other splits and recompute per stage, and pieces
  // of the head where it is the last stage that lacks room. Returns whether any does, however long
  // it takes.
  bool TryShapes(const Shared& shared, const Layout& layout) {
    const bool is_free = shared.free.split || shared.free.recompute;
    const bool any = is_free && AnyShapeFits(shared, layout.head_chunk_tokens) &&
                     TakeAll(FittingShapes(pricer_, layout, shared.free));
    const int64_t least = space_.LeastHeadChunk();
    if (least == layout.head_chunk_tokens || !AnyShapeFits(shared, least)) return any;
    const HeadChunks head = HeadChunksOf(space_, pricer_, layout);
    if (head.for_shapes == 0) return any;
    Layout in_pieces = layout;
    in_pieces.head_chunk_tokens = head.enough;
    if (head.enough > 0 && TakeAll({in_pieces})) return true;
    if (!is_free) return any;
    in_pieces.head_chunk_tokens = head.for_shapes;
    const double least_s = PricedOf(in_pieces, pricer_.Time(in_pieces)).objective_s;
    if (!MayWin(least_s - shared.factor * SavedSeconds(shared))) return any;
    return TakeAll(FittingShapes(pricer_, in_pieces, shared.free)) || any;
  }

  // Takes those that fit and may win, the head in the pieces that take the least. Returns whether
  // any fits.
  bool TakeAll(const std::vector<Layout>& shapes) {
    bool any = false;
    for (const Layout& shape : shapes) {
      if (!pricer_.Fits(shape, pricer_.PeakOf(shape))) continue;
      any = true;
      const Layout best = WithBestHead(space_, pricer_, shape);
      Priced priced = PricedOf(best, pricer_.Time(best));
      if (!MayWin(priced.objective_s)) continue;
      priced.peak = pricer_.PeakOf(best);
      Take(std::move(priced));
    }
    return any;
  }

  bool AnyShapeFits(const Shared& shared, int64_t head_chunk_tokens) {
    return shape_room_.AnyFits(shared.variant.layout, shared.free, head_chunk_tokens);
  }

  Priced PricedOf(const Layout& layout, const TermSeconds& time) {
    const double step_s = time.total_s();
    return {.layout = layout,
            .time = time,
            .objective_s = step_s / pricer_.Goodput(layout, step_s),
            .peak = {}};
  }

  void Take(Priced priced) {
    const auto is_known = [&](const std::vector<Priced>& finds) {
      return std::any_of(finds.begin(), finds.end(),
                         [&](const Priced& find) { return find.layout == priced.layout; });
    };
    if (is_known(finds_.fitting) || is_known(made_) || !IsSound(priced.layout)) return;
    if (which_ == Which::kAny) limit_s_ = 0;
    if (which_ == Which::kNearBest) limit_s_ = std::min(limit_s_, kDryRuns * priced.objective_s);
    priced.repaired = true;
    made_.push_back(std::move(priced));
  }

  bool IsSound(const Layout& layout) const {
    const Question& question = pricer_.question();
    const auto check = space_.purpose() == Purpose::kRun ? &CheckRunnable : &CheckLayout;
    return check(question.model, question.cluster, question.batch, layout).ok();
  }

  const Space& space_;
  const LayoutSpec& fixed_;
  Pricer& pricer_;
  Room room_;
  const Finds& finds_;
  double limit_s_;
  Which which_;
  ShapeRoom shape_room_;
  std::vector<Priced> made_;
};

}  // namespace

Repaired RepairFinds(const Space& space, Pricer& pricer, const Finds& finds, double best_s) {
  return Repairs(space, pricer, finds, kDryRuns * best_s, Which::kNearBest).Run();
}

std::optional<Layout> AnyRepair(const Space& space, Pricer& pricer, const Finds& finds) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const Repaired any = Repairs(space, pricer, finds, kNever, Which::kAny).Run();
  if (any.fitting.empty()) return std::nullopt;
  return any.fitting.front().layout;
}

std::vector<Priced> AllBelow(const Space& space, Pricer& pricer, const Finds& finds,
                             double limit_s) {
  return Repairs(space, pricer, finds, limit_s, Which::kAllBelow).Run().fitting;
}

}  // namespace weft
