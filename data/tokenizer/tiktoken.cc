#include "data/tokenizer/tiktoken.h"

#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "data/tokenizer/charsmap.h"
#include "data/tokenizer/json_text.h"
#include "data/tokenizer/published_words.h"
#include "plan/errors.h"
#include "text/json.h"

namespace weft {
namespace {

using NamedId = std::pair<const char*, int32_t>;

constexpr char kEnd[] = "<|endoftext|>";

struct Encoding {
  const char* name;
  const char* words;  // of AllPublishedWords
  std::vector<NamedId> specials;
  // Ids between these that are not among them: <|reserved_id|> (o200k_harmony), or, numbered from
  // 0, <|reserved_special_token_n|> (llama3).
  int64_t reserved_begin, reserved_end;
};

// openai_public.py of tiktoken 0.14; tokenizer_config.json of Llama 3.1.
const std::vector<Encoding>& Encodings() {
  static const auto* const encodings = new std::vector<Encoding>{
      {"r50k_base", "r50k", {{kEnd, 50256}}, 0, 0},
      {"p50k_base", "r50k", {{kEnd, 50256}}, 0, 0},
      {"cl100k_base",
       "cl100k",
       {{kEnd, 100257},
        {"<|fim_prefix|>", 100258},
        {"<|fim_middle|>", 100259},
        {"<|fim_suffix|>", 100260},
        {"<|endofprompt|>", 100276}},
       0,
       0},
      {"o200k_base", "o200k", {{kEnd, 199999}, {"<|endofprompt|>", 200018}}, 0, 0},
      {"o200k_harmony",
       "o200k",
       {{"<|startoftext|>", 199998},
        {kEnd, 199999},
        {"<|reserved_200000|>", 200000},
        {"<|reserved_200001|>", 200001},
        {"<|return|>", 200002},
        {"<|constrain|>", 200003},
        {"<|reserved_200004|>", 200004},
        {"<|channel|>", 200005},
        {"<|start|>", 200006},
        {"<|end|>", 200007},
        {"<|message|>", 200008},
        {"<|reserved_200009|>", 200009},
        {"<|reserved_200010|>", 200010},
        {"<|reserved_200011|>", 200011},
        {"<|call|>", 200012},
        {"<|endofprompt|>", 200018}},
       200013,
       201088},
      {"llama3",
       "llama3",
       {{"<|begin_of_text|>", 128000},
        {"<|end_of_text|>", 128001},
        {"<|finetune_right_pad_id|>", 128004},
        {"<|start_header_id|>", 128006},
        {"<|end_header_id|>", 128007},
        {"<|eom_id|>", 128008},
        {"<|eot_id|>", 128009},
        {"<|python_tag|>", 128010}},
       128002,
       128256}};
  return *encodings;
}

constexpr char kNames[] =
    "r50k_base, p50k_base, cl100k_base, o200k_base, o200k_harmony or llama3, as in "
    "cl100k_base.tiktoken";

// Mistral's models call their first ids so, where the file does not list them.
constexpr const char* kTekkenSpecials[] = {"<unk>",
                                           "<s>",
                                           "</s>",
                                           "[INST]",
                                           "[/INST]",
                                           "[AVAILABLE_TOOLS]",
                                           "[/AVAILABLE_TOOLS]",
                                           "[TOOL_RESULTS]",
                                           "[/TOOL_RESULTS]",
                                           "[TOOL_CALLS]",
                                           "[IMG]",
                                           "<pad>",
                                           "[IMG_BREAK]",
                                           "[IMG_END]",
                                           "[PREFIX]",
                                           "[MIDDLE]",
                                           "[SUFFIX]",
                                           "[SYSTEM_PROMPT]",
                                           "[/SYSTEM_PROMPT]",
                                           "[TOOL_CONTENT]"};

// Every two tokens that make a third merge at the rank of that one. REQUIRES: ids rise with ranks.
PairTable MergesByRank(const Vocabulary& tokens) {
  int64_t num_tokens = 0;  // ids have gaps
  for (int32_t id = 0; id < tokens.size(); ++id) num_tokens += tokens.Has(id) ? 1 : 0;
  PairTable merges(static_cast<size_t>(num_tokens) * 4);
  for (int32_t id = 0; id < tokens.size(); ++id) {
    const absl::string_view text = tokens.Text(id);
    if (tokens.Find(text) != id) continue;
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const int32_t left = tokens.Find(text.substr(0, cut));
      if (left == kNoToken) continue;
      const int32_t right = tokens.Find(text.substr(cut));
      if (right != kNoToken) merges.Put(left, right, id, id);
    }
  }
  return merges;
}

absl::Status AddSpecial(std::string content, int32_t id, const std::string& path,
                        TokenizerParts* parts) {
  if (parts->texts.Has(id)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": found a token of the rank ", id, ", which is that of ",
                     Shortened(content), "; expected fewer tokens, or another name of the file"));
  }
  RETURN_IF_ERROR(CheckTokenBytes(content, kMostAddedBytes, path));
  AddedToken token;
  token.content = std::move(content);
  token.id = id;
  token.is_special = true;
  parts->texts.Add(token.content, id, false);
  parts->added.push_back(std::move(token));
  return absl::OkStatus();
}

