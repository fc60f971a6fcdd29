// Text that comes from jobs, logs and hosts is untrusted: a person's terminal shows it through this
// one function, line by line, and a program gets it as JSON in ASCII (message_json.h). Pure.
#pragma once
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft {

// One line that moves no cursor, changes no color and hides nothing: control characters, a newline
// too, become \x0a; tabs become spaces.
std::string Harmless(absl::string_view line);

// The lines of a text, each harmless, without the empty one after its last newline; at most
// `most_lines` (0: all).
std::vector<std::string> HarmlessLines(absl::string_view text, size_t most_lines = 0);

// Columns that a terminal shows the text in: wide characters (those of East Asia, emoji) take two,
// marks that stand over another none.
int ColumnsOf(absl::string_view text);
// The text within so many columns; what is cut ends with "~".
std::string CutTo(absl::string_view text, int columns);

}  // namespace weft
