#include "checkpoint/reader.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/durable_file.h"
#include "checkpoint/verify.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

// [begin, end) of part `index` of `parts` of `size`, as even as it goes.
std::pair<int64_t, int64_t> Share(int64_t size, int parts, int index) {
  return {size * index / parts, size * (index + 1) / parts};
}

class ReaderTest : public ::testing::Test {
 protected:
  ReaderTest() {
    std::string pattern = ::testing::TempDir() + "weft_reader_XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~ReaderTest() override { std::filesystem::remove_all(folder_); }

  struct Saved {
    std::string name;
    std::vector<int64_t> dims, begin, end;
  };

  // Element i of every tensor has the value i. One list of boxes per rank.
  void Save(const std::vector<std::vector<Saved>>& ranks) {
    Manifest manifest;
    manifest.run_id = "aa";
    manifest.step = 1;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      std::vector<std::vector<float>> values;
      for (const Saved& box : ranks[rank]) values.push_back(Expected(box));
      std::vector<BoxToSave> boxes;
      for (size_t i = 0; i < values.size(); ++i) {
        const Saved& box = ranks[rank][i];
        boxes.push_back({box.name, box.dims, box.begin, box.end, values[i]});
      }
      const auto shard =
          WriteShard(StageFolder(folder_, "aa", 0, 1), static_cast<int>(rank), boxes);
      ASSERT_TRUE(shard.ok()) << shard.status();
      manifest.shards.push_back(*shard);
    }
    ASSERT_TRUE(CommitCheckpoint(folder_, manifest).ok());
  }

  // Row-major values of a box of the tensor whose element i is i.
  static std::vector<float> Expected(const Saved& box) {
    std::vector<float> values;
    std::vector<int64_t> at = box.begin;
    int64_t count = 1;
    for (size_t d = 0; d < at.size(); ++d) count *= box.end[d] - box.begin[d];
    for (int64_t i = 0; i < count; ++i) {
      int64_t flat = 0;
      for (size_t d = 0; d < at.size(); ++d) flat = flat * box.dims[d] + at[d];
      values.push_back(static_cast<float>(flat));
      for (size_t d = at.size(); d > 0 && ++at[d - 1] == box.end[d - 1]; --d) {
        at[d - 1] = box.begin[d - 1];
      }
    }
    return values;
  }

  absl::StatusOr<CheckpointReader> Open() {
    const auto manifest = VerifyCheckpoint(folder_ + "/step-1");
    if (!manifest.ok()) return manifest.status();
    return CheckpointReader::Open(folder_ + "/step-1", *manifest);
  }

  static void ExpectReads(const CheckpointReader& reader, const Saved& box) {
    const std::vector<float> expected = Expected(box);
    std::vector<float> read(expected.size(), -1);
    const absl::Status status =
        reader.Read(box.name, box.dims, box.begin, box.end, absl::MakeSpan(read));
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(read, expected) << BoxName(box.name, {box.begin, box.end});
  }

  std::string folder_;
};

TEST_F(ReaderTest, ReadsAnySplitFromAnySplit) {
  const std::vector<int64_t> dims = {12, 10};
  for (const int cut_dim : {0, 1}) {
    std::vector<std::vector<Saved>> ranks;
    for (int rank = 0; rank < 4; ++rank) {
      Saved box{"w", dims, {0, 0}, dims};
      std::tie(box.begin[cut_dim], box.end[cut_dim]) = Share(dims[cut_dim], 4, rank);
      const auto [begin, end] = Share(7, 4, rank);
      ranks.push_back({box, {"b", {7}, {begin}, {end}}});
    }
    Save(ranks);
    const auto reader = Open();
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_TRUE(reader->Has("w"));
    EXPECT_FALSE(reader->Has("w[0:3,0:10]"));
    for (const int parts : {1, 2, 3, 5}) {
      for (int part = 0; part < parts; ++part) {
        for (const size_t read_dim : {size_t{0}, size_t{1}}) {
          Saved box{"w", dims, {0, 0}, dims};
          std::tie(box.begin[read_dim], box.end[read_dim]) = Share(dims[read_dim], parts, part);
          ExpectReads(*reader, box);
        }
        const auto [begin, end] = Share(7, parts, part);
        ExpectReads(*reader, {"b", {7}, {begin}, {end}});
      }
    }
    ExpectReads(*reader, {"w", dims, {5, 3}, {11, 8}});
    ExpectReads(*reader, {"w", dims, {5, 3}, {5, 8}});
  }
}

// A rank reads, and answers for, what it needs: of the others' shards others do.
TEST_F(ReaderTest, VerifiesAShardBeforeItsFirstByteAndReadsNoOther) {
  const Saved first{"w", {4, 3}, {0, 0}, {2, 3}}, second{"w", {4, 3}, {2, 0}, {4, 3}};
  Save({{first}, {second}});
  const std::string shard = folder_ + "/step-1/" + ShardFileName(1);
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('\x7f');
  file.close();
  const auto manifest = CheckManifest(folder_ + "/step-1");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  const auto reader = CheckpointReader::Open(folder_ + "/step-1", *manifest);
  ASSERT_TRUE(reader.ok()) << reader.status();
  ExpectReads(*reader, first);
  for (const int64_t row : {1, 2, 3}) {
    std::vector<float> read(static_cast<size_t>(3 * (4 - row)), -1);
    const absl::Status status = reader->Read("w", {4, 3}, {row, 0}, {4, 3}, absl::MakeSpan(read));
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), testing::StartsWith(ShardFileName(1) + ": xxh3 "));
    EXPECT_EQ(read.back(), -1) << "given out";
  }
}