absl::Status FinishByRank(Vocabulary tokens, const std::string& expression, const std::string& path,
                          TokenizerParts* parts) {
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    if (tokens.Find(absl::string_view(&text, 1)) == kNoToken) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": found no token for byte ", byte, ", expected one for each byte"));
    }
  }
  absl::StatusOr<Regex> regex = Regex::Compile(expression, RegexDialect::kFancy);
  if (!regex.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", regex.status().message()));
  }
  SplitStep split;
  split.regex = std::make_shared<const Regex>(*std::move(regex));
  split.behavior = SplitBehavior::kIsolated;
  parts->pre_tokenizer.emplace_back(std::move(split));
  parts->decoder.emplace_back(FuseDecoding{});
  BpeRules rules;
  rules.is_by_bytes = true;
  rules.takes_whole_words = true;
  PairTable merges = MergesByRank(tokens);
  parts->texts = tokens;
  parts->model = std::make_shared<const Bpe>(std::move(tokens), std::move(merges), rules);
  return absl::OkStatus();
}

absl::StatusOr<Vocabulary> ReadRanks(absl::string_view text, const std::string& path) {
  Vocabulary tokens(text.size() / 12);
  int64_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    ++number;
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    int64_t rank = 0;
    const absl::StatusOr<std::string> bytes = FromBase64(parts.first);
    const bool is_rank = absl::SimpleAtoi(parts.second, &rank) && rank >= 0 && rank < kMostTokens;
    if (!bytes.ok() || bytes->empty() || bytes->size() > kMostTokenBytes || !is_rank ||
        tokens.Has(static_cast<int32_t>(rank))) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": found \"", Shortened(line),
                       "\", expected base64 of a token, a space and its rank, each rank once"));
    }
    tokens.Add(*bytes, static_cast<int32_t>(rank));
  }
  return tokens;
}

std::string EncodingName(absl::string_view text, const std::string& path) {
  const std::string stem = std::filesystem::path(path).stem().string();
  const auto lines = std::count(text.begin(), text.end(), '\n');
  return stem == "tokenizer" && lines >= 127999 && lines <= 128001 ? "llama3" : stem;
}

}  // namespace

bool IsTiktoken(absl::string_view text) {
  const absl::string_view line = text.substr(0, text.find('\n'));
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(line, absl::MaxSplits(' ', 1));
  int64_t rank = 0;
  return FromBase64(parts.first).ok() && absl::SimpleAtoi(parts.second, &rank);
}

