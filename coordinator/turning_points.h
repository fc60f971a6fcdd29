// The turning points of a job: a generation fails, ends, is gone, and what becomes of the job then.
// Facts (job.cc, hosts.cc) lead to them. Pure.
#pragma once
#include <string>

#include "absl/strings/string_view.h"
#include "coordinator/job_state.h"

namespace weft {

// "rank 1 (node3)"; `host` empty: the one that it registered from, if it has.
std::string RankText(const Job& job, int rank, absl::string_view host);

// Returns what the end of a process, as its parent tells it, says of the generation's end.
GenerationCause CauseOf(const RankEnded& end, const Job& job);

void OpenNextGeneration(Job& job);
// Begins to end the generation; its processes may still be there.
void EndGeneration(Job& job, GenerationCause cause);

// A fault of the current generation: the first one ends it, a later one can only make the cause
// clearer. Returns whether it changed anything.
bool Fail(Job& job, GenerationCause cause, bool permanent);

// The words for a job that failed, or recovers, from the cause known best so far.
void ExplainFailure(Job& job, bool permanent);

// The generation's processes are proven gone, all of them.
void Close(Job& job);

// The job was stopped on request, or its hosts leave; it may be gone on with.
void Suspend(Job& job);

// "host h2 leaves" of those that do; empty: none does.
std::string LeavingText(const Job& job);
// "; step 30 could not be saved (why)" of the generation's last save; empty: it was committed.
std::string NotSavedText(const Job& job);

// Hosts leave, and those that are left are fewer than the job needs.
bool LacksHosts(const Job& job);
// The open generation is not started: too few hosts are left for it.
void CloseForLackOfHosts(Job& job);

}  // namespace weft
