#include "data/tokenizer/byte_characters.h"

#include <array>
#include <cstdint>

#include "data/tokenizer/categories.h"
#include "data/unicode.h"

namespace weft {
namespace {

constexpr int32_t kNoByte = -1;

struct ByteCharacters {
  std::array<std::string, 256> of_byte;
  std::array<int32_t, 324> byte_of;
};

ByteCharacters MakeByteCharacters() {
  ByteCharacters table;
  table.byte_of.fill(kNoByte);
  char32_t next = 256;
  for (int32_t byte = 0; byte < 256; ++byte) {
    const bool is_itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    const char32_t code_point = is_itself ? static_cast<char32_t>(byte) : next++;
    table.byte_of[code_point] = byte;
    AppendCharacter(code_point, &table.of_byte[static_cast<size_t>(byte)]);
  }
  return table;
}

const ByteCharacters& Table() {
  static const auto* const table = new ByteCharacters(MakeByteCharacters());
  return *table;
}

}  // namespace

std::string CharactersOfBytes(absl::string_view bytes) {
  std::string written;
  written.reserve(bytes.size() * 2);
  for (const char byte : bytes) written += Table().of_byte[static_cast<unsigned char>(byte)];
  return written;
}

bool BytesOfCharacters(absl::string_view written, std::string* bytes) {
  bytes->clear();
  const auto& byte_of = Table().byte_of;
  for (size_t at = 0; at < written.size();) {
    const Character character = CharacterAt(written, at);
    if (character.code_point >= byte_of.size() || byte_of[character.code_point] == kNoByte) {
      bytes->clear();
      return false;
    }
    bytes->push_back(static_cast<char>(byte_of[character.code_point]));
    at += static_cast<size_t>(character.bytes);
  }
  return true;
}

}  // namespace weft
