#include "launcher/agent/rank_watch.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/machine/leftovers.h"
#include "plan/errors.h"
#include "process/rank_variables.h"

namespace weft {
namespace {

// A rank that waits still beats its heart: so little is no motion.
constexpr int64_t kIdleCpuMs = 30;
constexpr int64_t kIdleCpuShare = 50;  // one part in so many
constexpr int64_t kIdleIoBytes = 4096;
constexpr int64_t kGlanceEveryMs = 200;

int64_t NumberAfter(const std::string& text, const std::string& key) {
  const size_t at = text.find(key);
  if (at == std::string::npos) return 0;
  return std::strtoll(text.c_str() + at + key.size(), nullptr, 10);
}

// The rank in the environment of a worker that has not opened its page yet.
std::optional<int> RankOfProcess(pid_t pid) {
  if (ProcText(absl::StrCat("/proc/", pid, "/comm")) != "weft-worker\n") return std::nullopt;
  const std::string environment = ProcText(absl::StrCat("/proc/", pid, "/environ"));
  const std::vector<std::string> variables = absl::StrSplit(environment, '\0');
  for (const char* name : kRankVariables) {
    for (const std::string& variable : variables) {
      const std::pair<std::string, std::string> parts =
          absl::StrSplit(variable, absl::MaxSplits('=', 1));
      int rank = 0;
      if (parts.first == name && absl::SimpleAtoi(parts.second, &rank)) return rank;
    }
  }
  return std::nullopt;
}

}  // namespace

std::string ProcText(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

// The fields of /proc/PID/stat follow the program's name, which may hold anything: 1 is the state,
// 12 and 13 are ticks in user and kernel mode (proc(5)).
ProcessState ProcessStateOf(int64_t pid) {
  ProcessState found;
  if (pid <= 0) return found;
  const std::string folder = absl::StrCat("/proc/", pid);
  const std::string stat = ProcText(folder + "/stat");
  const size_t name_end = stat.rfind(") ");
  if (name_end == std::string::npos) return found;
  const std::vector<std::string> fields = absl::StrSplit(stat.substr(name_end + 2), ' ');
  if (fields.size() < 14 || fields[0].empty()) return found;
  found.state = fields[0][0] == 'Z' || fields[0][0] == 'X' ? '-' : fields[0][0];
  int64_t user = 0;
  int64_t kernel = 0;
  if (absl::SimpleAtoi(fields[11], &user) && absl::SimpleAtoi(fields[12], &kernel)) {
    found.cpu_ms = (user + kernel) * 1000 / sysconf(_SC_CLK_TCK);
  }
  const std::string io = ProcText(folder + "/io");
  found.io_bytes = NumberAfter(io, "rchar: ") + NumberAfter(io, "wchar: ");
  found.sleeps_in = ProcText(folder + "/wchan");
  if (found.sleeps_in == "0") found.sleeps_in.clear();
  return found;
}

absl::StatusOr<RankWatch> RankWatch::Create(const std::string& folder, const std::string& run_id,
                                            const std::string& host, const std::vector<int>& ranks,
                                            std::optional<ProcessUser> user) {
  RankWatch watch(run_id, host, std::move(user));
  RETURN_IF_ERROR(MakePrivateFolder(folder));
  if (watch.user() != nullptr) RETURN_IF_ERROR(LetPass(folder));
  for (const int rank : ranks) {
    const std::string path = PagePath(folder, rank);
    RETURN_IF_ERROR(MakePageFile(path));
    ASSIGN_OR_RETURN(PageReader reader, PageReader::Open(path));
    if (watch.user() != nullptr) RETURN_IF_ERROR(GiveTo(*watch.user(), path));
    watch.ranks_.emplace(rank, Rank{.reader = std::move(reader), .page = {}, .process = {}});
  }
  return watch;
}

void RankWatch::Glance(int64_t now_ms) {
  if (now_ms - looked_ms_ < kGlanceEveryMs) return;
  looked_ms_ = now_ms;
  for (auto& [number, rank] : ranks_) LookAt(rank, now_ms);
}

void RankWatch::Look(int64_t now_ms) {
  // Whoever was stopped before it could say who it is.
  const bool all_found = std::all_of(ranks_.begin(), ranks_.end(), [](const auto& each) {
    return each.second.page.rank >= 0 || each.second.pid > 0;
  });
  if (!all_found) FindProcesses();
  looked_ms_ = now_ms;
  for (auto& [number, rank] : ranks_) LookAt(rank, now_ms);
}

void RankWatch::LookAt(Rank& rank, int64_t now_ms) const {
  const bool is_first = rank.moved_ms == 0;
  const absl::StatusOr<PageView> read = rank.reader.Read();
  const PageView page = read.ok() ? *read : PageView();
  if (page.pid > 0) rank.pid = page.pid;
  {
    const AsUser as(user());
    rank.process = ProcessStateOf(rank.pid);
  }
  if (is_first || page.polls != rank.page.polls) rank.polled_ms = now_ms;
  const bool has_changed = is_first || page.changed_boot_ms != rank.page.changed_boot_ms;
  if (has_changed) rank.changed_ms = page.changed_boot_ms > 0 ? page.changed_boot_ms : now_ms;
  // The poll that a call began with counts as the call does.
  rank.polled_ms = std::max(rank.polled_ms, rank.changed_ms);
  rank.page = page;
  const int64_t cpu_ms = rank.process.cpu_ms - rank.moved_cpu_ms;
  const int64_t io_bytes = rank.process.io_bytes - rank.moved_io_bytes;
  const int64_t idle_ms = now_ms - rank.moved_ms;
  const bool works = cpu_ms > kIdleCpuMs + idle_ms / kIdleCpuShare || io_bytes > kIdleIoBytes;
  if (!has_changed && !works) return;
  rank.moved_ms = has_changed && !works ? rank.changed_ms : now_ms;
  rank.moved_cpu_ms = rank.process.cpu_ms;
  rank.moved_io_bytes = rank.process.io_bytes;
}

void RankWatch::FindProcesses() {
  for (const pid_t pid : ProcessesOf(run_id_, ProcessKind::kOfAGeneration, host_, IdOf(user()))) {
    const std::optional<int> number = RankOfProcess(pid);
    const auto rank = number ? ranks_.find(*number) : ranks_.end();
    if (rank != ranks_.end() && rank->second.page.rank < 0) rank->second.pid = pid;
  }
}

std::vector<proto::RankSeen> RankWatch::Seen(int64_t now_ms) const {
  std::vector<proto::RankSeen> seen;
  for (const auto& [number, rank] : ranks_) {
    proto::RankSeen& message = seen.emplace_back();
    const PageView& page = rank.page;
    message.set_rank(number);
    message.set_has_page(page.rank >= 0);
    message.set_pid(rank.pid);
    message.set_state(std::string(1, rank.process.state));
    message.set_sleeps_in(rank.process.sleeps_in);
    message.set_phase(static_cast<int>(page.phase));
    message.set_step(page.step);
    message.set_action(page.action_text);
    message.set_call_kind(static_cast<int>(page.call.kind));
    message.set_call_axis(static_cast<int>(page.call.axis));
    message.set_call_sequence(page.call.sequence);
    message.set_call_peer(page.call.peer);
    for (const PageGroup& group : page.groups) {
      message.add_group_keys(group.key);
      message.add_group_calls(group.calls);
    }
    message.set_departure_step(page.departure.step);
    message.set_departure_axis(static_cast<int>(page.departure.axis));
    message.set_departure_expected(page.departure.expected_calls);
    message.set_departure_calls(page.departure.calls);
    message.set_still_ms(now_ms - rank.changed_ms);
    message.set_idle_ms(now_ms - rank.moved_ms);
    message.set_busy_ms(page.busy_ms);
    message.set_polls_still_ms(now_ms - rank.polled_ms);
  }
  return seen;
}

std::map<int, int64_t> RankWatch::Processes() const {
  std::map<int, int64_t> processes;
  for (const auto& [number, rank] : ranks_) {
    if (rank.process.state != '-') processes[number] = rank.pid;
  }
  return processes;
}

}  // namespace weft
