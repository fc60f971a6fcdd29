// The table of packed documents that cuDNN's attention goes by, of the kernel on emulated threads.
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/gpu/cudnn_attention_fixture.h"
#include "tests/gpu/emulation/threads.h"
#include "worker/backend/cuda/kernels/kernels.h"

namespace weft {
namespace {

constexpr int64_t kWidth = 3 * 64;
constexpr int64_t kKeyWidth = 64;
constexpr int64_t kHeads = 3;

struct Table {
  std::vector<int32_t> lengths;
  std::vector<int64_t> queries, keys, statistics;

  bool operator==(const Table& other) const {
    return lengths == other.lengths && queries == other.queries && keys == other.keys &&
           statistics == other.statistics;
  }
};

// Returns a table as long as it may be, and one entry more that stays as it is.
Table Poisoned(int64_t documents) {
  const auto count = static_cast<size_t>(documents);
  const std::vector<int64_t> offsets(count + 2, -1);
  return {std::vector<int32_t>(count + 1, -1), offsets, offsets, offsets};
}

Table Expected(const std::vector<int64_t>& lengths, int64_t documents) {
  Table table = Poisoned(documents);
  int64_t row = 0;
  for (size_t d = 0; d <= static_cast<size_t>(documents); ++d) {
    table.queries[d] = row * kWidth;
    table.keys[d] = row * kKeyWidth;
    table.statistics[d] = row * kHeads;
    const int64_t length = d < lengths.size() ? lengths[d] : 0;
    if (d < static_cast<size_t>(documents)) table.lengths[d] = static_cast<int32_t>(length);
    row += length;
  }
  return table;
}

Table Made(const std::vector<int64_t>& lengths, int64_t seq_len, int64_t documents,
           emulation::Order order) {
  std::vector<int32_t> starts = StartsOf(lengths, seq_len);
  const AttentionShape shape = {.batch = std::ssize(starts) / seq_len,
                                .seq_len = seq_len,
                                .heads = kHeads,
                                .head_dim = 64,
                                .kv_heads = 1,
                                .documents = documents};
  Table table = Poisoned(documents);
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  emulation::SetOrder(order);
  EXPECT_EQ(QueueDocumentTable({.stream = stream}, shape,
                               {starts.data(), std::ssize(starts), 1, DType::kI32},
                               {.lengths = table.lengths.data(),
                                .query_offsets = table.queries.data(),
                                .key_offsets = table.keys.data(),
                                .statistic_offsets = table.statistics.data()}),
            cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  emulation::SetOrder(emulation::Order::kAscending);
  return table;
}

TEST(DocumentTable, ListsEachDocumentAndThenEntriesWithoutTokens) {
  const struct {
    const char* name;
    int64_t seq_len, documents;
    std::vector<int64_t> lengths;
  } cases[] = {{"one token", 1, 1, {1}},
               {"one of all", 64, 4, {64}},
               {"sequences alone", 40, 3, {40, 40, 40}},
               {"odd lengths", 90, 8, {1, 37, 52, 90}},
               {"as many as tokens", 24, 24, std::vector<int64_t>(24, 1)},
               {"more entries than threads", 7, 1500, {3, 4}},
               {"several rows a thread", 1500, 9, {700, 800, 1, 1499, 1500, 32, 32, 1436}},
               {"more documents than threads", 1200, 1300, std::vector<int64_t>(1200, 1)}};
  for (const auto& c : cases) {
    for (const auto order : {emulation::Order::kAscending, emulation::Order::kDescending}) {
      EXPECT_TRUE(Made(c.lengths, c.seq_len, c.documents, order) ==
                  Expected(c.lengths, c.documents))
          << c.name;
    }
  }
}

TEST(DocumentTable, WritesNothingBehindItsEndIfThereAreMoreDocuments) {
  EXPECT_TRUE(Made({3, 4, 5, 12}, 12, 2, emulation::Order::kAscending) == Expected({3, 4, 5}, 2));
}

}  // namespace
}  // namespace weft
