// Memory that an attention call computes in, tile after tile: what the plan of a training step and
// that of inference set aside for Device::Attention and AttentionGradient, whose contract
// (worker/backend/device.h, AttentionScratchElements) asks for it. Pure.
#pragma once
#include <cstdint>

namespace weft {

// An attention call on one rank. Letters: glossary.
struct AttentionSizes {
  int64_t key_len = 0;    // T, keys of a sequence
  int64_t seen_len = 0;   // of these, from the first, that some query sees: T, or less under cp
  int64_t run_len = 0;    // of neighbouring queries of a sequence: T, or its part under cp
  int64_t query_len = 0;  // Tq, queries of a sequence on this rank
  int64_t head_dim = 0;   // E
  int64_t kv_heads = 0;   // B * K_local: threads share a call by them
  bool widens = false;    // elements of 16 bits: a head is copied to single precision
};

// Floats: scores of one tile and their gradient, for elements of 16 bits also one head's ten
// tensors; for each of the `threads` that can work at once.
int64_t AttentionScratchFloats(const AttentionSizes& call, int threads);

}  // namespace weft
