#include "data/unicode.h"

#include <gtest/gtest.h>

#include <string>

namespace weft {
namespace {

TEST(Printable, KeepsTextAndSpellsOutTheRest) {
  const struct {
    std::string text, shown;
  } cases[] = {
      {"", ""},
      {"a line\n\tand another", "a line\n\tand another"},
      {"gr\xc3\xbc\xc3\x9f \xf0\x9f\xa7\xb5", "gr\xc3\xbc\xc3\x9f \xf0\x9f\xa7\xb5"},
      {"\x1b[31mred\r\x7f", "\\x1b[31mred\\x0d\\x7f"},
      {std::string("nul\0", 4), "nul\\x00"},
      {"\xff\xc3", "\\xff\\xc3"},  // in no character; half of one
      {"\xc2\x9b"
       "2J",
       "\\xc2\\x9b2J"},                                   // CSI in one character
      {"\xe2\x80\xaetxt.exe", "\\xe2\\x80\\xaetxt.exe"},  // right to left from here on
      {"\xe2\x81\xa6|\xe2\x81\xa9", "\\xe2\\x81\\xa6|\\xe2\\x81\\xa9"},
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},  // half of a surrogate pair
  };
  for (const auto& c : cases) EXPECT_EQ(Printable(c.text), c.shown);
}

}  // namespace
}  // namespace weft
