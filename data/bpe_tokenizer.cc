#include "data/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <queue>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "data/unicode.h"
#include "data/whole_file.h"
#include "plan/errors.h"

namespace weft {
namespace {

using Json = nlohmann::json;
using Vocabulary = std::unordered_map<std::string, int32_t>;

constexpr absl::string_view kEndOfText = "<|endoftext|>";
constexpr int64_t kMostIds = int64_t{1} << 24;
constexpr int32_t kNoByte = -1;

// The byte that each character of a file stands for, by code point.
std::array<int32_t, 324> ByteOfCharacter() {
  std::array<int32_t, 324> bytes = {};
  bytes.fill(kNoByte);
  size_t next = 256;
  for (int32_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    bytes[itself ? static_cast<size_t>(byte) : next++] = byte;
  }
  return bytes;
}

// "Ġthe" -> " the"; a text that holds another character stands for its own bytes.
std::string BytesOf(const std::string& written) {
  static const std::array<int32_t, 324> kBytes = ByteOfCharacter();
  std::string bytes;
  for (size_t at = 0; at < written.size();) {
    const Character character = CharacterAt(written, at);
    if (character.code_point >= kBytes.size() || kBytes[character.code_point] == kNoByte) {
      return written;
    }
    bytes.push_back(static_cast<char>(kBytes[character.code_point]));
    at += static_cast<size_t>(character.bytes);
  }
  return bytes;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  absl::StatusOr<std::string> text = ReadWholeFile(path, kMostIndexBytes);
  if (text.ok()) return text;
  return absl::InvalidArgumentError(
      absl::StrCat(text.status().message(),
                   "; expected a folder with tokenizer.json, or with vocab.json and merges.txt"));
}

// A value for a message. Nothing that holds others is printed: it may be nested deeper than the
// stack that printing needs.
std::string Shown(const Json& value) {
  if (value.is_object()) return "an object";
  return value.is_array() ? "a list" : value.dump();
}

absl::StatusOr<Json> ReadJson(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) return json;
  return absl::InvalidArgumentError(absl::StrCat(path, ": found no JSON object, expected one"));
}

absl::Status AddIds(const Json& json, const std::string& path, Vocabulary* vocabulary) {
  if (!json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": found no vocabulary, expected one"));
  }
  for (const auto& [written, id] : json.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(kMostIds)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": found the id ", Shown(id), " of \"",
                                                     written, "\", expected 0 to ", kMostIds - 1));
    }
    (*vocabulary)[written] = id.get<int32_t>();
  }
  return absl::OkStatus();
}

// What makes another tokenizer than GPT-2's: other words, other bytes, other merges.
absl::Status CheckKind(const Json& json, const std::string& path) {
  const auto text_at = [&json](const char* pointer) {
    const auto where = Json::json_pointer(pointer);
    if (!json.contains(where)) return std::string("nothing");
    return json[where].is_string() ? json[where].get<std::string>() : Shown(json[where]);
  };
  const std::pair<const char*, const char*> expected[] = {
      {"/model/type", "BPE"}, {"/pre_tokenizer/type", "ByteLevel"}, {"/decoder/type", "ByteLevel"}};
  for (const auto& [pointer, value] : expected) {
    if (text_at(pointer) == value) continue;
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", pointer, ": found ",
                                                   text_at(pointer), ", expected ", value,
                                                   ": only GPT-2's tokenizer is built in"));
  }
  const bool changes = text_at("/pre_tokenizer/add_prefix_space") == "true" ||
                       text_at("/pre_tokenizer/use_regex") == "false" ||
                       (json.contains("normalizer") && !json["normalizer"].is_null());
  if (!changes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path,
                   ": it changes or cuts the text in its own way (normalizer, add_prefix_space, "
                   "use_regex); only GPT-2's tokenizer is built in"));
}

