// How products choose among the algorithms that cuBLASLt proposes, on one that plays it.
#include "worker/backend/cuda/gemm.h"

#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu/emulation/fake_cublaslt.h"
#include "tests/gpu/emulation/threads.h"
#include "worker/backend/cuda/fastest.h"

namespace weft {
namespace {

using emulation::FakeAlgorithm;
using emulation::RunsOfAlgorithms;
using emulation::SetAlgorithms;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;

constexpr auto kOfOutputType = CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
constexpr auto kInPlace = CUBLASLT_REDUCTION_SCHEME_INPLACE;
constexpr auto kOfComputeType = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

TEST(FastestWay, IsTheOneThatTakesLeast) {
  const std::vector<float> ms = {0.3F, 0.2F, 0.25F};
  EXPECT_EQ(FastestWay(3,
                       [&](int way, int runs) {
                         return ms[static_cast<size_t>(way)] * static_cast<float>(runs);
                       }),
            1);
}

TEST(FastestWay, StaysWithAnEarlierOneUnlessTheOtherIsClearlyFaster) {
  const auto second_takes = [](float ms) {
    return FastestWay(
        2, [&](int way, int runs) { return (way == 0 ? 1.0F : ms) * static_cast<float>(runs); });
  };
  EXPECT_EQ(second_takes(0.99F), 0);
  EXPECT_EQ(second_takes(0.97F), 1);
}

// The first run of a kernel loads it, and one batch in three is disturbed.
TEST(FastestWay, DoesNotCountWhatDisturbsARun) {
  std::vector<int> calls(2);
  const auto disturbed = [&](int way, int runs) {
    const int call = calls[static_cast<size_t>(way)]++;
    const float extra_ms = call == 0 || call == 3 ? 100.0F : 0.0F;
    return (way == 0 ? 0.2F : 0.1F) * static_cast<float>(runs) + (way == 1 ? extra_ms : 0);
  };
  EXPECT_EQ(FastestWay(2, disturbed), 1);
}

TEST(FastestWay, LeavesOutWhatCannotRun) {
  EXPECT_EQ(FastestWay(2, [](int way, int) { return way == 1 ? -1.0F : 1.0F; }), 0);
  EXPECT_EQ(FastestWay(2, [](int way, int) { return way == 0 ? -1.0F : 1.0F; }), 1);
  EXPECT_EQ(FastestWay(2, [](int, int) { return -1.0F; }), -1);
  EXPECT_EQ(FastestWay(0, [](int, int) { return 1.0F; }), -1);
}

TEST(FirstWay, IsTheFirstThatRunsWhateverItTakes) {
  int runs_of_all = 0;
  const auto takes = [&](std::vector<float> ms) {
    return FirstWay(static_cast<int>(ms.size()), [&, ms](int way, int runs) {
      runs_of_all += runs;
      return ms[static_cast<size_t>(way)];
    });
  };
  EXPECT_EQ(takes({3, 1}), 0);
  EXPECT_EQ(takes({-1, 3, 1}), 1);
  EXPECT_EQ(runs_of_all, 1 + 2);
  EXPECT_EQ(takes({-1}), -1);
}

TEST(FastestWay, RunsShortOnesOftenAndLongOnesFiveTimes) {
  const auto runs_of = [](float ms) {
    int sum = 0;
    FastestWay(1, [&](int, int runs) {
      sum += runs;
      return ms * static_cast<float>(runs);
    });
    return sum;
  };
  EXPECT_EQ(runs_of(0.001F), 62);
  EXPECT_EQ(runs_of(40), 5);
}

class Products : public ::testing::Test {
 protected:
  ~Products() override { emulation::ResetAlgorithms(); }

  std::unique_ptr<Gemm> Open(bool deterministic = false, int64_t scratch_bytes = 1 << 16) {
    scratch_.assign(static_cast<size_t>(scratch_bytes), char{-1});  // not-a-numbers
    std::unique_ptr<Gemm> gemm;
    EXPECT_TRUE(OpenGemm({.scratch = scratch_.data(),
                          .scratch_bytes = scratch_bytes,
                          .deterministic = deterministic},
                         &gemm)
                    .ok());
    return gemm;
  }

  // c [rows, 5] of 3 + a' b, a [7, rows], b [7, 5]: what it must be.
  static std::vector<float> Sums(int64_t rows, float beta) {
    std::vector<float> sums;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < 5; ++j) {
        float sum = beta * 3;
        for (int64_t k = 0; k < 7; ++k) sum += OfA(k * rows + i) * OfB(k * 5 + j);
        sums.push_back(sum);
      }
    }
    return sums;
  }
  static float OfA(int64_t i) { return static_cast<float>(i % 11 - 4); }  // sums are exact
  static float OfB(int64_t i) { return static_cast<float>(i % 5 - 2); }

