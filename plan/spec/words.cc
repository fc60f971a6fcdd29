#include "plan/spec/words.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/errors.h"

namespace weft {

std::string Alternatives(Words words) {
  CHECK(!words.empty());
  const std::string last(words.back());
  if (words.size() == 1) return last;
  return absl::StrCat(absl::StrJoin(words.first(words.size() - 1), ", "), " or ", last);
}

absl::Status NoSuchWord(absl::string_view word, absl::string_view what, Words words) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", word, "\" is not ", what, "; use ", Alternatives(words)));
}

}  // namespace weft
