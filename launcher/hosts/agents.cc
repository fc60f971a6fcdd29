#include "launcher/hosts/agents.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "launcher/hosts/remote_agent.h"
#include "launcher/machine/addresses.h"
#include "launcher/machine/child_process.h"
#include "launcher/machine/descriptor.h"
#include "launcher/machine/leftovers.h"
#include "launcher/machine/log_tail.h"
#include "launcher/machine/run_launcher.h"
#include "launcher/machine/start.h"
#include "plan/errors.h"
#include "process/authority.h"
#include "process/clock.h"
#include "process/folder_token.h"
#include "process/rpc.h"
#include "process/signals.h"
#include "process/version.h"

namespace weft {
namespace {

constexpr int kMaxStarts = 100;  // a person who kills them for ever is not waited for
constexpr int64_t kFirstPauseMs = 100;
constexpr int64_t kLongestPauseMs = 30000;
// So long weftd may not hear an agent that was up, where its starter should end with it: ssh gives
// a link up after 45 s. Each start in vain may take longer than the one before.
constexpr int64_t kAwayPatienceMs = 30000;
constexpr int64_t kLeastAwayPatienceMs = 2000;  // an agent dials again within 100 ms
constexpr int kLongestAwayTimes = 10;

// An agent that was not heard for its lease has ended its ranks by itself: a starter that does not
// notice, such as srun, is not waited for any longer.
int64_t AwayPatienceMs(const AgentStarter& starter, int64_t lease_ms) {
  if (starter.ends_with_agent) return kAwayPatienceMs;
  return std::clamp(lease_ms, kLeastAwayPatienceMs, kAwayPatienceMs);
}

// This host's address that the others are to dial.
absl::StatusOr<std::string> OwnAddressFor(const std::string& other, const std::string& network) {
  return network.empty() ? AddressTowards(other) : OwnAddressIn(network);
}

absl::Status TakenAway(const std::string& host, const std::string& starter) {
  return absl::UnavailableError(absl::StrCat("host ", host, ": ", starter,
                                             " may not use it any more: it has failed, or was "
                                             "taken out of the allocation"));
}

// A file of this process that goes with it, however it ends, and that its children can open. No
// folder has its name: a key in one outlives a launcher that was killed.
absl::StatusOr<Descriptor> WritePassing(const char* name, const std::string& text) {
  Descriptor file(memfd_create(name, MFD_CLOEXEC));
  const bool is_written =
      file.valid() && fchmod(file.get(), 0600) == 0 &&
      write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (!is_written) return absl::ErrnoToStatus(errno, absl::StrCat("cannot keep ", name));
  return file;
}

}  // namespace

struct Agents::Agent {
  ListedHost host;
  bool is_ours = false;  // a child of this process
  bool is_here = false;  // on this host
  std::string bundle;
  std::optional<ChildProcess> local;
  Descriptor lifeline;  // of `local`
  std::optional<RemoteAgent> remote;
  int starts = 0;
  bool was_up = false;
  bool is_lost = false;        // as was told
  int64_t start_again_ms = 0;  // 0: it runs, or is over
  int64_t away_since_ms = 0;   // weftd does not hear it; 0: it does, or has not been asked
  int starts_in_vain = 0;      // since it was heard
};

Agents::Agents(AgentsOptions options) : options_(std::move(options)) {
  std::vector<ListedHost> hosts = options_.hosts;
  if (hosts.empty()) hosts.push_back({.name = ""});
  for (ListedHost& host : hosts) {
    agents_.push_back(std::make_unique<Agent>());
    agents_.back()->is_here = host.name.empty() || IsThisHost(host.name);
    agents_.back()->is_ours =
        host.name.empty() || (agents_.back()->is_here && !options_.starter.starts_here);
    agents_.back()->host = std::move(host);
  }
}

Agents::~Agents() {
  if (!token_.empty()) RemoveToken(options_.run_folder, token_);
  if (!port_file_.empty()) unlink(port_file_.c_str());
}

absl::StatusOr<std::unique_ptr<NetworkDoor>> Agents::Prepare() {
  const bool all_are_ours =
      std::all_of(agents_.begin(), agents_.end(), [](const auto& agent) { return agent->is_ours; });
  if (all_are_ours) return nullptr;
  port_file_ = PortPath(options_.run_folder);
  unlink(port_file_.c_str());
  if (options_.door) {
    auto door = std::make_unique<NetworkDoor>(*options_.door);
    door->port_file = port_file_;
    return door;
  }
  // A host's own name may stand for the loopback: another one's says more.
  const auto other = std::find_if(agents_.begin(), agents_.end(),
                                  [](const auto& agent) { return !agent->is_here; });
  const auto& towards = other == agents_.end() ? agents_.front() : *other;
  ASSIGN_OR_RETURN(address_, OwnAddressFor(towards->host.name, options_.words.network));
  if (!options_.preflight) {
    token_ = NewToken();
    RETURN_IF_ERROR(WriteToken(options_.run_folder, token_));
  }
  const int64_t now_s = std::time(nullptr);
  ASSIGN_OR_RETURN(const Authority authority, Authority::CreateUnkept(now_s));
  ASSIGN_OR_RETURN(const std::string server, authority.Issue(BundleRole::kServer, {}, now_s));
  for (const auto& agent : agents_) {
    if (agent->is_ours) continue;
    ASSIGN_OR_RETURN(agent->bundle, authority.Issue(BundleRole::kAgent, {agent->host.name}, now_s));
  }
  ASSIGN_OR_RETURN(bundle_file_, WritePassing("server.pem", server));
  return std::make_unique<NetworkDoor>(
      NetworkDoor{.address = AddressText({.host = address_, .port = 0}),
                  .bundle_file = absl::StrCat("/proc/", getpid(), "/fd/", bundle_file_.get()),
                  .port_file = port_file_});
}

absl::Status Agents::StartHere() {
  for (const auto& agent : agents_) {
    if (agent->is_ours) RETURN_IF_ERROR(StartLocal(agent.get()));
  }
  return absl::OkStatus();
}

absl::Status Agents::StartOthers(int port) {
  if (options_.door) return absl::OkStatus();
  port_ = port;
  for (const auto& agent : agents_) {
    if (!agent->is_ours) RETURN_IF_ERROR(StartRemote(agent.get()));
  }
  return absl::OkStatus();
}

// The agent leaves when the other end of its standard input is closed, by us or by our death.
absl::Status Agents::StartLocal(Agent* agent) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot make a pipe");
  const Descriptor read_end(ends[0]);
  agent->lifeline = Descriptor(ends[1]);
  agent->local.reset();
  std::map<std::string, std::string> env = options_.env;
  env[kRunVariable] = options_.run_id;
  env[kLauncherVariable] = LauncherMark();
  std::vector<std::string> argv = {
      Beside("weft"), "agent", absl::StrCat("--coordinator=unix:", options_.socket),
      absl::StrCat("--run-id=", options_.run_id), "--leave-with-stdin"};
  if (!agent->host.name.empty()) argv.push_back(absl::StrCat("--name=", agent->host.name));
  for (std::string& option : SlotOptions(agent->host)) argv.push_back(std::move(option));
  ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::Start({.argv = std::move(argv),
                                                            .env = std::move(env),
                                                            .output = options_.logs + "/agent.log",
                                                            .stdin_fd = read_end.get()}));
  agent->local.emplace(std::move(child));
  ++agent->starts;
  return absl::OkStatus();
}

