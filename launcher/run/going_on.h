// Going on with a run: what may change since it was run before (execution may, mathematics may
// not), which checkpoints are its own, and which of them it resumes from. Checkpoints that are not
// its own are neither loaded nor touched; a run that has saved never begins anew by itself.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/run/run_folder.h"
#include "plan/spec/job_spec.h"
#include "text/json_lines.h"

namespace weft {

struct OlderCheckpoint {
  int64_t step = 0;
  std::string folder;  // absolute
};

// A MovedRun is one that was moved out of the run folder (--fresh).
struct MovedRun {
  std::string id;      // empty: not known, or still another folder's
  std::string folder;  // where it is now; empty: it had none
};

// A Continuation says how a run goes on. `notes`: accepted changes, for people.
struct Continuation {
  int64_t after_step = 0;
  std::string load_checkpoint;           // empty: from the start
  std::vector<OlderCheckpoint> older;    // newest first; looked at, not verified
  RunIdentity run;                       // a new one for a run that begins
  int64_t last_generation = 0;           // highest that it has left on the disk
  std::vector<std::string> notes;        // what is not as in the run before
  std::vector<std::string> damaged;      // checkpoints passed over: "step-20: ...", newest first
  std::vector<std::string> passed_over;  // step folders that are not this run's
  std::vector<MovedRun> moved_aside;     // what is left of them is to be ended
};

// Compares with the run before and finds the checkpoint. `saved_step`: the last that the run is
// known to have saved. `accept`: keys whose change a person takes (IsAcceptable); it is recorded in
// run.accepted, and the optimizer's states go on. InvalidArgument with the list of refused changes,
// the owner of a checkpoint folder that is another's, or what became of the checkpoints where
// nothing usable is left. `run_id`: as the folder says it (run_identity.h); empty: as the run
// before or the checkpoints say. REQUIRES: `job` came from Resolve().
absl::StatusOr<Continuation> Continue(const JobSpec& job, const std::vector<std::string>& data,
                                      const std::optional<PreviousRun>& previous,
                                      std::optional<int64_t> saved_step,
                                      const std::vector<std::string>& accept = {},
                                      const std::string& run_id = "");

// The last commit that the end of events.jsonl tells of; *left_out has its lines that cannot be
// read.
std::optional<int64_t> LastSavedStep(const RunPaths& paths, LinesLeftOut* left_out);

// Compares the room of the checkpoint folder's disk with `checkpoint_bytes` times what the job
// keeps and one that is being written; what the run has there already counts as room. `note` says
// that it will be tight; FailedPrecondition if a second checkpoint could never be written.
absl::Status CheckRoom(const JobSpec& job, const RunIdentity& run, int64_t checkpoint_bytes,
                       std::string* note);

}  // namespace weft
