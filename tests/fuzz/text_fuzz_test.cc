// Damaged files of text, and damaged .idx files: preparing answers, within time and memory, and
// what it says of a file it says of the next one of the same bytes. Seeded like the rest of
// tests/fuzz: WEFT_FUZZ_SEED, WEFT_FUZZ_FACTOR.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/megatron_index.h"
#include "data/prepare/prepare.h"
#include "tests/data/prepare/small_tokenizer.h"
#include "tests/fuzz/mutation.h"

namespace weft {
namespace {

constexpr std::chrono::seconds kMostTime(20);
constexpr int64_t kMostMemoryKib = int64_t{1} << 20;

uint64_t NumberFrom(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : static_cast<uint64_t>(std::atoll(text));
}

// Bytes lost, doubled, flipped or cut off.
std::string LostBytes(std::string bytes, Random& random) {
  for (size_t i = 0; i <= random.Below(4) && !bytes.empty(); ++i) {
    const size_t at = random.Below(bytes.size());
    switch (random.Below(4)) {
      case 0:
        bytes[at] = static_cast<char>(random.Next());
        break;
      case 1:
        bytes.erase(at, 1 + random.Below(8));
        break;
      case 2:
        bytes.insert(at, bytes.substr(random.Below(bytes.size()), 1 + random.Below(64)));
        break;
      default:
        if (random.Once(4)) bytes.resize(at);
    }
  }
  return bytes;
}

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
  const uint64_t cases = 400 * NumberFrom("WEFT_FUZZ_FACTOR", 1);
  uint64_t num_good = 0;
  for (uint64_t number = 0; number < cases; ++number) {
    Random random(NumberFrom("WEFT_FUZZ_SEED", 1) * 1'000'003 + number);
    const auto& sample = samples[random.Below(std::size(samples))];
    const std::string path = folder.Write(sample.file, LostBytes(sample.bytes, random));
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
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kMostTime) << "case " << number;
    EXPECT_EQ(first.status(), second.status()) << "case " << number;
    EXPECT_EQ(folder.Read("out.bin"), bin) << "case " << number;
    EXPECT_FALSE(absl::IsInternal(first.status())) << first.status();
    if (first.ok()) ++num_good;
  }
  EXPECT_GT(num_good, cases / 20);
  EXPECT_LT(num_good, cases * 19 / 20);
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss, kMostMemoryKib);
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
  const uint64_t cases = 20'000 * NumberFrom("WEFT_FUZZ_FACTOR", 1);
  for (uint64_t number = 0; number < cases; ++number) {
    Random random(NumberFrom("WEFT_FUZZ_SEED", 1) * 1'000'003 + number);
    const auto read = ReadMegatronIndex(LostBytes(idx, random), 380);
    EXPECT_TRUE(read.ok() || absl::IsInvalidArgument(read.status())) << read.status();
  }
}

}  // namespace
}  // namespace weft
