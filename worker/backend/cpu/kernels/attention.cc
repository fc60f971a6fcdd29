// Causal attention in tiles with an online softmax, after FlashAttention-2 (Dao, arXiv:2307.08691):
// a tile of queries walks over tiles of keys from the first that any of its rows sees up to its
// last row, which saves nearly half of the products, and more where documents are packed; no more
// than one tile of scores is ever in memory. Forward keeps the log-sum-exp; backward recomputes the
// probabilities from it. Where heads share keys and values, their gradients are summed in the order
// of the heads.
//
// All walks have a fixed order, so that the same call gives the same bits.
#include <algorithm>
#include <cmath>

#include "worker/backend/cpu/kernels/exp.h"
#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/cpu/kernels/matmul.h"

namespace weft {
namespace {

// Keys [first, end) of a sequence.
struct Keys {
  int64_t first = 0;
  int64_t end = 0;
  int64_t size() const { return end - first; }
};

// A tile of queries: rows [first, first + size) of the sequence's Tq, the first of them at
// `position` and each of the others one further.
struct Queries {
  int64_t first = 0;
  int64_t size = 0;
  int64_t position = 0;
  const int32_t* first_visible = nullptr;  // of the tile's rows; null: 0

  int64_t end() const { return position + size; }  // keys from here on are hidden from all
  int64_t FirstVisible(int64_t row) const {
    return first_visible == nullptr ? 0 : first_visible[row];
  }
  int64_t LeastVisible() const {
    return first_visible == nullptr ? 0 : *std::min_element(first_visible, first_visible + size);
  }
};

// Tiles of keys start at multiples of their size, whatever is hidden: a mask that hides nothing
// leaves the order of all sums as it is.
int64_t FirstTileOfKeys(const Queries& queries) {
  return queries.LeastVisible() / kAttentionTileKeys * kAttentionTileKeys;
}

Keys TileOfKeys(int64_t first, const Queries& queries) {
  return {first, std::min(first + kAttentionTileKeys, queries.end())};
}

// Returns which keys of a tile row `row` of a tile of queries sees, counted from the tile's first
// key. Empty (end = first) where its document starts later or it stands before.
Keys Window(const Keys& keys, const Queries& queries, int64_t row) {
  const int64_t first = std::max<int64_t>(0, queries.FirstVisible(row) - keys.first);
  const int64_t end = std::min(keys.size(), queries.position + row + 1 - keys.first);
  return {std::min(first, keys.size()), std::max(std::min(first, keys.size()), end)};
}

// Elements between neighbouring rows of q, of o and of k, v; the factor of the scores.
struct Geometry {
  int64_t dim = 0;
  int64_t q_stride = 0;
  int64_t o_stride = 0;
  int64_t kv_stride = 0;
  float scale = 0;
  float cap = 0;
};

Geometry GeometryOf(const AttentionShape& shape) {
  return {shape.head_dim,     shape.query_stride(), shape.heads * shape.head_dim,
          shape.key_stride(), shape.score_scale(),  static_cast<float>(shape.cap)};
}

// Holds what a row's softmax knows after some of its keys: their greatest score, and the sum of
// exp(score - highest).
struct RowState {
  float highest = 0;
  double total = 0;
};

// Turns the scores of a row's visible keys into exponentials relative to the greatest score so far,
// and takes them into `state`. Returns the factor that what was summed before has to be multiplied
// by; 0 if nothing was.
WEFT_CLONES float SoftmaxOfVisible(float* scores, int64_t count, bool is_first, RowState* state) {
  float highest = MaximumOf(scores, count);
  if (!is_first) highest = std::max(highest, state->highest);
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < count; ++i) {
    const float e = Exp(scores[i] - highest);
    scores[i] = e;
    total += static_cast<double>(e);
  }
  const float correction = is_first ? 0.0F : Exp(state->highest - highest);
  state->total = total + static_cast<double>(correction) * state->total;
  state->highest = highest;
  return correction;
}

// scores become probabilities P; dscores, which hold dP, become scale * P (dP - delta).
WEFT_CLONES void SoftmaxGradientOfVisible(float* scores, float* dscores, int64_t count, float lse,
                                          float delta, float scale) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float p = Exp(scores[i] - lse);
    scores[i] = p;
    dscores[i] = scale * p * (dscores[i] - delta);
  }
}

