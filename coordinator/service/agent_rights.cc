#include "coordinator/service/agent_rights.h"

#include "absl/strings/str_cat.h"
#include "process/agent_token.h"
#include "process/keyed_hash.h"

namespace weft {

AgentRights::AgentRights(const std::string& job_id, const FleetJob& placed,
                         const std::map<std::string, FleetHost>& hosts, const TokenSource& source)
    : job_id_(job_id),
      allocation_(placed.allocation),
      is_older_(placed.allocation <= source.after_allocation) {
  for (const FleetShare& share : placed.shares) {
    const auto host = hosts.find(share.machine);
    if (host == hosts.end()) continue;
    rights_[share.machine] = {
        AgentToken(source.secret, {job_id, placed.allocation, share.machine, host->second.host}),
        host->second.host, host->second.owner_uid};
  }
}

std::string AgentRights::TokenFor(const std::string& machine) const {
  const auto right = rights_.find(machine);
  return right == rights_.end() ? "" : right->second.token;
}

absl::StatusOr<AgentStay> AgentRights::Check(const proto::Hello& hello,
                                             const AgentPeer& peer) const {
  const auto found = rights_.find(hello.machine());
  const bool is_placed = found != rights_.end() && hello.job_id() == job_id_ &&
                         hello.allocation() == allocation_ && hello.host() == found->second.host;
  if (!is_placed) return NoRight(hello);
  const Right& right = found->second;
  const bool comes_from_there =
      peer.uid < 0 ? peer.name == right.host : peer.uid == right.owner_uid;
  if (!comes_from_there) return NoRight(hello);
  if (AreEqualInSecret(hello.token(), right.token)) return AgentStay::kForTheJob;
  if (is_older_ && hello.token().empty()) return AgentStay::kForItsGeneration;
  return NoRight(hello);
}

absl::Status NoRight(const proto::Hello& hello) {
  return absl::AbortedError(absl::StrCat(
      "the agent on \"", hello.host(), "\" has no right to work for job \"", hello.job_id(),
      "\": the fleet has given the job no part of that host, or not to this agent"));
}

}  // namespace weft
