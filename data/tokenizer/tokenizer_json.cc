#include "data/tokenizer/tokenizer_json.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "data/tokenizer/byte_characters.h"
#include "data/tokenizer/tokenizer_files.h"
#include "data/whole_file.h"
#include "plan/errors.h"
#include "text/json.h"

namespace weft {
namespace {

using Value = nlohmann::json;

constexpr char kEndOfText[] = "<|endoftext|>";

absl::Status ReadAdded(const Value& list, const std::string& path, TokenizerParts* parts) {
  for (const Value& json : list) {
    const Value& content = ValueAt(json, "/content");
    const Value& id = ValueAt(json, "/id");
    if (!content.is_string() || id.is_null()) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": found an added token that is ", ShownValue(json), ", expected content and id"));
    }
    AddedToken token;
    token.content = content.get<std::string>();
    RETURN_IF_ERROR(CheckTokenBytes(token.content, kMostAddedBytes, path));
    ASSIGN_OR_RETURN(token.id, TokenIdOf(id, token.content, path));
    const int32_t known = parts->texts.Find(token.content);
    if (known != kNoToken && known != token.id) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": found the id ", token.id, " of the added token \"",
                       Shortened(token.content), "\", which the vocabulary says is ", known));
    }
    token.is_normalized = FlagAt(json, "normalized");
    token.takes_left_space = FlagAt(json, "lstrip");
    token.takes_right_space = FlagAt(json, "rstrip");
    token.is_single_word = FlagAt(json, "single_word");
    token.is_special = FlagAt(json, "special");
    if (known == kNoToken) parts->texts.Add(token.content, token.id);
    parts->added.push_back(std::move(token));
  }
  return absl::OkStatus();
}

absl::Status ReadTexts(const LargeJson& json, const std::string& path, TokenizerParts* parts) {
  parts->texts = Vocabulary(json.ids.size() + json.scores.size());
  for (const auto& [text, id] : json.ids) {
    ASSIGN_OR_RETURN(const int32_t of, TokenIdOf(id, text, path));
    parts->texts.Add(text, of);
  }
  for (size_t id = 0; id < json.scores.size(); ++id) {
    ASSIGN_OR_RETURN(const int32_t of,
                     TokenIdOf(static_cast<int64_t>(id), json.scores[id].first, path));
    parts->texts.Add(json.scores[id].first, of);
  }
  if (parts->texts.size() > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": found no vocabulary, expected one"));
}

// Bytes are symbols where the last thing before the model is to write them as characters, and the
// model looks at nothing but its vocabulary and merges.
bool TakesBytes(const TokenizerParts& parts, const BpeRules& rules) {
  if (parts.pre_tokenizer.empty() || rules.has_byte_fallback || rules.unknown != kNoToken ||
      !rules.prefix.empty() || !rules.suffix.empty()) {
    return false;
  }
  return std::holds_alternative<ByteLevelStep>(parts.pre_tokenizer.back());
}

// The vocabulary with texts as bytes: those that stand for none never come from a piece. Unless
// whole words are looked up, single bytes are enough: two characters of UTF-8 at most.
Vocabulary BytesOf(const Vocabulary& texts, bool takes_whole_words) {
  Vocabulary of_bytes(takes_whole_words ? static_cast<size_t>(texts.size()) : 256);
  std::string bytes;
  for (int32_t id = 0; id < texts.size(); ++id) {
    const absl::string_view text = texts.Text(id);
    if (!takes_whole_words && text.size() > 2) continue;
    if (texts.Find(text) == id && BytesOfCharacters(text, &bytes)) of_bytes.Add(bytes, id);
  }
  return of_bytes;
}

absl::Status BadMerge(const std::string& path, size_t rank, absl::string_view left,
                      absl::string_view right) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": found merge ", rank, " \"", Shortened(absl::StrCat(left, " ", right)),
                   "\", expected two tokens of the vocabulary that make a third"));
}

absl::StatusOr<PairTable> ReadMerges(const LargeJson& json, const std::string& path,
                                     const std::string& prefix, const Vocabulary& texts) {
  PairTable merges(json.merges.size());
  std::string both;
  for (size_t rank = 0; rank < json.merges.size(); ++rank) {
    const auto& [left_text, right_text] = json.merges[rank];
    const int32_t left = texts.Find(left_text), right = texts.Find(right_text);
    both.assign(left_text.data(), left_text.size());
    const absl::string_view added = absl::StripPrefix(right_text, prefix);
    both.append(added.data(), added.size());
    const int32_t merged = texts.Find(both);
    if (left == kNoToken || right == kNoToken || merged == kNoToken) {
      return BadMerge(path, rank, left_text, right_text);
    }
    merges.Put(left, right, static_cast<int32_t>(rank), merged);
  }
  return merges;
}

