// AgentLink is the agent's stream to the coordinator, on threads of its own, and with it that of
// its ranks (rank_relay.h). It dials again when the stream breaks, says Hello first, and repeats
// what was not acknowledged. It keeps the host's lease alive, and never waits for the agent to do
// so.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "process/clock.h"
#include "process/tls_bundle.h"
#include "proto/agent.pb.h"

namespace weft {

struct AgentLinkOptions {
  std::string coordinator;  // "unix:/path/weftd.sock", or HOST:PORT with a bundle
  BundleSource bundle;
  std::string rank_socket;               // where ranks dial; must not exist yet
  std::optional<uid_t> ranks_user = {};  // as whom they run, where that is not this user
  proto::Hello hello;                    // of the first stream
  int wake_fd = -1;                      // an eventfd that is written when Take has something
  // The clock of leases, CLOCK_BOOTTIME; another one in tests. From any thread.
  std::function<int64_t()> now_ms = BootTimeMs;
};

class AgentLink final {
 public:
  // Listens for ranks and dials at once.
  static absl::StatusOr<std::unique_ptr<AgentLink>> Start(AgentLinkOptions options);
  ~AgentLink();  // cuts the stream, and those of the ranks
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  // REQUIRES: reports come with sequences 1, 2, 3...
  void Say(const proto::AgentReport& report);

  // The orders that have come since the last call.
  std::vector<proto::AgentOrder> Take();
  // When what runs on this host has to be gone, of CLOCK_BOOTTIME; 0: there was no lease yet.
  int64_t lease_end_ms() const;
  // When its ranks stop themselves, which is before that; 0: there was no lease yet.
  int64_t ranks_stop_ms() const;
  // Why the coordinator wants no more of this agent, or that none was reached for an hour.
  std::optional<absl::Status> refused() const;
  // Everything said is acknowledged.
  bool AllIsAcknowledged() const;
  // Waits until everything said is acknowledged, at most `timeout_ms`; not without a stream.
  void Flush(int64_t timeout_ms);

 private:
  class Impl;
  explicit AgentLink(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace weft
