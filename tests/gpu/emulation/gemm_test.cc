// How products choose among the algorithms that cuBLASLt proposes, on one that plays it.
#include "worker/backend/cuda/gemm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu/emulation/fake_cublaslt.h"
#include "tests/gpu/emulation/threads.h"
#include "worker/backend/cuda/runtime/fastest.h"

namespace weft {
namespace {

using emulation::FakeAlgorithm;
using emulation::FastRuns;
using emulation::RunsOfAlgorithms;
using emulation::SetAlgorithms;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;

constexpr auto kOfOutputType = CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
constexpr auto kInPlace = CUBLASLT_REDUCTION_SCHEME_INPLACE;
constexpr auto kUnable = CUBLAS_STATUS_NOT_SUPPORTED;
constexpr auto kOfComputeType = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

// Returns how long `runs` runs of a way of `ms` take.
float Take(float ms, int runs) {
  return ms * static_cast<float>(runs);
}

TEST(FastestWay, IsTheOneThatTakesLeast) {
  const std::vector<float> ms = {0.3F, 0.2F, 0.25F};
  const Fastest fastest =
      FastestWay(3, [&](int way, int runs) { return Take(ms[static_cast<size_t>(way)], runs); });
  EXPECT_EQ(fastest.way, 1);
  EXPECT_FLOAT_EQ(fastest.ms, 0.2F);
}

TEST(FastestWay, StaysWithAnEarlierOneUnlessTheOtherIsClearlyFaster) {
  const auto second_takes = [](float ms) {
    return FastestWay(2, [&](int way, int runs) { return Take(way == 0 ? 1.0F : ms, runs); }).way;
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
    return Take(way == 0 ? 0.2F : 0.1F, runs) + (way == 1 ? extra_ms : 0);
  };
  EXPECT_EQ(FastestWay(2, disturbed).way, 1);
}

// At first a device is twice as slow as once its clocks have risen.
TEST(FastestWay, LetsClocksRiseBeforeItTimes) {
  float busy_ms = 0;
  const auto rises = [&](int, int runs) {
    const float ms = Take(busy_ms < 20 ? 2.0F : 1.0F, runs);
    busy_ms += ms;
    return ms;
  };
  EXPECT_FLOAT_EQ(FastestWay(1, rises).ms, 1);
  busy_ms = 0;
  FastestWay(2, [&](int way, int runs) {
    EXPECT_TRUE(way == 0 || busy_ms >= 20);
    return rises(way, runs);
  });
}

TEST(FastestWay, LetsAllTakeTurns) {
  std::vector<int> order;
  FastestWay(2, [&](int way, int runs) {
    if (runs > 1) order.push_back(way);
    return Take(0.1F, runs);
  });
  ASSERT_GE(order.size(), 6U);
  EXPECT_THAT(std::vector<int>(order.end() - 6, order.end()), ElementsAre(0, 1, 0, 1, 0, 1));
}

TEST(FastestWay, LeavesOutWhatCannotRun) {
  const auto way = [](int count, auto takes) {
    return FastestWay(count, [&](int each, int) { return takes(each); }).way;
  };
  EXPECT_EQ(way(2, [](int each) { return each == 1 ? -1.0F : 1.0F; }), 0);
  EXPECT_EQ(way(2, [](int each) { return each == 0 ? -1.0F : 1.0F; }), 1);
  EXPECT_EQ(way(2, [](int) { return -1.0F; }), -1);
  EXPECT_EQ(way(0, [](int) { return 1.0F; }), -1);
}

std::vector<int> RunsOf(const std::vector<float>& ms) {
  std::vector<int> sums(ms.size());
  FastestWay(static_cast<int>(ms.size()), [&](int way, int runs) {
    sums[static_cast<size_t>(way)] += runs;
    return Take(ms[static_cast<size_t>(way)], runs);
  });
  return sums;
}

// The first of all also warms the device: it runs once more, and then for 20 ms.
TEST(FastestWay, RunsShortOnesOftenLongOnesSixTimesAndHopelessOnesThrice) {
  constexpr int kShort = 3 + 3 * 20;
  EXPECT_THAT(RunsOf({0.001F, 0.001F}), ElementsAre(1 + 255 + kShort, kShort));
  EXPECT_THAT(RunsOf({40, 40, 90}), ElementsAre(1 + 1 + 6, 6, 3));
}

TEST(FastestWay, IsFoundInASecondOrSo) {
  EXPECT_THAT(RunsOf({100, 100, 100, 100, 100}), ElementsAre(1 + 1 + 3, 3, 3, 3, 0))
      << "the fourth begins before a second is over";
  EXPECT_THAT(RunsOf({5000, 1}), ElementsAre(1 + 1 + 3, 0));
}

class Products : public ::testing::Test {
 protected:
  ~Products() override { emulation::ResetAlgorithms(); }

