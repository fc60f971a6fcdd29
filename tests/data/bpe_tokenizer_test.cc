// The tokenizer against Hugging Face's own (bpe/make_fixture.py), and by its definition.
#include "data/bpe_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "data/unicode.h"
#include "tests/places.h"

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::json;

std::string Fixture() {
  return SourcePath("/tests/data/bpe");
}

Json ReadFixture(const std::string& name) {
  std::ifstream stream(Fixture() + "/" + name);
  return Json::parse(stream);
}

class Folder {
 public:
  Folder() {
    std::string name = testing::TempDir() + "/bpe-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << text;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string Decoded(const BpeTokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += tokenizer.Decode(id);
  return text;
}

TEST(BpeTokenizer, EncodesAsHuggingFaceDoes) {
  const auto tokenizer = BpeTokenizer::Open(Fixture());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->vocab_size(), 420);
  EXPECT_THAT(tokenizer->ends_of_text(), ElementsAre(0));
  const Json cases = ReadFixture("expected.json");
  ASSERT_GE(cases.size(), 100u);
  for (const Json& each : cases) {
    const auto text = each[0].get<std::string>();
    const std::vector<int32_t> ids = tokenizer->Encode(text);
    EXPECT_EQ(ids, each[1].get<std::vector<int32_t>>()) << each[0];
    EXPECT_EQ(Decoded(*tokenizer, ids), text);
  }
}

// The fixture's tokenizer.json with some values of it replaced, by JSON pointer.
Json Changed(const Json& changes) {
  Json json = ReadFixture("tokenizer.json");
  for (const auto& [pointer, value] : changes.items()) json[Json::json_pointer(pointer)] = value;
  return json;
}

TEST(BpeTokenizer, HandlesAddedTokensAndPostProcessorsAsHuggingFaceDoes) {
  const Json variants = ReadFixture("variants.json");
  ASSERT_EQ(variants.size(), 6u);
  for (const Json& variant : variants) {
    const Folder folder;
    folder.Write("tokenizer.json", Changed(variant["changes"]).dump());
    const auto tokenizer = BpeTokenizer::Open(folder.path());
    ASSERT_TRUE(tokenizer.ok()) << variant["name"] << tokenizer.status();
    ASSERT_GE(variant["cases"].size(), 70u);
    for (const Json& each : variant["cases"]) {
      EXPECT_EQ(tokenizer->Encode(each[0].get<std::string>()), each[1].get<std::vector<int32_t>>())
          << variant["name"] << ": " << each[0];
    }
  }
}

TEST(BpeTokenizer, KnowsTheTokenThatEndsAText) {
  const Json added = {{{"id", 420}, {"content", "</s>"}}};
  const Folder folder;
  folder.Write("tokenizer.json", Changed({{"/added_tokens", added}}).dump());
  EXPECT_THAT(BpeTokenizer::Open(folder.path())->ends_of_text(), ElementsAre(0));  // <|endoftext|>
  folder.Write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  EXPECT_THAT(BpeTokenizer::Open(folder.path())->ends_of_text(), ElementsAre(420));
  folder.Write("tokenizer_config.json", R"({"eos_token": {"content": "</s>", "special": true}})");
  EXPECT_THAT(BpeTokenizer::Open(folder.path())->ends_of_text(), ElementsAre(420));
  folder.Write("tokenizer_config.json", R"({"eos_token": "<gone>"})");
  EXPECT_THAT(BpeTokenizer::Open(folder.path())->ends_of_text(), ElementsAre());
  folder.Write("special_tokens_map.json", R"({"eos_token": {"content": "</s>"}})");
  EXPECT_THAT(BpeTokenizer::Open(folder.path())->ends_of_text(), ElementsAre(420));
  folder.Write("tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  EXPECT_THAT(BpeTokenizer::Open(folder.path())->ends_of_text(), ElementsAre(0, 420));
  folder.Write("tokenizer_config.json", "[");
  EXPECT_THAT(std::string(BpeTokenizer::Open(folder.path()).status().message()),
              HasSubstr("tokenizer_config.json: found no JSON object"));
}

TEST(BpeTokenizer, GivesAnyBytesBack) {
  const auto tokenizer = BpeTokenizer::Open(Fixture());
  ASSERT_TRUE(tokenizer.ok());
  std::string every;
  for (int i = 0; i < 512; ++i) every.push_back(static_cast<char>(i * 7 + i / 256));
  for (const std::string& text :
       {every, std::string("\xE3\x81"), std::string("\xFF\xFE the"), std::string("\0\0a", 3),
        std::string(20000, 'a'), std::string(20000, ' '), std::string()}) {
    EXPECT_EQ(Decoded(*tokenizer, tokenizer->Encode(text)), text);
  }
  EXPECT_EQ(tokenizer->Decode(-1), "");
  EXPECT_EQ(tokenizer->Decode(420), "");
}

TEST(BpeTokenizer, ReadsTheOlderPairOfFiles) {
  const Json whole = ReadFixture("tokenizer.json");
  const Folder folder;
  Json vocabulary = whole["model"]["vocab"];
  folder.Write("vocab.json", vocabulary.dump());
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : whole["model"]["merges"]) {
    merges += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  }
  folder.Write("merges.txt", merges);
  const auto old = BpeTokenizer::Open(folder.path());
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_THAT(old->ends_of_text(), ElementsAre(0));
  for (const Json& each : ReadFixture("expected.json")) {
    EXPECT_EQ(old->Encode(each[0].get<std::string>()), each[1].get<std::vector<int32_t>>());
  }
  // As git on Windows leaves it.
  folder.Write("merges.txt", absl::StrReplaceAll(merges, {{"\n", "\r\n"}}));
  const auto returned = BpeTokenizer::Open(folder.path());
  ASSERT_TRUE(returned.ok()) << returned.status();
  EXPECT_EQ(returned->Encode("the works of man"), old->Encode("the works of man"));
  EXPECT_EQ(old->Encode("<|endoftext|>"), std::vector<int32_t>{0});
  folder.Write("added_tokens.json", R"({"<pad>": 430})");
  EXPECT_EQ(BpeTokenizer::Open(folder.path())->Encode("<pad><pad>"),
            (std::vector<int32_t>{430, 430}));
}

