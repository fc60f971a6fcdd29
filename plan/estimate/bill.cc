#include "plan/estimate/bill.h"

#include <algorithm>
#include <cmath>

#include "plan/errors.h"

namespace weft {
namespace {

// Wall time is what its useful share makes of the steps; stops come with wall time, saves with
// steps, so the shares of Waste are solved for the wall: wall = steps + saves + wall * stopped.
Bill Bare(const BillInput& input, int64_t interval) {
  const double run_s = input.step_s * static_cast<double>(input.steps);
  Bill bill;
  bill.steps_s = run_s;
  bill.checkpoints = (input.steps + interval - 1) / interval;
  bill.saving_s = static_cast<double>(bill.checkpoints) * input.faults.save_s;
  const double interval_s = input.step_s * static_cast<double>(interval);
  const Waste waste = WasteAt(input.faults, interval_s);
  // The share of wall time that stops take, bent like GoodputOf so that it never reaches 1.
  const double stopped =
      1 - GoodputOf({.lost_steps = waste.lost_steps, .restarts = waste.restarts});
  const double wall_s = (bill.steps_s + bill.saving_s) / (1 - stopped);
  const double of_lost = waste.lost_steps / (waste.lost_steps + waste.restarts);
  bill.lost_s = wall_s * stopped * of_lost;
  bill.restarts_s = wall_s * stopped * (1 - of_lost);
  bill.stops = wall_s / input.faults.between_stops_s;
  return bill;
}

}  // namespace

Bill BillOf(const BillInput& input) {
  CHECK(input.step_s > 0 && input.steps >= 1 && input.devices >= 1);
  CHECK(input.faults.between_stops_s > 0);
  const auto within = [&](int64_t steps) { return std::clamp<int64_t>(steps, 1, input.steps); };
  const int64_t interval = within(input.interval_steps > 0 ? input.interval_steps : input.steps);
  Bill bill = Bare(input, interval);
  bill.goodput = bill.steps_s / bill.wall_s();
  bill.device_hours = bill.wall_s() / 3600 * input.devices;
  bill.tokens = static_cast<double>(input.tokens_per_step) * static_cast<double>(input.steps);
  bill.tokens_per_s = bill.tokens / bill.wall_s();
  const int64_t kept =
      std::clamp<int64_t>(bill.checkpoints, 1, std::max(1, input.kept_checkpoints));
  // One more is on disk while the oldest is still kept.
  const int64_t at_once = std::min(kept + 1, std::max<int64_t>(1, bill.checkpoints));
  bill.disk_bytes = at_once * input.checkpoint_bytes;
  bill.best_interval_steps = within(BestIntervalSteps(input.faults, input.step_s));
  bill.best_wall_s = Bare(input, bill.best_interval_steps).wall_s();
  // That is of a job without end; of this one whole intervals are best: as many, or one fewer.
  const int64_t count = (input.steps + bill.best_interval_steps - 1) / bill.best_interval_steps;
  for (const int64_t checkpoints : {count, count - 1}) {
    if (checkpoints < 1) continue;
    const int64_t even = (input.steps + checkpoints - 1) / checkpoints;
    const double wall_s = Bare(input, even).wall_s();
    if (wall_s >= bill.best_wall_s) continue;
    bill.best_interval_steps = even;
    bill.best_wall_s = wall_s;
  }
  return bill;
}

}  // namespace weft
