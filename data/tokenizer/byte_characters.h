// These characters stand for bytes in the files of byte-level tokenizers: 33-126, 161-172 and
// 174-255 are the character of that code, the 68 other bytes U+0100 and up, in order. Pure.
#pragma once
#include <string>

#include "absl/strings/string_view.h"

namespace weft {

// "Ġthe" of " the".
std::string CharactersOfBytes(absl::string_view bytes);

// " the" of "Ġthe"; false, and nothing is written, if one of the characters stands for no byte.
bool BytesOfCharacters(absl::string_view written, std::string* bytes);

}  // namespace weft
