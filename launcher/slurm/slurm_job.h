// Slurm's own record of a job, as `scontrol show job --oneliner` and `scontrol show config` print
// it, and what is to become of a job whose run has ended. Texts and values in, values out. Pure.
#pragma once
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace weft {

struct SlurmJob {
  std::string id;
  std::string state;       // RUNNING, PENDING, COMPLETING...
  std::string reason;      // None, Resources, TimeLimit...
  std::string start_time;  // as Slurm prints it: local time, or Unknown
  std::string end_time;
  std::string preempt_time;  // None: nobody wants its nodes
  std::string node_list;     // (null): it has none
  int restarts = 0;
};

// A field that is not there is empty.
SlurmJob ParseSlurmJob(absl::string_view text);

// True until Slurm is done with the job: it waits, runs, or is on its way to either.
bool IsUnderWay(const SlurmJob& job);

// True if another job is to have its nodes.
bool IsPreempted(const SlurmJob& job);

// Why a job waits, and what is to be done about it: "Resources: waits for free nodes".
std::string ReasonMeaning(absl::string_view reason);

enum class AfterRun {
  kLeave,    // nothing more: it is done, or a person has ended it
  kRequeue,  // the same job is to run again
  kHold,     // requeued, but held: it would fail in the same way
};

struct EndedRun {
  bool may_go_on = false;  // it was saved, or its coordinator was lost
  bool person_stopped = false;
  bool progressed = false;  // a step was committed in this allocation
};

// An allocation that was taken away costs nothing: a job is held only once it has ended
// kMostIdleEnds times in allocations that nobody took, without a step to show for it.
inline constexpr int kMostIdleEnds = 3;
AfterRun AfterRunOf(const EndedRun& run, const SlurmJob& job, int idle_ends);

}  // namespace weft
