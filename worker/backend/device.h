// Device: one worker's memory and the operations a transformer needs, whatever computes them.
//
// Operations are queued in order and return nothing; a failure sticks and shows at the next
// Synchronize() (the CUDA model; the CPU backend runs each at once). The CPU backend is the living
// definition of every operation. Used by one thread. Nothing here knows layouts or schedules.
//
// This header crosses a shared-object boundary: std and plain types only, no absl, no std::string.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

namespace weft {

class AdafactorSteps;
class PartNorms;
class Updates;

// Code values are absl::StatusCode's numbers; `text` is zero-terminated.
struct BackendStatus {
  int code = 0;
  char text[252] = {};
  bool ok() const { return code == 0; }
};

// kE4m3, kE5m2: 8-bit floating point, operands of Fp8MatMul alone. kF64: totals alone.
enum class DType : int32_t {
  kF32 = 0,
  kI32 = 1,
  kBf16 = 2,
  kF16 = 3,
  kU8 = 4,
  kE4m3 = 5,
  kE5m2 = 6,
  kF64 = 7
};

inline int64_t ElementBytes(DType dtype) {
  switch (dtype) {
    case DType::kU8:
    case DType::kE4m3:
    case DType::kE5m2:
      return 1;
    case DType::kBf16:
    case DType::kF16:
      return 2;
    case DType::kF64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      break;
  }
  return 4;
}

// A row-major matrix [rows, cols] in device memory, or in memory of Device::AllocateHost where it
// says so. Borrowed, never owned. Its rows follow each other, unless it is a range of the columns
// of a wider matrix: such views go to the operations that say so, all others refuse them.
struct View {
  void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  DType dtype = DType::kF32;
  int64_t row_stride = 0;  // elements from one row to the next; 0: cols

  int64_t stride() const { return row_stride == 0 ? cols : row_stride; }
  bool is_contiguous() const { return stride() == cols || rows <= 1; }
  int64_t elements() const { return rows * cols; }
  // Rows [begin, begin + count).
  View RowRange(int64_t begin, int64_t count) const {
    return {static_cast<char*>(data) + begin * stride() * ElementBytes(dtype), count, cols, dtype,
            row_stride};
  }
  // Columns [begin, begin + count).
  View ColRange(int64_t begin, int64_t count) const {
    return {static_cast<char*>(data) + begin * ElementBytes(dtype), rows, count, dtype, stride()};
  }
  int64_t bytes() const { return elements() * ElementBytes(dtype); }
};

enum class Transpose { kNo, kYes };

// Rotate turns by the angles, or back by them (its gradient).
enum class Turn { kForth, kBack };

// RotatedHeads says how wide heads are, and which two elements of one are pair i of W/2.
struct RotatedHeads {
  int64_t head_dim = 0;          // E; 0: W
  bool are_interleaved = false;  // 2i and 2i + 1; else i and i + W/2, as in Hugging Face's llama
};

// A Gate is the function of a gated linear unit's gate.
enum class Gate {
  kSilu,  // x sigmoid(x)
  kGelu,  // Device::Gelu
};

// A PlainActivation is a function between two products without a gate, beside Device::Gelu, which
// products may do themselves.
enum class PlainActivation {
  kSquaredRelu,  // max(x, 0)^2 (So et al., arXiv:2109.08668, 4)
  kErfGelu,      // x (1 + erf(x / sqrt(2))) / 2, of which Device::Gelu is an approximation
};

// LossTerms say what a row's loss is of its logits x over V ids, with lse = log sum exp(x):
//   lse - (1 - smoothing) x[target] - smoothing mean(x) + z_weight lse^2,
// which is cross-entropy with smoothed labels (Szegedy et al., arXiv:1512.00567, section 7) and the
// term that keeps lse near 0 (Chowdhery et al., arXiv:2204.02311, section 5). And what its gradient
// is multiplied by, and by what Device::Cap has capped the logits (0: not).
struct LossTerms {
  double scale = 1;
  double cap = 0;
  double z_weight = 0;
  double smoothing = 0;    // in [0, 1)
  int64_t vocabulary = 1;  // V, over all ranks
  double smoothing_of_each() const { return smoothing / static_cast<double>(vocabulary); }
};

struct NormConstants {
  double eps = 0;     // what is added to the mean of squares; gradients do not read it
  double offset = 0;  // what is added to each weight
};

// Shape of an attention call on one rank: B sequences of T keys, H local heads of E dims. Query
// heads share K key and value heads, H / K neighbours each (Ainslie et al., arXiv:2305.13245).
//
// The queries may be a part of the positions: each sequence is cut into `runs` runs of equal
// length, and `pieces` of these, one after the other, are a sequence's Tq queries. By default one
// run is all.
//
// q, k and v may be columns of one matrix: their rows' strides are a part of the shape, because
// what is compiled for it goes by them.
struct AttentionShape {
  int64_t batch = 0;     // B
  int64_t seq_len = 0;   // T; a multiple of runs
  int64_t heads = 0;     // H
  int64_t head_dim = 0;  // E
  int64_t kv_heads = 0;  // K; divides H
  int64_t runs = 1;
  int64_t pieces = 1;            // 1 or 2
  int64_t piece[2] = {0, 0};     // which runs, in [0, runs)
  int64_t query_row_stride = 0;  // of q and of its gradient, in elements; 0: H*E
  int64_t key_row_stride = 0;    // of k, v and their gradients; 0: K*E
  // Where all positions are queries, and first_visible of all tokens of a document is where that
  // starts: of how many documents the sequences consist, at most. 0: nobody says.
  int64_t documents = 0;
  double scale = 0;  // of scores; 0: 1/sqrt(E)
  double cap = 0;    // scaled scores x become cap tanh(x / cap) (arXiv:2408.00118, 2); 0: stay

