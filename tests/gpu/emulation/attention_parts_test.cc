// These tests say which kernels of cuDNN's a call takes: for each which queries, how many keys, and
// whether it adds.
#include "worker/backend/cuda/attention/attention_parts.h"

#include <set>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tests/gpu/rank_shape.h"

namespace weft {
namespace {

constexpr AttentionShape kManyHeads = {.batch = 2, .heads = 32, .head_dim = 128, .kv_heads = 8};

std::string Text(const AttentionPart& part) {
  return std::to_string(part.queries) + " queries from " + std::to_string(part.query_at) + " see " +
         std::to_string(part.keys) + (part.adds ? " and add" : "");
}

TEST(AttentionParts, OfWholeSequencesAreOne) {
  const auto parts =
      PartsOf({.batch = 4, .seq_len = 96, .heads = 2, .head_dim = 64, .kv_heads = 1});
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(Text(parts[0]), "96 queries from 0 see 96");
}

TEST(AttentionParts, OfARankAreItsLaterRunAndThenTheEarlierOne) {
  const struct {
    int64_t cp, rank;
    const char* first;
    const char* second;
  } cases[] = {
      {2, 0, "2048 queries from 2048 see 8192", "2048 queries from 0 see 2048 and add"},
      {2, 1, "2048 queries from 2048 see 6144", "2048 queries from 0 see 4096 and add"},
      {8, 0, "512 queries from 512 see 8192", "512 queries from 0 see 512 and add"},
      {8, 5, "512 queries from 512 see 5632", "512 queries from 0 see 3072 and add"},
      {8, 7, "512 queries from 512 see 4608", "512 queries from 0 see 4096 and add"},
  };
  for (const auto& c : cases) {
    const auto parts = PartsOf(OnRank(OfLength(kManyHeads, 8192), c.cp, c.rank));
    ASSERT_EQ(parts.size(), 2U);
    EXPECT_EQ(Text(parts[0]), c.first);
    EXPECT_EQ(Text(parts[1]), c.second);
  }
}

TEST(AttentionParts, OfPiecesInAnyOrderBeginWithTheOneThatSeesMost) {
  AttentionShape shape = OnRank(OfLength(kManyHeads, 1024), 2, 0);
  std::swap(shape.piece[0], shape.piece[1]);
  const auto parts = PartsOf(shape);
  EXPECT_EQ(Text(parts[0]), "256 queries from 0 see 1024");
  EXPECT_EQ(Text(parts[1]), "256 queries from 256 see 256 and add");
}

// The mask's diagonal ends at the last key, so query i of a part sees its keys up to
// keys - queries + i: its own position in the sequence, and over all ranks each position once.
TEST(AttentionParts, GiveEachQueryOfAllRanksTheKeysUpToItself) {
  for (const int64_t cp : {1, 2, 3, 4, 8}) {
    std::set<int64_t> positions;
    for (int64_t rank = 0; rank < cp; ++rank) {
      const AttentionShape shape = OnRank(OfLength(kManyHeads, 96 * cp), cp, rank);
      for (const AttentionPart& part : PartsOf(shape)) {
        for (int64_t i = 0; i < part.queries; ++i) {
          const int64_t row = part.query_at + i;
          const int64_t position =
              shape.piece[row / shape.run_len()] * shape.run_len() + row % shape.run_len();
          EXPECT_EQ(part.keys - part.queries + i, position);
          positions.insert(position);
        }
      }
    }
    EXPECT_EQ(std::ssize(positions), 96 * cp);
  }
}

}  // namespace
}  // namespace weft
