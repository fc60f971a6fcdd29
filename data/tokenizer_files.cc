#include "data/tokenizer_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "data/whole_file.h"
#include "plan/errors.h"
#include "text/json.h"

namespace weft {
namespace {

using Json = nlohmann::json;

constexpr char kEndOfText[] = "<|endoftext|>";
constexpr int64_t kMostIds = int64_t{1} << 24;
constexpr char kKinds[] = "; GPT-2's and Llama 3's byte-level tokenizers are built in";

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  absl::StatusOr<std::string> text = ReadWholeFile(path, kMostIndexBytes);
  if (text.ok()) return text;
  return absl::InvalidArgumentError(
      absl::StrCat(text.status().message(),
                   "; expected a folder with tokenizer.json, or with vocab.json and merges.txt"));
}

// A value for a message, which an object or a list would be too long for.
std::string Shown(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  if (value.is_string()) return Shortened(value.get_ref<const std::string&>());
  return value.is_null() ? "nothing" : value.dump();
}

absl::StatusOr<Json> ReadJson(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  absl::StatusOr<Json> json = ParseJson(text, {.most_bytes = kMostIndexBytes});
  if (json.ok() && json->is_object()) return json;
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": found no JSON object, expected one",
                   json.ok() ? "" : absl::StrCat(" (", json.status().message(), ")")));
}

// The value at `pointer`; null if there is none.
const Json& At(const Json& json, const char* pointer) {
  static const Json& none = *new Json();
  const auto where = Json::json_pointer(pointer);
  return json.contains(where) ? json[where] : none;
}

bool IsTrue(const Json& json, const char* key) {
  return json.is_object() && json.contains(key) && json[key] == true;
}

absl::StatusOr<int32_t> IdOf(const Json& id, const std::string& of, const std::string& path) {
  if (id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(kMostIds)) {
    return id.get<int32_t>();
  }
  return absl::InvalidArgumentError(absl::StrCat(path, ": found the id ", Shown(id), " of \"",
                                                 Shortened(of), "\", expected 0 to ",
                                                 kMostIds - 1));
}

absl::Status ReadVocabulary(const Json& json, const std::string& path, TokenizerFiles* files) {
  if (!json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": found no vocabulary, expected one"));
  }
  for (const auto& [written, id] : json.items()) {
    ASSIGN_OR_RETURN(files->vocabulary[written], IdOf(id, written, path));
  }
  return absl::OkStatus();
}

absl::Status ReadMerges(const Json& list, const std::string& path, TokenizerFiles* files) {
  for (const Json& merge : list) {
    const bool is_pair =
        merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
    if (!is_pair && !merge.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": found the merge ", Shown(merge), ", expected two tokens"));
    }
    files->merges.push_back(
        is_pair ? absl::StrCat(merge[0].get<std::string>(), " ", merge[1].get<std::string>())
                : merge.get<std::string>());
  }
  return absl::OkStatus();
}

absl::Status ReadAddedTokens(const Json& list, const std::string& path, TokenizerFiles* files) {
  for (const Json& added : list) {
    if (!added.is_object() || !added.contains("id") ||
        !added.value("content", Json()).is_string()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": found an added token that is ",
                                                     Shown(added), ", expected content and id"));
    }
    AddedToken token;
    token.content = added["content"].get<std::string>();
    if (IsTrue(added, "single_word")) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": found single_word of the added token \"", Shortened(token.content),
                       "\", which is not built in; expected false"));
    }
    ASSIGN_OR_RETURN(token.id, IdOf(added["id"], token.content, path));
    const auto known = files->vocabulary.find(token.content);
    if (known != files->vocabulary.end() && known->second != token.id) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": found the id ", token.id, " of the added token \"", Shortened(token.content),
          "\", which the vocabulary says is ", known->second));
    }
    token.normalized = IsTrue(added, "normalized");
    token.lstrip = IsTrue(added, "lstrip");
    token.rstrip = IsTrue(added, "rstrip");
    files->added.push_back(std::move(token));
  }
  return absl::OkStatus();
}

// The id of a token by the text that files name it with; nullopt: there is none.
std::optional<int32_t> IdOfText(const TokenizerFiles& files, const std::string& text) {
  for (const AddedToken& token : files.added) {
    if (token.content == text) return token.id;
  }
  const auto known = files.vocabulary.find(text);
  return known == files.vocabulary.end() ? std::nullopt : std::optional(known->second);
}

absl::Status Unknown(const std::string& path, absl::string_view where, const Json& found,
                     absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", where, ": found ", Shown(found), ", expected ", expected, kKinds));
}