  float score_scale() const {
    return static_cast<float>(scale != 0 ? scale : 1.0 / std::sqrt(static_cast<double>(head_dim)));
  }
  int64_t query_stride() const {
    return query_row_stride == 0 ? heads * head_dim : query_row_stride;
  }
  int64_t key_stride() const { return key_row_stride == 0 ? kv_heads * head_dim : key_row_stride; }
  int64_t run_len() const { return seq_len / runs; }
  int64_t query_len() const { return pieces * run_len(); }  // Tq
  // Keys from the first that some query sees: up to the end of the last piece.
  int64_t seen_len() const {
    return (1 + (pieces > 1 ? std::max(piece[0], piece[1]) : piece[0])) * run_len();
  }
};

// Attention works in tiles of this many queries and keys.
inline constexpr int64_t kAttentionTileRows = 128;
inline constexpr int64_t kAttentionTileKeys = 256;

// Floats of scratch that each thread needs in Device::Attention and AttentionGradient for elements
// of `type`: the scores of one tile and their gradient; for 16-bit elements also one head of one
// sequence, its ten tensors in single precision. Never a matrix of all scores.
inline int64_t AttentionScratchElements(const AttentionShape& shape, DType type = DType::kF32) {
  const int64_t tiles = 2 * std::min(shape.run_len(), kAttentionTileRows) *
                        std::min(shape.seen_len(), kAttentionTileKeys);
  const int64_t copies = 4 * shape.query_len() + 6 * shape.seq_len;
  return tiles + (type == DType::kF32 ? 0 : copies * shape.head_dim);
}

// Says what a step's gradients are clipped to, and what its loss was multiplied by before they were
// taken.
struct ClipParameters {
  double max_norm = 0;  // 0: none
  double loss_scale = 1;
};

inline constexpr double kClipEps = 1e-6;

// A matrix in 8-bit floating point (worker/backend/fp8.h): each element is its code's number times
// the scale [1, 1], a power of two, f32.
struct Fp8View {
  View codes;  // kE4m3 or kE5m2
  View scale;
};
// Sizes of 8-bit operands are multiples of this; their data is aligned to as many bytes.
inline constexpr int64_t kFp8Unit = 16;

// Activations and weights of one call have one element type: kF32, kBf16 or kF16. All arithmetic is
// in f32 or wider, and each element of a result is rounded once, to the nearest, ties to even. What
// is f32 whatever that type: gradients of parameters (dweight, dbias, dtable), which accumulate;
// statistics (mean, rstd, lse, row_max, row_sum, target_logit); the table of Rotate; scratch; what
// AddSumOfSquares and updates are given, but for weights of 16 bits.
class Device {
 public:
  virtual ~Device() = default;

  // Returns null if there is not enough; aligned to 4 KiB. Called once per worker (the arena).
  virtual void* Allocate(int64_t bytes) = 0;
  virtual void Free(void* data, int64_t bytes) = 0;
  // The view may also lie in memory of AllocateHost, as the queued copies before leave it.
  virtual void CopyIn(View to, const void* from_host) = 0;
  virtual void CopyOut(void* to_host, View from) = 0;  // synchronizes

