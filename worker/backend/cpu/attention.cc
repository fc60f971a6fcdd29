// Causal attention in tiles with an online softmax, after FlashAttention-2 (Dao, arXiv:2307.08691):
// a tile of queries walks over tiles of keys up to its last row, which saves nearly half of the
// products, and no more than one tile of scores is ever in memory. Forward keeps the log-sum-exp;
// backward recomputes the probabilities from it. Where heads share keys and values, their
// gradients are summed in the order of the heads.
//
// All walks have a fixed order, so that the same call gives the same bits.
#include <algorithm>
#include <cmath>

#include "worker/backend/cpu/exp.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/matmul.h"

namespace weft {
namespace {

// A tile's first key lies at or before the first query of the last tile of queries that it meets,
// so each row of a tile sees at least one key: no softmax is empty.
static_assert(kAttentionTileKeys % kAttentionTileRows == 0);

// Of rows and keys of a sequence.
struct Tile {
  int64_t first = 0;
  int64_t size = 0;
  int64_t end() const { return first + size; }
};

Tile TileAt(int64_t first, int64_t most, int64_t end) {
  return {first, std::min(most, end - first)};
}

// Elements between neighbouring rows of q, o and of k, v; the factor of the scores.
struct Geometry {
  int64_t dim = 0;
  int64_t q_stride = 0;
  int64_t kv_stride = 0;
  float scale = 0;
};

Geometry GeometryOf(const AttentionShape& shape) {
  return {shape.head_dim, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim,
          static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)))};
}

// What a row's softmax knows after some of its keys: their greatest score, and the sum of
// exp(score - highest).
struct RowState {
  float highest = 0;
  double total = 0;
};

// Turns a row of scores into exponentials (beyond `visible`: zeros), relative to the greatest score
// so far, and takes them into `state`. Returns the factor that what was summed before has to be
// multiplied by; 0 if nothing was.
WEFT_CLONES float SoftmaxRow(float* scores, int64_t visible, int64_t keys, bool is_first,
                             RowState* state) {
  float highest = MaximumOf(scores, visible);
  if (!is_first) highest = std::max(highest, state->highest);
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < visible; ++i) {
    const float e = Exp(scores[i] - highest);
    scores[i] = e;
    total += static_cast<double>(e);
  }
  for (int64_t i = visible; i < keys; ++i) scores[i] = 0;
  const float correction = is_first ? 0.0F : Exp(state->highest - highest);
  state->total = total + static_cast<double>(correction) * state->total;
  state->highest = highest;
  return correction;
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

// Keys of `tile` that row `position` sees.
int64_t Visible(const Tile& tile, int64_t position) {
  return std::min(tile.size, position + 1 - tile.first);
}

// Pointers are at the head's column of the sequence's first row; lse at its first element.
void ForwardRows(const Geometry& g, const Tile& rows, const float* q, const float* k,
                 const float* v, float* o, float* lse, float* scores) {
  RowState states[kAttentionTileRows];
  float* const o_rows = o + rows.first * g.q_stride;
  for (int64_t first = 0; first < rows.end(); first += kAttentionTileKeys) {
    const Tile keys = TileAt(first, kAttentionTileKeys, rows.end());
    MatMulStrided({rows.size, keys.size, g.dim, g.q_stride, g.kv_stride, keys.size}, g.scale,
                  q + rows.first * g.q_stride, Transpose::kNo, k + first * g.kv_stride,
                  Transpose::kYes, 0, scores);
    for (int64_t row = 0; row < rows.size; ++row) {
      const float correction = SoftmaxRow(scores + row * keys.size, Visible(keys, rows.first + row),
                                          keys.size, first == 0, &states[row]);
      if (first > 0) ScaleBy(correction, o_rows + row * g.q_stride, g.dim);
    }
    MatMulStrided({rows.size, g.dim, keys.size, keys.size, g.kv_stride, g.q_stride}, 1, scores,
                  Transpose::kNo, v + first * g.kv_stride, Transpose::kNo, first == 0 ? 0.0F : 1.0F,
                  o_rows);
  }
  for (int64_t row = 0; row < rows.size; ++row) {
    const RowState& state = states[row];
    lse[rows.first + row] =
        static_cast<float>(static_cast<double>(state.highest) + std::log(state.total));
    ScaleBy(static_cast<float>(1.0 / state.total), o_rows + row * g.q_stride, g.dim);
  }
}

