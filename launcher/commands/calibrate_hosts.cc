#include "launcher/commands/calibrate_hosts.h"

#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "data/whole_file.h"
#include "launcher/commands/commands.h"
#include "launcher/job_file/cluster_yaml.h"
#include "launcher/machine/child_process.h"
#include "launcher/machine/log_tail.h"
#include "launcher/machine/start.h"
#include "plan/errors.h"
#include "plan/keys/cluster_keys.h"
#include "plan/keys/value_text.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kStartSeconds = 120;  // hosts are reached and checked, ranks start
constexpr int kPatienceMs = 10000;     // weft run ends what it has started on the hosts
constexpr int64_t kTailBytes = 4000;
constexpr int kLastLines = 6;

// A model that takes no time, on bytes that lie beside the job.
std::string JobText(const HostsProbe& probe, const Cluster& cluster) {
  const int ranks = probe.hosts * probe.slots;
  return absl::StrCat(
      "job: {name: links, output_dir: .}\n"
      "model: {model_type: gpt2, vocab_size: 256, n_positions: 32, n_embd: 32, n_layer: 1, "
      "n_head: 2}\n"
      "data: {format: bytes, train: [{path: bytes.txt}]}\n"
      "training: {seq_len: 32, global_batch_size: ",
      ranks,
      ", micro_batch_size: 1, steps: 1}\nlr_scheduler: {type: constant}\nparallelism: {dp: ", ranks,
      ", tp: 1, pp: 1, zero_stage: 0}\ncheckpoint: {interval: 1000}\ncomm: {measure_seconds: ",
      probe.seconds, "}\ncluster: {profile: cluster.yaml, nodes: ", probe.hosts, ", ",
      absl::StripPrefix(SlotsKey(cluster.device.backend), "cluster."), ": ", probe.slots,
      ", threads_per_worker: ", probe.threads, "}\n");
}

absl::Status WriteJob(const HostsProbe& probe, Cluster cluster) {
  std::error_code error;
  const bool made = std::filesystem::create_directories(probe.folder, error);
  if (error || !made) {
    return absl::InvalidArgumentError(
        absl::StrCat("--output: ", probe.folder, ": ", error ? error.message() : "is there already",
                     "; the run that measures needs a new folder there"));
  }
  // No plan depends on it: the layout is fixed. A profile of several nodes has to have one.
  if (cluster.inter_node == LinkProfile{}) cluster.inter_node = cluster.intra_node;
  RETURN_IF_ERROR(
      WriteWholeFile(probe.folder + "/cluster.yaml", LinesText(ClusterTree(cluster), 0)));
  RETURN_IF_ERROR(WriteWholeFile(probe.folder + "/bytes.txt", std::string(1 << 16, 'w')));
  return WriteWholeFile(probe.folder + "/job.yaml", JobText(probe, cluster));
}

std::vector<std::string> RunArgv(const HostsProbe& probe) {
  std::vector<std::string> argv = {Beside("weft"), "run", probe.folder + "/job.yaml"};
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) argv.insert(argv.end(), {option, value});
  };
  add("--hosts", probe.words.hosts);
  add("--hostfile", probe.words.hostfile);
  add("--include", probe.words.include);
  add("--exclude", probe.words.exclude);
  for (const std::string& set : probe.sets) add("--set", set);
  return argv;
}

absl::Status StatusOf(int wait_status, const std::string& log) {
  const int code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : kExitFailed;
  if (code == kExitOk) return absl::OkStatus();
  const std::string words =
      absl::StrCat("the run that measures has failed (", log, "):\n",
                   LastLines(ReadTail(log, kTailBytes), kLastLines, kTailBytes));
  if (code == kExitUsage) return absl::InvalidArgumentError(words);
  if (code == kExitNothingFits) return absl::FailedPreconditionError(words);
  return code == kExitTryAgain ? absl::UnavailableError(words) : absl::InternalError(words);
}

absl::Status RunToItsEnd(const HostsProbe& probe, const std::string& log) {
  ASSIGN_OR_RETURN(ChildProcess run,
                   ChildProcess::Start({.argv = RunArgv(probe), .env = {}, .output = log}));
  const auto limit = std::chrono::duration<double>(2 * probe.seconds + kStartSeconds);
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  while (true) {
    if (const std::optional<int> status = run.Ended()) return StatusOf(*status, log);
    const bool stopped = probe.stop != nullptr && *probe.stop;
    if (stopped || Clock::now() > end) {
      run.Stop(kPatienceMs);
      if (stopped) return absl::CancelledError("stopped");
      return absl::DeadlineExceededError(
          absl::StrCat("the run that measures did not end in time; its words: ", log));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

absl::StatusOr<std::string> MeasureOnHosts(const HostsProbe& probe, const Cluster& cluster) {
  RETURN_IF_ERROR(WriteJob(probe, cluster));
  const absl::Status ended = RunToItsEnd(probe, probe.folder + "/run.log");
  std::error_code ignored;
  if (absl::IsCancelled(ended)) std::filesystem::remove_all(probe.folder, ignored);
  RETURN_IF_ERROR(ended);
  absl::StatusOr<std::string> links =
      ReadWholeFile(probe.folder + "/links/links.json", kMostLinksBytes);
  if (!links.ok()) {
    return absl::InternalError(
        absl::StrCat("the run that measures has left no links, see ", probe.folder, "/links/logs"));
  }
  std::filesystem::remove_all(probe.folder, ignored);
  return links;
}

}  // namespace weft
