#include "worker/state/state_swapper.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weft {

StateSwapper::StateSwapper(const Parameters& parameters, const StagingRoom& staging,
                           const Numerics& numerics, Arena& arena, Device& device)
    : parameters_(parameters),
      device_(device),
      has_master_(numerics.has_master_weights()),
      places_(static_cast<size_t>(staging.places)) {
  std::vector<Place> places(places_);
  for (size_t i = 0; i < places_; ++i) {
    const auto get = [&](absl::string_view prefix, int64_t elements) {
      return arena.Get(absl::StrCat("work/staging", i, "/", prefix), 1, elements);
    };
    if (has_master_) places[i].master = get("master", staging.elements);
    for (const StateArray& array : StateArrays(numerics.optimizer)) {
      places[i].states.push_back({array, get(array.name, array.ElementsFor(staging.elements))});
    }
  }
  // Stretches that fill a place come first, so that both places are filled wherever there are two.
  for (const bool full : {true, false}) {
    for (size_t bucket = 0; bucket < parameters.buckets().size() && places_ > 0; ++bucket) {
      const int64_t part = parameters.buckets()[bucket].own_weights.elements();
      const int64_t rest = part % staging.elements;
      for (int64_t first = full ? 0 : part - rest; first < (full ? part - rest : part);
           first += staging.elements) {
        stretches_.push_back(StretchOf(bucket, first, full ? staging.elements : rest,
                                       places[stretches_.size() % places_]));
      }
    }
  }
}

StateSwapper::Stretch StateSwapper::StretchOf(size_t bucket, int64_t first, int64_t count,
                                              const Place& place) const {
  const BucketViews& views = parameters_.buckets()[bucket];
  Stretch stretch;
  if (has_master_) {
    stretch.arrays.push_back(
        {RangeOf(views.own_master, first, count), RangeOf(place.master, 0, count)});
  }
  for (size_t i = 0; i < views.own_states.size(); ++i) {
    stretch.arrays.push_back(
        {RangeOf(views.own_states[i], first, count), RangeOf(place.states[i], 0, count)});
  }
  for (const OwnPiece& piece : parameters_.own()) {
    const int64_t begin = std::max(first, piece.offset);
    const int64_t elements = std::min(first + count, piece.offset + piece.range.size()) - begin;
    if (piece.bucket != bucket || elements <= 0) continue;
    OwnPiece slice = SliceOf(piece, begin - piece.offset, elements);
    if (has_master_) slice.master = RangeOf(place.master, begin - first, elements);
    for (size_t i = 0; i < slice.states.size(); ++i) {
      slice.states[i].values = RangeOf(place.states[i], begin - first, elements);
    }
    stretch.own.push_back(std::move(slice));
  }
  return stretch;
}

void StateSwapper::ForEachStretch(Work update) {
  if (places_ == 0) {
    update(parameters_.own());
  } else {
    Pass(stretches_.front().arrays.size(), Return::kYes, update);
  }
}

void StateSwapper::RoundWeights() {
  if (!has_master_) return;
  const auto round = [&](absl::Span<const OwnPiece> own) {
    for (const OwnPiece& piece : own) RoundWeight(piece, device_);
  };
  if (places_ == 0) {
    round(parameters_.own());
  } else {
    Pass(/*arrays=*/1, Return::kNo, round);
  }
}

void StateSwapper::Pass(size_t arrays, Return goes_back, Work work) {
  for (size_t i = 0; i < stretches_.size(); ++i) {
    if (i == 0 || places_ == 1) Fetch(stretches_[i], arrays);
    device_.AwaitTransfers();
    if (places_ > 1 && i + 1 < stretches_.size()) Fetch(stretches_[i + 1], arrays);
    work(stretches_[i].own);
    for (size_t array = 0; array < arrays && goes_back == Return::kYes; ++array) {
      device_.Store(stretches_[i].arrays[array].host, stretches_[i].arrays[array].staged);
    }
  }
  device_.AwaitTransfers();
}

void StateSwapper::Fetch(const Stretch& stretch, size_t arrays) {
  for (size_t array = 0; array < arrays; ++array) {
    device_.Fetch(stretch.arrays[array].staged, stretch.arrays[array].host);
  }
}

}  // namespace weft
