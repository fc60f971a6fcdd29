// Views that are columns of wider matrices. What takes them computes what it computes of matrices
// of their own, and touches nothing beside them: the columns around are not-a-number, so that what
// reads them shows, and must stay so. All other operations refuse them.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/backend/device_fixture.h"
#include "tests/worker/backend/tested_backend.h"
#include "worker/backend/device.h"
#include "worker/backend/fp8.h"
#include "worker/backend/part_norms.h"
#include "worker/backend/updates.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::NanSensitiveFloatEq;
using ::testing::Pointwise;

constexpr DType kTypes[] = {DType::kF32, DType::kBf16, DType::kF16};

// Bounds what two ways to compute the same may differ by.
double BoundOf(DType dtype) {
  if (dtype == DType::kF32) return 1e-6;
  return 2 * (dtype == DType::kBf16 ? 0x1p-8 : 0x1p-11);
}

class StridedViews : public DeviceTest {
 protected:
  // Columns of a wider matrix, of which `before` stand before them and `after` behind.
  struct Columns {
    View all, view;
  };
  Columns InGaps(View x, int64_t before, int64_t after) {
    std::vector<float> values(static_cast<size_t>(x.rows * (before + x.cols + after)),
                              std::numeric_limits<float>::quiet_NaN());
    const std::vector<float> own = Download(x);
    for (int64_t row = 0; row < x.rows; ++row) {
      std::copy_n(own.begin() + row * x.cols, x.cols,
                  values.begin() + row * (before + x.cols + after) + before);
    }
    const View all = As(x.dtype, Upload(x.rows, before + x.cols + after, values));
    return {all, all.ColRange(before, x.cols)};
  }
  View Normals(DType dtype, int64_t rows, int64_t cols, uint32_t seed) {
    return As(dtype, Upload(rows, cols, Normal(rows * cols, seed)));
  }
  View Poison(DType dtype, int64_t rows, int64_t cols) { return As(dtype, Fresh(rows, cols)); }

