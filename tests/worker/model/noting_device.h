// A Device that notes where the operands of operations lie, to find where what is to be the same
// each time is not. Used by one rank's thread.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/passing_backend.h"

namespace weft {

// Notes are of one rank.
struct Notes {
  // Operations of passes, each as its name and its operands, by step; without those that also come
  // outside of passes: Copy, Add and Zero. Complete once EndStep is called.
  std::vector<std::vector<std::string>> steps = {{}};
  std::vector<int> calls = {0};  // of Device::Replay, by step
  // By key: all operations of a stretch.
  std::map<int64_t, std::vector<std::string>> stretches;
  // Where a stretch is not as it was, or not what a device could replay.
  std::vector<std::string> findings;
  std::vector<std::string> stretch;  // in progress
  bool in_stretch = false;

  void EndStep() {
    steps.emplace_back();
    calls.push_back(0);
  }
  void Refuse(const char* operation) {
    if (in_stretch) findings.push_back(absl::StrCat(operation, " within a stretch"));
  }
};

class NotingDevice final : public PassingDevice {
 public:
  NotingDevice(Device& inner, Notes& notes) : PassingDevice(inner), notes_(notes) {}
  // Drops what was begun and never ended.
  ~NotingDevice() override {
    notes_.steps.pop_back();
    notes_.calls.pop_back();
  }

  void Replay(int64_t key, void (*queue)(void* context), void* context) override {
    ++notes_.calls.back();
    if (notes_.in_stretch) notes_.findings.push_back("a stretch within a stretch");
    notes_.in_stretch = true;
    notes_.stretch.clear();
    inner_.Replay(key, queue, context);
    notes_.in_stretch = false;
    const auto [known, is_new] = notes_.stretches.try_emplace(key, notes_.stretch);
    if (!is_new && known->second != notes_.stretch) {
      notes_.findings.push_back(absl::StrCat("stretch ", key, " is not what it was"));
    }
    if (notes_.stretch.empty()) notes_.findings.push_back("an empty stretch");
  }

  // These operations wait for the device, allocate, or move data to or from the host.
  void* Allocate(int64_t bytes) override {
    notes_.Refuse("Allocate");
    return inner_.Allocate(bytes);
  }
  void CopyIn(View to, const void* from_host) override {
    notes_.Refuse("CopyIn");
    inner_.CopyIn(to, from_host);
  }
  void CopyOut(void* to_host, View from) override {
    notes_.Refuse("CopyOut");
    inner_.CopyOut(to_host, from);
  }
  void Fetch(View to, View from_host) override {
    notes_.Refuse("Fetch");
    inner_.Fetch(to, from_host);
  }
  void Store(View to_host, View from) override {
    notes_.Refuse("Store");
    inner_.Store(to_host, from);
  }
  void AwaitTransfers() override {
    notes_.Refuse("AwaitTransfers");
    inner_.AwaitTransfers();
  }
  BackendStatus Synchronize() override {
    notes_.Refuse("Synchronize");
    return inner_.Synchronize();
  }