// The same of capped scores: scores x become P of y = cap tanh(x / cap), and dy/dx = 1 -
// (y / cap)^2.
WEFT_CLONES void CappedSoftmaxGradientOfVisible(float* scores, float* dscores, int64_t count,
                                                float lse, float delta, const Geometry& g) {
  const float inverse = 1.0F / g.cap;
  const float cap = g.cap, scale = g.scale;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float share = Tanh(scores[i] * inverse);
    const float p = Exp(cap * share - lse);
    scores[i] = p;
    dscores[i] = scale * p * (dscores[i] - delta) * (1.0F - share * share);
  }
}

// Sets to zero what a row does not see of a tile, so that it counts as nothing.
void HideOthers(const Keys& window, const Keys& keys, float* row) {
  std::fill(row, row + window.first, 0.0F);
  std::fill(row + window.end, row + keys.size(), 0.0F);
}

WEFT_CLONES float DotProduct(const float* x, const float* y, int64_t count) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < count; ++i)
    total += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return static_cast<float>(total);
}

// Calls work(row, count, size) for each half of a tile of queries: rows [row, row + count), which
// see no more than the first `size` keys. Products over halves leave out half of what the
// diagonal hides; tiles of half the size would do so too, and read keys and values twice as often.
template <typename Work>
void ForEachHalf(const Queries& rows, const Keys& keys, const Work& work) {
  constexpr int64_t kHalf = kAttentionTileRows / 2;
  for (int64_t row = 0; row < rows.size; row += kHalf) {
    const int64_t count = std::min(kHalf, rows.size - row);
    const int64_t size = std::min(keys.size(), rows.position + row + count - keys.first);
    if (size > 0) work(row, count, size);
  }
}

// Pointers are at the head's column of the sequence's first row; lse at its first element.
void ForwardRows(const Geometry& g, const Queries& rows, const AttentionViews& head,
                 float* scores) {
  RowState states[kAttentionTileRows];
  const float* const q_rows = head.q + rows.first * g.q_stride;
  float* const o_rows = head.o + rows.first * g.o_stride;
  const int64_t first_tile = FirstTileOfKeys(rows);
  for (int64_t first = first_tile; first < rows.end(); first += kAttentionTileKeys) {
    const Keys keys = TileOfKeys(first, rows);
    const int64_t stride = keys.size();
    ForEachHalf(rows, keys, [&](int64_t row, int64_t count, int64_t size) {
      MatMulStrided({count, size, g.dim, g.q_stride, g.kv_stride, stride}, g.scale,
                    q_rows + row * g.q_stride, Transpose::kNo, head.k + first * g.kv_stride,
                    Transpose::kYes, 0, scores + row * stride);
    });
    for (int64_t row = 0; row < rows.size; ++row) {
      float* const row_scores = scores + row * keys.size();
      const Keys window = Window(keys, rows, row);
      HideOthers(window, keys, row_scores);
      if (window.size() == 0) continue;
      if (g.cap > 0) CapInPlace(g.cap, row_scores + window.first, window.size());
      const bool is_first = rows.FirstVisible(row) >= first;
      const float correction =
          SoftmaxOfVisible(row_scores + window.first, window.size(), is_first, &states[row]);
      if (!is_first) ScaleBy(correction, o_rows + row * g.o_stride, g.dim);
    }
    ForEachHalf(rows, keys, [&](int64_t row, int64_t count, int64_t size) {
      MatMulStrided({count, g.dim, size, stride, g.kv_stride, g.o_stride}, 1, scores + row * stride,
                    Transpose::kNo, head.v + first * g.kv_stride, Transpose::kNo,
                    first == first_tile ? 0.0F : 1.0F, o_rows + row * g.o_stride);
    });
  }
  for (int64_t row = 0; row < rows.size; ++row) {
    const RowState& state = states[row];
    head.lse[rows.first + row] =
        static_cast<float>(static_cast<double>(state.highest) + std::log(state.total));
    ScaleBy(static_cast<float>(1.0 / state.total), o_rows + row * g.o_stride, g.dim);
  }
}

