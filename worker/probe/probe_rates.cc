#include "worker/probe/probe_rates.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "plan/memory/cudnn_attention.h"
#include "worker/backend/loader.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRepetitions = 3;
constexpr double kLeastTimedSeconds = 5e-3;  // repeat within one timing until it is this long
constexpr int kMostRepeats = 10000;

constexpr int64_t kMi = int64_t{1} << 20;
constexpr int64_t kWidth = 1024;     // of a block's activations
constexpr int64_t kAlignment = 256;  // bytes; what a plan's buffers have, at least
constexpr int64_t kNumbers = kMi;    // random ones, repeated to fill a matrix

double Seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

DType TypeOf(Precision precision) {
  return precision == Precision::kBf16 ? DType::kBf16 : DType::kF32;
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
  // With room for f32, whatever the type; aligned.
  View Take(int64_t rows, int64_t cols, DType dtype = DType::kF32) {
    CHECK(used_ + rows * cols <= elements_);
    View view{data_ + used_, rows, cols, dtype};
    used_ += RoomFor(rows, cols);
    return view;
  }
  // Elements of a workspace that such a view takes.
  static int64_t RoomFor(int64_t rows, int64_t cols) {
    constexpr int64_t kUnit = kAlignment / 4;
    return (rows * cols + kUnit - 1) / kUnit * kUnit;
  }

 private:
  Workspace(Device& device, float* data, int64_t elements)
      : device_(device), data_(data), elements_(elements) {}

  Device& device_;
  float* data_;
  int64_t elements_;
  int64_t used_ = 0;
};

// Numbers of a normal distribution on the device.
class NormalNumbers {
 public:
  static absl::StatusOr<NormalNumbers> Make(Device& device) {
    ASSIGN_OR_RETURN(Workspace workspace, Workspace::Make(device, kNumbers));
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> numbers(static_cast<size_t>(kNumbers));
    for (float& number : numbers) number = normal(random);
    const View view = workspace.Take(1, kNumbers);
    device.CopyIn(view, numbers.data());
    return NormalNumbers(device, std::move(workspace), view);
  }

  // f32 or a 16-bit type.
  void Fill(View x) const {
    for (int64_t begin = 0; begin < x.elements(); begin += kNumbers) {
      const int64_t count = std::min(kNumbers, x.elements() - begin);
      const View to = {static_cast<char*>(x.data) + begin * ElementBytes(x.dtype), 1, count,
                       x.dtype};
      device_.Copy(to, {view_.data, 1, count, view_.dtype});
    }
  }

 private:
  NormalNumbers(Device& device, Workspace workspace, View view)
      : device_(device), workspace_(std::move(workspace)), view_(view) {}

