// Causal attention against the textbook in double.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/backend/device_fixture.h"
#include "tests/worker/backend/tested_backend.h"
#include "worker/backend/device.h"

namespace weft {
namespace {

struct AttentionCase {
  AttentionShape shape;
  std::vector<int32_t> documents = {};  // where they start in each sequence; empty: none
  int64_t window = 0;                   // keys that a query sees; 0: all of its document
};

std::string Name(const AttentionCase& c) {
  const AttentionShape& shape = c.shape;
  return "B" + std::to_string(shape.batch) + " T" + std::to_string(shape.seq_len) + " H" +
         std::to_string(shape.heads) + " E" + std::to_string(shape.head_dim) + " K" +
         std::to_string(shape.kv_heads) + " " + std::to_string(shape.pieces) + "/" +
         std::to_string(shape.runs) + " " + std::to_string(c.documents.size()) +
         " documents, window " + std::to_string(c.window) + ", cap " + std::to_string(shape.cap);
}

// Runs `piece` of each sequence are the queries.
AttentionShape Pieces(AttentionShape shape, int64_t runs, std::vector<int64_t> piece) {
  shape.runs = runs;
  shape.pieces = std::ssize(piece);
  std::copy(piece.begin(), piece.end(), shape.piece);
  return shape;
}

// Position of query `row` of a sequence.
int64_t PositionOf(const AttentionShape& shape, int64_t row) {
  return shape.piece[row / shape.run_len()] * shape.run_len() + row % shape.run_len();
}

// Returns the first position that each query [B*Tq] sees.
std::vector<int32_t> FirstVisible(const AttentionCase& c) {
  std::vector<int32_t> first;
  for (int64_t row = 0; row < c.shape.batch * c.shape.query_len(); ++row) {
    const int64_t position = PositionOf(c.shape, row % c.shape.query_len());
    first.push_back(0);
    for (const int32_t start : c.documents) {
      if (start <= position) first.back() = start;
    }
    if (c.window > 0) {
      first.back() = std::max(first.back(), static_cast<int32_t>(position - c.window + 1));
    }
  }
  return first;
}

struct Inputs {
  explicit Inputs(const AttentionShape& shape)
      : q(Normal(shape.batch * shape.query_len() * shape.heads * shape.head_dim, 1)),
        k(Normal(shape.batch * shape.seq_len * shape.kv_heads * shape.head_dim, 2)),
        v(Normal(shape.batch * shape.seq_len * shape.kv_heads * shape.head_dim, 3)),
        dout(Normal(shape.batch * shape.query_len() * shape.heads * shape.head_dim, 4)) {}

