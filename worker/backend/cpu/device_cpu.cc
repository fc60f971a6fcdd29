#include "worker/backend/cpu/device_cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "worker/backend/adafactor_steps.h"
#include "worker/backend/cpu/host/memory.h"
#include "worker/backend/cpu/host/threads.h"
#include "worker/backend/cpu/kernels/fp8.h"
#include "worker/backend/cpu/kernels/kernels.h"
#include "worker/backend/cpu/kernels/matmul.h"
#include "worker/backend/cpu/kernels/narrow_matmul.h"
#include "worker/backend/cpu/kernels/operands.h"
#include "worker/backend/cpu/kernels/part_norms.h"
#include "worker/backend/cpu/kernels/updates.h"
#include "worker/backend/failure.h"
#include "worker/backend/fp8.h"
#include "worker/backend/operands.h"
#include "worker/backend/updates.h"

namespace weft {
namespace {

int64_t AttentionThreads(const Threads& threads, const AttentionShape& shape) {
  return std::min(int64_t{threads.count()}, shape.batch * shape.kv_heads);
}

// Each thread in a part of the scratch.
template <typename Work>
void ForKvHeads(const Threads& threads, const AttentionShape& shape, DType type, View scratch,
                const Work& work) {
  const int64_t count = shape.batch * shape.kv_heads;
  const int64_t size = AttentionScratchElements(shape, type);
  const int64_t pieces = AttentionThreads(threads, shape);
  threads.Run(static_cast<int>(pieces), [&](int piece) {
    work(KvHeads{count * piece / pieces, count * (piece + 1) / pieces},
         Floats(scratch) + piece * size);
  });
}

// Carry out an activation, f(x, y, count), and its gradient, f(dy, x, dx, count).
template <typename F>
void Forth(const Threads& threads, FirstFailure& failure, View x, View y, const char* operation,
           const F& f) {
  if (!failure.Require(SameShape(x, {y}), operation, x)) return;
  WithElement(x.dtype, [&](auto element) {
    using T = decltype(element);
    ForElements(threads, x, [&](int64_t first, int64_t count) {
      f(Data<T>(x) + first, Data<T>(y) + first, count);
    });
  });
}
template <typename F>
void Back(const Threads& threads, FirstFailure& failure, View dy, View x, View dx,
          const char* operation, const F& f) {
  if (!failure.Require(SameShape(x, {dy, dx}), operation, x)) return;
  WithElement(x.dtype, [&](auto element) {
    using T = decltype(element);
    ForElements(threads, x, [&](int64_t first, int64_t count) {
      f(Data<T>(dy) + first, Data<T>(x) + first, Data<T>(dx) + first, count);
    });
  });
}

template <typename T>
void PlainForward(PlainActivation f, const T* x, T* y, int64_t count) {
  if (f == PlainActivation::kErfGelu) return ErfGeluForward(x, y, count);
  SquaredReluForward(x, y, count);
}
template <typename T>
void PlainBackward(PlainActivation f, const T* dy, const T* x, T* dx, int64_t count) {
  if (f == PlainActivation::kErfGelu) return ErfGeluBackward(dy, x, dx, count);
  SquaredReluBackward(dy, x, dx, count);
}

RotateShape RotateShapeOf(View table, Turn turn, const RotatedHeads& heads) {
  return {.seq_len = table.rows,
          .width = table.cols,
          .head_dim = heads.head_dim == 0 ? table.cols : heads.head_dim,
          .are_interleaved = heads.are_interleaved,
          .direction = turn == Turn::kForth ? 1.0F : -1.0F};
}

// Each operation asks operands.h first whether its operands fit together.
class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const DeviceOptions& options)
      : threads_(std::max(1, options.threads)),
        narrow_matmul_(threads_, Bf16ProductsOf(FeaturesOfThisProcessor())) {
    SetMatMulThreads(threads_.count());
  }

