#include "worker/backend/cpu/device_cpu.h"

#include <immintrin.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/matmul.h"
#include "worker/backend/cpu/memory.h"
#include "worker/backend/failure.h"

namespace weft {
namespace {

float* Floats(View x) {
  return static_cast<float*>(x.data);
}
const int32_t* Ids(View x) {
  return static_cast<const int32_t*>(x.data);
}

bool IsMatrix(View x, int64_t rows, int64_t cols) {
  return x.dtype == DType::kF32 && x.rows == rows && x.cols == cols && x.data != nullptr;
}
bool IsVector(View x, int64_t count) {
  return x.dtype == DType::kF32 && x.elements() == count && x.data != nullptr;
}
bool AreIds(View x, int64_t count) {
  return x.dtype == DType::kI32 && x.elements() == count && x.data != nullptr;
}
bool SameShape(View x, View y) {
  return IsMatrix(x, y.rows, y.cols) && IsMatrix(y, x.rows, x.cols);
}

// Each operation checks shapes, which are our own code's to get right: a wrong one is refused
// (Internal), nothing is touched, and it shows at the next Synchronize().
class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const DeviceOptions& options) {
    SetMatMulThreads(std::max(1, options.threads));
    _mm_setcsr(_mm_getcsr() | 0x8040);  // FTZ, DAZ
  }

  void* Allocate(int64_t bytes) override { return MapMemory(bytes); }
  void Free(void* data, int64_t bytes) override { UnmapMemory(data, bytes); }

  void CopyIn(View to, const void* from_host) override {
    if (to.elements() > 0) std::memcpy(to.data, from_host, static_cast<size_t>(to.bytes()));
  }
  void CopyOut(void* to_host, View from) override {
    if (from.elements() > 0) std::memcpy(to_host, from.data, static_cast<size_t>(from.bytes()));
  }
  BackendStatus Synchronize() override {
    const BackendStatus first = failure_;
    failure_ = {};
    return first;
  }

  void MatMul(View a, Transpose transpose_a, View b, Transpose transpose_b, float beta,
              View c) override {
    const bool flip_a = transpose_a == Transpose::kYes;
    const bool flip_b = transpose_b == Transpose::kYes;
    const int64_t m = flip_a ? a.cols : a.rows;
    const int64_t k = flip_a ? a.rows : a.cols;
    const int64_t n = flip_b ? b.rows : b.cols;
    if (!Require(IsMatrix(a, a.rows, a.cols) && (flip_b ? b.cols : b.rows) == k &&
                     IsMatrix(b, b.rows, b.cols) && IsMatrix(c, m, n) &&
                     std::max({m, n, k}) <= INT_MAX,
                 "MatMul", c)) {
      return;
    }
    MatMulStrided({m, n, k, a.cols, b.cols, c.cols}, 1, Floats(a), transpose_a, Floats(b),
                  transpose_b, beta, Floats(c));
  }

  void Zero(View x) override {
    if (x.elements() > 0) std::memset(x.data, 0, static_cast<size_t>(x.bytes()));
  }
  void Copy(View to, View from) override {
    if (!Require(to.elements() == from.elements() && to.dtype == from.dtype, "Copy", to)) return;
    if (to.elements() > 0) std::memmove(to.data, from.data, static_cast<size_t>(to.bytes()));
  }
  void Add(View x, View y) override {
    if (!Require(IsVector(x, y.elements()) && IsVector(y, x.elements()), "Add", y)) return;
    AddInto(Floats(x), Floats(y), y.elements());
  }
  void Scale(View x, double factor) override {
    if (!Require(IsVector(x, x.elements()), "Scale", x)) return;
    ScaleBy(static_cast<float>(factor), Floats(x), x.elements());
  }
  void AddBias(View bias, View x) override {
    if (!Require(IsVector(bias, x.cols) && IsMatrix(x, x.rows, x.cols), "AddBias", x)) return;
    AddBiasRows(Floats(bias), Floats(x), x.rows, x.cols);
  }
  void BiasGradient(View dy, View dbias) override {
    if (!Require(IsVector(dbias, dy.cols) && IsMatrix(dy, dy.rows, dy.cols), "BiasGradient", dy)) {
      return;
    }
    SumRowsInto(Floats(dy), Floats(dbias), dy.rows, dy.cols);
  }