  std::vector<float> q, k, v, dout;
};

struct AttentionReference {
  Doubles o;    // [B*Tq, H*E]
  Doubles lse;  // [B*H, Tq]
};

// Where the elements of a tensor lie, of q and of k.
struct Places {
  explicit Places(const AttentionShape& s) : shape(s) {}
  int64_t Query(int64_t b, int64_t row, int64_t h) const {
    return ((b * shape.query_len() + row) * shape.heads + h) * shape.head_dim;
  }
  int64_t Key(int64_t b, int64_t t, int64_t h) const {
    const int64_t kv_head = h * shape.kv_heads / shape.heads;
    return ((b * shape.seq_len + t) * shape.kv_heads + kv_head) * shape.head_dim;
  }
  size_t Lse(int64_t b, int64_t row, int64_t h) const {
    return static_cast<size_t>((b * shape.heads + h) * shape.query_len() + row);
  }
  const AttentionShape shape;
};

double Dot(const double* x, const double* y, int64_t count) {
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += x[i] * y[i];
  return total;
}

void AddTimes(double factor, const double* x, double* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] += factor * x[i];
}

// Calls visit(b, h, row, first, last): query `row` of sequence b and head h sees keys first..last.
template <typename Visit>
void ForEachQuery(const AttentionCase& c, const Visit& visit) {
  const std::vector<int32_t> first = FirstVisible(c);
  for (int64_t b = 0; b < c.shape.batch; ++b) {
    for (int64_t h = 0; h < c.shape.heads; ++h) {
      for (int64_t row = 0; row < c.shape.query_len(); ++row) {
        visit(b, h, row, first[static_cast<size_t>(b * c.shape.query_len() + row)],
              PositionOf(c.shape, row));
      }
    }
  }
}

// A score of queries and keys with this product, and its slope.
struct Score {
  double value, slope;
};
Score ScoreOf(const AttentionShape& shape, double product) {
  const double scale =
      shape.scale != 0 ? shape.scale : 1 / std::sqrt(static_cast<double>(shape.head_dim));
  if (shape.cap == 0) return {scale * product, scale};
  const double share = std::tanh(scale * product / shape.cap);
  return {shape.cap * share, scale * (1 - share * share)};
}

AttentionReference AttentionOf(const AttentionCase& c, const Doubles& q, const Doubles& k,
                               const Doubles& v) {
  const Places at(c.shape);
  const int64_t dim = c.shape.head_dim;
  AttentionReference out = {Doubles(q.size()), Doubles(q.size() / static_cast<size_t>(dim))};
  ForEachQuery(c, [&](int64_t b, int64_t h, int64_t row, int64_t first, int64_t last) {
    const double* const query = q.data() + at.Query(b, row, h);
    double* const o = out.o.data() + at.Query(b, row, h);
    double total = 0;
    for (int64_t s = first; s <= last; ++s) {
      const double product = Dot(query, k.data() + at.Key(b, s, h), dim);
      const double e = std::exp(ScoreOf(c.shape, product).value);
      AddTimes(e, v.data() + at.Key(b, s, h), o, dim);
      total += e;
    }
    for (int64_t e = 0; e < dim; ++e) o[e] /= total;
    out.lse[at.Lse(b, row, h)] = std::log(total);
  });
  return out;
}

struct Gradients {
  Doubles dq, dk, dv;
};

// The gradient in closed form, for sequences of several tiles, where difference quotients would
// take minutes; on short ones it is held against them.
Gradients GradientsOf(const AttentionCase& c, const Inputs& in, const AttentionReference& forward) {
  const Doubles q = ToDoubles(in.q), k = ToDoubles(in.k), v = ToDoubles(in.v);
  const Doubles dout = ToDoubles(in.dout);
  const Places at(c.shape);
  const int64_t dim = c.shape.head_dim;
  Gradients out = {Doubles(q.size()), Doubles(k.size()), Doubles(v.size())};
  ForEachQuery(c, [&](int64_t b, int64_t h, int64_t row, int64_t first, int64_t last) {
    const int64_t query = at.Query(b, row, h);
    const double delta = Dot(dout.data() + query, forward.o.data() + query, dim);
    for (int64_t s = first; s <= last; ++s) {
      const int64_t key = at.Key(b, s, h);
      const Score score = ScoreOf(c.shape, Dot(q.data() + query, k.data() + key, dim));
      const double p = std::exp(score.value - forward.lse[at.Lse(b, row, h)]);
      const double ds = score.slope * p * (Dot(dout.data() + query, v.data() + key, dim) - delta);
      AddTimes(ds, k.data() + key, out.dq.data() + query, dim);
      AddTimes(ds, q.data() + query, out.dk.data() + key, dim);
      AddTimes(p, dout.data() + query, out.dv.data() + key, dim);
    }
  });
  return out;
}

class Attention : public DeviceTest {
 protected:
  struct Outputs {
    std::vector<float> o, lse, dq, dk, dv;
    friend bool operator==(const Outputs&, const Outputs&) = default;
  };