absl::StatusOr<std::vector<std::string>> MergesIn(const Json& list, const std::string& path) {
  std::vector<std::string> merges;
  for (const Json& merge : list) {
    const bool is_pair =
        merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
    if (!is_pair && !merge.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": found the merge ", Shown(merge), ", expected two tokens"));
    }
    merges.push_back(
        is_pair ? absl::StrCat(merge[0].get<std::string>(), " ", merge[1].get<std::string>())
                : merge.get<std::string>());
  }
  return merges;
}

absl::StatusOr<std::vector<std::string>> MergesOfText(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<std::string> merges;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    if (!merges.empty() || !absl::StartsWith(line, "#version")) merges.emplace_back(line);
  }
  return merges;
}

uint64_t PairKey(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// Bytes of the contraction that `text` begins with; 0: none.
size_t Contraction(absl::string_view text) {
  for (const absl::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (absl::StartsWith(text, ending)) return ending.size();
  }
  return 0;
}

enum class CharacterClass { kLetter, kNumber, kSpace, kOther };

CharacterClass ClassOf(char32_t code_point) {
  if (IsLetter(code_point)) return CharacterClass::kLetter;
  if (IsNumber(code_point)) return CharacterClass::kNumber;
  return IsSpace(code_point) ? CharacterClass::kSpace : CharacterClass::kOther;
}

// A run of characters of one class.
struct Run {
  size_t end = 0;         // in bytes
  size_t last_begin = 0;  // of its last character
};
Run RunFrom(absl::string_view text, size_t at, CharacterClass wanted) {
  Run run = {at, at};
  while (run.end < text.size()) {
    const Character character = CharacterAt(text, run.end);
    if (ClassOf(character.code_point) != wanted) break;
    run.last_begin = run.end;
    run.end += static_cast<size_t>(character.bytes);
  }
  return run;
}

}  // namespace

size_t FirstWord(absl::string_view text) {
  if (const size_t contraction = Contraction(text)) return contraction;
  const size_t space = text[0] == ' ' && text.size() > 1 ? 1 : 0;
  const CharacterClass first = ClassOf(CharacterAt(text, space).code_point);
  if (first != CharacterClass::kSpace) return RunFrom(text, space, first).end;
  const Run spaces = RunFrom(text, 0, CharacterClass::kSpace);
  // The last space before a word is left to the word, unless it is all there is.
  return spaces.end == text.size() || spaces.last_begin == 0 ? spaces.end : spaces.last_begin;
}

absl::StatusOr<BpeTokenizer> BpeTokenizer::Open(const std::string& path) {
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(path, error);
  const std::string whole = is_folder ? path + "/tokenizer.json" : path;
  Vocabulary vocabulary;
  std::vector<std::string> merges;
  BpeTokenizer tokenizer;
  if (is_folder && !std::filesystem::exists(whole, error)) {
    const std::string vocab = path + "/vocab.json";
    ASSIGN_OR_RETURN(const Json json, ReadJson(vocab));
    RETURN_IF_ERROR(AddIds(json, vocab, &vocabulary));
    ASSIGN_OR_RETURN(merges, MergesOfText(path + "/merges.txt"));
    RETURN_IF_ERROR(tokenizer.Build(vocabulary, merges, path));
    return tokenizer;
  }
  ASSIGN_OR_RETURN(const Json json, ReadJson(whole));
  RETURN_IF_ERROR(CheckKind(json, whole));
  RETURN_IF_ERROR(AddIds(json["model"].value("vocab", Json()), whole, &vocabulary));
  for (const Json& added : json.value("added_tokens", Json::array())) {
    if (!added.is_object() || !added.contains("id") ||
        !added.value("content", Json()).is_string()) {
      return absl::InvalidArgumentError(absl::StrCat(whole, ": found an added token that is ",
                                                     Shown(added), ", expected content and id"));
    }
    RETURN_IF_ERROR(
        AddIds({{added["content"].get<std::string>(), added["id"]}}, whole, &vocabulary));
  }
  ASSIGN_OR_RETURN(merges, MergesIn(json["model"].value("merges", Json::array()), whole));
  RETURN_IF_ERROR(tokenizer.Build(vocabulary, merges, whole));
  return tokenizer;
}