  void* Allocate(int64_t bytes) override { return MapMemory(bytes); }
  void Free(void* data, int64_t bytes) override { UnmapMemory(data, bytes); }

  void CopyIn(View to, const void* from_host) override {
    if (!failure_.Require(to.is_contiguous(), "CopyIn", to)) return;
    if (to.elements() > 0) std::memcpy(to.data, from_host, static_cast<size_t>(to.bytes()));
  }
  void CopyOut(void* to_host, View from) override {
    if (!failure_.Require(from.is_contiguous(), "CopyOut", from)) return;
    if (from.elements() > 0) std::memcpy(to_host, from.data, static_cast<size_t>(from.bytes()));
  }
  void* AllocateHost(int64_t bytes) override { return MapMemory(bytes); }
  void FreeHost(void* data, int64_t bytes) override { UnmapMemory(data, bytes); }
  void Fetch(View to, View from_host) override { Transfer(to, from_host, "Fetch"); }
  void Store(View to_host, View from) override { Transfer(to_host, from, "Store"); }
  void AwaitTransfers() override {}
  BackendStatus Synchronize() override { return failure_.Take(); }

  void MatMul(View a, Transpose transpose_a, View b, Transpose transpose_b, float beta,
              View c) override {
    if (!failure_.Require(FitsMatMul(a, transpose_a, b, transpose_b, beta, c), "MatMul", c)) return;
    const auto [m, n, k] = SizesOf(a, transpose_a, b, transpose_b);
    if (a.dtype == DType::kF32) {
      MatMulOnThreads(threads_, {m, n, k, a.stride(), b.cols, c.stride()}, Floats(a), transpose_a,
                      Floats(b), transpose_b, beta, Floats(c));
    } else {
      failure_.Keep(narrow_matmul_.Multiply({m, n, k, a, b, c, transpose_a, transpose_b, beta}));
    }
  }

  void ToFp8(View x, View codes, View transposed, View scale) override {
    if (!failure_.Require(FitsToFp8(x, codes, transposed, scale), "ToFp8", x)) return;
    QuantiseToFp8(threads_, x, codes, transposed, scale);
  }
  void Fp8MatMul(const Fp8View& a, const Fp8View& b, float beta, View c) override {
    if (!failure_.Require(FitsFp8MatMul(a, b, beta, c), "Fp8MatMul", c)) return;
    fp8_products_.Multiply(a, b, beta, c);
  }

  void Zero(View x) override {
    if (!failure_.Require(x.is_contiguous(), "Zero", x)) return;
    ForElements(threads_, x, [&](int64_t first, int64_t count) {
      std::memset(Byte(x, first), 0, static_cast<size_t>(count * ElementBytes(x.dtype)));
    });
  }
  void Copy(View to, View from) override {
    if (!failure_.Require(FitsCopy(to, from), "Copy", to) || to.elements() == 0) return;
    if (to.dtype != from.dtype) return Convert(threads_, from, to);
    const bool whole = to.is_contiguous() && from.is_contiguous();
    const int64_t run = whole ? to.elements() : to.cols;
    for (int64_t row = 0; row < to.elements() / run; ++row) {
      std::memmove(Byte(to, row * to.stride()), Byte(from, row * from.stride()),
                   static_cast<size_t>(run * ElementBytes(to.dtype)));
    }
  }
  void Add(View x, View y) override {
    if (!failure_.Require(FitsAdd(x, y), "Add", y)) return;
    WithElement(x.dtype, [&](auto element) {
      using T = decltype(element);
      ForElements(threads_, x, [&](int64_t first, int64_t count) {
        AddInto(Data<T>(x) + first, Data<T>(y) + first, count);
      });
    });
  }
  void Scale(View x, double factor) override {
    if (!failure_.Require(IsActivation(x), "Scale", x)) return;
    WithElement(x.dtype, [&](auto element) {
      ForElements(threads_, x, [&](int64_t first, int64_t count) {
        ScaleBy(static_cast<float>(factor), Data<decltype(element)>(x) + first, count);
      });
    });
  }
  void AddBias(View bias, View x) override {
    if (!failure_.Require(FitsAddBias(bias, x), "AddBias", x)) return;
    WithElement(x.dtype, [&](auto element) {
      using T = decltype(element);
      ForRows(x, [&](int64_t first, int64_t rows) {
        AddBiasRows(Data<T>(bias), Row<T>(x, first), rows, x.cols);
      });
    });
  }
  void BiasGradient(View dy, View dbias) override {
    if (!failure_.Require(FitsBiasGradient(dy, dbias), "BiasGradient", dy)) return;
    WithElement(dy.dtype, [&](auto element) {
      ForCols(dy, [&](int64_t first, int64_t cols) {
        SumRowsInto(Data<decltype(element)>(dy) + first, dy.cols, Floats(dbias) + first, dy.rows,
                    cols);
      });
    });
  }

