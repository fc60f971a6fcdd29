#include "worker/backend/cuda/gemm.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <tuple>

#include "worker/backend/cuda/runtime/cuda_status.h"
#include "worker/backend/cuda/runtime/fastest.h"
#include "worker/backend/cuda/runtime/graphs.h"
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

// Tells whether this library and device can never run an algorithm or a product. All else that
// fails may succeed another time, with more free memory for one.
bool CannotRun(cublasStatus_t code) {
  return code == CUBLAS_STATUS_NOT_SUPPORTED || code == CUBLAS_STATUS_INVALID_VALUE;
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
      // The library's b is our a.
      if (call.has_bias_gradient()) return CUBLASLT_EPILOGUE_BGRADB;
      return has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    case GemmGelu::kForward:
      return has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case GemmGelu::kGradient:
      return CUBLASLT_EPILOGUE_DGELU;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

// A Key is what an algorithm was chosen for.
using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, bool, bool, bool, DType, DType,
                       DType, int, bool, cublasLtEpilogue_t>;

// The library is told the alignment of pointers, in bytes, up to as much as its kernels' accesses
// ask for, whether by vectors or by the tensor memory accelerator. To promise more would choose
// nothing but have each shape timed anew, and let a deterministic device's bits depend on where
// operands lie.
constexpr int kVectorBytes = 16;
int AlignmentOf(const GemmCall& call) {
  auto address = static_cast<uintptr_t>(kVectorBytes);
  for (const View& operand :
       {call.a, call.b, call.c, call.bias, call.residual, call.h, call.sums}) {
    address |= reinterpret_cast<uintptr_t>(operand.data);
  }
  return static_cast<int>(address & (~address + 1));
}

int64_t DepthOf(const GemmCall& call) {
  return call.transpose_a == Transpose::kYes ? call.a.rows : call.a.cols;
}

Key KeyOf(const GemmCall& call) {
  return {call.a.stride(),
          call.c.rows,
          call.c.cols,
          call.c.stride(),
          DepthOf(call),
          call.transpose_a == Transpose::kYes,
          call.transpose_b == Transpose::kYes,
          call.beta != 0,
          call.a.dtype,
          call.b.dtype,
          call.c.dtype,
          AlignmentOf(call),
          call.residual.data != nullptr,
          EpilogueOf(call)};
}

cublasOperation_t OperationOf(Transpose transpose) {
  return transpose == Transpose::kYes ? CUBLAS_OP_T : CUBLAS_OP_N;
}

const char* NameOf(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
      return "bf16";
    case DType::kF16:
      return "fp16";
    case DType::kE4m3:
      return "e4m3";
    case DType::kE5m2:
      return "e5m2";
    default:
      return "fp32";
  }
}

// "16384x2304x768 nt bf16 + bias + gelu"
std::string Describe(const GemmCall& call) {
  std::array<char, 96> sizes = {};
  std::snprintf(sizes.data(), sizes.size(), "%lldx%lldx%lld %c%c ",
                static_cast<long long>(call.c.rows), static_cast<long long>(call.c.cols),
                static_cast<long long>(DepthOf(call)),
                call.transpose_a == Transpose::kYes ? 't' : 'n',
                call.transpose_b == Transpose::kYes ? 't' : 'n');
  std::string text = sizes.data();
  text += NameOf(call.a.dtype);
  if (call.b.dtype != call.a.dtype) text += std::string(" x ") + NameOf(call.b.dtype);
  if (call.c.dtype != call.a.dtype) text += std::string(" to ") + NameOf(call.c.dtype);
  if (call.beta != 0) text += " + c";
  if (call.bias.data != nullptr) text += " + bias";
  if (call.residual.data != nullptr) text += " + residual";
  if (call.gelu == GemmGelu::kForward) text += " + gelu";
  if (call.gelu == GemmGelu::kGradient) text += " + gelu's gradient";
  if (call.has_bias_gradient()) text += " + bias gradient";
  return text;
}

// In 10^12 operations a second, as text.
std::string RateOf(const GemmCall& call, float ms) {
  const double operations = 2.0 * static_cast<double>(call.c.rows) *
                            static_cast<double>(call.c.cols) * static_cast<double>(DepthOf(call));
  std::array<char, 32> text = {};
  std::snprintf(text.data(), text.size(), "%.3g", operations / static_cast<double>(ms) * 1e-9);
  return text.data();
}

