// Links between hosts, for `weft calibrate --hosts`: a small job of `weft run` on these hosts,
// whose ranks measure before they train (comm.measure_seconds).
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/hosts/host_list.h"
#include "plan/spec/cluster.h"

namespace weft {

struct HostsProbe {
  HostWords words;                     // which hosts, as they were typed
  int hosts = 0;                       // how many these are
  int slots = 1;                       // workers on each
  int threads = 1;                     // BLAS threads of a CPU worker
  std::vector<std::string> sets = {};  // KEY=VALUE of the job
  double seconds = 20;
  // For the run: new, on a file system that all hosts share; gone at the end.
  std::string folder = {};
  const std::atomic<bool>* stop = nullptr;  // Ctrl-C; may be null
};

// `cluster`: the profile of each of the hosts. Returns what the run's links.json holds. Cancelled
// if stopped; InvalidArgument, FailedPrecondition and Unavailable as `weft run` has ended, in its
// last words, with its folder left there to be read.
absl::StatusOr<std::string> MeasureOnHosts(const HostsProbe& probe, const Cluster& cluster);

}  // namespace weft
