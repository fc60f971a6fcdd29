// The loops of the CPU backend, one family per .cc file, on plain pointers with shapes checked by
// the caller (device_cpu.cc). Each is what device.h says of the operation of the same name.
//
// Sums are taken in double, in an order that depends on the shape alone: the same call gives the
// same bits on the same machine. WEFT_CLONES compiles a loop for AVX-512, for AVX2 with FMA, and
// for any x86-64, and picks at load time; rounding may thus differ between kinds of machines.
#pragma once
#include <cstdint>

#include "worker/backend/device.h"

// Sanitizers start later than the resolvers that clones need.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WEFT_CLONES
#else
#define WEFT_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif

namespace weft {

// elementwise.cc
void AddInto(const float* x, float* y, int64_t count);  // y += x
void ScaleBy(float factor, float* x, int64_t count);
void AddBiasRows(const float* bias, float* x, int64_t rows, int64_t cols);
void SumRowsInto(const float* x, float* sums, int64_t rows, int64_t cols);  // sums[c] += column c
double SumOfSquaresOf(const float* x, int64_t count);
float MaximumOf(const float* x, int64_t count);  // ignores not-a-number

// norm.cc: x, y, dx [N, D]; weight, bias [D]; mean, rstd [N]
void LayerNormRows(const float* x, const float* weight, const float* bias, double eps, float* y,
                   float* mean, float* rstd, int64_t rows, int64_t cols);
void LayerNormInputGradient(const float* dy, const float* x, const float* weight, const float* mean,
                            const float* rstd, float* dx, int64_t rows, int64_t cols);
void LayerNormWeightGradient(const float* dy, const float* x, const float* mean, const float* rstd,
                             float* dweight, float* dbias, int64_t rows, int64_t cols);

// rms_norm.cc: as above, without mean and bias
void RmsNormRows(const float* x, const float* weight, double eps, float* y, float* rstd,
                 int64_t rows, int64_t cols);
void RmsNormInputGradient(const float* dy, const float* x, const float* weight, const float* rstd,
                          float* dx, int64_t rows, int64_t cols);
void RmsNormWeightGradient(const float* dy, const float* x, const float* rstd, float* dweight,
                           int64_t rows, int64_t cols);

// elementwise.cc: x [N, cols] of heads of head_dim; table [seq_len, head_dim]; direction 1 or -1
void RotateRows(const float* table, int64_t seq_len, int64_t head_dim, float direction, float* x,
                int64_t rows, int64_t cols);

// gelu.cc
void SwiGluForward(const float* gate, const float* up, float* y, int64_t count);
void SwiGluBackward(const float* dy, const float* gate, const float* up, float* dgate, float* dup,
                    int64_t count);

// gelu.cc
void GeluForward(const float* x, float* y, int64_t count);
void GeluBackward(const float* dy, const float* x, float* dx, int64_t count);

// embedding.cc: positions and dpositions may be null
void EmbedRows(const int32_t* ids, int64_t count, const float* table, int64_t table_rows,
               int64_t first_id, const float* positions, int64_t seq_len, float* out, int64_t cols);
void EmbedRowsGradient(const int32_t* ids, int64_t count, const float* dout, int64_t first_id,
                       int64_t seq_len, float* dtable, int64_t table_rows, float* dpositions,
                       int64_t cols);

// attention.cc: rows of q, o have H*E elements, of k, v K*E; lse [B*H, Tq]; first_visible [B*Tq] or
// null; scratch two tiles
struct AttentionViews {
  const float *q, *k, *v;
  float *o, *lse;
};
void AttentionForward(const AttentionShape& shape, const int32_t* first_visible,
                      const AttentionViews& views, float* scratch);
struct AttentionGradientViews {
  const float *q, *k, *v, *o, *lse, *dout;
  float *dq, *dk, *dv;
};
void AttentionBackward(const AttentionShape& shape, const int32_t* first_visible,
                       const AttentionGradientViews& views, float* scratch);

// cross_entropy.cc: logits [N, V]
void RowMaxOf(const float* logits, float* row_max, int64_t rows, int64_t cols);
void RowSumExpOf(const float* logits, const float* row_max, const int32_t* targets,
                 int64_t first_id, float* row_sum, float* target_logit, int64_t rows, int64_t cols);
void SoftmaxGradientOf(const float* row_max, const float* row_sum, const int32_t* targets,
                       int64_t first_id, double scale, float* logits, int64_t rows, int64_t cols);
double LossSumOf(const float* row_max, const float* row_sum, const float* target_logit,
                 int64_t rows);

// optimizer.cc
void AdamwUpdate(const AdamwParameters& adamw, const float* gradient, float* param, float* exp_avg,
                 float* exp_avg_sq, int64_t count);
void SgdUpdate(double lr, double weight_decay, double gradient_scale, const float* gradient,
               float* param, int64_t count);

}  // namespace weft
