// A host is checked by its agent before it says a word to the coordinator, against what the
// launcher has handed over: the same version, a clock by which its certificate holds, and, where
// there is no preflight to do that and more (launcher/agent/host_checks.h), an address in the
// network and the run folder, by content.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/hosts/hand_over.h"

namespace weft {

// In this host's name: `version`, `addresses` and `now_s` (Unix time) are this host's own.
// InvalidArgument, naming the host, the thing, what was found and the cure.
absl::Status CheckHost(const std::string& host, const HandOver& expected,
                       const std::string& version, const std::vector<std::string>& addresses,
                       int64_t now_s);

}  // namespace weft
