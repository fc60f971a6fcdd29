#include "data/tokenizer/published_words.h"

#include <algorithm>

#include "plan/errors.h"

namespace weft {
namespace {

constexpr char kContraction[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
constexpr char kLetters[] = R"(|[^\r\n\p{L}\p{N}]?\p{L}+)";
constexpr char kSigns[] = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)";
constexpr char kSpaceWords[] = R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kCapitals[] = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
constexpr char kSmalls[] = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";

// The two ways of o200k to begin a word, each with `behind`, and its signs.
std::string Cased(const std::string& behind, const std::string& digits) {
  const std::string prefix = R"([^\r\n\p{L}\p{N}]?)";
  return prefix + kCapitals + "*" + kSmalls + "+" + behind + "|" + prefix + kCapitals + "+" +
         kSmalls + "*" + behind + "|" + digits + R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)" + kSpaceWords;
}

std::vector<PublishedWords> MakePublished() {
  const AsciiWordRules gpt2 = {.begins_contractions = true};
  AsciiWordRules llama3 = {.has_any_prefix = true,
                           .most_digits = 3,
                           .begins_contractions = true,
                           .ignores_case = true,
                           .ends_lines = true};
  AsciiWordRules qwen2 = llama3, cl100k = llama3;
  qwen2.most_digits = 1;
  cl100k.joins_last_spaces = true;
  AsciiWordRules o200k = {.has_any_prefix = true,
                          .is_cased = true,
                          .most_digits = 3,
                          .ignores_case = true,
                          .ends_contractions = true,
                          .ends_lines = true,
                          .ends_slashes = true};
  AsciiWordRules tekken = o200k;
  tekken.most_digits = 1;
  tekken.ends_contractions = false;
  const std::string contraction = kContraction;
  return {
      {"gpt2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
       gpt2},
      {"r50k", R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)",
       gpt2},
      {"llama3", contraction + kLetters + R"(|\p{N}{1,3})" + kSigns + kSpaceWords, llama3},
      {"qwen2", contraction + kLetters + R"(|\p{N})" + kSigns + kSpaceWords, qwen2},
      {"qwen3.5",
       contraction + R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" +
           kSpaceWords,
       qwen2},
      {"cl100k",
       R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+)"
       R"(| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)",
       cl100k},
      {"o200k", Cased(contraction + "?", R"(\p{N}{1,3})"), o200k},
      {"tekken", Cased("", R"(\p{N})"), tekken},
  };
}

}  // namespace

const std::vector<PublishedWords>& AllPublishedWords() {
  static const auto* const published = new std::vector<PublishedWords>(MakePublished());
  return *published;
}

const std::string& PublishedExpression(absl::string_view name) {
  const std::vector<PublishedWords>& all = AllPublishedWords();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [name](const PublishedWords& each) { return name == each.name; });
  CHECK(found != all.end());
  return found->expression;
}

std::optional<AsciiWordRules> AsciiWordRulesOf(absl::string_view expression) {
  for (const PublishedWords& each : AllPublishedWords()) {
    if (each.expression == expression) return each.rules;
  }
  return std::nullopt;
}

}  // namespace weft
