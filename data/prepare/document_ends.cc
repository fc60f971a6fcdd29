#include "data/prepare/document_ends.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {
namespace {

absl::StatusOr<int32_t> IdOfWord(const Tokenizer& tokenizer, const std::string& option,
                                 const std::string& word) {
  // A number is an id, also where the vocabulary has its digits.
  int32_t id = 0;
  if (absl::SimpleAtoi(word, &id) && id >= 0 && id < tokenizer.vocab_size()) return id;
  if (const auto found = tokenizer.IdOf(word)) return *found;
  return absl::InvalidArgumentError(absl::StrCat(option, ": the tokenizer has no token ", word,
                                                 "; use the text of one, an id below ",
                                                 tokenizer.vocab_size(), ", or ", kNoEnd));
}

absl::StatusOr<int32_t> EndOfText(const Tokenizer& tokenizer, const std::string& option) {
  const std::set<int32_t>& ends = tokenizer.ends_of_text();
  if (ends.size() == 1) return *ends.begin();
  const std::vector<int32_t> all(ends.begin(), ends.end());
  return absl::InvalidArgumentError(absl::StrCat(
      "the tokenizer states ", ends.empty() ? "no end of text" : "several ends of text: ",
      ends.empty() ? "" : TokensText(tokenizer, all), "; name the token with ", option, ", or ",
      option, " ", kNoEnd));
}

}  // namespace

absl::StatusOr<DocumentEnds> EndsOfDocuments(const Tokenizer& tokenizer, TokenOutput output,
                                             const std::string& begin, const std::string& end) {
  DocumentEnds ends;
  const bool is_llmc = output == TokenOutput::kLlmc;
  if (begin == kEndsOfTokenizer) {
    ends.before = tokenizer.before();
    if (is_llmc && ends.before.empty()) {
      ASSIGN_OR_RETURN(const int32_t id, EndOfText(tokenizer, "--begin"));
      ends.before = {id};
    }
  } else if (begin != kNoEnd) {
    ASSIGN_OR_RETURN(const int32_t id, IdOfWord(tokenizer, "--begin", begin));
    ends.before = {id};
  }
  if (end == kEndsOfTokenizer) {
    ends.after = tokenizer.after();
    if (!is_llmc && ends.after.empty()) {
      ASSIGN_OR_RETURN(const int32_t id, EndOfText(tokenizer, "--end"));
      ends.after = {id};
    }
  } else if (end != kNoEnd) {
    ASSIGN_OR_RETURN(const int32_t id, IdOfWord(tokenizer, "--end", end));
    ends.after = {id};
  }
  return ends;
}

std::string TokensText(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", id, " ", tokenizer.Decode({id}));
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace weft