absl::StatusOr<int32_t> UnknownToken(const Value& model, const std::string& path,
                                     const Vocabulary& texts) {
  const std::string text = TextAt(model, "unk_token");
  if (text.empty()) return kNoToken;
  const int32_t id = texts.Find(text);
  if (id != kNoToken) return id;
  return UnknownPart(path, "/model/unk_token", Value(text), "a token of the vocabulary");
}

absl::Status ReadBpe(const LargeJson& json, const std::string& path, TokenizerParts* parts) {
  const Value& model = ValueAt(json.rest, "/model");
  const Value& dropout = ValueAt(model, "/dropout");
  if (!dropout.is_null() && dropout != 0.0) {
    return UnknownPart(path, "/model/dropout", dropout, "null: ids must not hang on chance");
  }
  BpeRules rules;
  rules.takes_whole_words = FlagAt(model, "ignore_merges");
  rules.has_byte_fallback = FlagAt(model, "byte_fallback");
  rules.fuses_unknown = FlagAt(model, "fuse_unk");
  rules.prefix = TextAt(model, "continuing_subword_prefix");
  rules.suffix = TextAt(model, "end_of_word_suffix");
  ASSIGN_OR_RETURN(rules.unknown, UnknownToken(model, path, parts->texts));
  ASSIGN_OR_RETURN(PairTable merges, ReadMerges(json, path, rules.prefix, parts->texts));
  rules.is_by_bytes = TakesBytes(*parts, rules);
  if (rules.is_by_bytes) {
    std::get<ByteLevelStep>(parts->pre_tokenizer.back()).writes_characters = false;
  }
  Vocabulary vocabulary =
      rules.is_by_bytes ? BytesOf(parts->texts, rules.takes_whole_words) : parts->texts;
  parts->model = std::make_shared<const Bpe>(std::move(vocabulary), std::move(merges), rules);
  return absl::OkStatus();
}

absl::Status ReadUnigram(const LargeJson& json, const std::string& path, TokenizerParts* parts) {
  const Value& model = ValueAt(json.rest, "/model");
  const Value& unknown = ValueAt(model, "/unk_id");
  UnigramRules rules;
  rules.has_byte_fallback = FlagAt(model, "byte_fallback");
  if (!unknown.is_null()) {
    ASSIGN_OR_RETURN(rules.unknown, TokenIdOf(unknown, "unk_id", path));
    if (static_cast<size_t>(rules.unknown) >= json.scores.size()) {
      return UnknownPart(path, "/model/unk_id", unknown, "the place of a token of the vocabulary");
    }
  }
  std::vector<double> scores;
  for (const auto& [text, score] : json.scores) {
    RETURN_IF_ERROR(CheckTokenBytes(text, kMostTokenBytes, path));
    scores.push_back(score);
  }
  if (scores.empty() || !json.ids.empty() || parts->texts.size() != std::ssize(scores)) {
    return UnknownPart(path, "/model/vocab", Value("a map"), "a list of tokens and scores");
  }
  parts->model = std::make_shared<const Unigram>(parts->texts, std::move(scores), rules);
  return absl::OkStatus();
}

absl::Status ReadWordPiece(const LargeJson& json, const std::string& path, TokenizerParts* parts) {
  const Value& model = ValueAt(json.rest, "/model");
  ASSIGN_OR_RETURN(const int32_t unknown, UnknownToken(model, path, parts->texts));
  if (unknown == kNoToken) {
    return UnknownPart(path, "/model/unk_token", ValueAt(model, "/unk_token"),
                       "a token of the vocabulary");
  }
  for (const auto& [text, id] : json.ids) {
    RETURN_IF_ERROR(CheckTokenBytes(text, kMostTokenBytes, path));
  }
  constexpr int64_t kMostCharacters = 1000;  // a word takes the square of them
  const Value& most = ValueAt(model, "/max_input_chars_per_word");
  const bool is_known = most.is_null() || (most.is_number_unsigned() && most <= kMostCharacters);
  if (!is_known) {
    return UnknownPart(path, "/model/max_input_chars_per_word", most,
                       absl::StrCat("0 to ", kMostCharacters));
  }
  const int64_t most_characters = most.is_null() ? 100 : most.get<int64_t>();
  parts->model = std::make_shared<const WordPiece>(
      parts->texts, TextAt(model, "continuing_subword_prefix", "##"), most_characters, unknown);
  return absl::OkStatus();
}

