// The phases of a job, of a generation of it and of a generation's members. Pure.
#pragma once
#include "absl/strings/string_view.h"

namespace weft {

enum class Phase {
  kSubmitted,
  kPlanned,     // layout known, waits for an agent
  kStarting,    // an agent starts the workers; until all are ready
  kRunning,     // all ranks train
  kDraining,    // asked to stop: saving
  kRecovering,  // a generation failed, or the coordinator came back; the next steps follow
  kSuspended,   // stopped on request, can resume
  kCompleted,
  kFailed,
  kCancelled,
};
absl::string_view PhaseName(Phase phase);  // "RUNNING"
bool IsOver(Phase phase);

enum class GenerationPhase {
  kOpen,      // waits for an agent to start its processes
  kLaunched,  // processes start and register
  kSealed,    // ranks 0..N-1 have registered: may train
  kTraining,  // all ranks are ready
  kStopping,  // its end is decided; its processes may still be there
  kClosed,    // proven gone
};

// Its processes may be there, and are wanted.
bool IsLive(GenerationPhase phase);

enum class MemberPhase { kRegistered, kReady, kFinished };

}  // namespace weft
