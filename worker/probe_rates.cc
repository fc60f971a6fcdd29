#include "worker/probe_rates.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "worker/backend/loader.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRepetitions = 3;
constexpr double kLeastTimedSeconds = 5e-3;  // repeat within one timing until it is this long
constexpr int kMostRepeats = 10000;

constexpr int64_t kMib = int64_t{1} << 20;
constexpr int64_t kStreamElements = 16 * kMib;  // 64 MiB of fp32: beyond any cache of a core
constexpr int64_t kRows = 2048;                 // of a block's activations, [kRows, kWidth]
constexpr int64_t kWidth = 1024;
constexpr AttentionShape kAttention = {
    .batch = 1, .seq_len = 512, .heads = 8, .head_dim = 64, .kv_heads = 8};

double Seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

double Flops(const MatmulPoint& shape) {
  return 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
         static_cast<double>(shape.k);
}

// All memory that a measurement uses, allocated once and cut from the front each time.
class Workspace {
 public:
  static absl::StatusOr<Workspace> Make(Device& device, int64_t elements) {
    const int64_t bytes = elements * 4;
    void* data = device.Allocate(bytes);
    if (data == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the device has no ", bytes, " bytes to measure with; free memory"));
    }
    Workspace workspace(device, static_cast<float*>(data), elements);
    device.Zero({data, 1, elements, DType::kF32});
    return workspace;
  }
  Workspace(Workspace&& other) noexcept
      : device_(other.device_),
        data_(std::exchange(other.data_, nullptr)),
        elements_(other.elements_) {}
  Workspace& operator=(Workspace&&) = delete;
  ~Workspace() {
    if (data_ != nullptr) device_.Free(data_, elements_ * 4);
  }

  void Reset() { used_ = 0; }
  // What is taken next is aligned to kFp8Unit bytes, as the whole is.
  void Align() {
    constexpr int64_t kUnitElements = kFp8Unit / 4;
    used_ = (used_ + kUnitElements - 1) / kUnitElements * kUnitElements;
  }
  View Take(int64_t rows, int64_t cols) {
    CHECK(used_ + rows * cols <= elements_);
    View view{data_ + used_, rows, cols, DType::kF32};
    used_ += rows * cols;
    return view;
  }

 private:
  Workspace(Device& device, float* data, int64_t elements)
      : device_(device), data_(data), elements_(elements) {}

  Device& device_;
  float* data_;
  int64_t elements_;
  int64_t used_ = 0;
};

// Best seconds of one call of `operation`; the device's failure if it has one.
template <typename Operation>
absl::StatusOr<double> Time(Device& device, Operation operation) {
  operation();  // warm-up, and how long it takes about
  RETURN_IF_ERROR(ToStatus(device.Synchronize()));
  double best_s = 0;
  int repeats = 1;
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < repeats; ++i) operation();
    RETURN_IF_ERROR(ToStatus(device.Synchronize()));
    const double once_s = Seconds(Clock::now() - start) / repeats;
    if (best_s == 0 || once_s < best_s) best_s = once_s;
    const double wanted = kLeastTimedSeconds / std::max(best_s, 1e-9);
    repeats = std::clamp(static_cast<int>(std::min<double>(wanted, kMostRepeats)), 1, kMostRepeats);
  }
  return best_s;
}

// With room for a scale.
int64_t ElementsOf(const MatmulPoint& shape) {
  return shape.m * shape.k + shape.n * shape.k + shape.m * shape.n + kFp8Unit;
}

// The same of codes, which are cast ahead of it: priced apart, as passes over memory.
absl::StatusOr<double> TimeFp8Matmul(Device& device, Workspace& workspace,
                                     const MatmulPoint& shape) {
  workspace.Reset();
  const View scale = workspace.Take(1, 1);
  const float one = 1;
  device.CopyIn(scale, &one);
  workspace.Align();
  Fp8View x = {workspace.Take(shape.m, shape.k), scale};
  Fp8View w = {workspace.Take(shape.n, shape.k), scale};
  View y = workspace.Take(shape.m, shape.n);
  x.codes.dtype = w.codes.dtype = DType::kE4m3;
  y.dtype = DType::kBf16;
  return Time(device, [&] { device.Fp8MatMul(x, w, 0, y); });
}

