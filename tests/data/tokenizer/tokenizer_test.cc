// Byte-level tokenizers against Hugging Face's own (tests/data/bpe/make_fixture.py), what is
// refused of tokenizer.json, and which files are a tokenizer.
#include "data/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
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

// As transformers' tokenizer(text) does.
std::vector<int32_t> Parsed(const absl::StatusOr<Tokenizer>& tokenizer, const std::string& text) {
  if (!tokenizer.ok()) {
    ADD_FAILURE() << tokenizer.status();
    return {};
  }
  const auto ids = tokenizer->Encode(text, {.specials = Specials::kParse});
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.ok() ? *ids : std::vector<int32_t>();
}

TEST(Tokenizer, EncodesAsHuggingFaceDoes) {
  const auto tokenizer = Tokenizer::Open(Fixture());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->vocab_size(), 420);
  EXPECT_THAT(tokenizer->ends_of_text(), ElementsAre(0));
  const Json cases = ReadFixture("expected.json");
  ASSERT_GE(cases.size(), 100u);
  for (const Json& each : cases) {
    const auto text = each[0].get<std::string>();
    const std::vector<int32_t> ids = Parsed(tokenizer, text);
    EXPECT_EQ(ids, each[1].get<std::vector<int32_t>>()) << each[0];
    EXPECT_EQ(tokenizer->Decode(ids), text);
  }
}

// The fixture's tokenizer.json with some values of it replaced, by JSON pointer.
Json Changed(const Json& changes) {
  Json json = ReadFixture("tokenizer.json");
  for (const auto& [pointer, value] : changes.items()) json[Json::json_pointer(pointer)] = value;
  return json;
}

TEST(Tokenizer, HandlesAddedTokensAndPostProcessorsAsHuggingFaceDoes) {
  const Json variants = ReadFixture("variants.json");
  ASSERT_EQ(variants.size(), 6u);
  for (const Json& variant : variants) {
    const Folder folder;
    folder.Write("tokenizer.json", Changed(variant["changes"]).dump());
    const auto tokenizer = Tokenizer::Open(folder.path());
    ASSERT_TRUE(tokenizer.ok()) << variant["name"] << tokenizer.status();
    ASSERT_GE(variant["cases"].size(), 70u);
    for (const Json& each : variant["cases"]) {
      EXPECT_EQ(Parsed(tokenizer, each[0].get<std::string>()), each[1].get<std::vector<int32_t>>())
          << variant["name"] << ": " << each[0];
    }
  }
}

