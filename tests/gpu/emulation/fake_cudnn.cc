// A libcudnn.so.9 for hosts without devices: it carries out graphs of the backend interface, one
// operation after the other, in single precision, on the CPU's memory. What a graph means is thus
// tested where its kernels cannot run; that cuDNN knows the graph is tests/gpu/cudnn_plans_test.cc.
//
// As the fused kernels do, it writes over all that is scratch: the workspace, and the tensors in
// memory that a further operation reads.
#include "tests/gpu/emulation/fake_cudnn.h"

#include <cudnn.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace {

using Dims = std::array<int64_t, 4>;

WeftFakeCudnn state;

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  std::map<cudnnBackendAttributeName_t, std::vector<char>> attributes;
  bool finalized = false;
  int64_t more_workspace_bytes = 0;  // of an algorithm

  bool Has(cudnnBackendAttributeName_t name) const { return attributes.count(name) > 0; }
  template <typename T>
  std::vector<T> All(cudnnBackendAttributeName_t name) const {
    const auto found = attributes.find(name);
    if (found == attributes.end()) return {};
    std::vector<T> values(found->second.size() / sizeof(T));
    std::memcpy(values.data(), found->second.data(), found->second.size());
    return values;
  }
  template <typename T>
  T Get(cudnnBackendAttributeName_t name) const {
    const std::vector<T> values = All<T>(name);
    return values.empty() ? T{} : values.front();
  }
  const Descriptor& At(cudnnBackendAttributeName_t name) const {
    return *Get<const Descriptor*>(name);
  }
  bool IsRagged() const { return Has(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC); }
};

size_t BytesOf(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
      return 1;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    default:
      return 4;
  }
}

int64_t ElementBytes(cudnnDataType_t type) {
  if (type == CUDNN_DATA_BOOLEAN) return 1;
  if (type == CUDNN_DATA_INT64) return 8;
  return type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16 ? 2 : 4;
}

// A tensor while a plan runs.
struct Tensor {
  cudnnDataType_t type;
  Dims dims;
  Dims strides;
  bool is_inner = false;
  char* data = nullptr;
  std::vector<char> own;  // of one inside the graph
  // A ragged tensor in memory has these, by element of the first dim: where it starts, and how many
  // positions there are, which have the dim `positions`.
  std::vector<int64_t> starts = {};
  std::vector<int64_t> lengths = {};
  size_t positions = 2;

  bool IsThere(const Dims& at) const {
    return starts.empty() || at[positions] < lengths[static_cast<size_t>(at[0])];
  }
  int64_t At(const Dims& at) const {
    int64_t offset = starts.empty() ? 0 : starts[static_cast<size_t>(at[0])];
    for (size_t d = starts.empty() ? 0 : 1; d < 4; ++d) {
      offset += dims[d] == 1 ? 0 : at[d] * strides[d];  // a dim of 1 is there for all
    }
    return offset;
  }
  int64_t extent() const {
    int64_t last = 0;
    for (size_t d = 0; d < 4; ++d) last += (dims[d] - 1) * strides[d];
    return last + 1;
  }
  // From data on, in memory.
  int64_t bytes() const { return (starts.empty() ? extent() : starts.back()) * ElementBytes(type); }
  // Returns not-a-number behind a document, where anything may lie.
  float Get(const Dims& at) const {
    if (!IsThere(at)) return std::numeric_limits<float>::quiet_NaN();
    const char* const from = data + At(at) * ElementBytes(type);
    uint64_t bits = 0;
    std::memcpy(&bits, from, static_cast<size_t>(ElementBytes(type)));
    switch (type) {
      case CUDNN_DATA_FLOAT:
        return std::bit_cast<float>(static_cast<uint32_t>(bits));
      case CUDNN_DATA_BFLOAT16:
        return std::bit_cast<float>(static_cast<uint32_t>(bits << 16));
      case CUDNN_DATA_HALF:
        return static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(bits)));
      default:
        return static_cast<float>(bits);
    }
  }
  void Put(const Dims& at, float value) const {
    if (!IsThere(at)) return;
    uint64_t bits = 0;
    switch (type) {
      case CUDNN_DATA_FLOAT:
        bits = std::bit_cast<uint32_t>(value);
        break;
      case CUDNN_DATA_BFLOAT16:
        bits = std::bit_cast<uint32_t>(value);
        bits = (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
        break;
      case CUDNN_DATA_HALF:
        bits = std::bit_cast<uint16_t>(static_cast<_Float16>(value));
        break;
      default:
        bits = static_cast<uint64_t>(value);
    }
    std::memcpy(data + At(at) * ElementBytes(type), &bits, static_cast<size_t>(ElementBytes(type)));
  }
};