  void LayerNorm(View x, View weight, View bias, double eps, View y, View mean,
                 View rstd) override {
    if (!Require(SameShape(x, y) && IsVector(weight, x.cols) && IsVector(bias, x.cols) &&
                     IsVector(mean, x.rows) && IsVector(rstd, x.rows),
                 "LayerNorm", x)) {
      return;
    }
    LayerNormRows(Floats(x), Floats(weight), Floats(bias), eps, Floats(y), Floats(mean),
                  Floats(rstd), x.rows, x.cols);
  }
  void LayerNormGradient(View dy, View x, View weight, View mean, View rstd, View dx, View dweight,
                         View dbias) override {
    if (!Require(SameShape(x, dy) && SameShape(x, dx) && IsVector(weight, x.cols) &&
                     IsVector(mean, x.rows) && IsVector(rstd, x.rows) &&
                     IsVector(dweight, x.cols) && IsVector(dbias, x.cols),
                 "LayerNormGradient", x)) {
      return;
    }
    LayerNormWeightGradient(Floats(dy), Floats(x), Floats(mean), Floats(rstd), Floats(dweight),
                            Floats(dbias), x.rows, x.cols);
    LayerNormInputGradient(Floats(dy), Floats(x), Floats(weight), Floats(mean), Floats(rstd),
                           Floats(dx), x.rows, x.cols);
  }

  void RmsNorm(View x, View weight, double eps, View y, View rstd) override {
    if (!Require(SameShape(x, y) && IsVector(weight, x.cols) && IsVector(rstd, x.rows), "RmsNorm",
                 x)) {
      return;
    }
    RmsNormRows(Floats(x), Floats(weight), eps, Floats(y), Floats(rstd), x.rows, x.cols);
  }
  void RmsNormGradient(View dy, View x, View weight, View rstd, View dx, View dweight) override {
    if (!Require(SameShape(x, dy) && SameShape(x, dx) && IsVector(weight, x.cols) &&
                     IsVector(rstd, x.rows) && IsVector(dweight, x.cols),
                 "RmsNormGradient", x)) {
      return;
    }
    RmsNormWeightGradient(Floats(dy), Floats(x), Floats(rstd), Floats(dweight), x.rows, x.cols);
    RmsNormInputGradient(Floats(dy), Floats(x), Floats(weight), Floats(rstd), Floats(dx), x.rows,
                         x.cols);
  }

  void Rotate(View table, Turn turn, View x) override {
    if (!Require(IsMatrix(x, x.rows, x.cols) && IsMatrix(table, table.rows, table.cols) &&
                     table.rows >= 1 && x.rows % table.rows == 0 && table.cols >= 2 &&
                     table.cols % 2 == 0 && x.cols % table.cols == 0,
                 "Rotate", x)) {
      return;
    }
    RotateRows(Floats(table), table.rows, table.cols, turn == Turn::kForth ? 1.0F : -1.0F,
               Floats(x), x.rows, x.cols);
  }

  void Gelu(View x, View y) override {
    if (!Require(SameShape(x, y), "Gelu", x)) return;
    GeluForward(Floats(x), Floats(y), x.elements());
  }
  void GeluGradient(View dy, View x, View dx) override {
    if (!Require(SameShape(x, dy) && SameShape(x, dx), "GeluGradient", x)) return;
    GeluBackward(Floats(dy), Floats(x), Floats(dx), x.elements());
  }

  void SwiGlu(View gate, View up, View y) override {
    if (!Require(SameShape(gate, up) && SameShape(gate, y), "SwiGlu", gate)) return;
    SwiGluForward(Floats(gate), Floats(up), Floats(y), gate.elements());
  }
  void SwiGluGradient(View dy, View gate, View up, View dgate, View dup) override {
    if (!Require(SameShape(gate, dy) && SameShape(gate, up) && SameShape(gate, dgate) &&
                     SameShape(gate, dup) && dgate.data != dup.data,
                 "SwiGluGradient", gate)) {
      return;
    }
    SwiGluBackward(Floats(dy), Floats(gate), Floats(up), Floats(dgate), Floats(dup),
                   gate.elements());
  }