// Writes dq, adds to dk and dv.
void BackwardRows(const Geometry& g, const Queries& rows, const AttentionGradientViews& head,
                  float* scores, float* dscores) {
  const float* const q = head.q + rows.first * g.q_stride;
  const float* const dout = head.dout + rows.first * g.o_stride;
  float deltas[kAttentionTileRows];  // sums of P dP
  for (int64_t row = 0; row < rows.size; ++row) {
    deltas[row] =
        DotProduct(dout + row * g.o_stride, head.o + (rows.first + row) * g.o_stride, g.dim);
  }
  const int64_t first_tile = FirstTileOfKeys(rows);
  for (int64_t first = first_tile; first < rows.end(); first += kAttentionTileKeys) {
    const Keys keys = TileOfKeys(first, rows);
    const int64_t stride = keys.size();
    const int64_t kv_at = first * g.kv_stride;
    ForEachHalf(rows, keys, [&](int64_t row, int64_t count, int64_t size) {
      MatMulStrided({count, size, g.dim, g.q_stride, g.kv_stride, stride}, g.scale,
                    q + row * g.q_stride, Transpose::kNo, head.k + kv_at, Transpose::kYes, 0,
                    scores + row * stride);
      MatMulStrided({count, size, g.dim, g.o_stride, g.kv_stride, stride}, 1,
                    dout + row * g.o_stride, Transpose::kNo, head.v + kv_at, Transpose::kYes, 0,
                    dscores + row * stride);
    });
    for (int64_t row = 0; row < rows.size; ++row) {
      const Keys window = Window(keys, rows, row);
      HideOthers(window, keys, scores + row * stride);
      HideOthers(window, keys, dscores + row * stride);
      float* const of_row = scores + row * stride + window.first;
      float* const gradients = dscores + row * stride + window.first;
      const float lse = head.lse[rows.first + row];
      if (g.cap > 0) {
        CappedSoftmaxGradientOfVisible(of_row, gradients, window.size(), lse, deltas[row], g);
      } else {
        SoftmaxGradientOfVisible(of_row, gradients, window.size(), lse, deltas[row], g.scale);
      }
    }
    ForEachHalf(rows, keys, [&](int64_t row, int64_t count, int64_t size) {
      MatMulStrided({size, g.dim, count, stride, g.o_stride, g.kv_stride}, 1, scores + row * stride,
                    Transpose::kYes, dout + row * g.o_stride, Transpose::kNo, 1, head.dv + kv_at);
      MatMulStrided({size, g.dim, count, stride, g.q_stride, g.kv_stride}, 1,
                    dscores + row * stride, Transpose::kYes, q + row * g.q_stride, Transpose::kNo,
                    1, head.dk + kv_at);
      MatMulStrided({count, g.dim, size, stride, g.kv_stride, g.q_stride}, 1,
                    dscores + row * stride, Transpose::kNo, head.k + kv_at, Transpose::kNo,
                    first == first_tile ? 0.0F : 1.0F, head.dq + (rows.first + row) * g.q_stride);
    });
  }
}

// Where a head of a sequence starts in q, in o, in k and v, in lse.
struct HeadOffsets {
  int64_t q = 0;
  int64_t o = 0;
  int64_t kv = 0;
  int64_t lse = 0;
};

