// Every operation on 16-bit elements against the same operation in f32, which device_test.cc and
// its neighbours hold against references in double. Both are given the same numbers; they may
// differ by the one rounding of each result, to the nearest: u |x| with u = 2^-8 for bf16, 2^-11
// for fp16 (2^-25 below its normal range), and by the rounding of f32 arithmetic.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/backend/device_fixture.h"
#include "tests/worker/backend/tested_backend.h"
#include "worker/backend/part_norms.h"

namespace weft {
namespace {

constexpr DType kNarrow[] = {DType::kBf16, DType::kF16};

double RoundingOf(DType dtype, double value) {
  if (dtype == DType::kBf16) return std::abs(value) * 0x1p-8;
  return std::max(std::abs(value) * 0x1p-11, 0x1p-25);
}

const char* NameOf(DType dtype) {
  return dtype == DType::kBf16 ? "bf16" : "fp16";
}

// An operand: of the call's element type, or f32 whatever that is.
struct Tensor {
  int64_t rows = 0, cols = 0;
  std::vector<float> values;
  bool is_element = true;
};

Tensor Element(int64_t rows, int64_t cols, uint32_t seed, float scale = 1) {
  return {rows, cols, Normal(rows * cols, seed, scale)};
}
Tensor Float(int64_t rows, int64_t cols, uint32_t seed, float scale = 1) {
  return {rows, cols, Normal(rows * cols, seed, scale), false};
}

class NarrowOps : public DeviceTest {
 protected:
  // All operands, after `work` in f32 and in each 16-bit type. `slack`: what f32 sums in another
  // order may differ by.
  void ExpectRoundedOnce(const std::string& what, const std::vector<Tensor>& tensors,
                         const std::function<void(const std::vector<View>&, DType)>& work,
                         double slack = 1e-6) {
    for (const DType dtype : kNarrow) {
      std::vector<View> wide, narrow;
      for (const Tensor& tensor : tensors) {
        const View uploaded = Upload(tensor.rows, tensor.cols, tensor.values);
        narrow.push_back(tensor.is_element ? As(dtype, uploaded) : uploaded);
        wide.push_back(As(DType::kF32, narrow.back()));
      }
      work(wide, DType::kF32);
      work(narrow, dtype);
      for (size_t i = 0; i < tensors.size(); ++i) {
        const std::vector<float> expected = Download(wide[i]);
        const std::vector<float> got = Download(narrow[i]);
        for (size_t j = 0; j < got.size(); ++j) {
          const auto exact = static_cast<double>(expected[j]);
          const double rounding = tensors[i].is_element ? RoundingOf(dtype, exact) * 1.001 : 0;
          ASSERT_NEAR(got[j], exact, rounding + slack * (1 + std::abs(exact)))
              << what << " in " << NameOf(dtype) << ", operand " << i << ", element " << j;
        }
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, NarrowOps, ::testing::ValuesIn(TestedBackends()),
                         [](const auto& tested) { return tested.param; });

// 40: rows of whole accesses of 16 bytes, as those of models are.
TEST_P(NarrowOps, ElementwiseOperationsRoundOnce) {
  for (const int64_t cols : {37, 40}) {
    ExpectRoundedOnce("Add", {Element(5, cols, 1), Element(5, cols, 2)},
                      [&](const auto& x, DType) { device().Add(x[0], x[1]); });
    ExpectRoundedOnce("Scale", {Element(5, cols, 1)},
                      [&](const auto& x, DType) { device().Scale(x[0], 1.7); });
    ExpectRoundedOnce("AddBias", {Element(1, cols, 1), Element(5, cols, 2)},
                      [&](const auto& x, DType) { device().AddBias(x[0], x[1]); });
    ExpectRoundedOnce("Gelu", {Element(5, cols, 1), Element(5, cols, 2)},
                      [&](const auto& x, DType) { device().Gelu(x[0], x[1]); });
    ExpectRoundedOnce("GeluGradient",
                      {Element(5, cols, 1), Element(5, cols, 2), Element(5, cols, 3)},
                      [&](const auto& x, DType) { device().GeluGradient(x[0], x[1], x[2]); });
    ExpectRoundedOnce("SquaredRelu", {Element(5, cols, 1), Element(5, cols, 2)},
                      [&](const auto& x, DType) {
                        device().Activate(PlainActivation::kSquaredRelu, x[0], x[1]);
                      });
    ExpectRoundedOnce("SquaredReluGradient",
                      {Element(5, cols, 1), Element(5, cols, 2), Element(5, cols, 3)},
                      [&](const auto& x, DType) {
                        device().ActivateGradient(PlainActivation::kSquaredRelu, x[0], x[1], x[2]);
                      });
    ExpectRoundedOnce(
        "ErfGelu", {Element(5, cols, 1), Element(5, cols, 2)},
        [&](const auto& x, DType) { device().Activate(PlainActivation::kErfGelu, x[0], x[1]); });
    ExpectRoundedOnce("ErfGeluGradient",
                      {Element(5, cols, 1), Element(5, cols, 2), Element(5, cols, 3)},
                      [&](const auto& x, DType) {
                        device().ActivateGradient(PlainActivation::kErfGelu, x[0], x[1], x[2]);
                      });
    for (const Gate f : {Gate::kSilu, Gate::kGelu}) {
      ExpectRoundedOnce("Glu", {Element(5, cols, 1), Element(5, cols, 2), Element(5, cols, 3)},
                        [&](const auto& x, DType) { device().Glu(f, x[0], x[1], x[2]); });
      ExpectRoundedOnce(
          "GluGradient",
          {Element(5, cols, 1), Element(5, cols, 2), Element(5, cols, 3), Element(5, cols, 4),
           Element(5, cols, 5)},
          [&](const auto& x, DType) { device().GluGradient(f, x[0], x[1], x[2], x[3], x[4]); });
    }
    ExpectRoundedOnce("Copy", {Element(5, cols, 1), Float(5, cols, 2), Element(5, cols, 3)},
                      [&](const auto& x, DType) {
                        device().Copy(x[0], x[1]);
                        device().Copy(x[1], x[2]);
                      });
  }
  for (const int64_t dim : {6, 16}) {
    for (const RotatedHeads& heads : {RotatedHeads{}, {2 * dim, false}, {2 * dim, true}}) {
      ExpectRoundedOnce(
          "Rotate", {Float(4, dim, 1), Element(8, 6 * dim, 2)},
          [&](const auto& x, DType) { device().Rotate(x[0], Turn::kForth, heads, x[1]); });
    }
  }
}

TEST_P(NarrowOps, NormsKeepStatisticsAndWeightGradientsInF32) {
  for (const int64_t cols : {70, 72, 1032, 2056, 8208}) {
    ExpectRoundedOnce("LayerNorm",
                      {Element(7, cols, 1), Element(1, cols, 2), Element(1, cols, 3),
                       Element(7, cols, 4), Float(7, 1, 5), Float(7, 1, 6), Element(7, cols, 7),
                       Element(7, cols, 8), Float(1, cols, 9), Float(1, cols, 10)},
                      [&](const auto& x, DType) {
                        device().LayerNorm(x[0], x[1], x[2], {.eps = 1e-5}, x[3], x[4], x[5]);
                        device().LayerNormGradient(x[6], x[0], x[1], {}, x[4], x[5], x[7], x[8],
                                                   x[9]);
                      });
    ExpectRoundedOnce("RmsNorm",
                      {Element(7, cols, 1), Element(1, cols, 2), Element(7, cols, 3),
                       Float(7, 1, 4), Element(7, cols, 5), Element(7, cols, 6), Float(1, cols, 7)},
                      [&](const auto& x, DType) {
                        device().RmsNorm(x[0], x[1], {.eps = 1e-5, .offset = 1}, x[2], x[3]);
                        device().RmsNormGradient(x[4], x[0], x[1], {.offset = 1}, x[3], x[5], x[6]);
                      });
    ExpectRoundedOnce(
        "RmsNormOfPart",
        {Element(7, cols, 1), Element(1, cols, 2), Element(7, cols, 3), Float(7, 1, 4),
         Element(7, cols, 5), Element(7, cols, 6), Float(1, cols, 7), Float(7, 1, 8)},
        [&](const auto& x, DType) {
          const double factor = 0.5 / static_cast<double>(cols);
          device().part_norms().Squares(x[0], factor, x[3]);
          device().part_norms().Norm(x[0], x[1], {.eps = 1e-5}, x[2], x[3]);
          device().part_norms().Products(x[4], x[0], x[1], {}, x[3], factor, x[7]);
          device().part_norms().Gradient(x[4], x[0], x[1], {}, x[3], x[7], x[5], x[6]);
        });
  }
  for (const int64_t cols : {37, 600}) {
    ExpectRoundedOnce("BiasGradient", {Element(300, cols, 1), Float(1, cols, 2)},
                      [&](const auto& x, DType) { device().BiasGradient(x[0], x[1]); });
  }
}

TEST_P(NarrowOps, EmbeddingsAddTheirGradientsInF32) {
  const View ids = UploadIds({3, 9, 4, 4, 3, 6});
  const View position_ids = UploadIds({0, 1, 2, 0, 1, 2});
  for (const int64_t cols : {12, 24}) {
    ExpectRoundedOnce(
        "Embed", {Element(5, cols, 1), Element(3, cols, 2), Element(6, cols, 3)},
        [&](const auto& x, DType) { device().Embed(ids, x[0], 2, x[1], position_ids, x[2]); });
    ExpectRoundedOnce("EmbedGradient", {Element(6, cols, 1), Float(5, cols, 2), Float(3, cols, 3)},
                      [&](const auto& x, DType) {
                        device().EmbedGradient(ids, x[0], 2, position_ids, x[1], x[2]);
                      });
  }
}

TEST_P(NarrowOps, CrossEntropyKeepsItsSumsInF32) {
  const View targets = UploadIds({3, 90, 41, 0});
  ExpectRoundedOnce("cross-entropy",
                    {Element(4, 91, 1, 3), Float(4, 1, 2), Float(4, 1, 3), Float(4, 1, 4)},
                    [&](const auto& x, DType) {
                      device().RowMax(x[0], x[1]);
                      device().RowSumExp(x[0], x[1], targets, 0, {}, x[2], x[3]);
                      device().SoftmaxGradient(x[1], x[2], targets, 0, {.scale = 0.25}, x[0]);
                    });
  for (const int64_t cols : {91, 96}) {
    ExpectRoundedOnce("CrossEntropy",
                      {Element(4, cols, 1, 3), Float(4, 1, 2), Float(4, 1, 3), Float(4, 1, 4)},
                      [&](const auto& x, DType) {
                        device().CrossEntropy(targets, {.scale = 0.25}, x[0], x[1], x[2], x[3]);
                      });
  }
}

TEST_P(NarrowOps, AttentionRoundsEachGradientOnceHoweverManyHeadsShareIt) {
  const AttentionShape shape = {
      .batch = 2, .seq_len = 150, .heads = 4, .head_dim = 6, .kv_heads = 2};
  const int64_t rows = shape.batch * shape.seq_len;
  const std::vector<Tensor> tensors = {
      Element(rows, 24, 1), Element(rows, 12, 2), Element(rows, 12, 3),
      Element(rows, 24, 4), Float(8, 150, 5),     Element(rows, 24, 6),
      Element(rows, 24, 7), Element(rows, 12, 8), Element(rows, 12, 9)};
  ExpectRoundedOnce("Attention", tensors, [&](const auto& x, DType dtype) {
    const View scratch = Fresh(AttentionScratchElements(shape, dtype), 1);
    device().Attention(shape, x[0], x[1], x[2], {}, x[3], x[4], scratch);
  });
  // The gradient is given an o and lse of its own: what forward rounds, backward takes as given.
  std::vector<Tensor> given = tensors;
  given[3].values.assign(given[3].values.size(), 0.1F);
  given[4].values.assign(given[4].values.size(), 4.0F);
  ExpectRoundedOnce("AttentionGradient", given, [&](const auto& x, DType dtype) {
    const View scratch = Fresh(AttentionScratchElements(shape, dtype), 1);
    device().AttentionGradient(shape, x[0], x[1], x[2], {}, x[3], x[4], x[5], x[6], x[7], x[8],
                               scratch);
  });
}

struct ProductCase {
  int64_t m, n, k;
};

TEST_P(NarrowOps, ProductsHoldForAllTransposesAndShapesIntoBothTypes) {
  for (const auto& [m, n, k] : {ProductCase{3, 7, 5}, {33, 64, 130}}) {
    for (const bool flip_a : {false, true}) {
      for (const bool flip_b : {false, true}) {
        for (const float beta : {0.0F, 1.0F}) {
          for (const bool into_float : {false, true}) {
            const Tensor c = into_float ? Float(m, n, 3) : Element(m, n, 3);
            ExpectRoundedOnce(
                "MatMul",
                {flip_a ? Element(k, m, 1) : Element(m, k, 1),
                 flip_b ? Element(n, k, 2) : Element(k, n, 2), c},
                [&](const auto& x, DType) {
                  device().MatMul(x[0], flip_a ? Transpose::kYes : Transpose::kNo, x[1],
                                  flip_b ? Transpose::kYes : Transpose::kNo, beta, x[2]);
                },
                1e-5);
          }
        }
      }
    }
  }
}

TEST_P(NarrowOps, OfMixedTypesAreRefused) {
  const View wide = Upload(2, 2, {1, 2, 3, 4});
  const View narrow = As(DType::kBf16, wide);
  device().Add(wide, narrow);
  EXPECT_THAT(device().Synchronize().text, testing::HasSubstr("Add"));
  device().MatMul(wide, Transpose::kNo, narrow, Transpose::kNo, 0, wide);
  EXPECT_THAT(device().Synchronize().text, testing::HasSubstr("MatMul"));
  device().Gelu(narrow, As(DType::kF16, wide));
  EXPECT_THAT(device().Synchronize().text, testing::HasSubstr("Gelu"));
  device().Copy(narrow, As(DType::kF16, wide));
  EXPECT_THAT(device().Synchronize().text, testing::HasSubstr("Copy"));
  EXPECT_EQ(Download(narrow), (std::vector<float>{1, 2, 3, 4}));
}

}  // namespace
}  // namespace weft