  void LayerNorm(View x, View weight, View bias, const NormConstants& constants, View y, View mean,
                 View rstd) override {
    if (!failure_.Require(FitsLayerNorm(x, weight, bias, y, mean, rstd), "LayerNorm", x)) return;
    WithElement(x.dtype, [&](auto element) {
      using T = decltype(element);
      ForRows(x, [&](int64_t first, int64_t rows) {
        LayerNormRows(Row<T>(x, first), Data<T>(weight), Data<T>(bias), constants, Row<T>(y, first),
                      Floats(mean) + first, Floats(rstd) + first, rows, x.cols);
      });
    });
  }
  void LayerNormGradient(View dy, View x, View weight, const NormConstants& constants, View mean,
                         View rstd, View dx, View dweight, View dbias) override {
    if (!failure_.Require(FitsLayerNormGradient(dy, x, weight, mean, rstd, dx, dweight, dbias),
                          "LayerNormGradient", x)) {
      return;
    }
    WithElement(x.dtype, [&](auto element) {
      using T = decltype(element);
      ForCols(x, [&](int64_t first, int64_t cols) {
        LayerNormWeightGradient(Data<T>(dy) + first, Data<T>(x) + first, x.cols, Floats(mean),
                                Floats(rstd), Floats(dweight) + first,
                                dbias.data == nullptr ? nullptr : Floats(dbias) + first, x.rows,
                                cols);
      });
      ForRows(x, [&](int64_t first, int64_t rows) {
        LayerNormInputGradient(Row<T>(dy, first), Row<T>(x, first), Data<T>(weight),
                               static_cast<float>(constants.offset), Floats(mean) + first,
                               Floats(rstd) + first, Row<T>(dx, first), rows, x.cols);
      });
    });
  }

