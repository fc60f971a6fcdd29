// Tokenizers of every kind against Hugging Face's tokenizers, tiktoken and sentencepiece, on what
// make_golden.py wrote; and the stream of a decoder against the whole text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "data/tokenizer/charsmap.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/places.h"

namespace weft {
namespace {

using GoldenJson = nlohmann::json;

std::vector<GoldenJson> GoldenRows() {
  std::vector<GoldenJson> rows;
  std::ifstream lines(SourcePath("/tests/data/tokenizer/golden.jsonl"));
  for (std::string line; std::getline(lines, line);) rows.push_back(GoldenJson::parse(line));
  return rows;
}

absl::StatusOr<Tokenizer> OpenedRow(const GoldenJson& row) {
  std::string folder = testing::TempDir() + "/golden-XXXXXX";
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/" + row["file"].get<std::string>();
  std::ofstream(path, std::ios::binary) << *FromBase64(row["content"].get<std::string>());
  absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Open(path);
  std::filesystem::remove_all(folder);
  return tokenizer;
}

TEST(GoldenTokenizers, EncodeAndDecodeAsTheOriginalsDo) {
  const std::vector<GoldenJson> rows = GoldenRows();
  ASSERT_GE(rows.size(), 28u);
  for (const GoldenJson& row : rows) {
    const absl::StatusOr<Tokenizer> tokenizer = OpenedRow(row);
    ASSERT_TRUE(tokenizer.ok()) << row["name"] << tokenizer.status();
    // tiktoken's encode_ordinary and sentencepiece know no special tokens in a text.
    const bool parses = row["file"] == "tokenizer.json";
    const EncodeOptions options = {.specials = parses ? Specials::kParse : Specials::kText,
                                   .adds_ends = false};
    ASSERT_GE(row["cases"].size(), 20u);
    for (const GoldenJson& each : row["cases"]) {
      const auto ids = tokenizer->Encode(each[0].get<std::string>(), options);
      ASSERT_TRUE(ids.ok()) << row["name"] << each[0] << ids.status();
      EXPECT_EQ(*ids, each[1].get<std::vector<int32_t>>()) << row["name"] << ": " << each[0];
      // The originals put U+FFFD where tokens are no characters.
      EXPECT_EQ(WithReplacements(tokenizer->Decode(*ids)), each[2].get<std::string>())
          << row["name"] << ": " << each[0];
    }
  }
}

// Each thread has a scratch of its own; what the tokenizer holds is shared.
TEST(GoldenTokenizers, AreSharedByThreads) {
  for (const GoldenJson& row : GoldenRows()) {
    const absl::StatusOr<Tokenizer> tokenizer = OpenedRow(row);
    ASSERT_TRUE(tokenizer.ok()) << row["name"] << tokenizer.status();
    std::vector<std::vector<int32_t>> ids(2);
    std::vector<std::string> texts(2);
    {
      std::vector<std::jthread> threads;
      for (size_t thread = 0; thread < ids.size(); ++thread) {
        threads.emplace_back([&, thread] {
          TokenizerScratch scratch;
          for (const GoldenJson& each : row["cases"]) {
            (void)tokenizer->Encode(each[0].get<std::string>(), {}, &scratch, &ids[thread]);
          }
          texts[thread] = tokenizer->Decode(ids[thread]);
        });
      }
    }
    EXPECT_EQ(ids[0], ids[1]) << row["name"];
    EXPECT_EQ(texts[0], texts[1]) << row["name"];
    EXPECT_FALSE(ids[0].empty()) << row["name"];
  }
}

TEST(GoldenTokenizers, StreamTheTextThatTheyDecode) {
  for (const GoldenJson& row : GoldenRows()) {
    const absl::StatusOr<Tokenizer> tokenizer = OpenedRow(row);
    ASSERT_TRUE(tokenizer.ok());
    for (const GoldenJson& each : row["cases"]) {
      const auto ids = each[1].get<std::vector<int32_t>>();
      DecodeStream stream(&*tokenizer);
      std::string text;
      for (const int32_t id : ids) text += stream.Take(id);
      text += stream.Rest();
      EXPECT_EQ(text, tokenizer->Decode(ids)) << row["name"] << ": " << each[0];
    }
  }
}

}  // namespace
}  // namespace weft
