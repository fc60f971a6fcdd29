// PlanOf plans a job that was submitted: it takes the plan that came with it, if the planner's own
// rules find nothing wrong with it on this cluster, else it makes a new one. Pure.
#pragma once
#include <string>

#include "absl/status/status.h"
#include "coordinator/job.h"
#include "plan/spec/cluster.h"

namespace weft {

// Says whether a plan for the cluster of this fingerprint is one for `cluster`. Empty: the plan
// came with the job's own cluster.
bool IsPlannedFor(const Cluster& cluster, const std::string& fingerprint);

// A job that is submitted is planned for what it asks for, one whose next generation is open for as
// many hosts as are there (hosts.h). Returns Planned, or PlanRefused if the layout breaks a rule or
// nothing fits. There is no search where a layout came for this cluster; where it came for another
// one, the note says so.
Event PlanOf(const Job& job);

// Enough hosts are there for a larger plan than the one that is trained. Returns MoreHosts, or
// PlanRefused where there is no such plan after all, or none but the same layout: a generation is
// not ended for nothing.
Event GrowthOf(const Job& job);

// OK if there is a plan for some number of hosts from `least_nodes` to `most_nodes`, such as the
// job's cluster speaks of; with more than 8 numbers the largest ones are planned for, and nothing
// is refused. Else FailedPrecondition with what keeps it off the most hosts. Takes as long as the
// plans.
absl::Status CheckNodes(const JobSpec& spec, int least_nodes, int most_nodes);

}  // namespace weft
