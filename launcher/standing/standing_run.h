// The standing agent of this host (`weft agent --standing`): it offers the host to the fleet for as
// long as it runs, and starts, watches and ends an ordinary agent for each allocation that weftd
// gives away here. A shell around standing_agent.h: what happens becomes a fact, what is due is
// done. Its agents outlive it unless it is told to end them: the next one finds them by its
// records.
#pragma once
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "process/tls_bundle.h"

namespace weft {

struct StandingOptions {
  std::string coordinator;               // "unix:/path/weftd.sock", or HOST:PORT with a bundle
  std::string bundle_file = {};          // for a weftd on another host; its agents take the same
  std::string name = {};                 // of this host; empty: the kernel's name for it
  std::string domain = {};               // what fails together with it; its agents say so
  int slots = 0;                         // that it offers; 0: one per GPU, or per core
  std::vector<std::string> allows = {};  // users whose jobs it takes beside its owner's; "*": all
  std::vector<std::string> allowed_env = {};  // variables that jobs of other users may set, too
  std::string program = {};  // what is started as an agent; empty: the weft beside this program
};

// Runs until TERM or INT, which have its jobs saved and end its agents first, or HUP, which leaves
// them to the next standing agent. Returns OK then, why weftd refuses it, or what keeps it from
// beginning. To be called from the main thread, before any other thread starts.
absl::Status RunStandingAgent(const StandingOptions& options);

}  // namespace weft
