#include "launcher/machine/probe_run.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/machine/child_process.h"
#include "launcher/machine/leftovers.h"
#include "launcher/machine/start.h"
#include "plan/errors.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

// Measuring may take so much more than it was asked for: ranks start and end, and each measurement
// waits for the slowest of them. With 35 processes waiting for two cores that was more than 25 s;
// only a measurement that hangs is to end by it.
constexpr double kMoreSeconds = 120;
constexpr int kPatienceMs = 1000;
constexpr int64_t kStorageBytes = int64_t{64} << 20;
constexpr int64_t kStorageBlock = int64_t{1} << 20;

std::string TextOf(const std::string& path) {
  std::ifstream stream(path);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

// Returns what a worker said of its failure: its own line, else the last line there is.
std::string LastWords(const std::string& output) {
  std::string words;
  for (const absl::string_view line : absl::StrSplit(output, '\n', absl::SkipWhitespace())) {
    words = absl::StrCat(line);
    if (absl::StartsWith(line, "weft-worker: ")) break;
  }
  return words;
}

// The line that is a JSON object.
absl::StatusOr<std::string> JsonIn(const std::string& output) {
  for (const absl::string_view line : absl::StrSplit(output, '\n')) {
    if (absl::StartsWith(line, "{") && absl::EndsWith(line, "}")) return absl::StrCat(line);
  }
  return absl::InternalError("weft-worker --probe printed no result");
}

// The wait status of the first child that has failed, or of all once they have ended.
std::optional<int> EndOf(std::vector<ChildProcess>& children) {
  bool all = true;
  for (ChildProcess& child : children) {
    const std::optional<int> status = child.Ended();
    if (status && *status != 0) return status;
    all = all && status.has_value();
  }
  return all ? std::optional<int>(0) : std::nullopt;
}

// Runs them to the end of all, or of the first that fails; their output is in one file.
absl::StatusOr<std::string> OutputOf(const std::vector<ChildOptions>& ranks, const ProbeRun& run) {
  std::vector<ChildProcess> children;
  for (const ChildOptions& rank : ranks) {
    ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::Start(rank));
    children.push_back(std::move(child));
  }
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(run.seconds + kMoreSeconds));
  std::optional<int> status;
  while (!(status = EndOf(children))) {
    const bool stopped = run.stop != nullptr && *run.stop;
    if (stopped || Clock::now() > end) {
      for (ChildProcess& child : children) child.Stop(kPatienceMs);
      if (stopped) return absl::CancelledError("stopped");
      return absl::DeadlineExceededError(absl::StrCat("measuring did not end within ",
                                                      run.seconds + kMoreSeconds,
                                                      " s; is the machine very busy?"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const std::string output = TextOf(ranks.front().output);
  if (WIFEXITED(*status) && WEXITSTATUS(*status) == 0) return JsonIn(output);
  const std::string words(absl::StripPrefix(LastWords(output), "weft-worker: "));
  if (WIFEXITED(*status) && WEXITSTATUS(*status) == 2) return absl::InvalidArgumentError(words);
  return absl::UnavailableError(absl::StrCat("weft-worker --probe failed: ", words));
}

std::vector<std::string> Arguments(const ProbeRun& run, const char* kind) {
  return {absl::StrCat("--probe=", kind), absl::StrCat("--backend=", WordOf(run.backend)),
          absl::StrCat("--threads=", run.threads), absl::StrCat("--seconds=", run.seconds)};
}

// A folder of this measurement and the id that its processes carry; both gone at the end.
class Scratch {
 public:
  explicit Scratch(int ranks)
      : id_(absl::StrCat("probe-", getpid())), folder_(TemporaryFolder(id_, ranks)) {
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
  }
  ~Scratch() {
    KillProcessesOf(id_, ProcessKind::kAny, kPatienceMs);
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
    RemoveTemporaryFolders(id_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  GroupOptions Group(const ProbeRun& run) const {
    GroupOptions group;
    group.worker = Beside("weft-worker");
    group.run_id = id_;
    group.temporary_folder = folder_;
    group.world_size = run.ranks;
    group.threads = run.threads;
    group.as_root = geteuid() == 0;
    group.single_copy = SingleCopyPermitted();
    return group;
  }
  std::string output() const { return folder_ + "/probe.txt"; }

 private:
  std::string id_;
  std::string folder_;
};

absl::StatusOr<std::string> Alone(const ProbeRun& run, const char* kind) {
  const Scratch scratch(1);
  const GroupOptions group = scratch.Group(run);
  std::vector<std::string> argv = Arguments(run, kind);
  argv.insert(argv.begin(), group.worker);
  return OutputOf({{.argv = argv, .env = GroupEnvironment(group), .output = scratch.output()}},
                  run);
}

}  // namespace

absl::StatusOr<std::string> ProbeDevices(const ProbeRun& run) {
  return Alone(run, "devices");
}

absl::StatusOr<std::string> ProbeRates(const ProbeRun& run) {
  return Alone(run, "rates");
}

absl::StatusOr<std::string> ProbeLinks(const ProbeRun& run) {
  const Scratch scratch(run.ranks);
  const GroupOptions group = scratch.Group(run);
  std::vector<std::string> argv = Arguments(run, "links");
  argv.insert(argv.begin(), group.worker);
  ChildOptions child = {.argv = argv, .env = GroupEnvironment(group), .output = scratch.output()};
  if (run.backend == BackendKind::kCpu) {
    child.argv = MpirunArgv(group, argv);
    return OutputOf({child}, run);
  }
  child.argv.push_back(absl::StrCat("--relay-folder=", group.temporary_folder));
  std::vector<ChildOptions> ranks;
  for (int rank = 0; rank < run.ranks; ++rank) {
    AddRankVariables(rank, rank, run.ranks, &child.env);
    ranks.push_back(child);
  }
  return OutputOf(ranks, run);
}

double MeasureStorage(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/.weft-storage-", getpid());
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return 0;
  const std::vector<char> block(static_cast<size_t>(kStorageBlock), 'w');
  const Clock::time_point start = Clock::now();
  bool ok = true;
  for (int64_t done = 0; ok && done < kStorageBytes; done += kStorageBlock) {
    ok = write(file, block.data(), block.size()) == std::ssize(block);
  }
  ok = ok && fsync(file) == 0;
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  close(file);
  unlink(path.c_str());
  return ok ? static_cast<double>(kStorageBytes) / seconds : 0;
}

}  // namespace weft
