#include "coordinator/phases.h"

namespace weft {

absl::string_view PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kSubmitted:
      return "SUBMITTED";
    case Phase::kPlanned:
      return "PLANNED";
    case Phase::kStarting:
      return "STARTING";
    case Phase::kRunning:
      return "RUNNING";
    case Phase::kDraining:
      return "DRAINING";
    case Phase::kRecovering:
      return "RECOVERING";
    case Phase::kSuspended:
      return "SUSPENDED";
    case Phase::kCompleted:
      return "COMPLETED";
    case Phase::kFailed:
      return "FAILED";
    case Phase::kCancelled:
      return "CANCELLED";
  }
  return "FAILED";
}

bool IsLive(GenerationPhase phase) {
  return phase == GenerationPhase::kLaunched || phase == GenerationPhase::kSealed ||
         phase == GenerationPhase::kTraining;
}

bool IsOver(Phase phase) {
  return phase == Phase::kSuspended || phase == Phase::kCompleted || phase == Phase::kFailed ||
         phase == Phase::kCancelled;
}

}  // namespace weft
