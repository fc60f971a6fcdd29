// mixed_precision: fp8 computes some products in 8-bit floating point: this file says which, and
// the memory that their operands take. The rest is as in bf16. Pure.
//
// Only a block's linear layers are computed so, never embedding, head or attention's scores: the
// forward product takes e4m3 of input and weight, the gradient of the input e5m2 of the output's
// gradient and e4m3 of the weight, the gradient of the weight e5m2 of the output's gradient and
// e4m3 of the input. That is the hybrid recipe of NVIDIA's Transformer Engine, each tensor with one
// scale by its own largest magnitude at that call (worker/backend/fp8.h).
#pragma once
#include <cstdint>

#include "plan/spec/layout.h"
#include "plan/spec/model.h"

namespace weft {

// Fp8Layers names the linear layers of a block whose products are in 8 bits. The others are in
// bf16.
struct Fp8Layers {
  bool query = false;  // q and o
  bool key = false;    // k and v
  bool mlp = false;    // gate, up and down

  bool any() const { return query || key || mlp; }
};

// Tensor cores take sizes that are multiples of this (cuBLAS 13, cublasLtMatmul).
inline constexpr int64_t kFp8SizeUnit = 16;

// Returns the layers whose sizes are multiples of kFp8SizeUnit: D, the tokens of a microbatch on a
// rank, and what tp cuts, evenly, on each tp rank. So all ranks of a stage agree, and both
// backends.
// REQUIRES: CheckModel and CheckLayout hold.
Fp8Layers Fp8LayersOf(const ModelShape& model, const BatchShape& batch, const Layout& layout);

// Says whether a rank keeps the codes of its blocks' weights for a step, as they lie and
// transposed: they are made once after each update, and all microbatches take them, forward and
// backward, for two bytes a weight. Not under ZeRO 3: weights are whole there only while a pass
// works on their block, and codes of all blocks would be what it is there to save; they are made
// before each product then. The bits are the same either way.
inline bool KeepsFp8Weights(const Layout& layout) {
  return layout.zero_stage < 3;
}

// Sizes of a block's linear layers. What tp cuts is a rank's share.
struct Fp8BlockShape {
  Fp8Layers layers;
  int64_t tokens = 0;  // N, of a microbatch
  int64_t hidden = 0;  // D
  int64_t query = 0;   // H*E
  int64_t key = 0;     // K*E
  int64_t ffn = 0;     // F
  bool has_gate = false;
  // Whether q, k and v, or gate and up, are one layer (plan/shards/fused_linears.h), of one weight.
  bool is_qkv_one = false, is_gate_up_one = false;
};

// Elements, of one byte: the largest that any product of a block needs. 0: no layer is in 8 bits.
struct Fp8Scratch {
  int64_t input = 0;     // [N, in]; of a layer's input, as it lies or transposed
  int64_t gradient = 0;  // [N, out]; of its output's gradient; there are two, one transposed
  int64_t weight = 0;    // [out, in], as it lies or transposed; 0 where weights are kept
  int64_t scales = 0;    // f32: of the three, or of the first two
};
Fp8Scratch Fp8ScratchOf(const Fp8BlockShape& block, bool keeps_weights);

// All weights of a block that are in 8 bits.
struct Fp8Weights {
  int64_t elements = 0;  // as they lie; as many transposed
  int64_t count = 0;     // a scale each
};
Fp8Weights Fp8WeightsOf(const Fp8BlockShape& block);

}  // namespace weft
