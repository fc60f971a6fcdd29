#include "launcher/agent/rank_stacks.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/agent/rank_watch.h"
#include "launcher/machine/child_process.h"
#include "launcher/machine/descriptor.h"
#include "process/clock.h"
#include "process/folder_entry.h"
#include "process/folder_users.h"

namespace weft {
namespace {

constexpr size_t kMostBytes = 1 << 20;  // of one rank
constexpr int kPollMs = 10;

// eu-stack of one process, whose words come by a pipe. Its end is seen by the pipe's: the agent
// waits for every child of its own itself.
struct StackTool {
  int rank = 0;
  pid_t pid = -1;
  Descriptor process = {};
  Descriptor words = {};
  std::string text = {};
};

StackTool StartTool(int rank, int64_t process, const std::optional<ProcessUser>& user) {
  StackTool tool;
  tool.rank = rank;
  std::array<int, 2> ends = {-1, -1};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return tool;
  tool.words = Descriptor(ends[0]);
  const Descriptor out(ends[1]);
  absl::StatusOr<ChildProcess> child =
      ChildProcess::Start({.argv = {"eu-stack", "-p", absl::StrCat(process)},
                           .env = {},
                           .stdout_fd = out.get(),
                           .stderr_fd = out.get(),
                           .user = user});
  if (child.ok()) {
    tool.pid = child->Release();
    tool.process = OpenPidfd(tool.pid);
  } else {
    tool.words.Close();
  }
  return tool;
}

// False once it has said everything.
bool Take(StackTool& tool) {
  std::array<char, 16384> piece;
  ssize_t got = 0;
  while (tool.words.valid() && (got = read(tool.words.get(), piece.data(), piece.size())) > 0) {
    tool.text.append(piece.data(), static_cast<size_t>(got));
    if (tool.text.size() > kMostBytes) got = 0;
    if (got == 0) break;
  }
  if (tool.words.valid() && got == 0) tool.words.Close();
  return tool.words.valid();
}

std::string KernelText(int rank, int64_t process) {
  const std::string folder = absl::StrCat("/proc/", process);
  const std::string status = ProcText(folder + "/status");
  const size_t state = status.find("State:");
  const std::string line =
      state == std::string::npos ? "" : status.substr(state, status.find('\n', state) - state);
  return absl::StrCat("==== rank ", rank, ", process ", process, " ====\n", line,
                      "\nwchan: ", ProcText(folder + "/wchan"),
                      "\nsyscall: ", ProcText(folder + "/syscall"));
}

}  // namespace

std::string StacksOf(const std::map<int, int64_t>& processes, int64_t limit_ms,
                     const std::optional<ProcessUser>& user) {
  const int64_t end_ms = BootTimeMs() + limit_ms;
  std::map<int, std::string> kernel;  // before a tool stops them
  {
    const AsUser as(user ? &*user : nullptr);
    for (const auto& [rank, process] : processes) kernel[rank] = KernelText(rank, process);
  }
  std::vector<StackTool> tools;
  for (const auto& [rank, process] : processes) {
    // It would wait as long as the process does.
    const bool sleeps = kernel[rank].find("State:\tD") != std::string::npos;
    if (!sleeps) tools.push_back(StartTool(rank, process, user));
  }
  for (bool some = true; some && BootTimeMs() < end_ms;) {
    some = false;
    for (StackTool& tool : tools) some = Take(tool) || some;
    if (some) usleep(kPollMs * 1000);
  }
  for (const StackTool& tool : tools) {
    if (tool.pid <= 0) continue;
    if (tool.words.valid()) SignalPidfd(tool.process, SIGKILL);  // the agent waits for it
  }
  std::string text;
  for (const auto& [rank, words] : kernel) {
    absl::StrAppend(&text, words);
    const auto tool = std::find_if(tools.begin(), tools.end(),
                                   [&](const StackTool& each) { return each.rank == rank; });
    const bool has_stack = tool != tools.end() && !tool->text.empty();
    absl::StrAppend(&text, has_stack ? tool->text : "no stack: eu-stack (elfutils) has none\n");
  }
  return text;
}

struct StackTaker::Shared {
  int wake_fd = -1;
  std::mutex mutex;  // guards `taken`
  std::vector<proto::StacksTaken> taken;
};

StackTaker::StackTaker(int wake_fd) : shared_(std::make_shared<Shared>()) {
  shared_->wake_fd = dup(wake_fd);
}

void StackTaker::Take(const proto::TakeStacks& order, std::map<int, int64_t> processes,
                      std::string path, std::optional<ProcessUser> user) {
  proto::StacksTaken taken;
  taken.set_generation(order.generation());
  taken.set_number(order.number());
  taken.set_file(path);
  std::thread([shared = shared_, taken = std::move(taken), limit_ms = order.limit_ms(),
               processes = std::move(processes), path = std::move(path), user = std::move(user)] {
    const std::string text = StacksOf(processes, limit_ms, user);
    {
      const std::lock_guard<std::mutex> lock(shared->mutex);
      shared->taken.push_back(taken);
    }
    const uint64_t one = 1;
    const bool woken = write(shared->wake_fd, &one, sizeof(one)) > 0;  // else it is awake
    (void)woken;
    const AsUser as(user ? &*user : nullptr);
    WritePrivately(path, text);
  }).detach();
}

std::vector<proto::StacksTaken> StackTaker::Taken() {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  return std::exchange(shared_->taken, {});
}

bool WritePrivately(const std::string& path, const std::string& text) {
  const Descriptor file(OpenEntry(LogEntryOf(path), EntryUse::kRewrite, 0600).descriptor);
  if (!file.valid()) return false;
  LetRead(UsersOf(EntryOf(path).folder).all(), file.get());
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t some = write(file.get(), text.data() + written, text.size() - written);
    if (some <= 0) return false;
    written += static_cast<size_t>(some);
  }
  return true;
}

}  // namespace weft
