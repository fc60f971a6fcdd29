// RemoteAgent: the agent of another host, for as long as this object holds its lifeline: ssh's
// standard input (or that of another AgentStarter's program). Belongs to one thread, which lives as
// long as the agent should.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/hosts/agent_starter.h"
#include "launcher/hosts/hand_over.h"
#include "launcher/hosts/host_list.h"
#include "launcher/machine/child_process.h"
#include "launcher/machine/descriptor.h"

namespace weft {

struct RemoteAgentOptions {
  ListedHost host;
  AgentStarter starter;
  std::string program;      // absolute path of weft over there
  std::string coordinator;  // HOST:PORT
  std::string run_id;
  HandOver hand_over;
  std::string log;  // takes what the starter and the agent say; appended
};

class RemoteAgent {
 public:
  // Starts the starter's program; what becomes of it is told by Ended. InvalidArgument if the
  // hand-over is too large; NotFound if there is no such program.
  static absl::StatusOr<RemoteAgent> Start(const RemoteAgentOptions& options);

  const std::string& host() const { return host_; }
  pid_t pid() const { return starter_.pid(); }  // the starter's
  // True once the agent over there has begun: it was let in and the host has passed its check.
  bool CameUp() const;
  // Once the starter has ended: OK if the agent left as it should, else why not.
  std::optional<absl::Status> Ended();
  // Cuts the lifeline: the agent ends what it started and leaves. Ended tells when it has.
  void Leave() { lifeline_.Close(); }

 private:
  RemoteAgent(const RemoteAgentOptions& options, ChildProcess starter, Descriptor lifeline,
              int64_t log_begin);

  std::string Words() const;  // the end of what this starter has said

  std::string host_;
  std::string program_;
  std::string log_;
  int64_t log_begin_ = 0;  // where this starter's words begin
  AgentStarter how_;
  ChildProcess starter_;
  Descriptor lifeline_;
};

}  // namespace weft
