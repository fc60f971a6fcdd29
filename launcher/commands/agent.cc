// weft agent: starts, watches and ends the ranks of this host, as the coordinator orders. Started
// by weft run, whose end it does not outlive; it serves generation after generation until then.
// weft agent --standing: offers this host to a weftd's fleet, and starts such agents for its jobs.
#include <stdlib.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/agent/agent_run.h"
#include "launcher/agent/agent_seat.h"
#include "launcher/commands/commands.h"
#include "launcher/hosts/hand_over.h"
#include "launcher/hosts/host_check.h"
#include "launcher/machine/addresses.h"
#include "launcher/machine/leftovers.h"
#include "launcher/machine/machine.h"
#include "launcher/machine/open_mpi.h"
#include "launcher/slurm/allocation.h"
#include "launcher/slurm/first_node.h"
#include "launcher/slurm/topology.h"
#include "launcher/standing/standing_run.h"
#include "plan/errors.h"
#include "plan/spec/failure_domains.h"
#include "process/agent_token.h"
#include "process/log.h"
#include "process/version.h"

namespace weft {
namespace {

constexpr int kHandOverMs = 60000;  // ssh may ask an agent of keys, or a slow directory
constexpr int kClearPatienceMs = 1000;

struct AgentArguments {
  AgentOptions options;
  bool takes_hand_over = false;
  bool stands = false;
  bool checks = false;
  bool clears = false;
  std::vector<std::string> allows = {};
};

// Slurm tells each of its tasks where its node is, even where nobody may ask scontrol.
std::string DomainInSlurm() {
  const char* const address = getenv("SLURM_TOPOLOGY_ADDR");
  const char* const pattern = getenv("SLURM_TOPOLOGY_ADDR_PATTERN");
  if (address == nullptr || pattern == nullptr) return "";
  std::string leaf = LeafOfAddress(address, pattern);
  return IsDomainName(leaf) ? leaf : "";
}

// Slurm's step of this agent is no concern of the ranks.
void DropTaskVariables() {
  ForgetOuterMpirun();
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    std::string name = text.substr(0, text.find('='));
    if (IsOfATask(name)) names.push_back(std::move(name));
  }
  for (const std::string& name : names) unsetenv(name.c_str());
}

// No process that the agent starts is told of its token.
std::string TakeToken() {
  const char* const value = getenv(kAgentTokenVariable);
  std::string token = value == nullptr ? "" : value;
  unsetenv(kAgentTokenVariable);
  return token;
}

// Takes what weft run hands over, and holds this host against it, before anything else is done.
absl::Status TakeHandOver(AgentOptions* options) {
  ASSIGN_OR_RETURN(const HandOver hand_over, ReadHandOver(STDIN_FILENO, kHandOverMs));
  RETURN_IF_ERROR(CheckHost(options->name.empty() ? HostName() : options->name, hand_over,
                            Version(), OwnAddresses(), std::time(nullptr)));
  for (const auto& [name, value] : hand_over.env) setenv(name.c_str(), value.c_str(), 1);
  options->bundle.text = hand_over.bundle;
  return absl::OkStatus();
}

// `others`: options of one job's agent.
void AddStanding(CLI::App& agent, AgentArguments* arguments,
                 const std::vector<CLI::Option*>& others) {
  CLI::Option* standing = agent.add_flag(
      "--standing", arguments->stands, "offer this host to weftd's fleet, for as long as it runs");
  for (CLI::Option* other : others) standing->excludes(other);
  agent
      .add_option("--allow", arguments->allows,
                  "a user whose jobs this host takes beside its owner's; '*': all")
      ->allow_extra_args(false)
      ->needs(standing);
}

void AddDomain(CLI::App& agent, std::string* domain) {
  agent
      .add_option("--domain", *domain,
                  "what fails together with this host: a rack; default: Slurm's switch or block")
      ->check(
          [](const std::string& text) -> std::string {
            return IsDomainName(text) ? "" : absl::StrCat(text, ": ", kDomainNames);
          },
          "NAME");
}

// Returns the options that name some of the slots alone.
std::vector<CLI::Option*> AddSlots(CLI::App& agent, HostSlots* slots) {
  agent
      .add_option("--slots", slots->all,
                  "slots that this host has; default: as the job says of a node")
      ->check(CLI::Range(1, 100000));
  CLI::Option* only =
      agent.add_option("--only-slots", slots->only, "of them only these take ranks: 0,2")
          ->delimiter(',')
          ->check(CLI::Range(0, 99999));
  CLI::Option* without =
      agent.add_option("--without-slots", slots->without, "of them not these: 1,3")
          ->delimiter(',')
          ->check(CLI::Range(0, 99999))
          ->excludes(only);
  return {only, without};
}

std::vector<CLI::Option*> AddRanksUser(CLI::App& agent, AgentOptions* options) {
  CLI::Option* user =
      agent.add_option("--ranks-user", options->ranks_user,
                       "as whom ranks run, where this agent is root: the job's submitter");
  CLI::Option* uid =
      agent.add_option("--ranks-uid", options->ranks_uid, "that user's number for weftd");
  user->needs(uid);
  uid->needs(user);
  return {user, uid};
}

// Returns the options that only look at a run's agent here, or clear up behind it.
std::vector<CLI::Option*> AddLooks(CLI::App& agent, AgentArguments* arguments) {
  CLI::Option* check = agent.add_flag("--check", arguments->checks,
                                      "only look whether the run's agent is on this host");
  CLI::Option* clear = agent.add_flag("--clear", arguments->clears,
                                      "only remove what a killed agent of the run has left here");
  clear->excludes(check);
  return {check, clear};
}

absl::Status Stand(const AgentArguments& arguments) {
  const AgentOptions& options = arguments.options;
  return RunStandingAgent({.coordinator = options.coordinator,
                           .bundle_file = options.bundle.file,
                           .name = options.name,
                           .domain = options.domain,
                           .slots = options.slots.all,
                           .allows = arguments.allows,
                           .allowed_env = options.allowed_env});
}

// Whether the run's agent is on this host.
absl::Status Check(const AgentOptions& options) {
  if (AgentSeat::IsTaken(options.run_id, options.name)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("run ", options.run_id, " has no agent on ",
                                          options.name.empty() ? HostName() : options.name));
}

// Removes what a killed agent of the run has left on this host, to which no other one comes.
absl::Status Clear(const AgentOptions& options) {
  const std::string host = options.name.empty() ? HostName() : options.name;
  KillProcessesOf(options.run_id, ProcessKind::kOfAGeneration, kClearPatienceMs, host);
  if (AgentSeat::Clear(options.run_id, options.name)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("files of run ", options.run_id, " stay on ",
                                                    host, ": an agent of it is there"));
}

int Look(const AgentArguments& arguments) {
  const absl::Status done = arguments.checks ? Check(arguments.options) : Clear(arguments.options);
  return done.ok() ? kExitOk : Fail(done);
}

// The agent of a batch job does this where it hears no coordinator; empty: it is in none.
std::function<void()> SlurmsWatch() {
  const std::optional<BatchJob> job = BatchJobOf(getenv);
  if (!job) return nullptr;
  return [job = *job] {
    const std::string done = RequeueWithoutFirstNode(job);
    if (!done.empty()) LogWarning(done);
  };
}

void CheckOptions(const AgentArguments& arguments) {
  const bool looks = arguments.checks || arguments.clears;
  if (arguments.options.coordinator.empty() && !looks) {
    throw CLI::RequiredError("--coordinator");
  }
  if (!arguments.stands && arguments.options.run_id.empty()) {
    throw CLI::RequiredError("--run-id, or --standing");
  }
}

}  // namespace

