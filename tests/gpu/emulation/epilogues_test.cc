// These tests ask which linear layers are one kernel of cuBLASLt on CUDA, and what becomes of the
// others. That both compute the same is linear_ops_test.cc's.
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu/emulation/fake_cublaslt.h"
#include "tests/gpu/emulation/threads.h"
#include "worker/backend/cuda/device_cuda.h"

namespace weft {
namespace {

using emulation::RunsThatAddAnother;
using emulation::RunsWith;
using emulation::SetAlgorithms;
using ::testing::ElementsAre;

constexpr int64_t kRows = 16;

class Epilogues : public ::testing::TestWithParam<DType> {
 protected:
  Epilogues() { Use({{.run_ms = 1}}); }
  ~Epilogues() override {
    device_->Synchronize();
    emulation::ResetAlgorithms();
  }

  // Makes a view of zeros, `shift` elements behind an address that is a multiple of 256.
  View Make(int64_t rows, int64_t cols, DType dtype, int64_t shift = 0) {
    constexpr int64_t kAlign = 256;
    const int64_t bytes = (rows * cols + shift) * ElementBytes(dtype) + kAlign;
    blocks_.push_back(std::make_unique<std::vector<char>>(static_cast<size_t>(bytes)));
    auto address = reinterpret_cast<uintptr_t>(blocks_.back()->data());
    address = (address + kAlign - 1) / kAlign * kAlign;
    address += static_cast<uintptr_t>(shift * ElementBytes(dtype));
    return {reinterpret_cast<void*>(address), rows, cols, dtype};
  }
  View Make(int64_t rows, int64_t cols) { return Make(rows, cols, GetParam()); }

  Device& device() { return *device_; }

  void Use(const std::vector<emulation::FakeAlgorithm>& algorithms) {
    algorithms_ = algorithms;
    SetAlgorithms(algorithms_);
  }

  // Kernels of weft's own that `work` runs, and from now on what the library ran beside them: the
  // second time, when nothing is timed any more.
  template <typename Work>
  int64_t OwnKernels(const Work& work) {
    work();
    SetAlgorithms(algorithms_);
    const int64_t before = emulation::num_grids;
    work();
    const BackendStatus status = device().Synchronize();
    EXPECT_TRUE(status.ok()) << status.text;
    return emulation::num_grids - before;
  }
  int64_t OwnKernelsOfLinearGelu(View x, View weight, View bias) {
    const View h = Make(x.rows, weight.rows, x.dtype);
    const View y = Make(x.rows, weight.rows, x.dtype);
    return OwnKernels([&] { device().LinearGelu(x, weight, bias, h, y); });
  }

 private:
  static std::unique_ptr<Device> Open() {
    std::unique_ptr<Device> device;
    EXPECT_TRUE(OpenCudaDevice({}, &device).ok());
    return device;
  }