  Device& device_;
  Workspace workspace_;
  View view_;
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

// With room for what fp8 takes beside: a scale, and x and w in 16 bits.
int64_t ElementsOf(const MatmulPoint& shape) {
  const int64_t operands =
      Workspace::RoomFor(shape.m, shape.k) + Workspace::RoomFor(shape.n, shape.k);
  const bool is_fp8 = shape.precision == Precision::kFp8;
  return (is_fp8 ? 2 : 1) * operands + Workspace::RoomFor(shape.m, shape.n) +
         2 * Workspace::RoomFor(1, 1);
}

// The same of codes, which are cast ahead of it: priced apart, as passes over memory.
absl::StatusOr<double> TimeFp8Matmul(Device& device, Workspace& workspace,
                                     const NormalNumbers& numbers, const MatmulPoint& shape) {
  workspace.Reset();
  const auto make = [&](int64_t rows) {
    const View wide = workspace.Take(rows, shape.k, DType::kBf16);
    const Fp8View x = {workspace.Take(rows, shape.k, DType::kE4m3), workspace.Take(1, 1)};
    numbers.Fill(wide);
    device.ToFp8(wide, x.codes, {}, x.scale);
    return x;
  };
  const Fp8View x = make(shape.m);
  const Fp8View w = make(shape.n);
  const View y = workspace.Take(shape.m, shape.n, DType::kBf16);
  return Time(device, [&] { device.Fp8MatMul(x, w, 0, y); });
}

// y[m, n] = x[m, k] w[n, k]^T, as linear layers do.
absl::StatusOr<double> TimeMatmul(Device& device, Workspace& workspace,
                                  const NormalNumbers& numbers, const MatmulPoint& shape) {
  if (shape.precision == Precision::kFp8) return TimeFp8Matmul(device, workspace, numbers, shape);
  workspace.Reset();
  const DType dtype = TypeOf(shape.precision);
  const View x = workspace.Take(shape.m, shape.k, dtype);
  const View w = workspace.Take(shape.n, shape.k, dtype);
  const View y = workspace.Take(shape.m, shape.n, dtype);
  numbers.Fill(x);
  numbers.Fill(w);
  return Time(device, [&] { device.MatMul(x, Transpose::kNo, w, Transpose::kYes, 0, y); });
}

absl::StatusOr<std::vector<MatmulPoint>> MeasureMatmuls(Device& device,
                                                        const NormalNumbers& numbers,
                                                        Precision precision, double seconds) {
  // A first look at the speed decides which shapes there is time for.
  MatmulPoint look{.m = 256, .n = 512, .k = 512, .precision = precision};
  double look_s = 0;
  {
    ASSIGN_OR_RETURN(Workspace workspace, Workspace::Make(device, ElementsOf(look)));
    ASSIGN_OR_RETURN(look_s, TimeMatmul(device, workspace, numbers, look));
  }
  std::vector<MatmulPoint> shapes = ShapesWithin(Flops(look) / look_s, seconds);
  if (shapes.empty()) shapes.push_back(look);
  int64_t largest = 0;
  for (MatmulPoint& shape : shapes) shape.precision = precision;
  for (const MatmulPoint& shape : shapes) largest = std::max(largest, ElementsOf(shape));
  ASSIGN_OR_RETURN(Workspace workspace, Workspace::Make(device, largest));
  const Clock::time_point start = Clock::now();
  std::vector<MatmulPoint> points;
  for (MatmulPoint& shape : shapes) {
    if (!points.empty() && Seconds(Clock::now() - start) > 1.5 * seconds) break;
    double matmul_s = 0;
    ASSIGN_OR_RETURN(matmul_s, TimeMatmul(device, workspace, numbers, shape));
    shape.flops_per_s = Flops(shape) / matmul_s;
    points.push_back(shape);
  }
  return points;
}

absl::StatusOr<double> MeasureStream(Device& device, int64_t elements) {
  ASSIGN_OR_RETURN(Workspace workspace, Workspace::Make(device, 2 * elements));
  const View x = workspace.Take(1, elements);
  const View y = workspace.Take(1, elements);
  double add_s = 0;
  ASSIGN_OR_RETURN(add_s, Time(device, [&] { device.Add(x, y); }));
  return 3 * 4 * static_cast<double>(elements) / add_s;
}

// The memory-bound operations of a block and their gradients, one after the other.
absl::StatusOr<double> MeasureOperations(Device& device, int64_t rows) {
  ASSIGN_OR_RETURN(
      Workspace workspace,
      Workspace::Make(device, 4 * rows * kWidth + 4 * kWidth + 2 * Workspace::RoomFor(rows, 1)));
  const View x = workspace.Take(rows, kWidth);
  const View y = workspace.Take(rows, kWidth);
  const View dy = workspace.Take(rows, kWidth);
  const View dx = workspace.Take(rows, kWidth);
  const View weight = workspace.Take(1, kWidth);
  const View bias = workspace.Take(1, kWidth);
  const View dweight = workspace.Take(1, kWidth);
  const View dbias = workspace.Take(1, kWidth);
  const View mean = workspace.Take(rows, 1);
  const View rstd = workspace.Take(rows, 1);
  double round_s = 0;
  ASSIGN_OR_RETURN(round_s, Time(device, [&] {
                     device.LayerNorm(x, weight, bias, {.eps = 1e-5}, y, mean, rstd);
                     device.AddBias(bias, y);
                     device.Gelu(y, dy);
                     device.Add(dy, x);
                     device.GeluGradient(dy, y, dx);
                     device.LayerNormGradient(dy, x, weight, {}, mean, rstd, dx, dweight, dbias);
                     device.BiasGradient(dy, dbias);
                   }));
  // Read and written, in the order above.
  const double elements = 2 + 2 + 2 + 3 + 3 + 4 + 1;
  return elements * 4 * static_cast<double>(rows * kWidth) / round_s;
}

// Returns as many floats of scratch as a plan has for such a call.
int64_t AttentionScratch(const RateSizes& sizes, int threads) {
  const AttentionShape& shape = sizes.attention;
  const int64_t own = AttentionScratchElements(shape, TypeOf(sizes.attention_precision)) *
                      std::min<int64_t>(threads, shape.batch * shape.kv_heads);
  if (sizes.attention_precision == Precision::kFp32) return own;
  return std::max(own, CudnnAttentionScratchFloats({.batch = shape.batch,
                                                    .seq_len = shape.seq_len,
                                                    .heads = shape.heads,
                                                    .kv_heads = shape.kv_heads,
                                                    .head_dim = shape.head_dim}));
}

absl::StatusOr<double> MeasureAttention(Device& device, const NormalNumbers& numbers,
                                        const RateSizes& sizes, int threads) {
  const AttentionShape& shape = sizes.attention;
  const int64_t tokens = shape.batch * shape.seq_len;
  const int64_t width = shape.heads * shape.head_dim;
  const int64_t rows = shape.batch * shape.heads;
  const int64_t scratch_elements = AttentionScratch(sizes, threads);
  const DType type = TypeOf(sizes.attention_precision);
  ASSIGN_OR_RETURN(
      Workspace workspace,
      Workspace::Make(device, 8 * Workspace::RoomFor(tokens, width) +
                                  Workspace::RoomFor(rows, shape.seq_len) + scratch_elements));
  const auto take = [&] { return workspace.Take(tokens, width, type); };
  const View q = take(), k = take(), v = take(), o = take();
  const View dout = take(), dq = take(), dk = take(), dv = take();
  const View lse = workspace.Take(rows, shape.seq_len);
  const View scratch = workspace.Take(1, scratch_elements);
  for (const View& operand : {q, k, v, dout}) numbers.Fill(operand);
  device.PrepareAttention(shape, type, false, scratch);
  double both_s = 0;
  ASSIGN_OR_RETURN(both_s, Time(device, [&] {
                     device.Attention(shape, q, k, v, {}, o, lse, scratch);
                     device.AttentionGradient(shape, q, k, v, {}, o, lse, dout, dq, dk, dv,
                                              scratch);
                   }));
  // Forward two products over the causal half, 2 T^2 E of them a head; backward twice that
  // (recomputed scores are the implementation's own affair).
  const auto seq_len = static_cast<double>(shape.seq_len);
  const double forward = 2 * seq_len * seq_len * static_cast<double>(width * shape.batch);
  return 3 * forward / both_s;
}

absl::StatusOr<double> MeasureOverhead(Device& device) {
  ASSIGN_OR_RETURN(Workspace workspace, Workspace::Make(device, Workspace::RoomFor(1, 1)));
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

RateSizes HostRateSizes() {
  return {.stream_elements = 16 * kMi,
          .operation_rows = 2048,
          .attention = {.batch = 1, .seq_len = 512, .heads = 8, .head_dim = 64, .kv_heads = 8},
          .attention_precision = Precision::kFp32};
}

RateSizes GpuRateSizes() {
  return {.stream_elements = 64 * kMi,
          .operation_rows = 32768,
          .attention = {.batch = 4, .seq_len = 2048, .heads = 16, .head_dim = 64, .kv_heads = 16},
          .attention_precision = Precision::kBf16};
}

absl::StatusOr<DeviceRates> MeasureRates(Device& device, int threads, const RateSizes& sizes,
                                         absl::Span<const Precision> precisions, double seconds) {
  ASSIGN_OR_RETURN(const NormalNumbers numbers, NormalNumbers::Make(device));
  DeviceRates rates;
  ASSIGN_OR_RETURN(rates.op_overhead_s, MeasureOverhead(device));
  ASSIGN_OR_RETURN(rates.stream_bytes_per_s, MeasureStream(device, sizes.stream_elements));
  ASSIGN_OR_RETURN(rates.operation_bytes_per_s, MeasureOperations(device, sizes.operation_rows));
  ASSIGN_OR_RETURN(rates.attention_flops_per_s, MeasureAttention(device, numbers, sizes, threads));
  rates.attention_precision = sizes.attention_precision;
  const double share = 0.8 / static_cast<double>(precisions.size());
  for (const Precision precision : precisions) {
    ASSIGN_OR_RETURN(const std::vector<MatmulPoint> points,
                     MeasureMatmuls(device, numbers, precision, share * seconds));
    rates.matmuls.insert(rates.matmuls.end(), points.begin(), points.end());
  }
  return rates;
}

}  // namespace weft