absl::Status BpeTokenizer::Build(const std::unordered_map<std::string, int32_t>& vocabulary,
                                 const std::vector<std::string>& merges, const std::string& file) {
  Vocabulary ids;  // by bytes
  for (const auto& [written, id] : vocabulary) {
    if (id >= std::ssize(bytes_)) bytes_.resize(static_cast<size_t>(id) + 1);
    bytes_[static_cast<size_t>(id)] = BytesOf(written);
    ids[BytesOf(written)] = id;
    if (written == kEndOfText) end_of_text_ = id;
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = ids.find(std::string(1, static_cast<char>(byte)));
    if (found == ids.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(file, ": found no token for byte ", byte, ", expected one for each byte"));
    }
    byte_ids_[byte] = found->second;
  }
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::vector<std::string> pair = absl::StrSplit(merges[rank], ' ');
    const auto left = ids.find(BytesOf(pair.front())), right = ids.find(BytesOf(pair.back()));
    const auto both = ids.find(BytesOf(pair.front()) + BytesOf(pair.back()));
    if (pair.size() != 2 || left == ids.end() || right == ids.end() || both == ids.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(file, ": found merge ", rank, " \"", merges[rank],
                       "\", expected two tokens of the vocabulary that make a third"));
    }
    merges_.emplace(PairKey(left->second, right->second),
                    Merge{static_cast<int32_t>(rank), both->second});
  }
  return absl::OkStatus();
}

// Merges the pair of lowest rank, leftmost first, until none is left: a list of symbols and a queue
// of candidates, of which outdated ones are passed over.
void BpeTokenizer::EncodeWord(absl::string_view word, std::vector<int32_t>* ids) const {
  struct Symbol {
    int32_t id;
    size_t previous, next;
  };
  constexpr int32_t kGone = -1;
  const size_t none = word.size();
  std::vector<Symbol> symbols;
  for (size_t i = 0; i < word.size(); ++i) {
    symbols.push_back(
        {byte_ids_[static_cast<unsigned char>(word[i])], i == 0 ? none : i - 1, i + 1});
  }
  struct Candidate {
    int32_t rank;
    size_t at;
    uint64_t pair;
    bool operator<(const Candidate& other) const {  // the queue's top is its greatest
      return std::pair(rank, at) > std::pair(other.rank, other.at);
    }
  };
  std::priority_queue<Candidate> queue;
  const auto offer = [&](size_t left) {
    if (left == none || symbols[left].next == none) return;
    const uint64_t pair = PairKey(symbols[left].id, symbols[symbols[left].next].id);
    const auto merge = merges_.find(pair);
    if (merge != merges_.end()) queue.push({merge->second.rank, left, pair});
  };
  for (size_t i = 0; i < word.size(); ++i) offer(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.at];
    if (left.id == kGone || left.next == none) continue;
    Symbol& right = symbols[left.next];
    if (PairKey(left.id, right.id) != best.pair) continue;
    left.id = merges_.at(best.pair).id;
    right.id = kGone;
    left.next = right.next;
    if (left.next != none) symbols[left.next].previous = best.at;
    offer(left.previous);
    offer(best.at);
  }
  for (const Symbol& symbol : symbols) {
    if (symbol.id != kGone) ids->push_back(symbol.id);
  }
}

std::vector<int32_t> BpeTokenizer::Encode(absl::string_view text) const {
  std::vector<int32_t> ids;
  while (!text.empty()) {
    const size_t word = FirstWord(text);
    EncodeWord(text.substr(0, word), &ids);
    text.remove_prefix(word);
  }
  return ids;
}

std::string BpeTokenizer::Decode(int32_t id) const {
  return id >= 0 && id < std::ssize(bytes_) ? bytes_[static_cast<size_t>(id)] : "";
}

}  // namespace weft
