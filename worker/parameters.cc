#include "worker/parameters.h"

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {

Parameters::Parameters(const ModelShape& model, const Layout& layout, int rank,
                       OptimizerStates states, Arena& arena) {
  for (TensorShard& shard : ShardsOf(model, layout, rank)) {
    const std::vector<int64_t> dims = shard.dims();
    const int64_t rows = dims.size() == 2 ? dims[0] : 1;
    const int64_t cols = dims.back();
    Parameter parameter;
    const auto get = [&](absl::string_view prefix) {
      return arena.Get(absl::StrCat(prefix, "/", shard.tensor.name), rows, cols);
    };
    parameter.weight = get("weights");
    parameter.gradient = get("gradients");
    for (const absl::string_view state : StateNames(states)) {
      parameter.states.push_back({state, get(state)});
    }
    parameter.shard = std::move(shard);
    parameters_.push_back(std::move(parameter));
  }
  all_gradients_ = arena.Whole(MemoryKind::kGradients);
}

const Parameter* Parameters::Find(absl::string_view tensor) const {
  for (const Parameter& parameter : parameters_) {
    if (parameter.shard.tensor.name == tensor) return &parameter;
  }
  return nullptr;
}

const Parameter& Parameters::Get(absl::string_view tensor) const {
  const Parameter* const parameter = Find(tensor);
  CHECK(parameter != nullptr);
  return *parameter;
}

Linear Parameters::GetLinear(absl::string_view name) const {
  const Parameter& weight = Get(absl::StrCat(name, ".weight"));
  const Parameter* const bias = Find(absl::StrCat(name, ".bias"));
  return {.weight = weight.weight,
          .bias = bias == nullptr ? View() : bias->weight,
          .weight_gradient = weight.gradient,
          .bias_gradient = bias == nullptr ? View() : bias->gradient};
}

Norm Parameters::GetNorm(absl::string_view name) const {
  const Linear pair = GetLinear(name);
  return {.weight = pair.weight,
          .bias = pair.bias,
          .weight_gradient = pair.weight_gradient,
          .bias_gradient = pair.bias_gradient};
}

void MultiplyLinear(const Linear& linear, View x, View y, Device& device) {
  device.MatMul(x, Transpose::kNo, linear.weight, Transpose::kYes, 0, y);
}

void AddLinearBias(const Linear& linear, View y, Device& device) {
  if (linear.bias.data != nullptr) device.AddBias(linear.bias, y);
}

void ForwardLinear(const Linear& linear, View x, View y, Device& device) {
  MultiplyLinear(linear, x, y, device);
  AddLinearBias(linear, y, device);
}

void BackwardLinearInput(const Linear& linear, View dy, float beta, View dx, Device& device) {
  device.MatMul(dy, Transpose::kNo, linear.weight, Transpose::kNo, beta, dx);
}

void BackwardLinearWeight(const Linear& linear, View dy, View x, Device& device) {
  if (linear.bias.data != nullptr) device.BiasGradient(dy, linear.bias_gradient);
  device.MatMul(dy, Transpose::kYes, x, Transpose::kNo, 1, linear.weight_gradient);
}

void ForwardNorm(const Norm& norm, double eps, View x, View y, const NormStatistics& saved,
                 Device& device) {
  if (norm.bias.data == nullptr) {
    device.RmsNorm(x, norm.weight, eps, y, saved.rstd);
  } else {
    device.LayerNorm(x, norm.weight, norm.bias, eps, y, saved.mean, saved.rstd);
  }
}

void BackwardNorm(const Norm& norm, View dy, View x, const NormStatistics& saved, View dx,
                  Device& device) {
  if (norm.bias.data == nullptr) {
    device.RmsNormGradient(dy, x, norm.weight, saved.rstd, dx, norm.weight_gradient);
  } else {
    device.LayerNormGradient(dy, x, norm.weight, saved.mean, saved.rstd, dx, norm.weight_gradient,
                             norm.bias_gradient);
  }
}

}  // namespace weft
