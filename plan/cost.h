// Seconds per step, as a sum of named terms. A first model: sustained matmul rate, streaming rate
// for the rest, alpha-beta links, simulated bubble. Pure.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "plan/cluster.h"
#include "plan/layout.h"
#include "plan/model.h"

namespace weft {

// All terms are seconds on the critical path of one optimizer step; total_s() is their sum.
struct StepTime {
  double compute_s = 0;          // matmul and memory-bound work of the slowest stage
  double overhead_s = 0;         // starting operations on the host
  double tensor_comm_s = 0;      // tp all-reduces of activations
  double pipeline_comm_s = 0;    // activations and gradients between stages
  double bubble_s = 0;           // idle time that the schedule leaves on the slowest stage
  double data_comm_s = 0;        // gradient reduction over dp, tied embedding, norm
  double optimizer_s = 0;        // clip and update

  double total_s() const;
  // (name, seconds) in the order above; names are stable, other tools read them.
  std::vector<std::pair<std::string, double>> terms() const;
};

// REQUIRES: CheckModel, CheckCluster and CheckLayout hold.
StepTime EstimateStepTime(const ModelShape& model, const Cluster& cluster, const BatchShape& batch,
                          const Layout& layout);

}  // namespace weft
