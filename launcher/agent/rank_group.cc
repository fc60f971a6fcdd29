#include "launcher/agent/rank_group.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/machine/child_process.h"
#include "launcher/machine/leftovers.h"
#include "launcher/machine/machine.h"
#include "launcher/machine/mpi_daemon.h"
#include "plan/errors.h"
#include "process/folder_entry.h"
#include "process/log.h"
#include "process/older_file.h"
#include "process/run_files.h"

namespace weft {
namespace {

constexpr int64_t kTailBytes = 8192;

// mpirun's first paragraph for people, in one line. It draws lines of dashes and asterisks between
// those.
std::string FirstWords(absl::string_view output) {
  constexpr size_t kMost = 400;
  std::string words;
  for (absl::string_view line : absl::StrSplit(output, '\n')) {
    const auto is_letter = [](unsigned char c) { return absl::ascii_isalpha(c); };
    const bool is_text = std::any_of(line.begin(), line.end(), is_letter);
    if (!is_text && !words.empty()) break;
    if (!is_text) continue;
    line = absl::StripAsciiWhitespace(line);
    absl::StrAppend(&words, words.empty() ? "" : " ", line.substr(line.find_first_not_of("-* ")));
    if (words.size() > kMost) break;
  }
  if (words.size() > kMost) words = absl::StrCat(words.substr(0, kMost), "...");
  return words.empty() ? "it said nothing" : words;
}

// A notice that a scheduler gives to all processes of a host at once is for agents and ranks. A
// starter that left for TERM would take the ranks along before they have saved, and it would pass
// the others on: shims take a CONT of their starter's for the word that it ends its ranks, and
// Slurm sends CONT with each notice. Shims read signals from a descriptor and unblock them for
// ranks. (env of coreutils 8.31 or newer.)
std::vector<std::string> DeafToNotices(std::vector<std::string> argv) {
  argv.insert(argv.begin(), {"env", "--block-signal=TERM,USR1,USR2,CONT"});
  return argv;
}

// mpirun takes a list of interfaces to use or one to leave, not both: where it is told which to
// use, a person's variables do not say which to leave.
std::vector<std::string> WithoutOtherLists(std::vector<std::string> argv) {
  std::vector<std::string> without = {"env"};
  for (const std::string& word : argv) {
    absl::string_view parameter = word;
    if (!absl::ConsumeSuffix(&parameter, "_if_include")) continue;
    without.insert(without.end(), {"-u", absl::StrCat("OMPI_MCA_", parameter, "_if_exclude")});
  }
  argv.insert(argv.begin(), without.begin(), without.end());
  return argv;
}

// The parent of a process that is there; 0: there is none of that number.
pid_t ParentOf(pid_t pid) {
  std::ifstream stream(absl::StrCat("/proc/", pid, "/status"));
  std::string word;
  pid_t parent = 0;
  while (stream >> word) {
    if (word == "PPid:" && stream >> parent) return parent;
  }
  return 0;
}

}  // namespace

RankGroup::RankGroup(GroupOptions options, GroupKind kind, std::string logs, const ShimDoor& door)
    : options_(std::move(options)), kind_(kind), logs_(std::move(logs)), door_(door) {}

std::string RankGroup::LogOf(int rank) const {
  return absl::StrCat(logs_, "/rank-", rank, ".log");
}

std::string RankGroup::StarterName() const {
  if (kind_ != GroupKind::kGuest) return "mpirun";
  return absl::StrCat("mpirun's daemon on ", options_.hosts[options_.own_host].host);
}

// The folder may be shared by all hosts.
std::string RankGroup::StarterLog() const {
  if (kind_ != GroupKind::kGuest) return logs_ + "/mpirun.log";
  return absl::StrCat(logs_, "/orted-", options_.hosts[options_.own_host].host, ".log");
}

absl::Status RankGroup::Start() {
  const OpenedEntry logs = MakeLogs();
  if (!logs.ok())
    return absl::UnavailableError(absl::StrCat("cannot make ", logs_, ": ", logs.why));
  close(logs.descriptor);
  const std::string above = std::filesystem::path(options_.temporary_folder).parent_path().string();
  RETURN_IF_ERROR(MakePrivateFolder(above));
  RETURN_IF_ERROR(MakePrivateFolder(options_.temporary_folder));
  if (user() != nullptr) {
    RETURN_IF_ERROR(LetPass(above));
    RETURN_IF_ERROR(GiveTo(*user(), options_.temporary_folder));
  }
  if (kind_ == GroupKind::kForked) return StartRanks();
  if (options_.is_env_for_ranks_alone) {  // shims read it
    RETURN_IF_ERROR(WriteWhole(RankEnvironmentPath(options_), RankEnvironmentText(options_)));
  }
  return kind_ == GroupKind::kMpirun ? StartMpirun() : absl::OkStatus();
}

absl::Status RankGroup::StartMpirun() {
  if (options_.hosts.size() > 1) {
    RETURN_IF_ERROR(WriteWhole(HostFilePath(options_), HostFileText(options_, HostName())));
  }
  std::vector<std::string> shim = {"weft-shim", absl::StrCat(options_.generation), logs_};
  const std::vector<std::string> worker = WorkerArgv(options_);
  shim.insert(shim.end(), worker.begin(), worker.end());
  const std::vector<std::string> argv = MpirunArgv(options_, shim);
  if (FindInPath(argv[0]).empty()) {
    return absl::NotFoundError(absl::StrCat("cannot execute ", argv[0], ": not found"));
  }
  // INT ends it as TERM does elsewhere.
  ASSIGN_OR_RETURN(ChildProcess mpirun,
                   ChildProcess::Start({.argv = DeafToNotices(WithoutOtherLists(argv)),
                                        .env = GroupEnvironment(options_),
                                        .output = StarterLog(),
                                        .death_signal = SIGINT,
                                        .user = options_.user}));
  starter_ = mpirun.Release();
  return absl::OkStatus();
}

absl::Status RankGroup::StartDaemon(const std::vector<std::string>& args,
                                    const std::vector<std::string>& first_addresses) {
  ASSIGN_OR_RETURN(const std::string program, FindDaemon());
  ASSIGN_OR_RETURN(const DaemonCommand command,
                   DaemonCommandOf(program, args, first_addresses, options_));
  if (!command.left_out.empty()) {
    LogInfo(absl::StrCat(StarterName(), ": left out ", absl::StrJoin(command.left_out, ", ")));
  }
  ASSIGN_OR_RETURN(ChildProcess daemon, ChildProcess::Start({.argv = DeafToNotices(command.argv),
                                                             .env = GroupEnvironment(options_),
                                                             .output = StarterLog(),
                                                             .death_signal = SIGKILL,
                                                             .user = options_.user}));
  starter_ = daemon.Release();
  return absl::OkStatus();
}

std::optional<HostFact> RankGroup::WishOf(const ShimMessage& message) const {
  const bool is_ours = kind_ == GroupKind::kMpirun && starter_ > 0 &&
                       message.generation == options_.generation &&
                       ParentOf(static_cast<pid_t>(message.pid)) == starter_;
  const std::optional<size_t> host = HostOfNode(options_, message.host);
  if (!is_ours || !host) return std::nullopt;
  return DaemonWished{options_.generation, options_.hosts[*host].host, message.args};
}

absl::Status RankGroup::StartRanks() {
  std::map<std::string, std::string> env = GroupEnvironment(options_);
  env.insert(options_.env.begin(), options_.env.end());
  size_t index = 0;
  for (const int rank : OwnRanks(options_)) {
    const RankPlace place = index < options_.places.size()
                                ? options_.places[index]
                                : RankPlace{.slot = static_cast<int>(index)};
    ++index;
    AddRankVariables(rank, place.slot, options_.world_size, &env);
    ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::Start({.argv = WorkerArgv(options_),
                                                              .env = env,
                                                              .output = LogOf(rank),
                                                              .death_signal = SIGKILL,
                                                              .place = place,
                                                              .user = options_.user}));
    ranks_[child.Release()] = rank;
  }
  return absl::OkStatus();
}

