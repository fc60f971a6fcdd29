// The folders of a job that weftd serves: its run folder, and that of its checkpoints where it lies
// elsewhere. weftd, who has submitted the job, and the agents that run it may be three users. weftd
// makes the folders as its own before the job is queued, lets the submitter read them, and once the
// job is placed lets those write there as whom its agents and ranks run (process/folder_users.h). A
// folder that is there already has to be the submitter's, or made for it: else a job would write
// into the run of somebody else, since weftd's user may.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/fleet/fleet_state.h"
#include "coordinator/service/caller.h"
#include "process/run_lock.h"
#include "proto/driver.pb.h"
#include "proto/weft/v1/control.pb.h"

namespace weft {

// Returns the user of that id, where it is one of this host and not this process's own.
std::optional<uid_t> OtherUser(int64_t uid);

// Makes the run folder, and that of the checkpoints where it lies elsewhere. InvalidArgument, which
// names the folder and the cure; OK and nothing done for this process's own user, and for callers
// from the network, who may name any folder that was made for no user of this host. REQUIRES: the
// submission's job can be read.
absl::Status MakeFoldersFor(const Caller& caller, const v1::Submission& submission);

// Returns the users as whom the agents and ranks of a placed job run, without this process's own
// and root, who need not be let in. Over the network a user's id is what the host's offer says.
std::set<uid_t> WritersOf(const FleetJob& placed, const std::map<std::string, FleetHost>& hosts);

// Makes what is missing of the folders of the job that is placed now, lets its writers in, and
// takes both locks: a `weft run`, or another weftd, may be in these folders. Hosts expect them to
// be there: a submitter may have come over the network. Errors name the folder and the cure;
// Unavailable: somebody has them.
absl::StatusOr<std::vector<RunLock>> TakeFolders(const std::string& job_name,
                                                 const proto::SubmitJobRequest& request,
                                                 const std::set<uid_t>& writers);

}  // namespace weft
