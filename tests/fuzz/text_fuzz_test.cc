// Damaged files of text, and damaged .idx files: preparing answers, within time and memory, and
// what it says of a file it says of the next one of the same bytes.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/megatron_index.h"
#include "data/prepare/prepare.h"
#include "tests/data/prepare/small_tokenizer.h"
#include "tests/fuzz/file_trial.h"

namespace weft {
namespace {

TEST(DamagedTexts, ArePreparedOrAnswered) {
  const TextFolder folder;
  const auto tokenizer = Tokenizer::Open(folder.tokenizer());
  ASSERT_TRUE(tokenizer.ok());
  const std::string rows = RowsForTest(6, 1);
  const struct {
    const char* file;
    TextFormat format;
    std::string bytes;
  } samples[] = {{"a.jsonl", TextFormat::kJsonl, rows},
                 {"a.jsonl.gz", TextFormat::kJsonl, Gzipped(rows)},
                 {"a.jsonl.zst", TextFormat::kJsonl, Zstandard(rows)},
                 {"a.txt", TextFormat::kText, "the first\n\nand a \xE6\x97\xA5 second\nline\n"}};
  const uint64_t cases = FileTrials(400);
  uint64_t num_good = 0;
  for (uint64_t number = 0; number < cases; ++number) {
    Random random = RandomOfTrial(number);
    const auto& sample = samples[random.Below(std::size(samples))];
    const std::string path = folder.Write(sample.file, DamagedOnDisk(sample.bytes, random));
    PrepareRequest request;
    request.inputs = {{path, sample.format}};
    request.rules.documents = static_cast<DocumentCut>(random.Below(3));
    request.place = {.output = folder.At("out"), .may_replace = true};
    request.tokenizer = folder.tokenizer();
    request.threads = 1 + static_cast<int>(random.Below(3));
    request.chunk_bytes = 1 + random.Below(300);
    request.most_bad_rows = static_cast<int64_t>(random.Below(3));
    const auto begin = std::chrono::steady_clock::now();
    const auto first = Prepare(*tokenizer, request);
    const std::string bin = folder.Read("out.bin");
    const auto second = Prepare(*tokenizer, request);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kMostTimeOfFile) << "case " << number;
    EXPECT_EQ(first.status(), second.status()) << "case " << number;
    EXPECT_EQ(folder.Read("out.bin"), bin) << "case " << number;
    EXPECT_FALSE(absl::IsInternal(first.status())) << first.status();
    if (first.ok()) ++num_good;
  }
  ExpectBothEndsAndBoundedMemory(num_good, cases);
}

TEST(DamagedIndexes, AreReadOrRefused) {
  std::string idx;
  ASSERT_TRUE(WriteMegatronIndex(
                  20, 2,
                  [](int64_t i) -> absl::StatusOr<int32_t> { return static_cast<int32_t>(i); },
                  [&](absl::string_view bytes) {
                    idx.append(bytes.data(), bytes.size());
                    return absl::OkStatus();
                  })
                  .ok());
  ASSERT_TRUE(ReadMegatronIndex(idx, 380).ok());
  const uint64_t cases = FileTrials(20'000);
  uint64_t num_good = 0;
  for (uint64_t number = 0; number < cases; ++number) {
    Random random = RandomOfTrial(number);
    const auto read = ReadMegatronIndex(DamagedOnDisk(idx, random), 380);
    EXPECT_TRUE(read.ok() || absl::IsInvalidArgument(read.status())) << read.status();
    if (read.ok()) ++num_good;
  }
  ExpectBothEndsAndBoundedMemory(num_good, cases);
}

}  // namespace
}  // namespace weft
