// PairDoor is where other hosts of a check dial this one, and DialPeers is how this one dials them:
// over TCP, by the very addresses that training will use. Both sides prove that the coordinator has
// sent them (process/pair_proof.h); who cannot gets no byte. Every wait is bounded.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "process/pair_proof.h"
#include "proto/agent.pb.h"

namespace weft {

class PairDoor {
 public:
  // Listens at once, answers later. Unavailable if nobody can listen at the address.
  static absl::StatusOr<std::unique_ptr<PairDoor>> Open(const std::string& address);
  ~PairDoor();  // closes it
  PairDoor(const PairDoor&) = delete;
  PairDoor& operator=(const PairDoor&) = delete;

  int port() const;
  // Answers in the name of `machine` until `callers` have come or `limit_ms` are over. To be called
  // once; returns at once.
  void Answer(const PairRound& round, const std::string& machine, int callers, int64_t limit_ms);

 private:
  class Impl;
  explicit PairDoor(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

// Dials all peers together. Returns those that did not answer within `limit_ms`, each with why.
std::vector<proto::Unreached> DialPeers(const PairRound& round,
                                        const std::vector<proto::CheckPeer>& peers,
                                        int64_t limit_ms);

}  // namespace weft
