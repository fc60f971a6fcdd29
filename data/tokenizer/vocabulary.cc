#include "data/tokenizer/vocabulary.h"

#include <utility>

#include "plan/errors.h"

namespace weft {

Vocabulary::Vocabulary(size_t num_tokens) {
  size_t places = 16;
  while (places < num_tokens * 2) places *= 2;
  places_.resize(places);
  spans_.reserve(num_tokens);
  bytes_.reserve(num_tokens * 8);
}

void Vocabulary::Add(absl::string_view text, int32_t id, bool is_found) {
  CHECK(id >= 0 && id < kMostTokens);
  const auto index = static_cast<size_t>(id);
  if (index >= spans_.size()) spans_.resize(index + 1);
  spans_[index] = {bytes_.size(), static_cast<uint32_t>(text.size()), true};
  bytes_.append(text.data(), text.size());
  if (!is_found) return;
  if ((num_found_ + 1) * 2 > places_.size()) Grow();
  const uint64_t hash = HashOfBytes(text);
  Place* const place = PlaceOf(text, hash);
  if (place->id == kNoToken) ++num_found_;
  *place = {id, static_cast<uint32_t>(hash >> 32)};
}

Vocabulary::Place* Vocabulary::PlaceOf(absl::string_view text, uint64_t hash) {
  const size_t mask = places_.size() - 1;
  size_t at = hash & mask;
  while (places_[at].id != kNoToken &&
         (places_[at].hash != hash >> 32 || Text(places_[at].id) != text)) {
    at = (at + 1) & mask;
  }
  return &places_[at];
}

void Vocabulary::Grow() {
  const std::vector<Place> old = std::exchange(places_, std::vector<Place>(places_.size() * 2));
  const size_t mask = places_.size() - 1;
  for (const Place& place : old) {
    if (place.id == kNoToken) continue;
    size_t at = HashOfBytes(Text(place.id)) & mask;
    while (places_[at].id != kNoToken) at = (at + 1) & mask;
    places_[at] = place;
  }
}

int32_t Vocabulary::Find(absl::string_view text) const {
  const size_t mask = places_.size() - 1;
  const uint64_t hash = HashOfBytes(text);
  for (size_t at = hash & mask; places_[at].id != kNoToken; at = (at + 1) & mask) {
    const Place& place = places_[at];
    if (place.hash == hash >> 32 && Text(place.id) == text) return place.id;
  }
  return kNoToken;
}

}  // namespace weft
