// A fleet and its jobs as one message, and back (proto/fleet_journal.proto): a journal that begins
// with it need not keep what came before. Pure.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "coordinator/fleet/fleet.h"
#include "coordinator/service/job_entry.h"
#include "proto/fleet_journal.pb.h"

namespace weft {

struct FleetParts {
  Fleet fleet;
  std::map<int64_t, JobEntry> entries;             // by job
  std::map<std::string, proto::HostOffer> offers;  // by machine
};

// A request as it is kept, without a look at its job, and back.
void WriteRequest(const FleetRequest& asked, proto::FleetJobQueued* message);
FleetRequest ReadRequest(const proto::FleetJobQueued& message);

void WriteParts(const FleetParts& parts, proto::FleetSnapshot* snapshot);
// DataLoss: it holds a value that this version does not know.
absl::Status ReadParts(const proto::FleetSnapshot& snapshot, FleetParts* parts);

}  // namespace weft