  std::vector<float> Multiply(Gemm& gemm, int64_t rows, float beta) {
    std::vector<float> a, b;
    for (int64_t i = 0; i < 7 * rows; ++i) a.push_back(OfA(i));
    for (int64_t i = 0; i < 7 * 5; ++i) b.push_back(OfB(i));
    std::vector<float> c(static_cast<size_t>(rows * 5), 3.0F);
    const BackendStatus status = gemm.Run({.a = {a.data(), 7, rows, DType::kF32},
                                           .transpose_a = Transpose::kYes,
                                           .b = {b.data(), 7, 5, DType::kF32},
                                           .beta = beta,
                                           .c = {c.data(), rows, 5, DType::kF32}});
    EXPECT_TRUE(status.ok()) << status.text;
    return c;
  }

  // 1/3 and its like, so that the order of a sum shows in its bits. Operands lie so many bytes
  // behind multiples of 256.
  static std::vector<float> RoughProduct(Gemm& gemm, DType dtype = DType::kF32,
                                         int64_t offset_bytes = 16) {
    constexpr int64_t kDepth = 100;
    constexpr int64_t kCols = 512;
    std::array<std::vector<float>, 3> memory;
    const auto place = [&](size_t operand, int64_t count) {
      constexpr int64_t kUnit = 256;
      memory[operand].resize(static_cast<size_t>(count + 2 * kUnit / 4));
      const auto address = reinterpret_cast<intptr_t>(memory[operand].data());
      return memory[operand].data() + ((kUnit - address % kUnit) % kUnit + offset_bytes) / 4;
    };
    float* const a = place(0, kDepth);
    float* const b = place(1, kDepth * kCols);
    float* const c = place(2, kCols);
    for (int64_t i = 0; i < kDepth; ++i) a[i] = 1.0F / static_cast<float>(i + 3);
    for (int64_t i = 0; i < kDepth * kCols; ++i) b[i] = 1.0F / static_cast<float>(2 * i + 7);
    const BackendStatus status = gemm.Run(
        {.a = {a, 1, kDepth, dtype}, .b = {b, kDepth, kCols, dtype}, .c = {c, 1, kCols, dtype}});
    EXPECT_TRUE(status.ok()) << status.text;
    return {c, c + kCols};
  }

  std::vector<char> scratch_;
};

TEST_F(Products, KeepTheFastestAlgorithmOfAShape) {
  SetAlgorithms({{.run_ms = 1}, {.run_ms = 0.5}, {.run_ms = 0.7}});
  const auto gemm = Open();
  Multiply(*gemm, 4, 0);
  const std::vector<int> timed = RunsOfAlgorithms();
  EXPECT_THAT(timed, Each(Gt(1)));
  Multiply(*gemm, 4, 0);
  EXPECT_THAT(RunsOfAlgorithms(), ElementsAre(timed[0], timed[1] + 1, timed[2]));
  Multiply(*gemm, 6, 0);  // another shape: timed again
  EXPECT_GT(RunsOfAlgorithms()[0], timed[0]);
}

TEST_F(Products, AreRightWhileAlgorithmsAreTimed) {
  const auto gemm = Open();
  EXPECT_EQ(Multiply(*gemm, 4, 0), Sums(4, 0));
  EXPECT_EQ(Multiply(*gemm, 4, 0), Sums(4, 0));
}

TEST_F(Products, AreAddedOnceToWhatWasThere) {
  const auto gemm = Open();
  EXPECT_EQ(Multiply(*gemm, 4, 1), Sums(4, 1));
  EXPECT_EQ(Multiply(*gemm, 4, 1), Sums(4, 1));
}

// Scratch for 300 rows, of which 256 are timed.
TEST_F(Products, ThatDoNotFitIntoTheScratchMemoryAreTimedByAPart) {
  SetAlgorithms({{.run_ms = 1}, {.run_ms = 0.5}});
  const auto gemm = Open(false, int64_t{300} * 5 * 4);
  EXPECT_EQ(Multiply(*gemm, 1000, 1), Sums(1000, 1));
  EXPECT_THAT(RunsOfAlgorithms(), ElementsAre(5, 8 + 1));
  const std::vector<float> part = Sums(1000, 0);
  const auto* const timed = reinterpret_cast<const float*>(scratch_.data());
  EXPECT_TRUE(std::isnan(timed[0])) << "it was added to what lay there";
  EXPECT_EQ(scratch_[256 * 5 * 4 + 4], char{-1}) << "beyond the part";
}

TEST_F(Products, ThatNoScratchMemoryHoldsTakeTheFirstProposal) {
  SetAlgorithms({{.run_ms = 1}, {.run_ms = 0.5}});
  const auto gemm = Open(false, 8);
  EXPECT_EQ(Multiply(*gemm, 4, 1), Sums(4, 1));
  EXPECT_THAT(RunsOfAlgorithms(), ElementsAre(1, 0));
}

