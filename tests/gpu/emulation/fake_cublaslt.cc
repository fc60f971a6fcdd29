// Stands in for cuBLASLt where kernels run on the CPU: plain loops over matrices that count columns
// first, sums in double. Its algorithms differ in bits, and in time by the emulated clock. It is as
// strict as the library may be: an algorithm runs what it was proposed for, on operands aligned as
// was promised then, with all of the workspace that it said it needs, over which it writes.
#include "tests/gpu/emulation/fake_cublaslt.h"

#include <cuda_fp8.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

struct FakeCublasHandle {
  bool is_odd;  // of those of all processes, roughly every other one
};
struct FakeCublasProduct {
  cublasOperation_t operation_a = CUBLAS_OP_N;
  cublasOperation_t operation_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  void* aux = nullptr;
  int64_t aux_ld = 0;
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
  int8_t fast_accumulation = 0;

  bool has_epilogue() const { return epilogue != CUBLASLT_EPILOGUE_DEFAULT; }
  bool has_bias() const { return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
  bool has_aux() const { return (epilogue & 128U) != 0; }
  bool has_bias_gradient() const { return epilogue == CUBLASLT_EPILOGUE_BGRADB; }
};
struct FakeCublasLayout {
  cudaDataType_t type;
  int64_t rows, cols, ld;
};
struct FakeCublasPreference {
  uint64_t workspace_bytes = 0;
  uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignment = 256;  // of all operands
};

namespace weft::emulation {
namespace {

// On every other handle the last is as slow as three.
std::vector<FakeAlgorithm> UsualAlgorithms() {
  return {{.splits = 1, .run_ms = 10},
          {.splits = 2, .run_ms = 7, .scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
          {.splits = 3,
           .run_ms = 5,
           .odd_run_ms = 15,
           .scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}};
}

struct Library {
  std::mutex mutex;  // guards the rest: ranks may be threads
  std::vector<FakeAlgorithm> algorithms = UsualAlgorithms();
  std::vector<int> runs = std::vector<int>(3);
  std::map<cublasLtEpilogue_t, int> runs_by_epilogue;
  int runs_that_add_another = 0;
  int fast_runs = 0;
};

Library& TheLibrary() {
  static auto* const library = new Library;
  return *library;
}

}  // namespace

void SetAlgorithms(std::vector<FakeAlgorithm> algorithms) {
  Library& library = TheLibrary();
  const std::lock_guard<std::mutex> lock(library.mutex);
  library.runs.assign(algorithms.size(), 0);
  library.runs_by_epilogue.clear();
  library.runs_that_add_another = 0;
  library.fast_runs = 0;
  library.algorithms = std::move(algorithms);
}
void ResetAlgorithms() {
  SetAlgorithms(UsualAlgorithms());
}
std::vector<int> RunsOfAlgorithms() {
  Library& library = TheLibrary();
  const std::lock_guard<std::mutex> lock(library.mutex);
  return library.runs;
}
int RunsWith(cublasLtEpilogue_t epilogue) {
  Library& library = TheLibrary();
  const std::lock_guard<std::mutex> lock(library.mutex);
  return library.runs_by_epilogue[epilogue];
}
int FastRuns() {
  Library& library = TheLibrary();
  const std::lock_guard<std::mutex> lock(library.mutex);
  return library.fast_runs;
}
int RunsThatAddAnother() {
  Library& library = TheLibrary();
  const std::lock_guard<std::mutex> lock(library.mutex);
  return library.runs_that_add_another;
}

}  // namespace weft::emulation

namespace {

using weft::emulation::FakeAlgorithm;
using weft::emulation::TheLibrary;

bool IsOf8Bits(cudaDataType_t type) {
  return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

std::array<float, 256> NumbersOf8Bits(bool is_e4m3) {
  std::array<float, 256> numbers = {};
  for (int code = 0; code < 256; ++code) {
    float magnitude = __emulated_fp8_magnitude(code & 0x7f, is_e4m3);
    if ((code & 0x7f) > (is_e4m3 ? 0x7e : 0x7b)) {
      magnitude = std::numeric_limits<float>::quiet_NaN();
    }
    numbers[static_cast<size_t>(code)] = code < 0x80 ? magnitude : -magnitude;
  }
  return numbers;
}

float At(const void* data, cudaDataType_t type, int64_t i) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[i];
  if (IsOf8Bits(type)) {
    static const std::array<float, 256> kE4m3 = NumbersOf8Bits(true);
    static const std::array<float, 256> kE5m2 = NumbersOf8Bits(false);
    return (type == CUDA_R_8F_E4M3 ? kE4m3 : kE5m2)[static_cast<const uint8_t*>(data)[i]];
  }
  const uint16_t bits = static_cast<const uint16_t*>(data)[i];
  if (type == CUDA_R_16BF) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  return static_cast<float>(std::bit_cast<_Float16>(bits));
}

void Put(void* data, cudaDataType_t type, int64_t i, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(data)[i] = value;
  } else if (type == CUDA_R_16F) {
    static_cast<uint16_t*>(data)[i] = std::bit_cast<uint16_t>(static_cast<_Float16>(value));
  } else {
    const auto bits = std::bit_cast<uint32_t>(value);
    static_cast<uint16_t*>(data)[i] =
        static_cast<uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
  }
}

// A matrix as an operand: element [i, j] of op(x).
struct Operand {
  const void* data;
  FakeCublasLayout layout;
  cublasOperation_t operation;

