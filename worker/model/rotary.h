// RotaryTable: the angles by which rotary positions (Su et al., arXiv:2104.09864) turn the pairs of
// a head, as Device::Rotate reads them. Computed once, in double: single-precision angles of late
// positions would be off by more than their cosines' digits. Pure.
//
// Of W elements that turn, pair i of W/2 turns by t f(i) at position t, f(i) = theta^(-2 i / W). A
// stretched model (Llama 3.1, arXiv:2407.21783; Hugging Face's rope_type "llama3") keeps f where a
// whole turn takes less than original / high_freq_factor positions, divides it by `factor` where it
// takes more than original / low_freq_factor, and between blends the two: with w = 2 pi / f and s =
// (original / w - low) / (high - low), (1 - s) f / factor + s f. "linear" divides all by `factor`.
// "yarn" (arXiv:2309.00071, 3.2) blends by the pair: with c(r) = W ln(original / 2 pi r) / (2 ln
// theta), s rises from 0 at pair c(beta_fast) to 1 at c(beta_slow), (1 - s) f + s f / factor; and
// it multiplies what it turns.
#pragma once
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "plan/spec/model.h"

namespace weft {

// f(i) of each pair [W/2].
std::vector<double> RotaryFrequencies(const Rotation& rotation);

// Returns what queries and keys are multiplied by as they are turned: 0.1 ln(factor) + 1 of yarn
// unless it says otherwise, else 1.
double RotaryScale(const RopeScaling& scaling);

// [P, W]: of each of the P positions W/2 cosines, then W/2 sines, times RotaryScale.
std::vector<float> RotaryTable(const Rotation& rotation, absl::Span<const int64_t> positions);

}  // namespace weft
