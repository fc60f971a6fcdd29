#include "plan/spec/layout_spec.h"

#include <algorithm>

#include "plan/spec/layout_properties.h"

namespace weft {
namespace {

template <typename T>
const T& ValueOf(const std::optional<T>& asked) {
  return *asked;
}
const std::vector<Recompute>& ValueOf(const std::vector<Recompute>& asked) {
  return asked;
}

}  // namespace

LayoutSpec SpecOf(const Layout& layout) {
  LayoutSpec spec;
  EachLayoutProperty([&](const auto& row) { spec.*row.asked = layout.*row.value; });
  if (!layout.recompute_per_stage.empty()) spec.recompute.reset();
  return spec;
}

Layout LayoutOf(const LayoutSpec& spec) {
  Layout layout;
  if (spec.virtual_stages.value_or(1) > 1) layout.pp_schedule = ScheduleKind::kInterleaved;
  EachLayoutProperty([&](const auto& row) {
    if (IsAsked(spec.*row.asked)) layout.*row.value = ValueOf(spec.*row.asked);
  });
  return layout;
}

Layout LeastLayout(const LayoutSpec& spec) {
  Layout least = LayoutOf(spec);
  if (!spec.dp) least.dp = std::max(1, least.ep);
  if (!spec.zero_stage && least.has_zero_groups()) least.zero_stage = 1;
  const bool interleaved = least.pp_schedule == ScheduleKind::kInterleaved;
  if (interleaved && !spec.virtual_stages) least.virtual_stages = 2;
  const int64_t listed =
      std::max(std::ssize(least.layers_per_stage), std::ssize(least.recompute_per_stage));
  if (!spec.pp) least.pp = static_cast<int>(std::max<int64_t>(listed, interleaved ? 2 : 1));
  return least;
}

bool IsComplete(const LayoutSpec& spec) {
  LayoutSpec asked = spec;
  if (spec.recompute_per_stage.empty()) {
    asked.recompute_per_stage = {Recompute::kNone};  // the mode of all stages says enough
  } else {
    asked.recompute = Recompute::kNone;
  }
  bool is_complete = true;
  EachLayoutProperty([&](const auto& row) { is_complete &= IsAsked(asked.*row.asked); });
  return is_complete;
}

LayoutSpec Override(LayoutSpec spec, const LayoutSpec& more) {
  EachLayoutProperty([&](const auto& row) {
    if (IsAsked(more.*row.asked)) spec.*row.asked = more.*row.asked;
  });
  return spec;
}

}  // namespace weft
