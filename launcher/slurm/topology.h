// The network of a cluster, as `scontrol show topology` prints it (plugins tree and block), or as
// Slurm tells a task of its own node: which nodes hang on one leaf switch, or are one block, and so
// fail together. Pure.
#pragma once
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "launcher/hosts/host_list.h"

namespace weft {

// Gives each host the leaf switch or the block that it is in as its domain, and puts hosts of one
// domain next to each other; else the order stays. Does nothing, and returns false, where the text
// says nothing of a host, or they are all in one, or some host has a domain already.
bool SetTopology(absl::string_view text, std::vector<ListedHost>* hosts);

// Returns the leaf switch or the block of the node that a task is on: of SLURM_TOPOLOGY_ADDR,
// "top.s1.h1", and SLURM_TOPOLOGY_ADDR_PATTERN, "switch.switch.node". Empty where there is none, or
// the two do not fit each other.
std::string LeafOfAddress(absl::string_view address, absl::string_view pattern);

// "h1, h3 on s1; h2 on s2", of hosts with domains that stand next to each other.
std::string TopologyText(const std::vector<ListedHost>& hosts);

}  // namespace weft