TEST_F(ReaderTest, BoxesMayOverlapAndHaveAnyNumberOfDims) {
  Save({{{"c", {3, 4, 5}, {0, 0, 0}, {2, 4, 3}}, {"s", {}, {}, {}}},
        {{"c", {3, 4, 5}, {1, 1, 0}, {3, 4, 5}}},
        {{"c", {3, 4, 5}, {0, 0, 2}, {3, 4, 5}}, {"c", {3, 4, 5}, {2, 0, 0}, {3, 2, 4}}}});
  const auto reader = Open();
  ASSERT_TRUE(reader.ok()) << reader.status();
  ExpectReads(*reader, {"c", {3, 4, 5}, {0, 0, 0}, {3, 4, 5}});
  ExpectReads(*reader, {"c", {3, 4, 5}, {1, 2, 1}, {3, 4, 5}});
  ExpectReads(*reader, {"s", {}, {}, {}});
}

TEST_F(ReaderTest, NamesTheRangeThatNoShardHolds) {
  Save({{{"w", {4, 4}, {0, 0}, {2, 4}}}, {{"w", {4, 4}, {2, 0}, {4, 3}}}});
  const auto reader = Open();
  ASSERT_TRUE(reader.ok());
  ExpectReads(*reader, {"w", {4, 4}, {0, 0}, {4, 3}});
  std::vector<float> out(16);
  const absl::Status status = reader->Read("w", {4, 4}, {0, 0}, {4, 4}, absl::MakeSpan(out));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "step-1: no shard holds w[2:4,3:4]");
}

TEST_F(ReaderTest, RefusesOtherDimsAndUnknownNames) {
  Save({{{"w", {4, 4}, {0, 0}, {4, 4}}}});
  const auto reader = Open();
  ASSERT_TRUE(reader.ok());
  std::vector<float> out(8);
  absl::Status status = reader->Read("w", {4, 2}, {0, 0}, {4, 2}, absl::MakeSpan(out));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'w' is [4,4], expected [4,2]"));
  status = reader->Read("v", {8}, {0}, {8}, absl::MakeSpan(out));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
}

// Shards that verify, but whose tensors are no boxes: of another program, or forged.
TEST_F(ReaderTest, RefusesShardsWhoseBoxesMakeNoSense) {
  struct Case {
    std::string name;
    std::vector<int64_t> dims;
    std::string metadata;
  };
  const std::vector<float> values = {1, 2};
  for (const Case& c : std::vector<Case>{{"w", {2}, "2"},
                                         {"w[0:2]", {2}, ""},
                                         {"w[0:2]", {2}, "1"},
                                         {"w[0:2]", {2}, "-2"},
                                         {"w[0:2]", {2}, "2,1"},
                                         {"w[0:2]", {2}, "x"},
                                         {"w[0:2]", {1, 2}, "1,2"},
                                         {"w[0:3]", {2}, "3"},
                                         {"w[1:2]", {2}, "2"},
                                         {"w[-1:1]", {2}, "2"},
                                         {"w[2:0]", {2}, "2"},
                                         {"w[+0:2]", {2}, "2"},
                                         {"w[00:2]", {2}, "2"},
                                         {"w[0:2:3]", {2}, "2"},
                                         {"w[0-2]", {2}, "2"},
                                         {"w[0:2", {2}, "2"},
                                         {"w[]", {2}, ""},
                                         {"w[-9223372036854775808:9223372036854775807]", {2}, "2"},
                                         {"w[0:18446744073709551618]", {2}, "2"}}) {
    const std::string file = folder_ + "/forged.safetensors";
    ASSERT_TRUE(WriteSafetensors(file, {{{c.name, c.dims, values}}}, {{"w", c.metadata}}).ok());
    Manifest manifest;
    manifest.shards = {{"forged.safetensors", 0, *HashFile(file)}};
    const absl::Status status = CheckpointReader::Open(folder_, manifest).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << c.name << " of " << c.metadata;
    EXPECT_THAT(std::string(status.message()), HasSubstr("forged.safetensors: found "));
  }
}

TEST_F(ReaderTest, RefusesShardsThatDisagreeAboutATensor) {
  Save({{{"w", {4, 4}, {0, 0}, {2, 4}}}, {{"w", {5, 4}, {2, 0}, {5, 4}}}});
  const auto reader = Open();
  EXPECT_EQ(reader.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(reader.status().message()), HasSubstr("found dims [5,4] of 'w'"));
}

TEST(WithoutBox, LeavesEachOtherIndexOnce) {
  const Box box{{1, 2}, {6, 7}};
  for (int64_t b0 = 0; b0 < 8; ++b0) {
    for (int64_t e0 = b0; e0 < 8; ++e0) {
      for (int64_t b1 = 0; b1 < 8; b1 += 2) {
        const Box hole{{b0, b1}, {e0, b1 + 3}};
        for (int64_t i = 0; i < 8; ++i) {
          for (int64_t j = 0; j < 10; ++j) {
            const auto holds = [&](const Box& b) {
              return b.begin[0] <= i && i < b.end[0] && b.begin[1] <= j && j < b.end[1];
            };
            int times = 0;
            for (const Box& rest : WithoutBox(box, hole)) times += holds(rest) ? 1 : 0;
            ASSERT_EQ(times, holds(box) && !holds(hole) ? 1 : 0) << BoxName("hole", hole);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft
