#include "launcher/standing/agent_child.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "data/unicode.h"
#include "launcher/machine/child_process.h"
#include "launcher/machine/leftovers.h"
#include "launcher/machine/log_tail.h"
#include "plan/errors.h"
#include "process/agent_token.h"
#include "process/folder_entry.h"

namespace weft {
namespace {

std::string RunOption(const std::string& run_id) {
  return absl::StrCat("--run-id=", run_id);
}

bool HasArgument(pid_t pid, const std::string& argument) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/cmdline"), std::ios::binary);
  for (std::string each; std::getline(file, each, '\0');) {
    if (each == argument) return true;
  }
  return false;
}

// A name of a host is a part of a path here.
std::string FileNameOf(std::string host) {
  std::replace(host.begin(), host.end(), '/', '_');
  return absl::StrCat("agent-", host, ".log");
}

}  // namespace

std::vector<std::string> AgentArgv(const AgentChildOptions& options) {
  const AllocationOrder& order = options.order;
  std::vector<std::string> argv = {options.program,
                                   "agent",
                                   absl::StrCat("--coordinator=", options.coordinator),
                                   absl::StrCat("--job-id=", order.job_id),
                                   absl::StrCat("--allocation=", order.allocation),
                                   RunOption(order.run_id),
                                   absl::StrCat("--slots=", order.host_slots)};
  if (!order.slots.empty()) {
    argv.push_back(absl::StrCat("--only-slots=", absl::StrJoin(order.slots, ",")));
  }
  if (order.is_of_another) argv.emplace_back("--of-another");
  if (!order.ranks_user.empty()) {
    argv.push_back(absl::StrCat("--ranks-user=", order.ranks_user));
    argv.push_back(absl::StrCat("--ranks-uid=", order.ranks_uid));
  }
  for (const std::string& name : options.allowed_env) {
    argv.push_back(absl::StrCat("--allow-env=", name));
  }
  if (!options.name.empty()) argv.push_back(absl::StrCat("--name=", options.name));
  if (!options.domain.empty()) argv.push_back(absl::StrCat("--domain=", options.domain));
  if (!options.bundle_file.empty()) argv.push_back(absl::StrCat("--tls=", options.bundle_file));
  return argv;
}

absl::StatusOr<AgentChild> AgentChild::Start(const AgentChildOptions& options) {
  ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::Start({
                                           .argv = AgentArgv(options),
                                           .env = {{kRunVariable, options.order.run_id},
                                                   {kHostVariable, options.host},
                                                   {kAgentTokenVariable, options.order.token}},
                                           .output = options.words,
                                           .death_signal = 0,  // it outlives us
                                       }));
  Descriptor pidfd = OpenPidfd(child.pid());
  if (!pidfd.valid()) return absl::ErrnoToStatus(errno, "no pidfd of the agent");  // it is killed
  const pid_t pid = child.Release();
  return AgentChild(pid, std::move(pidfd));
}

std::optional<AgentChild> AgentChild::Find(const std::string& run_id, const std::string& host) {
  const auto is_agent = [&](pid_t pid) { return HasArgument(pid, RunOption(run_id)); };
  for (const pid_t pid : ProcessesOf(run_id, ProcessKind::kAny, host)) {
    if (!is_agent(pid)) continue;
    Descriptor pidfd = OpenPidfd(pid);
    // The number may be another's by now.
    if (pidfd.valid() && is_agent(pid)) return AgentChild(pid, std::move(pidfd));
  }
  return std::nullopt;
}

std::optional<ChildEnd> AgentChild::Ended() const {
  pollfd ready{pidfd_.get(), POLLIN, 0};
  if (poll(&ready, 1, 0) <= 0) return std::nullopt;
  siginfo_t info = {};
  const int got = waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG);
  if (got != 0) return ChildEnd{};  // another's child
  if (info.si_pid == 0) return std::nullopt;
  const bool exited = info.si_code == CLD_EXITED;
  return ChildEnd{true, exited ? info.si_status : 0, exited ? 0 : info.si_status};
}

std::string WordsFile(const AllocationOrder& order, const std::string& host,
                      const std::string& folder) {
  if (!order.run_folder.empty()) {
    const EntryPath words = {order.run_folder, absl::StrCat("logs/", FileNameOf(host))};
    const Descriptor logs(MakeEntryFolder({order.run_folder, "logs"}).descriptor);
    const Descriptor file(OpenEntry(words, EntryUse::kAppend).descriptor);
    if (file.valid()) return words.text();
  }
  return absl::StrCat(folder, "/", order.run_id, ".log");
}

int64_t FileSize(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(size);
}

std::string LastWords(const std::string& path, int64_t from) {
  const int64_t own = std::max<int64_t>(0, FileSize(path) - from);
  const int64_t most = std::min<int64_t>(own, static_cast<int64_t>(kMostLastWords));
  std::string words = most > 0 ? Printable(ReadTail(path, most)) : "";
  if (words.size() <= kMostLastWords) return words;
  size_t begin = words.size() - kMostLastWords;  // what is not printable has become longer
  while (begin < words.size() && (static_cast<unsigned char>(words[begin]) & 0xC0) == 0x80) ++begin;
  return words.substr(begin);
}

}  // namespace weft