TEST(Tokenizer, KnowsTheTokenThatEndsAText) {
  const Json added = {{{"id", 420}, {"content", "</s>"}}};
  const Folder folder;
  folder.Write("tokenizer.json", Changed({{"/added_tokens", added}}).dump());
  EXPECT_THAT(Tokenizer::Open(folder.path())->ends_of_text(), ElementsAre(0));  // <|endoftext|>
  folder.Write("tokenizer_config.json", R"({"eos_token": "</s>"})");
  EXPECT_THAT(Tokenizer::Open(folder.path())->ends_of_text(), ElementsAre(420));
  folder.Write("tokenizer_config.json", R"({"eos_token": {"content": "</s>", "special": true}})");
  EXPECT_THAT(Tokenizer::Open(folder.path())->ends_of_text(), ElementsAre(420));
  folder.Write("tokenizer_config.json", R"({"eos_token": "<gone>"})");
  EXPECT_THAT(Tokenizer::Open(folder.path())->ends_of_text(), ElementsAre());
  folder.Write("special_tokens_map.json", R"({"eos_token": {"content": "</s>"}})");
  EXPECT_THAT(Tokenizer::Open(folder.path())->ends_of_text(), ElementsAre(420));
  folder.Write("tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  EXPECT_THAT(Tokenizer::Open(folder.path())->ends_of_text(), ElementsAre(0, 420));
  folder.Write("tokenizer_config.json", "[");
  EXPECT_THAT(std::string(Tokenizer::Open(folder.path()).status().message()),
              HasSubstr("tokenizer_config.json: found no JSON object"));
}

TEST(Tokenizer, GivesAnyTextBack) {
  const auto tokenizer = Tokenizer::Open(Fixture());
  ASSERT_TRUE(tokenizer.ok());
  for (const std::string& text :
       {std::string("\0\0a", 3), std::string(20000, 'a'), std::string(20000, ' '), std::string()}) {
    EXPECT_EQ(tokenizer->Decode(Parsed(tokenizer, text)), text);
  }
  EXPECT_EQ(tokenizer->Decode({-1}), "");
  EXPECT_EQ(tokenizer->Decode({420}), "");
}

TEST(Tokenizer, RefusesBytesThatAreNoUtf8OrReplacesThem) {
  const auto tokenizer = Tokenizer::Open(Fixture());
  ASSERT_TRUE(tokenizer.ok());
  const std::string broken = "the \xFF\xE3\x81 \xED\xA0\x80";
  const auto refused = tokenizer->Encode(broken);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("no UTF-8 at byte 4 "));
  const auto replaced = tokenizer->Encode(broken, {.invalid_utf8 = InvalidUtf8::kReplace});
  ASSERT_TRUE(replaced.ok());
  // As Python's decode("utf-8", "replace"): one for each beginning of a character, and other byte.
  EXPECT_EQ(tokenizer->Decode(*replaced),
            "the \xEF\xBF\xBD\xEF\xBF\xBD \xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Tokenizer, TakesSpecialTokensInATextAsItIsTold) {
  const auto tokenizer = Tokenizer::Open(Fixture());
  ASSERT_TRUE(tokenizer.ok());
  const std::string text = "the<|endoftext|>the";
  const auto as_text = tokenizer->Encode(text);
  ASSERT_TRUE(as_text.ok());
  EXPECT_THAT(*as_text, testing::Not(testing::Contains(0)));
  EXPECT_EQ(tokenizer->Decode(*as_text), text);
  EXPECT_THAT(Parsed(tokenizer, text), testing::Contains(0));
  const auto refused = tokenizer->Encode(text, {.specials = Specials::kRefuse});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("special token \"<|endoftext|>\" at byte 3"));
}

TEST(Tokenizer, EncodesTheSameWithAScratchThatIsUsedAgain) {
  const auto tokenizer = Tokenizer::Open(Fixture());
  ASSERT_TRUE(tokenizer.ok());
  TokenizerScratch scratch;
  for (int round = 0; round < 2; ++round) {
    for (const Json& each : ReadFixture("expected.json")) {
      std::vector<int32_t> ids;
      ASSERT_TRUE(
          tokenizer
              ->Encode(each[0].get<std::string>(), {.specials = Specials::kParse}, &scratch, &ids)
              .ok());
      EXPECT_EQ(ids, each[1].get<std::vector<int32_t>>()) << each[0];
    }
  }
}

