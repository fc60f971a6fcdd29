// Trees of values: where keys are put, and how they are printed as YAML.
#include "plan/keys/value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/keys/value_text.h"

namespace weft {
namespace {

TEST(Value, IsPutWhereItsKeySays) {
  Value tree = Value::Map();
  EXPECT_TRUE(tree.Put("a.b.c", Value::Whole(1)));
  EXPECT_TRUE(tree.Put("a.d", Value::Whole(2)));
  EXPECT_TRUE(tree.Put("a.b.c", Value::Whole(3)));
  EXPECT_EQ(LinesText(tree, 0), "a:\n  b: {c: 3}\n  d: 2\n");
  EXPECT_FALSE(tree.Put("a.d.e", Value::Whole(4)));
  EXPECT_EQ(LinesText(tree, 0), "a:\n  b: {c: 3}\n  d: 2\n");
}

TEST(ValueText, QuotesTextsAndKeepsNumbers) {
  Value tree = Value::Map();
  tree.Put("text", Value::Text("a \"b\" \\ \n"));
  tree.Put("number", Value::Number(0.1));
  tree.Put("flag", Value::Flag(true));
  tree.Put("nothing", Value());
  tree.Put("list", Value::List({Value::Whole(1), Value::Text("12")}));
  Value item = Value::Map();
  item.Put("path", Value::Text("/a"));
  tree.Put("maps", Value::List({item, item}));
  Value names = Value::Map();
  names.entries = {{"null", Value::Text("x")}, {"A1", Value::Text("y")}};
  tree.Put("names", names);
  EXPECT_EQ(LinesText(tree, 2),
            "  text: \"a \\\"b\\\" \\\\ \\x0a\"\n"
            "  number: 0.1\n"
            "  flag: true\n"
            "  nothing: null\n"
            "  list: [1, \"12\"]\n"
            "  maps:\n"
            "    - {path: \"/a\"}\n"
            "    - {path: \"/a\"}\n"
            "  names: {\"null\": \"x\", \"A1\": \"y\"}\n");
  EXPECT_EQ(LineText(*tree.Find("maps")), "- {path: \"/a\"} - {path: \"/a\"}");
}

TEST(Shown, CutsBetweenCharacters) {
  EXPECT_EQ(Shown("short"), "short");
  const std::string most(56, 'a');
  EXPECT_EQ(Shown(most + "\xc3\xa4" + "bcdef"), most + "...");
}

}  // namespace
}  // namespace weft
