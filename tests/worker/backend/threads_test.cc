// These tests hold what the CPU backend computes on several threads against the bits of one thread.
// Products are the libraries' and not asked here.
#include "worker/backend/cpu/host/threads.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "plan/block/tensors.h"
#include "tests/worker/backend/device_fixture.h"
#include "worker/backend/adafactor_steps.h"
#include "worker/backend/cpu/device_cpu.h"
#include "worker/backend/part_norms.h"
#include "worker/backend/updates.h"

namespace weft {
namespace {

TEST(Threads, CutIntoPiecesThatCoverAllOnceAtMultiplesOfTheUnit) {
  const Threads threads(3);
  for (const int64_t total : {0, 1, 63, 64, 65, 8192, 100001, 1 << 20}) {
    std::vector<int> visits(static_cast<size_t>(total));
    threads.ForEach(total, 64, 1, [&](int64_t first, int64_t size) {
      EXPECT_EQ(first % 64, 0) << total;
      for (int64_t i = first; i < first + size; ++i) ++visits[static_cast<size_t>(i)];
    });
    EXPECT_EQ(visits, std::vector<int>(static_cast<size_t>(total), 1)) << total;
  }
}

#if !defined(__SANITIZE_THREAD__)
// OpenBLAS asks this before it takes more threads for a product.
extern "C" int omp_in_parallel();

TEST(Threads, RunASinglePieceWhereLibrariesDoNotTakeTheOthers) {
  int is_region = -1;
  Threads(2).Run(1, [&](int) { is_region = omp_in_parallel(); });
  EXPECT_EQ(is_region, 1);
  Threads(1).Run(1, [&](int) { is_region = omp_in_parallel(); });
  EXPECT_EQ(is_region, 0);
}
#endif

TEST(Threads, FlushDenormalsOnEach) {
  const Threads threads(4);
  float products[4] = {1, 1, 1, 1};
  volatile float tiny = 1e-30F;
  threads.Run(4, [&](int piece) { products[piece] = tiny * tiny * 1e20F; });
  for (const float product : products) EXPECT_EQ(product, 0);
}

// Tensors of one case on one device, large enough to be cut, no multiple of anything.
class Tensors {
 public:
  static constexpr int64_t kRows = 129, kCols = 515;

  Tensors(int threads, DType dtype) : device(MakeCpuDevice({.threads = threads})), dtype_(dtype) {}

  View Make(int64_t rows, int64_t cols, uint32_t seed, DType dtype) {
    const std::vector<float> values = Normal(rows * cols, seed);
    const View wide = Allocate(rows, cols, DType::kF32);
    std::memcpy(wide.data, values.data(), values.size() * sizeof(float));
    if (dtype == DType::kF32) return wide;
    const View narrow = Allocate(rows, cols, dtype);
    device->Copy(narrow, wide);
    return narrow;
  }
  View Activation(uint32_t seed) { return Make(kRows, kCols, seed, dtype_); }
  View Row(uint32_t seed) { return Make(1, kCols, seed, dtype_); }
  View Sums(uint32_t seed) { return Make(1, kCols, seed, DType::kF32); }
  View Statistic(uint32_t seed) { return Make(kRows, 1, seed, DType::kF32); }
  View Ids(int64_t rows, int32_t below) {
    const View ids = Allocate(rows, 1, DType::kI32);
    for (int64_t i = 0; i < rows; ++i) {
      static_cast<int32_t*>(ids.data)[i] = static_cast<int32_t>(i * 7919 % below);
    }
    return ids;
  }
  DType dtype() const { return dtype_; }

  // Returns the bytes of all tensors made so far.
  std::string Bytes() {
    EXPECT_TRUE(device->Synchronize().ok());
    std::string all;
    for (const auto& memory : memory_) all.append(memory->begin(), memory->end());
    return all;
  }

  const std::unique_ptr<Device> device;

 private:
  View Allocate(int64_t rows, int64_t cols, DType dtype) {
    View view = {nullptr, rows, cols, dtype};
    memory_.push_back(std::make_unique<std::vector<char>>(static_cast<size_t>(view.bytes())));
    view.data = memory_.back()->data();
    return view;
  }