  // Forward, then backward.
  Outputs Run(const AttentionCase& c, const Inputs& in) {
    const AttentionShape& s = c.shape;
    const int64_t queries = s.batch * s.query_len(), keys = s.batch * s.seq_len;
    const int64_t width = s.heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
    const View q = Upload(queries, width, in.q);
    const View k = Upload(keys, kv_width, in.k);
    const View v = Upload(keys, kv_width, in.v);
    const bool has_mask = !c.documents.empty() || c.window > 0;
    const View first_visible = has_mask ? UploadIds(FirstVisible(c)) : View();
    const View o = Fresh(queries, width);
    const View lse = Fresh(s.batch * s.heads, s.query_len());
    const View dq = Fresh(queries, width);
    const View dk = Fresh(keys, kv_width);
    const View dv = Fresh(keys, kv_width);
    const View scratch = Fresh(AttentionScratchElements(s), 1);
    device().Attention(s, q, k, v, first_visible, o, lse, scratch);
    device().AttentionGradient(s, q, k, v, first_visible, o, lse, Upload(queries, width, in.dout),
                               dq, dk, dv, scratch);
    return {Download(o), Download(lse), Download(dq), Download(dk), Download(dv)};
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, Attention, ::testing::ValuesIn(TestedBackends()),
                         [](const auto& suite) { return suite.param; });

// Tiles are 128 queries and 256 keys, in CUDA 64 of each; documents cross them, end at them, begin
// at each side. Heads of more than 64 are several slices of the CUDA kernels, of more than 128 a
// matter of several blocks; those that are no multiples of 4 are read one by one.
std::vector<AttentionCase> AttentionCases() {
  std::vector<AttentionCase> cases;
  for (const AttentionShape& shape : {AttentionShape{1, 1, 1, 1, 1},
                                      {2, 3, 1, 5, 1},
                                      {1, 17, 3, 7, 3},
                                      {2, 5, 4, 3, 2},
                                      {1, 9, 6, 2, 1},
                                      {1, 70, 2, 52, 1},
                                      {1, 70, 2, 67, 1},
                                      {1, 66, 1, 80, 1},
                                      {1, 66, 2, 132, 2},
                                      {1, 70, 2, 202, 1},
                                      {2, 128, 2, 16, 1},
                                      {1, 129, 2, 8, 2},
                                      {1, 256, 2, 4, 1},
                                      {1, 257, 1, 4, 1},
                                      {1, 600, 2, 4, 1},
                                      {1, 700, 2, 4, 1}}) {
    cases.push_back({shape, {}});
  }
  const AttentionShape small = {2, 12, 4, 3, 2};
  const AttentionShape large = {2, 720, 2, 4, 1};
  const AttentionShape grouped = {1, 1040, 4, 4, 2};
  cases.push_back({small, {0, 5}});
  cases.push_back({small, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}});
  cases.push_back({large, {3}});
  cases.push_back({large, {128, 256, 512}});
  cases.push_back({large, {127, 129, 255, 257, 511, 513, 719}});
  cases.push_back({grouped, {300, 301, 800}});
  // Caps that bite, and one that hardly does.
  for (const double cap : {0.5, 3.0, 50.0}) {
    for (AttentionShape shape : {small, large, grouped, Pieces(large, 4, {0, 3})}) {
      shape.cap = cap;
      shape.scale = 0.7;
      cases.push_back({shape, {}});
      cases.push_back({shape, {}, 7});
    }
  }
  // Windows within a tile, of whole tiles, over several, and across documents.
  for (const int64_t window : {2, 3, 64, 130, 257, 5000}) {
    cases.push_back({small, {}, window});
    cases.push_back({large, {}, window});
    cases.push_back({large, {127, 129, 511}, window});
    cases.push_back({grouped, {}, window});
    cases.push_back({Pieces(large, 4, {0, 3}), {}, window});
    cases.push_back({Pieces(grouped, 8, {3, 4}), {300}, window});
  }
  for (const std::vector<int32_t>& documents :
       {std::vector<int32_t>{}, {5}, {100, 250, 256, 400, 640}}) {
    cases.push_back({Pieces(small, 4, {0, 3}), documents});
    cases.push_back({Pieces(small, 4, {1, 2}), documents});
    cases.push_back({Pieces(small, 3, {2}), documents});
    cases.push_back({Pieces(large, 4, {0, 3}), documents});
    cases.push_back({Pieces(large, 4, {1, 2}), documents});
    cases.push_back({Pieces(grouped, 8, {3, 4}), documents});
    cases.push_back({Pieces(grouped, 2, {1, 0}), documents});  // in any order
  }
  return cases;
}

// Tells whether the gradients of queries and keys are 0, as no query sees more than its own key.
bool HasNoChoice(const AttentionCase& c) {
  bool no_choice = true;
  ForEachQuery(c, [&](int64_t, int64_t, int64_t, int64_t first, int64_t last) {
    no_choice = no_choice && first == last;
  });
  return no_choice;
}

TEST_P(Attention, AgreesWithTheTextbookForOddShapesPiecesAndDocuments) {
  for (const AttentionCase& c : AttentionCases()) {
    SCOPED_TRACE(Name(c));
    const Inputs in(c.shape);
    const Outputs out = Run(c, in);
    const AttentionReference expected =
        AttentionOf(c, ToDoubles(in.q), ToDoubles(in.k), ToDoubles(in.v));
    EXPECT_LT(RelativeError(out.o, expected.o), 5e-7);
    EXPECT_LT(RelativeError(out.lse, expected.lse), 5e-7);
    const Gradients gradients = GradientsOf(c, in, expected);
    EXPECT_LT(RelativeError(out.dv, gradients.dv), 1e-6);
    if (HasNoChoice(c)) {
      EXPECT_THAT(out.dq, ::testing::Each(::testing::FloatNear(0, 1e-6F)));
      EXPECT_THAT(out.dk, ::testing::Each(::testing::FloatNear(0, 1e-6F)));
    } else {
      EXPECT_LT(RelativeError(out.dq, gradients.dq), 1e-6);
      EXPECT_LT(RelativeError(out.dk, gradients.dk), 1e-6);
    }
  }
}

TEST_P(Attention, GradientIsTheDerivative) {
  const AttentionShape small = {2, 12, 4, 2, 2};
  for (const AttentionCase& c :
       {AttentionCase{{2, 3, 1, 5, 1}, {}},
        {{1, 17, 3, 2, 3}, {}},
        {{2, 7, 4, 2, 2}, {}},
        {{1, 6, 6, 2, 1}, {}},
        {{1, 131, 1, 2, 1}, {}},
        {small, {4, 5}},
        {{.batch = 2, .seq_len = 7, .heads = 4, .head_dim = 2, .kv_heads = 2, .cap = 0.8}},
        {Pieces(small, 4, {1, 2}), {}},
        {Pieces(small, 4, {0, 3}), {7}}}) {
    SCOPED_TRACE(Name(c));
    const Inputs in(c.shape);
    const Doubles q = ToDoubles(in.q), k = ToDoubles(in.k), v = ToDoubles(in.v);
    const Doubles dout = ToDoubles(in.dout);
    const auto loss = [&](const Doubles& a, const Doubles& b, const Doubles& d) {
      return Dot(AttentionOf(c, a, b, d).o.data(), dout.data(), std::ssize(dout));
    };
    const Outputs out = Run(c, in);
    EXPECT_LT(RelativeError(out.dq,
                            DifferenceQuotient([&](const Doubles& x) { return loss(x, k, v); }, q)),
              1e-6);
    EXPECT_LT(RelativeError(out.dk,
                            DifferenceQuotient([&](const Doubles& x) { return loss(q, x, v); }, k)),
              1e-6);
    EXPECT_LT(RelativeError(out.dv,
                            DifferenceQuotient([&](const Doubles& x) { return loss(q, k, x); }, v)),
              1e-6);
  }
}

TEST_P(Attention, YieldsTheSameBitsAgainAndWithAMaskThatHidesNothing) {
  for (const AttentionShape& shape :
       {AttentionShape{1, 600, 2, 4, 1}, Pieces({1, 600, 2, 4, 1}, 4, {0, 3})}) {
    const Inputs in(shape);
    const Outputs first = Run({shape, {}}, in);
    EXPECT_TRUE(first == Run({shape, {}}, in));
    EXPECT_TRUE(first == Run({shape, {0}}, in));
    EXPECT_FALSE(first == Run({shape, {1}}, in));
  }
}

// Time is saved only if they are: what is not read cannot spoil the result.
TEST_P(Attention, LeavesOutTilesOfKeysThatNoQuerySees) {
  const AttentionCase c = {Pieces({1, 1024, 2, 4, 1}, 2, {1}), {512}};
  Inputs in(c.shape);
  const Outputs expected = Run(c, in);
  std::fill_n(in.k.begin(), 512 * 4, std::nanf(""));
  std::fill_n(in.v.begin(), 512 * 4, std::nanf(""));
  EXPECT_TRUE(expected == Run(c, in));
}

// A rank's queries are pieces of the whole: both halves of the keys' gradients add up to it.
TEST_P(Attention, PiecesAddUpToTheWhole) {
  const AttentionShape whole = {1, 720, 2, 4, 1};
  const std::vector<int32_t> documents = {0, 200, 511};
  const Inputs in(whole);
  const Outputs expected = Run({whole, documents}, in);
  std::vector<float> dk(expected.dk.size());
  const int64_t run = 180 * 8;  // elements of a run of queries
  for (const auto& [low, high] : {std::pair<int64_t, int64_t>{0, 3}, {1, 2}}) {
    const AttentionCase c = {Pieces(whole, 4, {low, high}), documents};
    Inputs mine(c.shape);
    for (const auto& [from, to] : {std::pair{&in.q, &mine.q}, {&in.dout, &mine.dout}}) {
      std::copy_n(from->begin() + low * run, run, to->begin());
      std::copy_n(from->begin() + high * run, run, to->begin() + run);
    }
    const Outputs out = Run(c, mine);
    EXPECT_LT(RelativeError({out.o.begin(), out.o.begin() + run},
                            {expected.o.begin() + low * run, expected.o.begin() + (low + 1) * run}),
              5e-7);
    EXPECT_LT(
        RelativeError({out.dq.begin() + run, out.dq.end()},
                      {expected.dq.begin() + high * run, expected.dq.begin() + (high + 1) * run}),
        1e-6);
    for (size_t i = 0; i < dk.size(); ++i) dk[i] += out.dk[i];
  }
  EXPECT_LT(RelativeError(dk, ToDoubles(expected.dk)), 1e-6);
}

TEST_P(Attention, LaterTokensCannotReachEarlierOnes) {
  const AttentionShape shape = {1, 540, 2, 8, 2};
  const int64_t cols = shape.heads * shape.head_dim;
  const int64_t changed = 530;  // in the third tile of keys
  std::vector<float> x = Normal(shape.seq_len * cols, 1);
  const auto run = [&] {
    const View view = Upload(shape.seq_len, cols, x);
    const View o = Fresh(shape.seq_len, cols);
    device().Attention(shape, view, view, view, {}, o, Fresh(shape.heads, shape.seq_len),
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
                       Upload(520, 1, v), {}, o, Fresh(1, 520),
                       Fresh(AttentionScratchElements(shape), 1));
    const AttentionReference expected =
        AttentionOf({shape, {}}, Doubles(520, 1.0), ToDoubles(k), ToDoubles(v));
    EXPECT_LT(RelativeError(Download(o), expected.o), 5e-7) << slope;
  }
}

TEST_P(Attention, RefusesShapesThatCannotBe) {
  const View x = Upload(2, 3, std::vector<float>(6));
  const View kv = Upload(2, 2, std::vector<float>(4));
  const View one = Upload(2, 3, std::vector<float>(6));
  const View scratch = Fresh(64, 1);
  const View lse = Fresh(3, 2);
  const auto refuses = [&](const AttentionShape& shape, View k, View first_visible) {
    device().Attention(shape, x, k, k, first_visible, one, lse, scratch);
    return !device().Synchronize().ok();
  };
  EXPECT_FALSE(refuses({1, 2, 3, 1, 3}, x, {}));
  EXPECT_TRUE(refuses({1, 2, 3, 1, 2}, kv, {})) << "heads that cannot be shared";
  EXPECT_TRUE(refuses({1, 2, 3, 1, 3}, x, UploadIds({0}))) << "a mask of one row for two";
  EXPECT_TRUE(refuses(Pieces({1, 2, 3, 1, 3}, 1, {1}), x, {})) << "a run that is not there";
  EXPECT_TRUE(refuses(Pieces({1, 2, 3, 1, 3}, 2, {0}), x, {})) << "queries for one run of two";
  AttentionShape counted = {1, 2, 3, 1, 3};
  counted.documents = 2;
  EXPECT_FALSE(refuses(counted, x, UploadIds({0, 1})));
  EXPECT_TRUE(refuses(counted, x, {})) << "documents, and no mask";
  AttentionShape two = {2, 1, 3, 1, 3};
  two.documents = 1;
  EXPECT_TRUE(refuses(two, x, UploadIds({0, 0}))) << "fewer documents than sequences";
}

TEST_P(Attention, SurvivesScoresThatOverflowWithoutTheRowMaximum) {
  const AttentionShape shape = {1, 4, 1, 4, 1};
  std::vector<float> large(16, 30);  // scores of 1800
  const View view = Upload(4, 4, large);
  const View o = Fresh(4, 4);
  device().Attention(shape, view, view, view, {}, o, Fresh(1, 4),
                     Fresh(AttentionScratchElements(shape), 1));
  EXPECT_THAT(Download(o), ::testing::Each(30.0F));
}

}  // namespace
}  // namespace weft
