// The keys of a cluster profile (docs/clusters.md): a row per key, with the member of Cluster that
// it fills. Strict like the job file. Pure.
#pragma once
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "plan/keys/key_field.h"
#include "plan/keys/value.h"
#include "plan/spec/cluster.h"

namespace weft {

// Reads a profile that is a map, and checks it.
Cluster ReadClusterMap(const Value& tree, Issues* issues);

// Returns the map that ReadClusterMap reads back as exactly `cluster`.
Value ClusterTree(Cluster cluster);

// Returns 16 hex digits that tell clusters apart whose plans may differ. Two clusters that differ
// in nothing but the price have the same.
std::string ClusterFingerprint(Cluster cluster);

// The dotted keys of a profile, in the order in which they are written.
std::vector<std::string> ClusterKeys();

// The same with what may stand there, for a schema.
struct ClusterKeyForm {
  absl::string_view name;
  FieldForm form;
  bool needed = false;
};
std::vector<ClusterKeyForm> ClusterKeyForms();

}  // namespace weft
