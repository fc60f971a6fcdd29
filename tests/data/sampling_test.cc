#include "data/sampling.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

TEST(Permute, IsABijectionOfEverySmallSize) {
  for (int64_t size = 1; size <= 2000; ++size) {
    std::vector<char> seen(static_cast<size_t>(size), 0);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t at = Permute(size, static_cast<uint64_t>(size) * 77, i);
      ASSERT_TRUE(0 <= at && at < size) << "size " << size << ", index " << i;
      ASSERT_EQ(seen[static_cast<size_t>(at)]++, 0) << "size " << size << ", index " << i;
    }
  }
}

TEST(Permute, NeverMeetsItselfInSizesTooLargeToFill) {
  for (const int64_t size :
       {(int64_t{1} << 20) + 1, int64_t{1} << 32, (int64_t{1} << 40) - 3, (int64_t{1} << 62) - 1}) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < 20000; ++i) {
      const int64_t at = Permute(size, 5, (size - 1) - i * (size / 20000));
      ASSERT_TRUE(0 <= at && at < size) << size;
      ASSERT_TRUE(seen.insert(at).second) << "size " << size << ", index " << i;
    }
  }
}

// Worked out from the header's definition by another program (tests/reference has it).
TEST(Permute, IsTheFunctionThatTheHeaderDefines) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < 10; ++i) order.push_back(Permute(10, 42, i));
  EXPECT_EQ(order, (std::vector<int64_t>{0, 6, 5, 3, 9, 4, 7, 2, 8, 1}));
}

// A shuffle worth the name: neighbours land far apart and in no direction.
TEST(Permute, ScattersNeighbours) {
  constexpr int64_t kSize = 10000;
  double distance = 0;
  int rising = 0;
  for (int64_t i = 0; i + 1 < kSize; ++i) {
    const int64_t step = Permute(kSize, 9, i + 1) - Permute(kSize, 9, i);
    distance += static_cast<double>(std::abs(step));
    rising += step > 0 ? 1 : 0;
  }
  // A random permutation has these means: a third of the size, and half of the steps.
  EXPECT_NEAR(distance / kSize, kSize / 3.0, kSize * 0.02);
  EXPECT_NEAR(rising, kSize / 2.0, kSize * 0.03);
}

class DatasetTest : public ::testing::Test {
 protected:
  DatasetTest() {
    std::string pattern = ::testing::TempDir() + "weft_dataset_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    job_.model.vocab_size = 256;
    job_.training.seq_len = 4;
    job_.training.seed = 7;
  }
  ~DatasetTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& bytes) {
    std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    return path;
  }

  // A file of `tokens` bytes that count up from `first`, so that a byte says where it lies.
  std::string WriteCounting(const std::string& name, int tokens, int first) {
    std::string bytes;
    for (int i = 0; i < tokens; ++i) bytes.push_back(static_cast<char>(first + i));
    return Write(name, bytes);
  }

  Dataset Open(bool train) {
    auto dataset = Dataset::Open(job_, train);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return *std::move(dataset);
  }

  // First tokens of samples [begin, end), after checking that each is a window in full.
  std::vector<int> FirstTokens(const Dataset& dataset, int64_t begin, int64_t end) {
    std::vector<int> firsts;
    std::vector<int32_t> tokens(4);
    std::vector<int32_t> targets(4);
    for (int64_t i = begin; i < end; ++i) {
      EXPECT_TRUE(dataset.Sample(i, absl::MakeSpan(tokens), absl::MakeSpan(targets)).ok());
      for (int32_t t = 0; t < 4; ++t) {
        EXPECT_EQ(tokens[static_cast<size_t>(t)], tokens[0] + t);
        EXPECT_EQ(targets[static_cast<size_t>(t)], tokens[0] + t + 1);
      }
      firsts.push_back(tokens[0]);
    }
    return firsts;
  }

  std::string folder_;
  JobSpec job_;
};

std::vector<int> Sorted(std::vector<int> values) {
  std::sort(values.begin(), values.end());
  return values;
}

TEST_F(DatasetTest, VisitsEachWindowOncePerEpochAcrossFiles) {
  // 41 tokens are 10 windows, 11 are 2 (and two tokens too few for a third), 5 are 1.
  job_.data.train = {
      {WriteCounting("a", 41, 0)}, {WriteCounting("b", 11, 100)}, {WriteCounting("c", 5, 200)}};
  const Dataset dataset = Open(true);
  ASSERT_EQ(dataset.windows(), 13);
  const std::vector<int> all = {0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 100, 104, 200};
  std::set<std::vector<int>> orders;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    const std::vector<int> order = FirstTokens(dataset, epoch * 13, (epoch + 1) * 13);
    EXPECT_EQ(Sorted(order), all) << "epoch " << epoch;
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 5u) << "each epoch has its own order";
}

TEST_F(DatasetTest, OrderDependsOnFilesSeqLenAndSeedAlone) {
  job_.data.train = {{WriteCounting("a", 201, 0)}};
  const std::vector<int> order = FirstTokens(Open(true), 0, 100);
  JobSpec other = job_;
  other.training.global_batch_size = 64;
  other.training.steps = 999;
  other.layout.dp = 8;
  other.optimizer.lr = 1;
  other.model.hidden_size = 4096;
  other.name = "other";
  std::swap(job_, other);
  EXPECT_EQ(FirstTokens(Open(true), 0, 100), order);
  job_.training.seed = 8;
  EXPECT_NE(FirstTokens(Open(true), 0, 100), order);
}

