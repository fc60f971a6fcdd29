// Matrix products of a GPT-2 124M step (4 sequences of 256 tokens) through the CPU backend, as the
// worker asks for them: forward, gradient of the input, gradient of the weight (into fp32), in fp32
// and bf16. FLOP/s is the counter; "48x" in a name: so many products of a step are like it. At the
// end the whole step's products, and their share of what the processor's units can do
// (peak_rate.h), which is measured before and after.
//
// build/release/bin/gemm_bench [--benchmark_filter=bf16] [--benchmark_repetitions=5
// --benchmark_enable_random_interleaving=true: then medians]; WEFT_BENCH_THREADS sets the threads.
// Operands are random: zeros would be faster than life.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "bench/peak_rate.h"
#include "worker/backend/loader.h"

namespace weft {
namespace {

constexpr int64_t kTokens = 1024;

// A linear layer [out, in], so many of it in the model.
struct Layer {
  const char* name;
  int64_t in, out;
  int count;
};
constexpr Layer kLayers[] = {{"attention", 768, 768, 48},
                             {"up", 768, 3072, 12},
                             {"down", 3072, 768, 12},
                             {"head", 768, 50257, 1}};

enum class Product { kForward, kInputGradient, kWeightGradient };
constexpr std::pair<const char*, Product> kProducts[] = {{"forward", Product::kForward},
                                                         {"dx", Product::kInputGradient},
                                                         {"dw", Product::kWeightGradient}};

double FlopsOf(const Layer& layer) {
  return 2.0 * static_cast<double>(kTokens * layer.in * layer.out);
}

std::string Title(const char* precision, const Layer& layer, const char* product) {
  return std::string(precision) + "/" + std::to_string(layer.count) + "x_" + layer.name + "/" +
         product;
}

class Operand {
 public:
  Operand(Device& device, int64_t rows, int64_t cols, DType dtype)
      : device_(device), view_{nullptr, rows, cols, dtype} {
    view_.data = device_.Allocate(view_.bytes());
    if (view_.data == nullptr) std::abort();
    std::minstd_rand generator(static_cast<uint32_t>(rows + cols));
    std::vector<float> values(static_cast<size_t>(view_.elements()));
    for (float& value : values) value = static_cast<float>(generator()) / 2147483648.0F - 0.5F;
    const View wide = {device_.Allocate(view_.elements() * 4), rows, cols, DType::kF32};
    if (wide.data == nullptr) std::abort();
    device_.CopyIn(wide, values.data());
    device_.Copy(view_, wide);
    device_.Free(wide.data, wide.bytes());
  }
  ~Operand() { device_.Free(view_.data, view_.bytes()); }
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;

  View view() const { return view_; }

 private:
  Device& device_;
  View view_;
};

void Measure(benchmark::State& state, Device& device, const Layer& layer, Product product,
             DType dtype) {
  const Operand x(device, kTokens, layer.in, dtype);
  const Operand y(device, kTokens, layer.out, dtype);
  const bool is_weight = product == Product::kWeightGradient;
  const Operand w(device, layer.out, layer.in, is_weight ? DType::kF32 : dtype);
  const auto multiply = [&] {
    switch (product) {
      case Product::kForward:
        return device.MatMul(x.view(), Transpose::kNo, w.view(), Transpose::kYes, 0, y.view());
      case Product::kInputGradient:
        return device.MatMul(y.view(), Transpose::kNo, w.view(), Transpose::kNo, 0, x.view());
      case Product::kWeightGradient:
        return device.MatMul(y.view(), Transpose::kYes, x.view(), Transpose::kNo, 1, w.view());
    }
  };
  multiply();  // the library prepares itself for the shape
  for (auto _ : state) multiply();
  const BackendStatus status = device.Synchronize();
  if (!status.ok()) state.SkipWithError(status.text);
  state.counters["FLOP/s"] =
      benchmark::Counter(FlopsOf(layer), benchmark::Counter::kIsIterationInvariantRate);
}

void RegisterAll(Device& device) {
  for (const auto& [precision, dtype] :
       {std::pair<const char*, DType>{"fp32", DType::kF32}, {"bf16", DType::kBf16}}) {
    for (const Layer& layer : kLayers) {
      for (const auto& [name, product] : kProducts) {
        benchmark::RegisterBenchmark(
            Title(precision, layer, name).c_str(),
            [&device, layer, product = product, dtype = dtype](benchmark::State& state) {
              Measure(state, device, layer, product, dtype);
            })
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
}

// Prints as usual, and remembers the seconds of a call by name: of one run, or the median of many.
class Remembering : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      const bool counts =
          run.run_type == Run::RT_Aggregate ? run.aggregate_name == "median" : run.repetitions <= 1;
      if (!counts || run.error_occurred) continue;
      seconds_[run.run_name.function_name] =
          run.GetAdjustedRealTime() / benchmark::GetTimeUnitMultiplier(run.time_unit);
    }
  }

  // All products of a step; empty if some were filtered out.
  std::string StepText(const char* precision, const PeakRate& peak) const {
    double flops = 0;
    double seconds = 0;
    for (const Layer& layer : kLayers) {
      for (const auto& [name, product] : kProducts) {
        const auto found = seconds_.find(Title(precision, layer, name));
        if (found == seconds_.end()) return "";
        flops += layer.count * FlopsOf(layer);
        seconds += layer.count * found->second;
      }
    }
    char text[160];
    std::snprintf(text, sizeof text,
                  "%s: products of a step %.0f ms, %.1f GFLOP/s, %.0f %% of %.1f (%s)\n", precision,
                  seconds * 1e3, flops / seconds * 1e-9, flops / seconds / peak.flops_per_s * 100,
                  peak.flops_per_s * 1e-9, peak.units.c_str());
    return text;
  }

 private:
  std::map<std::string, double> seconds_;
};

PeakRate Larger(const PeakRate& a, const PeakRate& b) {
  return a.flops_per_s > b.flops_per_s ? a : b;
}

void Run(int threads) {
  PeakRate fp32 = PeakFp32(threads);
  PeakRate bf16 = PeakBf16(threads);
  Remembering reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  fp32 = Larger(fp32, PeakFp32(threads));
  bf16 = Larger(bf16, PeakBf16(threads));
  std::printf("%s%s", reporter.StepText("fp32", fp32).c_str(),
              reporter.StepText("bf16", bf16).c_str());
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const auto api = weft::LoadBackend(weft::BackendKind::kCpu);
  if (!api.ok()) {
    std::fprintf(stderr, "gemm_bench: %s\n", std::string(api.status().message()).c_str());
    return 1;
  }
  const char* const threads = std::getenv("WEFT_BENCH_THREADS");
  const weft::DeviceOptions options = {.threads = threads == nullptr ? 1 : std::atoi(threads)};
  weft::Device* device = nullptr;
  if (!(*api)->open_device(&options, &device).ok()) return 1;
  weft::RegisterAll(*device);
  weft::Run(options.threads);
  (*api)->close_device(device);
  return 0;
}
