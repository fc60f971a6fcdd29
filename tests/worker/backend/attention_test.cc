// Causal attention against the textbook in double.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/backend/device_fixture.h"
#include "worker/backend/device.h"

namespace weft {
namespace {

class Attention : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Backends, Attention, ::testing::Values(BackendKind::kCpu),
                         [](const auto&) { return "cpu"; });

struct Reference {
  Doubles o;    // [B*T, H*E]
  Doubles lse;  // [B*H, T]
};

Reference AttentionOf(const AttentionShape& shape, const Doubles& q, const Doubles& k,
                      const Doubles& v) {
  const auto [batch, seq_len, heads, dim] = shape;
  Reference out = {Doubles(q.size()), Doubles(static_cast<size_t>(batch * heads * seq_len))};
  const auto at = [&](int64_t b, int64_t t, int64_t h, int64_t e) {
    return static_cast<size_t>(((b * seq_len + t) * heads + h) * dim + e);
  };
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t t = 0; t < seq_len; ++t) {
        Doubles p(static_cast<size_t>(t + 1));
        double total = 0;
        for (int64_t s = 0; s <= t; ++s) {
          double score = 0;
          for (int64_t e = 0; e < dim; ++e) score += q[at(b, t, h, e)] * k[at(b, s, h, e)];
          p[static_cast<size_t>(s)] = std::exp(score / std::sqrt(static_cast<double>(dim)));
          total += p[static_cast<size_t>(s)];
        }
        for (int64_t s = 0; s <= t; ++s) {
          for (int64_t e = 0; e < dim; ++e) {
            out.o[at(b, t, h, e)] += p[static_cast<size_t>(s)] / total * v[at(b, s, h, e)];
          }
        }
        out.lse[static_cast<size_t>((b * heads + h) * seq_len + t)] = std::log(total);
      }
    }
  }
  return out;
}

double Dot(const Doubles& x, const std::vector<float>& y) {
  double total = 0;
  for (size_t i = 0; i < x.size(); ++i) total += x[i] * static_cast<double>(y[i]);
  return total;
}

std::string Name(const AttentionShape& shape) {
  return "B" + std::to_string(shape.batch) + " T" + std::to_string(shape.seq_len) + " H" +
         std::to_string(shape.heads) + " E" + std::to_string(shape.head_dim);
}

TEST_P(Attention, AgreesForOddShapesAndAcrossTiles) {
  for (const AttentionShape shape : {AttentionShape{1, 1, 1, 1},
                                     {2, 3, 1, 5},
                                     {1, 17, 3, 7},
                                     {2, 128, 2, 16},
                                     {1, 129, 2, 8},
                                     {1, 300, 1, 4}}) {
    SCOPED_TRACE(Name(shape));
    const int64_t rows = shape.batch * shape.seq_len;
    const int64_t cols = shape.heads * shape.head_dim;
    const std::vector<float> q = Normal(rows * cols, 1);
    const std::vector<float> k = Normal(rows * cols, 2);
    const std::vector<float> v = Normal(rows * cols, 3);
    const View o = Fresh(rows, cols);
    const View lse = Fresh(shape.batch * shape.heads, shape.seq_len);
    device().Attention(shape, Upload(rows, cols, q), Upload(rows, cols, k), Upload(rows, cols, v),
                       o, lse, Fresh(AttentionScratchElements(shape), 1));
    const Reference expected = AttentionOf(shape, ToDoubles(q), ToDoubles(k), ToDoubles(v));
    EXPECT_LT(RelativeError(Download(o), expected.o), 5e-7);
    EXPECT_LT(RelativeError(Download(lse), expected.lse), 5e-7);
  }
}

