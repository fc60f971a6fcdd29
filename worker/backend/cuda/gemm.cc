#include "worker/backend/cuda/gemm.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "worker/backend/cuda/cuda_status.h"
#include "worker/backend/cuda/fastest.h"
#include "worker/backend/cuda/graphs.h"
#include "worker/backend/failure.h"

namespace weft {
namespace {

BackendStatus FromCublas(cublasStatus_t code, const char* what) {
  if (code == CUBLAS_STATUS_SUCCESS) return {};
  return Failure(
      code == CUBLAS_STATUS_NOT_INITIALIZED ? kUnavailable : kInternal,
      "cuBLASLt: %s failed: %s; a driver that is too old or a full device show like this", what,
      cublasLtGetStatusName(code));
}

cudaDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
      return CUDA_R_16BF;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kE4m3:
      return CUDA_R_8F_E4M3;
    case DType::kE5m2:
      return CUDA_R_8F_E5M2;
    default:
      return CUDA_R_32F;
  }
}

// InvalidArgument below compute capability 8.9.
BackendStatus CheckFp8() {
  int index = 0;
  cudaDeviceProp properties;
  cudaError_t code = cudaGetDevice(&index);
  if (code == cudaSuccess) code = cudaGetDeviceProperties(&properties, index);
  if (code != cudaSuccess) return FromCuda(code, "cudaGetDeviceProperties");
  constexpr int kLeast = 89;
  if (10 * properties.major + properties.minor >= kLeast) return {};
  return Failure(kInvalidArgument,
                 "training.mixed_precision: fp8 needs a device of compute capability 8.9 or later; "
                 "%.100s has %d.%d: use bf16",
                 properties.name, properties.major, properties.minor);
}