bool Makes(WeftCudnnMistake mistake) {
  return state.mistake == mistake;
}
bool IsMistaken(WeftCudnnMistake mistake, int64_t id) {
  return Makes(mistake) && state.mistaken_tensor == id;
}

void ForEach(const Dims& dims, const std::function<void(const Dims&)>& visit) {
  Dims at = {};
  for (at[0] = 0; at[0] < dims[0]; ++at[0]) {
    for (at[1] = 0; at[1] < dims[1]; ++at[1]) {
      for (at[2] = 0; at[2] < dims[2]; ++at[2]) {
        for (at[3] = 0; at[3] < dims[3]; ++at[3]) visit(at);
      }
    }
  }
}

// Whether two in memory share a byte: the columns of one matrix do not.
bool Overlap(const Tensor& x, const Tensor& y) {
  if (x.data >= y.data + y.bytes() || y.data >= x.data + x.bytes()) return false;
  std::set<const char*> taken;
  const auto visit = [](const Tensor& tensor, const std::function<void(const char*)>& take) {
    const int64_t width = ElementBytes(tensor.type);
    ForEach(tensor.dims, [&](const Dims& at) {
      if (!tensor.IsThere(at)) return;
      const char* const element = tensor.data + tensor.At(at) * width;
      for (int64_t byte = 0; byte < width; ++byte) take(element + byte);
    });
  };
  visit(x, [&](const char* byte) { taken.insert(byte); });
  bool is_shared = false;
  visit(y, [&](const char* byte) { is_shared = is_shared || taken.count(byte) > 0; });
  return is_shared;
}

