#include "launcher/commands/doctor_hosts.h"

#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/hosts/ssh.h"
#include "launcher/job_file/job_yaml.h"
#include "launcher/job_file/resolved_yaml.h"
#include "launcher/run/foreground.h"
#include "launcher/run/going_on.h"
#include "launcher/run/host_table.h"
#include "launcher/run/run_folder.h"
#include "plan/errors.h"
#include "plan/search/search.h"
#include "process/signals.h"
#include "process/version.h"

namespace weft {
namespace {

// A folder that is gone with this object.
class ScratchFolder {
 public:
  static absl::StatusOr<ScratchFolder> Make(const std::string& below) {
    std::error_code error;
    std::string path = std::filesystem::absolute(below, error).lexically_normal().string();
    path += "/weft-doctor-XXXXXX";
    if (mkdtemp(path.data()) != nullptr) return ScratchFolder(path);
    return absl::InvalidArgumentError(
        absl::StrCat("--folder ", below, ": no folder can be made there; name one that you may ",
                     "write and that all hosts mount at the same path"));
  }
  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) absl::StrAppend(&quoted, c == '\'' ? "''" : std::string(1, c));
  return quoted + "'";
}

int SlotsOf(const std::vector<ListedHost>& hosts) {
  int least = 0;
  for (const ListedHost& host : hosts) {
    if (host.slots > 0 && (least == 0 || host.slots < least)) least = host.slots;
  }
  return std::max(1, least);
}

// One step of a tiny model, with a replica on each slot: gradients are reduced over all.
absl::StatusOr<JobFile> TinyJob(const DoctorHosts& doctor, const std::string& folder) {
  const int slots = SlotsOf(doctor.hosts);
  const auto ranks = static_cast<int>(doctor.hosts.size()) * slots;
  std::ofstream(folder + "/data.txt") << std::string(static_cast<size_t>(64) * (ranks + 1), 'w');
  std::string cluster = absl::StrCat("nodes: ", doctor.hosts.size());
  for (const auto& [key, value] : {std::pair("profile", &doctor.cluster),
                                   {"network", &doctor.network},
                                   {"ssh_options", &doctor.ssh_options},
                                   {"remote_path", &doctor.remote_path}}) {
    if (!value->empty()) absl::StrAppend(&cluster, ", ", key, ": ", Quoted(*value));
  }
  const std::string text = absl::StrCat(
      "job: {name: check, output_dir: ", Quoted(folder),
      "}\nmodel: {model_type: gpt2, vocab_size: 256, n_positions: 32, n_embd: 32, n_layer: 1, "
      "n_head: 2}\ndata: {format: bytes, train: [{path: ",
      Quoted(folder + "/data.txt"), "}]}\ntraining: {seq_len: 32, global_batch_size: ", ranks,
      ", micro_batch_size: 1, steps: 1}\nlr_scheduler: {type: constant}\nparallelism: {dp: ", ranks,
      ", pp: 1, tp: 1}\nfault_tolerance: {max_restarts: 0}\ncheckpoint: {interval: 0}\n"
      "cluster: {",
      cluster, "}\n");
  return ReadJobText(
      text, folder + "/job.yaml",
      {.to_run = true, .named_hosts = static_cast<int>(doctor.hosts.size()), .named_slots = slots});
}

absl::StatusOr<RunOutcome> TrainOnAll(const DoctorHosts& doctor, const JobFile& file,
                                      std::atomic<StopWish>* stop, HostTable* table) {
  const JobSpec& job = file.job;
  ASSIGN_OR_RETURN(const Plan plan, FindPlan(job, Purpose::kRun));
  ASSIGN_OR_RETURN(const std::vector<std::string> data, Fingerprints(job));
  const RunPaths paths = PathsOf(job);
  ASSIGN_OR_RETURN(const RunLock lock, RunLock::Take(paths.folder));
  ASSIGN_OR_RETURN(const Continuation begin,
                   Continue(Resolve(job, plan.layout), data, std::nullopt, std::nullopt, {}));
  ASSIGN_OR_RETURN(const RunLock checkpoints, RunLock::TakeCheckpoints(CheckpointFolder(job)));
  // A host that does not come up is in the table, and the others are checked all the same: then
  // there is nothing more to wait for.
  bool lacks_a_host = false;
  const auto stop_if_all_is_known = [&] {
    if (lacks_a_host && table->complete()) *stop = StopWish::kNow;
  };
  return RunInForeground({.paths = paths,
                          .job = job,
                          .layout = plan.layout,
                          .continuation = begin,
                          .data = data,
                          .socket = SocketPath(paths.folder),
                          .hosts = doctor.hosts,
                          .starter = SshStarter(doctor.ssh_options),
                          .env = {},
                          .stop = stop,
                          .on_event =
                              [&](const v1::Event& event) {
                                if (event.has_host_checked()) table->Take(event.host_checked());
                                stop_if_all_is_known();
                              },
                          .say = [](const std::string&) {},
                          .host_failed =
                              [&](const std::string& host, const absl::Status& why) {
                                table->Fail(host, "ssh", std::string(why.message()), "");
                                lacks_a_host = true;
                                stop_if_all_is_known();
                                return true;
                              }});
}

void Print(const DoctorHosts& doctor, const HostTable& table, const absl::Status& trained) {
  const bool is_sound = table.sound() && trained.ok();
  if (doctor.json) {
    std::cout << "{\"weft\":\"" << Version() << "\",\"sound\":" << (is_sound ? "true" : "false")
              << ",\"all_reduce\":" << (trained.ok() ? "true" : "false")
              << ",\"hosts\":" << table.Json() << "}\n";
    return;
  }
  std::cout << table.Text();
  if (trained.ok()) {
    std::cout << "well: all hosts have reduced gradients together and saved a checkpoint\n";
  } else if (table.sound() || !table.complete()) {
    std::cout << "BAD: a step over all hosts: " << trained.message() << "\n";
  } else {
    std::cout << "no step over all hosts was tried: see what is bad above\n";
  }
}

}  // namespace

int RunDoctorHosts(const DoctorHosts& doctor) {
  const absl::StatusOr<ScratchFolder> scratch = ScratchFolder::Make(doctor.folder);
  if (!scratch.ok()) return Fail(scratch.status());
  const absl::StatusOr<JobFile> file = TinyJob(doctor, scratch->path());
  if (!file.ok()) return Fail(file.status());
  std::atomic<StopWish> stop{StopWish::kNone};
  std::atomic<bool> interrupted{false};
  const SignalWatcher signals({SIGINT, SIGTERM, SIGHUP}, [&](int) {
    interrupted = true;
    stop = StopWish::kNow;
  });
  std::vector<std::string> names;
  for (const ListedHost& host : doctor.hosts) names.push_back(host.name);
  HostTable table(names);
  const absl::StatusOr<RunOutcome> outcome = TrainOnAll(doctor, *file, &stop, &table);
  if (interrupted) return kExitInterrupted;
  absl::Status trained = outcome.status();
  if (outcome.ok() && outcome->end != RunEnd::kCompleted) {
    trained = absl::InternalError(outcome->reason);
  }
  Print(doctor, table, trained);
  if (table.sound() && trained.ok()) return kExitOk;
  return Fail(absl::InternalError("the hosts are not ready: see what is bad above"));
}

}  // namespace weft