  int64_t rows() const { return operation == CUBLAS_OP_N ? layout.rows : layout.cols; }
  int64_t cols() const { return operation == CUBLAS_OP_N ? layout.cols : layout.rows; }
  double at(int64_t i, int64_t j) const {
    const int64_t at = operation == CUBLAS_OP_N ? j * layout.ld + i : i * layout.ld + j;
    return static_cast<double>(At(data, layout.type, at));
  }
};

// To four bits more than a float has: a sum of such parts is as good as any, and has other bits.
double Rounded(double part) {
  constexpr uint64_t kHalf = uint64_t{1} << 23;
  return std::bit_cast<double>((std::bit_cast<uint64_t>(part) + kHalf) >> 24 << 24);
}

// The sums of a product's column j, by row: `wide_a` is op(a) by columns. Each is added up in the
// order of k.
void Sum(const std::vector<double>& wide_a, const Operand& b, int64_t j, int splits,
         std::vector<double>& sums) {
  const auto rows = static_cast<int64_t>(sums.size());
  std::vector<double> parts(sums.size());
  std::fill(sums.begin(), sums.end(), 0.0);
  for (int split = 0; split < splits; ++split) {
    std::fill(parts.begin(), parts.end(), 0.0);
    const int64_t end = b.rows() * (split + 1) / splits;
    for (int64_t k = b.rows() * split / splits; k < end; ++k) {
      const double* const column = wide_a.data() + k * rows;
      const double factor = b.at(k, j);
      for (int64_t i = 0; i < rows; ++i) parts[static_cast<size_t>(i)] += column[i] * factor;
    }
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += splits == 1 ? parts[i] : Rounded(parts[i]);
  }
}

// Tells whether the library takes 8-bit operands on compute capabilities 8.9 and 9.0 (cuBLAS 13,
// cublasLtMatmul): the first transposed, the second not, sizes and addresses multiples of 16, not
// both e5m2, results of bf16, f16 or f32.
bool TakesFp8(cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
              cublasLtMatrixLayout_t d) {
  const auto fits = [](cublasLtMatrixLayout_t x) {
    return x->rows % 16 == 0 && x->cols % 16 == 0 && x->ld % 16 == 0;
  };
  return IsOf8Bits(a->type) && IsOf8Bits(b->type) &&
         !(a->type == CUDA_R_8F_E5M2 && b->type == CUDA_R_8F_E5M2) && !IsOf8Bits(d->type) &&
         product->operation_a == CUBLAS_OP_T && product->operation_b == CUBLAS_OP_N && fits(a) &&
         fits(b) && fits(d);
}
bool IsAligned(const void* data, uint64_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % bytes == 0;
}

// Tells whether the table of cublasLtMatmul has these types for sums and scales of single
// precision, as far as weft multiplies them.
bool TakesTypes(cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cudaDataType_t d) {
  if (c != d) return false;
  if (IsOf8Bits(a) || IsOf8Bits(b)) return d == CUDA_R_16BF || d == CUDA_R_16F || d == CUDA_R_32F;
  return a == b && (d == a || d == CUDA_R_32F);
}

// The words of an algorithm: its number, what it was proposed for, how operands are then aligned,
// and the most columns that D may have (a part of them runs as well).
struct Words {
  uint64_t number, made_for, alignment, workspace_bytes, most_columns;

