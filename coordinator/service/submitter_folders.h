// weftd makes the folders of a job whose submitter is another user of this host, as its own, before
// the job is queued, and lets the submitter read them (process/folder_reader.h). A folder that is
// there already has to be the submitter's, or made for it: else a job would write into the run of
// somebody else, since weftd's user may.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "coordinator/service/caller.h"
#include "proto/weft/v1/control.pb.h"

namespace weft {

// Returns the user of that id, where it is one of this host and not this process's own.
std::optional<uid_t> OtherUser(int64_t uid);

// Makes the run folder, and that of the checkpoints where it lies elsewhere. InvalidArgument, which
// names the folder and the cure; OK and nothing done for this process's own user and for callers
// from the network. REQUIRES: the submission's job can be read.
absl::Status MakeFoldersFor(const Caller& caller, const v1::Submission& submission);

}  // namespace weft
