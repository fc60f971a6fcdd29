#include "plan/search/plan.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "plan/errors.h"

namespace weft {

const StageMemory& Plan::fullest() const {
  CHECK(!stages.empty());
  return *std::max_element(stages.begin(), stages.end(),
                           [](const StageMemory& a, const StageMemory& b) {
                             return a.layout_bytes() < b.layout_bytes();
                           });
}

int64_t Plan::peak_bytes() const {
  return stages.empty() ? 0 : fullest().layout_bytes();
}

int64_t Plan::host_bytes() const {
  int64_t most = 0;
  for (const StageMemory& stage : stages) most = std::max(most, stage.memory.host_bytes);
  return most;
}

double Plan::tokens_per_s(const BatchShape& batch) const {
  return static_cast<double>(batch.global_batch_size * batch.seq_len) / time.total_s();
}

namespace {

// No mechanism more, and one less.
bool HasFewerMechanisms(const Layout& a, const Layout& b) {
  const auto mechanisms = [](const Layout& layout) {
    return std::array<int, 11>{static_cast<int>(layout.recompute),
                               layout.tp,
                               layout.cp,
                               layout.ep,
                               layout.pp,
                               layout.zero_stage,
                               layout.virtual_stages,
                               layout.schedule == ScheduleKind::kZeroBubbleH1 ? 1 : 0,
                               layout.offload_optimizer ? 1 : 0,
                               layout.head_chunks > 1 ? 1 : 0,
                               layout.stage_blocks.empty() ? 0 : 1};
  };
  const auto ours = mechanisms(a);
  const auto theirs = mechanisms(b);
  if (ours == theirs) return false;
  for (size_t i = 0; i < ours.size(); ++i) {
    if (ours[i] > theirs[i]) return false;
  }
  return a.stage_recompute.empty() || !b.stage_recompute.empty();
}

}  // namespace

bool Simpler(const Layout& a, const Layout& b) {
  const auto key = [](const Layout& layout) {
    return std::make_tuple(layout.recompute, layout.tp, layout.cp, layout.ep, layout.zero_stage,
                           layout.offload_optimizer, layout.head_chunks, layout.virtual_stages,
                           layout.pp, layout.schedule != ScheduleKind::kOneForwardOneBackward,
                           layout.schedule, !layout.stage_blocks.empty(), !layout.sequence_parallel,
                           layout.dp, layout.micro_batch_size);
  };
  const auto key_a = key(a);
  const auto key_b = key(b);
  return key_a != key_b ? key_a < key_b : a.stage_blocks < b.stage_blocks;
}

const Rejection* SimplerWithin(const Plan& plan, double share) {
  const Rejection* simplest = nullptr;
  const double most_s = (1 + share) * plan.time.total_s() / plan.goodput;
  for (const Rejection& rejection : plan.rejections) {
    if (rejection.cause != RejectionCause::kSlower) continue;
    if (rejection.time.total_s() / rejection.goodput > most_s) continue;
    const Layout& best = simplest != nullptr ? simplest->layout : plan.layout;
    if (HasFewerMechanisms(rejection.layout, best)) simplest = &rejection;
  }
  return simplest;
}

}  // namespace weft
