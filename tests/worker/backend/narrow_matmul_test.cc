// Products of 16-bit elements by each way that there is, and how threads share products.
#include "worker/backend/cpu/kernels/narrow_matmul.h"

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "worker/backend/cpu/kernels/element.h"

namespace weft {
namespace {

TEST(Bf16Products, AreOneDnnsWhereTheUnitsAreFasterThanThoseOfFp32) {
  const struct {
    const char* processor;
    ProcessorFeatures features;
    Bf16Products chosen;
  } kCases[] = {
      {"Zen 4", {.avx2 = true, .avx512 = true, .avx512_bf16 = true}, Bf16Products::kOneDnn},
      {"Zen 3", {.avx2 = true}, Bf16Products::kWidened},
      {"Cooper Lake",
       {.intel = true, .model = 0x55, .avx2 = true, .avx512 = true, .avx512_bf16 = true},
       Bf16Products::kOneDnn},
      {"Cascade Lake, of the same model",
       {.intel = true, .model = 0x55, .avx2 = true, .avx512 = true},
       Bf16Products::kWidened},
      {"Sapphire Rapids",
       {.intel = true,
        .model = 143,
        .avx2 = true,
        .avx512 = true,
        .avx512_bf16 = true,
        .amx_bf16 = true},
       Bf16Products::kOneDnn},
      {"Emerald Rapids, AMX hidden",
       {.intel = true, .model = 207, .avx2 = true, .avx512 = true, .avx512_bf16 = true},
       Bf16Products::kWidened},
      {"Haswell", {.intel = true, .model = 63, .avx2 = true}, Bf16Products::kWidened},
  };
  for (const auto& c : kCases) EXPECT_EQ(Bf16ProductsOf(c.features), c.chosen) << c.processor;
}

TEST(MatMulCut, GivesEachThreadOnePieceThatIsAsSquareAsCanBe) {
  EXPECT_EQ(CutOf(1024, 768, 768, 1), (MatMulCut{1024, 768}));
  EXPECT_EQ(CutOf(1024, 768, 768, 2), (MatMulCut{512, 768}));
  EXPECT_EQ(CutOf(768, 3072, 1024, 2), (MatMulCut{768, 1536}));
  EXPECT_EQ(CutOf(1024, 1024, 1024, 4), (MatMulCut{512, 512}));
  EXPECT_EQ(CutOf(1, 50257, 768, 2), (MatMulCut{1, 25136})) << "sides are multiples of 16";
  EXPECT_EQ(CutOf(8, 8, 1 << 20, 64), (MatMulCut{8, 8})) << "nothing to cut";
  EXPECT_EQ(CutOf(64, 64, 63, 2), (MatMulCut{64, 64})) << "little to do";
}

TEST(MatMulCut, HasNoMorePiecesThanThreads) {
  const auto pieces = [](int64_t total, int64_t size) { return (total + size - 1) / size; };
  for (const int64_t m : {1, 17, 129, 1024, 50257}) {
    for (const int64_t n : {1, 33, 768, 3000}) {
      for (int threads = 1; threads <= 70; ++threads) {
        const MatMulCut cut = CutOf(m, n, 4096, threads);
        EXPECT_LE(pieces(m, cut.rows) * pieces(n, cut.cols), threads) << m << " x " << n;
      }
    }
  }
}

// A way to multiply, with its memory.
struct Way {
  Way(Bf16Products bf16, int count)
      : name(bf16 == Bf16Products::kOneDnn ? "oneDNN" : "threads: " + std::to_string(count)),
        threads(count),
        matmul(threads, bf16) {}
  BackendStatus Multiply(const NarrowProduct& p) {
    if (p.a.dtype != DType::kF32) return matmul.Multiply(p);
    MatMulOnThreads(threads, {p.m, p.n, p.k, p.a.cols, p.b.cols, p.c.cols},
                    static_cast<const float*>(p.a.data), p.transpose_a,
                    static_cast<const float*>(p.b.data), p.transpose_b, p.beta,
                    static_cast<float*>(p.c.data));
    return {};
  }
  const std::string name;
  const Threads threads;
  NarrowMatMul matmul;
};

template <typename T>
std::vector<T> Random(int64_t count, uint32_t seed) {
  std::minstd_rand generator(seed);
  std::vector<T> values(static_cast<size_t>(count));
  for (T& value : values) {
    Narrow(static_cast<float>(generator()) / 1073741824.0F - 1.0F, &value);
  }
  return values;
}

struct Shape {
  int64_t m, n, k;
};

// c = op(a) op(b) + c, of numbers between -1 and 1.
template <typename T, typename Result>
class Product {
 public:
  Product(const Shape& shape, Transpose transpose_a, Transpose transpose_b)
      : shape_(shape),
        transpose_a_(transpose_a),
        transpose_b_(transpose_b),
        a_(Random<T>(shape.m * shape.k, 1)),
        b_(Random<T>(shape.k * shape.n, 2)),
        before_(Random<Result>(shape.m * shape.n, 3)) {}

