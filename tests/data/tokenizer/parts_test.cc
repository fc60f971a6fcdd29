// The parts of a tokenizer by their definitions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/tokenizer/ascii_words.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/categories.h"
#include "data/tokenizer/newer_unicode.h"
#include "data/tokenizer/pre_tokenizer.h"
#include "data/tokenizer/published_words.h"
#include "data/tokenizer/regex.h"
#include "data/tokenizer/scripts.h"
#include "data/tokenizer/tokenizer_json.h"

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The expression is compiled with a group around it, so that it is none of the known ones.
std::vector<std::string> FoundByPcre(const std::string& expression, const std::string& text) {
  const auto regex = Regex::Compile(absl::StrCat("(?:", expression, ")"), RegexDialect::kFancy);
  EXPECT_TRUE(regex.ok()) << regex.status();
  EXPECT_FALSE(regex->words().has_value());
  RegexScratch scratch;
  std::vector<std::string> found;
  for (size_t at = 0; at < text.size();) {
    const auto match = regex->Find(text, at, true, &scratch);
    if (!match.ok() || !match->is_found) break;
    found.push_back(text.substr(match->begin, match->end - match->begin));
    at = match->end;
  }
  return found;
}

std::vector<std::string> FoundInAscii(const std::string& expression, const std::string& text) {
  const auto rules = AsciiWordRulesOf(expression);
  EXPECT_TRUE(rules.has_value()) << expression;
  std::vector<std::string> found;
  for (size_t at = 0; at < text.size() && rules;) {
    const size_t end = AsciiWordEnd(*rules, text, at);
    if (end <= at) break;
    found.push_back(text.substr(at, end - at));
    at = end;
  }
  return found;
}

TEST(AsciiWords, AreThoseOfTheExpressions) {
  const std::vector<std::string> pieces = {"a",  "Bc",  "DE",    "1",    "23456", " ",   "  ",
                                           "\t", "\n",  "\r\n",  "'s",   "'S",    "'ll", "'RE",
                                           "'v", "'",   "/",     "//",   "!",     "_",   "\x01",
                                           "\v", "x'd", "don't", " the", "\n \n", "'m1"};
  std::mt19937 random(7);
  for (const PublishedWords& words : AllPublishedWords()) {
    const std::string& expression = words.expression;
    for (int trial = 0; trial < 4000; ++trial) {
      std::string text;
      for (size_t i = 0; i <= random() % 9; ++i) text += pieces[random() % pieces.size()];
      ASSERT_EQ(FoundInAscii(expression, text), FoundByPcre(expression, text))
          << expression << " on \"" << text << "\"";
    }
  }
}

TEST(AsciiWords, SayNothingWhereAnotherCharacterMayDecide) {
  for (const PublishedWords& words : AllPublishedWords()) {
    const std::string& expression = words.expression;
    const auto rules = AsciiWordRulesOf(expression);
    ASSERT_TRUE(rules.has_value());
    for (const char* const text : {"é", "aé", " é", "!é", "  \u00a0", "a\u0301"}) {
      EXPECT_EQ(AsciiWordEnd(*rules, text, 0), 0u) << expression << text;
    }
  }
}

// Each code point that has another class in Unicode 16 than PCRE2 knows is found once it is wide.
TEST(Regex, KnowsTheClassesOfUnicode16) {
  RegexScratch scratch;
  for (const CategoryRange& range : NewerCategories()) {
    if (range.category[0] == 'C') continue;  // \p{C} is refused
    for (const std::string& expression :
         {absl::StrCat("\\p{", range.category, "}"),
          absl::StrCat("\\p{", std::string(1, range.category[0]), "}"),
          absl::StrCat("[\\p{", range.category, "}x]")}) {
      const auto regex = Regex::Compile(expression, RegexDialect::kOniguruma);
      ASSERT_TRUE(regex.ok()) << regex.status();
      for (const char32_t point : {range.first, range.last}) {
        std::string text;
        AppendCharacter(point, &text);
        EXPECT_TRUE(regex->NeedsWide(text)) << range.category << text;
        const auto match = regex->Find(text, 0, true, &scratch);
        ASSERT_TRUE(match.ok());
        EXPECT_TRUE(match->is_found) << expression << " on " << text;
      }
    }
  }
  EXPECT_FALSE(Regex::Compile("a", RegexDialect::kFancy)->NeedsWide("日本語 é abc"));
}

