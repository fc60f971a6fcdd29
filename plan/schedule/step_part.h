// The parts of a step that a rank can tell apart by a clock: each action of its schedule belongs to
// one. What is predicted and what is measured are compared part by part. Pure values.
#pragma once
#include <array>
#include <cstddef>

#include "absl/strings/string_view.h"
#include "plan/schedule/schedule.h"
#include "plan/spec/words.h"

namespace weft {

enum class StepPart {
  kForward,
  kBackward,    // both halves of it; what it recomputes
  kTransfers,   // between stages, and the wait for them: bubble
  kReductions,  // gradients, gathers, norm; waits for slower ranks
  kUpdate,
};
inline constexpr size_t kStepParts = static_cast<size_t>(StepPart::kUpdate) + 1;
Words WordsOf(StepPart);  // "forward", "backward", "transfers", ...

StepPart PartOf(Op op);

// Seconds of each part, of one step on one rank.
struct PartSeconds {
  std::array<double, kStepParts> seconds = {};
  double of(StepPart part) const { return seconds[static_cast<size_t>(part)]; }
  double& operator[](StepPart part) { return seconds[static_cast<size_t>(part)]; }
};

}  // namespace weft