  const DType dtype_;
  std::vector<std::unique_ptr<std::vector<char>>> memory_;
};

// A run that begins and ends within a row.
void RunAdafactor(Tensors& t) {
  constexpr int64_t kRun = 127 * Tensors::kCols + 100;
  const View gradient = t.Make(1, kRun, 1, DType::kF32), param = t.Make(1, kRun, 2, DType::kF32);
  const FactoredView sums = {t.Make(1, Tensors::kRows, 3, DType::kF32), t.Sums(4)};
  const FactoredView moments = {t.Make(1, Tensors::kRows, 5, DType::kF32), t.Sums(6),
                                t.Make(1, 1, 7, DType::kF32)};
  const View norms = t.Make(1, 2, 8, DType::kF32);
  for (const View& row : {sums.rows, sums.cols, moments.rows, moments.cols}) t.device->Zero(row);
  const AdafactorParameters adafactor = {.lr = 0.1, .scale_parameter = true, .elements = kRun};
  t.device->adafactor().Squares({}, gradient, 211, sums);
  t.device->adafactor().Moments(0.2, {}, sums, moments);
  t.device->adafactor().Norms(adafactor, gradient, param, 211, moments, norms);
  t.device->adafactor().Update(adafactor, gradient, param, 211, moments, norms);
}

struct Operation {
  const char* name;
  std::function<void(Tensors&)> run;
};

void RunAttention(Tensors& t) {
  AttentionShape shape{.batch = 3, .seq_len = 150, .heads = 4, .head_dim = 16, .kv_heads = 2};
  const auto queries = [&](uint32_t seed) { return t.Make(450, 64, seed, t.dtype()); };
  const auto keys = [&](uint32_t seed) { return t.Make(450, 32, seed, t.dtype()); };
  const View q = queries(1), k = keys(2), v = keys(3), o = queries(4), dout = queries(5);
  const View lse = t.Make(12, 150, 6, DType::kF32);
  // Scratch is not made as a tensor of the case: what it holds afterwards is nobody's.
  constexpr size_t kMostThreads = 8;
  std::vector<float> floats(kMostThreads *
                            static_cast<size_t>(AttentionScratchElements(shape, t.dtype())));
  const View scratch = {floats.data(), 1, static_cast<int64_t>(floats.size()), DType::kF32};
  t.device->Attention(shape, q, k, v, {}, o, lse, scratch);
  t.device->AttentionGradient(shape, q, k, v, {}, o, lse, dout, queries(7), keys(8), keys(9),
                              scratch);
}

// A plan for fewer threads than the device has.
TEST(ThreadedAttention, RefusesScratchOfFewerThreadsThanCanWork) {
  Tensors t(3, DType::kF32);
  const AttentionShape shape{.batch = 1, .seq_len = 8, .heads = 2, .head_dim = 16, .kv_heads = 2};
  const View x = t.Make(8, 32, 1, DType::kF32), lse = t.Make(2, 8, 2, DType::kF32);
  const View enough = t.Make(2, AttentionScratchElements(shape), 3, DType::kF32);
  t.device->Attention(shape, x, x, x, {}, t.Make(8, 32, 4, DType::kF32), lse, enough);
  EXPECT_TRUE(t.device->Synchronize().ok()) << "two heads occupy two of the three";
  const View few = {enough.data, 1, enough.elements() - 1, DType::kF32};
  t.device->Attention(shape, x, x, x, {}, t.Make(8, 32, 4, DType::kF32), lse, few);
  EXPECT_FALSE(t.device->Synchronize().ok());
}

void RunCrossEntropy(Tensors& t) {
  const View logits = t.Activation(1), row_max = t.Statistic(2), row_sum = t.Statistic(3);
  const View targets = t.Ids(Tensors::kRows, Tensors::kCols);
  t.device->RowMax(logits, row_max);
  t.device->RowSumExp(logits, row_max, targets, 0, {}, row_sum, t.Statistic(4));
  t.device->SoftmaxGradient(row_max, row_sum, targets, 0, {.scale = 0.5}, logits);
}

const Operation kOperations[] = {
    {"Zero", [](Tensors& t) { t.device->Zero(t.Activation(1)); }},
    {"Add", [](Tensors& t) { t.device->Add(t.Activation(1), t.Activation(2)); }},
    {"Scale", [](Tensors& t) { t.device->Scale(t.Activation(1), 0.3); }},
    {"AddBias", [](Tensors& t) { t.device->AddBias(t.Row(1), t.Activation(2)); }},
    {"BiasGradient", [](Tensors& t) { t.device->BiasGradient(t.Activation(1), t.Sums(2)); }},
    {"LayerNorm",
     [](Tensors& t) {
       const View x = t.Activation(1), weight = t.Row(2), mean = t.Statistic(3);
       const View rstd = t.Statistic(4);
       t.device->LayerNorm(x, weight, t.Row(5), {.eps = 1e-5}, t.Activation(6), mean, rstd);
       t.device->LayerNormGradient(t.Activation(7), x, weight, {}, mean, rstd, t.Activation(8),
                                   t.Sums(9), t.Sums(10));
     }},
    {"RmsNorm",
     [](Tensors& t) {
       const View x = t.Activation(1), weight = t.Row(2), rstd = t.Statistic(3);
       t.device->RmsNorm(x, weight, {.eps = 1e-5}, t.Activation(4), rstd);
       t.device->RmsNormGradient(t.Activation(5), x, weight, {}, rstd, t.Activation(6), t.Sums(7));
     }},
    {"RmsNormOfPart",
     [](Tensors& t) {
       const View x = t.Activation(1), weight = t.Row(2), rstd = t.Statistic(3);
       const View means = t.Statistic(4);
       t.device->part_norms().Squares(x, 0.01, rstd);
       t.device->part_norms().Norm(x, weight, {.eps = 1e-5}, t.Activation(5), rstd);
       t.device->part_norms().Products(t.Activation(6), x, weight, {}, rstd, 0.01, means);
       t.device->part_norms().Gradient(t.Activation(6), x, weight, {}, rstd, means, t.Activation(7),
                                       t.Sums(8));
     }},
    {"ErfGelu",
     [](Tensors& t) {
       t.device->Activate(PlainActivation::kErfGelu, t.Activation(1), t.Activation(2));
       t.device->ActivateGradient(PlainActivation::kErfGelu, t.Activation(3), t.Activation(4),
                                  t.Activation(5));
     }},
    {"Gelu",
     [](Tensors& t) {
       t.device->Gelu(t.Activation(1), t.Activation(2));
       t.device->GeluGradient(t.Activation(3), t.Activation(4), t.Activation(5));
     }},
    {"SwiGlu",
     [](Tensors& t) {
       t.device->Glu(Gate::kSilu, t.Activation(1), t.Activation(2), t.Activation(3));
       t.device->GluGradient(Gate::kSilu, t.Activation(4), t.Activation(5), t.Activation(6),
                             t.Activation(7), t.Activation(8));
     }},
    {"ToFp8",
     [](Tensors& t) {
       const View x = t.Make(144, 528, 1, DType::kBf16);
       const View codes = {t.Make(144, 132, 2, DType::kF32).data, 144, 528, DType::kE5m2};
       const View transposed = {t.Make(132, 144, 3, DType::kF32).data, 528, 144, DType::kE5m2};
       t.device->ToFp8(x, codes, transposed, t.Make(1, 1, 4, DType::kF32));
     }},
    {"Attention", RunAttention},
    {"CrossEntropy", RunCrossEntropy},
    {"AddSumOfSquares",
     [](Tensors& t) {
       const View total = {t.Make(1, 2, 2, DType::kF32).data, 1, 1, DType::kF64};
       t.device->Zero(total);
       const View x = t.Make(515, 1031, 1, DType::kF32);
       t.device->AddSumOfSquares(&x, 1, total);
     }},
    {"Adafactor", RunAdafactor},
    {"Adamw",
     [](Tensors& t) {
       const AdamwParameters adamw{.lr = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = 3};
       const auto make = [&](uint32_t seed) { return t.Make(63, 515, seed, DType::kF32); };
       const AdamwSegment segments[] = {
           {make(1), make(2), make(3), make(4), t.Make(63, 515, 5, DType::kF16), 0.1},
           {make(6), make(7), make(8), make(9), {}, 0}};
       t.device->updates().Adamw(adamw, segments, 2);
     }},
};

class OnThreads : public testing::TestWithParam<DType> {};

TEST_P(OnThreads, HasTheBitsOfOneThread) {
  for (const Operation& operation : kOperations) {
    Tensors alone(1, GetParam());
    operation.run(alone);
    for (const int threads : {2, 3}) {
      Tensors together(threads, GetParam());
      operation.run(together);
      EXPECT_TRUE(together.Bytes() == alone.Bytes())
          << operation.name << " on " << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Elements, OnThreads,
                         testing::Values(DType::kF32, DType::kBf16, DType::kF16));

}  // namespace
}  // namespace weft