TEST(Regex, RefusesByNameWhatMeansAnotherThingElsewhere) {
  for (const char* const expression : {R"(\bx)", R"(\h)", "[a[b]]", "[a&&b]", R"((a)\1)",
                                       R"(\p{C})", R"([\W])", R"([\P{L}])", R"(a\)"}) {
    const auto regex = Regex::Compile(expression, RegexDialect::kOniguruma);
    EXPECT_EQ(regex.status().code(), absl::StatusCode::kInvalidArgument) << expression;
    EXPECT_THAT(std::string(regex.status().message()), HasSubstr("found ")) << expression;
  }
}

TEST(Regex, RefusesByDialectWhatMeansAnotherThingElsewhere) {
  const struct {
    const char* expression;
    bool is_known_to_oniguruma, is_known_to_fancy;
  } cases[] = {{R"(\p{N}{1,3}+)", true, true},
               {R"(a{2}+)", true, true},
               {R"(a{2}?)", true, true},
               {R"((?x)a{2} +)", true, true},
               {R"((?x)a{2}+)", false, true},
               {R"(a{2,3}?)", true, true},
               {R"(a{,3})", true, false},
               {R"([a{,3}])", true, true},
               {R"(\v)", false, false},
               {R"([\V])", false, false},
               {R"(\N)", false, false},
               {R"((?m)a$)", false, false},
               {R"((?im:a))", false, false},
               {R"((?s:.))", false, true},
               {R"((?i)a|b)", true, true},
               {R"(c(?i)a|b)", false, true},
               {R"((?i:a)(?=b)(?!b)(?<=c)(?<!d)(?>e))", true, true},
               {R"((*UCP)a)", false, false},
               {R"((?R))", false, false},
               {R"(\p{Han})", true, true},
               {R"([^\P{Han}])", false, false},
               {R"(\p{Alphabetic})", false, false},
               {R"(\p{Lu}\pN)", true, true}};
  for (const auto& each : cases) {
    const auto oniguruma = Regex::Compile(each.expression, RegexDialect::kOniguruma);
    EXPECT_EQ(oniguruma.ok(), each.is_known_to_oniguruma) << each.expression << oniguruma.status();
    const auto fancy = Regex::Compile(each.expression, RegexDialect::kFancy);
    EXPECT_EQ(fancy.ok(), each.is_known_to_fancy) << each.expression << fancy.status();
  }
  const auto refused = Regex::Compile("ab{,3}", RegexDialect::kFancy);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("the repetition {,3} at byte 2"));
}

TEST(Regex, GivesUpWhereItWouldTryWithoutEnd) {
  const auto regex = Regex::Compile("(a+)+$", RegexDialect::kFancy);
  ASSERT_TRUE(regex.ok());
  RegexScratch scratch;
  const auto match = regex->Find(std::string(60, 'a') + "!", 0, false, &scratch);
  EXPECT_EQ(match.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(match.status().message()), HasSubstr("more than 10000000 ways"));
}

std::vector<std::string> PiecesOf(const PreTokenizerStep& step, absl::string_view text) {
  PieceScratch scratch;
  EXPECT_TRUE(PreTokenize({step}, text, true, &scratch).ok());
  std::vector<std::string> texts;
  for (const TextPiece& piece : scratch.pieces) texts.emplace_back(piece.text);
  return texts;
}

// The table of tokenizers' own documentation.
TEST(Split, BehavesAsDocumented) {
  SplitStep step{nullptr, "-", SplitBehavior::kRemoved, false};
  constexpr char kText[] = "the-final--countdown";
  EXPECT_THAT(PiecesOf(step, kText), ElementsAre("the", "final", "countdown"));
  step.behavior = SplitBehavior::kIsolated;
  EXPECT_THAT(PiecesOf(step, kText), ElementsAre("the", "-", "final", "-", "-", "countdown"));
  step.behavior = SplitBehavior::kMergedWithPrevious;
  EXPECT_THAT(PiecesOf(step, kText), ElementsAre("the-", "final-", "-", "countdown"));
  step.behavior = SplitBehavior::kMergedWithNext;
  EXPECT_THAT(PiecesOf(step, kText), ElementsAre("the", "-final", "-", "-countdown"));
  step.behavior = SplitBehavior::kContiguous;
  EXPECT_THAT(PiecesOf(step, kText), ElementsAre("the", "-", "final", "--", "countdown"));
  step.is_inverted = true;
  step.behavior = SplitBehavior::kRemoved;
  EXPECT_THAT(PiecesOf(step, kText), ElementsAre("-", "-", "-"));
}