absl::Status Agents::StartRemote(Agent* agent) {
  const std::string here = Beside("weft");
  std::string program = here;
  if (!options_.words.remote_path.empty()) program = options_.words.remote_path + "/weft";
  RemoteAgentOptions options{
      .host = agent->host,
      .starter = options_.starter,
      .program = program,
      .coordinator = AddressText({.host = address_, .port = port_}),
      .run_id = options_.run_id,
      .hand_over = {.bundle = agent->bundle,
                    .env = options_.env,
                    .version = Version(),
                    .run_folder = options_.preflight ? "" : options_.run_folder,
                    .token = token_,
                    .network = options_.preflight ? "" : options_.words.network},
      .log = absl::StrCat(options_.logs, "/agent-", agent->host.name, ".log")};
  options.hand_over.env[kRunVariable] = options_.run_id;
  agent->remote.reset();
  ASSIGN_OR_RETURN(RemoteAgent remote, RemoteAgent::Start(options));
  agent->remote.emplace(std::move(remote));
  ++agent->starts;
  ++agent->starts_in_vain;
  agent->away_since_ms = 0;
  return absl::OkStatus();
}

bool Agents::HasOthers() const {
  return std::any_of(agents_.begin(), agents_.end(),
                     [](const auto& agent) { return !agent->is_ours; });
}

void Agents::Heard(const std::vector<std::string>& hosts) {
  const std::set<std::string> heard(hosts.begin(), hosts.end());
  const int64_t now_ms = BootTimeMs();
  for (const auto& agent : agents_) {
    if (heard.count(agent->host.name) > 0) {
      agent->away_since_ms = 0;
      agent->starts_in_vain = 0;
      if (agent->is_lost) Tell(agent.get(), absl::OkStatus());
    } else if (agent->away_since_ms == 0) {
      agent->away_since_ms = now_ms;
    }
  }
}

std::vector<pid_t> Agents::pids() const {
  std::vector<pid_t> pids;
  for (const auto& agent : agents_) {
    if (agent->local) pids.push_back(agent->local->pid());
    if (agent->remote) pids.push_back(agent->remote->pid());
  }
  return pids;
}