// The tensors of a plan that runs.
class Tensors {
 public:
  // False if the pack lacks a tensor of the graph, or if one is not aligned as it says.
  bool Take(const Descriptor& descriptor, const std::map<int64_t, void*>& pointers) {
    if (tensors_.count(&descriptor) > 0) return true;
    Tensor tensor{.type = descriptor.Get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE),
                  .dims = {},
                  .strides = {},
                  .is_inner = descriptor.Get<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0,
                  .own = {}};
    const auto dims = descriptor.All<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
    const auto strides = descriptor.All<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
    std::copy(dims.begin(), dims.end(), tensor.dims.begin());
    std::copy(strides.begin(), strides.end(), tensor.strides.begin());
    const auto id = descriptor.Get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    if (IsMistaken(WeftCudnnMistake::kSwapsHeadsAndPositions, id)) {
      std::swap(tensor.strides[1], tensor.strides[dims[3] == 64 ? 2 : 3]);
    }
    const auto found = pointers.find(id);
    if (tensor.is_inner) {
      tensor.own.resize(static_cast<size_t>(tensor.extent() * ElementBytes(tensor.type)));
      tensor.data = tensor.own.data();
    } else if (found == pointers.end()) {
      return false;
    } else {
      const auto alignment = descriptor.Get<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
      tensor.data = static_cast<char*>(found->second);
      if (reinterpret_cast<intptr_t>(tensor.data) % alignment != 0) return false;
      const auto bytes = static_cast<size_t>(tensor.extent() * ElementBytes(tensor.type));
      if (IsMistaken(WeftCudnnMistake::kPassesAnother, id)) {
        tensor.own.resize(bytes);
        tensor.data = tensor.own.data();
      }
    }
    tensors_.emplace(&descriptor, std::move(tensor));
    return !descriptor.IsRagged() ||
           Take(descriptor.At(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC), pointers);
  }

  // Reads where documents start, once the lengths of queries and of keys are known; what has more
  // heads than the tensor whose offsets it shares starts so much further on. False if an offset is
  // no whole row, or a document reaches into the next one's.
  bool FindStarts(const Descriptor& descriptor, const std::vector<int64_t>& lengths,
                  int64_t multiple) {
    Tensor& tensor = tensors_.at(&descriptor);
    if (tensor.is_inner) return true;
    const Tensor& offsets = tensors_.at(&descriptor.At(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC));
    tensor.positions = tensor.strides[3] > tensor.strides[2] ? 3 : 2;  // a row is its widest step
    const int64_t row = tensor.strides[tensor.positions];
    tensor.lengths = lengths;
    tensor.starts.clear();
    bool fits = true;
    for (size_t i = 0; i <= lengths.size(); ++i) {
      int64_t start = 0;
      std::memcpy(&start, offsets.data + 8 * i, sizeof(start));
      start *= multiple;
      fits = fits && start >= 0 && start % row == 0;
      if (i > 0) fits = fits && start - tensor.starts.back() >= lengths[i - 1] * row;
      tensor.starts.push_back(start);
    }
    return fits;
  }
  const Tensor& Of(const Descriptor& operation, cudnnBackendAttributeName_t name) const {
    return tensors_.at(&operation.At(name));
  }

  // Whether what is written lies apart from all else, as the fused kernels do it in any order.
  bool LieApart(const std::vector<const Descriptor*>& results) const {
    for (const Descriptor* result : results) {
      const Tensor& to = tensors_.at(result);
      if (to.is_inner) continue;
      for (const auto& [descriptor, other] : tensors_) {
        if (descriptor == result || other.is_inner) continue;
        if (Overlap(to, other)) return false;
      }
    }
    return true;
  }

 private:
  std::map<const Descriptor*, Tensor> tensors_;
};

float Apply(cudnnPointwiseMode_t mode, float x, float b) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
      return x + b;
    case CUDNN_POINTWISE_SUB:
      return x - b;
    case CUDNN_POINTWISE_MUL:
      return x * b;
    case CUDNN_POINTWISE_DIV:
      return x / b;
    case CUDNN_POINTWISE_EXP:
      return std::exp(x);
    case CUDNN_POINTWISE_LOG:
      return std::log(x);
    case CUDNN_POINTWISE_CMP_LT:
      return x < b ? 1.0F : 0.0F;
    case CUDNN_POINTWISE_LOGICAL_AND:
      return x != 0 && b != 0 ? 1.0F : 0.0F;
    case CUDNN_POINTWISE_CMP_GE:
      return x > b || (x == b && !Makes(WeftCudnnMistake::kComparesStrictly)) ? 1.0F : 0.0F;
    default:
      return x;
  }
}

