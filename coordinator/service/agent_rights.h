// AgentRights says which agents may work for an allocation of a job: one on each machine that the
// fleet has given to it, which shows the token that it was started with and comes from where that
// machine was offered. Made when the job is placed, and asked on gRPC's threads.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/agent_door.h"
#include "coordinator/fleet/fleet_state.h"
#include "proto/agent.pb.h"

namespace weft {

// The fleet knows agents by it: the secret that tokens are made of, and the newest allocation whose
// agents were started before there were any.
struct TokenSource {
  std::string secret;
  int64_t after_allocation = 0;
};

class AgentRights final {
 public:
  // Nobody may.
  AgentRights() = default;
  // `placed` has its allocation; hosts that the fleet has forgotten get no right.
  AgentRights(const std::string& job_id, const FleetJob& placed,
              const std::map<std::string, FleetHost>& hosts, const TokenSource& source);

  // The allocation was given before there were tokens: its agents are let in until their generation
  // ends, and then others take their place.
  bool is_older() const { return is_older_; }
  // The token of the agent there; empty: none is to be there.
  std::string TokenFor(const std::string& machine) const;
  // Aborted, in the same words whatever is wrong: who has no right learns nothing of those who do.
  absl::StatusOr<AgentStay> Check(const proto::Hello& hello, const AgentPeer& peer) const;

 private:
  struct Right {
    std::string token;
    std::string host;
    int64_t owner_uid = -1;
  };
  std::string job_id_;
  int64_t allocation_ = 0;
  bool is_older_ = false;                // than tokens are
  std::map<std::string, Right> rights_;  // by machine
};

// Why an agent is let in for no job.
absl::Status NoRight(const proto::Hello& hello);

}  // namespace weft
