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

// The job was stopped on request and may be gone on with.
void Suspend(Job& job);

}  // namespace weft