void Pointwise(const Descriptor& operation, const Tensors& tensors) {
  const Descriptor& kind = operation.At(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  const auto mode = kind.Get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  const Tensor& x = tensors.Of(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
  const Tensor& y = tensors.Of(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  const bool has_b = operation.Has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  const Tensor& b = has_b ? tensors.Of(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC) : x;
  const auto axis = static_cast<size_t>(kind.Get<int64_t>(CUDNN_ATTR_POINTWISE_AXIS));
  ForEach(y.dims, [&](const Dims& at) {
    if (mode == CUDNN_POINTWISE_GEN_INDEX) {
      y.Put(at, static_cast<float>(at[axis]));
    } else if (mode == CUDNN_POINTWISE_BINARY_SELECT) {
      const Tensor& choice = tensors.Of(operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
      const bool is_chosen = choice.Get(at) != 0 || Makes(WeftCudnnMistake::kSelectsWithoutMask);
      y.Put(at, is_chosen ? x.Get(at) : b.Get(at));
    } else {
      y.Put(at, Apply(mode, x.Get(at), b.Get(at)));
    }
  });
}

void Reduce(const Descriptor& operation, const Tensors& tensors) {
  const Tensor& x = tensors.Of(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
  const Tensor& y = tensors.Of(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
  const bool adds =
      operation.At(CUDNN_ATTR_OPERATION_REDUCTION_DESC)
          .Get<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_ADD;
  ForEach(y.dims, [&](const Dims& to) {
    Dims run;
    for (size_t d = 0; d < 4; ++d) run[d] = x.dims[d] / y.dims[d];
    if (Makes(WeftCudnnMistake::kReducesFirst) && y.dims[1] > 1 && y.dims[1] < x.dims[1])
      run[1] = 1;
    float result = adds ? 0 : -std::numeric_limits<float>::infinity();
    ForEach(run, [&](const Dims& in) {
      Dims from;
      for (size_t d = 0; d < 4; ++d) from[d] = to[d] * (x.dims[d] / y.dims[d]) + in[d];
      result = adds ? result + x.Get(from) : std::max(result, x.Get(from));
    });
    y.Put(to, result);
  });
}

// Returns the extents of the first dim's elements; without such an extent all have `whole`.
std::vector<int64_t> ExtentsOf(const Descriptor& operation, const Tensors& tensors,
                               cudnnBackendAttributeName_t name, int64_t count, int64_t whole) {
  std::vector<int64_t> extents(static_cast<size_t>(count), whole);
  if (!operation.Has(name)) return extents;
  const Tensor& given = tensors.Of(operation, name);
  for (size_t i = 0; i < extents.size(); ++i) {
    extents[i] = static_cast<int64_t>(given.Get({static_cast<int64_t>(i), 0, 0, 0}));
  }
  return extents;
}

// Writes zeros where an extent leaves something out.
void MatMul(const Descriptor& operation, const Tensors& tensors) {
  const Tensor& a = tensors.Of(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
  const Tensor& b = tensors.Of(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
  const Tensor& c = tensors.Of(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
  const auto extents = [&](cudnnBackendAttributeName_t name, int64_t whole) {
    return ExtentsOf(operation, tensors, name, c.dims[0], whole);
  };
  const auto rows = extents(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, c.dims[2]);
  const auto cols = extents(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, c.dims[3]);
  const auto products = extents(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, a.dims[3]);
  // Each matrix is read once. A sum adds up in the order of k.
  std::vector<double> wide_b, sums;
  for (int64_t batch = 0; batch < c.dims[0]; ++batch) {
    const auto i = static_cast<size_t>(batch);
    const int64_t width = std::min(cols[i], c.dims[3]);
    for (int64_t head = 0; head < c.dims[1]; ++head) {
      const int64_t a_head = head * a.dims[1] / c.dims[1];
      const int64_t b_head = head * b.dims[1] / c.dims[1];
      wide_b.clear();
      for (int64_t k = 0; k < products[i]; ++k) {
        for (int64_t col = 0; col < width; ++col) {
          wide_b.push_back(static_cast<double>(b.Get({batch, b_head, k, col})));
        }
      }
      for (int64_t row = 0; row < c.dims[2]; ++row) {
        sums.assign(static_cast<size_t>(c.dims[3]), 0);
        for (int64_t k = 0; row < rows[i] && k < products[i]; ++k) {
          const auto factor = static_cast<double>(a.Get({batch, a_head, row, k}));
          const double* const from = wide_b.data() + k * width;
          for (int64_t col = 0; col < width; ++col) {
            sums[static_cast<size_t>(col)] += factor * from[col];
          }
        }
        for (int64_t col = 0; col < c.dims[3]; ++col) {
          c.Put({batch, head, row, col}, static_cast<float>(sums[static_cast<size_t>(col)]));
        }
      }
    }
  }
}

// y's memory holds what x's does, element by element.
void Reshape(const Descriptor& operation, const Tensors& tensors) {
  const Tensor& x = tensors.Of(operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
  const Tensor& y = tensors.Of(operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
  if (Makes(WeftCudnnMistake::kReshapesWithoutTurning)) {
    ForEach(y.dims, [&](const Dims& at) { y.Put(at, x.Get(at)); });
    return;
  }
  if (!x.starts.empty()) {
    ForEach(y.dims, [&](const Dims& at) { y.Put(at, x.Get({at[0], at[1], at[3], at[2]})); });
    return;
  }
  Tensor from = x;
  Tensor to = y;
  const int64_t extent = std::min(x.extent(), y.extent());
  from.dims = to.dims = {1, 1, 1, extent};
  from.strides = to.strides = {extent, extent, extent, 1};
  from.data = x.data;
  to.data = y.data;
  ForEach(to.dims, [&](const Dims& at) { to.Put(at, from.Get(at)); });
}

// The attributes by which an operation names its tensors.
std::vector<cudnnBackendAttributeName_t> TensorsOf(const Descriptor& operation) {
  switch (operation.type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
              CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC};
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_ATTR_OPERATION_REDUCTION_YDESC};
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_MATMUL_ADESC,
              CUDNN_ATTR_OPERATION_MATMUL_BDESC,
              CUDNN_ATTR_OPERATION_MATMUL_CDESC,
              CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC,
              CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC,
              CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC};
    default:
      return {CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_ATTR_OPERATION_RESHAPE_YDESC};
  }
}

std::vector<const Descriptor*> OperationsOf(const Descriptor& plan) {
  return plan.At(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
      .At(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)
      .All<const Descriptor*>(CUDNN_ATTR_OPERATIONGRAPH_OPS);
}

std::vector<cudnnBackendAttributeName_t> RequiredOfPointwise(const Descriptor& operation) {
  std::vector<cudnnBackendAttributeName_t> required = {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                                                       CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                                       CUDNN_ATTR_OPERATION_POINTWISE_YDESC};
  if (!operation.Has(required[0])) return required;
  switch (operation.At(required[0]).Get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE)) {
    case CUDNN_POINTWISE_BINARY_SELECT:
      required.push_back(CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
      [[fallthrough]];
    case CUDNN_POINTWISE_ADD:
    case CUDNN_POINTWISE_SUB:
    case CUDNN_POINTWISE_MUL:
    case CUDNN_POINTWISE_DIV:
    case CUDNN_POINTWISE_CMP_GE:
    case CUDNN_POINTWISE_CMP_LT:
    case CUDNN_POINTWISE_LOGICAL_AND:
      required.push_back(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
      break;
    default:
      break;
  }
  return required;
}

// Returns what must be set before such a descriptor is finalized (cuDNN's backend reference, by
// type).
std::vector<cudnnBackendAttributeName_t> RequiredOf(const Descriptor& made) {
  switch (made.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_ATTR_TENSOR_STRIDES,
              CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT};
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
      if (made.Get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE) == CUDNN_POINTWISE_GEN_INDEX) {
        return {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_ATTR_POINTWISE_AXIS};
      }
      return {CUDNN_ATTR_POINTWISE_MODE, CUDNN_ATTR_POINTWISE_MATH_PREC};
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
      return {CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_ATTR_REDUCTION_COMP_TYPE};
    case CUDNN_BACKEND_MATMUL_DESCRIPTOR:
      return {CUDNN_ATTR_MATMUL_COMP_TYPE};
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return RequiredOfPointwise(made);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_ATTR_OPERATION_REDUCTION_XDESC,
              CUDNN_ATTR_OPERATION_REDUCTION_YDESC};
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_ATTR_OPERATION_MATMUL_ADESC,
              CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_ATTR_OPERATION_MATMUL_CDESC};
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_ATTR_OPERATION_RESHAPE_YDESC};
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      return {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_ATTR_OPERATIONGRAPH_HANDLE};
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      return {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_ATTR_ENGINEHEUR_MODE};
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_ATTR_EXECUTION_PLAN_HANDLE};
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      return {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
              CUDNN_ATTR_VARIANT_PACK_WORKSPACE};
    default:
      return {};
  }
}

std::vector<const Descriptor*> TensorsOfPlan(const std::vector<const Descriptor*>& operations) {
  std::vector<const Descriptor*> tensors;
  for (const Descriptor* operation : operations) {
    for (const cudnnBackendAttributeName_t name : TensorsOf(*operation)) {
      if (operation->Has(name)) tensors.push_back(&operation->At(name));
    }
  }
  return tensors;
}

// Returns what each operation writes: the last of its tensors, but for a product's.
std::vector<const Descriptor*> ResultsOf(const std::vector<const Descriptor*>& operations) {
  std::vector<const Descriptor*> results;
  for (const Descriptor* operation : operations) {
    const bool is_product = operation->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
    results.push_back(&operation->At(is_product ? CUDNN_ATTR_OPERATION_MATMUL_CDESC
                                                : TensorsOf(*operation).back()));
  }
  return results;
}

// Documents of a graph whose tensors are ragged; else 0.
int64_t DocumentsOf(const std::vector<const Descriptor*>& operations) {
  for (const Descriptor* tensor : TensorsOfPlan(operations)) {
    if (tensor->IsRagged()) return tensor->Get<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  }
  return 0;
}

int64_t CountOf(const std::vector<const Descriptor*>& operations,
                cudnnBackendDescriptorType_t type) {
  return std::count_if(operations.begin(), operations.end(),
                       [&](const Descriptor* operation) { return operation->type == type; });
}

bool IsVectorOf(const Descriptor& tensor, int64_t count, cudnnDataType_t type) {
  return tensor.All<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS) ==
             std::vector<int64_t>{count, 1, 1, 1} &&
         tensor.Get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE) == type &&
         tensor.Get<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) == 0;
}

// Whether a graph of documents is one: all tensors of theirs in memory are ragged, by one more
// offset than there are documents; a padding mask goes by their lengths, and so do all products.
bool TakesDocuments(const std::vector<const Descriptor*>& operations) {
  const int64_t documents = DocumentsOf(operations);
  if (documents == 0) return true;
  int64_t comparisons = 0;
  for (const Descriptor* operation : operations) {
    if (operation->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
      const Descriptor& kind = operation->At(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
      if (kind.Get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE) == CUDNN_POINTWISE_CMP_LT) {
        const Descriptor& lengths = operation->At(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
        if (!IsVectorOf(lengths, documents, CUDNN_DATA_INT32)) return false;
        ++comparisons;
      }
    }
    if (operation->type != CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) continue;
    const bool cols = operation->Has(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC);
    const bool products = operation->Has(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC);
    if (!operation->Has(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC) || cols == products) {
      return false;
    }
  }
  for (const Descriptor* tensor : TensorsOfPlan(operations)) {
    const int64_t batch = tensor->Get<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
    if (tensor->IsRagged()) {
      if (!IsVectorOf(tensor->At(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC), documents + 1,
                      CUDNN_DATA_INT64)) {
        return false;
      }
    } else if (tensor->Get<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) == 0 &&
               tensor->Get<char>(CUDNN_ATTR_TENSOR_IS_BY_VALUE) == 0 &&
               !IsVectorOf(*tensor, batch, CUDNN_DATA_INT32)) {
      return false;
    }
  }
  return comparisons == 2;
}

// Returns the bytes that sm_90's kernels take: inner tensors that are reduced over heads lie in
// memory, and descriptors of the copies of each document.
int64_t WorkspaceOf(const Descriptor& plan) {
  const std::vector<const Descriptor*> operations = OperationsOf(plan);
  const int64_t documents = DocumentsOf(operations);
  int64_t bytes = 256 + plan.At(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).more_workspace_bytes;
  if (documents > 0) {
    const bool backward = CountOf(operations, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) > 2;
    bytes += backward ? 896 + 448 * documents : 512 + 256 * ((documents + 63) / 64 * 64);
  }
  for (const Descriptor* operation : operations) {
    if (operation->type != CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) continue;
    const Descriptor& x = operation->At(CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
    const auto type = x.Get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    if (type == CUDNN_DATA_FLOAT || x.Get<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) == 0) continue;
    int64_t elements = 1;
    for (const int64_t dim : x.All<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS)) elements *= dim;
    bytes += elements * ElementBytes(type);
  }
  return bytes;
}