  std::unique_ptr<Gemm> Open(bool deterministic = false, int64_t scratch_bytes = 1 << 16) {
    scratch_.assign(static_cast<size_t>(scratch_bytes), char{-1});  // not-a-numbers
    workspace_.resize(kGemmWorkspaceBytes);
    std::unique_ptr<Gemm> gemm;
    EXPECT_TRUE(OpenGemm({.queue = {.scratch = scratch_.data(), .scratch_bytes = scratch_bytes},
                          .workspace = workspace_.data(),
                          .deterministic = deterministic},
                         &gemm)
                    .ok());
    return gemm;
  }

  // c [rows, 5] of `before` + a' b, a [7, rows], b [7, 5]: what it must be.
  static std::vector<float> Sums(int64_t rows, float beta, float before = 3) {
    std::vector<float> sums;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < 5; ++j) {
        float sum = beta * before;
        for (int64_t k = 0; k < 7; ++k) sum += OfA(k * rows + i) * OfB(k * 5 + j);
        sums.push_back(sum);
      }
    }
    return sums;
  }
  static float OfA(int64_t i) { return static_cast<float>(i % 11 - 4); }  // sums are exact
  static float OfB(int64_t i) { return static_cast<float>(i % 5 - 2); }

  std::vector<float> Multiply(Gemm& gemm, int64_t rows, float beta, float before = 3) {
    std::vector<float> a, b;
    for (int64_t i = 0; i < 7 * rows; ++i) a.push_back(OfA(i));
    for (int64_t i = 0; i < 7 * 5; ++i) b.push_back(OfB(i));
    std::vector<float> c(static_cast<size_t>(rows * 5), before);
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

  // y [8, 16] = gelu(x [8, 32] weight' + bias) of zeros, or by `apart`. Whether it is one kernel.
  bool IsFused(Gemm& gemm, const std::function<void(const GemmCall&)>& apart) {
    alignas(16) static std::array<uint16_t, 1024> zeros = {};
    const View bias = {zeros.data(), 1, 16, DType::kBf16};
    const GemmCall call = {.a = {zeros.data(), 8, 32, DType::kBf16},
                           .b = {zeros.data(), 16, 32, DType::kBf16},
                           .transpose_b = Transpose::kYes,
                           .c = {zeros.data() + 512, 8, 16, DType::kBf16},
                           .bias = bias,
                           .gelu = GemmGelu::kForward,
                           .h = {zeros.data() + 768, 8, 16, DType::kBf16}};
    const bool fuses = gemm.Fuses(call, apart);
    if (!fuses) return false;
    status_ = gemm.Run(call);
    return true;
  }

  std::vector<char> scratch_, workspace_;
  BackendStatus status_;  // of what was fused
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

// Scratch for 500 rows, of which 256 are timed.
TEST_F(Products, ThatDoNotFitIntoTheScratchMemoryAreTimedByAPart) {
  SetAlgorithms({{.run_ms = 1}, {.run_ms = 0.5}});
  const auto gemm = Open(false, int64_t{500} * 5 * 4);
  EXPECT_EQ(Multiply(*gemm, 1000, 1), Sums(1000, 1));
  EXPECT_THAT(RunsOfAlgorithms(), Each(Gt(1)));
  const auto* const timed = reinterpret_cast<const float*>(scratch_.data());
  const auto is_number = [](float x) { return std::isfinite(x); };
  EXPECT_TRUE(std::all_of(timed, timed + 256 * 5, is_number)) << "not cleared before";
  EXPECT_TRUE(std::isnan(timed[256 * 5])) << "beyond the part";
  EXPECT_EQ(Multiply(*gemm, 1000, 1), Sums(1000, 1));
}

// Gradients are zeros when a step begins.
TEST_F(Products, ThatAreAddedToZerosAreTimedWholeWhateverTheScratchMemory) {
  SetAlgorithms({{.run_ms = 1}, {.run_ms = 0.5}});
  const auto gemm = Open(false, int64_t{500} * 5 * 4);
  EXPECT_EQ(Multiply(*gemm, 1000, 1, 0), Sums(1000, 1, 0));
  EXPECT_THAT(RunsOfAlgorithms(), Each(Gt(1)));
  EXPECT_EQ(scratch_[500], char{-1}) << "but for a few sums of squares";
  EXPECT_EQ(Multiply(*gemm, 1000, 1, 0), Sums(1000, 1, 0));
}

TEST_F(Products, ThatNoScratchMemoryHoldsTakeTheFirstProposal) {
  SetAlgorithms({{.run_ms = 1}, {.run_ms = 0.5}});
  const auto gemm = Open(false, 8);
  EXPECT_EQ(Multiply(*gemm, 4, 1), Sums(4, 1));
  EXPECT_THAT(RunsOfAlgorithms(), ElementsAre(1, 0));
}

TEST_F(Products, DoNotTakeAProposalThatFails) {
  SetAlgorithms({{.run_ms = 1}, {.run_ms = 0.1, .fails_with = kUnable}});
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
  EXPECT_THAT(RunsOfAlgorithms(), ElementsAre(1, 0)) << "nothing is timed";
}

// A new plan of the same layout may place buffers elsewhere (so may another allocation).
TEST_F(Products, OfADeterministicDeviceDoNotDependOnWhereOperandsLie) {
  SetAlgorithms({{.splits = 7, .scheme = kOfComputeType, .alignment = 16}, {.splits = 1}});
  const auto product = [&](bool deterministic, int64_t offset_bytes) {
    return RoughProduct(*Open(deterministic), DType::kF32, offset_bytes);
  };
  EXPECT_EQ(product(true, 0), product(true, 16));
  EXPECT_NE(product(true, 0), product(true, 4)) << "else this shows nothing";
}

// Gradients lie behind multiples of 64 bytes or of 256, as it comes.
TEST_F(Products, AreTimedOnceForAllThatAreAlignedToSixteenBytes) {
  SetAlgorithms({{.run_ms = 1}, {.run_ms = 0.5}});
  const auto gemm = Open();
  RoughProduct(*gemm, DType::kF32, 16);
  const std::vector<int> timed = RunsOfAlgorithms();
  for (const int64_t offset_bytes : {64, 128, 0}) {
    RoughProduct(*gemm, DType::kF32, offset_bytes);
  }
  EXPECT_THAT(RunsOfAlgorithms(), ElementsAre(timed[0], timed[1] + 3));
}

TEST_F(Products, OfADeterministicDeviceTakeTheFirstProposalThatRuns) {
  SetAlgorithms({{.is_refused = true}, {.fails_with = kUnable}, {.run_ms = 5}, {.run_ms = 0.1}});
  const auto gemm = Open(true);
  EXPECT_EQ(Multiply(*gemm, 4, 1), Sums(4, 1));
  EXPECT_THAT(RunsOfAlgorithms(), ElementsAre(0, 1, 1, 0)) << "what could run was the product";
  EXPECT_EQ(Multiply(*gemm, 4, 1), Sums(4, 1));
  EXPECT_THAT(RunsOfAlgorithms(), ElementsAre(0, 1, 2, 0));
}

// On a device that is nearly full, say: in the next generation it would run.
TEST_F(Products, OfADeterministicDeviceFailRatherThanTakeAnotherAlgorithm) {
  for (const cublasStatus_t code :
       {CUBLAS_STATUS_ALLOC_FAILED, CUBLAS_STATUS_INTERNAL_ERROR, CUBLAS_STATUS_EXECUTION_FAILED}) {
    SetAlgorithms({{.fails_with = code}, {}});
    const auto gemm = Open(true);
    std::array<float, 4> x = {};
    const View view = {x.data(), 2, 2, DType::kF32};
    EXPECT_FALSE(gemm->Run({.a = view, .b = view, .beta = 1, .c = view}).ok()) << code;
    EXPECT_THAT(RunsOfAlgorithms(), ElementsAre(1, 0));
    EXPECT_TRUE(IsFused(
        *gemm, [](const GemmCall&) { ADD_FAILURE() << "kernels of our own have other bits"; }));
    EXPECT_FALSE(status_.ok()) << code;
  }
}

TEST_F(Products, WithAnEpilogueAreOneKernelUnlessSeveralAreFaster) {
  SetAlgorithms({{.run_ms = 1}});
  int times = 0;
  const auto takes = [&](double ms) {
    return [&times, ms](const GemmCall&) {
      ++times;
      emulation::clock_ms += ms;
    };
  };
  EXPECT_TRUE(IsFused(*Open(), takes(0.99))) << "less is noise";
  const auto gemm = Open();
  EXPECT_FALSE(IsFused(*gemm, takes(0.9)));
  EXPECT_EQ(gemm->TakeReport(),
            "products timed, in 10^12 operations a second: 8x16x32 nt bf16 + bias + gelu 9.1e-06 "
            "in several kernels");
  times = 0;
  EXPECT_FALSE(IsFused(*gemm, takes(2))) << "once a shape";
  EXPECT_EQ(times, 0);
  EXPECT_TRUE(IsFused(*Open(true), takes(0.1))) << "a deterministic device times nothing";
  EXPECT_EQ(times, 0);
}

// A layer's dweight [rows, 8] and dbias [rows] of dy [4, rows] and x [4, 8], all of them ones,
// added to `before`; where several kernels take the place of one, they take `apart_ms`.
class BiasGradients : public Products {
 protected:
  static constexpr int64_t kDepth = 4;
  static constexpr int64_t kCols = 8;
  static constexpr int64_t kSumsBytes = int64_t{1} << 12;

  std::unique_ptr<Gemm> OpenWithRoomFor(int64_t rows, bool deterministic = false) {
    return Open(deterministic, rows * kCols * 4 + kSumsBytes);
  }

  bool IsFused(Gemm& gemm, int64_t rows, float before, double apart_ms) {
    const std::vector<uint16_t> ones(static_cast<size_t>(kDepth * std::max(rows, kCols)), 0x3f80);
    dweight_.assign(static_cast<size_t>(rows * kCols), before);
    dbias_.assign(static_cast<size_t>(rows), before);
    View a = {const_cast<uint16_t*>(ones.data()), kDepth, rows, DType::kBf16};
    View b = {const_cast<uint16_t*>(ones.data()), kDepth, kCols, DType::kBf16};
    const View sums = {&*scratch_.end() - kSumsBytes, 1, rows, DType::kF32};
    const GemmCall call = {.a = a,
                           .transpose_a = Transpose::kYes,
                           .b = b,
                           .beta = 1,
                           .c = {dweight_.data(), rows, kCols, DType::kF32},
                           .bias_gradient = {dbias_.data(), 1, rows, DType::kF32},
                           .sums = sums};
    const bool fuses = gemm.Fuses(call, [&](const GemmCall& made) {
      emulation::clock_ms += apart_ms;
      apart_spoils_ |= made.bias_gradient.data == dbias_.data();
      apart_spoils_ |= made.c.data == dweight_.data() && before != 0;
      EXPECT_EQ(made.c.rows, rows);
    });
    if (fuses) status_ = gemm.Run(call);
    return fuses;
  }

  std::vector<float> dweight_, dbias_;
  bool apart_spoils_ = false;  // what the call adds to
};

TEST_F(BiasGradients, ComeOutOfTheProductAndAreAddedOnce) {
  SetAlgorithms({{.run_ms = 1}, {.run_ms = 0.5}});
  const auto gemm = OpenWithRoomFor(16);
  for (int again = 0; again < 2; ++again) {
    ASSERT_TRUE(IsFused(*gemm, 16, 3, 0.7));
    EXPECT_TRUE(status_.ok()) << status_.text;
    EXPECT_THAT(dweight_, Each(3 + 4));
    EXPECT_THAT(dbias_, Each(3 + 4));
  }
  EXPECT_FALSE(apart_spoils_);
  EXPECT_EQ(gemm->TakeReport(),
            "products timed, in 10^12 operations a second: 16x8x4 tn bf16 to fp32 + c + bias "
            "gradient 2.05e-06");
}

TEST_F(BiasGradients, AreLeftToSumsOverRowsWhereTheseAreFaster) {
  SetAlgorithms({{.run_ms = 1}});
  EXPECT_FALSE(IsFused(*OpenWithRoomFor(16), 16, 3, 0.5));
  EXPECT_THAT(dweight_, Each(3)) << "nothing is added by trials";
  EXPECT_THAT(dbias_, Each(3));
  EXPECT_FALSE(IsFused(*OpenWithRoomFor(16, /*deterministic=*/true), 16, 3, 100));
  EXPECT_FALSE(apart_spoils_);
}

// Scratch for half of dweight: nowhere to try but dweight itself, while it is all zeros.
TEST_F(BiasGradients, AreTriedInPlaceOrNotAtAllWithoutScratchMemory) {
  SetAlgorithms({{.run_ms = 1}, {.run_ms = 0.5}});
  EXPECT_FALSE(IsFused(*OpenWithRoomFor(8), 16, 3, 0.7));
  EXPECT_THAT(dweight_, Each(3));
  EXPECT_THAT(dbias_, Each(3));
  ASSERT_TRUE(IsFused(*OpenWithRoomFor(8), 16, 0, 0.7));
  EXPECT_THAT(dweight_, Each(4)) << "cleared after trials";
  EXPECT_THAT(dbias_, Each(4));
  EXPECT_FALSE(apart_spoils_);
}

TEST_F(Products, ReportWhatTheFastestReach) {
  SetAlgorithms({{.run_ms = 1e-7}, {.run_ms = 0.5e-7}});
  const auto gemm = Open();
  EXPECT_EQ(gemm->TakeReport(), "");
  Multiply(*gemm, 4, 0);  // 280 operations
  Multiply(*gemm, 8, 1);
  EXPECT_EQ(gemm->TakeReport(),
            "products timed, in 10^12 operations a second: 4x5x7 tn fp32 5.6, 8x5x7 tn fp32 + c "
            "11.2");
  Multiply(*gemm, 4, 0);
  EXPECT_EQ(gemm->TakeReport(), "") << "each once";
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

// The gradients' products have an operand of e5m2.
TEST_F(Products, OfTwoE4m3AloneAddUpFastWhereThatIsAsked) {
  SetAlgorithms({{.splits = 1}});
  alignas(16) std::array<uint8_t, 256> codes = {};
  alignas(16) std::array<float, 256> c = {};
  const float scale = 1;
  for (const bool is_asked : {false, true}) {
    std::unique_ptr<Gemm> gemm;
    ASSERT_TRUE(OpenGemm({.fp8 = true, .fp8_fast_accumulation = is_asked}, &gemm).ok());
    int fast = FastRuns();
    for (const DType type : {DType::kE4m3, DType::kE5m2, DType::kE4m3}) {
      const BackendStatus status = gemm->Run({.a = {codes.data(), 16, 16, type},
                                              .b = {codes.data(), 16, 16, DType::kE4m3},
                                              .transpose_b = Transpose::kYes,
                                              .c = {c.data(), 16, 16, DType::kF32},
                                              .scale_a = &scale,
                                              .scale_b = &scale});
      EXPECT_TRUE(status.ok()) << status.text;
      fast += is_asked && type == DType::kE4m3 ? 1 : 0;
      EXPECT_EQ(FastRuns(), fast);
    }
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
