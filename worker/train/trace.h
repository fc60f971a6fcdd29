// Trace: what this rank did when, in one step: one event for each action of the schedule, or for
// transfers that are posted together, by the host's clock. A file that
// ui.perfetto.dev and chrome://tracing open (the "Trace Event Format", JSON object form, complete
// events "X", microseconds). Ranks of one host share the clock, CLOCK_MONOTONIC: their events may
// be put into one file. Where a device works on behind the host, an event says when it was given
// the work. Used by the trainer's thread.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "plan/schedule/schedule.h"
#include "plan/schedule/step_part.h"
#include "plan/spec/grid.h"
#include "process/folder_entry.h"

namespace weft {

class Trace {
 public:
  using Clock = std::chrono::steady_clock;

  Trace(int64_t step, int rank, const GridCoordinates& at);

  // `group`: of Groups(schedule).
  void Add(absl::Span<const Action> group, Clock::time_point begin, Clock::time_point end);

  // Writes rank-<r>.json into `folder`, which it makes. Unavailable if it cannot be written.
  absl::Status Write(const EntryPath& folder) const;

 private:
  const int64_t step_;
  const int rank_;
  std::string events_;  // JSON, without the array's brackets
};

}  // namespace weft