HeadOffsets OffsetsOf(const AttentionShape& shape, int64_t sequence, int64_t head) {
  const int64_t kv_head = head / (shape.heads / shape.kv_heads);
  const int64_t row = sequence * shape.query_len();
  return {row * shape.query_stride() + head * shape.head_dim,
          (row * shape.heads + head) * shape.head_dim,
          sequence * shape.seq_len * shape.key_stride() + kv_head * shape.head_dim,
          (sequence * shape.heads + head) * shape.query_len()};
}

// Calls `work` with each tile of a sequence's queries, in order. first_visible: of the sequence.
template <typename Work>
void ForEachTileOfQueries(const AttentionShape& shape, const int32_t* first_visible,
                          const Work& work) {
  for (int64_t piece = 0; piece < shape.pieces; ++piece) {
    for (int64_t at = 0; at < shape.run_len(); at += kAttentionTileRows) {
      const int64_t first = piece * shape.run_len() + at;
      work(Queries{.first = first,
                   .size = std::min(kAttentionTileRows, shape.run_len() - at),
                   .position = shape.piece[piece] * shape.run_len() + at,
                   .first_visible = first_visible == nullptr ? nullptr : first_visible + first});
    }
  }
}

// first_visible of a sequence.
const int32_t* OfSequence(const int32_t* first_visible, const AttentionShape& shape,
                          int64_t sequence) {
  return first_visible == nullptr ? nullptr : first_visible + sequence * shape.query_len();
}

// Calls `work` with the sequence and the head of each query head of a part, in order.
template <typename Work>
void ForEachHead(const AttentionShape& shape, const KvHeads& part, const Work& work) {
  const int64_t sharing = shape.heads / shape.kv_heads;
  for (int64_t at = part.first; at < part.end; ++at) {
    for (int64_t i = 0; i < sharing; ++i) {
      work(at / shape.kv_heads, at % shape.kv_heads * sharing + i);
    }
  }
}

void ZeroRows(float* first, int64_t rows, int64_t stride, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row) std::fill_n(first + row * stride, cols, 0.0F);
}

}  // namespace

template <>
void AttentionForwardOf<float>(const AttentionShape& shape, const KvHeads& part,
                               const int32_t* first_visible, const AttentionViews& views,
                               float* scratch) {
  const Geometry geometry = GeometryOf(shape);
  ForEachHead(shape, part, [&](int64_t sequence, int64_t head) {
    const HeadOffsets at = OffsetsOf(shape, sequence, head);
    const AttentionViews here = {views.q + at.q, views.k + at.kv, views.v + at.kv, views.o + at.o,
                                 views.lse + at.lse};
    ForEachTileOfQueries(shape, OfSequence(first_visible, shape, sequence),
                         [&](const Queries& rows) { ForwardRows(geometry, rows, here, scratch); });
  });
}

template <>
void AttentionBackwardOf<float>(const AttentionShape& shape, const KvHeads& part,
                                const int32_t* first_visible, const AttentionGradientViews& views,
                                float* scratch) {
  const Geometry geometry = GeometryOf(shape);
  float* const dscores = scratch + AttentionScratchElements(shape) / 2;
  ForEachHead(shape, part, [&](int64_t sequence, int64_t head) {
    const HeadOffsets at = OffsetsOf(shape, sequence, head);
    const AttentionGradientViews here = {views.q + at.q,  views.k + at.kv,    views.v + at.kv,
                                         views.o + at.o,  views.lse + at.lse, views.dout + at.o,
                                         views.dq + at.q, views.dk + at.kv,   views.dv + at.kv};
    if (head % (shape.heads / shape.kv_heads) == 0) {
      // Keys that no query here sees get no gradient, so all start from nothing.
      ZeroRows(here.dk, shape.seq_len, geometry.kv_stride, geometry.dim);
      ZeroRows(here.dv, shape.seq_len, geometry.kv_stride, geometry.dim);
    }
    ForEachTileOfQueries(
        shape, OfSequence(first_visible, shape, sequence),
        [&](const Queries& rows) { BackwardRows(geometry, rows, here, scratch, dscores); });
  });
}

}  // namespace weft