  void Embed(View ids, View table, int64_t first_id, const View* positions, int64_t seq_len,
             View out) override {
    if (!Require(AreIds(ids, out.rows) && IsMatrix(out, out.rows, table.cols) &&
                     IsMatrix(table, table.rows, out.cols) &&
                     (positions == nullptr || HoldsPositions(*positions, seq_len, out.cols)),
                 "Embed", out)) {
      return;
    }
    EmbedRows(Ids(ids), out.rows, Floats(table), table.rows, first_id,
              positions == nullptr ? nullptr : Floats(*positions), seq_len, Floats(out), out.cols);
  }
  void EmbedGradient(View ids, View dout, int64_t first_id, int64_t seq_len, View dtable,
                     const View* dpositions) override {
    if (!Require(AreIds(ids, dout.rows) && IsMatrix(dout, dout.rows, dtable.cols) &&
                     IsMatrix(dtable, dtable.rows, dout.cols) &&
                     (dpositions == nullptr || HoldsPositions(*dpositions, seq_len, dout.cols)),
                 "EmbedGradient", dout)) {
      return;
    }
    EmbedRowsGradient(Ids(ids), dout.rows, Floats(dout), first_id, seq_len, Floats(dtable),
                      dtable.rows, dpositions == nullptr ? nullptr : Floats(*dpositions),
                      dout.cols);
  }

  void Attention(const AttentionShape& shape, View q, View k, View v, View first_visible, View o,
                 View lse, View scratch) override {
    if (!Require(FitsAttention(shape, {q, o}, {k, v}, first_visible, lse, scratch), "Attention",
                 q)) {
      return;
    }
    AttentionForward(shape, Ids(first_visible),
                     {Floats(q), Floats(k), Floats(v), Floats(o), Floats(lse)}, Floats(scratch));
  }
  void AttentionGradient(const AttentionShape& shape, View q, View k, View v, View first_visible,
                         View o, View lse, View dout, View dq, View dk, View dv,
                         View scratch) override {
    if (!Require(
            FitsAttention(shape, {q, o, dout, dq}, {k, v, dk, dv}, first_visible, lse, scratch),
            "AttentionGradient", q)) {
      return;
    }
    AttentionBackward(shape, Ids(first_visible),
                      {Floats(q), Floats(k), Floats(v), Floats(o), Floats(lse), Floats(dout),
                       Floats(dq), Floats(dk), Floats(dv)},
                      Floats(scratch));
  }

  void RowMax(View logits, View row_max) override {
    if (!Require(IsMatrix(logits, logits.rows, logits.cols) && IsVector(row_max, logits.rows),
                 "RowMax", logits)) {
      return;
    }
    RowMaxOf(Floats(logits), Floats(row_max), logits.rows, logits.cols);
  }
  void RowSumExp(View logits, View row_max, View targets, int64_t first_id, View row_sum,
                 View target_logit) override {
    if (!Require(FitsRows(logits, row_max, row_sum, targets) && IsVector(target_logit, logits.rows),
                 "RowSumExp", logits)) {
      return;
    }
    RowSumExpOf(Floats(logits), Floats(row_max), Ids(targets), first_id, Floats(row_sum),
                Floats(target_logit), logits.rows, logits.cols);
  }
  void SoftmaxGradient(View row_max, View row_sum, View targets, int64_t first_id, double scale,
                       View logits) override {
    if (!Require(FitsRows(logits, row_max, row_sum, targets), "SoftmaxGradient", logits)) return;
    SoftmaxGradientOf(Floats(row_max), Floats(row_sum), Ids(targets), first_id, scale,
                      Floats(logits), logits.rows, logits.cols);
  }
  double LossSum(View row_max, View row_sum, View target_logit) override {
    if (!Require(
            IsVector(row_sum, row_max.elements()) && IsVector(target_logit, row_max.elements()),
            "LossSum", row_max)) {
      return 0;
    }
    return LossSumOf(Floats(row_max), Floats(row_sum), Floats(target_logit), row_max.elements());
  }
  double SumOfSquares(View x) override {
    if (!Require(IsVector(x, x.elements()), "SumOfSquares", x)) return 0;
    return SumOfSquaresOf(Floats(x), x.elements());
  }