TEST_P(Attention, GradientIsTheDerivative) {
  for (const AttentionShape shape :
       {AttentionShape{1, 1, 1, 1}, {2, 3, 1, 5}, {1, 17, 3, 2}, {1, 131, 1, 2}}) {
    SCOPED_TRACE(Name(shape));
    const int64_t rows = shape.batch * shape.seq_len;
    const int64_t cols = shape.heads * shape.head_dim;
    const std::vector<float> q = Normal(rows * cols, 1);
    const std::vector<float> k = Normal(rows * cols, 2);
    const std::vector<float> v = Normal(rows * cols, 3);
    const std::vector<float> dout = Normal(rows * cols, 4);
    const View q_view = Upload(rows, cols, q);
    const View k_view = Upload(rows, cols, k);
    const View v_view = Upload(rows, cols, v);
    const View scratch = Fresh(AttentionScratchElements(shape), 1);
    const View o = Fresh(rows, cols);
    const View lse = Fresh(shape.batch * shape.heads, shape.seq_len);
    const View dq = Fresh(rows, cols);
    const View dk = Fresh(rows, cols);
    const View dv = Fresh(rows, cols);
    device().Attention(shape, q_view, k_view, v_view, o, lse, scratch);
    device().AttentionGradient(shape, q_view, k_view, v_view, o, lse, Upload(rows, cols, dout), dq,
                               dk, dv, scratch);

    const Doubles q64 = ToDoubles(q);
    const Doubles k64 = ToDoubles(k);
    const Doubles v64 = ToDoubles(v);
    const auto loss = [&](const Doubles& a, const Doubles& b, const Doubles& c) {
      return Dot(AttentionOf(shape, a, b, c).o, dout);
    };
    const Doubles expected_dq =
        DifferenceQuotient([&](const Doubles& x) { return loss(x, k64, v64); }, q64);
    const Doubles expected_dk =
        DifferenceQuotient([&](const Doubles& x) { return loss(q64, x, v64); }, k64);
    const Doubles expected_dv =
        DifferenceQuotient([&](const Doubles& x) { return loss(q64, k64, x); }, v64);
    // With one key there is nothing to choose: dq and dk are zero.
    if (shape.seq_len > 1) {
      EXPECT_LT(RelativeError(Download(dq), expected_dq), 1e-6);
      EXPECT_LT(RelativeError(Download(dk), expected_dk), 1e-6);
    } else {
      EXPECT_NEAR(Download(dq)[0], 0, 1e-6);
      EXPECT_NEAR(Download(dk)[0], 0, 1e-6);
    }
    EXPECT_LT(RelativeError(Download(dv), expected_dv), 1e-6);
  }
}

TEST_P(Attention, LaterTokensCannotReachEarlierOnes) {
  const AttentionShape shape = {1, 140, 2, 8};
  const int64_t cols = shape.heads * shape.head_dim;
  const int64_t changed = 130;  // in the second tile
  std::vector<float> x = Normal(shape.seq_len * cols, 1);
  const auto run = [&] {
    const View view = Upload(shape.seq_len, cols, x);
    const View o = Fresh(shape.seq_len, cols);
    device().Attention(shape, view, view, view, o, Fresh(shape.heads, shape.seq_len),
                       Fresh(AttentionScratchElements(shape), 1));
    return Download(o);
  };
  const std::vector<float> before = run();
  for (size_t i = static_cast<size_t>(changed * cols); i < x.size(); ++i) x[i] += 1;
  const std::vector<float> after = run();
  const size_t prefix = static_cast<size_t>(changed * cols) * sizeof(float);
  EXPECT_EQ(std::memcmp(before.data(), after.data(), prefix), 0);
  EXPECT_NE(before.back(), after.back());
}

TEST_P(Attention, SurvivesScoresThatOverflowWithoutTheRowMaximum) {
  const AttentionShape shape = {1, 4, 1, 4};
  std::vector<float> large(16, 30);  // scores of 1800
  const View view = Upload(4, 4, large);
  const View o = Fresh(4, 4);
  device().Attention(shape, view, view, view, o, Fresh(1, 4),
                     Fresh(AttentionScratchElements(shape), 1));
  EXPECT_THAT(Download(o), ::testing::Each(30.0F));
}

}  // namespace
}  // namespace weft
