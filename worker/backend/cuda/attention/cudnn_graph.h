// A graph of operations as cuDNN's backend interface describes it, and the plan that cuDNN makes of
// it: one fused kernel, compiled at run time, if the library knows the graph as a whole. Header of
// the few operations that attention is made of; tensors have four dims.
#pragma once
#include <cudnn.h>

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "worker/backend/cuda/attention/cudnn_library.h"

namespace weft {

// A plan is made for a target: a device that is open, or one that is described (for tests; cuDNN
// 9.11 or newer), for which code is generated and nothing runs.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  cudnnBackendDescriptor_t device_properties = nullptr;
};

using GraphDims = std::array<int64_t, 4>;

// Returns the strides of a dense tensor, the last dim the innermost.
GraphDims PackedStrides(const GraphDims& dims);

struct GraphTensor {
  cudnnBackendDescriptor_t descriptor = nullptr;
  GraphDims dims = {};
};

// A pointer for each tensor that is not inside the graph, by the id it was given.
using GraphPointers = std::vector<std::pair<int64_t, const void*>>;

// Made in order: tensors, operations, plan. The first call that fails is the graph's status, the
// later ones then do nothing.
class CudnnGraph {
 public:
  explicit CudnnGraph(const CudnnLibrary& library) : library_(library) {}
  CudnnGraph(const CudnnGraph&) = delete;
  CudnnGraph& operator=(const CudnnGraph&) = delete;
  ~CudnnGraph();

  // In device memory, aligned to 16 bytes; id > 0. `offsets`: a tensor of one more elements than
  // the first dim has; each of these starts so many elements behind the pointer, and what its
  // stride says is of no account. No descriptor: none.
  GraphTensor Outer(int64_t id, const GraphDims& dims, const GraphDims& strides,
                    cudnnDataType_t type, const GraphTensor& offsets = {});
  // The same of `count` elements that follow each other, a dim each of the first.
  GraphTensor Vector(int64_t id, int64_t count, cudnnDataType_t type) {
    return Outer(id, {count, 1, 1, 1}, {1, 1, 1, 1}, type);
  }
  // One float in host memory, or one integer of 32 bits.
  GraphTensor HostFloat(int64_t id) { return HostValue(id, CUDNN_DATA_FLOAT); }
  GraphTensor HostInteger(int64_t id) { return HostValue(id, CUDNN_DATA_INT32); }
  // Between two operations, in no memory of ours.
  GraphTensor Inner(const GraphDims& dims, const GraphDims& strides, cudnnDataType_t type,
                    const GraphTensor& offsets = {});
  GraphTensor Inner(const GraphDims& dims, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return Inner(dims, PackedStrides(dims), type);
  }

  // y = mode(x), mode(x, b), or CUDNN_POINTWISE_BINARY_SELECT: choice ? x : b. Of CMP_GE and
  // BINARY_SELECT the operands' dims equal y's or are 1. Returns y.
  struct Operands {
    GraphTensor x, b, choice;
  };
  GraphTensor Pointwise(cudnnPointwiseMode_t mode, const Operands& in, const GraphTensor& y,
                        cudnnDataType_t math = CUDNN_DATA_FLOAT, int64_t axis = -1);
  // The same into a tensor of the graph's own, of x's dims, in single precision.
  GraphTensor Pointwise(cudnnPointwiseMode_t mode, const Operands& in) {
    return Pointwise(mode, in, Inner(in.x.dims));
  }
  // Over the dims in which y is smaller than x: all of them, or each run of neighbours.
  GraphTensor Reduce(cudnnReduceTensorOp_t op, const GraphTensor& x, const GraphTensor& y);
  // c = a b, by the last two dims; heads of b that are fewer are shared by neighbours of a. Of
  // `extents` each that has a descriptor says for each element of the first dim how many rows of a,
  // columns of b and elements of their products are there: a Vector of 32-bit integers.
  struct Extents {
    GraphTensor rows, columns, products;
  };
  GraphTensor MatMul(const GraphTensor& a, const GraphTensor& b, const GraphTensor& c,
                     const Extents& extents = {});
  // y is x's memory under other dims or strides.
  GraphTensor Reshape(const GraphTensor& x, const GraphTensor& y);

  // Takes the first of the plans that cuDNN's heuristic proposes, and that can be compiled, whose
  // workspace is at most `room_bytes`; if each takes more, the one that takes least. Unimplemented,
  // with cuDNN's words, if none can be compiled.
  BackendStatus Build(const CudnnTarget& target, int64_t room_bytes);
  // REQUIRES: Build succeeded.
  int64_t workspace_bytes() const { return workspace_bytes_; }
  BackendStatus Run(cudnnHandle_t handle, const GraphPointers& pointers, void* workspace) const;

  int operations() const { return static_cast<int>(operations_.size()); }

 private:
  struct TensorKind {
    bool is_inner = false;
    bool is_host_value = false;
    cudnnBackendDescriptor_t offsets = nullptr;
  };

  cudnnBackendDescriptor_t Make(cudnnBackendDescriptorType_t type);
  void Set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
           cudnnBackendAttributeType_t type, int64_t count, const void* values);
  void Set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
           cudnnBackendDescriptor_t value);
  void Finalize(cudnnBackendDescriptor_t descriptor, const char* what);
  void Check(cudnnStatus_t code, const char* what);
  void Drop(cudnnBackendDescriptor_t descriptor);
  GraphTensor HostValue(int64_t id, cudnnDataType_t type);
  GraphTensor Tensor(int64_t id, const GraphDims& dims, const GraphDims& strides,
                     cudnnDataType_t type, TensorKind kind);
  cudnnBackendDescriptor_t Graph(const CudnnTarget& target);
  std::vector<cudnnBackendDescriptor_t> Proposals(const CudnnTarget& target,
                                                  cudnnBackendDescriptor_t graph);

  const CudnnLibrary& library_;
  BackendStatus status_;
  std::vector<cudnnBackendDescriptor_t> descriptors_;  // in the order in which they were made
  std::vector<cudnnBackendDescriptor_t> operations_;
  int64_t next_inner_id_ = 1000;  // above those that callers give
  cudnnBackendDescriptor_t plan_ = nullptr;
  int64_t workspace_bytes_ = 0;
};

}  // namespace weft
