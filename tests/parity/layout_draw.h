// Layouts drawn at random over every axis that the engine runs, for the claim that any layout
// computes the same thing. What EngineIssues refuses is not drawn, so an axis joins by itself once
// it runs. The same seed draws the same layouts.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plan/spec/job_spec.h"
#include "plan/spec/layout.h"

namespace weft {

inline constexpr int kMostRanks = 8;

// A small job of either family, with the odd shapes and in each precision: see layout_draw.cc.
struct DrawnModel {
  std::string name;
  JobSpec job;
  int draws = 6;                // in the gate
  bool has_odd_layouts = true;  // there, too: shapes of layouts are tried once for each family
};
std::vector<DrawnModel> ModelsToDrawFor();

// The layouts that past mistakes hid in, as far as the engine runs them: stages of unequal size,
// fewer microbatches than stages, one kv head, kv heads fewer than tp ranks.
std::vector<Layout> OddLayouts(const DrawnModel& model);

// How often each axis was drawn, by AxesOf's name.
using AxisCounts = std::map<std::string, int>;

// `count` different layouts of at most kMostRanks ranks, rare axes as often as common ones: those
// that were drawn least, for this model and for others that have counted in `seen`, come first.
std::vector<Layout> DrawLayouts(const DrawnModel& model, uint64_t seed, int count,
                                AxisCounts& seen);
std::vector<Layout> DrawLayouts(const DrawnModel& model, uint64_t seed, int count);

// "zero_stage=2", "pp_schedule=zb_h1", ...: the axes on which `layout` is not a plain single rank.
std::vector<std::string> AxesOf(const ModelShape& model, const Layout& layout);

}  // namespace weft