// Checks what the library asks of an epilogue's operands. It may refuse others still.
bool IsFusible(const GemmCall& call) {
  constexpr int64_t kVectorElements = 8;
  const bool has_type =
      call.has_bias_gradient() ? call.c.dtype == DType::kF32 : call.a.dtype == call.c.dtype;
  return call.a.dtype != DType::kF32 && has_type && call.c.elements() > 0 &&
         AlignmentOf(call) == kVectorBytes && call.c.cols % kVectorElements == 0;
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

  // Describes the first call.c.rows rows of the product of a and b.
  cublasStatus_t Describe(const GemmCall& call, bool is_fast) {
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
    if (is_fast) {
      then([&] { return Set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1}); });
    }
    then([&] { return SetPointers(call); });
    if (call.gelu != GemmGelu::kNone) {
      then([&] { return Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, call.h.cols); });
    }
    return code;
  }

  // Asks the library for its proposals for the product, its favourite first; if that succeeds,
  // there are at most `room` of them and at least one.
  cublasStatus_t Propose(cublasLtHandle_t handle, int alignment, uint32_t reductions,
                         cublasLtMatmulHeuristicResult_t* proposals, int room, int* count) const {
    cublasLtMatmulPreference_t preference = nullptr;
    cublasStatus_t code = cublasLtMatmulPreferenceCreate(&preference);
    if (code != CUBLAS_STATUS_SUCCESS) return code;
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
    return code;
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
  // Makes the layout of the first `rows` rows and `cols` columns of x.
  static cublasStatus_t Layout(View x, int64_t rows, int64_t cols, cublasLtMatrixLayout_t* layout) {
    return cublasLtMatrixLayoutCreate(layout, TypeOf(x.dtype), static_cast<uint64_t>(cols),
                                      static_cast<uint64_t>(rows), x.stride());
  }

  template <typename Value>
  cublasStatus_t Set(cublasLtMatmulDescAttributes_t attribute, const Value& value) const {
    return cublasLtMatmulDescSetAttribute(product_, attribute, &value, sizeof(value));
  }
  // Calls that share an algorithm have theirs each; proposals go by how they are aligned.
  cublasStatus_t SetPointers(const GemmCall& call) const {
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
    const void* const bias = call.has_bias_gradient() ? call.sums.data : call.bias.data;
    if (bias != nullptr) code = Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    if (code == CUBLAS_STATUS_SUCCESS && call.gelu != GemmGelu::kNone) {
      code = Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.h.data);
    }
    if (call.scale_a == nullptr) return code;
    // The library's a is our b.
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
    none_.code = CUBLAS_STATUS_EXECUTION_FAILED;
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

  bool Fuses(const GemmCall& call, const std::function<void(const GemmCall&)>& apart) override {
    if (!IsFusible(call)) return false;
    if (call.has_bias_gradient() && options_.deterministic) return false;
    bool has_run = false;
    Chosen& chosen = ChosenFor(call, &has_run);
    if (CannotRun(chosen.code)) return false;
    if (chosen.code != CUBLAS_STATUS_SUCCESS || options_.deterministic) return true;
    if (!chosen.is_compared) Compare(call, apart, &chosen);
    return !chosen.is_slower;
  }

  BackendStatus Run(const GemmCall& call) override {
    if (call.c.elements() == 0) return {};
    bool has_run = false;
    const Chosen& chosen = ChosenFor(call, &has_run);
    if (!chosen.status.ok() || has_run) return chosen.status;
    return FromCublas(RunOnce(chosen.product, call, chosen.algorithm), "a product");
  }

  std::string TakeReport() override {
    std::string report;
    std::swap(report, report_);
    return report.empty() ? report : "products timed, in 10^12 operations a second: " + report;
  }

 private:
  static constexpr int kMostProposals = 16;

  struct Chosen {
    Product product;
    cublasLtMatmulAlgo_t algorithm = {};
    cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
    BackendStatus status;  // why there is none
    // With an epilogue:
    bool is_compared = false;
    bool is_slower = false;  // than several kernels
  };

  bool IsFast(const GemmCall& call) const {
    return options_.fp8_fast_accumulation && call.a.dtype == DType::kE4m3 &&
           call.b.dtype == DType::kE4m3;
  }

  // *has_run becomes true where choosing for the call has queued it.
  Chosen& ChosenFor(const GemmCall& call, bool* has_run) {
    const Key key = KeyOf(call);
    if (const auto found = chosen_.find(key); found != chosen_.end()) return *found->second;
    Graphs* const graphs = options_.queue.graphs;
    if (graphs != nullptr && graphs->Refuses("choosing a product's algorithm")) return none_;
    std::unique_ptr<Chosen>& chosen = chosen_[key];
    chosen = std::make_unique<Chosen>();
    chosen->code = Choose(call, chosen.get(), has_run);
    chosen->status = FromCublas(chosen->code, "choosing an algorithm");
    return *chosen;
  }

  cublasStatus_t RunOnce(const Product& product, const GemmCall& call,
                         const cublasLtMatmulAlgo_t& algorithm) const {
    const cublasStatus_t code =
        product.Run(handle_, call, algorithm, options_.workspace, options_.queue.stream);
    if (code != CUBLAS_STATUS_SUCCESS || !call.has_bias_gradient()) return code;
    return QueueAdd(options_.queue, call.sums, call.bias_gradient) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
  }

  using Proposals = std::array<cublasLtMatmulHeuristicResult_t, kMostProposals>;

  cublasStatus_t Choose(const GemmCall& call, Chosen* chosen, bool* has_run) {
    Proposals proposals = {};
    int count = 0;
    cublasStatus_t code = chosen->product.Describe(call, IsFast(call));
    if (code == CUBLAS_STATUS_SUCCESS) {
      code = chosen->product.Propose(handle_, AlignmentOf(call), ReductionsOf(call),
                                     proposals.data(), kMostProposals, &count);
    }
    if (code != CUBLAS_STATUS_SUCCESS) return code;
    chosen->algorithm = proposals[0].algo;
    if (options_.deterministic) {
      *has_run = true;
      return RunFirst(call, proposals, count, chosen);
    }
    return count == 1 ? CUBLAS_STATUS_SUCCESS : TakeFastest(call, proposals, count, chosen);
  }

  // The first that can. A failure that says nothing of the algorithm must not choose: the next
  // generation, on a device with more free memory, would take another.
  cublasStatus_t RunFirst(const GemmCall& call, const Proposals& proposals, int count,
                          Chosen* chosen) const {
    cublasStatus_t code = CUBLAS_STATUS_NOT_SUPPORTED;
    for (int each = 0; each < count && CannotRun(code); ++each) {
      chosen->algorithm = proposals[static_cast<size_t>(each)].algo;
      code = RunOnce(chosen->product, call, chosen->algorithm);
    }
    return code;
  }

  cublasStatus_t TakeFastest(const GemmCall& call, const Proposals& proposals, int count,
                             Chosen* chosen) {
    const GemmCall trial = TrialOf(call);
    if (trial.c.rows == 0) return CUBLAS_STATUS_SUCCESS;
    Product product;
    cublasStatus_t code = product.Describe(trial, IsFast(trial));
    if (code != CUBLAS_STATUS_SUCCESS) return code;
    const Fastest fastest = FastestWay(count, [&](int each, int runs) {
      return TimeRuns(product, trial, proposals[static_cast<size_t>(each)].algo, runs);
    });
    const bool is_part = trial.c.rows < call.c.rows;
    if (fastest.way < 0 && !is_part) code = RunOnce(product, trial, proposals[0].algo);  // says why
    EndTrial(trial, call);
    if (fastest.way < 0) return code;
    if (!call.has_epilogue()) Report(call, RateOf(trial, fastest.ms));
    chosen->algorithm = proposals[static_cast<size_t>(fastest.way)].algo;
    return CUBLAS_STATUS_SUCCESS;
  }

  // One kernel, or several: whichever takes less. Where there is no room to try, several.
  void Compare(const GemmCall& call, const std::function<void(const GemmCall&)>& apart,
               Chosen* chosen) {
    chosen->is_compared = true;
    const GemmCall trial = TrialOf(call);
    chosen->is_slower = trial.c.rows < call.c.rows;
    if (chosen->is_slower) return;
    apart(trial);  // chooses its own algorithms
    const Fastest fastest = FastestWay(2, [&](int way, int runs) {
      if (way == 0) return TimeRuns(chosen->product, trial, chosen->algorithm, runs);
      return Time(runs, [&] {
        apart(trial);
        return true;
      });
    });
    EndTrial(trial, call);
    chosen->is_slower = fastest.way == 1;
    if (fastest.way >= 0) {
      Report(call, RateOf(call, fastest.ms) + (chosen->is_slower ? " in several kernels" : ""));
    }
  }

  void Report(const GemmCall& call, const std::string& rate) {
    if (!report_.empty()) report_ += ", ";
    report_ += Describe(call) + " " + rate;
  }

  // Parts of a sum over k that are added in the type of a 16-bit c would be rounded each, so not
  // there; in place, they are added in an order of which the library promises only that there is
  // one.
  uint32_t ReductionsOf(const GemmCall& call) const {
    return options_.deterministic || call.c.dtype != DType::kF32
               ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
               : CUBLASLT_REDUCTION_SCHEME_MASK;
  }

  // Returns the product that is tried in the call's place. A c that is added to is not touched if
  // the scratch memory holds one like it. If not, and it is all zeros, as gradients are when a step
  // begins, it is itself added to, for whoever tries to clear it again: so the trial has as many
  // waves of blocks as the call, on the same memory. Else as many of its rows as fit stand for all
  // (of 16-bit elements, as gradients of activations are, 64 MiB hold nearly eight waves of tiles
  // of 128 by 256 on 132 multiprocessors). Sums of trials begin at zero.
  GemmCall TrialOf(const GemmCall& call) const {
    if (call.beta == 0) return call;
    constexpr int64_t kTileRows = 256;  // whole tiles of the kernels
    GemmCall trial = call;
    trial.bias_gradient = call.sums;
    auto* const scratch = static_cast<char*>(options_.queue.scratch);
    const int64_t room = call.has_bias_gradient() ? static_cast<char*>(call.sums.data) - scratch
                                                  : options_.queue.scratch_bytes;
    const int64_t row_bytes = call.c.cols * ElementBytes(call.c.dtype);
    int64_t rows = std::min(call.c.rows, room / row_bytes);
    if (rows < call.c.rows) {
      if (IsZero(call.c)) return trial;
      if (rows > kTileRows) rows = rows / kTileRows * kTileRows;
    }
    trial.c = {scratch, rows, call.c.cols, call.c.dtype};
    Clear(trial.c);
    return trial;
  }
  void EndTrial(const GemmCall& trial, const GemmCall& call) const {
    if (trial.beta != 0 && trial.c.data == call.c.data) Clear(call.c);
  }

  // Waits.
  bool IsZero(View x) const {
    double squares = 1;
    const View total = {options_.workspace, 1, 1, DType::kF64};
    const cudaStream_t stream = options_.queue.stream;
    Clear(total);
    return QueueAddSumOfSquares(options_.queue, &x, 1, total) == cudaSuccess &&
           cudaMemcpyAsync(&squares, total.data, sizeof(squares), cudaMemcpyDeviceToHost, stream) ==
               cudaSuccess &&
           cudaStreamSynchronize(stream) == cudaSuccess && squares == 0;
  }
  // A failure here shows at the next call on the stream.
  void Clear(View x) const {
    cudaMemsetAsync(x.data, 0, static_cast<size_t>(x.bytes()), options_.queue.stream);
  }

  float TimeRuns(const Product& product, const GemmCall& call,
                 const cublasLtMatmulAlgo_t& algorithm, int runs) const {
    return Time(runs, [&] { return RunOnce(product, call, algorithm) == CUBLAS_STATUS_SUCCESS; });
  }
  // Returns the milliseconds that `runs` runs of `work` take; `work` says whether it could be
  // queued.
  template <typename Work>
  float Time(int runs, const Work& work) const {
    constexpr float kCannotRun = -1;
    const cudaStream_t stream = options_.queue.stream;
    if (cudaEventRecord(begun_, stream) != cudaSuccess) return kCannotRun;
    for (int run = 0; run < runs; ++run) {
      if (!work()) return kCannotRun;
    }
    float ms = kCannotRun;
    const bool timed = cudaEventRecord(ended_, stream) == cudaSuccess &&
                       cudaEventSynchronize(ended_) == cudaSuccess &&
                       cudaEventElapsedTime(&ms, begun_, ended_) == cudaSuccess;
    return timed ? ms : kCannotRun;
  }

  const GemmOptions options_;
  cublasLtHandle_t handle_ = nullptr;
  cudaEvent_t begun_ = nullptr, ended_ = nullptr;
  std::map<Key, std::unique_ptr<Chosen>> chosen_;
  Chosen none_;
  std::string report_;  // not taken yet
};

}  // namespace

BackendStatus OpenGemm(const GemmOptions& options, std::unique_ptr<Gemm>* gemm) {
  auto opened = std::make_unique<CublasGemm>(options);
  if (BackendStatus s = opened->Open(); !s.ok()) return s;
  *gemm = std::move(opened);
  return {};
}

}  // namespace weft
