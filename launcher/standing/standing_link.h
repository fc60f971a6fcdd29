// StandingLink is the standing agent's stream to weftd (proto/fleet.proto), on threads of its own.
// It dials again when the stream breaks or no lease comes for a lease's length, says HostOffer
// first, and repeats the ends that were not acknowledged. It keeps the offer's lease alive, and
// never waits for the standing agent to do so.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "process/tls_bundle.h"
#include "proto/fleet.pb.h"

namespace weft {

struct StandingLinkOptions {
  std::string coordinator;  // "unix:/path/weftd.sock", or HOST:PORT with a bundle
  BundleSource bundle = {};
  proto::HostOffer offer;  // of the first stream
  int wake_fd = -1;        // an eventfd that is written when Take has something
};

class StandingLink final {
 public:
  explicit StandingLink(StandingLinkOptions options);  // dials at once
  ~StandingLink();                                     // cuts the stream
  StandingLink(const StandingLink&) = delete;
  StandingLink& operator=(const StandingLink&) = delete;

  // REQUIRES: ends come with sequences 1, 2, 3...
  void Say(const proto::OfferReport& report);
  // The next stream's offer says that these run here.
  void SetRunning(const std::vector<proto::RunningAgent>& running);
  // Makes the offer again: the host leaves.
  void SayLeaving();

  // The orders that have come since the last call, and with them what was acknowledged.
  std::vector<proto::OfferOrder> Take();
  // Why weftd wants no more of this agent.
  std::optional<absl::Status> refused() const;
  // Cuts a stream that has brought no lease for a lease's length: another one is dialled. To be
  // called about every second.
  void CutIfQuiet();
  // Waits until all ends are acknowledged, at most `timeout_ms`; not without a stream.
  void Flush(int64_t timeout_ms);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace weft