// An Execution is what is left of a call once it is queued: values on the host are those of the
// call.
struct Execution {
  std::vector<const Descriptor*> operations;
  void* workspace;
  size_t workspace_bytes;
  std::map<int64_t, void*> pointers = {};
  std::map<int64_t, float> host_values = {};

  // False if the pack lacks a tensor of the graph, or if one is not aligned as it says.
  bool TakeHostValues() {
    Tensors tensors;
    for (const Descriptor* operation : operations) {
      for (const cudnnBackendAttributeName_t name : TensorsOf(*operation)) {
        if (!operation->Has(name)) continue;
        const Descriptor& tensor = operation->At(name);
        if (!tensors.Take(tensor, pointers)) return false;
        if (tensor.Get<char>(CUDNN_ATTR_TENSOR_IS_BY_VALUE) == 0) continue;
        const auto id = tensor.Get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
        std::memcpy(&host_values[id], pointers.at(id), sizeof(float));
        if (IsMistaken(WeftCudnnMistake::kDoublesValue, id)) host_values[id] *= 2;
      }
    }
    return true;
  }

  void Run() const {
    std::map<int64_t, float> values = host_values;
    std::map<int64_t, void*> own = pointers;
    for (auto& [id, value] : values) own[id] = &value;
    std::memset(workspace, 0xFF, workspace_bytes);
    Tensors tensors;
    for (const Descriptor* tensor : TensorsOfPlan(operations)) tensors.Take(*tensor, own);
    if (!FindDocuments(tensors) || !tensors.LieApart(ResultsOf(operations))) {
      ++state.impossible_runs;
      std::fprintf(stderr, "fake cuDNN: tensors overlap, or documents are no rows: not computed\n");
      return;
    }
    for (const Descriptor* operation : operations) {
      if (operation->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
        Pointwise(*operation, tensors);
      } else if (operation->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
        Reduce(*operation, tensors);
      } else if (operation->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
        MatMul(*operation, tensors);
      } else {
        Reshape(*operation, tensors);
      }
    }
  }

