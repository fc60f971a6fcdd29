// Normalizers and pre-tokenizers of tokenizer.json.
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/tokenizer/published_words.h"
#include "data/tokenizer/tokenizer_json.h"
#include "plan/errors.h"

namespace weft {
namespace {

using Value = nlohmann::json;

constexpr char kNormalizers[] =
    "NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, Prepend, Sequence, "
    "Precompiled, "
    "BertNormalizer, Nmt or ByteLevel";
constexpr char kPreTokenizers[] =
    "ByteLevel, Split, Sequence, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit, "
    "BertPreTokenizer, CharDelimiterSplit or UnicodeScripts";

absl::StatusOr<std::shared_ptr<Regex>> CompileFor(const std::string& expression,
                                                  const std::string& path, const char* where) {
  absl::StatusOr<Regex> regex = Regex::Compile(expression, RegexDialect::kOniguruma);
  if (regex.ok()) return std::make_shared<Regex>(*std::move(regex));
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", where, ": ", regex.status().message()));
}

absl::StatusOr<SplitBehavior> ReadBehavior(const Value& json, const std::string& path,
                                           const char* where) {
  constexpr std::pair<const char*, SplitBehavior> kKnown[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  const Value& behavior = ValueAt(json, "/behavior");
  for (const auto& [name, known] : kKnown) {
    if (behavior == name) return known;
  }
  return UnknownPart(path, absl::StrCat(where, "/behavior"), behavior,
                     "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

absl::StatusOr<MetaspaceStep> ReadMetaspace(const Value& json, const std::string& path) {
  MetaspaceStep step;
  step.mark = TextAt(json, "replacement", step.mark);
  if (step.mark.empty()) {
    return UnknownPart(path, "/pre_tokenizer/replacement", Value(""), "a character");
  }
  const Value& scheme = ValueAt(json, "/prepend_scheme");
  if (scheme == "first") {
    step.prepend = MetaspaceStep::Prepend::kFirst;
  } else if (scheme == "never" || !FlagAt(json, "add_prefix_space", true)) {
    step.prepend = MetaspaceStep::Prepend::kNever;
  } else if (!scheme.is_null() && scheme != "always") {
    return UnknownPart(path, "/pre_tokenizer/prepend_scheme", scheme, "always, first or never");
  }
  step.is_split = FlagAt(json, "split", true);
  return step;
}

absl::Status ReadPrecompiled(const Value& json, const std::string& path,
                             std::vector<NormalizerStep>* steps) {
  const Value& map = ValueAt(json, "/precompiled_charsmap");
  if (!map.is_string()) {
    return UnknownPart(path, "/normalizer/precompiled_charsmap", map, "a text of base64");
  }
  if (map == "") return absl::OkStatus();
  absl::StatusOr<std::string> bytes = FromBase64(map.get<std::string>());
  absl::StatusOr<Charsmap> read = bytes.ok() ? Charsmap::Read(*bytes) : bytes.status();
  if (!read.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": /normalizer/precompiled_charsmap: ", read.status().message()));
  }
  steps->emplace_back(*std::move(read));
  return absl::OkStatus();
}

BertStep ReadBert(const Value& json) {
  BertStep step;
  step.cleans = FlagAt(json, "clean_text", true);
  step.spaces_chinese = FlagAt(json, "handle_chinese_chars", true);
  step.lowers = FlagAt(json, "lowercase", true);
  step.strips_accents = FlagAt(json, "strip_accents", step.lowers);
  return step;
}

absl::Status ReadReplace(const Value& json, const std::string& path,
                         std::vector<NormalizerStep>* steps) {
  constexpr size_t kMostContentBytes = 64;  // each match may become so long
  const std::string content = TextAt(json, "content");
  if (content.size() > kMostContentBytes) {
    return UnknownPart(path, "/normalizer/content", Value(content),
                       absl::StrCat("at most ", kMostContentBytes, " bytes"));
  }
  ASSIGN_OR_RETURN(const JsonPattern pattern, ReadPattern(json, path, "/normalizer"));
  steps->emplace_back(ReplaceStep{pattern.text, pattern.regex, content});
  return absl::OkStatus();
}

absl::Status ReadSplit(const Value& json, const std::string& path,
                       std::vector<PreTokenizerStep>* steps) {
  ASSIGN_OR_RETURN(const JsonPattern pattern, ReadPattern(json, path, "/pre_tokenizer"));
  ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(json, path, "/pre_tokenizer"));
  steps->emplace_back(SplitStep{pattern.regex, pattern.text, behavior, FlagAt(json, "invert")});
  return absl::OkStatus();
}

absl::Status ReadByteLevel(const Value& json, const std::string& path,
                           std::vector<PreTokenizerStep>* steps) {
  ByteLevelStep step;
  step.adds_prefix_space = FlagAt(json, "add_prefix_space", true);
  if (FlagAt(json, "use_regex", true)) {
    ASSIGN_OR_RETURN(step.regex, CompileFor(PublishedExpression("gpt2"), path, "/pre_tokenizer"));
  }
  steps->emplace_back(std::move(step));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<JsonPattern> ReadPattern(const Value& json, const std::string& path,
                                        const char* where) {
  const Value& text = ValueAt(json, "/pattern/String");
  const Value& expression = ValueAt(json, "/pattern/Regex");
  JsonPattern pattern;
  if (text.is_string()) {
    pattern.text = text.get<std::string>();
    return pattern;
  }
  if (!expression.is_string()) {
    return UnknownPart(path, absl::StrCat(where, "/pattern"), ValueAt(json, "/pattern"),
                       "a String or a Regex");
  }
  ASSIGN_OR_RETURN(pattern.regex, CompileFor(expression.get<std::string>(), path, where));
  return pattern;
}

absl::Status ReadNormalizer(const Value& json, const std::string& path,
                            std::vector<NormalizerStep>* steps) {
  if (json.is_null()) return absl::OkStatus();
  const std::string type = TextAt(json, "type");
  if (type == "Sequence") {
    for (const Value& each : ValueAt(json, "/normalizers")) {
      RETURN_IF_ERROR(ReadNormalizer(each, path, steps));
      RETURN_IF_ERROR(CheckSteps(steps->size(), "/normalizer", path));
    }
    return absl::OkStatus();
  }
  if (type == "Replace") return ReadReplace(json, path, steps);
  if (type == "Precompiled") return ReadPrecompiled(json, path, steps);
  if (type == "NFC") {
    steps->emplace_back(UnicodeForm::kNfc);
  } else if (type == "NFD") {
    steps->emplace_back(UnicodeForm::kNfd);
  } else if (type == "NFKC") {
    steps->emplace_back(UnicodeForm::kNfkc);
  } else if (type == "NFKD") {
    steps->emplace_back(UnicodeForm::kNfkd);
  } else if (type == "Lowercase") {
    steps->emplace_back(LowercaseStep{});
  } else if (type == "Strip") {
    steps->emplace_back(
        StripStep{FlagAt(json, "strip_left", true), FlagAt(json, "strip_right", true)});
  } else if (type == "StripAccents") {
    steps->emplace_back(StripAccentsStep{});
  } else if (type == "Prepend") {
    steps->emplace_back(PrependStep{TextAt(json, "prepend")});
  } else if (type == "BertNormalizer") {
    steps->emplace_back(ReadBert(json));
  } else if (type == "Nmt") {
    steps->emplace_back(NmtStep{});
  } else if (type == "ByteLevel") {
    steps->emplace_back(ByteCharactersStep{});
  } else {
    return UnknownPart(path, "/normalizer/type", ValueAt(json, "/type"), kNormalizers);
  }
  return absl::OkStatus();
}

absl::Status ReadPreTokenizer(const Value& json, const std::string& path,
                              std::vector<PreTokenizerStep>* steps) {
  if (json.is_null()) return absl::OkStatus();
  const std::string type = TextAt(json, "type");
  if (type == "Sequence") {
    for (const Value& each : ValueAt(json, "/pretokenizers")) {
      RETURN_IF_ERROR(ReadPreTokenizer(each, path, steps));
      RETURN_IF_ERROR(CheckSteps(steps->size(), "/pre_tokenizer", path));
    }
    return absl::OkStatus();
  }
  if (type == "Split") return ReadSplit(json, path, steps);
  if (type == "ByteLevel") return ReadByteLevel(json, path, steps);
  const ClassSplitStep spaces = {CharacterClass::kSpace, SplitBehavior::kRemoved};
  if (type == "Metaspace") {
    ASSIGN_OR_RETURN(MetaspaceStep step, ReadMetaspace(json, path));
    steps->emplace_back(std::move(step));
  } else if (type == "Digits") {
    const bool is_each = FlagAt(json, "individual_digits");
    steps->emplace_back(ClassSplitStep{
        CharacterClass::kNumber, is_each ? SplitBehavior::kIsolated : SplitBehavior::kContiguous});
  } else if (type == "Punctuation") {
    SplitBehavior behavior = SplitBehavior::kIsolated;
    if (!ValueAt(json, "/behavior").is_null()) {
      ASSIGN_OR_RETURN(behavior, ReadBehavior(json, path, "/pre_tokenizer"));
    }
    steps->emplace_back(ClassSplitStep{CharacterClass::kPunctuation, behavior});
  } else if (type == "Whitespace") {
    steps->emplace_back(WordsStep{});
  } else if (type == "WhitespaceSplit") {
    steps->emplace_back(spaces);
  } else if (type == "BertPreTokenizer") {
    steps->emplace_back(spaces);
    steps->emplace_back(ClassSplitStep{CharacterClass::kPunctuation, SplitBehavior::kIsolated});
  } else if (type == "UnicodeScripts") {
    steps->emplace_back(ScriptsStep{});
  } else if (type == "CharDelimiterSplit") {
    steps->emplace_back(SplitStep{nullptr, TextAt(json, "delimiter"), SplitBehavior::kRemoved});
  } else {
    return UnknownPart(path, "/pre_tokenizer/type", ValueAt(json, "/type"), kPreTokenizers);
  }
  return absl::OkStatus();
}

}  // namespace weft