// Rust's regex, which tokenizers uses for Whitespace alone, has other words than Oniguruma.
TEST(Whitespace, HasTheWordsOfRust) {
  std::vector<PreTokenizerStep> steps;
  ASSERT_TRUE(ReadPreTokenizer({{"type", "Whitespace"}}, "file", &steps).ok());
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_THAT(PiecesOf(steps[0], "10 m² ½x"), ElementsAre("10", "m", "²", "½", "x"));
  EXPECT_THAT(PiecesOf(steps[0], "a\u200Cb\u200Dc"), ElementsAre("a\u200Cb\u200Dc"));
  EXPECT_THAT(PiecesOf(steps[0], " Hey, a_b!?\n\tⓐⅷ\u0301 "),
              ElementsAre("Hey", ",", "a_b", "!?", "ⓐⅷ\u0301"));
  EXPECT_THAT(PiecesOf(steps[0], " \n"), ElementsAre());
}

// Long pieces are merged by a heap, short ones by looking through all: padding with a symbol that
// never merges must not change what comes before it.
TEST(Bpe, MergesLongAndShortPiecesAlike) {
  Vocabulary vocabulary;
  int32_t next = 0;
  for (const char* const text : {"a", "b", "|", "ab", "ba", "aba", "abab", "bb"})
    vocabulary.Add(text, next++);
  PairTable merges;
  merges.Put(0, 1, 2, 3);  // ab
  merges.Put(1, 0, 1, 4);  // ba
  merges.Put(3, 0, 4, 5);  // aba
  merges.Put(3, 3, 0, 6);  // abab
  merges.Put(1, 1, 3, 7);  // bb
  BpeRules rules;
  rules.is_by_bytes = true;
  const Bpe bpe(vocabulary, merges, rules);
  BpeScratch scratch;
  std::mt19937 random(3);
  for (int trial = 0; trial < 500; ++trial) {
    std::string text;
    for (size_t i = 0; i < 1 + random() % 30; ++i) text.push_back(random() % 2 ? 'a' : 'b');
    std::vector<int32_t> shorts, longs;
    bpe.Encode(text, &scratch, &shorts);
    bpe.Encode(text + std::string(60, '|'), &scratch, &longs);
    ASSERT_EQ(longs.size(), shorts.size() + 60) << text;
    longs.resize(shorts.size());
    EXPECT_EQ(longs, shorts) << text;
  }
}

TEST(AddedTokens, TakeSpacesAndMindWordsAsTheyAreTold) {
  AddedToken word{.content = "the", .id = 1, .is_single_word = true};
  AddedToken left{.content = "<l>", .id = 2, .takes_left_space = true};
  AddedToken right{.content = "<r>", .id = 3, .takes_right_space = true};
  const AddedTokens tokens({word, left, right, {.content = "<r>x", .id = 4}});
  std::vector<std::string> found;
  const std::string text = "the other the_ \t<l>a<r> \n b<r>x the";
  ASSERT_TRUE(tokens
                  .Cut(
                      text, Specials::kParse,
                      [&found](int32_t id) { found.push_back(absl::StrCat("#", id)); },
                      [&](size_t begin, size_t end) {
                        found.push_back(text.substr(begin, end - begin));
                        return absl::OkStatus();
                      })
                  .ok());
  EXPECT_THAT(found, ElementsAre("#1", " other the_", "#2", "a", "#3", "b", "#4", " ", "#1"));
}

// Texts of two letters, of which many tokens are beginnings and ends of each other: what is found
// is the longest at the first place where any stands, by the plainest way.
TEST(AddedTokens, AreTheLongestFromTheLeft) {
  std::mt19937 random(5);
  const auto word = [&](size_t most) {
    std::string text;
    for (size_t i = 0; i <= random() % most; ++i) text.push_back(random() % 2 ? 'a' : 'b');
    return text;
  };
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<AddedToken> tokens(1 + random() % 6);
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i].content = word(6);
      tokens[i].id = static_cast<int32_t>(i);
    }
    const std::string text = word(30);
    std::string expected, found;
    for (size_t at = 0; at < text.size();) {
      const AddedToken* longest = nullptr;
      for (const AddedToken& token : tokens) {
        const bool is_here = text.compare(at, token.content.size(), token.content) == 0;
        if (is_here && (!longest || token.content.size() >= longest->content.size())) {
          longest = &token;
        }
      }
      expected += longest ? absl::StrCat("#", longest->id) : text.substr(at, 1);
      at += longest ? longest->content.size() : 1;
    }
    const AddedTokens added(tokens);
    ASSERT_TRUE(added
                    .Cut(
                        text, Specials::kParse,
                        [&found](int32_t id) { absl::StrAppend(&found, "#", id); },
                        [&](size_t begin, size_t end) {
                          found += text.substr(begin, end - begin);
                          return absl::OkStatus();
                        })
                    .ok());
    EXPECT_EQ(found, expected) << text;
  }
}

