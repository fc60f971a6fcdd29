// `weft run` looks at all this before it starts anything: a failure that would come later, in words
// of the kernel's or of mpirun's, is said here once.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/commands/job_preparation.h"
#include "launcher/hosts/host_list.h"
#include "plan/search/plan.h"
#include "plan/spec/job_spec.h"

namespace weft {

// The hosts that are named have to be those that the job is planned for. `granted_by`: the system
// that has granted them; empty: a person has named them, or there are none.
absl::Status CheckHostCount(const JobSpec& job, const std::vector<ListedHost>& hosts,
                            const std::string& granted_by);

// Refuses what can be planned but not trained yet.
absl::Status CheckTrainable(const JobSpec& job);

// mpirun starts the ranks of a run on this host alone, if they are on CPUs: it has to be there, and
// to work. Other hosts are looked at by their agents.
absl::Status CheckMpi(const JobSpec& job, const std::vector<ListedHost>& hosts);

// The plan's buffers are touched before step 1: better refused now than killed then. A GPU's memory
// is its backend's to look at.
absl::Status CheckMemory(const JobSpec& job, const Plan& plan);
// The part of it that is about `free_bytes` of this machine; empty: not known. FailedPrecondition:
// not even fewer ranks fit.
absl::Status JudgeMemory(const JobSpec& job, std::optional<int64_t> free_bytes);

// Checks that ranks and records have room, removes what attempts that were cut short have left, and
// checks that there is room for the checkpoints that are to come. Prints notes.
absl::Status MakeRoom(const PreparedJob& prepared, const std::vector<ListedHost>& hosts,
                      const RunIdentity& run);

}  // namespace weft
