#include "plan/estimate/memory_estimate.h"

#include <algorithm>

#include "plan/errors.h"

namespace weft {
namespace {

int64_t CeilDivide(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

}  // namespace

absl::string_view MemoryTermName(MemoryTerm term) {
  switch (term) {
    case MemoryTerm::kWeights:
      return "weights";
    case MemoryTerm::kGradients:
      return "gradients";
    case MemoryTerm::kMasterWeights:
      return "master_weights";
    case MemoryTerm::kOptimizer:
      return "optimizer";
    case MemoryTerm::kActivations:
      return "activations";
    case MemoryTerm::kHead:
      return "head";
    case MemoryTerm::kTransients:
      return "transients";
    case MemoryTerm::kGatheredLayers:
      return "gathered_layers";
    case MemoryTerm::kCommunication:
      return "communication";
    case MemoryTerm::kWorkspace:
      return "workspace";
    case MemoryTerm::kContext:
      return "context";
  }
  CHECK(false);
  return "";
}

int64_t MemoryEstimate::total_bytes() const {
  int64_t sum = 0;
  for (const int64_t term : bytes) sum += term;
  return sum;
}

int64_t MemoryEstimate::at_rest_bytes() const {
  return of(MemoryTerm::kWeights) + of(MemoryTerm::kGradients) + of(MemoryTerm::kMasterWeights) +
         of(MemoryTerm::kOptimizer);
}

MemoryTerm MemoryEstimate::largest() const {
  return static_cast<MemoryTerm>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
}

MemoryEstimate EstimateStageMemory(const Question& question, const Layout& layout, int stage) {
  const ModelShape& model = question.model;
  const int64_t blocks = StageBlockCount(layout, model.num_blocks, stage);
  const int64_t block_parameters =
      2 * model.hidden_size * model.head_dim * (model.num_heads + model.num_kv_heads) +
      3 * model.hidden_size * model.ffn_size;
  const int64_t parameters = blocks * CeilDivide(block_parameters, layout.tp);
  MemoryEstimate estimate;
  estimate[MemoryTerm::kWeights] = 4 * parameters;
  estimate[MemoryTerm::kGradients] = 4 * parameters;
  estimate[MemoryTerm::kOptimizer] = 8 * parameters;
  estimate[MemoryTerm::kActivations] = layout.micro_batch_size * question.batch.seq_len * blocks *
                                       (34 * model.hidden_size / layout.tp);
  return estimate;
}

int64_t LeastStateBytes(const Question& question, const Layout& layout, int stage) {
  return EstimateStageMemory(question, layout, stage).at_rest_bytes();
}

}  // namespace weft
