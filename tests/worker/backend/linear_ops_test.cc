// A linear layer with its bias, its residual, its GELU, against the same in double on the same
// numbers. A device may round after each step that device.h names, or leave roundings out; results
// are held to the sum of what all of them may add.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/backend/device_fixture.h"
#include "tests/worker/backend/tested_backend.h"
#include "worker/backend/device.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr DType kTypes[] = {DType::kF32, DType::kBf16, DType::kF16};

double GeluSlope(double x) {
  return (GeluOf(x + 1e-5) - GeluOf(x - 1e-5)) / 2e-5;
}

// A GPU's fused GELU may take tanh from its special function unit, which is off by 2^-11 of tanh at
// most (PTX ISA, tanh.approx.f32).
struct TanhError {
  explicit TanhError(double at)
      : x(at),
        slope_of_u(std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x)),
        tanh(std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) {}
  double error() const { return 0x1p-11 * std::abs(tanh); }
  // It becomes these in x (1 + tanh u) / 2, and in its slope.
  double InGelu() const { return std::abs(x) / 2 * error(); }
  double InSlope() const { return std::abs(0.5 - x * tanh * slope_of_u) * error(); }

  double x, slope_of_u, tanh;
};

// Bounds the rounding of one result near `value`, sums of f32 in any order included.
double RoundingOf(DType dtype, double value) {
  const double sums = 1e-5 * (1 + std::abs(value));
  if (dtype == DType::kF32) return sums;
  const double unit = dtype == DType::kBf16 ? 0x1p-8 : 0x1p-11;
  return sums + std::max(std::abs(value) * unit, 0x1p-25);
}

struct LinearCase {
  int64_t rows, in, out;  // N; widths of the layer
  bool bias, residual;
};
// Widths that a library fuses as well as some that it does not: cuBLASLt's want multiples of 8.
constexpr LinearCase kCases[] = {{3, 5, 7, true, true},    {16, 24, 40, true, false},
                                 {16, 24, 40, true, true}, {16, 24, 40, false, true},
                                 {1, 64, 8, false, false}, {130, 40, 136, true, true}};

class LinearOps : public DeviceTest {
 protected:
  void SetUpOperands(const LinearCase& c, DType dtype) {
    dtype_ = dtype;
    trace_ = std::to_string(c.rows) + "x" + std::to_string(c.in) + "x" + std::to_string(c.out) +
             " of type " + std::to_string(static_cast<int>(dtype));
    x_ = Normals(c.rows, c.in, 1);
    weight_ = Normals(c.out, c.in, 2);
    bias_ = c.bias ? Normals(1, c.out, 3) : View();
    residual_ = c.residual ? Normals(c.rows, c.out, 4) : View();
  }
  // The CPU and all kernels of f32 compute tanh to its last bits.
  bool MayApproximate() const { return GetParam() != "cpu" && dtype_ != DType::kF32; }
  View Normals(int64_t rows, int64_t cols, uint32_t seed) {
    return As(dtype_, Upload(rows, cols, Normal(rows * cols, seed)));
  }
  View Poison(int64_t rows, int64_t cols) { return As(dtype_, Fresh(rows, cols)); }
  // Returns the operand's numbers as it holds them; zeros if it is absent.
  Doubles Values(View x, int64_t count) {
    return x.data == nullptr ? Doubles(static_cast<size_t>(count)) : ToDoubles(Download(x));
  }

  // [rows of a, n], b [n, k] or, not flipped, [k, n].
  Doubles Product(View a, View b, bool flip_b) {
    const Doubles left = Values(a, 0);
    const Doubles right = Values(b, 0);
    const int64_t n = flip_b ? b.rows : b.cols;
    Doubles product;
    for (int64_t i = 0; i < a.rows; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < a.cols; ++k) {
          const int64_t at = flip_b ? j * a.cols + k : k * n + j;
          sum += left[static_cast<size_t>(i * a.cols + k)] * right[static_cast<size_t>(at)];
        }
        product.push_back(sum);
      }
    }
    return product;
  }

  void ExpectNear(const std::vector<float>& got, const Doubles& expected, const Doubles& bound) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], bound[i]) << trace_ << ", element " << i;
    }
  }

  DType dtype_ = DType::kF32;
  std::string trace_;
  View x_, weight_, bias_, residual_;
};
INSTANTIATE_TEST_SUITE_P(Backends, LinearOps, ::testing::ValuesIn(TestedBackends()),
                         [](const auto& suite) { return suite.param; });

TEST_P(LinearOps, LayersAddBiasAndResidualWhereThereIsOne) {
  for (const DType dtype : kTypes) {
    for (const LinearCase& c : kCases) {
      SetUpOperands(c, dtype);
      const View y = Poison(c.rows, c.out);
      device().Linear(x_, weight_, bias_, residual_, y);
      Doubles expected = Product(x_, weight_, true);
      const Doubles bias = Values(bias_, c.out);
      const Doubles residual = Values(residual_, c.rows * c.out);
      Doubles bound(expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        bound[i] = RoundingOf(dtype, expected[i]);
        expected[i] += bias[i % bias.size()];
        bound[i] += RoundingOf(dtype, expected[i]);
        expected[i] += residual[i];
        bound[i] += RoundingOf(dtype, expected[i]);
      }
      ExpectNear(Download(y), expected, bound);
    }
  }
}

