#include "worker/backend/cuda/gemm.h"

#include <cublasLt.h>

#include <map>
#include <tuple>

#include "worker/backend/failure.h"

namespace weft {
namespace {

BackendStatus FromCublas(cublasStatus_t code, const char* what) {
  if (code == CUBLAS_STATUS_SUCCESS) return {};
  return Failure(
      code == CUBLAS_STATUS_NOT_INITIALIZED ? kUnavailable : kInternal,
      "cuBLASLt: %s failed: %s; a driver that is too old or a full device show like this", what,
      cublasLtGetStatusString(code));
}

cudaDataType_t TypeOf(DType dtype) {
  return dtype == DType::kBf16 ? CUDA_R_16BF : dtype == DType::kF16 ? CUDA_R_16F : CUDA_R_32F;
}

// What an algorithm was chosen for. Alignment counts: a wider one allows faster kernels.
using Key = std::tuple<int64_t, int64_t, int64_t, bool, bool, bool, DType, DType, int>;

// Of pointers, in bytes, up to the 256 that the library asks about.
int AlignmentOf(const GemmCall& call) {
  const auto address = reinterpret_cast<uintptr_t>(call.a.data) |
                       reinterpret_cast<uintptr_t>(call.b.data) |
                       reinterpret_cast<uintptr_t>(call.c.data) | 256U;
  return static_cast<int>(address & (~address + 1));
}

// The library counts columns first: a row-major [rows, cols] matrix is to it a [cols, rows] one,
// and c = op(a) op(b) becomes c' = op(b)' op(a)' with the operands exchanged.
class Product {
 public:
  Product() = default;
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  ~Product() {
    if (product_ != nullptr) cublasLtMatmulDescDestroy(product_);
    for (cublasLtMatrixLayout_t layout : {a_, b_, c_}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
  }

  BackendStatus Make(cublasLtHandle_t handle, const GemmCall& call) {
    if (cublasStatus_t code = Describe(call); code != CUBLAS_STATUS_SUCCESS) {
      return FromCublas(code, "describing a product");
    }
    return Choose(handle, AlignmentOf(call));
  }

  cublasStatus_t Run(cublasLtHandle_t handle, const GemmCall& call, void* workspace,
                     cudaStream_t stream) const {
    const float alpha = 1;
    return cublasLtMatmul(handle, product_, &alpha, call.b.data, b_, call.a.data, a_, &call.beta,
                          call.c.data, c_, call.c.data, c_, &algorithm_, workspace,
                          static_cast<size_t>(kGemmWorkspaceBytes), stream);
  }

 private:
  static cublasStatus_t Layout(View x, cublasLtMatrixLayout_t* layout) {
    return cublasLtMatrixLayoutCreate(layout, TypeOf(x.dtype), static_cast<uint64_t>(x.cols),
                                      static_cast<uint64_t>(x.rows), x.cols);
  }

  cublasStatus_t Set(cublasLtMatmulDescAttributes_t attribute, Transpose transpose) {
    const cublasOperation_t value = transpose == Transpose::kYes ? CUBLAS_OP_T : CUBLAS_OP_N;
    return cublasLtMatmulDescSetAttribute(product_, attribute, &value, sizeof(value));
  }

  cublasStatus_t Describe(const GemmCall& call) {
    cublasStatus_t code = cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (code == CUBLAS_STATUS_SUCCESS) code = Set(CUBLASLT_MATMUL_DESC_TRANSA, call.transpose_b);
    if (code == CUBLAS_STATUS_SUCCESS) code = Set(CUBLASLT_MATMUL_DESC_TRANSB, call.transpose_a);
    if (code == CUBLAS_STATUS_SUCCESS) code = Layout(call.a, &a_);
    if (code == CUBLAS_STATUS_SUCCESS) code = Layout(call.b, &b_);
    if (code == CUBLAS_STATUS_SUCCESS) code = Layout(call.c, &c_);
    return code;
  }

  BackendStatus Choose(cublasLtHandle_t handle, int alignment) {
    cublasLtMatmulPreference_t preference = nullptr;
    cublasStatus_t code = cublasLtMatmulPreferenceCreate(&preference);
    if (code != CUBLAS_STATUS_SUCCESS) return FromCublas(code, "choosing an algorithm");
    const auto workspace = static_cast<uint64_t>(kGemmWorkspaceBytes);
    const auto bytes = static_cast<uint32_t>(alignment);
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      if (code != CUBLAS_STATUS_SUCCESS) return;
      code = cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value));
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, bytes);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, bytes);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, bytes);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, bytes);
    cublasLtMatmulHeuristicResult_t result = {};
    int found = 0;
    if (code == CUBLAS_STATUS_SUCCESS) {
      code = cublasLtMatmulAlgoGetHeuristic(handle, product_, b_, a_, c_, c_, preference, 1,
                                            &result, &found);
    }
    cublasLtMatmulPreferenceDestroy(preference);
    if (code == CUBLAS_STATUS_SUCCESS && found == 0) code = CUBLAS_STATUS_NOT_SUPPORTED;
    algorithm_ = result.algo;
    return FromCublas(code, "choosing an algorithm");
  }

  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_ = {};
};

class CublasGemm final : public Gemm {
 public:
  CublasGemm(cudaStream_t stream, void* workspace) : stream_(stream), workspace_(workspace) {}
  ~CublasGemm() override {
    products_.clear();
    if (handle_ != nullptr) cublasLtDestroy(handle_);
  }

  BackendStatus Open() { return FromCublas(cublasLtCreate(&handle_), "cublasLtCreate"); }

  BackendStatus Run(const GemmCall& call) override {
    if (call.c.elements() == 0) return {};
    std::unique_ptr<Product>& product = products_[KeyOf(call)];
    if (product == nullptr) {
      auto made = std::make_unique<Product>();
      if (BackendStatus s = made->Make(handle_, call); !s.ok()) return s;
      product = std::move(made);
    }
    return FromCublas(product->Run(handle_, call, workspace_, stream_), "a product");
  }

 private:
  static Key KeyOf(const GemmCall& call) {
    const bool flip_a = call.transpose_a == Transpose::kYes;
    return {call.c.rows,
            call.c.cols,
            flip_a ? call.a.rows : call.a.cols,
            flip_a,
            call.transpose_b == Transpose::kYes,
            call.beta != 0,
            call.a.dtype,
            call.c.dtype,
            AlignmentOf(call)};
  }

  cudaStream_t stream_;
  void* workspace_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, std::unique_ptr<Product>> products_;
};

}  // namespace

BackendStatus OpenGemm(cudaStream_t stream, void* workspace, std::unique_ptr<Gemm>* gemm) {
  auto opened = std::make_unique<CublasGemm>(stream, workspace);
  if (BackendStatus s = opened->Open(); !s.ok()) return s;
  *gemm = std::move(opened);
  return {};
}

}  // namespace weft
