// The token of an agent: by it the fleet knows the agent that it has sent to a host for a job. It
// is told with the launch of that agent alone (proto/fleet.proto, StartAgent), comes back in its
// Hello, and is made of the fleet's secret each time, so that a restarted weftd knows it too.
#pragma once
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace weft {

// A standing agent tells it to the agent that it starts by this variable of the environment, which
// that one removes before it starts anything: command lines are everybody's to read.
inline constexpr char kAgentTokenVariable[] = "WEFT_AGENT_TOKEN";

// An AgentPost says what for and where an agent is: its token is of no other post.
struct AgentPost {
  std::string job_id;  // "job-17"
  int64_t allocation = 0;
  std::string machine;  // as Hello's
  std::string host;
};

// 64 hex digits. `secret`: of the fleet, process/keyed_hash.h's NewSecret.
std::string AgentToken(absl::string_view secret, const AgentPost& post);

}  // namespace weft