  static Words Of(const cublasLtMatmulAlgo_t& algo) {
    return {algo.data[0], algo.data[1], algo.data[2], algo.data[3], algo.data[4]};
  }
  cublasLtMatmulAlgo_t ToAlgo() const {
    return {{number, made_for, alignment, workspace_bytes, most_columns}};
  }
};

// FNV-1a of all that an algorithm was proposed for.
uint64_t DigestOf(const FakeCublasProduct& product, const FakeCublasLayout& a,
                  const FakeCublasLayout& b, const FakeCublasLayout& d) {
  uint64_t digest = 14695981039346656037U;
  const int64_t depth = product.operation_a == CUBLAS_OP_N ? a.cols : a.rows;
  for (const int64_t value : {int64_t{product.operation_a}, int64_t{product.operation_b},
                              int64_t{product.epilogue}, int64_t{product.fast_accumulation},
                              int64_t{a.type}, int64_t{b.type}, int64_t{d.type}, d.rows, depth}) {
    digest = (digest ^ static_cast<uint64_t>(value)) * 1099511628211U;
  }
  return digest;
}

// Returns the bytes of the parts of D that are added up.
uint64_t WorkspaceOf(const FakeAlgorithm& algorithm, const FakeCublasLayout& d) {
  if (algorithm.splits == 1 || algorithm.scheme == CUBLASLT_REDUCTION_SCHEME_INPLACE) return 0;
  return static_cast<uint64_t>(algorithm.splits * d.rows * d.cols) * sizeof(float);
}

// The algorithm to run, counted, with the clock put forward.
FakeAlgorithm Begin(cublasLtHandle_t handle, const FakeCublasProduct& product, bool adds_another,
                    const cublasLtMatmulAlgo_t& algo) {
  auto& library = TheLibrary();
  const std::lock_guard<std::mutex> lock(library.mutex);
  const auto i = static_cast<size_t>(Words::Of(algo).number);
  const FakeAlgorithm& algorithm = library.algorithms[i];
  ++library.runs[i];
  ++library.runs_by_epilogue[product.epilogue];
  library.runs_that_add_another += adds_another ? 1 : 0;
  library.fast_runs += product.fast_accumulation != 0 ? 1 : 0;
  double ms = handle->is_odd && algorithm.odd_run_ms > 0 ? algorithm.odd_run_ms : algorithm.run_ms;
  if (product.has_epilogue() && algorithm.epilogue_ms > 0) ms = algorithm.epilogue_ms;
  if (product.has_aux() && algorithm.gelu_ms > 0) ms = algorithm.gelu_ms;
  weft::emulation::clock_ms += ms;
  return algorithm;
}

// Checks what cublasLt.h asks of an epilogue's operands: an aux matrix as wide as D, in steps of 8;
// and both where vectors of 16 bytes can be read, if D's elements have 16 bits.
bool TakesEpilogue(const FakeCublasProduct& product, const FakeCublasLayout& d) {
  const auto is_placed = [&](const void* data) {
    return data != nullptr && (d.type == CUDA_R_32F || reinterpret_cast<uintptr_t>(data) % 16 == 0);
  };
  if ((product.has_bias() || product.has_bias_gradient()) && !is_placed(product.bias)) return false;
  return !product.has_aux() ||
         (is_placed(product.aux) && product.aux_ld % 8 == 0 && product.aux_ld >= d.rows);
}

double GeluSlope(double x) {
  constexpr double kRoot = 0.7978845608028654;  // sqrt(2 / pi)
  const double t = std::tanh(kRoot * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kRoot * (1 + 3 * 0.044715 * x * x);
}

// Returns what is written to element [i, j] of D in the place of `value`.
double Finish(const FakeCublasProduct& product, cudaDataType_t type, int64_t i, int64_t j,
              double value) {
  if (product.has_bias()) value += static_cast<double>(At(product.bias, type, i));
  const int64_t at = j * product.aux_ld + i;
  if (product.epilogue == CUBLASLT_EPILOGUE_DGELU) {
    return value * GeluSlope(static_cast<double>(At(product.aux, type, at)));
  }
  if (!product.has_aux()) return value;
  Put(product.aux, type, at, static_cast<float>(value));
  return 0.5 * value *
         (1 + std::tanh(0.7978845608028654 * (value + 0.044715 * std::pow(value, 3))));
}

struct Result {
  const void* c;
  void* d;
  FakeCublasLayout c_layout, d_layout;
};

// d = factor * a b + beta * c, and what the product's epilogue makes of that.
void Multiply(const Operand& a, const Operand& b, int splits, float factor, float beta,
              const Result& result, const FakeCublasProduct& product) {
  const FakeCublasLayout& d = result.d_layout;
  std::vector<double> wide_a;
  wide_a.reserve(static_cast<size_t>(a.rows() * a.cols()));
  for (int64_t k = 0; k < a.cols(); ++k) {
    for (int64_t i = 0; i < a.rows(); ++i) wide_a.push_back(a.at(i, k));
  }
  std::vector<double> sums(static_cast<size_t>(d.rows));
  for (int64_t j = 0; j < d.cols; ++j) {
    Sum(wide_a, b, j, splits, sums);
    if (product.has_bias_gradient()) {
      float sum = 0;
      for (int64_t k = 0; k < b.rows(); ++k) sum += static_cast<float>(b.at(k, j));
      Put(product.bias, d.type, j, sum);
    }
    for (int64_t i = 0; i < d.rows; ++i) {
      const int64_t at = j * d.ld + i;
      double value = static_cast<double>(factor) * sums[static_cast<size_t>(i)];
      if (beta != 0) {
        value +=
            static_cast<double>(beta) * static_cast<double>(At(result.c, result.c_layout.type, at));
      }
      if (product.has_epilogue() && !product.has_bias_gradient())
        value = Finish(product, d.type, i, j, value);
      Put(result.d, d.type, at, static_cast<float>(value));
    }
  }
}

}  // namespace

// NOLINTBEGIN: names are the library's.
const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "another status";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static std::atomic<int> count = getpid();
  *handle = new FakeCublasHandle{count++ % 2 != 0};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *product = new FakeCublasProduct;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  delete product;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  const auto set = [&](auto& field) {
    if (bytes != sizeof(field)) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  };
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(product->operation_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(product->operation_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(product->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(product->bias);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return set(product->aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return set(product->aux_ld);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return set(product->scale_a);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return set(product->scale_b);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return set(product->fast_accumulation);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
  if (ld < static_cast<int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *layout = new FakeCublasLayout{type, static_cast<int64_t>(rows), static_cast<int64_t>(cols), ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new FakeCublasPreference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  const bool is_wide = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
  if (bytes != (is_wide ? sizeof(uint64_t) : sizeof(uint32_t))) return CUBLAS_STATUS_INVALID_VALUE;
  if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
    preference->schemes = *static_cast<const uint32_t*>(value);
  } else if (is_wide) {
    preference->workspace_bytes = *static_cast<const uint64_t*>(value);
  } else {
    preference->alignment = std::min(preference->alignment, *static_cast<const uint32_t*>(value));
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t /*handle*/,
                                              cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  auto& library = TheLibrary();
  const std::lock_guard<std::mutex> lock(library.mutex);
  *found = 0;
  if (!TakesTypes(a->type, b->type, c->type, d->type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (product->has_epilogue() && !TakesEpilogue(*product, *d)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if ((IsOf8Bits(a->type) || IsOf8Bits(b->type)) && !TakesFp8(product, a, b, d)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  for (size_t i = 0; i < library.algorithms.size() && *found < wanted; ++i) {
    const uint32_t scheme = library.algorithms[i].scheme;
    if ((scheme & preference->schemes) != scheme) continue;
    if (product->has_epilogue() && !library.algorithms[i].has_epilogues) continue;
    if (library.algorithms[i].alignment > preference->alignment) continue;
    const Words words = {.number = i,
                         .made_for = DigestOf(*product, *a, *b, *d),
                         .alignment = preference->alignment,
                         .workspace_bytes = WorkspaceOf(library.algorithms[i], *d),
                         .most_columns = static_cast<uint64_t>(d->cols)};
    if (words.workspace_bytes > preference->workspace_bytes) continue;
    const auto state =
        library.algorithms[i].is_refused ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
    results[(*found)++] = {
        .algo = words.ToAlgo(), .workspaceSize = words.workspace_bytes, .state = state};
  }
  return *found > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                              const void* alpha, const void* a_data,
                              cublasLtMatrixLayout_t a_layout, const void* b_data,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  const Words words = Words::Of(*algo);
  if (words.made_for != DigestOf(*product, *a_layout, *b_layout, *d_layout) ||
      static_cast<uint64_t>(d_layout->cols) > words.most_columns ||
      words.workspace_bytes > (workspace == nullptr ? 0 : workspace_bytes) ||
      !TakesTypes(a_layout->type, b_layout->type, c_layout->type, d_layout->type)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  for (const void* data : {a_data, b_data, c, static_cast<const void*>(d)}) {
    if (!IsAligned(data, words.alignment)) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const FakeAlgorithm algorithm = Begin(handle, *product, c != d, *algo);
  const Operand a = {a_data, *a_layout, product->operation_a};
  const Operand b = {b_data, *b_layout, product->operation_b};
  if (algorithm.fails_with != CUBLAS_STATUS_SUCCESS) return algorithm.fails_with;
  if (algorithm.fails_with_epilogues && product->has_epilogue()) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (product->has_epilogue() && !TakesEpilogue(*product, *d_layout)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool is_fp8 = IsOf8Bits(a_layout->type) || IsOf8Bits(b_layout->type);
  if (a.cols() != b.rows() || a.rows() != d_layout->rows || b.cols() != d_layout->cols ||
      c_layout->ld != d_layout->ld) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (is_fp8 && !(TakesFp8(product, a_layout, b_layout, d_layout) && IsAligned(a_data, 16) &&
                  IsAligned(b_data, 16) && IsAligned(c, 16) && IsAligned(d, 16))) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const cudaError_t queued = weft::emulation::QueueWork(
      stream, [a, b, c, d, is_fp8, workspace, written = words.workspace_bytes,
               splits = algorithm.splits, product = *product, of_c = *c_layout, of_d = *d_layout,
               alpha = *static_cast<const float*>(alpha), beta = *static_cast<const float*>(beta)] {
        if (written > 0) std::memset(workspace, 0xFF, written);
        float factor = alpha;
        for (const float* const scale : {product.scale_a, product.scale_b}) {
          if (is_fp8 && scale != nullptr) factor *= *scale;
        }
        Multiply(a, b, splits, factor, beta, {c, d, of_c, of_d}, product);
      });
  return queued == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
// NOLINTEND