// `beta` 0 writes dk and dv of the keys up to the last row, 1 adds to them.
void BackwardRows(const Geometry& g, const Tile& rows, const AttentionGradientViews& head,
                  float beta, float* scores, float* dscores) {
  const float* const q = head.q + rows.first * g.q_stride;
  const float* const dout = head.dout + rows.first * g.q_stride;
  float deltas[kAttentionTileRows];  // sums of P dP
  for (int64_t row = 0; row < rows.size; ++row) {
    deltas[row] =
        DotProduct(dout + row * g.q_stride, head.o + (rows.first + row) * g.q_stride, g.dim);
  }
  for (int64_t first = 0; first < rows.end(); first += kAttentionTileKeys) {
    const Tile keys = TileAt(first, kAttentionTileKeys, rows.end());
    const int64_t kv_at = first * g.kv_stride;
    MatMulStrided({rows.size, keys.size, g.dim, g.q_stride, g.kv_stride, keys.size}, g.scale, q,
                  Transpose::kNo, head.k + kv_at, Transpose::kYes, 0, scores);
    MatMulStrided({rows.size, keys.size, g.dim, g.q_stride, g.kv_stride, keys.size}, 1, dout,
                  Transpose::kNo, head.v + kv_at, Transpose::kYes, 0, dscores);
    for (int64_t row = 0; row < rows.size; ++row) {
      const int64_t position = rows.first + row;
      SoftmaxRowGradient(scores + row * keys.size, dscores + row * keys.size,
                         Visible(keys, position), keys.size, head.lse[position], deltas[row],
                         g.scale);
    }
    MatMulStrided({keys.size, g.dim, rows.size, keys.size, g.q_stride, g.kv_stride}, 1, scores,
                  Transpose::kYes, dout, Transpose::kNo, beta, head.dv + kv_at);
    MatMulStrided({keys.size, g.dim, rows.size, keys.size, g.q_stride, g.kv_stride}, 1, dscores,
                  Transpose::kYes, q, Transpose::kNo, beta, head.dk + kv_at);
    MatMulStrided({rows.size, g.dim, keys.size, keys.size, g.kv_stride, g.q_stride}, 1, dscores,
                  Transpose::kNo, head.k + kv_at, Transpose::kNo, first == 0 ? 0.0F : 1.0F,
                  head.dq + rows.first * g.q_stride);
  }
}

// Where a head of a sequence starts in q and o, in k and v, in lse.
struct HeadOffsets {
  int64_t q = 0;
  int64_t kv = 0;
  int64_t lse = 0;
};

HeadOffsets OffsetsOf(const AttentionShape& shape, int64_t sequence, int64_t head) {
  const int64_t kv_head = head / (shape.heads / shape.kv_heads);
  return {(sequence * shape.seq_len * shape.heads + head) * shape.head_dim,
          (sequence * shape.seq_len * shape.kv_heads + kv_head) * shape.head_dim,
          (sequence * shape.heads + head) * shape.seq_len};
}

}  // namespace

void AttentionForward(const AttentionShape& shape, const float* q, const float* k, const float* v,
                      float* o, float* lse, float* scratch) {
  const Geometry geometry = GeometryOf(shape);
  for (int64_t sequence = 0; sequence < shape.batch; ++sequence) {
    for (int64_t head = 0; head < shape.heads; ++head) {
      const HeadOffsets at = OffsetsOf(shape, sequence, head);
      for (int64_t first = 0; first < shape.seq_len; first += kAttentionTileRows) {
        const Tile rows = TileAt(first, kAttentionTileRows, shape.seq_len);
        ForwardRows(geometry, rows, q + at.q, k + at.kv, v + at.kv, o + at.q, lse + at.lse,
                    scratch);
      }
    }
  }
}

void AttentionBackward(const AttentionShape& shape, const AttentionGradientViews& views,
                       float* scratch) {
  const Geometry geometry = GeometryOf(shape);
  float* const dscores = scratch + AttentionScratchElements(shape) / 2;
  const int64_t heads_per_kv = shape.heads / shape.kv_heads;
  const int64_t last_first = (shape.seq_len - 1) / kAttentionTileRows * kAttentionTileRows;
  for (int64_t sequence = 0; sequence < shape.batch; ++sequence) {
    for (int64_t head = 0; head < shape.heads; ++head) {
      const HeadOffsets at = OffsetsOf(shape, sequence, head);
      const AttentionGradientViews here = {views.q + at.q,  views.k + at.kv,    views.v + at.kv,
                                           views.o + at.q,  views.lse + at.lse, views.dout + at.q,
                                           views.dq + at.q, views.dk + at.kv,   views.dv + at.kv};
      const bool is_first_of_kv = head % heads_per_kv == 0;
      // Last rows first: they see every key, so they write dk and dv and the others add.
      for (int64_t first = last_first; first >= 0; first -= kAttentionTileRows) {
        const Tile rows = TileAt(first, kAttentionTileRows, shape.seq_len);
        const bool writes = is_first_of_kv && first == last_first;
        BackwardRows(geometry, rows, here, writes ? 0.0F : 1.0F, scratch, dscores);
      }
    }
  }
}

}  // namespace weft
