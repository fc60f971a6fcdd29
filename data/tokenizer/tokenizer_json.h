// tokenizer.json of Hugging Face's tokenizers, and the older vocab.json with merges.txt, become the
// parts of a Tokenizer. What a file asks for and weft does not know is refused: "path: which key:
// what was found, expected what is known".
#pragma once
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/tokenizer/json_text.h"
#include "data/tokenizer/tokenizer.h"

namespace weft {

absl::StatusOr<TokenizerParts> PartsOfTokenizerJson(const LargeJson& json, const std::string& path);

// GPT-2's pair of files in `folder`, and added_tokens.json if it is there.
absl::StatusOr<TokenizerParts> PartsOfOlderFiles(const std::string& folder);

// The parts of tokenizer.json, one function each; null is no step.
absl::Status ReadNormalizer(const nlohmann::json& json, const std::string& path,
                            std::vector<NormalizerStep>* steps);
absl::Status ReadPreTokenizer(const nlohmann::json& json, const std::string& path,
                              std::vector<PreTokenizerStep>* steps);
absl::Status ReadPostProcessor(const nlohmann::json& json, const std::string& path,
                               std::vector<int32_t>* before, std::vector<int32_t>* after);
absl::Status ReadDecoder(const nlohmann::json& json, const std::string& path,
                         std::vector<DecoderStep>* steps);

// A pattern of a Split or a Replace: {"String": text} or {"Regex": expression}.
struct JsonPattern {
  std::string text;
  std::shared_ptr<Regex> regex;  // null: the text
};
absl::StatusOr<JsonPattern> ReadPattern(const nlohmann::json& json, const std::string& path,
                                        const char* where);

}  // namespace weft
