// These rules decide whether a layout may be planned, and whether the engine can run it yet: each
// broken one names the value found and those that would pass. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "plan/spec/cluster.h"
#include "plan/spec/layout.h"
#include "plan/spec/model.h"
#include "plan/spec/spec_issue.h"

namespace weft {

// Every rule that the degrees and everything else of `layout` but its batch cut break.
// REQUIRES: CheckModel and CheckCluster hold.
std::vector<SpecIssue> DegreeIssues(const ModelShape& model, const Cluster& cluster,
                                    const Layout& layout);

// Every rule that the batch and its cut break, as far as they are known (nullopt: auto):
// global_batch_size = dp * micro_batch_size * gradient_accumulation_steps, seq_len within the
// model's positions. REQUIRES: CheckModel holds.
std::vector<SpecIssue> BatchIssues(const ModelShape& model, const BatchShape& batch,
                                   std::optional<int64_t> dp,
                                   std::optional<int64_t> micro_batch_size,
                                   std::optional<int64_t> gradient_accumulation_steps);

// Returns OK, or InvalidArgument with the first broken rule, the value found and the values that
// would pass: "parallelism.tp: 3 does not divide num_attention_heads 32; use 1, 2, 4, 8, 16 or 32".
// REQUIRES: CheckModel and CheckCluster hold.
absl::Status CheckLayout(const ModelShape& model, const Cluster& cluster, const BatchShape& batch,
                         const Layout& layout);

// Returns what the layout asks of the engine that it cannot do yet, by name:
// "parallelism.cp: 2 is not supported yet; use 1".
// Such a layout can be planned, not run. REQUIRES: CheckModel holds.
std::vector<SpecIssue> EngineIssues(const ModelShape& model, const Layout& layout);
// The same of the model alone.
std::vector<SpecIssue> EngineIssues(const ModelShape& model);
// Whether there are none of the model, and none of the layout, for a search, which asks of every
// layout and would print nothing.
bool EngineRuns(const ModelShape& model);
bool EngineRuns(const Layout& layout);

// CheckLayout, then the first of EngineIssues: what a worker, and whoever starts one, asks.
absl::Status CheckRunnable(const ModelShape& model, const Cluster& cluster, const BatchShape& batch,
                           const Layout& layout);

}  // namespace weft
