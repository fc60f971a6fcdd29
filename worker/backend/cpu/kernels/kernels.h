// The loops of the CPU backend, one family per .cc file, on plain pointers with shapes checked by
// the caller (device_cpu.cc), which also cuts them into pieces for threads. Each is what device.h
// says of the operation of the same name.
//
// T is an element type of element.h; all tensors of a call have it, but for statistics, gradients
// of parameters, which are float. Defined in the .cc files for all three types.
//
// Sums are taken in double, in an order that depends on the shape alone: the same call gives the
// same bits on the same machine. WEFT_CLONES compiles a loop for AVX-512, for AVX2 with FMA, and
// for any x86-64, and picks at load time; rounding may thus differ between kinds of machines.
#pragma once
#include <cstdint>

#include "worker/backend/cpu/kernels/element.h"
#include "worker/backend/device.h"

// Sanitizers start later than the resolvers that clones need.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WEFT_CLONES
#else
#define WEFT_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif

// Explicit instantiations, at the end of each file.
#define WEFT_FOR_EACH_ELEMENT(INSTANTIATE) INSTANTIATE(float) INSTANTIATE(Bf16) INSTANTIATE(Fp16)

namespace weft {

// elementwise.cc
template <typename From, typename To>
void ConvertInto(const From* from, To* to, int64_t count);  // one of them is float
template <typename T, typename Sum>
void AddInto(const T* x, Sum* y, int64_t count);  // y += x; Sum is T or float
template <typename T>
void ScaleBy(float factor, T* x, int64_t count);
template <typename T>
void AddBiasRows(const T* bias, T* x, int64_t rows, int64_t cols);
// sums[c] += column c of x, whose rows are `stride` apart
template <typename T>
void SumRowsInto(const T* x, int64_t stride, float* sums, int64_t rows, int64_t cols);
double SumOfSquaresOf(const float* x, int64_t count);
template <typename T>
float MaximumOf(const T* x, int64_t count);  // ignores not-a-number

// norm.cc: x, y, dx [N, D]; weight [D], bias [D] or null; mean, rstd [N]. Gradients of weights also
// of a part of the columns, of rows that are `stride` apart.
template <typename T>
void LayerNormRows(const T* x, const T* weight, const T* bias, const NormConstants& constants, T* y,
                   float* mean, float* rstd, int64_t rows, int64_t cols);
template <typename T>
void LayerNormInputGradient(const T* dy, const T* x, const T* weight, float offset,
                            const float* mean, const float* rstd, T* dx, int64_t rows,
                            int64_t cols);
template <typename T>
void LayerNormWeightGradient(const T* dy, const T* x, int64_t stride, const float* mean,
                             const float* rstd, float* dweight, float* dbias, int64_t rows,
                             int64_t cols);

// rms_norm.cc: as above, without mean and bias
template <typename T>
void RmsNormRows(const T* x, const T* weight, const NormConstants& constants, T* y, float* rstd,
                 int64_t rows, int64_t cols);
template <typename T>
void RmsNormInputGradient(const T* dy, const T* x, const T* weight, float offset, const float* rstd,
                          T* dx, int64_t rows, int64_t cols);
template <typename T>
void RmsNormWeightGradient(const T* dy, const T* x, int64_t stride, const float* rstd,
                           float* dweight, int64_t rows, int64_t cols);

// elementwise.cc: x [N, cols] of heads, rows `stride` apart; table [seq_len, width]
struct RotateShape {
  int64_t seq_len = 0;
  int64_t width = 0;     // that turns, of a head of
  int64_t head_dim = 0;  // so many
  bool are_interleaved = false;
  float direction = 1;  // or -1
};
template <typename T>
void RotateRows(const float* table, const RotateShape& shape, T* x, int64_t stride, int64_t rows,
                int64_t cols);

// activation.cc
template <typename T>
void SwiGluForward(const T* gate, const T* up, T* y, int64_t count);
template <typename T>
void SwiGluBackward(const T* dy, const T* gate, const T* up, T* dgate, T* dup, int64_t count);
template <typename T>
void GeGluForward(const T* gate, const T* up, T* y, int64_t count);
template <typename T>
void GeGluBackward(const T* dy, const T* gate, const T* up, T* dgate, T* dup, int64_t count);
template <typename T>
void GeluForward(const T* x, T* y, int64_t count);
template <typename T>
void GeluBackward(const T* dy, const T* x, T* dx, int64_t count);
template <typename T>
void SquaredReluForward(const T* x, T* y, int64_t count);
template <typename T>
void SquaredReluBackward(const T* dy, const T* x, T* dx, int64_t count);
template <typename T>
void ErfGeluForward(const T* x, T* y, int64_t count);
template <typename T>
void ErfGeluBackward(const T* dy, const T* x, T* dx, int64_t count);

// embedding.cc: positions and dpositions may be null, position_ids then, too
template <typename T>
void EmbedRows(const int32_t* ids, int64_t count, const T* table, int64_t table_rows,
               int64_t first_id, const T* positions, const int32_t* position_ids, T* out,
               int64_t cols);
template <typename T>
void EmbedRowsGradient(const int32_t* ids, int64_t count, const T* dout, int64_t first_id,
                       const int32_t* position_ids, float* dtable, int64_t table_rows,
                       float* dpositions, int64_t cols);

// attention.cc: rows of o have H*E elements; those of q, k, v the shape's strides; lse [B*H, Tq];
// first_visible [B*Tq] or null; scratch by AttentionScratchElements. 16-bit elements:
// widened_attention.cc.
template <typename T>
struct AttentionViewsOf {
  const T *q, *k, *v;
  T* o;
  float* lse;
};
using AttentionViews = AttentionViewsOf<float>;
// Selects pairs of a sequence and a kv head, counted by sequence, then head: they share nothing.
struct KvHeads {
  int64_t first = 0;
  int64_t end = 0;
};
template <typename T>
void AttentionForwardOf(const AttentionShape& shape, const KvHeads& part,
                        const int32_t* first_visible, const AttentionViewsOf<T>& views,
                        float* scratch);
template <typename T>
struct AttentionGradientViewsOf {
  const T *q, *k, *v, *o;
  const float* lse;
  const T* dout;
  T *dq, *dk, *dv;
};
using AttentionGradientViews = AttentionGradientViewsOf<float>;
template <typename T>
void AttentionBackwardOf(const AttentionShape& shape, const KvHeads& part,
                         const int32_t* first_visible, const AttentionGradientViewsOf<T>& views,
                         float* scratch);

template <>
void AttentionForwardOf<float>(const AttentionShape& shape, const KvHeads& part,
                               const int32_t* first_visible, const AttentionViews& views,
                               float* scratch);
template <>
void AttentionBackwardOf<float>(const AttentionShape& shape, const KvHeads& part,
                                const int32_t* first_visible, const AttentionGradientViews& views,
                                float* scratch);

// elementwise.cc: x = cap tanh(x / cap)
template <typename T>
void CapInPlace(float cap, T* x, int64_t count);

// cross_entropy.cc: logits [N, V], rows `stride` elements apart
struct RowShape {
  int64_t cols = 0;
  int64_t stride = 0;
};
template <typename T>
void RowMaxOf(const T* logits, float* row_max, int64_t rows, RowShape shape);
template <typename T>
void RowSumExpOf(const T* logits, const float* row_max, const int32_t* targets, int64_t first_id,
                 const LossTerms& loss, float* row_sum, float* target_logit, int64_t rows,
                 RowShape shape);
template <typename T>
void SoftmaxGradientOf(const float* row_max, const float* row_sum, const int32_t* targets,
                       int64_t first_id, const LossTerms& loss, T* logits, int64_t rows,
                       RowShape shape);
double LossSumOf(const float* row_max, const float* row_sum, const float* target_logit,
                 double z_weight, int64_t rows);

}  // namespace weft
