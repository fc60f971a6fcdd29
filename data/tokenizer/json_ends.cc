// Post-processors and decoders of tokenizer.json.
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/tokenizer/tokenizer_json.h"
#include "plan/errors.h"

namespace weft {
namespace {

using Value = nlohmann::json;

constexpr char kPostProcessors[] =
    "TemplateProcessing, RobertaProcessing, BertProcessing, ByteLevel or Sequence";
constexpr char kDecoders[] =
    "ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, WordPiece, BPEDecoder or Sequence";

// [name, id], as BertProcessing and RobertaProcessing name their two tokens.
absl::StatusOr<int32_t> NamedToken(const Value& pair, const std::string& path) {
  if (pair.is_array() && pair.size() == 2 && pair[0].is_string()) {
    return TokenIdOf(pair[1], pair[0].get_ref<const std::string&>(), path);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": /post_processor: found ", ShownValue(pair), ", expected a token and its id"));
}

// TemplateProcessing's pieces for one text: special tokens before and behind the sequence.
absl::Status ReadTemplate(const Value& processor, const std::string& path,
                          std::vector<int32_t>* before, std::vector<int32_t>* after) {
  std::vector<int32_t> first, last;
  bool has_text = false;
  for (const Value& piece : ValueAt(processor, "/single")) {
    if (ValueAt(piece, "/Sequence/id") == "A" && !has_text) {
      has_text = true;
      continue;
    }
    const Value& name = ValueAt(piece, "/SpecialToken/id");
    const Value& tokens = ValueAt(processor, "/special_tokens");
    if (!name.is_string() || !tokens.is_object() || !tokens.contains(name.get<std::string>())) {
      return UnknownPart(path, "/post_processor/single", name, "special tokens around one text");
    }
    for (const Value& id : ValueAt(tokens[name.get<std::string>()], "/ids")) {
      ASSIGN_OR_RETURN(const int32_t of, TokenIdOf(id, name.get<std::string>(), path));
      (has_text ? last : first).push_back(of);
    }
  }
  if (!has_text) {
    return UnknownPart(path, "/post_processor/single", Value("no text"), "the text A");
  }
  before->insert(before->begin(), first.begin(), first.end());
  after->insert(after->end(), last.begin(), last.end());
  return absl::OkStatus();
}

absl::StatusOr<StripDecoding> ReadStrip(const Value& json, const std::string& path) {
  const Value& start = ValueAt(json, "/start");
  const Value& stop = ValueAt(json, "/stop");
  const bool is_known = start.is_number_unsigned() && stop.is_number_unsigned() &&
                        start <= uint64_t{1} << 20 && stop <= uint64_t{1} << 20;
  if (!is_known || TextAt(json, "content").empty()) {
    return UnknownPart(path, "/decoder: Strip", json, "content, start and stop");
  }
  return StripDecoding{TextAt(json, "content"), start.get<int64_t>(), stop.get<int64_t>()};
}

}  // namespace

absl::Status ReadPostProcessor(const Value& json, const std::string& path,
                               std::vector<int32_t>* before, std::vector<int32_t>* after) {
  if (json.is_null()) return absl::OkStatus();
  const std::string type = TextAt(json, "type");
  if (type == "Sequence") {
    for (const Value& each : ValueAt(json, "/processors")) {
      RETURN_IF_ERROR(ReadPostProcessor(each, path, before, after));
    }
    return absl::OkStatus();
  }
  if (type == "ByteLevel") return absl::OkStatus();  // it moves offsets, not tokens
  if (type == "TemplateProcessing") return ReadTemplate(json, path, before, after);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    ASSIGN_OR_RETURN(const int32_t first, NamedToken(ValueAt(json, "/cls"), path));
    ASSIGN_OR_RETURN(const int32_t last, NamedToken(ValueAt(json, "/sep"), path));
    before->insert(before->begin(), first);
    after->push_back(last);
    return absl::OkStatus();
  }
  return UnknownPart(path, "/post_processor/type", ValueAt(json, "/type"), kPostProcessors);
}

absl::Status ReadDecoder(const Value& json, const std::string& path,
                         std::vector<DecoderStep>* steps) {
  if (json.is_null()) return absl::OkStatus();
  const std::string type = TextAt(json, "type");
  if (type == "Sequence") {
    for (const Value& each : ValueAt(json, "/decoders")) {
      RETURN_IF_ERROR(ReadDecoder(each, path, steps));
      RETURN_IF_ERROR(CheckSteps(steps->size(), "/decoder", path));
    }
    return absl::OkStatus();
  }
  if (type == "ByteLevel") {
    steps->emplace_back(ByteLevelDecoding{});
  } else if (type == "Replace") {
    const Value& what = ValueAt(json, "/pattern/String");
    if (!what.is_string()) {
      return UnknownPart(path, "/decoder/pattern", ValueAt(json, "/pattern"), "a String");
    }
    steps->emplace_back(ReplaceDecoding{what.get<std::string>(), TextAt(json, "content")});
  } else if (type == "ByteFallback") {
    steps->emplace_back(ByteFallbackDecoding{});
  } else if (type == "Fuse") {
    steps->emplace_back(FuseDecoding{});
  } else if (type == "Strip") {
    ASSIGN_OR_RETURN(StripDecoding step, ReadStrip(json, path));
    steps->emplace_back(std::move(step));
  } else if (type == "Metaspace") {
    const bool drops = ValueAt(json, "/prepend_scheme").is_null()
                           ? FlagAt(json, "add_prefix_space", true)
                           : TextAt(json, "prepend_scheme") != "never";
    steps->emplace_back(MetaspaceDecoding{TextAt(json, "replacement", kSpaceMark), drops});
  } else if (type == "WordPiece") {
    steps->emplace_back(
        WordPieceDecoding{TextAt(json, "prefix", "##"), FlagAt(json, "cleanup", true)});
  } else if (type == "BPEDecoder") {
    steps->emplace_back(SuffixDecoding{TextAt(json, "suffix", "</w>")});
  } else {
    return UnknownPart(path, "/decoder/type", ValueAt(json, "/type"), kDecoders);
  }
  return absl::OkStatus();
}

}  // namespace weft
