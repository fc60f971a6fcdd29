// Damaged tokenizers of every kind: opening one answers, and what opens encodes and decodes, within
// time and memory. Seeded like the rest of tests/fuzz: WEFT_FUZZ_SEED, WEFT_FUZZ_FACTOR.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "data/tokenizer/charsmap.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/fuzz/mutation.h"
#include "tests/places.h"

namespace weft {
namespace {

constexpr std::chrono::seconds kMostTime(20);
constexpr int64_t kMostMemoryKib = int64_t{1} << 20;

struct Sample {
  std::string file, content;
};

std::vector<Sample> Samples() {
  std::vector<Sample> samples;
  std::ifstream lines(SourcePath("/tests/data/tokenizer/golden.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line);
    samples.push_back({row["file"], *FromBase64(row["content"].get<std::string>())});
  }
  return samples;
}

int64_t NumberFrom(const char* variable, int64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoll(text);
}

// Bytes lost, doubled, flipped or cut off: what a disk does, and a proto's lengths do not survive.
std::string DamagedOnDisk(std::string bytes, Random& random) {
  for (size_t i = 0; i <= random.Below(4) && !bytes.empty(); ++i) {
    const size_t at = random.Once(2) ? random.Below(bytes.size())
                                     : random.Below(std::min<size_t>(bytes.size(), 64));
    switch (random.Below(4)) {
      case 0:
        bytes[at] = static_cast<char>(random.Next());
        break;
      case 1:
        bytes.erase(at, 1 + random.Below(8));
        break;
      case 2:
        bytes.insert(at, bytes.substr(random.Below(bytes.size()), 1 + random.Below(8)));
        break;
      default:
        bytes.resize(at);
    }
  }
  return bytes;
}

const std::vector<std::string>& Texts() {
  static const auto* const texts =
      new std::vector<std::string>{"",
                                   "the work and <|endoftext|> the <mask> source\n\n  code 12345",
                                   std::string(3000, 'a'),
                                   "日本語 naïve \xF0\x9F\x91\xA9\xE2\x80\x8D \xCC\x81 ▁ <0x41>",
                                   std::string(1000, ' '),
                                   std::string("\0\xFF\xC3", 3)};
  return *texts;
}

void TryAll(const Tokenizer& tokenizer, const std::string& name) {
  TokenizerScratch scratch;
  for (const std::string& text : Texts()) {
    std::vector<int32_t> ids;
    const absl::Status encoded = tokenizer.Encode(
        text, {.specials = Specials::kParse, .invalid_utf8 = InvalidUtf8::kReplace}, &scratch,
        &ids);
    if (!encoded.ok()) {
      EXPECT_FALSE(absl::IsInternal(encoded)) << name << encoded;
      continue;
    }
    tokenizer.Decode(ids);
  }
}

TEST(DamagedTokenizers, AnswerWithinTimeAndMemory) {
  const std::vector<Sample> samples = Samples();
  ASSERT_GE(samples.size(), 28u);
  std::string folder = testing::TempDir() + "/tokenizer-fuzz-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const int64_t cases = 600 * NumberFrom("WEFT_FUZZ_FACTOR", 1);
  int64_t num_open = 0;
  for (int64_t number = 0; number < cases; ++number) {
    Random random(static_cast<uint64_t>(NumberFrom("WEFT_FUZZ_SEED", 1)) * 1'000'003 +
                  static_cast<uint64_t>(number));
    const Sample& sample = random.Of(absl::MakeConstSpan(samples));
    const bool is_json = absl::EndsWith(sample.file, ".json");
    const std::string damaged = is_json && !random.Once(4) ? Damaged(sample.content, random)
                                                           : DamagedOnDisk(sample.content, random);
    const std::string path = absl::StrCat(folder, "/", sample.file);
    std::ofstream(path, std::ios::binary) << damaged;
    const std::string name = absl::StrCat("case ", number, " of ", sample.file);
    const auto begin = std::chrono::steady_clock::now();
    const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Open(path);
    if (tokenizer.ok()) {
      ++num_open;
      TryAll(*tokenizer, name);
    } else {
      EXPECT_TRUE(absl::IsInvalidArgument(tokenizer.status())) << name << tokenizer.status();
      EXPECT_LT(tokenizer.status().message().size(), 2000u) << name;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kMostTime) << name;
  }
  std::filesystem::remove_all(folder);
  // Damage that is never noticed and damage that always is would both prove little.
  EXPECT_GT(num_open, cases / 20);
  EXPECT_LT(num_open, cases * 19 / 20);
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss, kMostMemoryKib);
}

}  // namespace
}  // namespace weft
