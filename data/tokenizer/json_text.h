// Large JSON files of tokenizers, read by simdjson: a vocabulary of 260,000 tokens is 35 MB and
// must be there at once. What is small of them becomes nlohmann's values, as everywhere in weft,
// and is asked by the functions below.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

// A file's JSON: lists and maps of a vocabulary's size apart from the rest.
struct LargeJson {
  // Texts lie in here.
  std::shared_ptr<void> owner;
  // The whole object without model.vocab, model.merges and vocab.
  nlohmann::json rest;
  std::vector<std::pair<absl::string_view, int64_t>> ids;    // model.vocab, a map
  std::vector<std::pair<absl::string_view, double>> scores;  // model.vocab, a list of pairs
  // model.merges: pairs, or texts with one space.
  std::vector<std::pair<absl::string_view, absl::string_view>> merges;
  // vocab of tekken.json: rank and token_bytes.
  std::vector<std::pair<int64_t, absl::string_view>> ranks;
};

// `text`: what the file `path` holds. InvalidArgument: "path: what was found, what was expected";
// also where a key of the file or of its model is there twice.
absl::StatusOr<LargeJson> ParseLargeJson(const std::string& text, const std::string& path);

// Reads a small JSON object, as tokenizer_config.json; nullopt: there is no such file.
absl::StatusOr<std::optional<nlohmann::json>> ReadSmallJson(const std::string& path);

// The value at a JSON pointer; null if there is none.
const nlohmann::json& ValueAt(const nlohmann::json& json, const char* pointer);
// The text of a key; `otherwise` if there is none.
std::string TextAt(const nlohmann::json& json, const char* key, const std::string& otherwise = "");
// Whether the key is true; `otherwise` if it is neither true nor false.
bool FlagAt(const nlohmann::json& json, const char* key, bool otherwise = false);
// A value for a message, which an object or a list would be too long for.
std::string ShownValue(const nlohmann::json& value);

// "path: where: found X, expected ...": how a file's part is refused.
absl::Status UnknownPart(const std::string& path, absl::string_view where,
                         const nlohmann::json& found, absl::string_view expected);

// Keys that tokenizer.json's parts have, where they are neither null nor of their kind, would be
// taken for absent: they are refused by name.
absl::Status CheckKinds(const nlohmann::json& json, const std::string& where,
                        const std::string& path);

// Steps of a normalizer, a pre-tokenizer, a decoder: each goes over the whole text.
inline constexpr size_t kMostSteps = 64;
absl::Status CheckSteps(size_t num_steps, absl::string_view where, const std::string& path);

// A token that the model looks for: Unigram and WordPiece try each length at each place.
absl::Status CheckTokenBytes(absl::string_view text, size_t most, const std::string& path);

// An id of a token: InvalidArgument, naming the token, for a value that is none.
absl::StatusOr<int32_t> TokenIdOf(const nlohmann::json& id, absl::string_view of,
                                  const std::string& path);
absl::StatusOr<int32_t> TokenIdOf(int64_t id, absl::string_view of, const std::string& path);

}  // namespace weft