TEST(Tokenizer, ReadsTheOlderPairOfFiles) {
  const Json whole = ReadFixture("tokenizer.json");
  const Folder folder;
  Json vocabulary = whole["model"]["vocab"];
  folder.Write("vocab.json", vocabulary.dump());
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : whole["model"]["merges"]) {
    merges += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  }
  folder.Write("merges.txt", merges);
  const auto old = Tokenizer::Open(folder.path());
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_THAT(old->ends_of_text(), ElementsAre(0));
  for (const Json& each : ReadFixture("expected.json")) {
    EXPECT_EQ(Parsed(old, each[0].get<std::string>()), each[1].get<std::vector<int32_t>>());
  }
  // As git on Windows leaves it.
  folder.Write("merges.txt", absl::StrReplaceAll(merges, {{"\n", "\r\n"}}));
  const auto returned = Tokenizer::Open(folder.path());
  ASSERT_TRUE(returned.ok()) << returned.status();
  EXPECT_EQ(Parsed(returned, "the works of man"), Parsed(old, "the works of man"));
  EXPECT_EQ(Parsed(old, "<|endoftext|>"), std::vector<int32_t>{0});
  for (const char* const known : {"GPT2Tokenizer", "GPT2TokenizerFast"}) {
    folder.Write("tokenizer_config.json", absl::StrCat(R"({"tokenizer_class": ")", known, "\"}"));
    EXPECT_TRUE(Tokenizer::Open(folder.path()).ok()) << known;
  }
  folder.Write("tokenizer_config.json", R"({"tokenizer_class": "CLIPTokenizer"})");
  EXPECT_THAT(std::string(Tokenizer::Open(folder.path()).status().message()),
              HasSubstr("tokenizer_config.json: /tokenizer_class: found CLIPTokenizer, expected"));
  folder.Write("tokenizer_config.json", "{}");
  folder.Write("added_tokens.json", R"({"<pad>": 430})");
  EXPECT_EQ(Parsed(Tokenizer::Open(folder.path()), "<pad><pad>"), (std::vector<int32_t>{430, 430}));
}

// Returns what reading says of the fixture's tokenizer.json with these values replaced.
std::string Refusal(const Json& json) {
  const Folder folder;
  folder.Write("tokenizer.json", json.dump());
  const auto opened = Tokenizer::Open(folder.path() + "/tokenizer.json");
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(opened.status().message());
}

TEST(Tokenizer, RefusesWhatItIsNotByName) {
  const struct {
    const char* pointer;
    Json value;
    const char* says;
  } cases[] = {
      {"/model/type", "WordLevel",
       "/model/type: found WordLevel, expected BPE, Unigram or WordPiece"},
      {"/pre_tokenizer", {{"type", "Split"}}, "/pre_tokenizer/pattern: found nothing, expected a"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", R"(\bword)"}}}},
       R"("\bword": found \b at byte 0 of the expression, which is not built in)"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}},
       "found the expression \"(a\", which is none: missing closing parenthesis"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Thrown"}},
       "/pre_tokenizer/behavior: found Thrown, expected Removed, Isolated"},
      {"/pre_tokenizer", {{"type", "FixedLength"}}, "/pre_tokenizer/type: found FixedLength"},
      {"/normalizer", {{"type", "Other"}}, "/normalizer/type: found Other, expected NFC, NFD"},
      {"/normalizer",
       {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}},
       "found a precompiled charsmap of 3 bytes"},
      {"/decoder", {{"type", "CTC"}}, "/decoder/type: found CTC, expected ByteLevel, Replace"},
      {"/model/dropout", 0.1, "/model/dropout: found 0.1, expected null"},
      {"/model/unk_token", "<none>", "/model/unk_token: found <none>, expected a token of the"},
      {"/model/vocab/a", -3, "the id -3 of \"a\""},
      {"/model/vocab/a", 1.5, "the id 1.5 of \"a\""},
      {"/model/vocab", 3, "/model/vocab: found 3, expected a map or a list"},
      {"/added_tokens/0/id", 7, "\"<|endoftext|>\", which the vocabulary says is 0"},
      {"/added_tokens/0/content", 7, "/added_tokens/content: found 7, expected a text"},
      {"/added_tokens/0/id", nullptr, "an added token that is an object, expected content and id"},
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
  EXPECT_THAT(std::string(Tokenizer::Open(empty.path()).status().message()),
              HasSubstr("vocab.json: cannot be read"));
}

TEST(Tokenizer, RefusesMergesThatItsVocabularyLacks) {
  Json json = ReadFixture("tokenizer.json");
  json["model"]["merges"].push_back({"q", "qqq"});
  EXPECT_THAT(Refusal(json), HasSubstr("\"q qqq\", expected two tokens"));
  json["model"]["merges"].back() = {"q", "q", "q"};
  EXPECT_THAT(Refusal(json), HasSubstr("found the merge a list, expected two tokens"));
}

