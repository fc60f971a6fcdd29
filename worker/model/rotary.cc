#include "worker/model/rotary.h"

#include <cmath>
#include <cstddef>
#include <numbers>

namespace weft {
namespace {

double Stretched(double frequency, const RopeScaling& scaling) {
  if (scaling.factor == 1) return frequency;
  const double turns_within_original =
      static_cast<double>(scaling.original_max_positions) * frequency / (2 * std::numbers::pi);
  if (turns_within_original > scaling.high_freq_factor) return frequency;
  if (turns_within_original < scaling.low_freq_factor) return frequency / scaling.factor;
  const double share = (turns_within_original - scaling.low_freq_factor) /
                       (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - share) * frequency / scaling.factor + share * frequency;
}

}  // namespace

std::vector<double> RotaryFrequencies(const ModelShape& model) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < model.head_dim / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(model.head_dim);
    frequencies.push_back(Stretched(std::pow(model.rope_theta, exponent), model.rope_scaling));
  }
  return frequencies;
}

std::vector<float> RotaryTable(const ModelShape& model, absl::Span<const int64_t> positions) {
  const std::vector<double> frequencies = RotaryFrequencies(model);
  std::vector<float> table;
  table.reserve(positions.size() * static_cast<size_t>(model.head_dim));
  for (const int64_t t : positions) {
    const auto position = static_cast<double>(t);
    for (const double f : frequencies) table.push_back(static_cast<float>(std::cos(position * f)));
    for (const double f : frequencies) table.push_back(static_cast<float>(std::sin(position * f)));
  }
  return table;
}

}  // namespace weft