// Refuses what would make other bytes or other merges than a byte-level BPE.
absl::Status CheckModel(const Json& json, const std::string& path) {
  const std::pair<const char*, const char*> expected[] = {{"/model/type", "BPE"},
                                                          {"/decoder/type", "ByteLevel"}};
  for (const auto& [pointer, value] : expected) {
    const Json& found = At(json, pointer);
    if (found != value) return Unknown(path, pointer, found, value);
  }
  for (const char* const pointer : {"/normalizer", "/model/dropout", "/model/end_of_word_suffix",
                                    "/model/continuing_subword_prefix"}) {
    const Json& found = At(json, pointer);
    const bool nothing = found.is_null() || found == "" || found == 0.0;
    if (!nothing) return Unknown(path, pointer, found, "null");
  }
  return absl::OkStatus();
}

// Cutting says how pre-tokenizers cut a text, one after the other.
struct Cutting {
  WordRule rule = WordRule::kGpt2;
  bool by_expression = false;
  bool to_bytes = false;
};

absl::Status ReadPreTokenizer(const Json& step, const std::string& path, Cutting* cutting) {
  const Json& type = At(step, "/type");
  if (type == "Split" && !cutting->by_expression && !cutting->to_bytes) {
    const Json& expression = At(step, "/pattern/Regex");
    const std::optional<WordRule> known =
        WordRuleOf(expression.is_string() ? expression.get<std::string>() : "");
    if (!known || At(step, "/behavior") != "Isolated" || IsTrue(step, "invert")) {
      return Unknown(path, "/pre_tokenizer: Split", expression, "a known expression, Isolated");
    }
    cutting->rule = *known;
    cutting->by_expression = true;
    return absl::OkStatus();
  }
  if (type != "ByteLevel" || cutting->to_bytes) {
    return Unknown(path, "/pre_tokenizer/type", type, "ByteLevel");
  }
  const bool own_expression = At(step, "/use_regex") != false;
  if (IsTrue(step, "add_prefix_space") || own_expression == cutting->by_expression) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": /pre_tokenizer: it cuts or changes the text in its own way (add_prefix_space, ",
        "use_regex)", kKinds));
  }
  cutting->to_bytes = true;
  return absl::OkStatus();
}

// ByteLevel alone, or, as Llama 3 has it, [Split by an expression, ByteLevel without its own].
absl::StatusOr<WordRule> ReadWordRule(const Json& json, const std::string& path) {
  Cutting cutting;
  const Json& whole = At(json, "/pre_tokenizer");
  if (At(whole, "/type") != "Sequence") {
    RETURN_IF_ERROR(ReadPreTokenizer(whole, path, &cutting));
    return cutting.rule;
  }
  for (const Json& step : At(whole, "/pretokenizers")) {
    RETURN_IF_ERROR(ReadPreTokenizer(step, path, &cutting));
  }
  if (cutting.to_bytes) return cutting.rule;
  return Unknown(path, "/pre_tokenizer/pretokenizers", Json("none"), "ByteLevel as the last");
}

// [name, id], as BertProcessing and RobertaProcessing name their two tokens.
absl::StatusOr<int32_t> NamedId(const Json& pair, const std::string& path) {
  if (pair.is_array() && pair.size() == 2 && pair[0].is_string()) {
    return IdOf(pair[1], pair[0].get<std::string>(), path);
  }
  return absl::InvalidArgumentError(absl::StrCat(path, ": /post_processor: found ", Shown(pair),
                                                 ", expected a token and its id"));
}

// TemplateProcessing's pieces for one text: special tokens before and behind the sequence.
absl::Status ReadTemplate(const Json& processor, const std::string& path, TokenizerFiles* files) {
  std::vector<int32_t> before, after;
  bool text = false;
  for (const Json& piece : At(processor, "/single")) {
    if (At(piece, "/Sequence/id") == "A" && !text) {
      text = true;
      continue;
    }
    const Json& name = At(piece, "/SpecialToken/id");
    const Json& tokens = At(processor, "/special_tokens");
    if (!name.is_string() || !tokens.is_object() || !tokens.contains(name.get<std::string>())) {
      return Unknown(path, "/post_processor/single", name, "special tokens around one text");
    }
    for (const Json& id : At(tokens[name.get<std::string>()], "/ids")) {
      ASSIGN_OR_RETURN(const int32_t of, IdOf(id, name.get<std::string>(), path));
      (text ? after : before).push_back(of);
    }
  }
  if (!text) return Unknown(path, "/post_processor/single", Json("no text"), "the text A");
  files->before.insert(files->before.begin(), before.begin(), before.end());
  files->after.insert(files->after.end(), after.begin(), after.end());
  return absl::OkStatus();
}

