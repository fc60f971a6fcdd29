// The verbs of weftd that keep its certificate authority: `weftd authority`, `weftd issue`, `weftd
// revoke`. They need no coordinator to run.
#pragma once
#include <CLI/CLI.hpp>

#include "absl/status/status.h"

namespace weft {

// Adds them to `app`. The one that was typed is carried out while `app` parses, and leaves in
// `*outcome` how that went.
void AddAuthorityVerbs(CLI::App& app, absl::Status* outcome);

}  // namespace weft
