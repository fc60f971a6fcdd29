#include "plan/search/room.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/types/span.h"
#include "plan/search/plan.h"

namespace weft {
namespace {

constexpr size_t kNearest = 8;
constexpr int kMostZero = 3;
// A group's least layout may hold this much more: smaller microbatches cost rounded-up buffers.
constexpr double kPadding = 1.125;

}  // namespace

Room::Room(const Space& space, Pricer& pricer)
    : space_(space), pricer_(pricer), model_(pricer.question().model) {}

absl::Span<const int> Room::ZerosOf(const Layout& layout) const {
  const absl::Span<const int> zeros = space_.ZeroStages(layout.data_group());
  const Question& question = pricer_.question();
  const bool has_places = question.engine.memory.arena && !question.adapters;
  if (!has_places || SharesPlaces(layout, model_.num_blocks, model_.tied_embeddings)) return zeros;
  const auto same = std::upper_bound(zeros.begin(), zeros.end(), 1) - zeros.begin();
  return same == 0 ? zeros : zeros.first(static_cast<size_t>(same));
}

bool Room::MayFit(const DegreeGroup& group, const Layout& layout) {
  const absl::Span<const OffloadDevice> offloads = space_.offloads();
  return std::any_of(offloads.begin(), offloads.end(), [&](OffloadDevice offload) {
    return LeastZero(group, layout, offload) != kNowhere;
  });
}

// Memory never grows from the smallest microbatches to larger ones, nor, of what weft lists in a
// pipeline, from a lower stage of ZeRO to a higher one (plan/shards/whole_places.h), nor, beyond a
// few blocks per stage, from full recompute to less: if those do not fit, nothing of the group
// does.
int Room::LeastZero(const DegreeGroup& group, const Layout& layout, OffloadDevice offload) {
  std::array<int, 2>& known = least_[static_cast<size_t>(group.index)];
  int& least_zero = known[static_cast<size_t>(offload)];
  if (least_zero != kUnknown) return least_zero;
  Layout least = layout;
  const BatchCut& cut = space_.cuts(group.dp).front();
  least.micro_batch_size = cut.micro_batch_size;
  least.gradient_accumulation_steps = cut.gradient_accumulation_steps;
  least.offload_optimizer = offload;
  least.layers_per_stage = space_.fixed().layers_per_stage.value_or(std::vector<int64_t>());
  least_bytes_ = std::numeric_limits<double>::infinity();
  least_zero = SeekLeastZero(group, least);
  if (least_zero == kNowhere) too_large_.push_back({group, std::move(least), least_bytes_});
  return least_zero;
}

int Room::SeekLeastZero(const DegreeGroup& group, Layout least) {
  if (space_.ZeroStages(least.data_group()).empty()) return kNowhere;
  bool tried = false;
  const auto any_is_near = [&](int most_zero) {
    bool near = false;
    for (const ScheduleChoice& choice : space_.schedules(group.pp)) {
      if (near || !Space::Takes(choice, least.pp, least.gradient_accumulation_steps)) continue;
      EachState(least, choice, /*least=*/true, most_zero, [&] {
        tried = true;
        near = near || IsNear(least, choice);
      });
    }
    return near;
  };
  if (OnlyFalls(least) && any_is_near(/*most_zero=*/1)) return 0;
  if (any_is_near(kMostZero)) return OnlyFalls(least) ? 2 : 0;
  return tried ? kNowhere : 0;
}

// Whether memory only falls with the stage of ZeRO.
bool Room::OnlyFalls(const Layout& layout) const {
  return layout.pp > 1 && HasListedMemory(pricer_.question(), layout);
}

// All ZeRO stages up to `most_zero` and recompute modes of a schedule, set in `layout`; or those
// that hold the least.
template <typename Visit>
void Room::EachState(Layout& layout, const ScheduleChoice& choice, bool least, int most_zero,
                     const Visit& visit) {
  // A balanced split's stages are not known here.
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
  layout.pp_schedule = choice.kind;
  layout.virtual_stages = choice.virtual_stages;
  for (const int zero : zeros) {
    layout.zero_stage = zero;
    for (const Recompute recompute : recomputes) {
      layout.recompute = recompute;
      visit();
    }
  }
}

// Whether `least` fits but for what kPadding allows, its head in one piece or, where that is free,
// in as many as there may be: that is of use where the last stage lacks room.
bool Room::IsNear(Layout least, const ScheduleChoice& choice) {
  const int last = least.pp - 1;
  if (!choice.balanced) {
    const Peak peak = pricer_.PeakOf(least);
    if (!pricer_.Fits(least, peak)) KeepNearest(least, peak);
    const int64_t bytes = peak.total_bytes() - peak.memory.of(MemoryTerm::kGuard);
    least_bytes_ = std::min(least_bytes_, static_cast<double>(bytes));
    if (IsNear(peak)) return true;
    // An even split does not stand for others where each stage has a recompute mode of its own.
    const LayoutSpec& fixed = space_.fixed();
    if (!fixed.recompute_per_stage.empty() && !fixed.layers_per_stage) return HoldsMean(least);
    if (peak.stage != last || !space_.has_free_head()) return false;
    least.head_chunk_tokens = space_.LeastHeadChunk();
    return IsNear(pricer_.PeakOf(least));
  }
  // Whatever the ends weigh: of two stages one holds the mean or more, and stage 1 of several at
  // most one block less than the mean, rounded up.
  const int64_t mean = (model_.num_blocks + least.pp - 1) / least.pp;
  const int64_t blocks = least.pp == 2 ? mean : std::max<int64_t>(1, mean - 1);
  least.layers_per_stage.assign(static_cast<size_t>(least.pp), blocks);
  const auto fits = [&](int stage) {
    return IsNear(Peak{.stage = stage, .memory = pricer_.StageOf(least, stage)});
  };
  if (fits(1)) return true;
  if (least.pp > 2) return false;
  if (space_.has_free_head()) least.head_chunk_tokens = space_.LeastHeadChunk();
  return fits(0) || fits(1);
}

// Whether some stage nearly has room for the mean, rounded up, as one has to in any split.
bool Room::HoldsMean(Layout layout) {
  const int64_t mean = (model_.num_blocks + layout.pp - 1) / layout.pp;
  layout.layers_per_stage.assign(static_cast<size_t>(layout.pp), mean);
  if (space_.has_free_head()) layout.head_chunk_tokens = space_.LeastHeadChunk();
  for (int stage = 0; stage < layout.pp; ++stage) {
    if (IsNear(Peak{.stage = stage, .memory = pricer_.StageOf(layout, stage)})) return true;
  }
  return false;
}

// Without its guard, as layouts that need more may be exact and need none.
bool Room::IsNear(const Peak& peak) const {
  const int64_t bytes = peak.total_bytes() - peak.memory.of(MemoryTerm::kGuard);
  return static_cast<double>(bytes) <=
         kPadding * static_cast<double>(pricer_.question().cluster.device.memory_bytes);
}

int64_t Room::MostBytes() const {
  if (nearest_.size() < kNearest) return std::numeric_limits<int64_t>::max();
  return std::max(pricer_.question().cluster.device.memory_bytes,
                  nearest_.back().peak.total_bytes());
}

void Room::KeepNearest(const Layout& layout, const Peak& peak) {
  const auto less = [](const Priced& a, const Priced& b) {
    const int64_t bytes_a = a.peak.total_bytes();
    const int64_t bytes_b = b.peak.total_bytes();
    return bytes_a != bytes_b ? bytes_a < bytes_b : Simpler(a.layout, b.layout);
  };
  if (nearest_.size() == kNearest && peak.total_bytes() > nearest_.back().peak.total_bytes())
    return;
  const Priced priced{.layout = layout, .time = {}, .objective_s = 0, .peak = peak};
  if (nearest_.size() == kNearest && !less(priced, nearest_.back())) return;
  const auto place = std::lower_bound(nearest_.begin(), nearest_.end(), priced, less);
  if (place != nearest_.end() && place->layout == layout) return;
  nearest_.insert(place, priced);
  if (nearest_.size() > kNearest) nearest_.pop_back();
}

std::vector<Priced> Room::TakeNearest(bool nothing_fits) {
  if (nothing_fits) LookIntoTooLarge();
  return std::move(nearest_);
}

// Where nothing fits, the layout that needs the least may be in a group that was cut: all that may
// be less than the least so far are looked at. Balanced splits are left out: the even one stands
// for them.
void Room::LookIntoTooLarge() {
  const auto may_be_less = [&](double least_bytes) {
    return nearest_.empty() ||
           least_bytes <= kPadding * static_cast<double>(nearest_.front().peak.total_bytes());
  };
  std::stable_sort(too_large_.begin(), too_large_.end(), [](const TooLarge& a, const TooLarge& b) {
    return a.least_bytes < b.least_bytes;
  });
  for (const auto& [group, least, least_bytes] : too_large_) {
    if (!may_be_less(least_bytes)) break;
    Layout layout = least;
    for (const BatchCut& cut : space_.cuts(group.dp)) {
      layout.micro_batch_size = cut.micro_batch_size;
      layout.gradient_accumulation_steps = cut.gradient_accumulation_steps;
      for (const ScheduleChoice& choice : space_.schedules(group.pp)) {
        if (choice.balanced || !Space::Takes(choice, layout.pp, layout.gradient_accumulation_steps))
          continue;
        least_bytes_ = std::numeric_limits<double>::infinity();
        EachState(layout, choice, /*least=*/true, kMostZero, [&] { IsNear(layout, choice); });
        if (!may_be_less(least_bytes_)) continue;
        EachState(layout, choice, /*least=*/false, kMostZero, [&] { IsNear(layout, choice); });
      }
    }
  }
}

}  // namespace weft
