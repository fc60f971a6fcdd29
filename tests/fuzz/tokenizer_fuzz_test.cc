// Damaged tokenizers of every kind: opening one answers, and what opens encodes and decodes, within
// time and memory.
#include <gtest/gtest.h>

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
#include "tests/fuzz/file_trial.h"
#include "tests/places.h"

namespace weft {
namespace {

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
  ASSERT_GE(samples.size(), 33u);
  std::string folder = testing::TempDir() + "/tokenizer-fuzz-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const uint64_t cases = FileTrials(600);
  uint64_t num_open = 0;
  for (uint64_t number = 0; number < cases; ++number) {
    Random random = RandomOfTrial(number);
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
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kMostTimeOfFile) << name;
  }
  std::filesystem::remove_all(folder);
  ExpectBothEndsAndBoundedMemory(num_open, cases);
}

}  // namespace
}  // namespace weft
