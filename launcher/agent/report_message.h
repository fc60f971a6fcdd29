// Reports of the agent of a host (host_agent.h), as the coordinator is told them
// (proto/agent.proto). Pure.
#pragma once
#include "launcher/agent/host_agent.h"
#include "proto/agent.pb.h"

namespace weft {

// The end of a rank carries the last lines of its log: five, 2000 bytes in all.
proto::AgentReport MessageOf(const HostReport& report);

}  // namespace weft
