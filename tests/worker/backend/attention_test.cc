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
  const auto [batch, seq_len, heads, dim, kv_heads] = shape;
  Reference out = {Doubles(q.size()), Doubles(static_cast<size_t>(batch * heads * seq_len))};
  const auto at = [&](int64_t b, int64_t t, int64_t h, int64_t e) {
    return static_cast<size_t>(((b * seq_len + t) * heads + h) * dim + e);
  };
  const auto kv_at = [&](int64_t b, int64_t t, int64_t h, int64_t e) {
    const int64_t kv_head = h * kv_heads / heads;
    return static_cast<size_t>(((b * seq_len + t) * kv_heads + kv_head) * dim + e);
  };
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t t = 0; t < seq_len; ++t) {
        Doubles p(static_cast<size_t>(t + 1));
        double total = 0;
        for (int64_t s = 0; s <= t; ++s) {
          double score = 0;
          for (int64_t e = 0; e < dim; ++e) score += q[at(b, t, h, e)] * k[kv_at(b, s, h, e)];
          p[static_cast<size_t>(s)] = std::exp(score / std::sqrt(static_cast<double>(dim)));
          total += p[static_cast<size_t>(s)];
        }
        for (int64_t s = 0; s <= t; ++s) {
          for (int64_t e = 0; e < dim; ++e) {
            out.o[at(b, t, h, e)] += p[static_cast<size_t>(s)] / total * v[kv_at(b, s, h, e)];
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
         std::to_string(shape.heads) + " E" + std::to_string(shape.head_dim) + " K" +
         std::to_string(shape.kv_heads);
}

TEST_P(Attention, AgreesForOddShapesAndAcrossTiles) {
  for (const AttentionShape shape : {AttentionShape{1, 1, 1, 1, 1},
                                     {2, 3, 1, 5, 1},
                                     {1, 17, 3, 7, 3},
                                     {2, 5, 4, 3, 2},
                                     {1, 9, 6, 2, 1},
                                     {2, 128, 2, 16, 1},
                                     {1, 129, 2, 8, 2},
                                     {1, 256, 2, 4, 1},
                                     {1, 257, 1, 4, 1},
                                     {1, 700, 2, 4, 1}}) {
    SCOPED_TRACE(Name(shape));
    const int64_t rows = shape.batch * shape.seq_len;
    const int64_t cols = shape.heads * shape.head_dim;
    const int64_t kv_cols = shape.kv_heads * shape.head_dim;
    const std::vector<float> q = Normal(rows * cols, 1);
    const std::vector<float> k = Normal(rows * kv_cols, 2);
    const std::vector<float> v = Normal(rows * kv_cols, 3);
    const View o = Fresh(rows, cols);
    const View lse = Fresh(shape.batch * shape.heads, shape.seq_len);
    device().Attention(shape, Upload(rows, cols, q), Upload(rows, kv_cols, k),
                       Upload(rows, kv_cols, v), o, lse, Fresh(AttentionScratchElements(shape), 1));
    const Reference expected = AttentionOf(shape, ToDoubles(q), ToDoubles(k), ToDoubles(v));
    EXPECT_LT(RelativeError(Download(o), expected.o), 5e-7);
    EXPECT_LT(RelativeError(Download(lse), expected.lse), 5e-7);
  }
}

TEST_P(Attention, GradientIsTheDerivative) {
  for (const AttentionShape shape : {AttentionShape{1, 1, 1, 1, 1},
                                     {2, 3, 1, 5, 1},
                                     {1, 17, 3, 2, 3},
                                     {2, 7, 4, 2, 2},
                                     {1, 6, 6, 2, 1},
                                     {1, 131, 1, 2, 1}}) {
    SCOPED_TRACE(Name(shape));
    const int64_t rows = shape.batch * shape.seq_len;
    const int64_t cols = shape.heads * shape.head_dim;
    const int64_t kv_cols = shape.kv_heads * shape.head_dim;
    const std::vector<float> q = Normal(rows * cols, 1);
    const std::vector<float> k = Normal(rows * kv_cols, 2);
    const std::vector<float> v = Normal(rows * kv_cols, 3);
    const std::vector<float> dout = Normal(rows * cols, 4);
    const View q_view = Upload(rows, cols, q);
    const View k_view = Upload(rows, kv_cols, k);
    const View v_view = Upload(rows, kv_cols, v);
    const View scratch = Fresh(AttentionScratchElements(shape), 1);
    const View o = Fresh(rows, cols);
    const View lse = Fresh(shape.batch * shape.heads, shape.seq_len);
    const View dq = Fresh(rows, cols);
    const View dk = Fresh(rows, kv_cols);
    const View dv = Fresh(rows, kv_cols);
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

// The gradient in closed form, for sequences of several tiles of keys, where difference quotients
// would take minutes; the test above holds the formula.
TEST_P(Attention, GradientIsTheSameAcrossTilesOfKeys) {
  const AttentionShape shape = {1, 600, 2, 4, 1};
  const int64_t rows = shape.seq_len, dim = shape.head_dim, cols = shape.heads * dim;
  const std::vector<float> q = Normal(rows * cols, 1);
  const std::vector<float> k = Normal(rows * dim, 2);
  const std::vector<float> v = Normal(rows * dim, 3);
  const std::vector<float> dout = Normal(rows * cols, 4);
  const Doubles q64 = ToDoubles(q);
  const Doubles k64 = ToDoubles(k);
  const Doubles v64 = ToDoubles(v);
  const Doubles d64 = ToDoubles(dout);
  const Reference forward = AttentionOf(shape, q64, k64, v64);
  const double scale = 1 / std::sqrt(static_cast<double>(dim));
  Doubles dq(q64.size());
  Doubles dk(k64.size());
  Doubles dv(v64.size());
  for (int64_t h = 0; h < shape.heads; ++h) {
    for (int64_t t = 0; t < rows; ++t) {
      const auto at = static_cast<size_t>(t * cols + h * dim);
      const double lse = forward.lse[static_cast<size_t>(h * rows + t)];
      double delta = 0;
      for (size_t e = 0; e < 4; ++e) delta += d64[at + e] * forward.o[at + e];
      for (int64_t s = 0; s <= t; ++s) {
        const auto key = static_cast<size_t>(s * dim);
        double score = 0;
        double dp = 0;
        for (size_t e = 0; e < 4; ++e) {
          score += scale * q64[at + e] * k64[key + e];
          dp += d64[at + e] * v64[key + e];
        }
        const double p = std::exp(score - lse);
        const double ds = scale * p * (dp - delta);
        for (size_t e = 0; e < 4; ++e) {
          dq[at + e] += ds * k64[key + e];
          dk[key + e] += ds * q64[at + e];
          dv[key + e] += p * d64[at + e];
        }
      }
    }
  }
  const View q_view = Upload(rows, cols, q);
  const View k_view = Upload(rows, dim, k);
  const View v_view = Upload(rows, dim, v);
  const auto run = [&] {
    const View scratch = Fresh(AttentionScratchElements(shape), 1);
    const View o = Fresh(rows, cols);
    const View lse = Fresh(shape.heads, rows);
    const View parts[] = {Fresh(rows, cols), Fresh(rows, dim), Fresh(rows, dim)};
    device().Attention(shape, q_view, k_view, v_view, o, lse, scratch);
    device().AttentionGradient(shape, q_view, k_view, v_view, o, lse, Upload(rows, cols, dout),
                               parts[0], parts[1], parts[2], scratch);
    return std::vector<std::vector<float>>{Download(parts[0]), Download(parts[1]),
                                           Download(parts[2])};
  };
  const auto first = run();
  EXPECT_LT(RelativeError(first[0], dq), 1e-6);
  EXPECT_LT(RelativeError(first[1], dk), 1e-6);
  EXPECT_LT(RelativeError(first[2], dv), 1e-6);
  EXPECT_EQ(first, run()) << "the same bits again";
}

TEST_P(Attention, LaterTokensCannotReachEarlierOnes) {
  const AttentionShape shape = {1, 540, 2, 8, 2};
  const int64_t cols = shape.heads * shape.head_dim;
  const int64_t changed = 530;  // in the third tile of keys
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

// Each tile of keys raises the row's maximum far above what was summed before, or leaves it far
// below: both ends of the online softmax.
TEST_P(Attention, SurvivesScoresThatGrowOrFallFromTileToTile) {
  const AttentionShape shape = {1, 520, 1, 1, 1};
  for (const float slope : {1.0F, -1.0F}) {
    std::vector<float> k(520);
    for (size_t t = 0; t < k.size(); ++t) k[t] = slope * static_cast<float>(t);
    const std::vector<float> v = Normal(520, 3);
    const View o = Fresh(520, 1);
    device().Attention(shape, Upload(520, 1, std::vector<float>(520, 1.0F)), Upload(520, 1, k),
                       Upload(520, 1, v), o, Fresh(1, 520),
                       Fresh(AttentionScratchElements(shape), 1));
    const Reference expected = AttentionOf(shape, Doubles(520, 1.0), ToDoubles(k), ToDoubles(v));
    EXPECT_LT(RelativeError(Download(o), expected.o), 5e-7) << slope;
  }
}

TEST_P(Attention, RefusesHeadsThatCannotBeShared) {
  const AttentionShape shape = {1, 2, 3, 1, 2};
  const View x = Upload(2, 3, std::vector<float>(6));
  const View kv = Upload(2, 2, std::vector<float>(4));
  device().Attention(shape, x, kv, kv, x, Fresh(3, 2), Fresh(AttentionScratchElements(shape), 1));
  EXPECT_FALSE(device().Synchronize().ok());
}

TEST_P(Attention, SurvivesScoresThatOverflowWithoutTheRowMaximum) {
  const AttentionShape shape = {1, 4, 1, 4, 1};
  std::vector<float> large(16, 30);  // scores of 1800
  const View view = Upload(4, 4, large);
  const View o = Fresh(4, 4);
  device().Attention(shape, view, view, view, o, Fresh(1, 4),
                     Fresh(AttentionScratchElements(shape), 1));
  EXPECT_THAT(Download(o), ::testing::Each(30.0F));
}

}  // namespace
}  // namespace weft
