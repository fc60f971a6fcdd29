// The bill of a whole job: how long it takes from start to finish, what it occupies, and what of it
// is lost to faults and checkpoints. Pure.
#pragma once
#include <cstdint>

#include "plan/estimate/goodput.h"

namespace weft {

struct BillInput {
  double step_s = 0;
  int64_t steps = 0;
  int64_t tokens_per_step = 0;
  int devices = 1;  // that the layout uses
  int64_t checkpoint_bytes = 0;
  int64_t interval_steps = 0;  // between checkpoints; 0: one at the end
  int kept_checkpoints = 1;
  FaultCosts faults;
};

struct Bill {
  double steps_s = 0;     // every step once
  double saving_s = 0;    // steps wait for checkpoints
  double lost_s = 0;      // steps done again after stops
  double restarts_s = 0;  // from stops until steps are done again
  double wall_s() const { return steps_s + saving_s + lost_s + restarts_s; }
  double stops = 0;  // expected
  double device_hours = 0;
  double goodput = 1;  // steps_s / wall_s
  double tokens = 0;
  double tokens_per_s = 0;  // of wall time
  int64_t checkpoints = 0;  // written
  int64_t disk_bytes = 0;   // of those that are kept at once
  // The same job would take best_wall_s with the interval that wastes least.
  int64_t best_interval_steps = 0;
  double best_wall_s = 0;
};

// REQUIRES: step_s > 0, steps >= 1, devices >= 1, faults.between_stops_s > 0.
Bill BillOf(const BillInput& input);

}  // namespace weft