  // Host memory for what the device needs only at times (offloaded states): zeroed, aligned to
  // 4 KiB, pinned where copies run beside other work only then. Null if there is not enough. Called
  // once per worker at most; no operation but CopyIn, CopyOut, Fetch and Store may be given it.
  virtual void* AllocateHost(int64_t bytes) = 0;
  virtual void FreeHost(void* data, int64_t bytes) = 0;  // after Synchronize()
  // Queued copies, to the device and from it, of elements of one type. They may run beside other
  // work and beside each other: a Fetch begins when all work and all Stores queued before it are
  // done, a Store when all work is. Work queued later does not wait for them and must leave both
  // sides alone, up to AwaitTransfers: what is queued after that begins when all copies queued
  // before it are done.
  virtual void Fetch(View to, View from_host) = 0;
  virtual void Store(View to_host, View from) = 0;
  virtual void AwaitTransfers() = 0;
  // Bytes of the device's memory that are in use now, by whomever: context, libraries, the arena,
  // other processes. 0: it is the host's memory, of which the process knows its share.
  virtual int64_t UsedBytes() { return 0; }
  // Waits for all queued work; returns the first failure since the last call.
  virtual BackendStatus Synchronize() = 0;

  // Calls queue(context), which queues operations: under one key always the same ones, in the same
  // order, on the same operands. So a device may keep what a call has queued and queue that again
  // in the place of later calls (CUDA graphs); where keeping it fails, it calls a second time.
  // None of the operations may wait for the device, move data to or from the host or allocate, and
  // no Comm comes in between; nothing else is done that a call left out, or made twice, would
  // spoil.
  virtual void Replay(int64_t /*key*/, void (*queue)(void* context), void* context) {
    queue(context);
  }
  // Says what is kept so far, and why no more, for the log; empty where nothing ever is. Valid
  // until the next call.
  virtual const char* DescribeReplays() { return ""; }

  // NextRemark returns what there is to say of the work so far, each remark once, for the log: a
  // line of text, or null: no more. Valid until the next call.
  struct Remark {
    const char* text = nullptr;
    bool is_warning = false;
  };
  virtual Remark NextRemark() { return {}; }

  // c = beta * c + op(a) op(b). [m,k] x [k,n] after the transposes; beta is 0 or 1. c may be f32
  // where a and b are not: gradients of weights. a may be columns of a wider matrix; with beta 0,
  // so may c.
  virtual void MatMul(View a, Transpose transpose_a, View b, Transpose transpose_b, float beta,
                      View c) = 0;

  // x [rows, cols], bf16, in 8 bits: codes [rows, cols], or `transposed` [cols, rows], or both, of
  // one type; the other has no data. The scale [1, 1] is Fp8Scale of the largest finite magnitude
  // of x; what is not finite becomes not-a-number.
  virtual void ToFp8(View x, View codes, View transposed, View scale) = 0;
  // c [m, n] = beta * c + a b^T, a [m, k], b [n, k], not both kE5m2: the codes' products add up in
  // f32 (but see DeviceOptions), then are scaled. c is bf16 or f32, with gaps where MatMul's may
  // have some; beta is 0 or 1. Fails where the device has none (CUDA below capability 8.9).
  virtual void Fp8MatMul(const Fp8View& a, const Fp8View& b, float beta, View c) = 0;

  virtual void Zero(View x) = 0;
  // Between f32 and a 16-bit type it converts. Of one type, each of the two may be columns of a
  // wider matrix; they then have the same rows and columns.
  virtual void Copy(View to, View from) = 0;
  virtual void Add(View x, View y) = 0;  // y += x
  virtual void Scale(View x, double factor) = 0;
  virtual void AddBias(View bias, View x) = 0;         // x[r, c] += bias[c]
  virtual void BiasGradient(View dy, View dbias) = 0;  // dbias[c] += sum over r of dy[r, c]

  // y = (x - mean) * rstd * (offset + weight) + bias over each row [N, D]; mean, rstd [N, 1] are
  // saved. bias, and dbias then, may have no data: there is none.
  virtual void LayerNorm(View x, View weight, View bias, const NormConstants& constants, View y,
                         View mean, View rstd) = 0;
  // dx += gradient through the norm; dweight, dbias [1, D] accumulate.
  virtual void LayerNormGradient(View dy, View x, View weight, const NormConstants& constants,
                                 View mean, View rstd, View dx, View dweight, View dbias) = 0;