  std::vector<std::unique_ptr<std::vector<char>>> blocks_;
  std::vector<emulation::FakeAlgorithm> algorithms_;
  std::unique_ptr<Device> device_ = Open();
};
INSTANTIATE_TEST_SUITE_P(Types, Epilogues, ::testing::Values(DType::kBf16, DType::kF16));

TEST_P(Epilogues, MakeOneKernelOfAProductItsBiasAndItsResidual) {
  const View x = Make(kRows, 24), weight = Make(40, 24), bias = Make(1, 40);
  const View residual = Make(kRows, 40), y = Make(kRows, 40);
  EXPECT_EQ(OwnKernels([&] { device().Linear(x, weight, bias, {}, y); }), 0);
  EXPECT_EQ(RunsWith(CUBLASLT_EPILOGUE_BIAS), 1);
  EXPECT_EQ(RunsThatAddAnother(), 0);
  EXPECT_EQ(OwnKernels([&] { device().Linear(x, weight, bias, residual, y); }), 0);
  EXPECT_EQ(RunsWith(CUBLASLT_EPILOGUE_BIAS), 1);
  EXPECT_EQ(RunsThatAddAnother(), 1);
  EXPECT_EQ(OwnKernels([&] { device().Linear(x, weight, {}, residual, y); }), 0);
  EXPECT_EQ(RunsWith(CUBLASLT_EPILOGUE_DEFAULT), 1);
  EXPECT_EQ(RunsThatAddAnother(), 1);
  EXPECT_EQ(OwnKernels([&] { device().Linear(x, weight, {}, {}, y); }), 0);
  EXPECT_EQ(RunsThatAddAnother(), 0);
  EXPECT_THAT(emulation::RunsOfAlgorithms(), ElementsAre(1));
}

// Three kernels without: product, bias, GELU; and two on the way back.
TEST_P(Epilogues, MakeOneKernelOfAProductItsBiasAndGelu) {
  const View x = Make(kRows, 24), weight = Make(40, 24);
  EXPECT_EQ(OwnKernelsOfLinearGelu(x, weight, Make(1, 40)), 0);
  EXPECT_EQ(RunsWith(CUBLASLT_EPILOGUE_GELU_AUX_BIAS), 1);
  EXPECT_EQ(OwnKernelsOfLinearGelu(x, weight, {}), 0);
  EXPECT_EQ(RunsWith(CUBLASLT_EPILOGUE_GELU_AUX), 1);
  const View dy = Make(kRows, 40), h = Make(kRows, 24), dh = Make(kRows, 24);
  EXPECT_EQ(OwnKernels([&] { device().GeluLinearGradient(dy, weight, h, dh); }), 0);
  EXPECT_EQ(RunsWith(CUBLASLT_EPILOGUE_DGELU), 1);
  EXPECT_THAT(emulation::RunsOfAlgorithms(), ElementsAre(1));
}

// The sums over rows come out of the product; what adds them to what is there is one kernel.
// Without: two kernels beside the product.
TEST_P(Epilogues, MakeOneKernelOfAWeightsGradientAndItsBias) {
  const View dy = Make(kRows, 40), x = Make(kRows, 24);
  const View dweight = Make(40, 24, DType::kF32), dbias = Make(1, 40, DType::kF32);
  EXPECT_EQ(OwnKernels([&] { device().LinearGradient(dy, x, dweight, dbias); }), 1);
  EXPECT_EQ(RunsWith(CUBLASLT_EPILOGUE_BGRADB), 1);
  EXPECT_EQ(OwnKernels([&] { device().LinearGradient(dy, x, dweight, {}); }), 0);
  EXPECT_EQ(RunsWith(CUBLASLT_EPILOGUE_DEFAULT), 1);
  Use({{.has_epilogues = false}});
  const View wide = Make(48, 24, DType::kF32), wide_bias = Make(1, 48, DType::kF32);
  const View wide_dy = Make(kRows, 48);
  EXPECT_EQ(OwnKernels([&] { device().LinearGradient(wide_dy, x, wide, wide_bias); }), 2);
  EXPECT_EQ(RunsWith(CUBLASLT_EPILOGUE_DEFAULT), 1);
}

// The library has a kernel, but one with GELU takes so long that the product with its bias and a
// kernel of weft's own are faster.
TEST_P(Epilogues, AreLeftToKernelsOfOurOwnWhereTheseAreFaster) {
  Use({{.run_ms = 1, .gelu_ms = 1.5}});
  const View x = Make(kRows, 24), weight = Make(40, 24);
  EXPECT_EQ(OwnKernelsOfLinearGelu(x, weight, Make(1, 40)), 1);
  EXPECT_EQ(RunsWith(CUBLASLT_EPILOGUE_BIAS), 1);
  EXPECT_EQ(RunsWith(CUBLASLT_EPILOGUE_GELU_AUX_BIAS), 0);
  const View dy = Make(kRows, 40), h = Make(kRows, 24), dh = Make(kRows, 24);
  EXPECT_EQ(OwnKernels([&] { device().GeluLinearGradient(dy, weight, h, dh); }), 1);
  EXPECT_EQ(RunsWith(CUBLASLT_EPILOGUE_DGELU), 0);
  bool is_reported = false;
  for (auto remark = device().NextRemark(); remark.text != nullptr;
       remark = device().NextRemark()) {
    is_reported |= std::string(remark.text).find("gelu's gradient") != std::string::npos;
    EXPECT_FALSE(remark.is_warning);
  }
  EXPECT_TRUE(is_reported);
}

TEST_P(Epilogues, AreLeftToKernelsOfOurOwnWhereTheyDoNotApply) {
  const View x = Make(kRows, 24), weight = Make(40, 24), bias = Make(1, 40);
  const auto own_kernels_of = [&](View a, View b, View c) {
    return OwnKernelsOfLinearGelu(a, b, c);
  };
  EXPECT_EQ(own_kernels_of(x, Make(36, 24), Make(1, 36)), 2)
      << "a width that is not a multiple of 8";
  EXPECT_EQ(own_kernels_of(x, weight, Make(1, 40, GetParam(), 4)), 2) << "a bias out of place";
  EXPECT_EQ(own_kernels_of(Make(kRows, 24, DType::kF32), Make(40, 24, DType::kF32),
                           Make(1, 40, DType::kF32)),
            2)
      << "single precision";
  EXPECT_EQ(RunsWith(CUBLASLT_EPILOGUE_GELU_AUX_BIAS), 0);
  EXPECT_EQ(RunsWith(CUBLASLT_EPILOGUE_DEFAULT), 1);
  EXPECT_EQ(own_kernels_of(x, weight, bias), 0) << "else this shows nothing";
}

TEST_P(Epilogues, AreLeftToKernelsOfOurOwnWhereTheLibraryHasNone) {
  Use({{.has_epilogues = false}});
  const View x = Make(kRows, 24), weight = Make(40, 24), bias = Make(1, 40);
  EXPECT_EQ(OwnKernelsOfLinearGelu(x, weight, bias), 2);
  EXPECT_EQ(RunsWith(CUBLASLT_EPILOGUE_GELU_AUX_BIAS), 0);
  EXPECT_EQ(RunsWith(CUBLASLT_EPILOGUE_DEFAULT), 1);
  // Proposed, but none is able.
  Use({{.fails_with_epilogues = true}, {.fails_with_epilogues = true}});
  EXPECT_EQ(OwnKernelsOfLinearGelu(x, Make(48, 24), Make(1, 48)), 2);
  EXPECT_EQ(RunsWith(CUBLASLT_EPILOGUE_DEFAULT), 1);
}

// Each is the fastest at one of the two.
TEST_P(Epilogues, AreTimedApartFromThePlainProduct) {
  SetAlgorithms({{.run_ms = 2, .epilogue_ms = 4}, {.run_ms = 3, .epilogue_ms = 1}});
  const View x = Make(kRows, 24), weight = Make(40, 24), bias = Make(1, 40), y = Make(kRows, 40);
  for (int again = 0; again < 2; ++again) {
    const std::vector<int> before = emulation::RunsOfAlgorithms();
    device().Linear(x, weight, {}, {}, y);
    const std::vector<int> between = emulation::RunsOfAlgorithms();
    device().Linear(x, weight, bias, {}, y);
    const std::vector<int> after = emulation::RunsOfAlgorithms();
    if (again == 0) continue;  // where they are timed
    EXPECT_THAT(between, ElementsAre(before[0] + 1, before[1]));
    EXPECT_THAT(after, ElementsAre(between[0], between[1] + 1));
  }
}

// A result that is written while it is timed is written again, and what is read is left as it is.
TEST_P(Epilogues, GiveTheSameWhenTimedAndAfter) {
  SetAlgorithms({{.run_ms = 1}, {.run_ms = 2}});
  const auto fill = [&](View x, float scale) {
    const View wide = Make(x.rows, x.cols, DType::kF32);
    for (int64_t i = 0; i < x.elements(); ++i) {
      static_cast<float*>(wide.data)[i] = scale * static_cast<float>(i % 11 - 5);
    }
    device().Copy(x, wide);
    return x;
  };
  const View x = fill(Make(kRows, 24), 0.1F), weight = fill(Make(40, 24), 0.2F);
  const View bias = fill(Make(1, 40), 1), residual = fill(Make(kRows, 40), 1);
  const View h = fill(Make(kRows, 24), 0.5F);
  std::vector<std::string> results;
  for (int again = 0; again < 2; ++again) {
    const View sum = Make(kRows, 40), y = Make(kRows, 40), up = Make(kRows, 40);
    const View dh = Make(kRows, 24);
    device().Linear(x, weight, bias, residual, sum);
    device().LinearGelu(x, weight, bias, up, y);
    device().GeluLinearGradient(sum, weight, h, dh);
    std::string bytes;
    for (const View& view : {sum, y, up, dh}) {
      bytes.append(static_cast<const char*>(view.data), static_cast<size_t>(view.bytes()));
    }
    results.push_back(bytes);
  }
  EXPECT_GT(emulation::RunsOfAlgorithms()[1], 3) << "nothing was timed";
  EXPECT_TRUE(results[0] == results[1]);
}

}  // namespace
}  // namespace weft