 private:
  // Finds documents as the first product gives them: a document's queries and keys, which are as
  // many.
  bool FindDocuments(Tensors& tensors) const {
    const int64_t documents = DocumentsOf(operations);
    if (documents == 0) return true;
    const auto product =
        std::find_if(operations.begin(), operations.end(), [](const Descriptor* operation) {
          return operation->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
        });
    const auto lengths_of = [&](cudnnBackendAttributeName_t name) {
      return ExtentsOf(**product, tensors, name, documents, 0);
    };
    const auto lengths = lengths_of(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC);
    const int64_t most = tensors.Of(**product, CUDNN_ATTR_OPERATION_MATMUL_CDESC).dims[2];
    bool fits = lengths == lengths_of(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC);
    for (const int64_t length : lengths) fits = fits && length >= 0 && length <= most;
    std::map<const Descriptor*, int64_t> sharing;  // of what is added up over heads
    for (const Descriptor* operation : operations) {
      if (operation->type != CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) continue;
      sharing[&operation->At(CUDNN_ATTR_OPERATION_REDUCTION_XDESC)] =
          tensors.Of(*operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC).dims[1] /
          tensors.Of(*operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC).dims[1];
    }
    for (const Descriptor* tensor : TensorsOfPlan(operations)) {
      if (!tensor->IsRagged()) continue;
      const auto found = sharing.find(tensor);
      const int64_t multiple = found == sharing.end() ? 1 : found->second;
      fits = tensors.FindStarts(*tensor, lengths, multiple) && fits;
    }
    return fits;
  }
};