TEST_F(DatasetTest, SamplesMayBeAskedForInAnyOrder) {
  job_.data.train = {{WriteCounting("a", 201, 0)}};
  const Dataset dataset = Open(true);
  const std::vector<int> order = FirstTokens(dataset, 0, 100);
  for (int64_t i = 99; i >= 0; i -= 7) {
    EXPECT_EQ(FirstTokens(dataset, i, i + 1)[0], order[static_cast<size_t>(i)]);
  }
}

TEST_F(DatasetTest, HeldOutWindowsAreNeverTrainedOn) {
  job_.data.train = {{WriteCounting("a", 41, 0)}, {WriteCounting("b", 41, 100)}};
  for (const double split : {0.01, 0.05, 0.25, 0.5, 0.9}) {
    job_.data.split = split;
    const Dataset train = Open(true);
    const Dataset held_out = Open(false);
    EXPECT_EQ(train.windows() + held_out.windows(), 20) << split;
    EXPECT_EQ(held_out.windows(), std::max<int64_t>(1, static_cast<int64_t>(20 * split))) << split;
    const std::vector<int> kept = FirstTokens(held_out, 0, held_out.windows());
    EXPECT_EQ(kept, Sorted(kept)) << "held-out windows are not shuffled";
    const std::vector<int> trained = FirstTokens(train, 0, 3 * train.windows());
    for (const int first : kept) {
      EXPECT_EQ(std::count(trained.begin(), trained.end(), first), 0) << split << ", " << first;
    }
  }
}

TEST_F(DatasetTest, FilesForValidationReplaceTheSplit) {
  job_.data.train = {{WriteCounting("a", 41, 0)}};
  job_.data.valid = {{WriteCounting("v", 9, 100)}};
  job_.data.split = 0.5;
  EXPECT_EQ(Open(true).windows(), 10);
  EXPECT_EQ(FirstTokens(Open(false), 0, 4), (std::vector<int>{100, 104, 100, 104}));
}

TEST_F(DatasetTest, NamesTheFileAndThePositionOfAnIdOutsideTheVocabulary) {
  std::string bytes(41, '\x05');
  bytes[40] = '\x64';
  const std::string path = Write("a", bytes);
  job_.data.train = {{path}};
  job_.model.vocab_size = 100;
  const Dataset dataset = Open(true);
  std::vector<int32_t> tokens(4);
  std::vector<int32_t> targets(4);
  int refused = 0;
  for (int64_t i = 0; i < dataset.windows(); ++i) {
    const absl::Status status = dataset.Sample(i, absl::MakeSpan(tokens), absl::MakeSpan(targets));
    if (status.ok()) continue;
    ++refused;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(path + ": token 40: found id 100, expected below vocab_size 100"));
  }
  EXPECT_EQ(refused, 1);
}

TEST_F(DatasetTest, RefusesWhatLeavesNothingToTrainOnOrToHoldOut) {
  job_.data.train = {{WriteCounting("short", 4, 0)}};
  absl::Status status = Dataset::Open(job_, true).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("holds 4 tokens, expected at least seq_len + 1 = 5"));

  // Among others it is no part of the order.
  const std::string tiny = WriteCounting("tiny", 4, 0), long_one = WriteCounting("long", 9, 0);
  job_.data.train = {{tiny}, {long_one}, {tiny}};
  const auto with_others = Dataset::Open(job_, true);
  ASSERT_TRUE(with_others.ok()) << with_others.status();
  EXPECT_EQ(with_others->windows(), 2);
  std::vector<int32_t> tokens(4), targets(4);
  for (int64_t sample = 0; sample < 4; ++sample) {
    EXPECT_EQ(with_others->Sample(sample, absl::MakeSpan(tokens), absl::MakeSpan(targets)),
              absl::OkStatus());
  }

  job_.data.train = {{WriteCounting("one", 5, 0)}};
  EXPECT_TRUE(Dataset::Open(job_, true).ok());
  EXPECT_EQ(Dataset::Open(job_, false).status().code(), absl::StatusCode::kFailedPrecondition);
  job_.data.split = 0.5;
  status = Dataset::Open(job_, true).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("holds out all 1 windows"));

  job_.data.train.clear();
  EXPECT_EQ(Dataset::Open(job_, true).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(DatasetTest, FingerprintsNameEachFile) {
  const std::string a = WriteCounting("a", 41, 0);
  const std::string b = WriteCounting("b", 41, 1);
  job_.data.train = {{a}, {b}};
  const std::vector<std::string> fingerprints = Open(true).Fingerprints();
  ASSERT_EQ(fingerprints.size(), 2u);
  EXPECT_THAT(fingerprints[0], ::testing::StartsWith(a + " 41:"));
  EXPECT_THAT(fingerprints[1], ::testing::StartsWith(b + " 41:"));
  EXPECT_NE(fingerprints[0].substr(a.size()), fingerprints[1].substr(b.size()));
}

}  // namespace
}  // namespace weft