TEST_F(Products, DoNotTakeAProposalThatFails) {
  SetAlgorithms({{.run_ms = 1}, {.run_ms = 0.1, .fails = true}});
  const auto gemm = Open();
  EXPECT_EQ(Multiply(*gemm, 4, 0), Sums(4, 0));
}

TEST_F(Products, OfADeterministicDeviceHaveTheSameBitsWhateverIsFast) {
  const std::vector<FakeAlgorithm> one = {{.splits = 1, .run_ms = 1},
                                          {.splits = 7, .run_ms = 0.1, .scheme = kOfComputeType}};
  std::vector<FakeAlgorithm> other = one;
  other[1].run_ms = 10;
  const auto product = [&](const std::vector<FakeAlgorithm>& algorithms, bool deterministic) {
    SetAlgorithms(algorithms);
    return RoughProduct(*Open(deterministic));
  };
  EXPECT_NE(product(one, false), product(other, false)) << "else this shows nothing";
  EXPECT_EQ(product(one, true), product(other, true));
  EXPECT_THAT(RunsOfAlgorithms(), ElementsAre(2, 0)) << "nothing is timed";
}

// A new plan of the same layout may place buffers elsewhere (so may another allocation).
TEST_F(Products, OfADeterministicDeviceDoNotDependOnWhereOperandsLie) {
  SetAlgorithms({{.splits = 7, .scheme = kOfComputeType, .alignment = 64}, {.splits = 1}});
  const auto product = [&](bool deterministic, int64_t offset_bytes) {
    return RoughProduct(*Open(deterministic), DType::kF32, offset_bytes);
  };
  EXPECT_NE(product(false, 0), product(false, 16)) << "else this shows nothing";
  EXPECT_EQ(product(true, 0), product(true, 16));
}

TEST_F(Products, OfADeterministicDeviceTakeTheFirstProposalThatRuns) {
  SetAlgorithms({{.is_refused = true}, {.fails = true}, {.run_ms = 5}, {.run_ms = 0.1}});
  const auto gemm = Open(true);
  EXPECT_EQ(Multiply(*gemm, 4, 0), Sums(4, 0));
  EXPECT_THAT(RunsOfAlgorithms(), ElementsAre(0, 1, 2, 0));
}

// In place: in an order that is not said. In the output's type: parts of 16 bits are rounded each.
TEST_F(Products, LeaveOutReductionsThatBreakTheContract) {
  const std::vector<FakeAlgorithm> algorithms = {
      {.splits = 2, .run_ms = 0.1, .scheme = kInPlace},
      {.splits = 3, .run_ms = 0.1, .scheme = kOfOutputType},
      {.splits = 1, .run_ms = 1}};
  SetAlgorithms(algorithms);
  RoughProduct(*Open());
  EXPECT_THAT(RunsOfAlgorithms(), Each(Gt(0)));
  SetAlgorithms(algorithms);
  RoughProduct(*Open(), DType::kBf16);
  EXPECT_THAT(RunsOfAlgorithms(), ElementsAre(0, 0, 1));
  SetAlgorithms(algorithms);
  RoughProduct(*Open(true));
  EXPECT_THAT(RunsOfAlgorithms(), ElementsAre(0, 0, 1));
}

// Scales are read when a product runs, not when its shape is first seen.
TEST_F(Products, OfEightBitsTakeTheScalesOfTheirCall) {
  const auto gemm = Open();
  alignas(16) std::array<uint8_t, 256> one = {};
  one.fill(0x38);  // 1.0 in e4m3
  alignas(16) std::array<float, 256> c = {};
  for (const float scale : {0.5F, 4.0F}) {
    const float other = 8;
    const View codes = {one.data(), 16, 16, DType::kE4m3};
    const BackendStatus status = gemm->Run({.a = codes,
                                            .b = codes,
                                            .transpose_b = Transpose::kYes,
                                            .c = {c.data(), 16, 16, DType::kF32},
                                            .scale_a = &scale,
                                            .scale_b = &other});
    EXPECT_TRUE(status.ok()) << status.text;
    EXPECT_THAT(c, Each(16 * 8 * scale));
  }
}

TEST_F(Products, OfEightBitsAreRefusedOnOlderDevices) {
  std::unique_ptr<Gemm> gemm;
  for (const int capability : {80, 86, 89, 90, 100}) {
    emulation::compute_capability = capability;
    const BackendStatus status = OpenGemm({.fp8 = true}, &gemm);
    EXPECT_EQ(status.ok(), capability >= 89) << capability;
    EXPECT_TRUE(OpenGemm({}, &gemm).ok());
    if (capability != 86) continue;
    EXPECT_STREQ(status.text,
                 "training.mixed_precision: fp8 needs a device of compute capability 8.9 or later; "
                 "emulated has 8.6: use bf16");
  }
  emulation::compute_capability = 90;
}

}  // namespace
}  // namespace weft
