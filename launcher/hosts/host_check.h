// A host is checked by its agent before it says a word to the coordinator, against what the
// launcher has handed over: the same version, an address in the network, and the run folder, by
// content: a path that exists on both hosts may be two folders.
#pragma once
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/hosts/hand_over.h"

namespace weft {

// The launcher's side: writes a random token into a file of the run folder that is named after it,
// and returns the token.
absl::StatusOr<std::string> WriteToken(const std::string& run_folder);
void RemoveToken(const std::string& run_folder, const std::string& token);

// The agent's side, in this host's name: `version` and `addresses` are this host's own.
// InvalidArgument, naming the host, the thing, what was found and the cure.
absl::Status CheckHost(const std::string& host, const HandOver& expected,
                       const std::string& version, const std::vector<std::string>& addresses);

}  // namespace weft
