// TermSeconds keeps the seconds of a step by named term; an estimate is their sum. Pure values.
#pragma once
#include <array>
#include <cstddef>

#include "absl/strings/string_view.h"
#include "plan/spec/words.h"

namespace weft {

enum class TimeTerm {
  kMatmul,
  kAttention,
  kStreaming,  // norms, activations, residuals, softmax: bound by memory
  kOverhead,   // the host, where it is slower than the device
  kRecompute,  // forward work done again
  kTensorComm,
  kContextComm,
  kExpertComm,
  kPipelineComm,
  kBubble,
  kDataComm,  // exposed gradient reduction and parameter gathers, tied embedding, norm
  kOptimizer,
  kStragglers,
};
inline constexpr size_t kTimeTerms = static_cast<size_t>(TimeTerm::kStragglers) + 1;
Words WordsOf(TimeTerm);  // "matmul", "tensor_comm", ...

struct TermSeconds {
  std::array<double, kTimeTerms> seconds = {};
  double of(TimeTerm term) const { return seconds[static_cast<size_t>(term)]; }
  double& operator[](TimeTerm term) { return seconds[static_cast<size_t>(term)]; }
  // The sum, in the order of the terms.
  double total_s() const {
    double sum_s = 0;
    for (const double term_s : seconds) sum_s += term_s;
    return sum_s;
  }
  TermSeconds& operator+=(const TermSeconds& other);
};
TermSeconds operator*(double factor, const TermSeconds& term);

}  // namespace weft
