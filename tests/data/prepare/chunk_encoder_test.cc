#include "data/prepare/chunk_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "data/prepare/document_ends.h"
#include "data/prepare/text_cuts.h"
#include "tests/data/prepare/small_tokenizer.h"

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ChunkEncoderTest : public testing::Test {
 protected:
  EncodedChunk Encode(const std::string& bytes, TextFormat format = TextFormat::kJsonl) {
    ChunkEncoder encoder(&tokenizer_, &rules_);
    TextChunk chunk;
    chunk.bytes = bytes;
    chunk.first_line = 7;
    return encoder.Encode(chunk, format);
  }
  std::vector<int32_t> Ids(const EncodedChunk& chunk) {
    std::vector<int32_t> ids;
    for (size_t i = 0; i + 1 < chunk.ids.size(); i += 2) {
      uint16_t id = 0;
      std::memcpy(&id, chunk.ids.data() + i, 2);
      ids.push_back(id);
    }
    return ids;
  }
  std::string Why(const std::string& row) {
    const EncodedChunk chunk = Encode(row);
    if (chunk.bad_rows.size() != 1 || !chunk.lengths.empty()) return "no bad row";
    return chunk.bad_rows[0].why;
  }

  TextFolder folder_;
  Tokenizer tokenizer_ = *Tokenizer::Open(folder_.tokenizer());
  EncodeRules rules_;
};

TEST_F(ChunkEncoderTest, EncodesRowsBetweenTheirEnds) {
  rules_.before = {1};
  rules_.after = {kEndOfTextForTest};
  const EncodedChunk chunk =
      Encode("{\"id\": 3, \"text\": \"the\\u0000A\"}\r\n\n  {\"text\":\"\"}\n{\"text\":\"th\"}");
  EXPECT_THAT(Ids(chunk),
              ElementsAre(1, 257, 0, 'A', kEndOfTextForTest, 1, 256, kEndOfTextForTest));
  EXPECT_THAT(chunk.lengths, ElementsAre(5, 3));
  EXPECT_EQ(chunk.empty, 1);
  EXPECT_EQ(chunk.text_bytes, 7);
  EXPECT_TRUE(chunk.bad_rows.empty());
}

TEST_F(ChunkEncoderTest, SaysWhatIsWrongWithARow) {
  const struct {
    std::string row, says;
  } cases[] = {
      {"[1, 2]", "found a list, expected an object with the key text"},
      {"\"text\"", "found a text, expected an object"},
      {"{\"text\": 12}", "text: found a number, expected a text"},
      {"{\"text\": null}", "text: found null"},
      {"{\"text\": [\"a\"]}", "text: found a list"},
      {"{}", "found an empty object; expected text"},
      {"{\"content\": \"a\", \"id\": 1}",
       "found the keys content, id; expected text; name the one"},
      {"{\"text\": \"a\", \"text\": \"b\"}", "the key text stands twice"},
      {"{\"text\": \"a\"", "found no JSON object"},
      {"{\"text\": \"a\"} {}", "found no JSON object"},
      {"{\"text\": \"\xFF\"}", "found no JSON object"},
      {"{\"text\": \"\\ud800\"}", "found no JSON object"},
      {"{\"text\": \"a\tb\"}", "found no JSON object"},
      {std::string("{\"text\": \"a\0b\"}", 15), "found no JSON object"},
      {"{\"text\": NaN}", "found no JSON object"},
      {std::string(3000, '['), "found no JSON object"},
  };
  for (const auto& c : cases) EXPECT_THAT(Why(c.row), HasSubstr(c.says)) << c.row.substr(0, 60);
}

TEST_F(ChunkEncoderTest, TakesNumbersBeyond64BitsBesideTheText) {
  const EncodedChunk chunk = Encode(
      "{\"id\": 123456789012345678901234567890, \"text\": \"A\"}\n"
      "{\"text\": \"B\", \"n\": 1}\n");
  EXPECT_THAT(Ids(chunk), ElementsAre('A', 'B'));
}

TEST_F(ChunkEncoderTest, NamesTheLineOfEachBadRowAndGoesOn) {
  const EncodedChunk chunk = Encode("{\"text\":\"A\"}\n{\n\n{\"text\":\"B\"}\n[]\n");
  EXPECT_THAT(Ids(chunk), ElementsAre('A', 'B'));
  ASSERT_EQ(chunk.bad_rows.size(), 2u);
  EXPECT_EQ(chunk.bad_rows[0].line, 8);
  EXPECT_EQ(chunk.bad_rows[1].line, 11);
}