void AddAgent(CLI::App& app, int* exit_code) {
  const auto arguments = std::make_shared<AgentArguments>();
  AgentOptions& options = arguments->options;
  CLI::App* agent = app.add_subcommand(
      "agent", "start and watch this host's ranks, or offer the host to a fleet");
  agent->footer(
      "TERM and INT: this host leaves; USR1 and USR2: save and stop. No rank is killed for them.\n"
      "With --standing TERM and INT have the jobs here saved, then it ends; HUP leaves its agents\n"
      "to the next one.");
  agent->add_option("--coordinator", options.coordinator,
                    "unix:<path of weftd's socket>, or HOST:PORT of weftd --listen");
  CLI::Option* run_id = agent->add_option("--run-id", options.run_id,
                                          "names the run's processes and temporary files");
  CLI::Option* job_id =
      agent->add_option("--job-id", options.job_id, "that it works for; default: the only one");
  CLI::Option* allocation = agent->add_option("--allocation", options.allocation,
                                              "of that job, which a standing agent was told of");
  agent->add_option("--name", options.name, "of this host, as its bundle has it; default: its own");
  CLI::Option* foreign =
      agent->add_flag("--of-another", options.is_of_another,
                      "the job is of another user, and may set only variables that tune libraries");
  const std::vector<CLI::Option*> ranks = AddRanksUser(*agent, &options);
  agent
      ->add_option(
          "--allow-env", options.allowed_env,
          "a variable that jobs of other users may set beside those; NAME*: all that begin so")
      ->allow_extra_args(false);
  AddDomain(*agent, &options.domain);
  const std::vector<CLI::Option*> parts = AddSlots(*agent, &options.slots);
  CLI::Option* tls = agent->add_option("--tls", options.bundle.file,
                                       "bundle of `weftd issue agent`, for HOST:PORT");
  CLI::Option* hand_over =
      agent
          ->add_flag("--bundle-from-stdin", arguments->takes_hand_over,
                     "take bundle, environment and checks from standard input: weft run over ssh")
          ->excludes(tls);
  CLI::Option* lifeline = agent->add_flag("--leave-with-stdin", options.leaves_with_stdin,
                                          "end everything when standard input ends");
  const std::vector<CLI::Option*> looks = AddLooks(*agent, arguments.get());
  AddStanding(*agent, arguments.get(),
              {looks[0], looks[1], run_id, job_id, allocation, foreign, ranks[0], ranks[1],
               parts[0], parts[1], hand_over, lifeline});
  // Whoever starts it reads its exit code and its last line, as people do of the other verbs.
  agent->callback([arguments, exit_code] {
    CheckOptions(*arguments);
    if (arguments->checks || arguments->clears) {
      *exit_code = Look(*arguments);
      return;
    }
    if (arguments->options.domain.empty()) arguments->options.domain = DomainInSlurm();
    arguments->options.when_cut_off = SlurmsWatch();
    DropTaskVariables();
    arguments->options.token = TakeToken();
    absl::Status status;
    if (arguments->takes_hand_over) status = TakeHandOver(&arguments->options);
    if (status.ok()) status = arguments->stands ? Stand(*arguments) : RunAgent(arguments->options);
    *exit_code = status.ok() ? kExitOk : Fail(status);
  });
}

}  // namespace weft
