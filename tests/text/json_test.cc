// JSON is read as nlohmann reads it, or refused with where it stands and what is allowed.
#include "text/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string Refusal(const std::string& text, const JsonLimits& limits = {}) {
  const absl::StatusOr<json> read = ParseJson(text, limits);
  if (read.ok()) return "";
  EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseOrderedJson(text, limits).status(), read.status());
  return std::string(read.status().message());
}

std::string Nested(int depth) {
  return std::string(static_cast<size_t>(depth), '[') +
         std::string(static_cast<size_t>(depth), ']');
}

TEST(Json, OfAllKindsIsWhatNlohmannReads) {
  for (const char* text : {"null", "true", "-3", "18446744073709551615", "1.5e3", "\"a\\u00e9\\n\"",
                           "[]", "{}", R"({"b": [1, {"c": null}], "a": {}})", "\xEF\xBB\xBF{}",
                           " [1,\n2] \n", R"({"a":1,"a":2})"}) {
    const absl::StatusOr<json> read = ParseJson(text);
    ASSERT_TRUE(read.ok()) << text << ": " << read.status();
    EXPECT_EQ(*read, json::parse(text)) << text;
    const auto ordered = ParseOrderedJson(text);
    ASSERT_TRUE(ordered.ok()) << text << ": " << ordered.status();
    EXPECT_EQ(ordered->dump(), nlohmann::ordered_json::parse(text).dump()) << text;
  }
}

TEST(Json, OfAnotherFormIsRefusedWithItsPlace) {
  EXPECT_EQ(Refusal(""), "line 1, byte 1: the text ends amid a value; it is not JSON");
  EXPECT_EQ(Refusal("{\"a\":\n [1,"),
            "line 2, byte 11: the text ends amid a value; it is not JSON");
  EXPECT_EQ(Refusal("{\n\"a\": nul}"), "line 2, byte 11: not JSON: found \"\"a\": nul}\"");
  EXPECT_EQ(Refusal("{} x"), "line 1, byte 4: not JSON: found \"{} x\"");
  EXPECT_EQ(Refusal("[1e999]"),
            "line 1, byte 6: found the number \"1e999\", expected none beyond 1.8e308");
  EXPECT_THAT(Refusal("[\"\xFF\"]"), HasSubstr("line 1, byte 3: not JSON: found \"[\"?\""));
  EXPECT_THAT(Refusal("[\"" + std::string(100'000, 'x')), HasSubstr("the text ends amid a value"));
}

TEST(Json, BehindANulIsNotTakenForJson) {
  using namespace std::string_literals;
  EXPECT_EQ(Refusal("{}\n\0garbage"s), "line 2, byte 4: found a NUL byte; it is not JSON");
  EXPECT_EQ(Refusal(std::string(9, '\0')), "line 1, byte 1: found a NUL byte; it is not JSON");
  EXPECT_EQ(ParseJson(R"("\u0000")").value(), json("\0"s));
}

TEST(Json, IsReadToItsDepthAndNoDeeper) {
  EXPECT_EQ(Refusal(Nested(64)), "");
  EXPECT_EQ(Refusal("{\"[[[\": \n" + Nested(64) + "}"),
            "line 2, byte 73: nested deeper than 64, the most that is read of such a text");
  EXPECT_EQ(Refusal(Nested(3), {.most_depth = 2}),
            "line 1, byte 3: nested deeper than 2, the most that is read of such a text");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  for (const std::string& text : {std::string(400'000, '['), Nested(400'000), objects}) {
    EXPECT_THAT(Refusal(text), HasSubstr("nested deeper than 64"));
  }
}

TEST(Json, IsReadToItsSizeAndNoFurther) {
  EXPECT_EQ(Refusal("[12345]", {.most_bytes = 7}), "");
  EXPECT_EQ(Refusal("[12345]", {.most_bytes = 6}),
            "holds 7 bytes, at most 6 are read of such a text");
  EXPECT_THAT(Refusal(std::string((size_t{1} << 20) + 1, ' ')), HasSubstr("at most 1048576"));
}

TEST(Json, HasEachKeyOnceWhereThatIsAsked) {
  const std::string twice = R"({"a": {"k": 1, "k": 1}})";
  EXPECT_EQ(Refusal(twice), "");
  EXPECT_EQ(Refusal(twice, {.is_key_told_once = true}),
            "found the key \"k\" twice in an object, expected each key once");
  EXPECT_EQ(Refusal(R"({"a": {"k": 1}, "k": 1})", {.is_key_told_once = true}), "");
}

// An object of as many keys as fit is read in a moment, in both forms.
TEST(Json, OfManyKeysIsReadSoon) {
  std::string text = "{";
  for (int i = 0; i < 90'000; ++i) absl::StrAppend(&text, i == 0 ? "" : ",", "\"", i, "\":0");
  text += "}";
  EXPECT_EQ(ParseJson(text).value().size(), 90'000u);
  EXPECT_EQ(ParseOrderedJson(text).value().size(), 90'000u);
}

// Damage of a fixed seed: an answer each time, and the answer of nlohmann's own parser.
TEST(Json, ThatIsDamagedIsRefusedOrIsWhatNlohmannReads) {
  const std::string whole = R"({"a": [1, 2.5e3, true, null], "b": {"c": "d\u00e9\\"}, "e": -7})";
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): the same damage each time
  for (int i = 0; i < 5'000; ++i) {
    std::string text = whole;
    for (int hits = 0; hits < 3; ++hits) {
      const size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text[at] = static_cast<char>(1 + random() % 255);
      } else {
        text.erase(at, 1 + random() % 4);
      }
    }
    const json expected = json::parse(text, nullptr, /*allow_exceptions=*/false);
    const absl::StatusOr<json> read = ParseJson(text);
    ASSERT_EQ(read.ok(), !expected.is_discarded()) << text;
    if (read.ok()) {
      EXPECT_EQ(*read, expected) << text;
    }
  }
}

// Few keys are looked for one by one, many by an index.
TEST(Json, TakesTheLastOfEqualKeysHoweverManyThereAre) {
  for (const int keys : {1, 31, 32, 33, 34, 200}) {
    std::string text = "{";
    for (int round = 0; round < 2; ++round) {
      for (int key = 0; key < keys; ++key) {
        absl::StrAppend(&text, text.size() > 1 ? "," : "", "\"k", key, "\":", round * 1000 + key);
      }
    }
    absl::StrAppend(&text, "}");
    const auto ordered = ParseOrderedJson(text);
    ASSERT_TRUE(ordered.ok()) << ordered.status();
    ASSERT_EQ(ordered->size(), static_cast<size_t>(keys));
    int next = 0;
    for (const auto& [key, value] : ordered->items()) {
      EXPECT_EQ(key, absl::StrCat("k", next));
      EXPECT_EQ(value, 1000 + next++);
    }
    EXPECT_FALSE(ParseOrderedJson(text, {.is_key_told_once = true}).ok()) << keys;
    EXPECT_EQ(ParseJson(text)->size(), static_cast<size_t>(keys));
  }
}

}  // namespace
}  // namespace weft