TEST_F(ChunkEncoderTest, ReplacesInvalidBytesWhereThatIsAsked) {
  rules_.invalid_utf8 = InvalidUtf8::kReplace;
  EXPECT_EQ(Ids(Encode("{\"text\":\"a\xFFz\"}\n")), *tokenizer_.Encode("a\uFFFDz"));
  rules_.documents = DocumentCut::kLine;
  EXPECT_EQ(Ids(Encode("a\xFFz\n", TextFormat::kText)), *tokenizer_.Encode("a\uFFFDz"));
}

TEST_F(ChunkEncoderTest, KnowsSpecialTokensOnlyWhereThatIsAsked) {
  const std::string row = "{\"text\":\"<|endoftext|>\"}\n";
  EXPECT_EQ(Encode(row).lengths, std::vector<int64_t>{13});
  rules_.specials = Specials::kParse;
  EXPECT_THAT(Ids(Encode(row)), ElementsAre(kEndOfTextForTest));
  rules_.specials = Specials::kRefuse;
  EXPECT_THAT(Why(row), HasSubstr("<|endoftext|>"));
}

TEST_F(ChunkEncoderTest, CutsTextIntoLinesOrParagraphs) {
  rules_.after = {kEndOfTextForTest};
  rules_.documents = DocumentCut::kLine;
  EXPECT_THAT(Ids(Encode("A\r\n\nB C\n", TextFormat::kText)),
              ElementsAre('A', kEndOfTextForTest, 'B', ' ', 'C', kEndOfTextForTest));
  rules_.documents = DocumentCut::kParagraph;
  EXPECT_THAT(Ids(Encode("A\nB\n\n\nC\n", TextFormat::kText)),
              ElementsAre('A', '\n', 'B', kEndOfTextForTest, 'C', kEndOfTextForTest));
}

TEST_F(ChunkEncoderTest, NamesTheLineOfAByteThatIsNoUtf8) {
  const EncodedChunk chunk = Encode("A\nB\nC\xFF\n", TextFormat::kText);
  ASSERT_EQ(chunk.bad_rows.size(), 1u);
  EXPECT_EQ(chunk.bad_rows[0].line, 9);
}

TEST_F(ChunkEncoderTest, EncodesALongTextInPartsAsItWouldInOne) {
  std::string text;
  while (text.size() < 2 * kPartBytes + 100) text += "the thing, and\nThe other.\n\n  more 12\nx\n";
  const EncodedChunk chunk =
      Encode(absl::StrCat("{\"text\":\"", absl::StrReplaceAll(text, {{"\n", "\\n"}}), "\"}"));
  ASSERT_TRUE(chunk.bad_rows.empty());
  EXPECT_EQ(Ids(chunk), *tokenizer_.Encode(text));
}

TEST_F(ChunkEncoderTest, TakesEndsFromTheTokenizerOrFromTheirNames) {
  const auto ends = [&](TokenOutput output, const std::string& begin, const std::string& end) {
    return EndsOfDocuments(tokenizer_, output, begin, end);
  };
  const auto usual = ends(TokenOutput::kMegatron, kEndsOfTokenizer, kEndsOfTokenizer);
  ASSERT_TRUE(usual.ok()) << usual.status();
  EXPECT_TRUE(usual->before.empty());
  EXPECT_THAT(usual->after, ElementsAre(kEndOfTextForTest));
  const auto llmc = ends(TokenOutput::kLlmc, kEndsOfTokenizer, kEndsOfTokenizer);
  EXPECT_THAT(llmc->before, ElementsAre(kEndOfTextForTest));
  EXPECT_TRUE(llmc->after.empty());
  const auto named = ends(TokenOutput::kNanogpt, "the", "10");
  EXPECT_THAT(named->before, ElementsAre(257));
  EXPECT_THAT(named->after, ElementsAre(10));
  EXPECT_THAT(std::string(ends(TokenOutput::kMegatron, "none", "<eos>").status().message()),
              HasSubstr("--end: the tokenizer has no token <eos>; use the text of one"));
  EXPECT_EQ(TokensText(tokenizer_, {kEndOfTextForTest}), "258 <|endoftext|>");
}

}  // namespace
}  // namespace weft
