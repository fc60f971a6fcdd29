// Devices that published measurements name, by their data sheets: peaks and links, with what
// training reaches of them by generation (plan/engine/constants.h). No device has a constant of
// its own.
#pragma once
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/engine/constants.h"
#include "plan/spec/cluster.h"

namespace weft {

// Nodes of `gpus_per_node` devices named like "A100-80G" or "H100-80G SXM", as many as `gpus`
// need. `inter_node_bytes_per_s`: nominal, per device; nullopt: the usual network of that device's
// servers. NotFound names the devices that are known.
absl::StatusOr<Cluster> ClusterOf(const TimeConstants& constants, absl::string_view hardware,
                                  int gpus, int gpus_per_node,
                                  std::optional<double> inter_node_bytes_per_s);

}  // namespace weft
