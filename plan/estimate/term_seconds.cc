#include "plan/estimate/term_seconds.h"

namespace weft {

absl::string_view TimeTermName(TimeTerm term) {
  switch (term) {
    case TimeTerm::kMatmul:
      return "matmul";
    case TimeTerm::kAttention:
      return "attention";
    case TimeTerm::kStreaming:
      return "streaming";
    case TimeTerm::kOverhead:
      return "overhead";
    case TimeTerm::kRecompute:
      return "recompute";
    case TimeTerm::kTensorComm:
      return "tensor_comm";
    case TimeTerm::kContextComm:
      return "context_comm";
    case TimeTerm::kExpertComm:
      return "expert_comm";
    case TimeTerm::kPipelineComm:
      return "pipeline_comm";
    case TimeTerm::kBubble:
      return "bubble";
    case TimeTerm::kDataComm:
      return "data_comm";
    case TimeTerm::kOptimizer:
      return "optimizer";
    case TimeTerm::kStragglers:
      return "stragglers";
  }
  return "";
}

double TermSeconds::total_s() const {
  double sum_s = 0;
  for (const double term_s : seconds) sum_s += term_s;
  return sum_s;
}

TermSeconds& TermSeconds::operator+=(const TermSeconds& other) {
  for (size_t i = 0; i < kTimeTerms; ++i) seconds[i] += other.seconds[i];
  return *this;
}

TermSeconds operator*(double factor, const TermSeconds& term) {
  TermSeconds product = term;
  for (double& term_s : product.seconds) term_s *= factor;
  return product;
}

}  // namespace weft
