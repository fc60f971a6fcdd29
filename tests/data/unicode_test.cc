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

TEST(Unicode, TakesAnyBytesApart) {
  EXPECT_EQ(CharacterAt("\xE2\x82\xAC", 0).code_point, 0x20ACu);
  EXPECT_EQ(CharacterAt("\xF0\x9F\x99\x82", 0).code_point, 0x1F642u);
  // Overlong, a surrogate, beyond the last, cut off, a stray continuation.
  for (const char* broken : {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                             "\xE2\x82", "\x82", "\xF8\x88\x80\x80\x80"}) {
    EXPECT_EQ(CharacterAt(broken, 0).code_point, kNoCharacter) << broken;
    EXPECT_EQ(CharacterAt(broken, 0).bytes, 1) << broken;
  }
  EXPECT_EQ(UnfinishedBytes("a\xE2\x82"), 2);
  EXPECT_EQ(UnfinishedBytes("a\xF0\x9F\x99"), 3);
  EXPECT_EQ(UnfinishedBytes("\xC3"), 1);
  EXPECT_EQ(UnfinishedBytes("a\xE2\x82\xAC"), 0);
  EXPECT_EQ(UnfinishedBytes("\x82\x82\x82\x82"), 0);  // never a character: shown as it is
  EXPECT_EQ(UnfinishedBytes(""), 0);
}

TEST(Unicode, TakesWhatIsReplacedApartAsPythonDoes) {
  EXPECT_EQ(BrokenBytes("\xE2\x82z"), 2u);
  EXPECT_EQ(BrokenBytes("\xF0\x9F\x99"), 3u);
  EXPECT_EQ(BrokenBytes("\xC3"), 1u);
  for (const char* broken : {"\x82\x82", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80",
                             "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF8\x88"}) {
    EXPECT_EQ(BrokenBytes(broken), 1u) << broken;
  }
}

}  // namespace
}  // namespace weft
