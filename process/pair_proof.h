// Two hosts that dial each other in a check prove that they know the round's secret, which came to
// both by the coordinator. Whoever listens says nothing before the other one has proven it, so a
// stranger gets no byte; who dials hears a proof too, so nothing that merely listens there counts.
// Messages of fixed size, over keyed hashes (process/keyed_hash.h):
//
//   dial    32 random bytes, HMAC(secret, "dial <round> <machine that listens> " + these bytes)
//   answer  HMAC(secret, "answer <round> <machine that listens> " + these bytes)
//
// A secret is of one round, and a listener takes the same random bytes once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "process/keyed_hash.h"

namespace weft {

inline constexpr size_t kProofBytes = kKeyedHashBytes;
inline constexpr size_t kDialBytes = 2 * kProofBytes;

struct PairRound {
  int64_t number = 0;
  std::string secret;  // NewSecret's
};

// Returns what says that `machine` is dialled.
std::string DialMessage(const PairRound& round, absl::string_view machine);
// The answer of `machine` to a whole dial message; empty: whoever sent it does not know the secret,
// or means another machine or round.
std::string AnswerTo(const PairRound& round, absl::string_view machine, absl::string_view dial);
// Whether `answer` is the one of `machine` to `dial`.
bool IsAnswerTo(const PairRound& round, absl::string_view machine, absl::string_view dial,
                absl::string_view answer);

}  // namespace weft
