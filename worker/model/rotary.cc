#include "worker/model/rotary.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

namespace weft {
namespace {

double OfLlama3(double frequency, const RopeScaling& scaling) {
  const double turns_within_original =
      static_cast<double>(scaling.original_max_positions) * frequency / (2 * std::numbers::pi);
  if (turns_within_original > scaling.high_freq_factor) return frequency;
  if (turns_within_original < scaling.low_freq_factor) return frequency / scaling.factor;
  const double share = (turns_within_original - scaling.low_freq_factor) /
                       (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - share) * frequency / scaling.factor + share * frequency;
}

// The pair, of `dims` / 2, that turns so often within the original positions.
double YarnPair(double turns, double theta, double dims, const RopeScaling& scaling) {
  const auto positions = static_cast<double>(scaling.original_max_positions);
  return dims * std::log(positions / (2 * std::numbers::pi * turns)) / (2 * std::log(theta));
}

// How far pair `i` is slowed down: 0 not at all, 1 by the whole factor.
double YarnShare(int64_t i, const Rotation& rotation) {
  const RopeScaling& scaling = rotation.scaling;
  const auto dims = static_cast<double>(rotation.width);
  double first = YarnPair(scaling.beta_fast, rotation.theta, dims, scaling);
  double last = YarnPair(scaling.beta_slow, rotation.theta, dims, scaling);
  if (scaling.truncates) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, dims - 1);
  if (first == last) last += 0.001;
  return std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
}

double Stretched(int64_t i, double frequency, const Rotation& rotation) {
  const RopeScaling& scaling = rotation.scaling;
  if (scaling.factor == 1) return frequency;
  switch (scaling.kind) {
    case RopeKind::kLlama3:
      return OfLlama3(frequency, scaling);
    case RopeKind::kLinear:
      return frequency / scaling.factor;
    case RopeKind::kYarn:
      break;
  }
  const double share = YarnShare(i, rotation);
  return frequency * (1 - share) + frequency / scaling.factor * share;
}

}  // namespace

std::vector<double> RotaryFrequencies(const Rotation& rotation) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < rotation.width / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(rotation.width);
    frequencies.push_back(Stretched(i, std::pow(rotation.theta, exponent), rotation));
  }
  return frequencies;
}

double RotaryScale(const RopeScaling& scaling) {
  if (scaling.kind != RopeKind::kYarn || scaling.factor == 1) return 1;
  if (scaling.attention_factor > 0) return scaling.attention_factor;
  const auto grown = [&](double mscale) {
    return scaling.factor <= 1 ? 1 : 0.1 * mscale * std::log(scaling.factor) + 1;
  };
  if (scaling.mscale != 0 && scaling.mscale_all_dim != 0) {
    return grown(scaling.mscale) / grown(scaling.mscale_all_dim);
  }
  return grown(1);
}

std::vector<float> RotaryTable(const Rotation& rotation, absl::Span<const int64_t> positions) {
  const std::vector<double> frequencies = RotaryFrequencies(rotation);
  const double scale = RotaryScale(rotation.scaling);
  std::vector<float> table;
  table.reserve(positions.size() * static_cast<size_t>(rotation.width));
  for (const int64_t t : positions) {
    const auto position = static_cast<double>(t);
    for (const double f : frequencies) {
      table.push_back(static_cast<float>(scale * std::cos(position * f)));
    }
    for (const double f : frequencies) {
      table.push_back(static_cast<float>(scale * std::sin(position * f)));
    }
  }
  return table;
}

}  // namespace weft
