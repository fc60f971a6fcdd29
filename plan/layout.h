// Layout: how one step is spread over ranks, and the rules it has to keep. Pure values.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/cluster.h"
#include "plan/grid.h"
#include "plan/model.h"
#include "plan/spec_issue.h"

namespace weft {

enum class ScheduleKind { kGpipe, kOneForwardOneBackward };
enum class Recompute { kNone };

// What the batch has to be, whatever the layout: it is mathematics, not execution.
struct BatchShape {
  int64_t global_batch_size = 0;  // sequences per step
  int64_t seq_len = 0;            // T
  friend bool operator==(const BatchShape&, const BatchShape&) = default;
};

// Degrees, batch cut and schedule. global_batch_size = dp * micro_batch_size * num_microbatches.
struct Layout {
  int dp = 1;
  int pp = 1;
  int cp = 1;
  int tp = 1;
  int zero_stage = 0;
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;
  int64_t micro_batch_size = 1;  // B, sequences per microbatch on one replica
  int64_t num_microbatches = 1;  // per replica and step (gradient accumulation steps)
  Recompute recompute = Recompute::kNone;

  int world_size() const { return dp * pp * cp * tp; }
  RankGrid grid() const { return RankGrid(dp, pp, cp, tp); }
  friend bool operator==(const Layout&, const Layout&) = default;
};

// Every rule that the degrees, zero_stage and recompute of `layout` break, whatever the batch.
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
// What no engine of ours runs yet is refused by name ("parallelism.cp: 2 is not supported yet; use
// 1"). REQUIRES: CheckModel and CheckCluster hold.
absl::Status CheckLayout(const ModelShape& model, const Cluster& cluster, const BatchShape& batch,
                         const Layout& layout);

// Blocks [begin, end) of `stage`: num_blocks split as evenly as possible, earlier stages take the
// remainder (the last stage has the head's work on top).
struct BlockRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};
BlockRange StageBlocks(int64_t num_blocks, int stages, int stage);

// "dp=2 tp=1 pp=2 1f1b micro_batch=4 microbatches=2"
std::string LayoutText(const Layout& layout);

absl::string_view ScheduleName(ScheduleKind kind);  // "gpipe", "1f1b"
absl::StatusOr<ScheduleKind> ParseSchedule(absl::string_view name);

}  // namespace weft
