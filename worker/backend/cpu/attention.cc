// Causal attention, one head after another, in tiles of query rows: a tile sees only the keys up
// to its last row, which saves nearly half of the products. Backward recomputes the probabilities
// from the saved log-sum-exp instead of keeping [H, T, T] of them.
#include <algorithm>
#include <cmath>

#include "worker/backend/cpu/exp.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/matmul.h"

namespace weft {
namespace {

constexpr int64_t kTileRows = 128;

// Rows [first, first + rows) of a head against the keys [0, first + rows).
struct Tile {
  int64_t first = 0;
  int64_t rows = 0;
  int64_t keys() const { return first + rows; }
};

// Turns a row of scores into exponentials (beyond `visible`: zeros); returns 1 / their sum and
// sets the row's log-sum-exp.
WEFT_CLONES float SoftmaxRow(float* scores, int64_t visible, int64_t keys, float* lse) {
  const float highest = MaximumOf(scores, visible);
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < visible; ++i) {
    const float e = Exp(scores[i] - highest);
    scores[i] = e;
    total += static_cast<double>(e);
  }
  for (int64_t i = visible; i < keys; ++i) scores[i] = 0;
  *lse = static_cast<float>(static_cast<double>(highest) + std::log(total));
  return static_cast<float>(1.0 / total);
}

// scores become probabilities P; dscores, which hold dP, become scale * P (dP - delta).
WEFT_CLONES void SoftmaxRowGradient(float* scores, float* dscores, int64_t visible, int64_t keys,
                                    float lse, float delta, float scale) {
#pragma omp simd
  for (int64_t i = 0; i < visible; ++i) {
    const float p = Exp(scores[i] - lse);
    scores[i] = p;
    dscores[i] = scale * p * (dscores[i] - delta);
  }
  for (int64_t i = visible; i < keys; ++i) {
    scores[i] = 0;
    dscores[i] = 0;
  }
}

WEFT_CLONES float DotProduct(const float* x, const float* y, int64_t count) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < count; ++i)
    total += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return static_cast<float>(total);
}

WEFT_CLONES void ScaleRow(float factor, float* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] *= factor;
}

float ScoreScale(const AttentionShape& shape) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
}

void ForwardTile(const AttentionShape& shape, const Tile& tile, const float* q, const float* k,
                 const float* v, float* o, float* lse, float* scores) {
  const int64_t stride = shape.heads * shape.head_dim;
  const int64_t keys = tile.keys();
  MatMulStrided({tile.rows, keys, shape.head_dim, stride, stride, keys}, ScoreScale(shape),
                q + tile.first * stride, Transpose::kNo, k, Transpose::kYes, 0, scores);
  float inverse_sums[kTileRows];
  for (int64_t row = 0; row < tile.rows; ++row) {
    inverse_sums[row] =
        SoftmaxRow(scores + row * keys, tile.first + row + 1, keys, lse + tile.first + row);
  }
  float* const o_tile = o + tile.first * stride;
  MatMulStrided({tile.rows, shape.head_dim, keys, keys, stride, stride}, 1, scores, Transpose::kNo,
                v, Transpose::kNo, 0, o_tile);
  for (int64_t row = 0; row < tile.rows; ++row) {
    ScaleRow(inverse_sums[row], o_tile + row * stride, shape.head_dim);
  }
}

// `beta` 0 writes dk and dv of the tile's keys, 1 adds to them. Pointers are at the head's column
// of the sequence's first row.
void BackwardTile(const AttentionShape& shape, const Tile& tile, const AttentionGradientViews& head,
                  float beta, float* scores, float* dscores) {
  const int64_t stride = shape.heads * shape.head_dim;
  const int64_t keys = tile.keys();
  const int64_t dim = shape.head_dim;
  const float* const q = head.q + tile.first * stride;
  const float* const dout = head.dout + tile.first * stride;
  const float scale = ScoreScale(shape);
  MatMulStrided({tile.rows, keys, dim, stride, stride, keys}, scale, q, Transpose::kNo, head.k,
                Transpose::kYes, 0, scores);
  MatMulStrided({tile.rows, keys, dim, stride, stride, keys}, 1, dout, Transpose::kNo, head.v,
                Transpose::kYes, 0, dscores);
  for (int64_t row = 0; row < tile.rows; ++row) {
    const int64_t position = tile.first + row;
    const float delta =
        DotProduct(dout + row * stride, head.o + position * stride, dim);  // sum of P dP
    SoftmaxRowGradient(scores + row * keys, dscores + row * keys, position + 1, keys,
                       head.lse[position], delta, scale);
  }
  MatMulStrided({keys, dim, tile.rows, keys, stride, stride}, 1, scores, Transpose::kYes, dout,
                Transpose::kNo, beta, head.dv);
  MatMulStrided({keys, dim, tile.rows, keys, stride, stride}, 1, dscores, Transpose::kYes, q,
                Transpose::kNo, beta, head.dk);
  MatMulStrided({tile.rows, dim, keys, keys, stride, stride}, 1, dscores, Transpose::kNo, head.k,
                Transpose::kNo, 0, head.dq + tile.first * stride);
}

}  // namespace

void AttentionForward(const AttentionShape& shape, const float* q, const float* k, const float* v,
                      float* o, float* lse, float* scratch) {
  for (int64_t sequence = 0; sequence < shape.batch; ++sequence) {
    for (int64_t head = 0; head < shape.heads; ++head) {
      const int64_t at = (sequence * shape.seq_len * shape.heads + head) * shape.head_dim;
      float* const head_lse = lse + (sequence * shape.heads + head) * shape.seq_len;
      for (int64_t first = 0; first < shape.seq_len; first += kTileRows) {
        const Tile tile = {first, std::min(kTileRows, shape.seq_len - first)};
        ForwardTile(shape, tile, q + at, k + at, v + at, o + at, head_lse, scratch);
      }
    }
  }
}

void AttentionBackward(const AttentionShape& shape, const AttentionGradientViews& views,
                       float* scratch) {
  float* const dscores = scratch + shape.seq_len * shape.seq_len;
  const int64_t last_first = (shape.seq_len - 1) / kTileRows * kTileRows;
  for (int64_t sequence = 0; sequence < shape.batch; ++sequence) {
    for (int64_t head = 0; head < shape.heads; ++head) {
      const int64_t at = (sequence * shape.seq_len * shape.heads + head) * shape.head_dim;
      const int64_t lse_at = (sequence * shape.heads + head) * shape.seq_len;
      const AttentionGradientViews here = {views.q + at,  views.k + at,       views.v + at,
                                           views.o + at,  views.lse + lse_at, views.dout + at,
                                           views.dq + at, views.dk + at,      views.dv + at};
      // Last tile first: it sees every key, so it writes dk and dv and the others add.
      for (int64_t first = last_first; first >= 0; first -= kTileRows) {
        const Tile tile = {first, std::min(kTileRows, shape.seq_len - first)};
        BackwardTile(shape, tile, here, first == last_first ? 0.0F : 1.0F, scratch, dscores);
      }
    }
  }
}

}  // namespace weft