  void RmsNorm(View x, View weight, const NormConstants& constants, View y, View rstd) override {
    if (!failure_.Require(FitsRmsNorm(x, weight, y, rstd), "RmsNorm", x)) return;
    WithElement(x.dtype, [&](auto element) {
      using T = decltype(element);
      ForRows(x, [&](int64_t first, int64_t rows) {
        RmsNormRows(Row<T>(x, first), Data<T>(weight), constants, Row<T>(y, first),
                    Floats(rstd) + first, rows, x.cols);
      });
    });
  }
  void RmsNormGradient(View dy, View x, View weight, const NormConstants& constants, View rstd,
                       View dx, View dweight) override {
    if (!failure_.Require(FitsRmsNormGradient(dy, x, weight, rstd, dx, dweight), "RmsNormGradient",
                          x)) {
      return;
    }
    WithElement(x.dtype, [&](auto element) {
      using T = decltype(element);
      ForCols(x, [&](int64_t first, int64_t cols) {
        RmsNormWeightGradient(Data<T>(dy) + first, Data<T>(x) + first, x.cols, Floats(rstd),
                              Floats(dweight) + first, x.rows, cols);
      });
      ForRows(x, [&](int64_t first, int64_t rows) {
        RmsNormInputGradient(Row<T>(dy, first), Row<T>(x, first), Data<T>(weight),
                             static_cast<float>(constants.offset), Floats(rstd) + first,
                             Row<T>(dx, first), rows, x.cols);
      });
    });
  }
  void Rotate(View table, Turn turn, const RotatedHeads& heads, View x) override {
    if (!failure_.Require(FitsRotate(table, heads, x), "Rotate", x)) return;
    const RotateShape shape = RotateShapeOf(table, turn, heads);
    WithElement(x.dtype, [&](auto element) {
      RotateRows(Floats(table), shape, Data<decltype(element)>(x), x.stride(), x.rows, x.cols);
    });
  }
  void Gelu(View x, View y) override {
    Forth(threads_, failure_, x, y, "Gelu",
          [](const auto* from, auto* to, int64_t n) { GeluForward(from, to, n); });
  }
  void GeluGradient(View dy, View x, View dx) override {
    Back(
        threads_, failure_, dy, x, dx, "GeluGradient",
        [](const auto* d, const auto* from, auto* to, int64_t n) { GeluBackward(d, from, to, n); });
  }
  void Activate(PlainActivation f, View x, View y) override {
    Forth(threads_, failure_, x, y, "Activate",
          [f](const auto* from, auto* to, int64_t n) { PlainForward(f, from, to, n); });
  }
  void ActivateGradient(PlainActivation f, View dy, View x, View dx) override {
    Back(threads_, failure_, dy, x, dx, "ActivateGradient",
         [f](const auto* d, const auto* from, auto* to, int64_t n) {
           PlainBackward(f, d, from, to, n);
         });
  }

  void Glu(Gate f, View gate, View up, View y) override {
    if (!failure_.Require(SameRows(gate, {up, y}), "Glu", gate)) return;
    WithElement(gate.dtype, [&](auto element) {
      using T = decltype(element);
      const auto forward = f == Gate::kSilu ? SwiGluForward<T> : GeGluForward<T>;
      ForRuns({gate, up, y}, [&](int64_t row, int64_t first, int64_t count) {
        forward(Row<T>(gate, row) + first, Row<T>(up, row) + first, Row<T>(y, row) + first, count);
      });
    });
  }
  void GluGradient(Gate f, View dy, View gate, View up, View dgate, View dup) override {
    if (!failure_.Require(FitsGluGradient(dy, gate, up, dgate, dup), "GluGradient", gate)) {
      return;
    }
    WithElement(gate.dtype, [&](auto element) {
      using T = decltype(element);
      const auto backward = f == Gate::kSilu ? SwiGluBackward<T> : GeGluBackward<T>;
      ForRuns({dy, gate, up, dgate, dup}, [&](int64_t row, int64_t first, int64_t count) {
        backward(Row<T>(dy, row) + first, Row<T>(gate, row) + first, Row<T>(up, row) + first,
                 Row<T>(dgate, row) + first, Row<T>(dup, row) + first, count);
      });
    });
  }

  void Embed(View ids, View table, int64_t first_id, View positions, View position_ids,
             View out) override {
    if (!failure_.Require(FitsEmbed(ids, table, positions, position_ids, out), "Embed", out)) {
      return;
    }
    WithElement(out.dtype, [&](auto element) {
      using T = decltype(element);
      EmbedRows(Ids(ids), out.rows, Data<T>(table), table.rows, first_id, Data<T>(positions),
                Ids(position_ids), Data<T>(out), out.cols);
    });
  }
  void EmbedGradient(View ids, View dout, int64_t first_id, View position_ids, View dtable,
                     View dpositions) override {
    if (!failure_.Require(FitsEmbedGradient(ids, dout, position_ids, dtable, dpositions),
                          "EmbedGradient", dout)) {
      return;
    }
    WithElement(dout.dtype, [&](auto element) {
      EmbedRowsGradient(Ids(ids), dout.rows, Data<decltype(element)>(dout), first_id,
                        Ids(position_ids), Floats(dtable), dtable.rows, Floats(dpositions),
                        dout.cols);
    });
  }

