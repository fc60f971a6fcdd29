#include "data/tokenizer/json_text.h"

#include <simdjson.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "data/tokenizer/vocabulary.h"
#include "data/whole_file.h"
#include "plan/errors.h"
#include "text/json.h"

namespace weft {
namespace {

namespace dom = simdjson::dom;

constexpr size_t kMostDepth = 64;

// Keys of tokenizer.json by their kinds.
constexpr absl::string_view kFlagKeys[] = {"add_prefix_space", "byte_fallback",
                                           "clean_text",       "cleanup",
                                           "fuse_unk",         "handle_chinese_chars",
                                           "ignore_merges",    "individual_digits",
                                           "invert",           "lowercase",
                                           "lstrip",           "normalized",
                                           "rstrip",           "single_word",
                                           "special",          "split",
                                           "strip_accents",    "strip_left",
                                           "strip_right",      "use_regex"};
constexpr absl::string_view kTextKeys[] = {"content",        "continuing_subword_prefix",
                                           "delimiter",      "end_of_word_suffix",
                                           "prefix",         "prepend",
                                           "prepend_scheme", "replacement",
                                           "suffix",         "type",
                                           "unk_token"};
constexpr absl::string_view kListKeys[] = {"added_tokens",  "decoders",   "normalizers",
                                           "pretokenizers", "processors", "single"};

bool IsOneOf(absl::Span<const absl::string_view> keys, const std::string& key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

absl::string_view ViewOf(std::string_view text) {
  return {text.data(), text.size()};
}

absl::Status NoObject(const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": found no JSON object, expected one",
                                                 why.empty() ? "" : absl::StrCat(" (", why, ")")));
}

// A copy of a part; recursion ends at kMostDepth, which the parser has held.
nlohmann::json CopyOf(const dom::element& element) {
  switch (element.type()) {
    case dom::element_type::OBJECT: {
      nlohmann::json object = nlohmann::json::object();
      for (const auto& [key, value] : dom::object(element))
        object[std::string(key)] = CopyOf(value);
      return object;
    }
    case dom::element_type::ARRAY: {
      nlohmann::json list = nlohmann::json::array();
      for (const dom::element& each : dom::array(element)) list.push_back(CopyOf(each));
      return list;
    }
    case dom::element_type::INT64:
      if (int64_t(element) >= 0) return uint64_t(element.get_int64());
      return int64_t(element);
    case dom::element_type::UINT64:
      return uint64_t(element);
    case dom::element_type::DOUBLE:
      return double(element);
    case dom::element_type::STRING:
      return std::string(std::string_view(element));
    case dom::element_type::BOOL:
      return bool(element);
    case dom::element_type::NULL_VALUE:
      break;
  }
  return nullptr;
}

absl::Status TakeVocabulary(const dom::element& vocab, const std::string& path, LargeJson* json) {
  if (vocab.is_object()) {
    for (const auto& [text, value] : dom::object(vocab)) {
      int64_t id = 0;
      if (value.get(id) != simdjson::SUCCESS)
        return TokenIdOf(CopyOf(value), ViewOf(text), path).status();
      json->ids.emplace_back(ViewOf(text), id);
    }
    return absl::OkStatus();
  }
  if (!vocab.is_array()) {
    return UnknownPart(path, "/model/vocab", CopyOf(vocab), "a map or a list of tokens");
  }
  for (const dom::element& pair : dom::array(vocab)) {
    std::string_view text;
    double score = 0;
    if (pair.at_pointer("/0").get(text) != simdjson::SUCCESS ||
        pair.at_pointer("/1").get(score) != simdjson::SUCCESS) {
      return UnknownPart(path, "/model/vocab", CopyOf(pair), "a token and its score");
    }
    json->scores.emplace_back(ViewOf(text), score);
  }
  return absl::OkStatus();
}

absl::Status TakeMerges(const dom::element& merges, const std::string& path, LargeJson* json) {
  dom::array list;
  if (merges.is_null()) return absl::OkStatus();
  if (merges.get(list) != simdjson::SUCCESS) {
    return UnknownPart(path, "/model/merges", CopyOf(merges), "a list");
  }
  for (const dom::element& merge : list) {
    std::string_view left, right;
    if (merge.get(left) == simdjson::SUCCESS) {
      const size_t space = left.find(' ');
      right = space == std::string_view::npos ? "" : left.substr(space + 1);
      left = left.substr(0, space);
      const bool is_pair = space != std::string_view::npos && right.find(' ') == right.npos;
      if (!is_pair) {
        return absl::InvalidArgumentError(absl::StrCat(
            path, ": found the merge ", Shortened(ViewOf(left)), ", expected two tokens"));
      }
    } else if (!merge.is_array() || dom::array(merge).size() != 2 ||
               merge.at_pointer("/0").get(left) != simdjson::SUCCESS ||
               merge.at_pointer("/1").get(right) != simdjson::SUCCESS) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": found the merge ", ShownValue(CopyOf(merge)), ", expected two tokens"));
    }
    json->merges.emplace_back(ViewOf(left), ViewOf(right));
  }
  return absl::OkStatus();
}

