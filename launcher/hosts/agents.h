// Agents: those of a run, one on each of its hosts, for as long as this object holds their
// lifelines. One that is killed, or whose starter is, is started again, and so is one that weftd
// hears no more although its starter goes on; one that says why it cannot go on is believed.
// Belongs to one thread, which lives as long as the agents should.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/hosts/agent_starter.h"
#include "launcher/hosts/host_list.h"
#include "launcher/machine/descriptor.h"
#include "plan/spec/job_spec.h"

namespace weft {

// Returns the file that says at which port agents on other hosts reach the coordinator.
inline std::string PortPath(const std::string& run_folder) {
  return run_folder + "/weftd.port";
}

// NetworkDoor says how weftd is to listen for agents of other hosts.
struct NetworkDoor {
  std::string address;      // of this host; port 0: any
  std::string bundle_file;  // 0600
  std::string port_file;
};

struct AgentsOptions {
  std::vector<ListedHost> hosts;  // none: this host alone
  HostsSpec words;                // their network, and where weft lies there
  AgentStarter starter;           // of those that are not here
  std::string run_id;
  std::string run_folder;
  std::string logs;    // folder for what agents say
  std::string socket;  // of weftd, here
  // Agents of other hosts are somebody else's to start, and dial this door; its port file is ours.
  std::optional<NetworkDoor> door = {};
  int64_t lease_ms = 0;                    // weftd's for a silent agent
  bool preflight = false;                  // weftd has hosts checked: they only have to come up
  std::map<std::string, std::string> env;  // -x: for agents and what they start
  std::function<void(const std::string&)> say;
  // A host that did not come up: true, and it is left out; without this the run cannot go on.
  std::function<bool(const std::string& host, const absl::Status& why)> leaves_out = {};
  // A host was lost or left out, and why; OK: one that was lost is heard again.
  std::function<void(const std::string& host, const absl::Status& state)> changed = {};
};

class Agents {
 public:
  explicit Agents(AgentsOptions options);
  ~Agents();  // as Leave, but does not wait
  Agents(const Agents&) = delete;
  Agents& operator=(const Agents&) = delete;

  // Before weftd starts: finds out which agents are not ours to start and makes them bundles and
  // weftd a door; null if all are ours. Unavailable or InvalidArgument if this host has no address
  // for them.
  absl::StatusOr<std::unique_ptr<NetworkDoor>> Prepare();
  // Starts this host's agent, if it is ours: it dials until weftd listens.
  absl::Status StartHere();
  // Starts the others. `port`: the door's.
  absl::Status StartOthers(int port);

  // Whether it is worth asking weftd whose agents it hears.
  bool HasOthers() const;
  // Takes what weftd says of that: names of hosts.
  void Heard(const std::vector<std::string>& hosts);
  // The processes whose end Look wants to see.
  std::vector<pid_t> pids() const;
  // Starts again what was killed. Unavailable, PermissionDenied or InvalidArgument, naming the
  // host: why the run cannot go on.
  absl::Status Look();

  // Cuts the lifelines, and waits until all have ended, at most `patience_ms`.
  void Leave(int patience_ms);

 private:
  struct Agent;
  absl::Status StartLocal(Agent* agent);
  absl::Status StartRemote(Agent* agent);
  absl::Status LocalEnded(Agent* agent, int wait_status);
  absl::Status LookAtRemote(Agent* agent);
  absl::Status RemoteEnded(Agent* agent, const absl::Status& end);
  void Tell(Agent* agent, const absl::Status& state);

  const AgentsOptions options_;
  std::vector<std::unique_ptr<Agent>> agents_;
  std::string address_;  // of this host, for agents of others
  int port_ = 0;
  std::string token_;       // in the run folder
  std::string port_file_;   // in the run folder; empty: none
  Descriptor bundle_file_;  // weftd's
};

}  // namespace weft
