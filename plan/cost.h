// Seconds per step, as a sum of named terms. A first model: sustained matmul rate, streaming rate
// for the rest, alpha-beta links, closed form of the bubble. Pure.
//
// Workers that share cores (CoreSharing) slow each other in everything but waiting: a stage that
// idles leaves its core to the others, so a bubble costs only what no other worker can fill.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "plan/cluster.h"
#include "plan/layout.h"
#include "plan/model.h"
#include "plan/simulate.h"

namespace weft {

// All terms are seconds on the critical path of one optimizer step; total_s() is their sum.
struct StepTime {
  double compute_s = 0;        // matmul and memory-bound work of the slowest stage
  double overhead_s = 0;       // starting operations on the host
  double tensor_comm_s = 0;    // tp all-reduces of activations
  double pipeline_comm_s = 0;  // activations and gradients between stages
  double bubble_s = 0;         // idle time that the schedule leaves on the slowest stage
  double data_comm_s = 0;      // gradient reduction over dp, tied embedding, norm
  double optimizer_s = 0;      // zero gradients, norm, clip and update

  double total_s() const;
  // (name, seconds) in the order above; names are stable, other tools read them: "compute",
  // "overhead", "tensor_comm", "pipeline_comm", "bubble", "data_comm", "optimizer".
  std::vector<std::pair<std::string, double>> terms() const;
};

// `optimizer_states`: buffers per parameter (2 for AdamW, 0 for plain SGD).
// REQUIRES: CheckModel, CheckCluster and CheckLayout hold.
StepTime EstimateStepTime(const ModelShape& model, const Cluster& cluster, const BatchShape& batch,
                          const Layout& layout, int optimizer_states);

// What Simulate needs: seconds of one microbatch's forward, backward and transfer, per stage.
// REQUIRES: as above.
std::vector<ActionSeconds> EstimateActionSeconds(const ModelShape& model, const Cluster& cluster,
                                                 const BatchShape& batch, const Layout& layout);

}  // namespace weft