TEST_P(LinearOps, LayersWithGeluKeepWhatItTook) {
  for (const DType dtype : kTypes) {
    for (const LinearCase& c : kCases) {
      SetUpOperands(c, dtype);
      const View h = Poison(c.rows, c.out);
      const View y = Poison(c.rows, c.out);
      device().LinearGelu(x_, weight_, bias_, h, y);
      Doubles expected = Product(x_, weight_, true);
      const Doubles bias = Values(bias_, c.out);
      Doubles bound(expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        bound[i] = RoundingOf(dtype, expected[i]);
        expected[i] += bias[i % bias.size()];
        bound[i] += RoundingOf(dtype, expected[i]);
      }
      ExpectNear(Download(h), expected, bound);
      for (size_t i = 0; i < expected.size(); ++i) {
        const double approximated = MayApproximate() ? TanhError(expected[i]).InGelu() : 0;
        expected[i] = GeluOf(expected[i]);
        bound[i] =
            1.13 * bound[i] + approximated + RoundingOf(dtype, expected[i]);  // its steepest slope
      }
      ExpectNear(Download(y), expected, bound);
    }
  }
}

TEST_P(LinearOps, GradientsGoThroughTheLayerAndTheGeluBeforeIt) {
  for (const DType dtype : kTypes) {
    for (const LinearCase& c : kCases) {
      SetUpOperands(c, dtype);
      const View dy = Normals(c.rows, c.out, 5);
      const View h = Normals(c.rows, c.in, 6);
      const View dh = Poison(c.rows, c.in);
      device().GeluLinearGradient(dy, weight_, h, dh);
      Doubles expected = Product(dy, weight_, false);
      const Doubles at = Values(h, 0);
      Doubles bound(expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        const double slope = GeluSlope(at[i]);
        bound[i] = std::abs(slope) * RoundingOf(dtype, expected[i]);
        if (MayApproximate()) bound[i] += std::abs(expected[i]) * TanhError(at[i]).InSlope();
        expected[i] *= slope;
        bound[i] += RoundingOf(dtype, expected[i]);
      }
      ExpectNear(Download(dh), expected, bound);
      EXPECT_EQ(Values(h, 0), at) << trace_ << ": h is left as it is";
    }
  }
}

// Twice: a device may try how it is fastest at the first. Sums of n terms in f32 in any order are
// off by n 2^-24 times the sum of their magnitudes at most (Higham, Accuracy and Stability of
// Numerical Algorithms, 4.2).
TEST_P(LinearOps, GradientsOfParametersAreAddedToWhatIsThere) {
  for (const DType dtype : kTypes) {
    for (const LinearCase& c : kCases) {
      SetUpOperands(c, dtype);
      const View dy = Normals(c.rows, c.out, 5);
      const View dweight = Upload(c.out, c.in, Normal(c.out * c.in, 6));
      const View dbias = c.bias ? Upload(1, c.out, Normal(c.out, 7)) : View();
      const Doubles gradients = Values(dy, 0);
      const Doubles inputs = Values(x_, 0);
      Doubles weights = Values(dweight, 0);
      Doubles biases = Values(dbias, 0);
      Doubles weight_bound(weights.size()), bias_bound(biases.size());
      const double unit = 0x1p-24 * static_cast<double>(c.rows + 2);
      // += the sum over n of a[n, i] b(n), with what rounding may add to its bound.
      const auto add = [&](int64_t i, const auto& b, double& value, double& bound) {
        double magnitudes = std::abs(value);
        for (int64_t n = 0; n < c.rows; ++n) {
          const double term = gradients[static_cast<size_t>(n * c.out + i)] * b(n);
          value += term;
          magnitudes += std::abs(term);
        }
        bound += unit * magnitudes;
      };
      for (int times = 0; times < 2; ++times) {
        device().LinearGradient(dy, x_, dweight, dbias);
        for (int64_t i = 0; i < c.out; ++i) {
          const auto row = static_cast<size_t>(i);
          if (c.bias)
            add(
                i, [](int64_t) { return 1.0; }, biases[row], bias_bound[row]);
          for (int64_t j = 0; j < c.in; ++j) {
            const auto at = static_cast<size_t>(i * c.in + j);
            const auto input = [&](int64_t n) { return inputs[static_cast<size_t>(n * c.in + j)]; };
            add(i, input, weights[at], weight_bound[at]);
          }
        }
        ExpectNear(Download(dweight), weights, weight_bound);
        if (c.bias) ExpectNear(Download(dbias), biases, bias_bound);
      }
      EXPECT_EQ(Values(dy, 0), gradients) << trace_ << ": dy is left as it is";
    }
  }
}

TEST_P(LinearOps, OfOperandsThatDoNotFitAreRefused) {
  for (const DType dtype : kTypes) {
    SetUpOperands({16, 24, 40, true, true}, dtype);
    const auto refused = [&](const char* what) {
      const BackendStatus status = device().Synchronize();
      EXPECT_EQ(status.code, static_cast<int>(absl::StatusCode::kInternal)) << what << trace_;
      EXPECT_THAT(status.text, HasSubstr("do not fit"));
    };
    const View y = Poison(16, 40);
    device().Linear(x_, weight_, Normals(1, 24, 1), {}, y);
    refused("a bias of the inputs' width");
    device().Linear(x_, weight_, {}, Normals(16, 24, 1), y);
    refused("a residual of the inputs' width");
    device().LinearGelu(x_, weight_, bias_, Poison(16, 24), y);
    refused("a pre-activation of the inputs' width");
    device().GeluLinearGradient(y, weight_, Normals(16, 40, 1), Poison(16, 24));
    refused("a GELU of the outputs' width");
    device().LinearGradient(y, x_, Fresh(40, 24), Fresh(1, 24));
    refused("a bias's gradient of the inputs' width");
    device().LinearGradient(y, x_, Fresh(24, 40), {});
    refused("a weight's gradient the other way round");
  }
}

}  // namespace
}  // namespace weft