absl::Status ReadModel(const LargeJson& json, const std::string& path, TokenizerParts* parts) {
  const Value& model = ValueAt(json.rest, "/model");
  const std::string type = TextAt(model, "type", json.merges.empty() ? "" : "BPE");
  if (type == "BPE") return ReadBpe(json, path, parts);
  if (type == "Unigram") return ReadUnigram(json, path, parts);
  if (type == "WordPiece") return ReadWordPiece(json, path, parts);
  return UnknownPart(path, "/model/type", ValueAt(model, "/type"), "BPE, Unigram or WordPiece");
}

// CLIP and RoBERTa have the same two files, and cut words or put tokens around a text otherwise.
absl::Status CheckClass(const std::string& path) {
  ASSIGN_OR_RETURN(const std::optional<Value> config, ReadSmallJson(path));
  if (!config) return absl::OkStatus();
  const Value& name = ValueAt(*config, "/tokenizer_class");
  if (name.is_null() || name == "GPT2Tokenizer" || name == "GPT2TokenizerFast") {
    return absl::OkStatus();
  }
  return UnknownPart(
      path, "/tokenizer_class", name,
      "GPT2Tokenizer or GPT2TokenizerFast where there are vocab.json and merges.txt "
      "alone; save it with transformers' fast tokenizer, which makes tokenizer.json");
}

}  // namespace

absl::StatusOr<TokenizerParts> PartsOfTokenizerJson(const LargeJson& json,
                                                    const std::string& path) {
  TokenizerParts parts;
  const Value& rest = json.rest;
  for (const char* const key :
       {"normalizer", "pre_tokenizer", "decoder", "post_processor", "model", "added_tokens"}) {
    const Value& part = ValueAt(rest, absl::StrCat("/", key).c_str());
    RETURN_IF_ERROR(CheckKinds({{key, part}}, "", path));
  }
  RETURN_IF_ERROR(ReadTexts(json, path, &parts));
  RETURN_IF_ERROR(ReadNormalizer(ValueAt(rest, "/normalizer"), path, &parts.normalizer));
  RETURN_IF_ERROR(ReadPreTokenizer(ValueAt(rest, "/pre_tokenizer"), path, &parts.pre_tokenizer));
  RETURN_IF_ERROR(ReadDecoder(ValueAt(rest, "/decoder"), path, &parts.decoder));
  RETURN_IF_ERROR(
      ReadPostProcessor(ValueAt(rest, "/post_processor"), path, &parts.before, &parts.after));
  RETURN_IF_ERROR(ReadModel(json, path, &parts));
  // The model has its own copy of the vocabulary, without what is added here.
  RETURN_IF_ERROR(ReadAdded(ValueAt(rest, "/added_tokens"), path, &parts));
  return parts;
}

absl::StatusOr<TokenizerParts> PartsOfOlderFiles(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kVocabFile);
  absl::StatusOr<std::string> vocab = ReadWholeFile(path, kMostIndexBytes);
  if (!vocab.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(vocab.status().message(), "; expected a folder with ", TokenizerFileNames()));
  }
  RETURN_IF_ERROR(CheckClass(absl::StrCat(folder, "/", kConfigFile)));
  ASSIGN_OR_RETURN(const std::string merges,
                   ReadWholeFile(absl::StrCat(folder, "/", kMergesFile), kMostIndexBytes));
  ASSIGN_OR_RETURN(const std::optional<Value> map, ReadSmallJson(path));
  LargeJson json;
  json.rest = {{"model", {{"type", "BPE"}}},
               {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
               {"decoder", {{"type", "ByteLevel"}}}};
  for (auto token = map->begin(); token != map->end(); ++token) {
    ASSIGN_OR_RETURN(const int32_t id, TokenIdOf(*token, token.key(), path));
    json.ids.emplace_back(token.key(), id);
  }
  for (absl::string_view line : absl::StrSplit(merges, '\n', absl::SkipWhitespace())) {
    absl::ConsumeSuffix(&line, "\r");
    if (json.merges.empty() && absl::StartsWith(line, "#version")) continue;
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    json.merges.push_back(pair);
  }
  Value added = Value::array();
  const auto end = map->find(kEndOfText);
  if (end != map->end()) {
    added.push_back({{"content", kEndOfText}, {"id", *end}, {"special", true}});
  }
  const std::string beside = absl::StrCat(folder, "/", kMoreTokensFile);
  ASSIGN_OR_RETURN(const std::optional<Value> more, ReadSmallJson(beside));
  if (more) {
    for (const auto& [content, id] : more->items()) {
      RETURN_IF_ERROR(TokenIdOf(id, content, beside).status());
      added.push_back({{"content", content}, {"id", id}, {"special", true}});
    }
  }
  json.rest["added_tokens"] = std::move(added);
  return PartsOfTokenizerJson(json, folder);
}

}  // namespace weft
