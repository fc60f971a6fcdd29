// Keyed hashes by OpenSSL's HMAC-SHA256: whoever can say the hash of a text knows the secret, or
// was told by somebody who does.
#pragma once
#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace weft {

inline constexpr size_t kKeyedHashBytes = 32;

// 32 bytes that nobody can guess.
std::string NewSecret();

// HMAC-SHA256(secret, text): kKeyedHashBytes bytes.
std::string KeyedHash(absl::string_view secret, absl::string_view text);

// Takes as long wherever they differ, so that nobody finds one out byte by byte.
bool AreEqualInSecret(absl::string_view one, absl::string_view other);

}  // namespace weft
