#include "data/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "data/tokenizer/categories.h"
#include "data/tokenizer/published_words.h"
#include "plan/errors.h"
#include "text/json.h"

namespace weft {
namespace {

constexpr size_t kMostExpressionBytes = size_t{1} << 14;
constexpr uint64_t kMostTries = 10'000'000, kTriesOfByte = 64;
// A match that needs no more is free: there are as many as characters.
constexpr uint32_t kFewTries = 1024;
constexpr uint64_t kMostOfOne = uint64_t{1} << 31;  // a power of two: PCRE2 counts in 32 bits
constexpr size_t kStackBegin = size_t{32} << 10, kStackMost = size_t{8} << 20;

}  // namespace

struct RegexScratch::Memory {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kStackBegin, kStackMost, nullptr);
};

RegexScratch::RegexScratch() : memory_(new Memory()) {
  CHECK(memory_->data != nullptr && memory_->context != nullptr && memory_->stack != nullptr);
  pcre2_jit_stack_assign(memory_->context, nullptr, memory_->stack);
  Restart(0);
}

void RegexScratch::Restart(size_t text_bytes) {
  tries_left_ = kMostTries + kTriesOfByte * text_bytes;
}

void RegexScratch::Free::operator()(Memory* memory) const {
  pcre2_match_data_free(memory->data);
  pcre2_match_context_free(memory->context);
  pcre2_jit_stack_free(memory->stack);
  delete memory;
}

struct Regex::Code {
  explicit Code(pcre2_code* from) : compiled(from) {}
  ~Code() { pcre2_code_free(compiled); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  pcre2_code* const compiled;
};

absl::StatusOr<std::shared_ptr<const Regex::Code>> Regex::CompileOne(const std::string& expression,
                                                                     const std::string& shown,
                                                                     RegexDialect dialect) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  const uint32_t ends =
      dialect == RegexDialect::kOniguruma ? PCRE2_MULTILINE : PCRE2_DOLLAR_ENDONLY;
  pcre2_code* const compiled = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | ends, &error, &offset, nullptr);
  if (compiled == nullptr) {
    std::array<PCRE2_UCHAR, 256> why = {};
    pcre2_get_error_message(error, why.data(), why.size());
    return absl::InvalidArgumentError(absl::StrCat(
        "found the expression \"", Shortened(shown),
        "\", which is none: ", reinterpret_cast<const char*>(why.data()), " at byte ", offset));
  }
  auto code = std::make_shared<const Code>(compiled);
  if (pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("found the expression \"", Shortened(shown),
                                                   "\", which cannot be compiled to code"));
  }
  return code;
}

absl::StatusOr<Regex> Regex::Compile(const std::string& expression, RegexDialect dialect) {
  if (expression.size() > kMostExpressionBytes) {
    return absl::InvalidArgumentError(absl::StrCat("found an expression of ", expression.size(),
                                                   " bytes, expected at most ",
                                                   kMostExpressionBytes));
  }
  Regex regex;
  regex.words_ = AsciiWordRulesOf(expression);
  for (const bool is_wide : {false, true}) {
    const absl::StatusOr<std::string> widened = WidenedExpression(expression, is_wide, dialect);
    if (!widened.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", Shortened(expression), "\": ", widened.status().message()));
    }
    ASSIGN_OR_RETURN(auto code, CompileOne(*widened, expression, dialect));
    (is_wide ? regex.wide_ : regex.plain_) = std::move(code);
  }
  return regex;
}

bool Regex::NeedsWide(absl::string_view text) const {
  return HasNewerCharacter(text);
}

absl::StatusOr<Regex::Match> Regex::Find(absl::string_view text, size_t at, bool is_wide,
                                         RegexScratch* scratch) const {
  const Code& code = is_wide ? *wide_ : *plain_;
  RegexScratch::Memory& memory = *scratch->memory_;
  // PCRE2 does not say how often it tried, but fails beyond a limit: that doubles, and what failed
  // is paid for.
  int found = PCRE2_ERROR_MATCHLIMIT;
  for (uint64_t limit = kFewTries; found == PCRE2_ERROR_MATCHLIMIT; limit *= 2) {
    if (limit > kFewTries) {
      if (limit > kMostOfOne || scratch->tries_left_ < limit) break;
      scratch->tries_left_ -= limit;
    }
    pcre2_set_match_limit(memory.context, static_cast<uint32_t>(limit));
    found = pcre2_jit_match(code.compiled, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                            at, PCRE2_NO_UTF_CHECK, memory.data, memory.context);
  }
  if (found == PCRE2_ERROR_NOMATCH) return Match{};
  if (found < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the tokenizer's expression cannot be matched at byte ", at, " of a text of ",
                     text.size(), " bytes: it tries more than ", kMostTries, " ways and ",
                     kTriesOfByte, " a byte in this text (PCRE2 says ", found, ")"));
  }
  const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(memory.data);
  if (ends[0] > ends[1] || ends[0] < at) return Match{};  // \K in a look-around
  return Match{ends[0], ends[1], true};
}

}  // namespace weft
