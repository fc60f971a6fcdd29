// Checks of hosts on the wire and in the journal: facts from messages, orders from the job. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/check_round.h"
#include "coordinator/job.h"
#include "proto/agent.pb.h"

namespace weft {

HostChecked FactOf(const proto::HostChecked& message);
proto::HostChecked MessageOf(const HostChecked& fact);

// Watchers are told this of a check: what it says, and once everybody is checked, what that makes
// of those who are too slow or not reached.
std::vector<proto::HostChecked> CheckedEvents(const HostChecked& fact, const Job& after);

// `now_unix_ms`: of this host's clock. REQUIRES: the machine has a part in the round and is
// offered.
proto::AgentOrder CheckHostOrder(const Job& job, const CheckRound& round,
                                 const std::string& machine, const std::string& token,
                                 int64_t now_unix_ms);
proto::AgentOrder CheckPeersOrder(const CheckRound& round, const CheckRound::Turn& turn,
                                  const std::string& secret);
proto::AgentOrder ReadAheadOrder(const std::string& folder);

// A host that did not answer its check in time.
HostChecked NotAnswered(const Job& job, const CheckRound& round, const std::string& machine);

}  // namespace weft