  std::vector<Result> By(Way& way) {
    const auto& [m, n, k] = shape_;
    const bool flip_a = transpose_a_ == Transpose::kYes, flip_b = transpose_b_ == Transpose::kYes;
    std::vector<Result> c = before_;
    const BackendStatus status =
        way.Multiply({.m = m,
                      .n = n,
                      .k = k,
                      .a = {a_.data(), flip_a ? k : m, flip_a ? m : k, kElementType<T>},
                      .b = {b_.data(), flip_b ? n : k, flip_b ? k : n, kElementType<T>},
                      .c = {c.data(), m, n, kElementType<Result>},
                      .transpose_a = transpose_a_,
                      .transpose_b = transpose_b_,
                      .beta = 1});
    EXPECT_TRUE(status.ok()) << status.text;
    return c;
  }

  // Each element of c against its sum in double. Sums in single precision, in whatever order, are
  // off by less than 2^-24 k of what the magnitudes add up to, at most k + 1; of random signs, by a
  // few of sqrt(k) roundings of numbers of about sqrt(k): 2e-6 k is a hundred times that.
  void ExpectBy(Way& way) {
    const std::vector<Result> c = By(way);
    const double rounding = std::is_same_v<Result, float> ? 0 : 0x1p-8;
    const auto& [m, n, k] = shape_;
    std::vector<double> row(static_cast<size_t>(n));
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) row[static_cast<size_t>(j)] = At(before_, i * n + j);
      for (int64_t l = 0; l < k; ++l) {
        const double x = At(a_, transpose_a_ == Transpose::kYes ? l * m + i : i * k + l);
        for (int64_t j = 0; j < n; ++j) {
          const int64_t at = transpose_b_ == Transpose::kYes ? j * k + l : l * n + j;
          row[static_cast<size_t>(j)] += x * At(b_, at);
        }
      }
      for (int64_t j = 0; j < n; ++j) {
        const double expected = row[static_cast<size_t>(j)];
        ASSERT_NEAR(At(c, i * n + j), expected,
                    rounding * std::abs(expected) + 2e-6 * static_cast<double>(k))
            << way.name << ", " << m << " x " << n << " over " << k << ": row " << i << ", column "
            << j;
      }
    }
  }

 private:
  template <typename Element>
  static double At(const std::vector<Element>& values, int64_t i) {
    return static_cast<double>(Widen(values[static_cast<size_t>(i)]));
  }

  const Shape shape_;
  const Transpose transpose_a_, transpose_b_;
  std::vector<T> a_, b_;
  const std::vector<Result> before_;
};

template <typename T, typename Result>
void ExpectOfAll(std::initializer_list<Way*> ways, const Shape& shape) {
  for (const Transpose transpose_a : {Transpose::kNo, Transpose::kYes}) {
    for (const Transpose transpose_b : {Transpose::kNo, Transpose::kYes}) {
      Product<T, Result> product(shape, transpose_a, transpose_b);
      for (Way* const way : ways) product.ExpectBy(*way);
    }
  }
}

// Sides around those of a vector and of a block (128 to 1024), and little products.
constexpr Shape kShapes[] = {{1, 1, 1},      {3, 17, 5},     {1, 700, 1050}, {129, 65, 1025},
                             {1030, 47, 33}, {31, 1100, 70}, {515, 530, 40}, {70, 1, 2100}};

TEST(NarrowMatMul, GivesTheSumsOfOddShapesOnAnyNumberOfThreads) {
  Way dnnl(Bf16Products::kOneDnn, 1), one(Bf16Products::kWidened, 1);
  Way two(Bf16Products::kWidened, 2), seven(Bf16Products::kWidened, 7);
  for (const Shape& shape : kShapes) {
    ExpectOfAll<Bf16, float>({&dnnl, &one, &two, &seven}, shape);
    ExpectOfAll<Bf16, Bf16>({&dnnl, &one, &two, &seven}, shape);
    ExpectOfAll<Fp16, Fp16>({&one, &two}, shape);
  }
}

TEST(MatMulOnThreads, GivesTheSumsOfOddShapes) {
  Way one(Bf16Products::kWidened, 1), two(Bf16Products::kWidened, 2);
  Way seven(Bf16Products::kWidened, 7);
  for (const Shape& shape : kShapes) ExpectOfAll<float, float>({&one, &two, &seven}, shape);
}

// Rows that oneDNN is given in parts: fewer than one, one and a bit, three of different sizes.
TEST(NarrowMatMul, InPartsOfTheRowsGivesTheSums) {
  Way dnnl(Bf16Products::kOneDnn, 1);
  for (const int64_t rows : {1, 63, 65, 129, 8195}) {
    Product<Bf16, float>({rows, 53, 35}, Transpose::kYes, Transpose::kNo).ExpectBy(dnnl);
  }
}

// Blocks are smaller there, so that all threads' together stay below 100 MiB.
TEST(NarrowMatMul, GivesTheSumsWhereManyThreadsHaveSmallBlocks) {
  for (const int threads : {9, 40, 200}) {
    Way way(Bf16Products::kWidened, threads);
    Product<Bf16, Bf16>({300, 290, 270}, Transpose::kNo, Transpose::kYes).ExpectBy(way);
  }
}

TEST(NarrowMatMul, GivesTheSameBitsAgain) {
  Product<Bf16, float> product({600, 770, 1100}, Transpose::kYes, Transpose::kNo);
  Way way(Bf16Products::kWidened, 2);
  const std::vector<float> first = product.By(way);
  for (int again = 0; again < 3; ++again) {
    const std::vector<float> other = product.By(way);
    EXPECT_EQ(std::memcmp(first.data(), other.data(), first.size() * sizeof(float)), 0);
  }
}

}  // namespace
}  // namespace weft
