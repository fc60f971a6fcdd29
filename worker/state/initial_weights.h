// Initial weights, from a counter-based generator keyed by the tensor's global name: a value
// depends on (seed, name, flat index in the whole tensor) alone, so every layout starts from the
// same model. Pure.
//
// Element i of a tensor (i = flat row-major index in the unsharded tensor) is std * z(i):
//   h    = xxh3-64 of the name (NameKey of checkpoint/safetensors.h)
//   key  = (lo32(seed) ^ lo32(h), hi32(seed) ^ hi32(h))
//   w    = Philox4x32-10(counter = (lo32(i), hi32(i), 0, 0), key)
//   u1   = (w[0] + 0.5) / 2^32,  u2 = (w[1] + 0.5) / 2^32             in double
//   z(i) = sqrt(-2 ln u1) cos(2 pi u2)                               in double (Box-Muller)
// rounded to float once, after the product with std.
#pragma once
#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "plan/shards/shard.h"

namespace weft {

// Philox4x32-10 of Salmon et al., SC'11 (Random123).
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Fills `values` with the shard's initial values, row-major in the shard's own box, by up to
// `threads` threads (>= 1); their number changes nothing.
// REQUIRES: values.size() == shard.elements().
void FillInitialValues(const TensorShard& shard, uint64_t seed, int threads,
                       absl::Span<float> values);

}  // namespace weft
