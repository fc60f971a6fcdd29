// AgentLink is the agent's stream to the coordinator, on threads of its own. It dials again when
// the stream breaks, says Hello first, and repeats what was not acknowledged. The only file of the
// agent that sees gRPC (agent_link.cc).
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "process/tls_bundle.h"
#include "proto/agent.pb.h"

namespace weft {

struct AgentLinkOptions {
  std::string coordinator;  // "unix:/path/weftd.sock", or HOST:PORT with a bundle
  BundleSource bundle;
  proto::Hello hello;  // of the first stream
  int wake_fd = -1;    // an eventfd that is written when Take has something
};

class AgentLink final {
 public:
  explicit AgentLink(AgentLinkOptions options);  // dials at once
  ~AgentLink();                                  // cuts the stream
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  // REQUIRES: reports come with sequences 1, 2, 3...
  void Say(const proto::AgentReport& report);

  // The orders that have come since the last call.
  std::vector<proto::AgentOrder> Take();
  // Why the coordinator wants no more of this agent, or that none was reached for an hour.
  std::optional<absl::Status> refused() const;
  // Waits until everything said is acknowledged, at most `timeout_ms`; not without a stream.
  void Flush(int64_t timeout_ms);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace weft
