// A LayoutSpec is what is asked of a layout, by a job file or by a person's question; what is not
// asked is the planner's to choose. Its members are those of Layout, one by one
// (layout_properties.h has the table). Pure values.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "plan/spec/layout.h"

namespace weft {

struct LayoutSpec {
  std::optional<int> dp = {}, tp = {}, pp = {}, cp = {}, ep = {};
  std::optional<int> zero_stage = {};
  std::optional<int> zero_hpz_partition_size = {};
  std::optional<ScheduleKind> pp_schedule = {};
  std::optional<int> virtual_stages = {};
  std::optional<int64_t> micro_batch_size = {};
  std::optional<int64_t> gradient_accumulation_steps = {};
  std::optional<Recompute> recompute = {};
  std::optional<bool> sequence_parallel = {};
  std::optional<OffloadDevice> offload_optimizer = {};
  std::optional<int64_t> head_chunk_tokens = {};
  std::optional<std::vector<int64_t>> layers_per_stage = {};  // an empty list: as even as possible
  std::vector<Recompute> recompute_per_stage = {};            // empty: nothing is asked
  friend bool operator==(const LayoutSpec&, const LayoutSpec&) = default;
};

// Asks for `layout` and nothing else. Its recompute is asked for once: of all stages or per stage.
LayoutSpec SpecOf(const Layout& layout);

// What is asked, and Layout's defaults for the rest; virtual stages need the interleaved schedule.
Layout LayoutOf(const LayoutSpec& spec);

// The layout that breaks the fewest rules with what is asked: degrees that are not stand as 1, or
// as what another value makes of them.
Layout LeastLayout(const LayoutSpec& spec);

// Says whether LayoutOf is the only layout that keeps `spec`.
bool IsComplete(const LayoutSpec& spec);

// `spec` with all that `more` asks in the place of its own: for "why not tp=4?".
LayoutSpec Override(LayoutSpec spec, const LayoutSpec& more);

}  // namespace weft