  // RMSNorm (Zhang & Sennrich, arXiv:1910.07467): y = x * rstd * (offset + weight) over each row
  // [N, D], with rstd [N, 1] = 1 / sqrt(mean(x^2) + eps) saved.
  virtual void RmsNorm(View x, View weight, const NormConstants& constants, View y, View rstd) = 0;
  // dx += gradient through the norm; dweight [1, D] accumulates.
  virtual void RmsNormGradient(View dy, View x, View weight, const NormConstants& constants,
                               View rstd, View dx, View dweight) = 0;

  // Rotary positions (Su et al., arXiv:2104.09864), in place. x [B*T, H*E]; table [T, W]: of each
  // position W/2 cosines, then W/2 sines. Of each head the first W elements turn, in the pairs that
  // `heads` says, and the rest stays. x may be columns of a wider matrix.
  virtual void Rotate(View table, Turn turn, const RotatedHeads& heads, View x) = 0;

  // GELU, tanh form (Hendrycks & Gimpel, arXiv:1606.08415). dx is written, may alias dy.
  virtual void Gelu(View x, View y) = 0;
  virtual void GeluGradient(View dy, View x, View dx) = 0;

  // y = f(x). dx is written, may alias dy.
  virtual void Activate(PlainActivation f, View x, View y) = 0;
  virtual void ActivateGradient(PlainActivation f, View dy, View x, View dx) = 0;

  // The linear layers of a transformer with what comes after or before them: weight [out, in], of
  // the activations' type; bias [1, out] or no data. Each is, and by default is computed as, the
  // operations named, one after the other; a device that needs fewer passes over memory may leave
  // out roundings in between.

  // y [N, out] = x [N, in] weight^T + bias + residual: MatMul, AddBias, Add. residual [N, out], not
  // y itself, or no data.
  virtual void Linear(View x, View weight, View bias, View residual, View y) {
    MatMul(x, Transpose::kNo, weight, Transpose::kYes, 0, y);
    if (bias.data != nullptr) AddBias(bias, y);
    if (residual.data != nullptr) Add(residual, y);
  }
  // y = gelu(h), h = x weight^T + bias, both written [N, out]: Linear, Gelu.
  virtual void LinearGelu(View x, View weight, View bias, View h, View y) {
    Linear(x, weight, bias, {}, h);
    Gelu(h, y);
  }
  // Back through the layer that takes gelu(h), h [N, in]: dh = gelu'(h) * (dy weight), dy [N, out],
  // dh not h itself: MatMul, GeluGradient.
  virtual void GeluLinearGradient(View dy, View weight, View h, View dh) {
    MatMul(dy, Transpose::kNo, weight, Transpose::kNo, 0, dh);
    GeluGradient(dh, h, dh);
  }
  // Accumulates the gradients of the layer's parameters, in f32: dweight [out, in] += dy^T x, dbias
  // [1, out], unless it has no data, += the sum over rows of dy [N, out]: BiasGradient, MatMul. A
  // device may add the rows up in f32.
  virtual void LinearGradient(View dy, View x, View dweight, View dbias) {
    if (dbias.data != nullptr) BiasGradient(dy, dbias);
    MatMul(dy, Transpose::kYes, x, Transpose::kNo, 1, dweight);
  }

  // Gated linear units (Shazeer, arXiv:2002.05202): y = f(gate) * up. Here and in its gradient each
  // view may be columns of a wider matrix.
  virtual void Glu(Gate f, View gate, View up, View y) = 0;
  // dgate and dup are written; one of them may alias dy.
  virtual void GluGradient(Gate f, View dy, View gate, View up, View dgate, View dup) = 0;

  // out[i] = table[ids[i] - first_id] for ids in [first_id, first_id + table.rows), else a zero
  // row; ids [N, 1] i32. Then, unless positions has no data, out[i] += positions[position_ids[i]];
  // position_ids [N, 1] i32, each in [0, positions.rows).
  virtual void Embed(View ids, View table, int64_t first_id, View positions, View position_ids,
                     View out) = 0;
  // dtable, dpositions (which may have no data) accumulate, in row order (deterministic).
  virtual void EmbedGradient(View ids, View dout, int64_t first_id, View position_ids, View dtable,
                             View dpositions) = 0;