OpenedEntry RankGroup::MakeLogs() const {
  const AsUser as(user());
  return MakeEntryFolder(LogEntryOf(logs_));
}

std::string RankGroup::TailOf(const std::string& log) const {
  const AsUser as(user());
  return ReadEnd(LogEntryOf(log), kTailBytes);
}

std::optional<HostFact> RankGroup::Ended(pid_t child, int wait_status) {
  if (child == starter_) {
    starter_ = -1;
    return StarterExited{options_.generation, StarterName(), wait_status,
                         FirstWords(TailOf(StarterLog()))};
  }
  const auto found = ranks_.find(child);
  if (found == ranks_.end()) return std::nullopt;
  const int rank = found->second;
  ranks_.erase(found);
  return RankExited{options_.generation, rank, wait_status, TailOf(LogOf(rank))};
}

void RankGroup::Term() {
  for (const auto& [pid, rank] : ranks_) kill(pid, SIGTERM);
  door_.Signal(options_.generation, SIGTERM);
}

// Children that were not waited for keep their numbers.
void RankGroup::Kill() {
  for (const auto& [pid, rank] : ranks_) kill(pid, SIGKILL);
  if (starter_ > 0) kill(starter_, SIGKILL);
  door_.Signal(options_.generation, SIGKILL);
  KillProcessesOnce(options_.run_id, ProcessKind::kOfAGeneration, options_.host, IdOf(user()));
}

void RankGroup::RemoveFiles() const {
  std::error_code error;
  std::filesystem::remove_all(options_.temporary_folder, error);
  // The run's own, where it lies elsewhere than the agent's seat: it goes with what is in it.
  rmdir(std::filesystem::path(options_.temporary_folder).parent_path().c_str());
}

}  // namespace weft
