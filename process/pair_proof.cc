#include "process/pair_proof.h"

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

std::string Proof(const PairRound& round, absl::string_view kind, absl::string_view machine,
                  absl::string_view random) {
  const std::string text = absl::StrCat(kind, " ", round.number, " ", machine, " ", random);
  return KeyedHash(round.secret, text);
}

}  // namespace

std::string DialMessage(const PairRound& round, absl::string_view machine) {
  const std::string random = NewSecret();
  return random + Proof(round, "dial", machine, random);
}

std::string AnswerTo(const PairRound& round, absl::string_view machine, absl::string_view dial) {
  if (dial.size() != kDialBytes || round.secret.empty()) return "";
  const absl::string_view random = dial.substr(0, kProofBytes);
  const absl::string_view proof = dial.substr(kProofBytes);
  if (!AreEqualInSecret(proof, Proof(round, "dial", machine, random))) return "";
  return Proof(round, "answer", machine, random);
}

bool IsAnswerTo(const PairRound& round, absl::string_view machine, absl::string_view dial,
                absl::string_view answer) {
  return AreEqualInSecret(answer, Proof(round, "answer", machine, dial.substr(0, kProofBytes)));
}

}  // namespace weft
