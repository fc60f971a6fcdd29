// Tokenizer::Open: which file of a folder is the tokenizer, and what the files beside it say.
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "data/tokenizer/json_text.h"
#include "data/tokenizer/sentence_piece.h"
#include "data/tokenizer/tiktoken.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"
#include "data/tokenizer/tokenizer_json.h"
#include "data/whole_file.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr char kEndOfTextToken[] = "<|endoftext|>";

bool IsThere(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

absl::StatusOr<TokenizerParts> PartsOfJson(const std::string& text, const std::string& path) {
  ASSIGN_OR_RETURN(const LargeJson json, ParseLargeJson(text, path));
  const bool is_tekken = !json.ranks.empty() && !json.rest.contains("model");
  return is_tekken ? PartsOfTekken(json, path) : PartsOfTokenizerJson(json, path);
}

// A file's name tells what it is, and where it tells nothing, what it begins with.
absl::StatusOr<TokenizerParts> PartsOfFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMostIndexBytes));
  const std::string extension = std::filesystem::path(path).extension().string();
  const bool begins_as_json = absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), "{");
  const std::string name = std::filesystem::path(path).filename().string();
  const bool is_model = extension == ".tiktoken" || absl::StrContains(name, ".model");
  if (extension == ".json" || (!is_model && begins_as_json)) return PartsOfJson(text, path);
  if (is_model && IsTiktoken(text)) return PartsOfTiktoken(text, path);
  if (is_model) return PartsOfSentencePiece(text, path);
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": found a file named neither .json nor .tiktoken nor .model; expected ",
                   "tokenizer.json, tekken.json, a tiktoken file or a sentencepiece model"));
}

absl::StatusOr<TokenizerParts> PartsOfFolder(const std::string& folder) {
  const std::optional<std::string> whole = WholeTokenizerIn(folder);
  return whole ? PartsOfFile(*whole) : PartsOfOlderFiles(folder);
}

// The text of a token in tokenizer_config.json, written as itself or as an added token; "": none.
std::string StatedToken(const nlohmann::json& json, const std::string& key) {
  const std::string plain = TextAt(json, key.c_str());
  return plain.empty() ? TextAt(ValueAt(json, ("/" + key).c_str()), "content") : plain;
}

// A .model does not say itself whether a text begins and ends with a token.
void PutEnds(const nlohmann::json& config, TokenizerParts* parts) {
  const auto bos = IdOfToken(*parts, StatedToken(config, "bos_token"));
  const auto eos = IdOfToken(*parts, StatedToken(config, "eos_token"));
  if (FlagAt(config, "add_bos_token") && bos) parts->before = {*bos};
  if (FlagAt(config, "add_eos_token") && eos) parts->after = {*eos};
}

absl::Status ReadBeside(const std::string& folder, TokenizerParts* parts) {
  std::set<std::string> ends;
  for (const std::string& file : FilesBesideTokenizer(folder)) {
    ASSIGN_OR_RETURN(const std::optional<nlohmann::json> json, ReadSmallJson(file));
    if (!json) continue;
    const std::string end = StatedToken(*json, "eos_token");
    if (!end.empty()) ends.insert(end);
    if (!IsThere(folder + "/tokenizer.json")) PutEnds(*json, parts);
  }
  if (ends.empty()) return absl::OkStatus();
  parts->ends_of_text.clear();
  for (const std::string& end : ends) {
    if (const auto id = IdOfToken(*parts, end)) parts->ends_of_text.insert(*id);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Tokenizer> Tokenizer::Open(const std::string& path) {
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(path, error);
  ASSIGN_OR_RETURN(TokenizerParts parts, is_folder ? PartsOfFolder(path) : PartsOfFile(path));
  if (parts.ends_of_text.empty()) {
    if (const auto id = IdOfToken(parts, kEndOfTextToken)) parts.ends_of_text.insert(*id);
  }
  if (is_folder) RETURN_IF_ERROR(ReadBeside(path, &parts));
  return Make(std::move(parts));
}

}  // namespace weft
