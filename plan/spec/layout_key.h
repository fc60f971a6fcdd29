// A LayoutKey is what a cache looks an answer up by: all properties of a layout but the lists and
// those that are named because the answer does not depend on them. So a new property of
// plan/spec/layout_properties.h joins every cache by itself; who knows better names it. Pure.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "plan/spec/layout.h"
#include "plan/spec/layout_properties.h"

namespace weft {

template <auto kMember, auto kOther>
constexpr bool IsMember() {
  if constexpr (std::is_same_v<decltype(kMember), decltype(kOther)>) {
    return kMember == kOther;
  } else {
    return false;
  }
}

// Whether row `i` of the table is none of these members.
template <size_t i, auto... kBut>
inline constexpr bool kIsOther = !(IsMember<std::get<i>(kLayoutProperties).value, kBut>() || ...);

// Calls visit(row) for each but the rows of these members, in the order of the table.
template <auto... kBut, typename Visit>
constexpr void EachPropertyBut(const Visit& visit) {
  [&]<size_t... i>(std::index_sequence<i...>) {
    const auto visit_other = [&]<size_t row>() {
      if constexpr (kIsOther<row, kBut...>) visit(std::get<row>(kLayoutProperties));
    };
    (visit_other.template operator()<i>(), ...);
  }
  (std::make_index_sequence<kNumLayoutProperties>());
}

template <auto... kBut, typename Visit>
constexpr void EachScalarBut(const Visit& visit) {
  EachPropertyBut<kBut..., &Layout::layers_per_stage, &Layout::recompute_per_stage>(visit);
}

template <auto... kBut>
constexpr size_t CountScalarsBut() {
  size_t count = 0;
  EachScalarBut<kBut...>([&](const auto&) { ++count; });
  return count;
}

// REQUIRES: it is one of them.
template <auto kMember, auto... kBut>
constexpr size_t PlaceAmongScalars() {
  size_t place = 0, found = 0;
  EachScalarBut<kBut...>([&](const auto& row) {
    if constexpr (std::is_same_v<std::decay_t<decltype(row.value)>,
                                 std::remove_cv_t<decltype(kMember)>>) {
      if (row.value == kMember) found = place;
    }
    ++place;
  });
  return found;
}

template <auto... kBut>
class LayoutKey {
 public:
  explicit LayoutKey(const Layout& layout) {
    size_t place = 0;
    EachScalarBut<kBut...>(
        [&](const auto& row) { values_[place++] = static_cast<int64_t>(layout.*row.value); });
  }

  // Stands for several values with the same answer.
  template <auto kMember, typename T>
  void Set(T value) {
    values_[PlaceAmongScalars<kMember, kBut...>()] = static_cast<int64_t>(value);
  }

  // Writes the values into a layout.
  void To(Layout& layout) const {
    size_t place = 0;
    EachScalarBut<kBut...>([&](const auto& row) {
      using T = std::decay_t<decltype(layout.*row.value)>;
      layout.*row.value = static_cast<T>(values_[place++]);
    });
  }

  // FNV-1a over the values, which are small numbers, and one more.
  size_t Hash(int64_t more) const {
    uint64_t hash = (14695981039346656037U ^ static_cast<uint64_t>(more)) * kPrime;
    for (const int64_t value : values_) hash = (hash ^ static_cast<uint64_t>(value)) * kPrime;
    return hash ^ (hash >> 32);
  }

  friend auto operator<=>(const LayoutKey&, const LayoutKey&) = default;
  // Keys that differ do so early: no call.
  friend bool operator==(const LayoutKey& a, const LayoutKey& b) {
    for (size_t i = 0; i < a.values_.size(); ++i) {
      if (a.values_[i] != b.values_[i]) return false;
    }
    return true;
  }

 private:
  static constexpr uint64_t kPrime = 1099511628211U;
  std::array<int64_t, CountScalarsBut<kBut...>()> values_;
};

}  // namespace weft
