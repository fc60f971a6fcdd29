#include "launcher/run/supervise.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "launcher/machine/child_process.h"
#include "launcher/machine/leftovers.h"
#include "launcher/machine/start.h"
#include "launcher/run/client.h"
#include "launcher/run/progress.h"
#include "plan/errors.h"
#include "plan/keys/cluster_keys.h"
#include "plan/search/search.h"
#include "process/version.h"
#include "proto/job_text.h"
#include "proto/wire.h"

namespace weft {
namespace {

constexpr int64_t kAskMs = 50;          // how long NextAttempt may block: a death is seen as soon
constexpr int kDaemonStartMs = 30000;   // on a machine with more to do than cores
constexpr int64_t kAnswerMs = 500;      // how long one question may wait: a death is seen as soon
constexpr int kGroupPatienceMs = 1000;  // TERM, then KILL
constexpr int kOwnEndMs = 500;          // a group with a dead rank ends by itself and says why
constexpr int kGonePatienceMs = 5000;
constexpr int kMaxFailedCalls = 20;

std::string ReadTail(const std::string& path, int64_t bytes) {
  std::ifstream stream(path, std::ios::binary | std::ios::ate);
  if (!stream) return "";
  const int64_t size = stream.tellg();
  stream.seekg(std::max<int64_t>(0, size - bytes));
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

class Supervisor {
 public:
  explicit Supervisor(SuperviseOptions options)
      : options_(std::move(options)), run_id_(RunId(options_.paths.folder)) {
    saved_step_ = options_.continuation.after_step;
  }

  absl::StatusOr<RunOutcome> Run() {
    absl::StatusOr<RunOutcome> outcome = RunUntilOver();
    // The last events are on their way when the job is over; otherwise nothing is to come.
    const bool over = outcome.ok() && outcome->end != RunEnd::kCoordinatorLost &&
                      options_.stop->load() != StopAsked::kNow;
    for (int i = 0; i < 100 && over && !watch_over_; ++i) usleep(10000);
    if (client_ != nullptr) client_->StopWatching();
    if (watch_.joinable()) watch_.join();
    client_.reset();
    Clean();
    return outcome;
  }

 private:
  struct Group {
    ChildProcess mpirun;
    int64_t generation;
    std::string log;
  };

  void Say(const std::string& line) {
    const std::lock_guard<std::mutex> lock(mutex_);
    options_.say(line);
  }

  // Nothing of this run is left on the machine: we hold its lock, so whatever there is is dead
  // wood.
  void Clean() {
    group_.reset();
    if (daemon_) daemon_->Stop(kGroupPatienceMs);
    KillProcessesOf(run_id_, 0, kGonePatienceMs);
    RemoveTemporaryFolders(run_id_);
    unlink(options_.socket.c_str());
    const std::filesystem::path folder = std::filesystem::path(options_.socket).parent_path();
    if (folder.string() != options_.paths.folder) rmdir(folder.c_str());
  }

  absl::Status StartDaemon() {
    Clean();
    std::error_code error;
    std::filesystem::create_directories(options_.paths.logs(), error);
    const std::filesystem::path folder = std::filesystem::path(options_.socket).parent_path();
    if (folder.string() != options_.paths.folder) mkdir(folder.c_str(), 0700);
    const auto lease_ms =
        static_cast<int64_t>(options_.job.fault_tolerance.heartbeat_timeout_seconds * 1000);
    const std::string log = options_.paths.logs() + "/weftd.log";
    ASSIGN_OR_RETURN(
        ChildProcess daemon,
        ChildProcess::Start({.argv = {Beside("weftd"), absl::StrCat("--socket=", options_.socket),
                                      absl::StrCat("--journal=", options_.paths.journal()),
                                      absl::StrCat("--lease-ms=", lease_ms)},
                             .env = {{kRunVariable, run_id_}},
                             .output = log}));
    daemon_.emplace(std::move(daemon));
    ASSIGN_OR_RETURN(const proto::VersionReply version, AwaitDaemon(log));
    if (version.version() != Version()) {
      return absl::InvalidArgumentError(absl::StrCat("weft is ", Version(), " but weftd is ",
                                                     version.version(),
                                                     "; install both from one build"));
    }
    return absl::OkStatus();
  }

  // Once it listens and answers, which a busy machine may put off. Cancelled if told to stop at
  // once.
  absl::StatusOr<proto::VersionReply> AwaitDaemon(const std::string& log) {
    const absl::Time deadline = absl::Now() + absl::Milliseconds(kDaemonStartMs);
    absl::Status last = absl::UnavailableError("nobody listens");
    while (absl::Now() < deadline) {
      if (options_.stop->load() == StopAsked::kNow) return absl::CancelledError("stopped at once");
      if (daemon_->Ended()) {
        return absl::InternalError(
            absl::StrCat("weftd ended at once", FullDiskText(options_.paths.folder),
                         "; its log is ", log, ":\n", LastLines(ReadTail(log, 4096), 5, 2000)));
      }
      if (client_ == nullptr && !Listens(options_.socket)) {
        usleep(2000);
        continue;
      }
      if (client_ == nullptr) {
        ASSIGN_OR_RETURN(client_, Client::Open(options_.socket));
      }
      const absl::StatusOr<proto::VersionReply> version = client_->GetVersion(kAnswerMs);
      if (version.ok()) return version;
      last = version.status();
      if (!absl::IsUnavailable(last) && !absl::IsDeadlineExceeded(last)) break;
    }
    return absl::UnavailableError(absl::StrCat(
        "weftd does not answer within ", kDaemonStartMs / 1000, " s (", last.message(),
        "); this machine may have more to do than cores: run the same command again when it has "
        "less; its log is ",
        log));
  }

  absl::Status Submit() {
    proto::SubmitJobRequest request;
    request.set_request_id(
        absl::StrCat(run_id_, "-", getpid(), "-", absl::ToUnixNanos(absl::Now())));
    request.set_job(JobText(options_.job));
    request.set_run_folder(options_.paths.folder);
    *request.mutable_layout() = ToProto(options_.layout);
    request.set_planned_for(ClusterFingerprint(options_.job.cluster));
    request.set_load_checkpoint(options_.continuation.load_checkpoint);
    request.set_after_step(options_.continuation.after_step);
    *request.mutable_run() = ToProto(options_.continuation.run);
    for (const OlderCheckpoint& each : options_.continuation.older) {
      proto::OlderCheckpoint& older = *request.add_older();
      older.set_step(each.step);
      older.set_folder(each.folder);
    }
    request.set_last_generation(options_.continuation.last_generation);
    ASSIGN_OR_RETURN(job_id_, client_->Submit(request));
    return absl::OkStatus();
  }

  // Runs on its own thread, until the job is over or StopWatching.
  void Watch() {
    std::ofstream events(options_.paths.events(), std::ios::app);
    int64_t revision = 0;
    // How it ended is no news here: NextAttempt says whether the job is over or weftd is gone.
    client_
        ->Watch(job_id_, &revision,
                [&](const proto::JobEvent& event) {
                  events << EventLine(event) << std::flush;
                  if (event.has_committed()) saved_step_ = event.committed().step();
                  const std::lock_guard<std::mutex> lock(mutex_);
                  options_.on_event(event);
                })
        .IgnoreError();
    watch_over_ = true;
  }

  absl::StatusOr<RunOutcome> RunUntilOver() {
    const absl::Status started = StartDaemon();
    if (absl::IsCancelled(started)) return StopAtOnce();
    RETURN_IF_ERROR(started);
    RETURN_IF_ERROR(Submit());
    watch_ = std::thread([this] { Watch(); });
    int failed_calls = 0;
    while (true) {
      if (daemon_->Ended()) return CoordinatorLost();
      if (options_.stop->load() == StopAsked::kNow) return StopAtOnce();
      if (options_.stop->load() == StopAsked::kSave && !stop_sent_) {
        stop_sent_ = client_->Stop(job_id_, /*now=*/false).ok();
        if (stop_sent_) {
          Say("stopping: saving at the next step boundary (Ctrl-C again stops at once)");
        }
      }
      if (group_ && group_->mpirun.Ended()) RETURN_IF_ERROR(GroupEnded(""));
      const absl::StatusOr<proto::Attempt> attempt = client_->NextAttempt(job_id_, kAskMs);
      if (!attempt.ok()) {
        if (++failed_calls > kMaxFailedCalls) return attempt.status();
        usleep(kAskMs * 1000);
        continue;
      }
      failed_calls = 0;
      if (attempt->has_over()) return Over(attempt->over());
      if (attempt->has_launch()) RETURN_IF_ERROR(Launch(attempt->launch()));
      if (attempt->has_stop_group()) RETURN_IF_ERROR(StopGroup(attempt->stop_group()));
    }
  }

  absl::Status Launch(const proto::Launch& launch) {
    group_.reset();
    ASSIGN_OR_RETURN(const JobSpec job, ParseJobText(launch.job()));
    ASSIGN_OR_RETURN(const Layout layout, FromProto(launch.layout()));
    const RunRecord record{.run_id = options_.continuation.run.id,
                           .generation = launch.generation(),
                           .weft_version = Version(),
                           .planned_bytes = launch.planned_bytes(),
                           .predicted_step_s = launch.predicted_step_s(),
                           .data = options_.data,
                           .accepted = options_.continuation.run.accepted};
    const absl::Status written =
        WriteWhole(options_.paths.resolved(), ResolvedText(Resolve(job, layout), record));
    // The one of the generation before will do where the disk is full.
    std::error_code error;
    if (!written.ok() && !std::filesystem::exists(options_.paths.resolved(), error)) return written;
    if (!written.ok()) Say(absl::StrCat("warning: ", written.message()));
    GroupOptions group{.worker = Beside("weft-worker"),
                       .coordinator = "unix:" + options_.socket,
                       .run_folder = options_.paths.folder,
                       .run_id = run_id_,
                       .temporary_folder = TemporaryFolder(run_id_, launch.world_size()),
                       .generation = launch.generation(),
                       .world_size = launch.world_size(),
                       .threads = job.threads_per_worker,
                       .as_root = geteuid() == 0,
                       .single_copy = SingleCopyPermitted(),
                       .env = job.env};
    mkdir(group.temporary_folder.c_str(), 0700);
    const std::string folder =
        std::filesystem::path(options_.paths.rank_log(launch.generation(), 0)).parent_path();
    std::filesystem::create_directories(folder, error);
    const std::string log = folder + "/mpirun.log";
    const bool needs_mpi = job.cluster.device.backend == BackendKind::kCpu;
    absl::StatusOr<ChildProcess> mpirun =
        ChildProcess::Start({.argv = needs_mpi ? MpirunArgv(group) : RanksArgv(group),
                             .env = GroupEnvironment(group),
                             .output = log});
    if (!mpirun.ok()) return mpirun.status();
    group_.emplace(Group{*std::move(mpirun), launch.generation(), log});
    return absl::OkStatus();
  }

  // mpirun has ended: make sure that all of the group have, and report the first cause; the
  // coordinator decides what it means and tells those who watch. `stopped_for`: why we stopped it;
  // empty if it ended by itself.
  absl::Status GroupEnded(const std::string& stopped_for) {
    const int status = *group_->mpirun.Ended();
    const int64_t generation = group_->generation;
    KillProcessesOf(run_id_, daemon_->pid(), kGonePatienceMs);
    RemoveTemporaryFolders(run_id_);
    const bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    FirstCause cause = ReadFirstCause(ReadTail(group_->log, 65536), status, HostName());
    if (cause.rank < 0 && !stopped_for.empty()) cause.message = stopped_for;
    std::string last_lines;
    if (!clean && cause.rank >= 0) {
      last_lines =
          LastLines(ReadTail(options_.paths.rank_log(generation, cause.rank), 8192), 5, 2000);
    }
    group_.reset();
    return client_->AttemptEnded(job_id_, generation, clean, cause, last_lines);
  }

  absl::Status StopGroup(const proto::StopGroup& order) {
    if (!group_ || group_->generation != order.generation()) {
      FirstCause cause;
      cause.message = "no such group is running";
      return client_->AttemptEnded(job_id_, order.generation(), /*clean=*/false, cause, "");
    }
    for (int waited = 0; waited < kOwnEndMs && !group_->mpirun.Ended(); waited += 10) usleep(10000);
    const bool by_itself = group_->mpirun.Ended().has_value();
    if (!by_itself) group_->mpirun.Stop(kGroupPatienceMs);
    return GroupEnded(by_itself ? "" : absl::StrCat("stopped: ", order.reason()));
  }

  RunOutcome StopAtOnce() {
    if (!job_id_.empty()) client_->Stop(job_id_, /*now=*/true).IgnoreError();
    return {RunEnd::kCancelled, "stopped at once", saved_step_};
  }

  RunOutcome CoordinatorLost() {
    const std::string log = options_.paths.logs() + "/weftd.log";
    const std::string disk = FullDiskText(options_.paths.folder);
    const std::string last = LastLines(ReadTail(log, 4096), 1, 1000);
    Say(absl::StrCat("the coordinator (weftd) ended", disk, "; the end of its log, ", log,
                     ":\n  | ", last));
    return {RunEnd::kCoordinatorLost, disk, saved_step_};
  }

  static RunOutcome Over(const proto::JobOver& over) {
    RunEnd end = RunEnd::kFailed;
    if (over.phase() == "COMPLETED") end = RunEnd::kCompleted;
    if (over.phase() == "SUSPENDED") end = RunEnd::kSuspended;
    if (over.phase() == "CANCELLED") end = RunEnd::kCancelled;
    return {end, over.reason(), over.step()};
  }

  SuperviseOptions options_;
  const std::string run_id_;
  std::optional<ChildProcess> daemon_;
  std::optional<Group> group_;
  std::unique_ptr<Client> client_;
  std::string job_id_;
  bool stop_sent_ = false;
  std::thread watch_;
  std::atomic<bool> watch_over_{false};
  std::atomic<int64_t> saved_step_{0};
  std::mutex mutex_;  // guards calls of say and on_event: they write to one terminal
};

}  // namespace

absl::StatusOr<RunOutcome> Supervise(SuperviseOptions options) {
  return Supervisor(std::move(options)).Run();
}

}  // namespace weft
