// Measures transfers and collectives on messages of growing sizes among all ranks of a Comm, inside
// nodes and across them. Every rank makes the same calls.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/spec/cluster.h"
#include "worker/backend/comm.h"
#include "worker/backend/device.h"

namespace weft {

struct LinkTimes {
  int nodes = 1;
  int ranks_per_node = 1;
  std::vector<CollectivePoint> points;
};

// Takes within about `seconds`, as far as the slowest link lets it. `node`: a number that ranks on
// one node have in common and no other has, a whole one below 2^53. The groups that it makes stay
// with the Comm. FailedPrecondition, on all ranks, for a world of one rank or one whose nodes
// differ in their number of ranks; ResourceExhausted if the device has no room for the largest
// message (8 MiB; on a GPU 256 MiB); else the Comm's own errors. `moved` is called after each
// point, by an eighth of `seconds` apart unless the links are much slower than they were before.
absl::StatusOr<LinkTimes> MeasureLinks(BackendKind backend, Device& device, Comm& comm, double node,
                                       double seconds, const std::function<void()>& moved);

// "ranks": 4, "nodes": 2, "collectives": [{"collective", "ranks", "nodes", "bytes", "seconds"}]:
// the inside of a JSON object.
std::string LinksJson(const LinkTimes& links);

}  // namespace weft
