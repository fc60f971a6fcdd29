#include "worker/backend/cuda/attention/cudnn_graph.h"

#include <algorithm>

#include "worker/backend/failure.h"

namespace weft {
namespace {

constexpr int64_t kDeviceAlignment = 16;

}  // namespace

GraphDims PackedStrides(const GraphDims& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

CudnnGraph::~CudnnGraph() {
  for (auto it = descriptors_.rbegin(); it != descriptors_.rend(); ++it) {
    library_.destroy_descriptor(*it);
  }
}

void CudnnGraph::Check(cudnnStatus_t code, const char* what) {
  if (status_.ok()) status_ = library_.ToStatus(code, what);
}

cudnnBackendDescriptor_t CudnnGraph::Make(cudnnBackendDescriptorType_t type) {
  if (!status_.ok()) return nullptr;
  cudnnBackendDescriptor_t descriptor = nullptr;
  Check(library_.create_descriptor(type, &descriptor), "making a descriptor");
  if (descriptor != nullptr) descriptors_.push_back(descriptor);
  return descriptor;
}

void CudnnGraph::Drop(cudnnBackendDescriptor_t descriptor) {
  library_.destroy_descriptor(descriptor);
  descriptors_.erase(std::find(descriptors_.begin(), descriptors_.end(), descriptor));
}

void CudnnGraph::Set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                     cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  if (!status_.ok()) return;
  Check(library_.set_attribute(descriptor, name, type, count, values), "describing a graph");
}

void CudnnGraph::Set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                     cudnnBackendDescriptor_t value) {
  Set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void CudnnGraph::Finalize(cudnnBackendDescriptor_t descriptor, const char* what) {
  if (status_.ok()) Check(library_.finalize(descriptor), what);
}

GraphTensor CudnnGraph::Tensor(int64_t id, const GraphDims& dims, const GraphDims& strides,
                               cudnnDataType_t type, TensorKind kind) {
  const GraphTensor tensor = {Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR), dims};
  const int64_t alignment = kind.is_host_value ? int64_t{sizeof(float)} : kDeviceAlignment;
  Set(tensor.descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  Set(tensor.descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.data());
  Set(tensor.descriptor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data());
  Set(tensor.descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
  Set(tensor.descriptor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  Set(tensor.descriptor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &kind.is_inner);
  Set(tensor.descriptor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &kind.is_host_value);
  if (kind.offsets != nullptr) {
    Set(tensor.descriptor, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, kind.offsets);
  }
  Finalize(tensor.descriptor, "describing a tensor");
  return tensor;
}

GraphTensor CudnnGraph::Outer(int64_t id, const GraphDims& dims, const GraphDims& strides,
                              cudnnDataType_t type, const GraphTensor& offsets) {
  return Tensor(id, dims, strides, type, {.offsets = offsets.descriptor});
}

GraphTensor CudnnGraph::HostValue(int64_t id, cudnnDataType_t type) {
  return Tensor(id, {1, 1, 1, 1}, {1, 1, 1, 1}, type, {.is_host_value = true});
}

GraphTensor CudnnGraph::Inner(const GraphDims& dims, const GraphDims& strides, cudnnDataType_t type,
                              const GraphTensor& offsets) {
  return Tensor(next_inner_id_++, dims, strides, type,
                {.is_inner = true, .offsets = offsets.descriptor});
}

GraphTensor CudnnGraph::Pointwise(cudnnPointwiseMode_t mode, const Operands& in,
                                  const GraphTensor& y, cudnnDataType_t math, int64_t axis) {
  cudnnBackendDescriptor_t kind = Make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  Set(kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  Set(kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &math);
  if (axis >= 0) Set(kind, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
  Finalize(kind, "describing a pointwise operation");
  cudnnBackendDescriptor_t operation = Make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  Set(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
  Set(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, in.x.descriptor);
  if (in.b.descriptor != nullptr) {
    Set(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, in.b.descriptor);
  }
  if (in.choice.descriptor != nullptr) {
    Set(operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, in.choice.descriptor);
  }
  Set(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y.descriptor);
  Finalize(operation, "describing a pointwise operation");
  operations_.push_back(operation);
  return y;
}

GraphTensor CudnnGraph::Reduce(cudnnReduceTensorOp_t op, const GraphTensor& x,
                               const GraphTensor& y) {
  const cudnnDataType_t math = CUDNN_DATA_FLOAT;
  cudnnBackendDescriptor_t kind = Make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  Set(kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
  Set(kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &math);
  Finalize(kind, "describing a reduction");
  cudnnBackendDescriptor_t operation = Make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  Set(operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
  Set(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.descriptor);
  Set(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y.descriptor);
  Finalize(operation, "describing a reduction");
  operations_.push_back(operation);
  return y;
}

GraphTensor CudnnGraph::MatMul(const GraphTensor& a, const GraphTensor& b, const GraphTensor& c,
                               const Extents& extents) {
  const cudnnDataType_t math = CUDNN_DATA_FLOAT;
  cudnnBackendDescriptor_t kind = Make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  Set(kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &math);
  Finalize(kind, "describing a product");
  cudnnBackendDescriptor_t operation = Make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  Set(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
  Set(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.descriptor);
  Set(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.descriptor);
  Set(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c.descriptor);
  const auto set_extent = [&](cudnnBackendAttributeName_t name, const GraphTensor& extent) {
    if (extent.descriptor != nullptr) Set(operation, name, extent.descriptor);
  };
  set_extent(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, extents.rows);
  set_extent(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, extents.columns);
  set_extent(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, extents.products);
  Finalize(operation, "describing a product");
  operations_.push_back(operation);
  return c;
}

GraphTensor CudnnGraph::Reshape(const GraphTensor& x, const GraphTensor& y) {
  cudnnBackendDescriptor_t operation = Make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  Set(operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.descriptor);
  Set(operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y.descriptor);
  Finalize(operation, "describing a reshape");
  operations_.push_back(operation);
  return y;
}

// Best first.
std::vector<cudnnBackendDescriptor_t> CudnnGraph::Proposals(const CudnnTarget& target,
                                                            cudnnBackendDescriptor_t graph) {
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  cudnnBackendDescriptor_t heuristic = Make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  Set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  Set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (target.device_properties != nullptr) {
    Set(heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target.device_properties);
  }
  Finalize(heuristic, "asking for algorithms");
  const auto get = [&](int64_t room, int64_t* count, cudnnBackendDescriptor_t* found) {
    if (!status_.ok()) return;
    Check(library_.get_attribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, room, count, found),
          "asking for algorithms");
  };
  int64_t count = 0;
  get(0, &count, nullptr);
  std::vector<cudnnBackendDescriptor_t> proposals;
  for (int64_t i = 0; i < count; ++i) {
    proposals.push_back(Make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
  }
  if (count > 0) get(count, &count, proposals.data());
  if (!status_.ok()) count = 0;
  proposals.resize(static_cast<size_t>(count));
  return proposals;
}

cudnnBackendDescriptor_t CudnnGraph::Graph(const CudnnTarget& target) {
  cudnnBackendDescriptor_t graph = Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (target.handle != nullptr) {
    Set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
  }
  Set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
      static_cast<int64_t>(operations_.size()), operations_.data());
  Finalize(graph, "describing a graph");
  return graph;
}

BackendStatus CudnnGraph::Build(const CudnnTarget& target, int64_t room_bytes) {
  const std::vector<cudnnBackendDescriptor_t> proposals = Proposals(target, Graph(target));
  BackendStatus refused = Failure(kUnimplemented, "cuDNN knows no algorithm for it");
  for (cudnnBackendDescriptor_t proposal : proposals) {
    cudnnBackendDescriptor_t plan = Make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    Set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, proposal);
    if (target.handle != nullptr) {
      Set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
    } else {
      Set(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target.device_properties);
    }
    if (!status_.ok()) return status_;
    if (const cudnnStatus_t code = library_.finalize(plan); code != CUDNN_STATUS_SUCCESS) {
      refused = library_.ToStatus(code, "compiling a plan");
      refused.code = kUnimplemented;
      Drop(plan);
      continue;
    }
    int64_t found = 0;
    int64_t bytes = 0;
    Check(library_.get_attribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                 1, &found, &bytes),
          "asking for the size of a workspace");
    if (!status_.ok()) return status_;
    if (plan_ != nullptr && bytes >= workspace_bytes_) {
      Drop(plan);
      continue;
    }
    if (plan_ != nullptr) Drop(plan_);
    plan_ = plan;
    workspace_bytes_ = bytes;
    if (bytes <= room_bytes) break;
  }
  if (!status_.ok()) return status_;
  return plan_ != nullptr ? BackendStatus{} : refused;
}

BackendStatus CudnnGraph::Run(cudnnHandle_t handle, const GraphPointers& pointers,
                              void* workspace) const {
  std::vector<int64_t> ids;
  std::vector<const void*> data;
  for (const auto& [id, pointer] : pointers) {
    ids.push_back(id);
    data.push_back(pointer);
  }
  const auto count = static_cast<int64_t>(ids.size());
  cudnnBackendDescriptor_t pack = nullptr;
  cudnnStatus_t code = library_.create_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
  const auto set = [&](cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                       int64_t values, const void* from) {
    if (code != CUDNN_STATUS_SUCCESS) return;
    code = library_.set_attribute(pack, name, type, values, from);
  };
  set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data());
  set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, data.data());
  set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  if (code == CUDNN_STATUS_SUCCESS) code = library_.finalize(pack);
  if (code == CUDNN_STATUS_SUCCESS) code = library_.execute(handle, plan_, pack);
  const BackendStatus status = library_.ToStatus(code, "running a plan");
  if (pack != nullptr) library_.destroy_descriptor(pack);
  return status;
}

}  // namespace weft
