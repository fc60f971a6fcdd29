#include "data/tokenizer/decoder.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "data/tokenizer/byte_characters.h"
#include "data/tokenizer/normalizer.h"
#include "data/unicode.h"

namespace weft {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";
using Tokens = std::vector<std::string>;

int HexDigit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

// The byte that "<0xNN>" names; -1: it is another text.
int FallbackByte(absl::string_view token) {
  if (token.size() != 6 || !absl::StartsWith(token, "<0x") || token[5] != '>') return -1;
  const int high = HexDigit(token[3]), low = HexDigit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

void Decode(const ByteLevelDecoding&, Tokens* tokens) {
  std::string bytes, text;
  for (const std::string& token : *tokens) {
    absl::StrAppend(&text, BytesOfCharacters(token, &bytes) ? bytes : token);
  }
  tokens->assign(1, std::move(text));
}

void Decode(const ReplaceDecoding& step, Tokens* tokens) {
  for (std::string& token : *tokens) token = ReplacedAll(token, step.what, step.by);
}

void DecodeFallback(bool keeps_bytes, Tokens* tokens) {
  Tokens decoded;
  std::string run;
  const auto end_run = [&] {
    if (run.empty()) return;
    if (keeps_bytes || IsUtf8(run)) {
      decoded.push_back(run);
    } else {
      for (size_t i = 0; i < run.size(); ++i) decoded.emplace_back(kReplacement);
    }
    run.clear();
  };
  for (std::string& token : *tokens) {
    const int byte = FallbackByte(token);
    if (byte >= 0) {
      run.push_back(static_cast<char>(byte));
    } else {
      end_run();
      decoded.push_back(std::move(token));
    }
  }
  end_run();
  *tokens = std::move(decoded);
}

// Never called: DecodeFallback needs to be told more.
void Decode(const ByteFallbackDecoding&, Tokens*) {}

void Decode(const FuseDecoding&, Tokens* tokens) {
  tokens->assign(1, absl::StrJoin(*tokens, ""));
}

void Decode(const StripDecoding& step, Tokens* tokens) {
  for (std::string& token : *tokens) {
    absl::string_view left = token;
    for (int64_t i = 0; i < step.most_left && absl::StartsWith(left, step.character); ++i) {
      left.remove_prefix(step.character.size());
    }
    for (int64_t i = 0; i < step.most_right && absl::EndsWith(left, step.character); ++i) {
      left.remove_suffix(step.character.size());
    }
    token = std::string(left);
  }
}

void Decode(const StartDecoding& step, Tokens* tokens) {
  for (std::string& token : *tokens) {
    const bool is_marked = absl::StartsWith(token, step.mark);
    if (is_marked) token.erase(0, step.mark.size());
    if (!token.empty() || (is_marked && step.is_once)) return;
  }
}

void Decode(const MetaspaceDecoding& step, Tokens* tokens) {
  for (size_t i = 0; i < tokens->size(); ++i) {
    std::string& token = (*tokens)[i];
    if (i == 0 && step.drops_first) {
      // Each mark of the first token goes, also one inside it.
      token = ReplacedAll(token, step.mark, "");
    } else {
      token = ReplacedAll(token, step.mark, " ");
    }
  }
}

// tokenizers' WordPiece cleans up each token so.
std::string Cleaned(absl::string_view text) {
  std::string cleaned(text);
  for (const auto& [what, by] : {std::pair{" .", "."},
                                 {" ?", "?"},
                                 {" !", "!"},
                                 {" ,", ","},
                                 {" ' ", "'"},
                                 {" n't", "n't"},
                                 {" 'm", "'m"},
                                 {" do not", " don't"},
                                 {" 's", "'s"},
                                 {" 've", "'ve"},
                                 {" 're", "'re"}}) {
    cleaned = ReplacedAll(cleaned, what, by);
  }
  return cleaned;
}

void Decode(const WordPieceDecoding& step, Tokens* tokens) {
  for (size_t i = 0; i < tokens->size(); ++i) {
    std::string& token = (*tokens)[i];
    if (i > 0) {
      token = absl::StartsWith(token, step.prefix) ? token.substr(step.prefix.size())
                                                   : absl::StrCat(" ", token);
    }
    if (step.cleans) token = Cleaned(token);
  }
}

void Decode(const SuffixDecoding& step, Tokens* tokens) {
  for (size_t i = 0; i < tokens->size(); ++i) {
    std::string& token = (*tokens)[i];
    token = ReplacedAll(token, step.suffix, i + 1 == tokens->size() ? "" : " ");
  }
}

}  // namespace

std::string Decoded(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens,
                    bool keeps_bytes) {
  if (steps.empty()) return absl::StrJoin(tokens, " ");
  for (const DecoderStep& step : steps) {
    if (std::holds_alternative<ByteFallbackDecoding>(step)) {
      DecodeFallback(keeps_bytes, &tokens);
    } else {
      std::visit([&tokens](const auto& of) { Decode(of, &tokens); }, step);
    }
  }
  return absl::StrJoin(tokens, "");
}

std::string WithReplacements(absl::string_view text) {
  std::string replaced;
  for (size_t at = 0; at < text.size();) {
    const Character character = CharacterAt(text, at);
    if (character.code_point != kNoCharacter) {
      absl::StrAppend(&replaced, text.substr(at, static_cast<size_t>(character.bytes)));
      at += static_cast<size_t>(character.bytes);
      continue;
    }
    absl::StrAppend(&replaced, kReplacement);
    at += BrokenBytes(text.substr(at));
  }
  return replaced;
}

}  // namespace weft