// y[m, n] = x[m, k] w[n, k]^T, as linear layers do.
absl::StatusOr<double> TimeMatmul(Device& device, Workspace& workspace, const MatmulPoint& shape) {
  if (shape.precision == Precision::kFp8) return TimeFp8Matmul(device, workspace, shape);
  workspace.Reset();
  View x = workspace.Take(shape.m, shape.k);
  View w = workspace.Take(shape.n, shape.k);
  View y = workspace.Take(shape.m, shape.n);
  for (View* view : {&x, &w, &y}) {
    if (shape.precision == Precision::kBf16) view->dtype = DType::kBf16;
  }
  return Time(device, [&] { device.MatMul(x, Transpose::kNo, w, Transpose::kYes, 0, y); });
}

absl::StatusOr<std::vector<MatmulPoint>> MeasureMatmuls(Device& device, Precision precision,
                                                        double seconds) {
  // A first look at the speed decides which shapes there is time for.
  MatmulPoint look{.m = 256, .n = 512, .k = 512, .precision = precision};
  double look_s = 0;
  {
    ASSIGN_OR_RETURN(Workspace workspace, Workspace::Make(device, ElementsOf(look)));
    ASSIGN_OR_RETURN(look_s, TimeMatmul(device, workspace, look));
  }
  std::vector<MatmulPoint> shapes = ShapesWithin(Flops(look) / look_s, seconds);
  if (shapes.empty()) shapes.push_back(look);
  int64_t largest = 0;
  for (const MatmulPoint& shape : shapes) largest = std::max(largest, ElementsOf(shape));
  ASSIGN_OR_RETURN(Workspace workspace, Workspace::Make(device, largest));
  const Clock::time_point start = Clock::now();
  std::vector<MatmulPoint> points;
  for (MatmulPoint& shape : shapes) {
    shape.precision = precision;
    if (!points.empty() && Seconds(Clock::now() - start) > 1.5 * seconds) break;
    double matmul_s = 0;
    ASSIGN_OR_RETURN(matmul_s, TimeMatmul(device, workspace, shape));
    shape.flops_per_s = Flops(shape) / matmul_s;
    points.push_back(shape);
  }
  return points;
}

absl::StatusOr<double> MeasureStream(Device& device) {
  ASSIGN_OR_RETURN(Workspace workspace, Workspace::Make(device, 2 * kStreamElements));
  const View x = workspace.Take(1, kStreamElements);
  const View y = workspace.Take(1, kStreamElements);
  double add_s = 0;
  ASSIGN_OR_RETURN(add_s, Time(device, [&] { device.Add(x, y); }));
  return 3 * 4 * static_cast<double>(kStreamElements) / add_s;
}

// The memory-bound operations of a block and their gradients, one after the other.
absl::StatusOr<double> MeasureOperations(Device& device) {
  ASSIGN_OR_RETURN(Workspace workspace,
                   Workspace::Make(device, 4 * kRows * kWidth + 4 * kWidth + 2 * kRows));
  const View x = workspace.Take(kRows, kWidth);
  const View y = workspace.Take(kRows, kWidth);
  const View dy = workspace.Take(kRows, kWidth);
  const View dx = workspace.Take(kRows, kWidth);
  const View weight = workspace.Take(1, kWidth);
  const View bias = workspace.Take(1, kWidth);
  const View dweight = workspace.Take(1, kWidth);
  const View dbias = workspace.Take(1, kWidth);
  const View mean = workspace.Take(kRows, 1);
  const View rstd = workspace.Take(kRows, 1);
  double round_s = 0;
  ASSIGN_OR_RETURN(round_s, Time(device, [&] {
                     device.LayerNorm(x, weight, bias, 1e-5, y, mean, rstd);
                     device.AddBias(bias, y);
                     device.Gelu(y, dy);
                     device.Add(dy, x);
                     device.GeluGradient(dy, y, dx);
                     device.LayerNormGradient(dy, x, weight, mean, rstd, dx, dweight, dbias);
                     device.BiasGradient(dy, dbias);
                   }));
  // Read and written, in the order above.
  const double elements = 2 + 2 + 2 + 3 + 3 + 4 + 1;
  return elements * 4 * static_cast<double>(kRows * kWidth) / round_s;
}

