// Files and texts that are made to cost memory, time or a crash: each is refused by name, or costs
// what its size allows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/tokenizer.h"

namespace weft {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

absl::StatusOr<Tokenizer> Opened(const std::string& text,
                                 const std::string& file = "tokenizer.json") {
  std::string folder = testing::TempDir() + "/hostile-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return absl::InternalError("no folder");
  const std::string path = absl::StrCat(folder, "/", file);
  std::ofstream(path, std::ios::binary) << text;
  absl::StatusOr<Tokenizer> opened = Tokenizer::Open(path);
  std::filesystem::remove_all(folder);
  return opened;
}

std::string Refusal(const std::string& text, const std::string& file = "tokenizer.json") {
  const auto opened = Opened(text, file);
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument) << text.substr(0, 200);
  return std::string(opened.status().message());
}

TEST(HostileJson, HasEachKeyOnce) {
  EXPECT_THAT(Refusal(R"({"model":{"type":"Unigram","vocab":{"x":4000000},"vocab":[["a",-1.0]]}})"),
              HasSubstr("tokenizer.json: /model/vocab: found the key twice, expected it once"));
  EXPECT_THAT(Refusal(R"({"model":{"vocab":{"x":0},"merges":[],"merges":[]}})"),
              HasSubstr("/model/merges: found the key twice"));
  EXPECT_THAT(Refusal(R"({"model":{"vocab":{"x":0}},"model":{"vocab":[["a",-1.0]]}})"),
              HasSubstr("/model: found the key twice"));
}

// A charsmap of one key, the byte `key`, which becomes `by`. The trie's root leads to the units of
// its labels, a label's unit to its leaf (Darts: offset << 10, has leaf 1 << 8, label).
std::string CharsmapOf(unsigned char key, const std::string& by) {
  std::vector<uint32_t> units(1024, 1U << 31 | 0xFFU);
  units[0] = 256U << 10;                           // its labels at 256 ^ label
  units[256U ^ key] = 256U << 10 | 1U << 8 | key;  // its leaf at 256 ^ key ^ 256
  units[key] = 1U << 31 | 0U;                      // the text at 0
  const auto trie_bytes = static_cast<uint32_t>(units.size() * 4);
  std::string bytes(4 + trie_bytes, '\0');
  std::memcpy(bytes.data(), &trie_bytes, 4);
  std::memcpy(bytes.data() + 4, units.data(), trie_bytes);
  return bytes + by + std::string(1, '\0');
}

std::string WithCharsmap(const std::string& charsmap) {
  Json json = Json::parse(
      R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["b", -1]]},
          "normalizer": {"type": "Precompiled"}, "pre_tokenizer": {"type": "ByteLevel"}})");
  json["normalizer"]["precompiled_charsmap"] = absl::Base64Escape(charsmap);
  return json.dump();
}

TEST(HostileCharsmap, MakesUtf8OrIsNamed) {
  const auto sound = Opened(WithCharsmap(CharsmapOf('a', "b")));
  ASSERT_TRUE(sound.ok()) << sound.status();
  EXPECT_TRUE(sound->Encode("xax").ok());
  for (const char* const by : {"\xC3", "\x80", "\xF5\xFF"}) {
    const auto broken = Opened(WithCharsmap(CharsmapOf('a', by)));
    ASSERT_TRUE(broken.ok()) << broken.status();
    const absl::Status status = broken->Encode("xax").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("precompiled charsmap makes bytes"));
  }
}

TEST(HostileCharsmap, ReplacesByShortTexts) {
  EXPECT_TRUE(Opened(WithCharsmap(CharsmapOf('a', std::string(256, 'b')))).ok());
  EXPECT_THAT(Refusal(WithCharsmap(CharsmapOf('a', std::string(257, 'b')))),
              HasSubstr("replaces by a text of 257 bytes, expected at most 256"));
}