  void MatMul(View a, Transpose transpose_a, View b, Transpose transpose_b, float beta,
              View c) override {
    Note(absl::StrCat("MatMul ", beta), {a, b, c});
    inner_.MatMul(a, transpose_a, b, transpose_b, beta, c);
  }
  void ToFp8(View x, View codes, View transposed, View scale) override {
    Note("ToFp8", {x, codes, transposed, scale});
    inner_.ToFp8(x, codes, transposed, scale);
  }
  void Fp8MatMul(const Fp8View& a, const Fp8View& b, float beta, View c) override {
    Note(absl::StrCat("Fp8MatMul ", beta), {a.codes, a.scale, b.codes, b.scale, c});
    inner_.Fp8MatMul(a, b, beta, c);
  }
  void Zero(View x) override {
    NoteOfStretch("Zero", {x});
    inner_.Zero(x);
  }
  void Copy(View to, View from) override {
    NoteOfStretch("Copy", {to, from});
    inner_.Copy(to, from);
  }
  void Add(View x, View y) override {
    NoteOfStretch("Add", {x, y});
    inner_.Add(x, y);
  }
  void Scale(View x, double factor) override {
    NoteOfStretch(absl::StrCat("Scale ", factor), {x});
    inner_.Scale(x, factor);
  }
  void AddBias(View bias, View x) override {
    Note("AddBias", {bias, x});
    inner_.AddBias(bias, x);
  }
  void BiasGradient(View dy, View dbias) override {
    Note("BiasGradient", {dy, dbias});
    inner_.BiasGradient(dy, dbias);
  }
  void LayerNorm(View x, View weight, View bias, const NormConstants& constants, View y, View mean,
                 View rstd) override {
    Note("LayerNorm", {x, weight, bias, y, mean, rstd});
    inner_.LayerNorm(x, weight, bias, constants, y, mean, rstd);
  }
  void LayerNormGradient(View dy, View x, View weight, const NormConstants& constants, View mean,
                         View rstd, View dx, View dweight, View dbias) override {
    Note("LayerNormGradient", {dy, x, weight, mean, rstd, dx, dweight, dbias});
    inner_.LayerNormGradient(dy, x, weight, constants, mean, rstd, dx, dweight, dbias);
  }
  void RmsNorm(View x, View weight, const NormConstants& constants, View y, View rstd) override {
    Note("RmsNorm", {x, weight, y, rstd});
    inner_.RmsNorm(x, weight, constants, y, rstd);
  }
  void RmsNormGradient(View dy, View x, View weight, const NormConstants& constants, View rstd,
                       View dx, View dweight) override {
    Note("RmsNormGradient", {dy, x, weight, rstd, dx, dweight});
    inner_.RmsNormGradient(dy, x, weight, constants, rstd, dx, dweight);
  }
  void Rotate(View table, Turn turn, const RotatedHeads& heads, View x) override {
    Note("Rotate", {table, x});
    inner_.Rotate(table, turn, heads, x);
  }
  void Gelu(View x, View y) override {
    Note("Gelu", {x, y});
    inner_.Gelu(x, y);
  }
  void Activate(PlainActivation f, View x, View y) override {
    Note("Activate", {x, y});
    inner_.Activate(f, x, y);
  }
  void ActivateGradient(PlainActivation f, View dy, View x, View dx) override {
    Note("ActivateGradient", {dy, x, dx});
    inner_.ActivateGradient(f, dy, x, dx);
  }
  void Cap(View x, double cap) override {
    Note("Cap", {x});
    inner_.Cap(x, cap);
  }
  void GeluGradient(View dy, View x, View dx) override {
    Note("GeluGradient", {dy, x, dx});
    inner_.GeluGradient(dy, x, dx);
  }
  void Linear(View x, View weight, View bias, View residual, View y) override {
    Note("Linear", {x, weight, bias, residual, y});
    inner_.Linear(x, weight, bias, residual, y);
  }
  void LinearGelu(View x, View weight, View bias, View h, View y) override {
    Note("LinearGelu", {x, weight, bias, h, y});
    inner_.LinearGelu(x, weight, bias, h, y);
  }
  void GeluLinearGradient(View dy, View weight, View h, View dh) override {
    Note("GeluLinearGradient", {dy, weight, h, dh});
    inner_.GeluLinearGradient(dy, weight, h, dh);
  }
  void LinearGradient(View dy, View x, View dweight, View dbias) override {
    Note("LinearGradient", {dy, x, dweight, dbias});
    inner_.LinearGradient(dy, x, dweight, dbias);
  }
  void Glu(Gate f, View gate, View up, View y) override {
    Note("Glu", {gate, up, y});
    inner_.Glu(f, gate, up, y);
  }
  void GluGradient(Gate f, View dy, View gate, View up, View dgate, View dup) override {
    Note("GluGradient", {dy, gate, up, dgate, dup});
    inner_.GluGradient(f, dy, gate, up, dgate, dup);
  }
  void Attention(const AttentionShape& shape, View q, View k, View v, View first_visible, View o,
                 View lse, View scratch) override {
    Note("Attention", {q, k, v, first_visible, o, lse, scratch});
    inner_.Attention(shape, q, k, v, first_visible, o, lse, scratch);
  }
  void AttentionGradient(const AttentionShape& shape, View q, View k, View v, View first_visible,
                         View o, View lse, View dout, View dq, View dk, View dv,
                         View scratch) override {
    Note("AttentionGradient", {q, k, v, first_visible, o, lse, dout, dq, dk, dv, scratch});
    inner_.AttentionGradient(shape, q, k, v, first_visible, o, lse, dout, dq, dk, dv, scratch);
  }

 private:
  static std::string NoteOf(absl::string_view operation, const std::vector<View>& operands) {
    std::string note(operation);
    for (const View& view : operands) {
      absl::StrAppend(&note, " ", absl::Hex(reinterpret_cast<uintptr_t>(view.data)), "[", view.rows,
                      ",", view.cols, "]");
    }
    return note;
  }
  void Note(absl::string_view operation, const std::vector<View>& operands) {
    notes_.steps.back().push_back(NoteOf(operation, operands));
    NoteOfStretch(operation, operands);
  }
  void NoteOfStretch(absl::string_view operation, const std::vector<View>& operands) {
    if (notes_.in_stretch) notes_.stretch.push_back(NoteOf(operation, operands));
  }

  Notes& notes_;
};

}  // namespace weft