  // Causal softmax(score_scale q k^T) v in tiles (Dao, arXiv:2307.08691). q, o: [B*Tq, H*E]; k, v:
  // [B*T, K*E], with the row strides of the shape; lse: [B*H, Tq] (log-sum-exp, saved). scratch: at
  // least as many floats as AttentionScratchElements says for each thread of the device, of which
  // no more than B*K work at once; less is refused, as it would leave threads idle.
  //
  // first_visible [B*Tq, 1] i32 holds a position of the sequence for each query, at most its own:
  // the query sees the keys from there to itself, those of its document. Tiles of keys that no
  // query of a tile sees are left out. Null data: 0 for all, to the bit.
  //
  // With shape.documents, and with several runs, lse is in an order of the device's own: the
  // gradient is given the same shape and as much scratch.
  virtual void Attention(const AttentionShape& shape, View q, View k, View v, View first_visible,
                         View o, View lse, View scratch) = 0;
  // dq, dk, dv are written, with the row strides of q, k, v; the latter two summed over the queries
  // here and over the query heads that share them.
  virtual void AttentionGradient(const AttentionShape& shape, View q, View k, View v,
                                 View first_visible, View o, View lse, View dout, View dq, View dk,
                                 View dv, View scratch) = 0;
  // Ahead of such calls, which do not depend on it: what a device would make at the first of them
  // (compiled kernels) it makes now, for each shape.documents its own. `masks_documents`: with
  // first_visible. Returns by what they are computed, and why so, for the log; empty if there is
  // one way only. Valid until the next call.
  virtual const char* PrepareAttention(const AttentionShape& /*shape*/, DType /*type*/,
                                       bool /*masks_documents*/, View /*scratch*/) {
    return "";
  }

  // x = cap tanh(x / cap); x may be columns of a wider matrix.
  virtual void Cap(View x, double cap) = 0;

  // Softmax cross-entropy over a vocabulary cut into contiguous ranges, one per tp rank; this rank
  // holds logits [N, V_local] for ids [first_id, first_id + V_local). The caller reduces row_max
  // (max) and then row_sum and target_logit (sum) over the tp group between the three calls. Logits
  // may be columns of a wider matrix.
  virtual void RowMax(View logits, View row_max) = 0;  // [N, 1]
  // row_sum[i] = sum exp(logits[i] - row_max[i]); target_logit[i] = logits[i, target] or 0, or, of
  // smoothed labels, this rank's part of the mean that they make of logits[i].
  virtual void RowSumExp(View logits, View row_max, View targets, int64_t first_id,
                         const LossTerms& loss, View row_sum, View target_logit) = 0;
  // Replaces logits by the gradient of the loss * scale, without further terms
  // (softmax - onehot(target)) * scale, or by that of what Cap made them of.
  virtual void SoftmaxGradient(View row_max, View row_sum, View targets, int64_t first_id,
                               const LossTerms& loss, View logits) = 0;
  // The three in one, of a vocabulary that is whole on this rank (first_id 0): row_max, row_sum and
  // target_logit [N, 1] are written, logits replaced. By default they follow each other; a device
  // may read the logits once.
  virtual void CrossEntropy(View targets, const LossTerms& loss, View logits, View row_max,
                            View row_sum, View target_logit) {
    RowMax(logits, row_max);
    RowSumExp(logits, row_max, targets, 0, loss, row_sum, target_logit);
    SoftmaxGradient(row_max, row_sum, targets, 0, loss, logits);
  }
  // total [1, 1], kF64, += sum over i of lse - target_logit[i] + z_weight lse^2, lse =
  // log(row_sum[i]) + row_max[i], in double, in row order, or in another that the number of rows
  // alone decides.
  virtual void AddLossSum(View row_max, View row_sum, View target_logit, const LossTerms& loss,
                          View total) = 0;

  // total [1, 1], kF64, += sum of the squares of all `count` views in double, in a fixed order.
  virtual void AddSumOfSquares(const View* xs, int64_t count, View total) = 0;

  // Computes, from a step's totals [1, 1], kF64, what its update multiplies gradients by, so that
  // the update can be queued before the host knows them: min(1, max_norm / (norm + kClipEps)) /
  // loss_scale, as torch's clip_grad_norm_, with norm = sqrt(squares) / loss_scale. Not a number if
  // loss or norm is not finite.
  virtual void GradientScale(const ClipParameters& clip, View loss, View squares, View scale) = 0;

  // Norms of rows that devices share, and optimizers' updates of parameters (part_norms.h,
  // updates.h, adafactor_steps.h), are queued with the rest. The device owns all three.
  virtual PartNorms& part_norms() = 0;
  virtual Updates& updates() = 0;
  virtual AdafactorSteps& adafactor() = 0;
};

}  // namespace weft