TEST(Tokenizer, RefusesWhatIsNestedTooDeep) {
  const Folder deep;
  deep.Write("tokenizer.json", absl::StrCat(R"({"model": {"type": )", std::string(1'000'000, '['),
                                            std::string(1'000'000, ']'), "}}"));
  EXPECT_THAT(
      std::string(Tokenizer::Open(deep.path()).status().message()),
      HasSubstr("tokenizer.json: found no JSON object, expected one (nested deeper than 64)"));
}

std::string RanksOfBytes() {
  std::string ranks;
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    absl::StrAppend(&ranks, absl::Base64Escape(absl::string_view(&text, 1)), " ", byte, "\n");
  }
  return ranks;
}

TEST(Tokenizer, NamesThe256SpecialTokensOfLlama3) {
  const Folder folder;
  folder.Write("llama3.tiktoken", RanksOfBytes());
  const auto tokenizer = Tokenizer::Open(folder.path() + "/llama3.tiktoken");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->vocab_size(), 128'256);
  EXPECT_EQ(tokenizer->special_ids().size(), 256u);
  const std::pair<int32_t, const char*> names[] = {{128000, "<|begin_of_text|>"},
                                                   {128002, "<|reserved_special_token_0|>"},
                                                   {128003, "<|reserved_special_token_1|>"},
                                                   {128004, "<|finetune_right_pad_id|>"},
                                                   {128005, "<|reserved_special_token_2|>"},
                                                   {128008, "<|eom_id|>"},
                                                   {128010, "<|python_tag|>"},
                                                   {128011, "<|reserved_special_token_3|>"},
                                                   {128255, "<|reserved_special_token_247|>"}};
  for (const auto& [id, name] : names) EXPECT_EQ(tokenizer->Decode({id}), name);
}

TEST(Tokenizer, RefusesRankFilesOfUnknownNamesAndBadLines) {
  const Folder folder;
  folder.Write("mine.tiktoken", "IQ== 0\nIg== 1\n");
  EXPECT_THAT(std::string(Tokenizer::Open(folder.path() + "/mine.tiktoken").status().message()),
              HasSubstr("a file named mine, which says neither"));
  folder.Write("cl100k_base.tiktoken", "IQ== 0\nIg== x\n");
  EXPECT_THAT(
      std::string(Tokenizer::Open(folder.path() + "/cl100k_base.tiktoken").status().message()),
      HasSubstr("cl100k_base.tiktoken:2: found \"Ig== x\""));
  folder.Write("cl100k_base.tiktoken", "IQ== 0\nIg== 1\n");
  EXPECT_THAT(
      std::string(Tokenizer::Open(folder.path() + "/cl100k_base.tiktoken").status().message()),
      HasSubstr("found no token for byte 0"));
  folder.Write("r50k_base.tiktoken", absl::StrCat(RanksOfBytes(), "YWI= 50256\n"));
  EXPECT_THAT(
      std::string(Tokenizer::Open(folder.path() + "/r50k_base.tiktoken").status().message()),
      HasSubstr("a token of the rank 50256, which is that of <|endoftext|>"));
  folder.Write("tokenizer.model", std::string("\x0A\xFF\x01", 3));
  EXPECT_THAT(std::string(Tokenizer::Open(folder.path()).status().message()),
              HasSubstr("tokenizer.model: found no message of protobuf at byte 3"));
  const Folder named;  // of another name than the file's own
  std::filesystem::create_directory(named.path() + "/a.model");
  named.Write("a.model/vocabulary.txt", "");
  EXPECT_THAT(
      std::string(Tokenizer::Open(named.path() + "/a.model/vocabulary.txt").status().message()),
      HasSubstr("found a file named neither .json nor .tiktoken nor .model"));
  folder.Write("tokenizer.txt", "");
  EXPECT_THAT(std::string(Tokenizer::Open(folder.path() + "/tokenizer.txt").status().message()),
              HasSubstr("found a file named neither .json nor .tiktoken nor .model"));
}

}  // namespace
}  // namespace weft
