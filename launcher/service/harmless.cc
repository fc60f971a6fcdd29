#include "launcher/service/harmless.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "data/unicode.h"

namespace weft {
namespace {

constexpr size_t kTabStop = 8;

using Characters = std::pair<char32_t, char32_t>;
// Blocks of Unicode's East Asian Width W and F, as far as whole blocks tell.
constexpr std::array<Characters, 10> kWide = {{{0x1100, 0x115f},
                                               {0x2e80, 0xa4cf},
                                               {0xac00, 0xd7a3},
                                               {0xf900, 0xfaff},
                                               {0xfe30, 0xfe6f},
                                               {0xff00, 0xff60},
                                               {0xffe0, 0xffe6},
                                               {0x1f300, 0x1f64f},
                                               {0x1f900, 0x1f9ff},
                                               {0x20000, 0x3fffd}}};
constexpr std::array<Characters, 4> kNoWidth = {
    {{0x300, 0x36f}, {0x200b, 0x200f}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}}};

template <size_t N>
bool LiesIn(char32_t value, const std::array<Characters, N>& ranges) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const Characters& range) {
    return value >= range.first && value <= range.second;
  });
}

int WidthOf(char32_t value) {
  if (LiesIn(value, kNoWidth)) return 0;
  return LiesIn(value, kWide) ? 2 : 1;
}

}  // namespace

std::string Harmless(absl::string_view line) {
  std::string shown;
  for (const char byte : Printable(line)) {
    if (byte == '\n') {
      absl::StrAppend(&shown, "\\x0a");
    } else if (byte == '\t') {
      shown.append(kTabStop - shown.size() % kTabStop, ' ');
    } else {
      shown.push_back(byte);
    }
  }
  return shown;
}

std::vector<std::string> HarmlessLines(absl::string_view text, size_t most_lines) {
  std::vector<std::string> lines;
  absl::ConsumeSuffix(&text, "\n");
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    absl::ConsumeSuffix(&line, "\r");
    lines.push_back(Harmless(line));
    if (most_lines > 0 && lines.size() == most_lines) break;
  }
  return lines;
}

int ColumnsOf(absl::string_view text) {
  int columns = 0;
  for (size_t at = 0; at < text.size();) {
    const Character character = CharacterAt(text, at);
    columns += WidthOf(character.code_point);
    at += static_cast<size_t>(character.bytes);
  }
  return columns;
}

std::string CutTo(absl::string_view text, int columns) {
  if (ColumnsOf(text) <= columns) return std::string(text);
  int used = 1;  // of the mark
  size_t end = 0;
  while (end < text.size()) {
    const Character character = CharacterAt(text, end);
    used += WidthOf(character.code_point);
    if (used > columns) break;
    end += static_cast<size_t>(character.bytes);
  }
  return absl::StrCat(text.substr(0, end), "~");
}

}  // namespace weft
