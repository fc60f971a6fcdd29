#include "launcher/agent/rank_group.h"

#include <csignal>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/machine/child_process.h"
#include "launcher/machine/leftovers.h"
#include "launcher/machine/log_tail.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr int64_t kTailBytes = 8192;

// mpirun's first words for people.
std::string FirstWords(absl::string_view output) {
  size_t begin = 0;
  while (begin < output.size()) {
    const size_t end = std::min(output.find('\n', begin), output.size());
    const absl::string_view line = output.substr(begin, end - begin);
    const size_t word = line.find_first_not_of(" \t-");
    if (word != absl::string_view::npos) return absl::StrCat(line.substr(word));
    begin = end + 1;
  }
  return "it said nothing";
}

}  // namespace

RankGroup::RankGroup(GroupOptions options, bool has_starter, std::string logs, const ShimDoor& door,
                     std::string socket)
    : options_(std::move(options)),
      has_starter_(has_starter),
      logs_(std::move(logs)),
      door_(door),
      socket_(std::move(socket)) {}

std::string RankGroup::LogOf(int rank) const {
  return absl::StrCat(logs_, "/rank-", rank, ".log");
}

absl::Status RankGroup::Start() {
  std::error_code error;
  std::filesystem::create_directories(logs_, error);
  if (error) {
    return absl::UnavailableError(absl::StrCat("cannot make ", logs_, ": ", error.message()));
  }
  RETURN_IF_ERROR(
      MakePrivateFolder(std::filesystem::path(options_.temporary_folder).parent_path().string()));
  RETURN_IF_ERROR(MakePrivateFolder(options_.temporary_folder));
  return has_starter_ ? StartMpirun() : StartRanks();
}

absl::Status RankGroup::StartMpirun() {
  std::vector<std::string> shim = {Beside("weft-shim"), socket_, absl::StrCat(options_.generation),
                                   logs_};
  const std::vector<std::string> worker = WorkerArgv(options_);
  shim.insert(shim.end(), worker.begin(), worker.end());
  ASSIGN_OR_RETURN(ChildProcess mpirun, ChildProcess::Start({.argv = MpirunArgv(options_, shim),
                                                             .env = GroupEnvironment(options_),
                                                             .output = logs_ + "/mpirun.log"}));
  mpirun_ = mpirun.Release();
  return absl::OkStatus();
}

absl::Status RankGroup::StartRanks() {
  std::map<std::string, std::string> env = GroupEnvironment(options_);
  for (int rank = 0; rank < options_.world_size; ++rank) {
    AddRankVariables(rank, options_.world_size, &env);
    ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::Start({.argv = WorkerArgv(options_),
                                                              .env = env,
                                                              .output = LogOf(rank),
                                                              .death_signal = SIGKILL}));
    ranks_[child.Release()] = rank;
  }
  return absl::OkStatus();
}

std::optional<HostFact> RankGroup::Ended(pid_t child, int wait_status) {
  if (child == mpirun_) {
    mpirun_ = -1;
    return StarterExited{options_.generation, wait_status,
                         FirstWords(ReadTail(logs_ + "/mpirun.log", kTailBytes))};
  }
  const auto found = ranks_.find(child);
  if (found == ranks_.end()) return std::nullopt;
  const int rank = found->second;
  ranks_.erase(found);
  return RankExited{options_.generation, rank, wait_status, ReadTail(LogOf(rank), kTailBytes)};
}

void RankGroup::Term() {
  for (const auto& [pid, rank] : ranks_) kill(pid, SIGTERM);
  door_.Signal(options_.generation, SIGTERM);
}

// Children that were not waited for keep their numbers.
void RankGroup::Kill() {
  for (const auto& [pid, rank] : ranks_) kill(pid, SIGKILL);
  if (mpirun_ > 0) kill(mpirun_, SIGKILL);
  door_.Signal(options_.generation, SIGKILL);
  KillProcessesOnce(options_.run_id, ProcessKind::kOfAGeneration);
}

void RankGroup::RemoveFiles() const {
  std::error_code error;
  std::filesystem::remove_all(options_.temporary_folder, error);
}

}  // namespace weft
