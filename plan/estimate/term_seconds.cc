#include "plan/estimate/term_seconds.h"

namespace weft {

Words WordsOf(TimeTerm) {
  static constexpr absl::string_view kWords[] = {
      "matmul",      "attention",    "streaming",   "overhead",      "recompute",
      "tensor_comm", "context_comm", "expert_comm", "pipeline_comm", "bubble",
      "data_comm",   "optimizer",    "stragglers"};
  return kWords;
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