  void Attention(const AttentionShape& shape, View q, View k, View v, View first_visible, View o,
                 View lse, View scratch) override {
    if (!failure_.Require(FitsAttention(shape, {q}, {k, v}, {o}, first_visible, lse) &&
                              HoldsScratch(scratch, shape, q.dtype),
                          "Attention", q)) {
      return;
    }
    WithElement(q.dtype, [&](auto element) {
      using T = decltype(element);
      ForKvHeads(threads_, shape, q.dtype, scratch, [&](const KvHeads& part, float* own_scratch) {
        AttentionForwardOf<T>(shape, part, Ids(first_visible),
                              {Data<T>(q), Data<T>(k), Data<T>(v), Data<T>(o), Floats(lse)},
                              own_scratch);
      });
    });
  }
  void AttentionGradient(const AttentionShape& shape, View q, View k, View v, View first_visible,
                         View o, View lse, View dout, View dq, View dk, View dv,
                         View scratch) override {
    if (!failure_.Require(
            FitsAttention(shape, {q, dq}, {k, v, dk, dv}, {o, dout}, first_visible, lse) &&
                HoldsScratch(scratch, shape, q.dtype),
            "AttentionGradient", q)) {
      return;
    }
    WithElement(q.dtype, [&](auto element) {
      using T = decltype(element);
      ForKvHeads(threads_, shape, q.dtype, scratch, [&](const KvHeads& part, float* own_scratch) {
        AttentionBackwardOf<T>(shape, part, Ids(first_visible),
                               {Data<T>(q), Data<T>(k), Data<T>(v), Data<T>(o), Floats(lse),
                                Data<T>(dout), Data<T>(dq), Data<T>(dk), Data<T>(dv)},
                               own_scratch);
      });
    });
  }

  void Cap(View x, double cap) override {
    if (!failure_.Require(SameRows(x, {}) && cap > 0, "Cap", x)) return;
    WithElement(x.dtype, [&](auto element) {
      using T = decltype(element);
      ForRuns({x}, [&](int64_t row, int64_t first, int64_t count) {
        CapInPlace(static_cast<float>(cap), Row<T>(x, row) + first, count);
      });
    });
  }

