// The job as the coordinator sees it: facts in, state out (Apply); state in, duties out (Decide).
// Pure: no clock, no wire, no disk. Replaying the journal through Apply rebuilds the job, and
// Decide may be asked again at any time, because its commands are levels, not edges: the driver
// carries out what has not been carried out yet.
//
// A journal has one current job. A newer submission takes the older one's place and keeps its
// generation counter and, until they are proven dead, its workers.
#pragma once
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/job_state.h"

namespace weft {

// The job after `event`. A fact about another generation than the current one, or one that repeats
// what is known, changes nothing; any other one also raises the revision by one.
Job Apply(Job job, const Event& event);

// Says why a worker that wants to register is turned away, or OK: Aborted for an old generation,
// InvalidArgument for a rank or world size that is not the layout's, AlreadyExists for a rank that
// another process holds. Apply ignores such a worker.
absl::Status CheckRegistration(const Job& job, const Registered& worker);

// The job is suspended though nobody has asked for that: its hosts leave. It is to be tried again
// on others.
bool IsLeftByItsHosts(const Job& job);

// ---- duties ----
struct PlanJob {};
// These go to the agents of the generation's hosts.
struct LaunchWorkers {
  int64_t generation = 0;
};
struct StopWorkers {
  int64_t generation = 0;
  std::string reason;
};
// These go to workers.
struct StartTraining {
  int64_t generation = 0;
};
struct BeginSteps {
  int64_t generation = 0;
};
struct StopTraining {
  int64_t generation = 0;
};
// Tell rank 0 to have all ranks save, and go on.
struct SaveSteps {
  int64_t generation = 0;
  int64_t number = 0;  // Job.save_wishes
};
struct GrantCommit {
  int64_t generation = 0;
  int64_t step = 0;
  int64_t number = 0;
};
struct EndSave {
  int64_t generation = 0;
  int64_t number = 0;
};
struct AbortWorkers {
  int64_t generation = 0;
  std::string reason;
};
using Command = std::variant<PlanJob, LaunchWorkers, StopWorkers, StartTraining, BeginSteps,
                             StopTraining, SaveSteps, GrantCommit, EndSave, AbortWorkers>;

std::vector<Command> Decide(const Job& job);

}  // namespace weft
