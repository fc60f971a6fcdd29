// Outgoing holds what a round of the driver's queue has to say until the facts that it follows from
// are durable. What goes to ranks goes by way of their agents: ranks behind one agent that are told
// the same are told by one message. Used by one thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "proto/agent.pb.h"

namespace weft {

// The stream of an agent. `close` ends it, OK or with a reason.
struct AgentPort {
  std::function<void(const proto::AgentOrder&)> send;
  std::function<void(const absl::Status&)> close;
};

class Outgoing final {
 public:
  using Port = std::shared_ptr<const AgentPort>;

  void ToAgent(const Port& agent, proto::AgentOrder order);
  // `order`: a serialised Order for the rank at the other end of the agent's `stream`.
  void ToRank(const Port& agent, int64_t stream, const std::string& order);
  // They do the same, but come before whatever else the round says there.
  void AcknowledgeToAgent(const Port& agent, int64_t sequence);
  void AcknowledgeToRank(const Port& agent, int64_t stream, const std::string& order);
  // Runs once the messages are out, in the order of these calls: with OK, or with why there will be
  // none.
  void Then(std::function<void(const absl::Status&)> what);

  // Says all, and forgets it.
  void Go();
  // Says nothing.
  void Drop(const absl::Status& why);

 private:
  struct Mail {
    Port port;
    std::vector<proto::AgentOrder> acknowledgements;
    std::vector<proto::AgentOrder> orders;
  };
  Mail& MailFor(const Port& agent);

  std::vector<Mail> mail_;  // in the order of each agent's first message
  std::unordered_map<const AgentPort*, size_t> place_;  // in mail_
  std::vector<std::function<void(const absl::Status&)>> then_;
};

}  // namespace weft