  void RowMax(View logits, View row_max) override {
    if (!failure_.Require(FitsRowMax(logits, row_max), "RowMax", logits)) return;
    WithElement(logits.dtype, [&](auto element) {
      ForRows(logits, [&](int64_t at, int64_t rows) {
        RowMaxOf(Row<decltype(element)>(logits, at), Floats(row_max) + at, rows, ShapeOf(logits));
      });
    });
  }
  void RowSumExp(View logits, View row_max, View targets, int64_t first_id, const LossTerms& loss,
                 View row_sum, View target_logit) override {
    const bool fits = FitsRowSums(logits, row_max, targets, row_sum, target_logit);
    if (!failure_.Require(fits, "RowSumExp", logits)) return;
    WithElement(logits.dtype, [&](auto element) {
      ForRows(logits, [&](int64_t first, int64_t rows) {
        RowSumExpOf(Row<decltype(element)>(logits, first), Floats(row_max) + first,
                    Ids(targets) + first, first_id, loss, Floats(row_sum) + first,
                    Floats(target_logit) + first, rows, ShapeOf(logits));
      });
    });
  }
  void SoftmaxGradient(View row_max, View row_sum, View targets, int64_t first_id,
                       const LossTerms& loss, View logits) override {
    if (!failure_.Require(FitsSoftmaxGradient(row_max, row_sum, targets, logits), "SoftmaxGradient",
                          logits)) {
      return;
    }
    WithElement(logits.dtype, [&](auto element) {
      ForRows(logits, [&](int64_t first, int64_t rows) {
        SoftmaxGradientOf(Floats(row_max) + first, Floats(row_sum) + first, Ids(targets) + first,
                          first_id, loss, Row<decltype(element)>(logits, first), rows,
                          ShapeOf(logits));
      });
    });
  }
  void AddLossSum(View row_max, View row_sum, View target_logit, const LossTerms& loss,
                  View total) override {
    if (!failure_.Require(FitsAddLossSum(row_max, row_sum, target_logit, total), "AddLossSum",
                          row_max)) {
      return;
    }
    *Data<double>(total) += LossSumOf(Floats(row_max), Floats(row_sum), Floats(target_logit),
                                      loss.z_weight, row_max.elements());
  }
  void AddSumOfSquares(const View* xs, int64_t count, View total) override {
    const View* const unfit = FirstUnfit(xs, count, total);
    if (unfit != nullptr) return void(failure_.Require(false, "AddSumOfSquares", *unfit));
    for (const View* x = xs; x != xs + count; ++x) {
      *Data<double>(total) += threads_.Sum(x->elements(), [&](int64_t first, int64_t size) {
        return SumOfSquaresOf(Floats(*x) + first, size);
      });
    }
  }
  void GradientScale(const ClipParameters& clip, View loss, View squares, View scale) override {
    if (!failure_.Require(FitsGradientScale(loss, squares, scale), "GradientScale", loss)) return;
    const double norm = std::sqrt(*Data<double>(squares)) / clip.loss_scale;
    const double clipped =
        clip.max_norm == 0 ? 1.0 : std::min(1.0, clip.max_norm / (norm + kClipEps));
    const bool is_finite = std::isfinite(*Data<double>(loss)) && std::isfinite(norm);
    *Data<double>(scale) =
        is_finite ? clipped / clip.loss_scale : std::numeric_limits<double>::quiet_NaN();
  }

  Updates& updates() override { return *updates_; }
  AdafactorSteps& adafactor() override { return *adafactor_; }
  PartNorms& part_norms() override { return *part_norms_; }

 private:
  void Transfer(View to, View from, const char* operation) {
    if (!failure_.Require(to.is_contiguous() && from.is_contiguous(), operation, to)) return;
    Copy(to, from);
  }

  // Views of the same rows and columns: calls work(row, first, count) for runs of elements from the
  // start of a row on, which are whole rows where some of the views have gaps.
  template <typename Work>
  void ForRuns(std::initializer_list<View> views, const Work& work) const {
    const View x = *views.begin();
    if (std::all_of(views.begin(), views.end(), [](View y) { return y.is_contiguous(); })) {
      return ForElements(threads_, x, [&](int64_t first, int64_t count) { work(0, first, count); });
    }
    ForRows(x, [&](int64_t first, int64_t rows) {
      for (int64_t row = first; row < first + rows; ++row) work(row, 0, x.cols);
    });
  }
  template <typename Work>
  void ForRows(View x, const Work& work) const {
    threads_.ForEach(x.rows, 1, x.cols, work);
  }
  template <typename Work>
  void ForCols(View x, const Work& work) const {
    threads_.ForEach(x.cols, kVectorElements, x.rows, work);
  }

  bool HoldsScratch(View scratch, const AttentionShape& shape, DType type) const {
    return IsVector(scratch, scratch.elements()) &&
           scratch.elements() >=
               AttentionThreads(threads_, shape) * AttentionScratchElements(shape, type);
  }
  const Threads threads_;
  NarrowMatMul narrow_matmul_;
  Fp8Products fp8_products_;
  FirstFailure failure_;
  const std::unique_ptr<Updates> updates_ = MakeCpuUpdates(threads_, failure_);
  const std::unique_ptr<AdafactorSteps> adafactor_ = MakeCpuAdafactor(threads_, failure_);
  const std::unique_ptr<PartNorms> part_norms_ = MakeCpuPartNorms(threads_, failure_);
};

}  // namespace

std::unique_ptr<Device> MakeCpuDevice(const DeviceOptions& options) {
  return std::make_unique<CpuDevice>(options);
}

}  // namespace weft
