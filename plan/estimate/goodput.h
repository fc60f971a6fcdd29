// Goodput: the share of wall time that ends in committed steps, when devices fail and checkpoints
// cost time. Steps since the last checkpoint are lost with every stop; saving more often loses less
// and costs more. Pure.
#pragma once
#include <cstdint>

#include "plan/estimate/question.h"
#include "plan/spec/cluster.h"

namespace weft {

// Where a cluster states nothing. Stops: 419 that nobody planned in 54 days on 16,384 GPUs, so one
// per 5.07e4 GPU-hours (Llama 3, arXiv:2407.21783, 3.3.4).
inline constexpr double kDefaultDeviceMtbfHours = 5.07e4;
inline constexpr double kDefaultRestartS = 300;       // notice, replace, start, until it loads
inline constexpr double kDefaultNodeBytesPerS = 2e9;  // of checkpoints, one node's share

// Returns the bytes of one checkpoint, whatever the step's precision
// (worker/train/checkpoint_io.h): of each trained parameter its weight and the optimizer's moments
// in fp32, 12 bytes for AdamW. 16-bit copies are made again from the master weights.
int64_t CheckpointBytes(const Question& question);

struct FaultCosts {
  double between_stops_s = 0;  // M: mean time between stops of the job
  double save_s = 0;           // delta: steps wait for it
  double restart_s = 0;        // R: from a stop until steps are done again, load included
};
// Returns the costs of a job on `ranks` devices whose checkpoint has `checkpoint_bytes`. REQUIRES:
// CheckCluster holds.
FaultCosts FaultCostsOf(const Cluster& cluster, int64_t checkpoint_bytes, int ranks);

// The seconds of work between checkpoints that waste least: Daly, FGCS 22 (2006), eq. 20, of which
// Young's sqrt(2 delta M) (CACM 17, 1974) is the first term. At least one save long.
double BestIntervalSeconds(const FaultCosts& costs);
double YoungIntervalSeconds(const FaultCosts& costs);

// Shares of wall time; waste() = delta / tau + (tau / 2 + R) / M, to first order.
struct Waste {
  double saving = 0;      // delta / tau
  double lost_steps = 0;  // tau / 2M
  double restarts = 0;    // R / M
  double total() const { return saving + lost_steps + restarts; }
};
// REQUIRES: interval_s > 0.
Waste WasteAt(const FaultCosts& costs, double interval_s);

// 1 - waste up to a waste of a half, where first order ends; beyond it, 1 / (4 waste): smooth,
// falling, positive, so that layouts stay comparable on any machine.
double GoodputOf(const Waste& waste);

// The whole number of steps between checkpoints with the best goodput. REQUIRES: step_s > 0.
int64_t BestIntervalSteps(const FaultCosts& costs, double step_s);
// Goodput at BestIntervalSteps.
double BestGoodput(const FaultCosts& costs, double step_s);

}  // namespace weft
