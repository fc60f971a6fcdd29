// Damaged files of text, of tokens and .idx files: preparing and reading answer, within time and
// memory, and what is said of a file is said of the next one of the same bytes.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/megatron_index.h"
#include "data/prepare/prepare.h"
#include "data/token_file.h"
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

// `tokens` little-endian integers of so many bytes, ids below 300.
std::string IdBytes(size_t item_bytes, size_t tokens) {
  std::string bytes;
  for (size_t i = 0; i < tokens; ++i) {
    const size_t id = i * 7919 % 300;
    for (size_t byte = 0; byte < item_bytes; ++byte) {
      bytes.push_back(static_cast<char>(id >> (8 * byte) & 0xFF));
    }
  }
  return bytes;
}

// llm.c's header of 256 integers {magic, version, tokens}.
std::string LlmcHeader(uint32_t magic, uint32_t version, uint32_t tokens) {
  std::string bytes;
  for (uint32_t i = 0; i < 256; ++i) {
    const uint32_t value = i == 0 ? magic : i == 1 ? version : i == 2 ? tokens : 0;
    for (int byte = 0; byte < 4; ++byte) {
      bytes.push_back(static_cast<char>(value >> (8 * byte) & 0xFF));
    }
  }
  return bytes;
}

// Whatever was opened is read to its last token.
TEST(DamagedTokenFiles, AreReadToTheEndOrRefused) {
  const TextFolder folder;
  constexpr uint32_t kTokens = 200;
  std::string idx;
  ASSERT_TRUE(WriteMegatronIndex(
                  4, 2, [](int64_t) -> absl::StatusOr<int32_t> { return kTokens / 4; },
                  [&](absl::string_view bytes) {
                    idx.append(bytes.data(), bytes.size());
                    return absl::OkStatus();
                  })
                  .ok());
  const struct {
    TokenEncoding encoding;
    std::string bytes;
  } samples[] = {
      {{TokenFormat::kBytes, {}, 256}, IdBytes(1, kTokens)},
      {{TokenFormat::kNanogpt, TokenDtype::kUint16, 300}, IdBytes(2, kTokens)},
      {{TokenFormat::kNanogpt, TokenDtype::kUint32, 300}, IdBytes(4, kTokens)},
      {{TokenFormat::kLlmc, {}, 300}, LlmcHeader(20240520, 1, kTokens) + IdBytes(2, kTokens)},
      {{TokenFormat::kLlmc, {}, 300}, LlmcHeader(20240801, 7, kTokens) + IdBytes(4, kTokens)},
      {{TokenFormat::kMegatron, {}, 300}, IdBytes(2, kTokens)},
  };
  const uint64_t cases = FileTrials(4000);
  uint64_t num_good = 0;
  for (uint64_t number = 0; number < cases; ++number) {
    Random random = RandomOfTrial(number);
    const auto& sample = samples[random.Below(std::size(samples))];
    const bool is_index = sample.encoding.format == TokenFormat::kMegatron && random.Once(2);
    const std::string path =
        folder.Write("a.bin", is_index ? sample.bytes : DamagedOnDisk(sample.bytes, random));
    folder.Write("a.idx", is_index ? DamagedOnDisk(idx, random) : idx);
    const auto file = TokenFile::Open(path, sample.encoding);
    EXPECT_EQ(file.status(), TokenFile::Open(path, sample.encoding).status());
    if (!file.ok()) {
      EXPECT_TRUE(absl::IsInvalidArgument(file.status())) << file.status();
      continue;
    }
    ++num_good;
    std::vector<int32_t> ids(static_cast<size_t>((*file)->tokens()), -1);
    (*file)->Read(0, absl::MakeSpan(ids));
    for (const int32_t id : ids) ASSERT_GE(id, 0) << "case " << number;
    EXPECT_FALSE((*file)->Fingerprint().empty());
  }
  ExpectBothEndsAndBoundedMemory(num_good, cases);
}

}  // namespace
}  // namespace weft