// A text may become 16 times itself and 64 KiB: the step ends there and not at 256 times.
TEST(HostileCharsmap, EndsWhereATextGrowsTooLong) {
  const auto charsmap = Charsmap::Read(CharsmapOf('a', std::string(256, 'b')));
  ASSERT_TRUE(charsmap.ok()) << charsmap.status();
  RegexScratch scratch;
  const size_t size = 100'000, most = size * 16 + (size_t{1} << 16);
  for (const bool is_sentence_piece : {false, true}) {
    std::vector<NormalizerStep> steps;
    if (is_sentence_piece) {
      SentencePieceStep step;
      step.charsmap = std::make_shared<Charsmap>(*charsmap);
      steps.emplace_back(std::move(step));
    } else {
      steps.emplace_back(*charsmap);
    }
    std::string text(size, 'a');
    const absl::Status status = Normalize(steps, &scratch, &text);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    // The first text past the limit is the last.
    const size_t prefix = is_sentence_piece ? 3 : 0;  // the mark before the text
    const size_t made = prefix + ((most - prefix) / 256 + 1) * 256;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("makes ", made, " bytes")));
  }
}

double SecondsOf(UnicodeForm form, const std::string& given) {
  double least = 1e9;
  RegexScratch scratch;
  for (int trial = 0; trial < 3; ++trial) {
    std::string text = given;
    const std::clock_t begin = std::clock();
    EXPECT_TRUE(Normalize({form}, &scratch, &text).ok());
    least = std::min(least, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  return least;
}

// Marks in order take one step each. Out of order a stable sort of n takes log2(n) steps each, 16
// of 50,000; swapping neighbours would take n / 2 for each, 25,000. 20 ms are the clock's
// coarseness.
TEST(HostileText, OfCrossedMarksIsOrderedInItsOwnTime) {
  constexpr int kPairs = 25'000;
  const std::string above = "\xCC\x81", below = "\xCC\x96";
  std::string ordered = "a", crossed = "a", split = "a";
  for (int i = 0; i < kPairs; ++i) ordered += below;
  for (int i = 0; i < kPairs; ++i) ordered += above;
  for (int i = 0; i < kPairs; ++i) crossed += above + below;
  for (int i = 0; i < kPairs; ++i) split += "\xE0\xBD\xB3";  // U+0F73, two marks of two classes
  for (const UnicodeForm form :
       {UnicodeForm::kNfc, UnicodeForm::kNfd, UnicodeForm::kNfkc, UnicodeForm::kNfkd}) {
    const double bound = 16 * SecondsOf(form, ordered) + 0.02;
    EXPECT_LT(SecondsOf(form, crossed), bound);
    EXPECT_LT(SecondsOf(form, split), bound);
    std::string one = ordered, other = crossed;
    RegexScratch scratch;
    ASSERT_TRUE(Normalize({form}, &scratch, &one).ok());
    ASSERT_TRUE(Normalize({form}, &scratch, &other).ok());
    EXPECT_TRUE(one == other) << static_cast<int>(form);
  }
}

// A model of one token in a file with these other parts.
std::string With(const char* key, const Json& part) {
  Json json = Json::parse(R"({"model": {"vocab": {"a": 0}, "merges": [], "type": "BPE"}})");
  json[Json::json_pointer(key)] = part;
  return json.dump();
}

TEST(HostileJson, HasKeysOfTheirKinds) {
  const struct {
    const char* key;
    Json part;
    const char* says;
  } cases[] = {
      {"/pre_tokenizer",
       {{"type", "ByteLevel"}, {"use_regex", "no"}},
       "/pre_tokenizer/use_regex: found no, expected true or false"},
      {"/normalizer",
       {{"type", "Sequence"}, {"normalizers", {{{"type", "Strip"}, {"strip_left", 0}}}}},
       "/normalizer/normalizers/strip_left: found 0, expected true or false"},
      {"/normalizer",
       {{"type", "Sequence"}, {"normalizers", {{"type", "NFC"}}}},
       "/normalizer/normalizers: found an object, expected a list"},
      {"/normalizer",
       {{"type", "Prepend"}, {"prepend", 3}},
       "/normalizer/prepend: found 3, expected a text"},
      {"/decoder", {{"type", "WordPiece"}, {"prefix", false}}, "/decoder/prefix: found false"},
      {"/model/unk_token", 0, "/model/unk_token: found 0, expected a text"},
      {"/model/byte_fallback", 1, "/model/byte_fallback: found 1, expected true or false"},
      {"/added_tokens",
       {{{"id", 1}, {"content", "x"}, {"special", "yes"}}},
       "/added_tokens/special: found yes, expected true or false"},
  };
  for (const auto& each : cases) {
    EXPECT_THAT(Refusal(With(each.key, each.part)), HasSubstr(each.says)) << each.key;
  }
  EXPECT_TRUE(Opened(With("/model/unk_token", nullptr)).ok());
}

TEST(HostileJson, HasAtMost64StepsInALine) {
  const struct {
    const char *key, *list;
    Json step;
  } cases[] = {{"/normalizer", "normalizers", {{"type", "NFC"}}},
               {"/pre_tokenizer", "pretokenizers", {{"type", "WhitespaceSplit"}}},
               {"/decoder", "decoders", {{"type", "Fuse"}}}};
  for (const auto& each : cases) {
    Json line = {{"type", "Sequence"}, {each.list, Json::array()}};
    for (int i = 0; i < 64; ++i) line[each.list].push_back(each.step);
    EXPECT_TRUE(Opened(With(each.key, line)).ok()) << each.key;
    line[each.list].push_back(each.step);
    EXPECT_THAT(Refusal(With(each.key, line)),
                HasSubstr(absl::StrCat(each.key, ": found more than 64 steps")));
  }
}

TEST(HostileJson, HasTokensOfBoundedLength) {
  Json added = Json::array({{{"id", 1}, {"content", std::string(4096, 'x')}}});
  EXPECT_TRUE(Opened(With("/added_tokens", added)).ok());
  added[0]["content"] = std::string(4097, 'x');
  EXPECT_THAT(Refusal(With("/added_tokens", added)),
              HasSubstr("of 4097 bytes, expected at most 4096"));
  Json unigram = {{"type", "Unigram"}, {"vocab", Json::array()}};
  unigram["vocab"].push_back(Json::array({std::string(512, 'x'), -1.0}));
  EXPECT_TRUE(Opened(With("/model", unigram)).ok());
  unigram["vocab"].push_back(Json::array({std::string(513, 'x'), -1.0}));
  EXPECT_THAT(Refusal(With("/model", unigram)), HasSubstr("of 513 bytes, expected at most 512"));
  Json word_piece = {{"type", "WordPiece"}, {"unk_token", "u"}, {"vocab", {{"u", 0}}}};
  word_piece["max_input_chars_per_word"] = 1000;
  EXPECT_TRUE(Opened(With("/model", word_piece)).ok());
  word_piece["max_input_chars_per_word"] = 1001;
  EXPECT_THAT(Refusal(With("/model", word_piece)),
              HasSubstr("/model/max_input_chars_per_word: found 1001, expected 0 to 1000"));
  word_piece["max_input_chars_per_word"] = 100;
  word_piece["vocab"][std::string(513, 'x')] = 1;
  EXPECT_THAT(Refusal(With("/model", word_piece)), HasSubstr("of 513 bytes, expected at most 512"));
}

TEST(HostileJson, HasAddedTokensOfBoundedLengthTogether) {
  Json added = Json::array();
  for (int i = 1; i <= 1025; ++i) {
    const std::string content = absl::StrCat(std::string(4090, 'x'), 100'000 + i);
    added.push_back({{"id", i}, {"content", content}});
  }
  EXPECT_THAT(Refusal(With("/added_tokens", added)),
              HasSubstr("found added tokens of 4198400 bytes together, expected at most 4194304"));
}

TEST(HostileJson, OfTekkenHasAtMost65536Specials) {
  Json tekken = {{"vocab", Json::array()},
                 {"config",
                  {{"pattern", "a"},
                   {"default_vocab_size", 100'000},
                   {"default_num_special_tokens", 65'537}}}};
  tekken["vocab"].push_back({{"rank", 0}, {"token_bytes", "YQ=="}});
  EXPECT_THAT(Refusal(tekken.dump(), "tekken.json"), HasSubstr("at most 65536"));
}

// Each word alone costs less than a match may, and all of them together more than a text may.
TEST(HostileExpression, HasOneBudgetForAText) {
  const Json split = {
      {"type", "Split"}, {"pattern", {{"Regex", "(a+)+b|."}}}, {"behavior", "Isolated"}};
  const auto tokenizer = Opened(With("/pre_tokenizer", split));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const std::string word = std::string(16, 'a') + "!";
  EXPECT_TRUE(tokenizer->Encode(word).ok());
  std::string text;
  for (int i = 0; i < 2000; ++i) text += word;
  const std::clock_t begin = std::clock();
  EXPECT_EQ(tokenizer->Encode(text).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 5.0);
  EXPECT_TRUE(tokenizer->Encode(word).ok());
}

}  // namespace
}  // namespace weft