  // Values of the columns, if nothing else of the matrix was written.
  std::vector<float> Values(const Columns& columns) {
    const std::vector<float> all = Download(columns.all);
    const int64_t before =
        (static_cast<char*>(columns.view.data) - static_cast<char*>(columns.all.data)) /
        ElementBytes(columns.all.dtype);
    std::vector<float> values;
    for (int64_t row = 0; row < columns.all.rows; ++row) {
      for (int64_t col = 0; col < columns.all.cols; ++col) {
        const float value = all[static_cast<size_t>(row * columns.all.cols + col)];
        if (col >= before && col < before + columns.view.cols) {
          values.push_back(value);
        } else {
          EXPECT_TRUE(std::isnan(value)) << "row " << row << ", column " << col << " is written";
        }
      }
    }
    return values;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, StridedViews, ::testing::ValuesIn(TestedBackends()),
                         [](const auto& suite) { return suite.param; });

// Gaps that leave rows aligned to 16 bytes, and others.
constexpr std::pair<int64_t, int64_t> kGaps[] = {{16, 8}, {0, 8}, {3, 2}};

TEST_P(StridedViews, AreWhatRangesSay) {
  const View x = Upload(3, 4, {0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23});
  EXPECT_TRUE(x.is_contiguous());
  const View cols = x.ColRange(1, 2);
  EXPECT_EQ(cols.rows, 3);
  EXPECT_EQ(cols.cols, 2);
  EXPECT_FALSE(cols.is_contiguous());
  EXPECT_TRUE(cols.RowRange(1, 1).is_contiguous()) << "a row has no rows to be apart from";
  EXPECT_EQ(Download(cols.RowRange(2, 1)), (std::vector<float>{21, 22}));
  EXPECT_EQ(Download(cols.ColRange(1, 1).RowRange(1, 1)), (std::vector<float>{12}));
}

TEST_P(StridedViews, TakeProducts) {
  for (const DType dtype : kTypes) {
    for (const auto& [before, after] : kGaps) {
      for (const bool wide : {false, true}) {  // results of f32
        const View a = Normals(dtype, 37, 24, 1);
        const View b = Normals(dtype, 24, 40, 2);
        const DType type = wide ? DType::kF32 : dtype;
        const View apart = Poison(type, 37, 40);
        const Columns c = InGaps(Poison(type, 37, 40), before, after);
        device().MatMul(a, Transpose::kNo, b, Transpose::kNo, 0, apart);
        device().MatMul(a, Transpose::kNo, b, Transpose::kNo, 0, c.view);
        EXPECT_LT(RelativeError(Values(c), ToDoubles(Download(apart))), BoundOf(type));
      }
    }
  }
}

// Logits of a vocabulary that is no multiple of a line, as the head keeps them. On the CPU the bits
// are those of rows that follow each other.
TEST_P(StridedViews, AreWhatProductsAreOfToo) {
  const auto expect_same = [&](View found, View expected, DType type) {
    if (GetParam() == "cpu") {
      EXPECT_EQ(Download(found), Download(expected));
    } else {
      EXPECT_LT(RelativeError(Download(found), ToDoubles(Download(expected))), BoundOf(type));
    }
  };
  for (const DType dtype : kTypes) {
    for (const auto& [before, after] : kGaps) {
      const View a = Normals(dtype, 37, 51, 1);
      const Columns columns = InGaps(a, before, after);
      const View b = Normals(dtype, 51, 24, 2), x = Normals(dtype, 37, 24, 3);
      const View apart = Poison(dtype, 37, 24), c = Poison(dtype, 37, 24);
      device().MatMul(a, Transpose::kNo, b, Transpose::kNo, 0, apart);
      device().MatMul(columns.view, Transpose::kNo, b, Transpose::kNo, 0, c);
      expect_same(c, apart, dtype);
      const View sums_apart = Upload(51, 24, Normal(51 * 24, 4));
      const View sums = Upload(51, 24, Normal(51 * 24, 4));
      device().MatMul(a, Transpose::kYes, x, Transpose::kNo, 1, sums_apart);
      device().MatMul(columns.view, Transpose::kYes, x, Transpose::kNo, 1, sums);
      expect_same(sums, sums_apart, DType::kF32);
      EXPECT_EQ(Values(columns), Download(a));
    }
  }
}

// 5,003 columns: several of a block's accesses to each row. Packs of 16 bytes begin elsewhere, so
// sums within them are of other values.
TEST_P(StridedViews, HaveTheCrossEntropyOfTheirValues) {
  constexpr int64_t kRows = 5;
  for (const DType dtype : kTypes) {
    for (const auto& [before, after] : kGaps) {
      for (const int64_t cols : {17, 5003}) {
        for (const bool at_once : {true, false}) {
          const View logits = Normals(dtype, kRows, cols, 1);
          const Columns columns = InGaps(logits, before, after);
          const View targets = UploadIds({0, 16, 3, 7, 5});
          View found[2][3];
          for (const bool apart : {true, false}) {
            View(&results)[3] = found[apart ? 0 : 1];
            for (View& result : results) result = Fresh(kRows, 1);
            const View of = apart ? logits : columns.view;
            if (at_once) {
              device().CrossEntropy(targets, {.scale = 0.25}, of, results[0], results[1],
                                    results[2]);
              continue;
            }
            device().RowMax(of, results[0]);
            device().RowSumExp(of, results[0], targets, 0, {}, results[1], results[2]);
            device().SoftmaxGradient(results[0], results[1], targets, 0, {.scale = 0.25}, of);
          }
          for (int i = 0; i < 3; ++i) {
            EXPECT_LT(RelativeError(Download(found[1][i]), ToDoubles(Download(found[0][i]))), 1e-6);
          }
          EXPECT_LT(RelativeError(Values(columns), ToDoubles(Download(logits))), BoundOf(dtype));
        }
      }
    }
  }
}

TEST_P(StridedViews, AreCopiedInEitherDirection) {
  for (const DType dtype : kTypes) {
    for (const auto& [before, after] : kGaps) {
      const View x = Normals(dtype, 5, 7, 1);
      const Columns from = InGaps(x, before, after);
      const Columns to = InGaps(Poison(dtype, 5, 7), after, before);
      const View whole = Poison(dtype, 5, 7);
      device().Copy(to.view, from.view);
      device().Copy(whole, to.view);
      EXPECT_EQ(Values(to), Download(x));
      EXPECT_EQ(Download(whole), Download(x));
      const Columns back = InGaps(Poison(dtype, 5, 7), before, after);
      device().Copy(back.view, whole);
      EXPECT_EQ(Values(back), Download(x));
    }
  }
}

TEST_P(StridedViews, TurnInPlace) {
  const View table = Upload(3, 16, Normal(48, 9));
  for (const DType dtype : kTypes) {
    for (const auto& [before, after] : kGaps) {
      const View x = Normals(dtype, 6, 48, 1);
      const Columns columns = InGaps(x, before, after);
      device().Rotate(table, Turn::kForth, {}, x);
      device().Rotate(table, Turn::kForth, {}, columns.view);
      EXPECT_EQ(Values(columns), Download(x));
    }
  }
}

// 2,100 columns: more than a block's threads take at once.
TEST_P(StridedViews, GoThroughSwiGluAndBack) {
  for (const DType dtype : kTypes) {
    for (const auto& [before, after] : kGaps) {
      for (const int64_t cols : {24, 2104}) {
        const View gate = Normals(dtype, 5, cols, 1);
        const View up = Normals(dtype, 5, cols, 2);
        const View dy = Normals(dtype, 5, cols, 3);
        const View y = Poison(dtype, 5, cols);
        const View dgate = Poison(dtype, 5, cols);
        const Columns gates = InGaps(gate, before, after);
        const Columns ups = InGaps(up, after, before);
        const Columns ys = InGaps(y, after, after);
        const Columns dgates = InGaps(dgate, before, before);
        const Columns dups = InGaps(dy, before, after);  // written over dy
        device().Glu(Gate::kSilu, gate, up, y);
        device().Glu(Gate::kSilu, gates.view, ups.view, ys.view);
        device().GluGradient(Gate::kSilu, dy, gate, up, dgate, dy);
        device().GluGradient(Gate::kSilu, dups.view, gates.view, ups.view, dgates.view, dups.view);
        EXPECT_EQ(Values(ys), Download(y));
        EXPECT_EQ(Values(dgates), Download(dgate));
        EXPECT_EQ(Values(dups), Download(dy));
        // Some of them alone: results of a buffer of their own.
        const View own = Poison(dtype, 5, cols);
        device().Glu(Gate::kSilu, gates.view, ups.view, own);
        EXPECT_EQ(Download(own), Download(y));
      }
    }
  }
}

struct AttentionCase {
  AttentionShape shape;
  bool keys_apart;  // from the queries, as where they are gathered
  int64_t gap;      // of columns that are nobody's, behind v