absl::Status Agents::Look() {
  for (const auto& agent : agents_) {
    if (agent->local) {
      if (const std::optional<int> status = agent->local->Ended()) {
        RETURN_IF_ERROR(LocalEnded(agent.get(), *status));
      }
    }
    if (agent->remote) {
      RETURN_IF_ERROR(LookAtRemote(agent.get()));
    } else if (agent->start_again_ms > 0 && BootTimeMs() >= agent->start_again_ms) {
      agent->start_again_ms = 0;
      RETURN_IF_ERROR(StartRemote(agent.get()));
    }
  }
  return absl::OkStatus();
}

// A starter may never notice that what it has started is gone: srun does not when Slurm's own
// process on that host is killed. weftd knows whom it hears.
absl::Status Agents::LookAtRemote(Agent* agent) {
  agent->was_up = agent->was_up || agent->remote->CameUp();
  if (const std::optional<absl::Status> why = agent->remote->Ended()) {
    return RemoteEnded(agent, *why);
  }
  if (!agent->was_up || agent->away_since_ms == 0) return absl::OkStatus();
  const int64_t away_ms = BootTimeMs() - agent->away_since_ms;
  const int64_t patience_ms = AwayPatienceMs(options_.starter, options_.lease_ms);
  if (away_ms < patience_ms * std::clamp(agent->starts_in_vain, 1, kLongestAwayTimes)) {
    return absl::OkStatus();
  }
  return RemoteEnded(agent, absl::UnavailableError(absl::StrCat(
                                "host ", agent->host.name, ": its agent was not heard for ",
                                away_ms / 1000, " s, but ", options_.starter.name, ", process ",
                                agent->remote->pid(), ", does not end, and is killed")));
}

absl::Status Agents::LocalEnded(Agent* agent, int wait_status) {
  const bool has_no_room = WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGBUS;
  if (has_no_room) {
    return absl::UnavailableError(
        absl::StrCat("the agent was killed by signal ", SIGBUS, " (SIGBUS): ", kNoRoomForMapping));
  }
  if (WIFEXITED(wait_status) || agent->starts >= kMaxStarts) {
    const std::string log = options_.logs + "/agent.log";
    const std::string words = LastReasons(ReadTail(log, 4096), 1, 1000);
    return absl::UnavailableError(
        absl::StrCat("the agent ended", words.empty() ? " and has not said why" : ": ",
                     absl::StripPrefix(words, "weft: "), "; its log is ", log));
  }
  options_.say(absl::StrCat("the agent was killed by signal ", WTERMSIG(wait_status),
                            "; it is started again"));
  return StartLocal(agent);
}

// A host that was there is waited for: a link may be down for a while. One that never came up has
// something wrong with it that a person has to mend. One that a scheduler has taken away does not
// come back, but others may be had: the run goes on with those that are left, or is tried again.
absl::Status Agents::RemoteEnded(Agent* agent, const absl::Status& end) {
  const bool taken = agent->was_up && absl::IsNotFound(end);
  const absl::Status why = taken ? TakenAway(agent->host.name, options_.starter.name) : end;
  const bool lost = agent->was_up && absl::IsUnavailable(why) && !taken;
  if (!lost && !why.ok() && options_.leaves_out && options_.leaves_out(agent->host.name, why)) {
    agent->remote.reset();
    Tell(agent, why);
    return absl::OkStatus();
  }
  if (!lost || agent->starts >= kMaxStarts) {
    if (why.ok()) {
      return absl::UnavailableError(
          absl::StrCat("host ", agent->host.name, ": its agent left by itself"));
    }
    return why;
  }
  options_.say(absl::StrCat(why.message(), "; its agent is started again"));
  if (!agent->is_lost) Tell(agent, why);
  agent->remote.reset();
  const int doublings = std::min(agent->starts - 1, 10);
  agent->start_again_ms = BootTimeMs() + std::min(kFirstPauseMs << doublings, kLongestPauseMs);
  return absl::OkStatus();
}

void Agents::Tell(Agent* agent, const absl::Status& state) {
  agent->is_lost = !state.ok();
  if (options_.changed) options_.changed(agent->host.name, state);
}

void Agents::Leave(int patience_ms) {
  for (const auto& agent : agents_) {
    agent->start_again_ms = 0;
    agent->lifeline.Close();
    if (agent->remote) agent->remote->Leave();
  }
  const auto ended = [](const auto& agent) {
    return (!agent->local || agent->local->Ended()) && (!agent->remote || agent->remote->Ended());
  };
  for (int waited = 0; waited < patience_ms; waited += 2) {
    if (std::all_of(agents_.begin(), agents_.end(), ended)) break;
    usleep(2000);
  }
  for (const auto& agent : agents_) {
    agent->local.reset();
    agent->remote.reset();
    // One that had to be killed has left its files; another host's are its next agent's to remove.
    if (agent->is_here) RemoveTemporaryFolders(options_.run_id, agent->host.name);
  }
}

}  // namespace weft