Descriptor& AsDescriptor(cudnnBackendDescriptor_t descriptor) {
  return *static_cast<Descriptor*>(descriptor);
}

}  // namespace

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

size_t cudnnGetCudartVersion() {
  return 13000;
}
size_t cudnnGetVersion() {
  return 91900;
}
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_EMULATED";
}
void cudnnGetLastErrorString(char* message, size_t size) {
  std::snprintf(message, size, "as it was told to");
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (state.refuses_handles) return CUDNN_STATUS_NOT_SUPPORTED;
  *handle = new cudnnContext;
  ++state.handles;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  --state.handles;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr || stream == nullptr) return CUDNN_STATUS_BAD_PARAM;
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  *descriptor = new Descriptor{.type = type, .attributes = {}};
  ++state.descriptors;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete &AsDescriptor(descriptor);
  --state.descriptors;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* values) {
  Descriptor& to = AsDescriptor(descriptor);
  if (to.finalized) return CUDNN_STATUS_BAD_PARAM;
  const auto bytes = static_cast<size_t>(count) * BytesOf(type);
  const char* const from = static_cast<const char*>(values);
  to.attributes[name].assign(from, from + bytes);
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) return CUDNN_STATUS_SUCCESS;
  for (const Descriptor* part : to.All<const Descriptor*>(name)) {
    if (part == nullptr || !part->finalized) return CUDNN_STATUS_BAD_PARAM;
  }
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  Descriptor& made = AsDescriptor(descriptor);
  for (const cudnnBackendAttributeName_t name : RequiredOf(made)) {
    if (!made.Has(name)) return CUDNN_STATUS_BAD_PARAM;
  }
  if (made.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    if (state.refuses_plans || !TakesDocuments(OperationsOf(made))) {
      return CUDNN_STATUS_NOT_SUPPORTED;
    }
    ++state.plans;
  }
  made.finalized = true;
  return CUDNN_STATUS_SUCCESS;
}
// Two algorithms are proposed for each graph.
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t /*type*/, int64_t room,
                                       int64_t* count, void* values) {
  const Descriptor& from = AsDescriptor(descriptor);
  if (!from.finalized) return CUDNN_STATUS_BAD_PARAM;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
    *count = 1;
    const int64_t bytes = WorkspaceOf(from);
    std::memcpy(values, &bytes, sizeof(bytes));
    return CUDNN_STATUS_SUCCESS;
  }
  *count = 2;
  for (int64_t i = 0; i < std::min(room, *count); ++i) {
    Descriptor& config = AsDescriptor(static_cast<cudnnBackendDescriptor_t*>(values)[i]);
    config.attributes = from.attributes;
    config.more_workspace_bytes = state.more_workspace_bytes[i];
    config.finalized = true;
  }
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  if (handle == nullptr || state.fails_runs) return CUDNN_STATUS_EXECUTION_FAILED;
  const Descriptor& given = AsDescriptor(pack);
  const auto ids = given.All<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto data = given.All<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  Execution execution = {.operations = OperationsOf(AsDescriptor(plan)),
                         .workspace = given.Get<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE),
                         .workspace_bytes = static_cast<size_t>(WorkspaceOf(AsDescriptor(plan)))};
  for (size_t i = 0; i < ids.size(); ++i) execution.pointers[ids[i]] = data[i];
  if (!execution.TakeHostValues()) return CUDNN_STATUS_BAD_PARAM;
  const cudaError_t queued = weft::emulation::QueueWork(
      handle->stream, [execution = std::move(execution)] { execution.Run(); });
  if (queued != cudaSuccess) return CUDNN_STATUS_EXECUTION_FAILED;
  ++state.runs;
  return CUDNN_STATUS_SUCCESS;
}

WeftFakeCudnn* WeftFakeCudnnState() {
  return &state;
}
