#include "process/pair_proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {
namespace {

std::string Proof(const PairRound& round, absl::string_view kind, absl::string_view machine,
                  absl::string_view random) {
  const std::string text = absl::StrCat(kind, " ", round.number, " ", machine, " ", random);
  std::string proof(kProofBytes, '\0');
  unsigned int size = 0;
  const unsigned char* made =
      HMAC(EVP_sha256(), round.secret.data(), static_cast<int>(round.secret.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           reinterpret_cast<unsigned char*>(proof.data()), &size);
  CHECK(made != nullptr && size == kProofBytes);
  return proof;
}

// Takes as long wherever they differ.
bool AreEqual(absl::string_view one, absl::string_view other) {
  return one.size() == other.size() && CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

}  // namespace

std::string NewSecret() {
  std::string secret(kProofBytes, '\0');
  const int made =
      RAND_bytes(reinterpret_cast<unsigned char*>(secret.data()), static_cast<int>(secret.size()));
  CHECK(made == 1);  // the kernel's randomness cannot fail
  return secret;
}

std::string DialMessage(const PairRound& round, absl::string_view machine) {
  const std::string random = NewSecret();
  return random + Proof(round, "dial", machine, random);
}

std::string AnswerTo(const PairRound& round, absl::string_view machine, absl::string_view dial) {
  if (dial.size() != kDialBytes || round.secret.empty()) return "";
  const absl::string_view random = dial.substr(0, kProofBytes);
  const absl::string_view proof = dial.substr(kProofBytes);
  if (!AreEqual(proof, Proof(round, "dial", machine, random))) return "";
  return Proof(round, "answer", machine, random);
}

bool IsAnswerTo(const PairRound& round, absl::string_view machine, absl::string_view dial,
                absl::string_view answer) {
  return AreEqual(answer, Proof(round, "answer", machine, dial.substr(0, kProofBytes)));
}

}  // namespace weft
