#include "plan/estimate/goodput.h"

#include <algorithm>
#include <cmath>

#include "plan/block/tensors.h"
#include "plan/errors.h"
#include "plan/estimate/state_bytes.h"
#include "plan/spec/model.h"
#include "plan/spec/optimizer.h"

namespace weft {
namespace {

// Returns the bytes of the optimizer's states per trained parameter in a checkpoint, which makes
// them wide, so that any layout loads them; factored ones are rows and columns, next to nothing.
double SavedStateBytes(OptimizerStates states) {
  double bytes = 0;
  for (const StateArray& array : StateArrays(states)) {
    if (array.form != StateForm::kScales) bytes += 4;
  }
  return bytes;
}

}  // namespace

int64_t CheckpointBytes(const Question& question) {
  const double trained = question.adapters ? ParametersOf(question, Layout{}, 0).adapters
                                           : static_cast<double>(ParameterCount(question.model));
  return static_cast<int64_t>(trained * (4 + SavedStateBytes(question.numerics.optimizer)));
}

FaultCosts FaultCostsOf(const Cluster& cluster, int64_t checkpoint_bytes, int ranks) {
  const int nodes = std::clamp((ranks + cluster.slots_per_node - 1) / cluster.slots_per_node, 1,
                               std::max(1, cluster.nodes));
  const double node = cluster.storage.node_bytes_per_s > 0 ? cluster.storage.node_bytes_per_s
                                                           : kDefaultNodeBytesPerS;
  double bytes_per_s = node * nodes;
  if (cluster.storage.total_bytes_per_s > 0) {
    bytes_per_s = std::min(bytes_per_s, cluster.storage.total_bytes_per_s);
  }
  const double mtbf_hours = cluster.failures.device_mtbf_hours > 0
                                ? cluster.failures.device_mtbf_hours
                                : kDefaultDeviceMtbfHours;
  const double restart_s =
      cluster.failures.restart_s > 0 ? cluster.failures.restart_s : kDefaultRestartS;
  FaultCosts costs;
  costs.between_stops_s = mtbf_hours * 3600 / std::max(1, ranks);
  costs.save_s = static_cast<double>(checkpoint_bytes) / bytes_per_s;
  costs.restart_s = restart_s + costs.save_s;  // what was written is read again
  return costs;
}

double YoungIntervalSeconds(const FaultCosts& costs) {
  return std::sqrt(2 * costs.save_s * costs.between_stops_s);
}

double BestIntervalSeconds(const FaultCosts& costs) {
  // Beyond a save of 2 M no interval is good; Daly takes M.
  if (costs.save_s >= 2 * costs.between_stops_s) return costs.between_stops_s;
  const double ratio = costs.save_s / (2 * costs.between_stops_s);
  const double daly =
      YoungIntervalSeconds(costs) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - costs.save_s;
  return std::max(daly, costs.save_s);
}

Waste WasteAt(const FaultCosts& costs, double interval_s) {
  CHECK(interval_s > 0);
  return {.saving = costs.save_s / interval_s,
          .lost_steps = interval_s / 2 / costs.between_stops_s,
          .restarts = costs.restart_s / costs.between_stops_s};
}

double GoodputOf(const Waste& waste) {
  const double total = waste.total();
  return total <= 0.5 ? 1 - total : 0.25 / total;
}

int64_t BestIntervalSteps(const FaultCosts& costs, double step_s) {
  CHECK(step_s > 0);
  constexpr double kMost = 1e15;  // steps; nobody trains that long
  const double steps = std::clamp(std::floor(BestIntervalSeconds(costs) / step_s), 1.0, kMost);
  const double fewer = WasteAt(costs, steps * step_s).total();
  const double more = WasteAt(costs, (steps + 1) * step_s).total();
  return static_cast<int64_t>(more < fewer ? steps + 1 : steps);
}

double BestGoodput(const FaultCosts& costs, double step_s) {
  const auto steps = static_cast<double>(BestIntervalSteps(costs, step_s));
  return GoodputOf(WasteAt(costs, steps * step_s));
}

}  // namespace weft
