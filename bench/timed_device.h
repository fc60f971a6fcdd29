// TimedDevice: passes every operation on and adds up the time of each kind, by the clock and by the
// processor time of all threads. For a device that computes at once, as the CPU's does.
#pragma once
#include <algorithm>
#include <chrono>
#include <ctime>
#include <map>
#include <string>

#include "tests/worker/passing_backend.h"

namespace weft {

class TimedDevice final : public PassingDevice {
 public:
  // A product that is at least this wide in any dim is counted as the head's.
  TimedDevice(Device& inner, int64_t vocab_size)
      : PassingDevice(inner), vocab_size_(vocab_size), updates_(inner.updates(), *this) {}

  struct Spent {
    double wall_s = 0;
    double cpu_s = 0;
  };
  // Returns what was spent by operation, since the last Clear.
  const std::map<std::string, Spent>& spent() const { return spent_; }
  void Clear() { spent_.clear(); }

  void MatMul(View a, Transpose transpose_a, View b, Transpose transpose_b, float beta,
              View c) override {
    const char* const kind = transpose_a == Transpose::kYes   ? "weight gradient"
                             : transpose_b == Transpose::kYes ? "forward"
                                                              : "input gradient";
    const bool head = std::max({a.rows, a.cols, b.rows, b.cols, c.rows, c.cols}) >= vocab_size_;
    Time(std::string(head ? "head, " : "products, ") + kind,
         [&] { inner_.MatMul(a, transpose_a, b, transpose_b, beta, c); });
  }
  void ToFp8(View x, View codes, View transposed, View scale) override {
    Time("to fp8", [&] { inner_.ToFp8(x, codes, transposed, scale); });
  }
  void Fp8MatMul(const Fp8View& a, const Fp8View& b, float beta, View c) override {
    Time("products in fp8", [&] { inner_.Fp8MatMul(a, b, beta, c); });
  }
  void Fetch(View to, View from_host) override {
    Time("offload", [&] { inner_.Fetch(to, from_host); });
  }
  void Store(View to_host, View from) override {
    Time("offload", [&] { inner_.Store(to_host, from); });
  }
  void Zero(View x) override {
    Time("zero", [&] { inner_.Zero(x); });
  }
  void Copy(View to, View from) override {
    Time("copy", [&] { inner_.Copy(to, from); });
  }
  void Add(View x, View y) override {
    Time("add", [&] { inner_.Add(x, y); });
  }
  void AddBias(View bias, View x) override {
    Time("bias", [&] { inner_.AddBias(bias, x); });
  }
  void BiasGradient(View dy, View dbias) override {
    Time("bias gradient", [&] { inner_.BiasGradient(dy, dbias); });
  }
  void LayerNorm(View x, View weight, View bias, const NormConstants& constants, View y, View mean,
                 View rstd) override {
    Time("norm", [&] { inner_.LayerNorm(x, weight, bias, constants, y, mean, rstd); });
  }
  void LayerNormGradient(View dy, View x, View weight, const NormConstants& constants, View mean,
                         View rstd, View dx, View dweight, View dbias) override {
    Time("norm gradient", [&] {
      inner_.LayerNormGradient(dy, x, weight, constants, mean, rstd, dx, dweight, dbias);
    });
  }
  void Gelu(View x, View y) override {
    Time("gelu", [&] { inner_.Gelu(x, y); });
  }
  void GeluGradient(View dy, View x, View dx) override {
    Time("gelu gradient", [&] { inner_.GeluGradient(dy, x, dx); });
  }
  // These run as the operations they stand for, as the CPU's device computes them.
  void Linear(View x, View weight, View bias, View residual, View y) override {
    Device::Linear(x, weight, bias, residual, y);
  }
  void LinearGelu(View x, View weight, View bias, View h, View y) override {
    Device::LinearGelu(x, weight, bias, h, y);
  }
  void GeluLinearGradient(View dy, View weight, View h, View dh) override {
    Device::GeluLinearGradient(dy, weight, h, dh);
  }
  void LinearGradient(View dy, View x, View dweight, View dbias) override {
    Device::LinearGradient(dy, x, dweight, dbias);
  }
  void Embed(View ids, View table, int64_t first_id, View positions, View position_ids,
             View out) override {
    Time("embedding", [&] { inner_.Embed(ids, table, first_id, positions, position_ids, out); });
  }
  void EmbedGradient(View ids, View dout, int64_t first_id, View position_ids, View dtable,
                     View dpositions) override {
    Time("embedding gradient",
         [&] { inner_.EmbedGradient(ids, dout, first_id, position_ids, dtable, dpositions); });
  }
  void Attention(const AttentionShape& shape, View q, View k, View v, View first_visible, View o,
                 View lse, View scratch) override {
    Time("attention", [&] { inner_.Attention(shape, q, k, v, first_visible, o, lse, scratch); });
  }
  void AttentionGradient(const AttentionShape& shape, View q, View k, View v, View first_visible,
                         View o, View lse, View dout, View dq, View dk, View dv,
                         View scratch) override {
    Time("attention gradient", [&] {
      inner_.AttentionGradient(shape, q, k, v, first_visible, o, lse, dout, dq, dk, dv, scratch);
    });
  }
  void RowMax(View logits, View row_max) override {
    Time("cross-entropy", [&] { inner_.RowMax(logits, row_max); });
  }
  void RowSumExp(View logits, View row_max, View targets, int64_t first_id, const LossTerms& loss,
                 View row_sum, View target_logit) override {
    Time("cross-entropy", [&] {
      inner_.RowSumExp(logits, row_max, targets, first_id, loss, row_sum, target_logit);
    });
  }
  void SoftmaxGradient(View row_max, View row_sum, View targets, int64_t first_id,
                       const LossTerms& loss, View logits) override {
    Time("cross-entropy gradient",
         [&] { inner_.SoftmaxGradient(row_max, row_sum, targets, first_id, loss, logits); });
  }
  void CrossEntropy(View targets, const LossTerms& loss, View logits, View row_max, View row_sum,
                    View target_logit) override {
    Device::CrossEntropy(targets, loss, logits, row_max, row_sum, target_logit);
  }
  void AddSumOfSquares(const View* xs, int64_t count, View total) override {
    Time("gradient norm", [&] { inner_.AddSumOfSquares(xs, count, total); });
  }
  Updates& updates() override { return updates_; }

 private:
  class TimedUpdates final : public PassingUpdates {
   public:
    TimedUpdates(Updates& inner, TimedDevice& device) : PassingUpdates(inner), device_(device) {}
    void Adamw(const AdamwParameters& adamw, const AdamwSegment* segments, int64_t count) override {
      device_.Time("adamw", [&] { inner_.Adamw(adamw, segments, count); });
    }

   private:
    TimedDevice& device_;
  };

  template <typename Work>
  void Time(const std::string& kind, const Work& work) {
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t cpu_start = std::clock();
    work();
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    Spent& spent = spent_[kind];
    spent.wall_s += wall.count();
    spent.cpu_s += static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
  }

  const int64_t vocab_size_;
  TimedUpdates updates_;
  std::map<std::string, Spent> spent_;
};

}  // namespace weft
