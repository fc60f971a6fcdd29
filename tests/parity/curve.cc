#include "tests/parity/curve.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weft {
namespace {

double Norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

void CompareSeries(const char* what, const std::vector<double>& got,
                   const std::vector<double>& expected, double tolerance,
                   std::vector<std::string>& differences) {
  if (got.size() != expected.size()) {
    differences.push_back(absl::StrCat(what, ": ", got.size(), " steps, not ", expected.size()));
    return;
  }
  for (size_t i = 0; i < got.size(); ++i) {
    const double relative = std::abs(got[i] - expected[i]) / std::abs(expected[i]);
    if (relative <= tolerance) continue;  // a NaN is a difference
    differences.push_back(absl::StrFormat("%s of step %d: %.9g, not %.9g (relative %.2g)", what,
                                          i + 1, got[i], expected[i], relative));
  }
}

}  // namespace

Bounds BoundsOf(const JobSpec& job, const Layout& layout) {
  if (job.optimizer.name == OptimizerKind::kAdamw8bit) return {.loss = 2e-5, .norm = 2e-4};
  if (job.training.mixed_precision == Precision::kFp32) return {};
  Bounds bounds = BoundsOfOtherRows(job);
  if (layout.tp == 1 && layout.cp == 1) bounds.gradient = Bounds().gradient;
  return bounds;
}

Layout OneRankLike(const JobSpec& job, const Layout& layout) {
  if (job.training.mixed_precision == Precision::kFp32)
    return {.micro_batch_size = job.training.global_batch_size};
  const int64_t chunks = layout.head_chunks(job.training.seq_len);
  const int64_t tokens = layout.micro_batch_size * job.training.seq_len;
  return {.micro_batch_size = layout.micro_batch_size,
          .head_chunk_tokens = chunks == 1 ? 0 : (tokens + chunks - 1) / chunks};
}

Bounds BoundsOfOtherRows(const JobSpec& job) {
  const Precision precision = job.training.mixed_precision;
  if (precision == Precision::kFp32) return {};
  const double rounding = precision == Precision::kFp16 ? 0x1p-11 : 0x1p-8;
  return {.loss = rounding / 4,
          .norm = 2 * rounding,
          .gradient = precision == Precision::kFp8 ? 0x1p-3 : 5 * rounding};
}

std::vector<std::string> Differences(const Curve& got, const Curve& expected,
                                     const Bounds& bounds) {
  std::vector<std::string> differences;
  CompareSeries("loss", got.losses, expected.losses, bounds.loss, differences);
  CompareSeries("gradient norm", got.grad_norms, expected.grad_norms, bounds.norm, differences);
  if (got.gradients.size() != expected.gradients.size()) {
    differences.push_back(absl::StrCat("gradients: ", got.gradients.size(), " tensors, not ",
                                       expected.gradients.size()));
  }
  double all = 0;
  for (const auto& [name, values] : expected.gradients) all = std::hypot(all, Norm(values));
  for (const auto& [name, values] : expected.gradients) {
    const auto found = got.gradients.find(name);
    if (found == got.gradients.end() || found->second.size() != values.size()) {
      differences.push_back(absl::StrCat("gradient ", name, ": absent or of another size"));
      continue;
    }
    std::vector<double> error = found->second;
    for (size_t i = 0; i < values.size(); ++i) error[i] -= values[i];
    const double relative = Norm(error) / std::max(Norm(values), 1e-3 * all);
    if (relative <= bounds.gradient) continue;
    differences.push_back(absl::StrFormat("gradient %s: off by %.2g of its norm", name, relative));
  }
  return differences;
}

}  // namespace weft
