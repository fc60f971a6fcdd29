// A cluster as the kernels see it: sustained rates at one precision. The one place that turns
// plan/spec/cluster.h into numbers for formulas. Pure.
#pragma once
#include <vector>

#include "plan/estimate/question.h"
#include "plan/spec/cluster.h"
#include "plan/spec/layout.h"

namespace weft {

// How many times the smaller of two sizes the larger one is: how far a measured point is away.
inline double Apart(double a, double b) {
  return a > b ? a / b : b / a;
}

struct Machine {
  bool gpu = false;
  double matmul_flops_per_s = 0;     // linear layers, large shapes
  double attention_flops_per_s = 0;  // the forward pass of attention
  double memory_bytes_per_s = 0;
  double op_s = 0;           // host time to start an operation
  double element_bytes = 4;  // of an activation
  // Units that take tiles of a product, 0: any shape is as good as a large one; the rest is
  // TimeHabits'.
  double units = 0;
  double wave_loss = 0;
  double small_tile_loss = 0;
  double half_rate_inner = 0;
  const std::vector<MatmulPoint>* matmuls = nullptr;          // measured; borrowed, may be null
  Precision precision = Precision::kFp32;                     // of the points that count
  LinkProfile intra_node, inter_node;                         // per worker
  const std::vector<CollectivePoint>* collectives = nullptr;  // as matmuls, inside a node
  int slots_per_node = 1;
  double collective_s = 0;  // to start any collective
  // Ranks add each other's parts in rank order, whatever the links could do.
  bool adds_in_rank_order = false;
};

// Borrows the question's cluster.
Machine MachineOf(const Question& question);
// With products of that precision.
Machine MachineOf(const Question& question, Precision precision);

}  // namespace weft