cublasLtEpilogue_t EpilogueOf(const GemmCall& call) {
  const bool has_bias = call.bias.data != nullptr;
  switch (call.gelu) {
    case GemmGelu::kNone:
      return has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    case GemmGelu::kForward:
      return has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case GemmGelu::kGradient:
      return CUBLASLT_EPILOGUE_DGELU;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

// What an algorithm was chosen for. Alignment counts: a wider one allows faster kernels.
using Key = std::tuple<int64_t, int64_t, int64_t, bool, bool, bool, DType, DType, DType, int, bool,
                       cublasLtEpilogue_t>;

// Of pointers, in bytes, up to `most`.
constexpr int kWidestAlignment = 256;  // that the library asks about
int AlignmentOf(const GemmCall& call, int most = kWidestAlignment) {
  auto address = static_cast<uintptr_t>(most);
  for (const View& operand : {call.a, call.b, call.c, call.bias, call.residual, call.h}) {
    address |= reinterpret_cast<uintptr_t>(operand.data);
  }
  return static_cast<int>(address & (~address + 1));
}

int64_t DepthOf(const GemmCall& call) {
  return call.transpose_a == Transpose::kYes ? call.a.rows : call.a.cols;
}

Key KeyOf(const GemmCall& call, int alignment) {
  return {call.c.rows,
          call.c.cols,
          DepthOf(call),
          call.transpose_a == Transpose::kYes,
          call.transpose_b == Transpose::kYes,
          call.beta != 0,
          call.a.dtype,
          call.b.dtype,
          call.c.dtype,
          alignment,
          call.residual.data != nullptr,
          EpilogueOf(call)};
}

cublasOperation_t OperationOf(Transpose transpose) {
  return transpose == Transpose::kYes ? CUBLAS_OP_T : CUBLAS_OP_N;
}

constexpr int kVectorBytes = 16;  // of the kernels' accesses

// What the library asks of an epilogue's operands. It may refuse others still.
bool IsFusible(const GemmCall& call) {
  constexpr int64_t kVectorElements = 8;
  return call.c.dtype != DType::kF32 && call.a.dtype == call.c.dtype && call.c.elements() > 0 &&
         AlignmentOf(call) >= kVectorBytes && call.c.cols % kVectorElements == 0;
}

// How the library is told of a product. It counts columns first: a row-major [rows, cols] matrix is
// to it a [cols, rows] one, and c = op(a) op(b) becomes c' = op(b)' op(a)' with the operands
// exchanged.
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

  // Of the first call.c.rows rows of the product of a and b.
  BackendStatus Describe(const GemmCall& call) {
    const bool flip_a = call.transpose_a == Transpose::kYes;
    const int64_t rows = call.c.rows;
    const int64_t depth = DepthOf(call);
    cublasStatus_t code = cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const auto then = [&](const auto& step) {
      if (code == CUBLAS_STATUS_SUCCESS) code = step();
    };
    then([&] { return Set(CUBLASLT_MATMUL_DESC_TRANSA, OperationOf(call.transpose_b)); });
    then([&] { return Set(CUBLASLT_MATMUL_DESC_TRANSB, OperationOf(call.transpose_a)); });
    then([&] {
      return flip_a ? Layout(call.a, depth, rows, &a_) : Layout(call.a, rows, depth, &a_);
    });
    then([&] { return Layout(call.b, call.b.rows, call.b.cols, &b_); });
    then([&] { return Layout(call.c, rows, call.c.cols, &c_); });
    if (call.has_epilogue()) {
      then([&] { return Set(CUBLASLT_MATMUL_DESC_EPILOGUE, EpilogueOf(call)); });
    }
    then([&] { return SetPointers(call); });
    if (call.gelu != GemmGelu::kNone) {
      then([&] { return Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, call.h.cols); });
    }
    return FromCublas(code, "describing a product");
  }

  // What the library proposes for it, its favourite first; at most as many as there is room for,
  // at least one.
  BackendStatus Propose(cublasLtHandle_t handle, int alignment, uint32_t reductions,
                        cublasLtMatmulHeuristicResult_t* proposals, int room, int* count) const {
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
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, bytes);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, bytes);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, bytes);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, bytes);
    if (code == CUBLAS_STATUS_SUCCESS) {
      code = cublasLtMatmulAlgoGetHeuristic(handle, product_, b_, a_, c_, c_, preference, room,
                                            proposals, count);
    }
    cublasLtMatmulPreferenceDestroy(preference);
    if (code == CUBLAS_STATUS_SUCCESS) {
      const auto* const end = std::remove_if(proposals, proposals + *count, [](const auto& each) {
        return each.state != CUBLAS_STATUS_SUCCESS;
      });
      *count = static_cast<int>(end - proposals);
      if (*count == 0) code = CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return FromCublas(code, "choosing an algorithm");
  }

  cublasStatus_t Run(cublasLtHandle_t handle, const GemmCall& call,
                     const cublasLtMatmulAlgo_t& algorithm, void* workspace,
                     cudaStream_t stream) const {
    if (const cublasStatus_t code = SetPointers(call); code != CUBLAS_STATUS_SUCCESS) return code;
    const float alpha = 1;
    const bool adds = call.residual.data != nullptr;
    const float beta = adds ? 1 : call.beta;
    return cublasLtMatmul(handle, product_, &alpha, call.b.data, b_, call.a.data, a_, &beta,
                          adds ? call.residual.data : call.c.data, c_, call.c.data, c_, &algorithm,
                          workspace, static_cast<size_t>(kGemmWorkspaceBytes), stream);
  }

 private:
  // Of the first `rows` rows and `cols` columns of x.
  static cublasStatus_t Layout(View x, int64_t rows, int64_t cols, cublasLtMatrixLayout_t* layout) {
    return cublasLtMatrixLayoutCreate(layout, TypeOf(x.dtype), static_cast<uint64_t>(cols),
                                      static_cast<uint64_t>(rows), x.cols);
  }

  template <typename Value>
  cublasStatus_t Set(cublasLtMatmulDescAttributes_t attribute, const Value& value) const {
    return cublasLtMatmulDescSetAttribute(product_, attribute, &value, sizeof(value));
  }
  // Calls that share an algorithm have theirs each; proposals go by how they are aligned.
  cublasStatus_t SetPointers(const GemmCall& call) const {
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
    if (call.bias.data != nullptr) code = Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias.data);
    if (code == CUBLAS_STATUS_SUCCESS && call.gelu != GemmGelu::kNone) {
      code = Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.h.data);
    }
    if (call.scale_a == nullptr) return code;
    // The library's a is our b. Its fast mode, which adds up in fewer bits than f32 has, stays off.
    if (code == CUBLAS_STATUS_SUCCESS) {
      code = Set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, call.scale_b);
    }
    if (code == CUBLAS_STATUS_SUCCESS) {
      code = Set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, call.scale_a);
    }
    return code;
  }

  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
};