absl::StatusOr<TokenizerParts> PartsOfTiktoken(absl::string_view text, const std::string& path) {
  const std::string name = EncodingName(text, path);
  for (const Encoding& encoding : Encodings()) {
    if (name != encoding.name) continue;
    TokenizerParts parts;
    ASSIGN_OR_RETURN(Vocabulary tokens, ReadRanks(text, path));
    RETURN_IF_ERROR(
        FinishByRank(std::move(tokens), PublishedExpression(encoding.words), path, &parts));
    for (const auto& [content, id] : encoding.specials) {
      RETURN_IF_ERROR(AddSpecial(content, id, path, &parts));
    }
    int64_t num_reserved = 0;
    for (int64_t id = encoding.reserved_begin; id < encoding.reserved_end; ++id) {
      const auto of = static_cast<int32_t>(id);
      if (parts.texts.Has(of)) continue;
      const std::string content =
          name == "llama3" ? absl::StrCat("<|reserved_special_token_", num_reserved++, "|>")
                           : absl::StrCat("<|reserved_", id, "|>");
      RETURN_IF_ERROR(AddSpecial(content, of, path, &parts));
    }
    if (name == "llama3") parts.before = {128000};
    for (const AddedToken& token : parts.added) {
      if (token.content == kEnd || token.content == "<|end_of_text|>") {
        parts.ends_of_text.insert(token.id);
      }
    }
    return parts;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": found tokens by rank in a file named ", name,
      ", which says neither where words end nor what special tokens there are; name the file ",
      kNames));
}

absl::StatusOr<TokenizerParts> PartsOfTekken(const LargeJson& json, const std::string& path) {
  constexpr int64_t kMostSpecials = int64_t{1} << 16;
  const nlohmann::json& config = ValueAt(json.rest, "/config");
  const nlohmann::json& size = ValueAt(config, "/default_vocab_size");
  const nlohmann::json& specials = ValueAt(config, "/default_num_special_tokens");
  const std::string expression = TextAt(config, "pattern");
  const bool is_sized = size.is_number_unsigned() && specials.is_number_unsigned() &&
                        size < kMostTokens && specials <= size && specials <= kMostSpecials;
  if (!is_sized || expression.empty()) {
    return UnknownPart(
        path, "/config", config,
        absl::StrCat("pattern, default_vocab_size and default_num_special_tokens, at "
                     "most ",
                     kMostSpecials));
  }
  const auto shift = specials.get<int32_t>();
  const int64_t num_tokens = size.get<int64_t>() - shift;
  Vocabulary tokens(json.ranks.size());
  for (const auto& [rank, base64] : json.ranks) {
    if (rank >= num_tokens) continue;
    const absl::StatusOr<std::string> bytes = FromBase64(base64);
    if (rank < 0 || !bytes.ok() || bytes->empty() || bytes->size() > kMostTokenBytes ||
        tokens.Has(static_cast<int32_t>(rank) + shift)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": /vocab: found the rank ", rank,
                                                     " with the bytes \"", Shortened(base64),
                                                     "\", expected each rank once, with base64"));
    }
    tokens.Add(*bytes, static_cast<int32_t>(rank) + shift);
  }
  TokenizerParts parts;
  RETURN_IF_ERROR(FinishByRank(std::move(tokens), expression, path, &parts));
  for (const nlohmann::json& each : ValueAt(json.rest, "/special_tokens")) {
    const std::string content = TextAt(each, "token_str");
    ASSIGN_OR_RETURN(const int32_t id, TokenIdOf(ValueAt(each, "/rank"), content, path));
    if (!parts.texts.Has(id)) RETURN_IF_ERROR(AddSpecial(content, id, path, &parts));
  }
  for (int32_t id = 0; id < shift; ++id) {
    if (parts.texts.Has(id)) continue;
    const auto at = static_cast<size_t>(id);
    RETURN_IF_ERROR(AddSpecial(
        at < std::size(kTekkenSpecials) ? kTekkenSpecials[at] : absl::StrCat("<SPECIAL_", id, ">"),
        id, path, &parts));
  }
  for (const AddedToken& token : parts.added) {
    if (token.content == "<s>") parts.before = {token.id};
    if (token.content == "</s>") parts.ends_of_text = {token.id};
  }
  return parts;
}

}  // namespace weft
