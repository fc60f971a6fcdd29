#include "process/keyed_hash.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "plan/errors.h"

namespace weft {

std::string NewSecret() {
  std::string secret(kKeyedHashBytes, '\0');
  const int made =
      RAND_bytes(reinterpret_cast<unsigned char*>(secret.data()), static_cast<int>(secret.size()));
  CHECK(made == 1);  // the kernel's randomness cannot fail
  return secret;
}

std::string KeyedHash(absl::string_view secret, absl::string_view text) {
  std::string hash(kKeyedHashBytes, '\0');
  unsigned int size = 0;
  const unsigned char* made = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                                   reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                   reinterpret_cast<unsigned char*>(hash.data()), &size);
  CHECK(made != nullptr && size == kKeyedHashBytes);
  return hash;
}

bool AreEqualInSecret(absl::string_view one, absl::string_view other) {
  return one.size() == other.size() && CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

}  // namespace weft