absl::Status TakeRanks(const dom::element& vocab, const std::string& path, LargeJson* json) {
  dom::array list;
  if (vocab.get(list) != simdjson::SUCCESS) {
    return UnknownPart(path, "/vocab", CopyOf(vocab), "a list of tokens");
  }
  for (const dom::element& token : list) {
    std::string_view bytes;
    int64_t rank = 0;
    if (token["token_bytes"].get(bytes) != simdjson::SUCCESS ||
        token["rank"].get(rank) != simdjson::SUCCESS) {
      return UnknownPart(path, "/vocab", CopyOf(token), "a rank and token_bytes");
    }
    json->ranks.emplace_back(rank, ViewOf(bytes));
  }
  return absl::OkStatus();
}

// A list that is there twice would become one list, and its ids places of neither.
absl::Status RefuseSecond(const std::string& path, const std::string& where,
                          std::set<std::string>* seen) {
  if (seen->insert(where).second) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": ", Shortened(where), ": found the key twice, expected it once; take one out"));
}

absl::Status TakeModel(const dom::object& model, const std::string& path, LargeJson* json) {
  nlohmann::json& rest = json->rest["model"] = nlohmann::json::object();
  std::set<std::string> seen;
  for (const auto& [key, value] : model) {
    RETURN_IF_ERROR(RefuseSecond(path, absl::StrCat("/model/", ViewOf(key)), &seen));
    if (key == "vocab") {
      RETURN_IF_ERROR(TakeVocabulary(value, path, json));
    } else if (key == "merges") {
      RETURN_IF_ERROR(TakeMerges(value, path, json));
    } else {
      rest[std::string(key)] = CopyOf(value);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LargeJson> ParseLargeJson(const std::string& text, const std::string& path) {
  LargeJson json;
  const auto parser = std::make_shared<dom::parser>(static_cast<size_t>(kMostIndexBytes) + 64);
  json.owner = parser;
  if (parser->allocate(text.size() + 64, kMostDepth) != simdjson::SUCCESS) {
    return absl::ResourceExhaustedError(absl::StrCat(path, ": no memory to read it"));
  }
  dom::element whole;
  const simdjson::error_code error = parser->parse(text).get(whole);
  if (error == simdjson::DEPTH_ERROR) {
    return NoObject(path, absl::StrCat("nested deeper than ", kMostDepth));
  }
  if (error != simdjson::SUCCESS) return NoObject(path, simdjson::error_message(error));
  dom::object object;
  if (whole.get(object) != simdjson::SUCCESS) return NoObject(path, "");
  json.rest = nlohmann::json::object();
  std::set<std::string> seen;
  for (const auto& [key, value] : object) {
    RETURN_IF_ERROR(RefuseSecond(path, absl::StrCat("/", ViewOf(key)), &seen));
    dom::object model;
    if (key == "model" && value.get(model) == simdjson::SUCCESS) {
      RETURN_IF_ERROR(TakeModel(model, path, &json));
    } else if (key == "vocab") {
      RETURN_IF_ERROR(TakeRanks(value, path, &json));
    } else {
      json.rest[std::string(key)] = CopyOf(value);
    }
  }
  return json;
}

absl::StatusOr<std::optional<nlohmann::json>> ReadSmallJson(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::optional<nlohmann::json>();
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMostIndexBytes));
  absl::StatusOr<nlohmann::json> json = ParseJson(text, {.most_bytes = kMostIndexBytes});
  if (json.ok() && json->is_object()) return std::optional(*std::move(json));
  return NoObject(path, json.ok() ? "" : json.status().message());
}

const nlohmann::json& ValueAt(const nlohmann::json& json, const char* pointer) {
  static const nlohmann::json& none = *new nlohmann::json();
  const auto where = nlohmann::json::json_pointer(pointer);
  return json.contains(where) ? json[where] : none;
}

std::string TextAt(const nlohmann::json& json, const char* key, const std::string& otherwise) {
  const nlohmann::json& value = ValueAt(json, absl::StrCat("/", key).c_str());
  return value.is_string() ? value.get<std::string>() : otherwise;
}

bool FlagAt(const nlohmann::json& json, const char* key, bool otherwise) {
  const nlohmann::json& value = ValueAt(json, absl::StrCat("/", key).c_str());
  return value.is_boolean() ? value.get<bool>() : otherwise;
}

std::string ShownValue(const nlohmann::json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  if (value.is_string()) return Shortened(value.get_ref<const std::string&>());
  return value.is_null() ? "nothing" : value.dump();
}

absl::Status UnknownPart(const std::string& path, absl::string_view where,
                         const nlohmann::json& found, absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", where, ": found ", ShownValue(found), ", expected ", expected));
}

absl::Status CheckKinds(const nlohmann::json& json, const std::string& where,
                        const std::string& path) {
  for (const auto& [key, value] : json.items()) {
    const std::string place = json.is_array() ? where : Shortened(absl::StrCat(where, "/", key));
    if (json.is_object() && key == "special_tokens") continue;  // its keys are tokens
    if (json.is_object() && !value.is_null()) {
      if (IsOneOf(kFlagKeys, key) && !value.is_boolean()) {
        return UnknownPart(path, place, value, "true or false");
      }
      if (IsOneOf(kTextKeys, key) && !value.is_string()) {
        return UnknownPart(path, place, value, "a text");
      }
      if (IsOneOf(kListKeys, key) && !value.is_array()) {
        return UnknownPart(path, place, value, "a list");
      }
    }
    if (value.is_structured()) RETURN_IF_ERROR(CheckKinds(value, place, path));
  }
  return absl::OkStatus();
}

absl::Status CheckSteps(size_t num_steps, absl::string_view where, const std::string& path) {
  if (num_steps <= kMostSteps) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", where, ": found more than ",
                                                 kMostSteps, " steps, expected at most ",
                                                 kMostSteps));
}

absl::Status CheckTokenBytes(absl::string_view text, size_t most, const std::string& path) {
  if (text.size() <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": found the token \"", Shortened(text),
                                                 "\" of ", text.size(), " bytes, expected at most ",
                                                 most));
}

absl::StatusOr<int32_t> TokenIdOf(int64_t id, absl::string_view of, const std::string& path) {
  if (id >= 0 && id < kMostTokens) return static_cast<int32_t>(id);
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": found the id ", id, " of \"", Shortened(of), "\", expected 0 to ", kMostTokens - 1));
}

absl::StatusOr<int32_t> TokenIdOf(const nlohmann::json& id, absl::string_view of,
                                  const std::string& path) {
  if (id.is_number_integer() && id < int64_t{kMostTokens}) {
    return TokenIdOf(id.get<int64_t>(), of, path);
  }
  return absl::InvalidArgumentError(absl::StrCat(path, ": found the id ", ShownValue(id), " of \"",
                                                 Shortened(of), "\", expected 0 to ",
                                                 kMostTokens - 1));
}

}  // namespace weft