  void Adamw(const AdamwParameters& adamw, View gradient, View param, View exp_avg,
             View exp_avg_sq) override {
    const int64_t count = param.elements();
    if (!Require(IsVector(param, count) && IsVector(gradient, count) && IsVector(exp_avg, count) &&
                     IsVector(exp_avg_sq, count) && adamw.step >= 1,
                 "Adamw", param)) {
      return;
    }
    AdamwUpdate(adamw, Floats(gradient), Floats(param), Floats(exp_avg), Floats(exp_avg_sq), count);
  }
  void Sgd(double lr, double weight_decay, double gradient_scale, View gradient,
           View param) override {
    if (!Require(IsVector(gradient, param.elements()) && IsVector(param, param.elements()), "Sgd",
                 param)) {
      return;
    }
    SgdUpdate(lr, weight_decay, gradient_scale, Floats(gradient), Floats(param), param.elements());
  }

 private:
  // Returns `fits`; if false, records the first failure.
  bool Require(bool fits, const char* operation, View main_operand) {
    if (!fits && failure_.ok()) {
      failure_ = Failure(
          kInternal, "%s: operands do not fit together; the main one is [%lld, %lld]", operation,
          static_cast<long long>(main_operand.rows), static_cast<long long>(main_operand.cols));
    }
    return fits;
  }

  static bool HoldsPositions(View positions, int64_t seq_len, int64_t cols) {
    return seq_len >= 1 && positions.rows >= seq_len && IsMatrix(positions, positions.rows, cols);
  }

  static bool FitsAttention(const AttentionShape& shape, std::initializer_list<View> of_queries,
                            std::initializer_list<View> of_keys, View first_visible, View lse,
                            View scratch) {
    if (shape.kv_heads < 1 || shape.heads % shape.kv_heads != 0 || !HasPieces(shape)) return false;
    const auto all_fit = [&shape](std::initializer_list<View> tensors, int64_t rows,
                                  int64_t heads) {
      return std::all_of(tensors.begin(), tensors.end(), [&](View x) {
        return IsMatrix(x, shape.batch * rows, heads * shape.head_dim);
      });
    };
    const int64_t queries = shape.batch * shape.query_len();
    return all_fit(of_queries, shape.query_len(), shape.heads) &&
           all_fit(of_keys, shape.seq_len, shape.kv_heads) &&
           (first_visible.data == nullptr || AreIds(first_visible, queries)) &&
           IsVector(lse, queries * shape.heads) &&
           scratch.elements() >= AttentionScratchElements(shape) && scratch.data != nullptr &&
           shape.seq_len <= INT_MAX;
  }

  static bool HasPieces(const AttentionShape& shape) {
    if (shape.runs < 1 || shape.seq_len % shape.runs != 0) return false;
    if (shape.pieces < 1 || shape.pieces > 2) return false;
    return std::all_of(shape.piece, shape.piece + shape.pieces,
                       [&](int64_t run) { return run >= 0 && run < shape.runs; });
  }

  static bool FitsRows(View logits, View row_max, View row_sum, View targets) {
    return IsMatrix(logits, logits.rows, logits.cols) && logits.cols >= 1 &&
           IsVector(row_max, logits.rows) && IsVector(row_sum, logits.rows) &&
           AreIds(targets, logits.rows);
  }

  BackendStatus failure_;
};

}  // namespace

std::unique_ptr<Device> MakeCpuDevice(const DeviceOptions& options) {
  return std::make_unique<CpuDevice>(options);
}

}  // namespace weft