// A thousand lengths, of which none is found: each byte is read once.
TEST(AddedTokens, OfManyLengthsCostNoMoreThanOne) {
  std::vector<AddedToken> tokens;
  for (size_t bytes = 1; bytes <= 1000; ++bytes) {
    tokens.push_back({.content = std::string(bytes, 'a') + "!", .id = static_cast<int32_t>(bytes)});
  }
  const AddedTokens added(tokens);
  const std::string text(1'000'000, 'a');
  const std::clock_t begin = std::clock();
  size_t rest = 0;
  ASSERT_TRUE(added
                  .Cut(
                      text, Specials::kParse, [](int32_t) {},
                      [&](size_t first, size_t last) {
                        rest += last - first;
                        return absl::OkStatus();
                      })
                  .ok());
  EXPECT_EQ(rest, text.size());
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 1.0);
}

std::vector<std::string> AllFound(const std::string& expression, const std::string& text) {
  const auto regex = Regex::Compile(expression, RegexDialect::kOniguruma);
  EXPECT_TRUE(regex.ok()) << regex.status();
  std::vector<std::string> found;
  RegexScratch scratch;
  for (size_t at = 0; regex.ok() && at < text.size();) {
    const auto match = regex->Find(text, at, regex->NeedsWide(text), &scratch);
    if (!match.ok() || !match->is_found || match->end == match->begin) break;
    found.push_back(text.substr(match->begin, match->end - match->begin));
    at = match->end;
  }
  return found;
}

// Found by Oniguruma 6.9 as tokenizers 0.23 has it.
TEST(Regex, RepeatsRepetitionsAsOnigurumaDoes) {
  EXPECT_THAT(AllFound("a{2,3}+", "aaaaaaab"), ElementsAre("aaaaaa"));
  EXPECT_THAT(AllFound("a{2,3}+b", "aaaaaab"), ElementsAre("aaaaaab"));
  EXPECT_THAT(AllFound("(?:ab){1,2}+", "abababx"), ElementsAre("ababab"));
  EXPECT_THAT(AllFound("\\d{1,3}+5", "12345"), ElementsAre("12345"));
  EXPECT_THAT(AllFound("[ab]{1,2}+c", "ababc"), ElementsAre("ababc"));
  EXPECT_THAT(AllFound("é{2}+", "ééééé"), ElementsAre("éééé"));
  EXPECT_THAT(AllFound("a{2,3}+?", "aaaaaaa"), ElementsAre("aaa", "aaa"));
  EXPECT_THAT(AllFound("xa{2}?y", "xyxaay"), ElementsAre("xy", "xaay"));
  EXPECT_THAT(AllFound("a{2}{2}", "aaaaa"), ElementsAre("aaaa"));
  EXPECT_THAT(AllFound("a{,2}b", "aaab"), ElementsAre("aab"));
  EXPECT_THAT(AllFound("a{1,2}?", "aa"), ElementsAre("a", "a"));
  EXPECT_THAT(AllFound("a{,", "a{,"), ElementsAre("a{,"));
}

TEST(Regex, KnowsScripts) {
  EXPECT_THAT(AllFound("\\p{Han}+", "日本ア々"), ElementsAre("日本", "々"));
  EXPECT_THAT(AllFound("[\\p{hiragana}x]+", "ひxー"), ElementsAre("ひx"));
  EXPECT_THAT(AllFound("\\P{Old_Italic}+", "ab"), ElementsAre("ab"));
  EXPECT_THAT(AllFound("\\p{^Latin}", "aд"), ElementsAre("д"));
  // Each character that is new since PCRE2's tables is of its script once the text is wide.
  std::string text;
  for (const NewerScript& range : NewerScripts()) {
    text.clear();
    AppendCharacter(range.first, &text);
    AppendCharacter(range.last, &text);
    EXPECT_THAT(AllFound(absl::StrCat("\\p{", range.script, "}+"), text), ElementsAre(text));
  }
  const auto regex = Regex::Compile("\\p{Klingon}", RegexDialect::kOniguruma);
  EXPECT_THAT(std::string(regex.status().message()),
              HasSubstr("\\p{Klingon}, which is no general category and no script"));
}

}  // namespace
}  // namespace weft