class CublasGemm final : public Gemm {
 public:
  explicit CublasGemm(const GemmOptions& options) : options_(options) {
    none_.status = Failure(kInternal, "a product of a new shape while a graph is captured");
  }
  ~CublasGemm() override {
    chosen_.clear();
    for (cudaEvent_t event : {begun_, ended_}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
    if (handle_ != nullptr) cublasLtDestroy(handle_);
  }

  BackendStatus Open() {
    if (options_.fp8) {
      if (BackendStatus s = CheckFp8(); !s.ok()) return s;
    }
    for (cudaEvent_t* event : {&begun_, &ended_}) {
      const cudaError_t code = cudaEventCreate(event);
      if (code != cudaSuccess) return FromCuda(code, "making an event");
    }
    return FromCublas(cublasLtCreate(&handle_), "cublasLtCreate");
  }

  bool Fuses(const GemmCall& call) override {
    return IsFusible(call) && ChosenFor(call).status.ok();
  }

  BackendStatus Run(const GemmCall& call) override {
    if (call.c.elements() == 0) return {};
    const Chosen& chosen = ChosenFor(call);
    if (!chosen.status.ok()) return chosen.status;
    return FromCublas(RunOnce(chosen.product, call, chosen.algorithm), "a product");
  }

 private:
  static constexpr int kMostProposals = 8;

  struct Chosen {
    Product product;
    cublasLtMatmulAlgo_t algorithm = {};
    BackendStatus status;  // why there is none
  };

  const Chosen& ChosenFor(const GemmCall& call) {
    const Key key = KeyOf(call, Promised(call));
    if (const auto found = chosen_.find(key); found != chosen_.end()) return *found->second;
    if (options_.graphs != nullptr && options_.graphs->Refuses("choosing a product's algorithm")) {
      return none_;
    }
    std::unique_ptr<Chosen>& chosen = chosen_[key];
    chosen = std::make_unique<Chosen>();
    chosen->status = Choose(call, chosen.get());
    return *chosen;
  }

  cublasStatus_t RunOnce(const Product& product, const GemmCall& call,
                         const cublasLtMatmulAlgo_t& algorithm) const {
    return product.Run(handle_, call, algorithm, options_.workspace, options_.stream);
  }

  BackendStatus Choose(const GemmCall& call, Chosen* chosen) {
    if (BackendStatus s = chosen->product.Describe(call); !s.ok()) return s;
    std::array<cublasLtMatmulHeuristicResult_t, kMostProposals> proposals = {};
    int count = 0;
    if (BackendStatus s = chosen->product.Propose(handle_, Promised(call), ReductionsOf(call),
                                                  proposals.data(), kMostProposals, &count);
        !s.ok()) {
      return s;
    }
    chosen->algorithm = proposals[0].algo;
    const GemmCall trial = TrialOf(call);
    if (count == 1 || trial.c.rows == 0) return {};
    Product product;
    if (BackendStatus s = product.Describe(trial); !s.ok()) return s;
    const auto time_runs = [&](int way, int runs) {
      return TimeRuns(product, trial, proposals[static_cast<size_t>(way)].algo, runs);
    };
    const int way =
        options_.deterministic ? FirstWay(count, time_runs) : FastestWay(count, time_runs);
    if (way >= 0) {
      chosen->algorithm = proposals[static_cast<size_t>(way)].algo;
    } else if (call.has_epilogue()) {
      return FromCublas(CUBLAS_STATUS_NOT_SUPPORTED, "each algorithm proposed");
    }
    return {};
  }

  // How wide the library may take a call's operands to be aligned. A deterministic device promises
  // what a vector takes and no more: so where the arena has placed them does not choose.
  int Promised(const GemmCall& call) const {
    return AlignmentOf(call, options_.deterministic ? kVectorBytes : kWidestAlignment);
  }

  // Parts of a sum over k that are added in the type of a 16-bit c would be rounded each, so not
  // there; in place, they are added in an order of which the library promises only that there is
  // one.
  uint32_t ReductionsOf(const GemmCall& call) const {
    return options_.deterministic || call.c.dtype != DType::kF32
               ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
               : CUBLASLT_REDUCTION_SCHEME_MASK;
  }

  // What is timed in the call's place. A c that is added to is not touched: as many of its rows as
  // fit into the scratch memory stand for all.
  GemmCall TrialOf(const GemmCall& call) const {
    if (call.beta == 0) return call;
    constexpr int64_t kTileRows = 256;  // whole tiles of the kernels
    const int64_t row_bytes = call.c.cols * ElementBytes(call.c.dtype);
    int64_t rows = std::min(call.c.rows, options_.scratch_bytes / row_bytes);
    if (rows < call.c.rows && rows > kTileRows) rows = rows / kTileRows * kTileRows;
    GemmCall trial = call;
    trial.c = {options_.scratch, rows, call.c.cols, call.c.dtype};
    return trial;
  }

  float TimeRuns(const Product& product, const GemmCall& call,
                 const cublasLtMatmulAlgo_t& algorithm, int runs) const {
    constexpr float kCannotRun = -1;
    if (cudaEventRecord(begun_, options_.stream) != cudaSuccess) return kCannotRun;
    for (int run = 0; run < runs; ++run) {
      if (RunOnce(product, call, algorithm) != CUBLAS_STATUS_SUCCESS) return kCannotRun;
    }
    float ms = kCannotRun;
    const bool timed = cudaEventRecord(ended_, options_.stream) == cudaSuccess &&
                       cudaEventSynchronize(ended_) == cudaSuccess &&
                       cudaEventElapsedTime(&ms, begun_, ended_) == cudaSuccess;
    return timed ? ms : kCannotRun;
  }

  const GemmOptions options_;
  cublasLtHandle_t handle_ = nullptr;
  cudaEvent_t begun_ = nullptr, ended_ = nullptr;
  std::map<Key, std::unique_ptr<Chosen>> chosen_;
  Chosen none_;
};

}  // namespace

BackendStatus OpenGemm(const GemmOptions& options, std::unique_ptr<Gemm>* gemm) {
  auto opened = std::make_unique<CublasGemm>(options);
  if (BackendStatus s = opened->Open(); !s.ok()) return s;
  *gemm = std::move(opened);
  return {};
}

}  // namespace weft