// Returns what reading says of the fixture's tokenizer.json with these values replaced.
std::string Refusal(const Json& json) {
  const Folder folder;
  folder.Write("tokenizer.json", json.dump());
  const auto opened = BpeTokenizer::Open(folder.path() + "/tokenizer.json");
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(opened.status().message());
}

TEST(BpeTokenizer, RefusesWhatItIsNotByName) {
  const struct {
    const char* pointer;
    Json value;
    const char* says;
  } cases[] = {
      {"/model/type", "Unigram", "/model/type: found Unigram, expected BPE"},
      {"/pre_tokenizer",
       {{"type", "Split"}},
       "/pre_tokenizer: Split: found nothing, expected a known"},
      {"/pre_tokenizer", {{"type", "Metaspace"}}, "/pre_tokenizer/type: found Metaspace"},
      {"/pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", Json::array()}},
       "pretokenizers: found none, expected ByteLevel"},
      {"/pre_tokenizer/add_prefix_space", true, "add_prefix_space"},
      {"/normalizer", {{"type", "NFC"}}, "/normalizer: found an object, expected null"},
      {"/model/dropout", 0.1, "/model/dropout: found 0.1, expected null"},
      {"/model/vocab/a", -3, "the id -3 of \"a\""},
      {"/added_tokens/0/single_word", true, "single_word of the added token \"<|endoftext|>\""},
      {"/added_tokens/0/id", 7, "\"<|endoftext|>\", which the vocabulary says is 0"},
      {"/added_tokens/0/content", 7, "an added token that is an object, expected content and id"},
      {"/post_processor",
       {{"type", "Other"}},
       "/post_processor/type: found Other, expected Template"},
      {"/post_processor",
       {{"type", "RobertaProcessing"}, {"cls", 3}},
       "/post_processor: found 3, expected a token and its id"},
      {"/post_processor",
       {{"type", "TemplateProcessing"}, {"single", Json::array()}},
       "/post_processor/single: found no text"},
      {"/post_processor",
       {{"type", "TemplateProcessing"}, {"single", {{{"SpecialToken", {{"id", "<s>"}}}}}}},
       "/post_processor/single: found <s>, expected special"},
  };
  for (const auto& each : cases) {
    EXPECT_THAT(Refusal(Changed({{each.pointer, each.value}})), HasSubstr(each.says))
        << each.pointer << " " << each.value;
  }
  EXPECT_THAT(Refusal(Json::array()), HasSubstr("no JSON object"));
  const Folder empty;
  EXPECT_THAT(std::string(BpeTokenizer::Open(empty.path()).status().message()),
              HasSubstr("vocab.json: cannot be read"));
}

TEST(BpeTokenizer, RefusesAVocabularyThatLacksWhatItNeeds) {
  Json json = ReadFixture("tokenizer.json");
  json["model"]["merges"].push_back({"q", "qqq"});
  EXPECT_THAT(Refusal(json), HasSubstr("\"q qqq\""));
  json["model"]["vocab"].erase("a");
  EXPECT_THAT(Refusal(json), HasSubstr("no token for byte 97"));
}

TEST(BpeTokenizer, RefusesWhatIsNestedTooDeep) {
  const Folder deep;
  deep.Write("tokenizer.json", absl::StrCat(R"({"model": {"type": )", std::string(1'000'000, '['),
                                            std::string(1'000'000, ']'), "}}"));
  EXPECT_THAT(
      std::string(BpeTokenizer::Open(deep.path()).status().message()),
      HasSubstr("tokenizer.json: found no JSON object, expected one (line 1, byte 82: nested "
                "deeper than 64"));
}

TEST(Unicode, TakesAnyBytesApart) {
  EXPECT_EQ(CharacterAt("\xE2\x82\xAC", 0).code_point, 0x20ACu);
  EXPECT_EQ(CharacterAt("\xF0\x9F\x99\x82", 0).code_point, 0x1F642u);
  // Overlong, a surrogate, beyond the last, cut off, a stray continuation.
  for (const char* broken : {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                             "\xE2\x82", "\x82", "\xF8\x88\x80\x80\x80"}) {
    EXPECT_EQ(CharacterAt(broken, 0).code_point, kNoCharacter) << broken;
    EXPECT_EQ(CharacterAt(broken, 0).bytes, 1) << broken;
  }
  EXPECT_EQ(UnfinishedBytes("a\xE2\x82"), 2);
  EXPECT_EQ(UnfinishedBytes("a\xF0\x9F\x99"), 3);
  EXPECT_EQ(UnfinishedBytes("\xC3"), 1);
  EXPECT_EQ(UnfinishedBytes("a\xE2\x82\xAC"), 0);
  EXPECT_EQ(UnfinishedBytes("\x82\x82\x82\x82"), 0);  // never a character: shown as it is
  EXPECT_EQ(UnfinishedBytes(""), 0);
}

}  // namespace
}  // namespace weft
