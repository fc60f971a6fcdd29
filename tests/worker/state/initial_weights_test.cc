#include "worker/state/initial_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "plan/spec/model.h"

namespace weft {
namespace {

// kat_vectors of Random123 (Salmon et al.), philox4x32 with 10 rounds.
TEST(Philox, GivesItsPublishedVectors) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TensorShard Whole(const TensorSpec& tensor) {
  TensorShard shard;
  shard.tensor = tensor;
  shard.begin.assign(tensor.dims.size(), 0);
  shard.end = tensor.dims;
  return shard;
}

std::vector<float> Values(const TensorShard& shard, uint64_t seed, int threads = 1) {
  std::vector<float> values(static_cast<size_t>(shard.elements()));
  FillInitialValues(shard, seed, threads, absl::MakeSpan(values));
  return values;
}

TensorSpec Matrix(const std::string& name, int64_t rows, int64_t cols) {
  TensorSpec tensor;
  tensor.name = name;
  tensor.dims = {rows, cols};
  tensor.initial_std = 0.02;
  return tensor;
}

TEST(InitialValues, OfAShardAreThoseOfTheWholeTensor) {
  const TensorSpec tensor = Matrix("blocks.0.attn.q.weight", 12, 10);
  const std::vector<float> whole = Values(Whole(tensor), 7);
  for (int64_t row = 0; row < 12; row += 4) {
    for (int64_t col = 0; col < 10; col += 5) {
      TensorShard shard = Whole(tensor);
      shard.begin = {row, col};
      shard.end = {row + 4, col + 5};
      const std::vector<float> part = Values(shard, 7);
      for (int64_t r = 0; r < 4; ++r) {
        for (int64_t c = 0; c < 5; ++c) {
          EXPECT_EQ(part[static_cast<size_t>(r * 5 + c)],
                    whole[static_cast<size_t>((row + r) * 10 + col + c)]);
        }
      }
    }
  }
}

TEST(InitialValues, AreTheSameByAnyNumberOfThreads) {
  TensorShard shard = Whole(Matrix("m", 700, 500));
  shard.begin = {3, 11};
  const std::vector<float> one = Values(shard, 7);
  for (const int threads : {2, 5, 64}) EXPECT_EQ(Values(shard, 7, threads), one) << threads;
}

TEST(InitialValues, AreNormalWithTheTensorsDeviation) {
  const std::vector<float> values = Values(Whole(Matrix("m", 400, 500)), 42);
  double sum = 0;
  double squares = 0;
  int64_t beyond_two = 0;
  for (const float value : values) {
    sum += value;
    squares += double{value} * value;
    if (std::abs(value) > 0.04) ++beyond_two;
  }
  const auto count = static_cast<double>(values.size());
  // Four standard errors of mean and deviation; P(|z| > 2) = 0.0455.
  EXPECT_NEAR(sum / count, 0, 4 * 0.02 / std::sqrt(count));
  EXPECT_NEAR(std::sqrt(squares / count), 0.02, 4 * 0.02 / std::sqrt(2 * count));
  EXPECT_NEAR(static_cast<double>(beyond_two) / count, 0.0455, 0.002);
}

TEST(InitialValues, DifferBySeedAndByName) {
  const TensorShard first = Whole(Matrix("a", 8, 8));
  const TensorShard second = Whole(Matrix("b", 8, 8));
  const std::set<std::vector<float>> kinds = {Values(first, 1), Values(second, 1), Values(first, 2),
                                              Values(first, uint64_t{1} << 32)};
  EXPECT_EQ(kinds.size(), 4U);
}

TEST(InitialValues, OfNormsAreOneAndOfBiasesZero) {
  TensorSpec vector;
  vector.name = "final_norm.weight";
  vector.dims = {6};
  vector.initial = InitialValue::kOne;
  EXPECT_EQ(Values(Whole(vector), 1), std::vector<float>(6, 1));
  vector.initial = InitialValue::kZero;
  EXPECT_EQ(Values(Whole(vector), 1), std::vector<float>(6, 0));
}

}  // namespace
}  // namespace weft
