// The agent of this host: it starts, watches and ends the ranks that the coordinator orders, over
// many generations, and leaves nothing behind. A shell around host_agent.h: what happens becomes a
// fact, what is due is done.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/agent/host_slots.h"
#include "process/tls_bundle.h"

namespace weft {

struct AgentOptions {
  std::string coordinator;  // "unix:/path/weftd.sock", or HOST:PORT with a bundle
  BundleSource bundle;      // for a coordinator on another host
  std::string domain;       // what fails together with this host; empty: nothing is known
  HostSlots slots;          // of this host, and which of them take ranks
  std::string job_id;       // that it works for; empty: the coordinator's only one
  int64_t allocation = 0;   // of that job, by which the fleet tells its agents; 0: none
  std::string token;        // of that allocation here (process/agent_token.h)
  std::string run_id;       // names this run's processes and temporary files (launcher/machine)
  // Another user than this agent's has submitted the job, and may set only what is listed
  // (allowed_variables.h), and `allowed_env`, which is the operator's.
  bool is_of_another = false;
  // The submitter, as whom ranks and what starts them run, and that user's id for weftd. Empty: as
  // the agent's own user. REQUIRES: the agent is root.
  std::string ranks_user;
  int64_t ranks_uid = 0;
  std::vector<std::string> allowed_env;
  // This host's name among the run's, as it was listed; empty: the kernel's name for it. Agents
  // that share a machine need names, by which each knows its own processes and temporary files.
  std::string name;
  // The agent leaves, and ends what it started, when its standard input ends: whoever started it
  // holds the other end.
  bool leaves_with_stdin = false;
  // Is called every now and then while nothing runs here and the lease is over. It may take
  // seconds.
  std::function<void()> when_cut_off;
};

// Runs until it is to leave. TERM and INT say that the host leaves, USR1 and USR2 ask the
// coordinator to save and stop; of a fleet's job all of them mean the former, after which the agent
// leaves once nothing runs here. Any other one does so once its lease is over. Returns OK;
// Unavailable in that case; why the coordinator refuses this agent; or what keeps it from
// beginning. To be called from the main thread, before any other thread starts.
absl::Status RunAgent(const AgentOptions& options);

}  // namespace weft