  int64_t query() const { return shape.heads * shape.head_dim; }
  int64_t key() const { return shape.kv_heads * shape.head_dim; }
  int64_t width() const { return query() + 2 * key() + gap; }
};

// A call of each pass.
struct AttentionViews {
  View q, k, v, dq, dk, dv;
  View o = {}, lse = {};
};

class StridedAttention : public StridedViews {
 protected:
  AttentionViews Apart(DType dtype, const AttentionCase& c) {
    const int64_t rows = c.shape.batch * c.shape.query_len();
    const int64_t keys = c.shape.batch * c.shape.seq_len;
    return {Normals(dtype, rows, c.query(), 1), Normals(dtype, keys, c.key(), 2),
            Normals(dtype, keys, c.key(), 3),   Poison(dtype, rows, c.query()),
            Poison(dtype, keys, c.key()),       Poison(dtype, keys, c.key())};
  }
  // The same as columns of `in` and, gradients, of `out`.
  AttentionViews InColumns(const AttentionCase& c, const AttentionViews& apart, View in, View out) {
    const auto columns = [&](View of, View own, int64_t begin) {
      const bool is_key = begin > 0;
      if (c.keys_apart && is_key) return Poison(own.dtype, own.rows, own.cols);
      return of.ColRange(begin, own.cols);
    };
    const int64_t k = c.query(), v = c.query() + c.key();
    const AttentionViews views = {columns(in, apart.q, 0),   columns(in, apart.k, k),
                                  columns(in, apart.v, v),   columns(out, apart.dq, 0),
                                  columns(out, apart.dk, k), columns(out, apart.dv, v)};
    device().Copy(views.q, apart.q);
    device().Copy(views.k, apart.k);
    device().Copy(views.v, apart.v);
    return views;
  }
  void Run(const AttentionShape& shape, View dout, AttentionViews* views) {
    constexpr int64_t kAmple = 1 << 20;  // for ways that need more than the least
    const DType dtype = dout.dtype;
    views->o = Poison(dtype, dout.rows, dout.cols);
    views->lse = Fresh(shape.batch * shape.heads, shape.query_len());
    const auto scratch = [&] {
      return Fresh(1, std::max(kAmple, 64 * AttentionScratchElements(shape, dtype)));
    };
    device().Attention(shape, views->q, views->k, views->v, {}, views->o, views->lse, scratch());
    device().AttentionGradient(shape, views->q, views->k, views->v, {}, views->o, views->lse, dout,
                               views->dq, views->dk, views->dv, scratch());
  }
  void ExpectSame(const AttentionViews& found, const AttentionViews& expected, DType dtype) {
    const auto values = [&](View x) {
      const View own = Poison(x.dtype, x.rows, x.cols);
      device().Copy(own, x);
      return Download(own);
    };
    const std::pair<const char*, View AttentionViews::*> views[] = {{"o", &AttentionViews::o},
                                                                    {"lse", &AttentionViews::lse},
                                                                    {"dq", &AttentionViews::dq},
                                                                    {"dk", &AttentionViews::dk},
                                                                    {"dv", &AttentionViews::dv}};
    for (const auto& [name, view] : views) {
      EXPECT_LT(RelativeError(values(found.*view), ToDoubles(values(expected.*view))),
                BoundOf(dtype))
          << name;
    }
  }
  int64_t Numbers(View x) {
    const std::vector<float> all = Download(x);
    return std::count_if(all.begin(), all.end(), [](float value) { return !std::isnan(value); });
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, StridedAttention, ::testing::ValuesIn(TestedBackends()),
                         [](const auto& suite) { return suite.param; });

// q, k and v side by side as one product leaves them, and so their gradients.
TEST_P(StridedAttention, IsThatOfMatricesApart) {
  for (const DType dtype : kTypes) {
    for (const AttentionCase& c : {AttentionCase{{2, 70, 4, 64, 2}, false, 0},
                                   {{1, 140, 2, 128, 2}, false, 0},
                                   {{2, 33, 4, 16, 2}, false, 8},
                                   {{2, 33, 2, 64, 1}, false, 3},
                                   {{1, 9, 2, 5, 1}, false, 0},
                                   {{1, 9, 2, 132, 1}, false, 2},
                                   {{2, 64, 2, 16, 1, 4, 2, {0, 3}}, true, 0},
                                   {{2, 64, 4, 64, 2, 2, 1, {1, 0}}, true, 0}}) {
      AttentionShape shape = c.shape;
      SCOPED_TRACE("E" + std::to_string(shape.head_dim) + " T" + std::to_string(shape.seq_len) +
                   " type " + std::to_string(static_cast<int>(dtype)));
      const int64_t rows = shape.batch * shape.query_len();
      const View dout = Normals(dtype, rows, c.query(), 4);
      AttentionViews apart = Apart(dtype, c);
      Run(shape, dout, &apart);

      shape.query_row_stride = c.width();
      if (!c.keys_apart) shape.key_row_stride = c.width();
      const View in = Poison(dtype, rows, c.width()), out = Poison(dtype, rows, c.width());
      AttentionViews columns = InColumns(c, apart, in, out);
      Run(shape, dout, &columns);
      ExpectSame(columns, apart, dtype);
      const int64_t numbers = rows * (c.keys_apart ? c.query() : c.query() + 2 * c.key());
      EXPECT_EQ(Numbers(out), numbers) << "columns of others are written";
      EXPECT_EQ(Numbers(in), numbers) << "what is read is written";
    }
  }
}

TEST_P(StridedAttention, OfOtherStridesThanTheShapeSaysIsRefused) {
  AttentionShape shape = {1, 4, 2, 8, 1};
  const View wide = Upload(4, 32, Normal(128, 1));
  const View q = Upload(4, 16, Normal(64, 2)), kv = Upload(4, 8, Normal(32, 3));
  const View o = Fresh(4, 16), lse = Fresh(2, 4);
  const View scratch = Fresh(1, 64 * AttentionScratchElements(shape));
  const auto refuses = [&](View queries, View keys) {
    device().Attention(shape, queries, keys, keys, {}, o, lse, scratch);
    return !device().Synchronize().ok();
  };
  EXPECT_FALSE(refuses(q, kv));
  EXPECT_TRUE(refuses(wide.ColRange(0, 16), kv));
  EXPECT_TRUE(refuses(q, wide.ColRange(16, 8)));
  shape.query_row_stride = shape.key_row_stride = 32;
  EXPECT_FALSE(refuses(wide.ColRange(0, 16), wide.ColRange(16, 8)));
  EXPECT_TRUE(refuses(q, wide.ColRange(16, 8)));
}

// A call of an operation, and the operands that must be contiguous.
struct Refusal {
  const char* operation;
  std::vector<View> operands;
  std::function<void(Device&, const std::vector<View>&)> call;
};

struct Operands {
  View x, y, z, out;     // [16, 16]
  View row, row2, row3;  // [1, 16]
  View column, column2;  // [16, 1]
  View ids;              // [16, 1]
  View total;            // [1, 1]
};

std::vector<Refusal> MovingRefusals(const Operands& o) {
  using Views = std::vector<View>;
  return {{"CopyIn",
           {o.x},
           [](Device& d, const Views& v) {
             const std::vector<float> values(static_cast<size_t>(v[0].elements()));
             d.CopyIn(v[0], values.data());
           }},
          {"CopyOut",
           {o.x},
           [](Device& d, const Views& v) {
             std::vector<float> values(static_cast<size_t>(v[0].elements()));
             d.CopyOut(values.data(), v[0]);
           }},
          {"MatMul, b",
           {o.y},
           [o](Device& d, const Views& v) {
             d.MatMul(o.x, Transpose::kNo, v[0], Transpose::kNo, 0, o.z);
           }},
          {"MatMul, a c that is added to",
           {o.z},
           [o](Device& d, const Views& v) {
             d.MatMul(o.x, Transpose::kNo, o.y, Transpose::kNo, 1, v[0]);
           }},
          {"Zero", {o.x}, [](Device& d, const Views& v) { d.Zero(v[0]); }},
          {"Add", {o.x, o.y}, [](Device& d, const Views& v) { d.Add(v[0], v[1]); }},
          {"Scale", {o.x}, [](Device& d, const Views& v) { d.Scale(v[0], 2); }},
          {"AddBias", {o.x}, [o](Device& d, const Views& v) { d.AddBias(o.row, v[0]); }},
          {"BiasGradient", {o.x}, [o](Device& d, const Views& v) { d.BiasGradient(v[0], o.row); }}};
}

std::vector<Refusal> NormRefusals(const Operands& o) {
  using Views = std::vector<View>;
  return {
      {"LayerNorm",
       {o.x, o.y},
       [o](Device& d, const Views& v) {
         d.LayerNorm(v[0], o.row, o.row2, {.eps = 1e-5}, v[1], o.column, o.column2);
       }},
      {"LayerNormGradient",
       {o.x, o.y, o.z},
       [o](Device& d, const Views& v) {
         d.LayerNormGradient(v[0], v[1], o.row, {}, o.column, o.column2, v[2], o.row2, o.row3);
       }},
      {"RmsNorm",
       {o.x, o.y},
       [o](Device& d, const Views& v) { d.RmsNorm(v[0], o.row, {.eps = 1e-5}, v[1], o.column); }},
      {"RmsNormGradient",
       {o.x, o.y, o.z},
       [o](Device& d, const Views& v) {
         d.RmsNormGradient(v[0], v[1], o.row, {}, o.column, v[2], o.row2);
       }},
      {"SquaresByRow",
       {o.x},
       [o](Device& d, const Views& v) { d.part_norms().Squares(v[0], 1, o.column); }},
      {"RmsNormOfPart",
       {o.x, o.y},
       [o](Device& d, const Views& v) {
         d.part_norms().Norm(v[0], o.row, {.eps = 1e-5}, v[1], o.column);
       }},
      {"RmsNormProducts",
       {o.x, o.y},
       [o](Device& d, const Views& v) {
         d.part_norms().Products(v[0], v[1], o.row, {}, o.column, 1, o.column2);
       }},
      {"RmsNormPartGradient", {o.x, o.y, o.z}, [o](Device& d, const Views& v) {
         d.part_norms().Gradient(v[0], v[1], o.row, {}, o.column, o.column2, v[2], o.row2);
       }}};
}

std::vector<Refusal> LayerRefusals(const Operands& o) {
  using Views = std::vector<View>;
  return {{"ErfGelu",
           {o.x, o.y},
           [](Device& d, const Views& v) { d.Activate(PlainActivation::kErfGelu, v[0], v[1]); }},
          {"ErfGeluGradient",
           {o.x, o.y, o.z},
           [](Device& d, const Views& v) {
             d.ActivateGradient(PlainActivation::kErfGelu, v[0], v[1], v[2]);
           }},
          {"Gelu", {o.x, o.y}, [](Device& d, const Views& v) { d.Gelu(v[0], v[1]); }},
          {"GeluGradient",
           {o.x, o.y, o.z},
           [](Device& d, const Views& v) { d.GeluGradient(v[0], v[1], v[2]); }},
          {"Linear",
           {o.y, o.z},
           [o](Device& d, const Views& v) { d.Linear(o.x, v[0], {}, v[1], o.out); }},
          {"LinearGelu",
           {o.y, o.z},
           [o](Device& d, const Views& v) { d.LinearGelu(o.x, v[0], {}, v[1], o.out); }},
          {"GeluLinearGradient",
           {o.y, o.z},
           [o](Device& d, const Views& v) { d.GeluLinearGradient(o.x, v[0], v[1], o.out); }},
          {"LinearGradient with a bias",
           {o.x},
           [o](Device& d, const Views& v) { d.LinearGradient(v[0], o.y, o.z, o.row); }},
          {"Embed",
           {o.x, o.y, o.z},
           [o](Device& d, const Views& v) { d.Embed(o.ids, v[0], 0, v[1], o.ids, v[2]); }},
          {"EmbedGradient", {o.x, o.y, o.z}, [o](Device& d, const Views& v) {
             d.EmbedGradient(o.ids, v[0], 0, o.ids, v[1], v[2]);
           }}};
}

std::vector<Refusal> LossRefusals(const Operands& o) {
  using Views = std::vector<View>;
  return {{"AddLossSum",
           {o.column, o.column, o.column2},
           [o](Device& d, const Views& v) { d.AddLossSum(v[0], v[1], v[2], {}, o.total); }},
          {"AddSumOfSquares",
           {o.x},
           [o](Device& d, const Views& v) { d.AddSumOfSquares(v.data(), 1, o.total); }},
          {"Sgd",
           {o.x, o.y},
           [](Device& d, const Views& v) { d.updates().Sgd(0.1, 0, {}, v[0], v[1]); }},
          {"Adamw",
           {o.x, o.y},
           [o](Device& d, const Views& v) {
             const AdamwSegment segment = {
                 .gradient = v[0], .param = v[1], .exp_avg = o.z, .exp_avg_sq = o.z};
             d.updates().Adamw({.lr = 0.1, .beta1 = 0.9, .beta2 = 0.9, .eps = 1e-8, .step = 1},
                               &segment, 1);
           }},
          {"Adagrad",
           {o.x, o.y, o.z},
           [](Device& d, const Views& v) { d.updates().Adagrad({.lr = 0.1}, v[0], v[1], v[2]); }},
          {"Lion", {o.x, o.y, o.z}, [](Device& d, const Views& v) {
             d.updates().Lion({.lr = 0.1}, v[0], v[1], v[2]);
           }}};
}

TEST_P(StridedViews, AreRefusedByAllOthers) {
  constexpr int64_t kSize = 16;
  const auto matrix = [&](uint32_t seed) {
    return Upload(kSize, kSize, Normal(kSize * kSize, seed));
  };
  const auto row = [&](uint32_t seed) { return Upload(1, kSize, Normal(kSize, seed)); };
  const auto column = [&] { return Upload(kSize, 1, std::vector<float>(kSize, 1.0F)); };
  const View ids = UploadIds(std::vector<int32_t>(kSize, 1));
  const Operands operands = {matrix(1), matrix(2), matrix(3), matrix(4), row(5),        row(6),
                             row(7),    column(),  column(),  ids,       UploadTotal(0)};
  std::vector<Refusal> refusals;
  for (const auto& some : {MovingRefusals(operands), NormRefusals(operands),
                           LayerRefusals(operands), LossRefusals(operands)}) {
    refusals.insert(refusals.end(), some.begin(), some.end());
  }
  for (const Refusal& each : refusals) {
    each.call(device(), each.operands);
    const BackendStatus plain = device().Synchronize();
    EXPECT_TRUE(plain.ok()) << each.operation << ": " << plain.text;
    for (size_t i = 0; i < each.operands.size(); ++i) {
      std::vector<View> views = each.operands;
      const Columns columns = InGaps(views[i], 16, 16);
      views[i] = columns.view;
      each.call(device(), views);
      const BackendStatus status = device().Synchronize();
      EXPECT_FALSE(status.ok()) << each.operation << ", operand " << i;
      EXPECT_THAT(status.text, HasSubstr("do not fit"));
      EXPECT_THAT(Values(columns), Pointwise(NanSensitiveFloatEq(), Download(each.operands[i])))
          << each.operation;
    }
  }
}

}  // namespace
}  // namespace weft