absl::StatusOr<double> MeasureAttention(Device& device, int threads) {
  const int64_t tokens = kAttention.batch * kAttention.seq_len;
  const int64_t width = kAttention.heads * kAttention.head_dim;
  const int64_t rows = kAttention.batch * kAttention.heads;
  const int64_t scratch_elements =
      AttentionScratchElements(kAttention) *
      std::min<int64_t>(threads, kAttention.batch * kAttention.kv_heads);
  ASSIGN_OR_RETURN(
      Workspace workspace,
      Workspace::Make(device, 8 * tokens * width + rows * kAttention.seq_len + scratch_elements));
  const View q = workspace.Take(tokens, width);
  const View k = workspace.Take(tokens, width);
  const View v = workspace.Take(tokens, width);
  const View o = workspace.Take(tokens, width);
  const View dout = workspace.Take(tokens, width);
  const View dq = workspace.Take(tokens, width);
  const View dk = workspace.Take(tokens, width);
  const View dv = workspace.Take(tokens, width);
  const View lse = workspace.Take(rows, kAttention.seq_len);
  const View scratch = workspace.Take(1, scratch_elements);
  double both_s = 0;
  ASSIGN_OR_RETURN(both_s, Time(device, [&] {
                     device.Attention(kAttention, q, k, v, {}, o, lse, scratch);
                     device.AttentionGradient(kAttention, q, k, v, {}, o, lse, dout, dq, dk, dv,
                                              scratch);
                   }));
  // Forward two products over the causal half, 2 T^2 E of them a head; backward twice that
  // (recomputed scores are the implementation's own affair).
  const auto seq_len = static_cast<double>(kAttention.seq_len);
  const double forward = 2 * seq_len * seq_len * static_cast<double>(width * kAttention.batch);
  return 3 * forward / both_s;
}

absl::StatusOr<double> MeasureOverhead(Device& device) {
  ASSIGN_OR_RETURN(Workspace workspace, Workspace::Make(device, 16));
  const View x = workspace.Take(1, 1);
  return Time(device, [&] { device.Zero(x); });
}

}  // namespace

std::vector<MatmulPoint> ShapesWithin(double flops_per_s, double seconds) {
  // Widths of models from the smallest to 405 B, attention's and feed-forward's.
  constexpr std::pair<int64_t, int64_t> kWeights[] = {
      {128, 128},   {384, 128},   {512, 128},   {128, 512},   {768, 768},   {2304, 768},
      {3072, 768},  {768, 3072},  {1024, 1024}, {4096, 1024}, {1024, 4096}, {2048, 2048},
      {8192, 2048}, {2048, 8192}, {4096, 4096}, {14336, 4096}};
  std::vector<MatmulPoint> shapes;
  for (const int64_t m : {64, 256, 1024, 4096, 16384}) {
    for (const auto& [n, k] : kWeights) shapes.push_back({.m = m, .n = n, .k = k});
  }
  std::stable_sort(shapes.begin(), shapes.end(),
                   [](const MatmulPoint& a, const MatmulPoint& b) { return Flops(a) < Flops(b); });
  double sum_s = 0;
  const auto past = std::find_if(shapes.begin(), shapes.end(), [&](const MatmulPoint& shape) {
    const double once_s = Flops(shape) / flops_per_s;
    sum_s += once_s + kRepetitions * std::max(once_s, kLeastTimedSeconds);
    return sum_s > seconds;
  });
  shapes.erase(past, shapes.end());
  return shapes;
}

absl::StatusOr<DeviceRates> MeasureRates(Device& device, int threads,
                                         absl::Span<const Precision> precisions, double seconds) {
  DeviceRates rates;
  ASSIGN_OR_RETURN(rates.op_overhead_s, MeasureOverhead(device));
  ASSIGN_OR_RETURN(rates.stream_bytes_per_s, MeasureStream(device));
  ASSIGN_OR_RETURN(rates.operation_bytes_per_s, MeasureOperations(device));
  ASSIGN_OR_RETURN(rates.attention_flops_per_s, MeasureAttention(device, threads));
  const double share = 0.8 / static_cast<double>(precisions.size());
  for (const Precision precision : precisions) {
    ASSIGN_OR_RETURN(const std::vector<MatmulPoint> points,
                     MeasureMatmuls(device, precision, share * seconds));
    rates.matmuls.insert(rates.matmuls.end(), points.begin(), points.end());
  }
  return rates;
}

}  // namespace weft