absl::Status ReadPostProcessor(const Json& processor, const std::string& path,
                               TokenizerFiles* files) {
  if (processor.is_null()) return absl::OkStatus();
  const Json& type = At(processor, "/type");
  if (type == "ByteLevel") return absl::OkStatus();  // it moves offsets, not tokens
  if (type == "TemplateProcessing") return ReadTemplate(processor, path, files);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    ASSIGN_OR_RETURN(const int32_t first, NamedId(At(processor, "/cls"), path));
    ASSIGN_OR_RETURN(const int32_t last, NamedId(At(processor, "/sep"), path));
    files->before.insert(files->before.begin(), first);
    files->after.push_back(last);
    return absl::OkStatus();
  }
  return Unknown(path, "/post_processor/type", type,
                 "TemplateProcessing, RobertaProcessing, BertProcessing or ByteLevel");
}

absl::Status ReadPostProcessors(const Json& json, const std::string& path, TokenizerFiles* files) {
  const Json& whole = At(json, "/post_processor");
  if (At(whole, "/type") != "Sequence") return ReadPostProcessor(whole, path, files);
  for (const Json& each : At(whole, "/processors")) {
    RETURN_IF_ERROR(ReadPostProcessor(each, path, files));
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenizerFiles> ReadTokenizerJson(const std::string& path) {
  TokenizerFiles files;
  ASSIGN_OR_RETURN(const Json json, ReadJson(path));
  RETURN_IF_ERROR(CheckModel(json, path));
  ASSIGN_OR_RETURN(files.words, ReadWordRule(json, path));
  files.whole_words_first = IsTrue(json["model"], "ignore_merges");
  RETURN_IF_ERROR(ReadVocabulary(At(json, "/model/vocab"), path, &files));
  RETURN_IF_ERROR(ReadMerges(At(json, "/model/merges"), path, &files));
  RETURN_IF_ERROR(ReadAddedTokens(At(json, "/added_tokens"), path, &files));
  RETURN_IF_ERROR(ReadPostProcessors(json, path, &files));
  return files;
}

// The pair of files that GPT-2 came with. Its <|endoftext|> is a token of the vocabulary; what was
// added later stands in added_tokens.json.
absl::StatusOr<TokenizerFiles> ReadOlderFiles(const std::string& folder) {
  TokenizerFiles files;
  const std::string vocab = folder + "/vocab.json", added = folder + "/added_tokens.json";
  ASSIGN_OR_RETURN(const Json json, ReadJson(vocab));
  RETURN_IF_ERROR(ReadVocabulary(json, vocab, &files));
  ASSIGN_OR_RETURN(const std::string merges, ReadFile(folder + "/merges.txt"));
  for (absl::string_view line : absl::StrSplit(merges, '\n', absl::SkipWhitespace())) {
    absl::ConsumeSuffix(&line, "\r");
    const bool is_title = files.merges.empty() && absl::StartsWith(line, "#version");
    if (!is_title) files.merges.emplace_back(line);
  }
  const auto end = files.vocabulary.find(kEndOfText);
  if (end != files.vocabulary.end()) files.added.push_back({kEndOfText, end->second});
  std::error_code error;
  if (!std::filesystem::exists(added, error)) return files;
  ASSIGN_OR_RETURN(const Json more, ReadJson(added));
  for (const auto& [content, id] : more.items()) {
    ASSIGN_OR_RETURN(const int32_t of, IdOf(id, content, added));
    files.added.push_back({content, of});
  }
  return files;
}

// The text of eos_token in a file, written as itself or as an added token; "": none is stated.
absl::StatusOr<std::string> StatedEnd(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return "";
  ASSIGN_OR_RETURN(const Json json, ReadJson(path));
  const Json& plain = At(json, "/eos_token");
  const Json& inside = At(json, "/eos_token/content");
  if (plain.is_string()) return plain.get<std::string>();
  return inside.is_string() ? inside.get<std::string>() : "";
}

}  // namespace

absl::StatusOr<TokenizerFiles> ReadTokenizerFiles(const std::string& path) {
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(path, error);
  const std::string whole = is_folder ? path + "/tokenizer.json" : path;
  const bool is_older = is_folder && !std::filesystem::exists(whole, error);
  ASSIGN_OR_RETURN(TokenizerFiles files,
                   is_older ? ReadOlderFiles(path) : ReadTokenizerJson(whole));
  std::set<std::string> ends;
  for (const char* const file : {"/tokenizer_config.json", "/special_tokens_map.json"}) {
    if (!is_folder) break;
    ASSIGN_OR_RETURN(const std::string end, StatedEnd(path + file));
    if (!end.empty()) ends.insert(end);
  }
  if (ends.empty()) ends.insert(kEndOfText);
  for (const std::string& end : ends) {
    if (const auto id = IdOfText(files, end)) files.ends_of_text.insert(*id);
  }
  return files;
}

}  // namespace weft
