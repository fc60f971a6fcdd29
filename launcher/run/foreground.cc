#include "launcher/run/foreground.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "launcher/machine/child_process.h"
#include "launcher/machine/descriptor.h"
#include "launcher/machine/leftovers.h"
#include "launcher/machine/log_tail.h"
#include "launcher/machine/run_launcher.h"
#include "launcher/machine/start.h"
#include "launcher/run/run_folder.h"
#include "launcher/run/submission.h"
#include "launcher/service/control_client.h"
#include "plan/errors.h"
#include "plan/keys/resolved_job.h"
#include "plan/search/search.h"
#include "process/rpc.h"
#include "process/run_files.h"
#include "process/version.h"
#include "proto/run_text.h"
#include "proto/wire.h"

namespace weft {
namespace {

constexpr int kLookMs = 50;            // how soon a person's wish to stop is seen
constexpr int kDaemonStartMs = 30000;  // on a machine with more to do than cores
constexpr int64_t kAnswerMs = 500;     // how long one question may wait
constexpr int64_t kAskForAgentsMs = 1000;
constexpr int64_t kAskForLifeMs = 1000;
constexpr int kSilentLeases = 2;   // after them a weftd that does not answer is killed
constexpr int kPatienceMs = 1000;  // TERM, then KILL
constexpr int kGonePatienceMs = 5000;
constexpr int kMaxGaps = 100;          // in what is watched
constexpr int kMaxDaemonStarts = 100;  // a person who kills it for ever is not waited for

v1::SubmitRequest RequestOf(const ForegroundOptions& options, const std::string& run_id) {
  v1::SubmitRequest request;
  request.set_request_id(absl::StrCat(run_id, "-", getpid(), "-", absl::ToUnixNanos(absl::Now())));
  request.set_brings_hosts(true);
  v1::Submission& submission = *request.mutable_submission();
  submission = SubmissionOf(options.job, options.paths.folder, options.layout, options.continuation,
                            options.data);
  // Nobody else comes than those that are named.
  submission.set_expected_hosts(static_cast<int>(options.hosts.size()));
  submission.set_slots_as_offered(options.slots_as_offered);
  return request;
}

// resolved.yaml of the generation that `status` tells of. InvalidArgument: its layout is none.
absl::StatusOr<std::string> ResolvedTextOf(const ForegroundOptions& options,
                                           const v1::Job& status) {
  proto::Layout properties;
  *properties.mutable_properties() = status.layout();
  ASSIGN_OR_RETURN(const Layout layout, FromProto(properties));
  const RunRecord record{.run_id = options.continuation.run.id,
                         .generation = status.generation(),
                         .weft_version = Version(),
                         .planned_bytes = status.planned_bytes(),
                         .predicted_step_s = status.predicted_step_s(),
                         .data = options.data,
                         .accepted = options.continuation.run.accepted};
  return ResolvedText(Resolve(options.job, layout), record);
}

RunOutcome OutcomeOf(const v1::Job& job) {
  RunEnd end = RunEnd::kFailed;
  if (job.phase() == "COMPLETED") end = RunEnd::kCompleted;
  if (job.phase() == "SUSPENDED") end = RunEnd::kSuspended;
  if (job.phase() == "CANCELLED") end = RunEnd::kCancelled;
  return {end, job.reason(), job.saved_step(), job.lost_its_hosts()};
}

// Where weftd has come to listen for agents of other hosts.
absl::StatusOr<int> AwaitPort(const std::string& port_file, ChildProcess& daemon,
                              const std::string& log) {
  for (int waited = 0; waited < kDaemonStartMs; waited += 2) {
    int port = 0;
    if (std::ifstream(port_file) >> port) return port;
    if (daemon.Ended()) break;
    usleep(2000);
  }
  return absl::UnavailableError(
      absl::StrCat("weftd does not say where it listens; its log is ", log));
}

// Each call is made once: whoever waits for weftd looks at its process in between.
absl::StatusOr<std::unique_ptr<ControlClient>> OpenDaemon(const std::string& socket) {
  ASSIGN_OR_RETURN(const ServiceAddress address, RunAddress(socket));
  return ControlClient::Open(address, {.attempts = 1, .awaits_restart = false});
}

int64_t LeaseMsOf(const JobSpec& job) {
  return static_cast<int64_t>(job.fault_tolerance.heartbeat_timeout_seconds * 1000);
}

// `door`: null where all agents are on this host.
std::vector<std::string> DaemonArgv(const ForegroundOptions& options, const NetworkDoor* door) {
  std::vector<std::string> argv = {Beside("weftd"), absl::StrCat("--socket=", options.socket),
                                   absl::StrCat("--journal=", options.paths.journal()),
                                   absl::StrCat("--run-id=", options.continuation.run.id)};
  if (door != nullptr) {
    argv.insert(argv.end(), {"--listen=" + door->address, "--tls=" + door->bundle_file,
                             "--port-file=" + door->port_file});
  }
  return argv;
}

// SilenceWatch says when a weftd that is there has not answered for too long: it is stopped, or
// hangs on a disk. Answers of any kind count. A machine that slept was nobody's silence: the clock
// stands still meanwhile, and several questions in a row go unanswered before anything is said.
class SilenceWatch {
 public:
  explicit SilenceWatch(int64_t patience_ms) : patience_(patience_ms) {}

  // Another weftd is there.
  void Begin() {
    unanswered_ = 0;
    heard_at_ = Clock::now();
    ask_at_ = heard_at_ + std::chrono::milliseconds(kAskForLifeMs);
  }
  // How long it has been silent, if that is too long, in words for people; once. Empty: it is not.
  std::string Look(ControlClient& client, const std::string& job_id) {
    if (Clock::now() < ask_at_) return "";
    const absl::Status answer = client.Get(job_id, kAnswerMs).status();
    ask_at_ = Clock::now() + std::chrono::milliseconds(kAskForLifeMs);
    if (!absl::IsDeadlineExceeded(answer)) {
      Begin();
      return "";
    }
    const auto silent = Clock::now() - heard_at_;
    if (++unanswered_ < kLeastUnanswered || silent < patience_) return "";
    Begin();
    return absl::StrFormat(
        "the coordinator (weftd) has not answered for %.1f s, which is %d leases or more: "
        "it is stopped, or hangs on the disk; it is killed",
        std::chrono::duration<double>(silent).count(), kSilentLeases);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kLeastUnanswered = 4;

  const std::chrono::milliseconds patience_;
  int unanswered_ = 0;
  Clock::time_point heard_at_ = Clock::now();
  Clock::time_point ask_at_ = Clock::time_point::max();
};

// Follows the job from *revision on, until it is over. A weftd that comes after one with a full
// disk may know less than was told: then, and where it no longer keeps what was missed, the watch
// goes on with what comes.
absl::Status WatchOverGaps(ControlClient& client, const std::string& job_id, int64_t* revision,
                           const std::function<void(const v1::Event&)>& on_event) {
  absl::Status status;
  for (int gap = 0; gap < kMaxGaps; ++gap) {
    status = client.Watch(job_id, revision, [&](const v1::WatchReply& reply) {
      for (const v1::Event& event : reply.events()) on_event(event);
      return true;
    });
    if (!absl::IsOutOfRange(status)) return status;
    const absl::StatusOr<v1::Job> job = client.Get(job_id);
    if (job.ok()) *revision = job->revision();
  }
  return status;
}

// The names of the hosts whose agents weftd hears.
absl::StatusOr<std::vector<std::string>> HostsHeard(ControlClient& client) {
  ASSIGN_OR_RETURN(const v1::HostsReply hosts, client.Hosts(kAnswerMs));
  std::vector<std::string> heard;
  for (const v1::Host& host : hosts.hosts()) heard.push_back(host.host());
  return heard;
}

absl::Status AskToEnd(ControlClient& client, const std::string& job_id,
                      v1::StopRequest::Level level) {
  v1::StopRequest request;
  request.set_job_id(job_id);
  request.set_level(level);
  return client.Stop(request).status();
}

void CleanAfter(const std::string& run_id) {
  KillProcessesOf(run_id, ProcessKind::kAny, kGonePatienceMs);
  RemoveTemporaryFolders(run_id);
}

// Removes what led to a weftd that is gone: one that was killed, or whose folder was moved while it
// lived, leaves its socket.
void RemoveDoors(const std::string& run_folder) {
  unlink(SocketPath(run_folder).c_str());
  unlink(PortPath(run_folder).c_str());
}

// `begin`: of what this weftd has written to its log. `disk`: as FullDiskText.
std::string CoordinatorsEndText(const std::string& log, int64_t begin, const std::string& disk) {
  const std::string last = LastReasons(ReadTailFrom(log, begin, 4096), 1, 1000);
  if (last.empty()) {
    return absl::StrCat("the coordinator (weftd) ended", disk, " and has not said why; its log is ",
                        log);
  }
  return absl::StrCat("the coordinator (weftd) ended", disk, "; the end of its log, ", log,
                      ":\n  | ", last);
}

// Why weftd has ended before it served. `log`: what it said, from `begin` on.
absl::Status EndedAtOnce(int wait_status, const std::string& run_folder, const std::string& log,
                         int64_t begin) {
  constexpr int kTryAgain = 75;  // weftd's word for it
  const std::string last = LastReasons(ReadTailFrom(log, begin, 4096), 5, 2000);
  const std::string text = absl::StrCat(
      "weftd ended at once",
      WIFSIGNALED(wait_status) ? absl::StrCat(", by signal ", WTERMSIG(wait_status)) : "",
      FullDiskText(run_folder), "; its log, ", log,
      last.empty() ? ", is empty" : absl::StrCat(", ends with:\n", last));
  const bool may_come = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == kTryAgain;
  return may_come ? absl::UnavailableError(text) : absl::InternalError(text);
}

class Foreground {
 public:
  explicit Foreground(ForegroundOptions options)
      : options_(std::move(options)),
        run_id_(options_.continuation.run.id),
        silence_(kSilentLeases * LeaseMsOf(options_.job)),
        agents_({.hosts = options_.hosts,
                 .words = options_.job.hosts,
                 .starter = options_.starter,
                 .run_id = run_id_,
                 .run_folder = options_.paths.folder,
                 .logs = options_.paths.logs(),
                 .socket = options_.socket,
                 .door = options_.door,
                 .lease_ms = LeaseMsOf(options_.job),
                 .preflight = options_.job.fault_tolerance.preflight,
                 .env = options_.env,
                 .say = [this](const std::string& line) { Say(line); },
                 .leaves_out = [this](const std::string& host,
                                      const absl::Status& why) { return LeavesOut(host, why); },
                 .changed = options_.host_changed}) {
    saved_step_ = options_.continuation.after_step;
  }

  absl::StatusOr<RunOutcome> Run() {
    absl::StatusOr<RunOutcome> outcome = RunUntilOver();
    if (client_ != nullptr) client_->Leave();
    if (watch_.joinable()) watch_.join();
    client_.reset();
    Clean();
    return outcome;
  }

 private:
  void Say(const std::string& line) {
    const std::lock_guard<std::mutex> lock(mutex_);
    options_.say(line);
  }

  // Where fewer hosts are enough, one that does not come up is left out.
  bool LeavesOut(const std::string& host, const absl::Status& why) {
    if (options_.host_failed) {
      const std::lock_guard<std::mutex> lock(mutex_);
      return options_.host_failed(host, why);
    }
    const HostsSpec& hosts = options_.job.hosts;
    const int least = hosts.least_nodes > 0 ? hosts.least_nodes : options_.job.cluster.nodes;
    const bool enough = static_cast<int>(options_.hosts.size()) - ++failed_hosts_ >= least;
    if (enough) Say(absl::StrCat(why.message(), "; it is left out"));
    return enough;
  }

  // Nothing of this run is left on the machine: we hold its lock, and nobody who lives has its id
  // (run_identity.h), so whatever there is is dead wood.
  void Clean() {
    if (daemon_) daemon_->AskToEnd();  // both at once: a person waits
    agents_.Leave(kGonePatienceMs);
    if (daemon_) daemon_->Stop(kPatienceMs);
    CleanAfter(run_id_);
    RemoveDoors(options_.paths.folder);
    for (const MovedRun& moved : options_.continuation.moved_aside) {
      if (!moved.id.empty()) CleanAfter(moved.id);
      if (!moved.folder.empty()) RemoveDoors(moved.folder);
    }
  }

  absl::Status StartAll() {
    Clean();
    MakeLogsFolder(options_.paths);
    ASSIGN_OR_RETURN(door_, agents_.Prepare());
    RETURN_IF_ERROR(StartDaemon());
    RETURN_IF_ERROR(agents_.StartHere());
    ASSIGN_OR_RETURN(const v1::VersionReply version, AwaitDaemon());
    if (door_ != nullptr) {
      ASSIGN_OR_RETURN(const int port, AwaitPort(door_->port_file, *daemon_, DaemonLog()));
      RETURN_IF_ERROR(agents_.StartOthers(port));
      // Another weftd has to be where the agents dial.
      ASSIGN_OR_RETURN(NetworkAddress address, ParseAddress(door_->address));
      address.port = port;
      door_->address = AddressText(address);
    }
    if (version.version() != Version()) {
      return absl::InvalidArgumentError(absl::StrCat("weft is ", Version(), " but weftd is ",
                                                     version.version(),
                                                     "; install both from one build"));
    }
    return absl::OkStatus();
  }

  absl::Status StartDaemon() {
    daemon_.reset();
    log_begin_ = EndOfLog(DaemonLog());
    ASSIGN_OR_RETURN(
        ChildProcess daemon,
        ChildProcess::Start({.argv = DaemonArgv(options_, door_.get()),
                             .env = {{kRunVariable, run_id_}, {kLauncherVariable, LauncherMark()}},
                             .output = DaemonLog()}));
    daemon_.emplace(std::move(daemon));
    ++daemon_starts_;
    return absl::OkStatus();
  }

  std::string DaemonLog() const { return options_.paths.logs() + "/weftd.log"; }

  // A coordinator that was killed is started again: within the lease its agents and workers come
  // back to it and train on meanwhile. One that ends by itself has said why.
  absl::Status StartDaemonAgain(int wait_status) {
    Say(absl::StrCat("the coordinator (weftd) was killed by signal ", WTERMSIG(wait_status),
                     "; it is started again, and the workers go on"));
    watch_.join();  // its stream has broken
    RETURN_IF_ERROR(StartDaemon());
    RETURN_IF_ERROR(AwaitDaemon().status());
    watch_over_ = false;
    watch_ = std::thread([this] { Watch(); });
    silence_.Begin();
    return absl::OkStatus();
  }

  // Once it listens and answers, which a busy machine may put off. Cancelled if told to stop at
  // once.
  absl::StatusOr<v1::VersionReply> AwaitDaemon() {
    const std::string log = DaemonLog();
    const absl::Time deadline = absl::Now() + absl::Milliseconds(kDaemonStartMs);
    absl::Status last = absl::UnavailableError("nobody listens");
    while (absl::Now() < deadline) {
      if (options_.stop->load() == StopWish::kNow) return absl::CancelledError("stopped at once");
      if (const std::optional<int> status = daemon_->Ended())
        return EndedAtOnce(*status, options_.paths.folder, log, log_begin_);
      absl::StatusOr<std::unique_ptr<ControlClient>> client = OpenDaemon(options_.socket);
      if (client.ok()) {
        client_ = *std::move(client);
        const absl::StatusOr<v1::VersionReply> version = client_->Version(kAnswerMs);
        if (version.ok()) return version;
        last = version.status();
      } else {
        last = client.status();
      }
      if (!absl::IsUnavailable(last) && !absl::IsDeadlineExceeded(last)) break;
      usleep(2000);
    }
    return absl::UnavailableError(absl::StrCat(
        "weftd does not answer within ", kDaemonStartMs / 1000, " s (", last.message(),
        "); this machine may have more to do than cores: run the same command again when it has "
        "less; its log is ",
        log));
  }

  void TakeEvent(const v1::Event& event, RunFiles& files) {
    files.WriteEvent(EventLine(event));
    if (event.has_committed()) saved_step_ = event.committed().step();
    if (event.has_phase() && event.phase().phase() == "STARTING") WriteResolved(files);
    const std::lock_guard<std::mutex> lock(mutex_);
    options_.on_event(event);
  }

  // Runs on its own thread, until the job is over or Leave.
  void Watch() {
    RunFiles files(options_.paths.folder,
                   [this](const std::string& line) { Say(absl::StrCat("warning: ", line)); });
    watched_ = WatchOverGaps(*client_, job_id_, &revision_,
                             [&](const v1::Event& event) { TakeEvent(event, files); });
    watch_over_ = true;
    const uint64_t one = 1;
    if (write(wake_.get(), &one, sizeof(one)) < 0) return;  // it is awake
  }

  // The generation's resolved.yaml. The one of the generation before will do where the disk is
  // full; without any the run cannot be gone on with, so it ends.
  void WriteResolved(RunFiles& files) {
    const absl::StatusOr<v1::Job> status = client_->Get(job_id_);
    if (!status.ok()) return;  // it is gone: nothing is to be gone on with
    const absl::StatusOr<std::string> text = ResolvedTextOf(options_, *status);
    if (!text.ok()) return;
    const absl::Status written = files.WriteResolved(*text);
    std::error_code error;
    if (written.ok() || std::filesystem::exists(options_.paths.resolved(), error)) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    not_written_ = written;
  }

  absl::Status NotWritten() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return not_written_;
  }

  // Until there is something to look at, at most kLookMs.
  void Wait() {
    const Descriptor daemon = OpenPidfd(daemon_->pid());
    std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}, {daemon.get(), POLLIN, 0}};
    std::vector<Descriptor> agents;
    for (const pid_t pid : agents_.pids()) {
      agents.push_back(OpenPidfd(pid));
      fds.push_back({agents.back().get(), POLLIN, 0});
    }
    poll(fds.data(), fds.size(), kLookMs);
  }

  absl::StatusOr<RunOutcome> RunUntilOver() {
    wake_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    const absl::Status started = StartAll();
    if (absl::IsCancelled(started)) return StopAtOnce();
    RETURN_IF_ERROR(started);
    ASSIGN_OR_RETURN(const v1::SubmitReply submitted,
                     client_->Submit(RequestOf(options_, run_id_)));
    job_id_ = submitted.job_id();
    watch_ = std::thread([this] { Watch(); });
    silence_.Begin();
    while (true) {
      Wait();
      if (watch_over_ && watched_.ok()) return Over();
      if (const std::optional<int> status = daemon_->Ended()) {
        if (!WIFSIGNALED(*status) || daemon_starts_ >= kMaxDaemonStarts) return CoordinatorLost();
        const absl::Status again = StartDaemonAgain(*status);
        if (absl::IsCancelled(again)) return StopAtOnce();
        if (!again.ok()) return CoordinatorLost();
      }
      RETURN_IF_ERROR(NotWritten());
      if (options_.stop->load() == StopWish::kNow) return StopAtOnce();
      if (options_.stop->load() == StopWish::kSave && !stop_sent_) AskToStop();
      TellAgents();
      EndSilentDaemon();
      const absl::Status agents = agents_.Look();
      if (!agents.ok()) return WithDisk(agents);
      if (watch_over_ && !daemon_->Ended())
        usleep(kLookMs * 1000);  // the stream broke: it is ending
    }
  }

  void EndSilentDaemon() {
    const std::string silence = daemon_->Ended() ? "" : silence_.Look(*client_, job_id_);
    if (silence.empty()) return;
    Say(silence);
    kill(daemon_->pid(), SIGKILL);
  }

  // A weftd that does not answer says nothing of them.
  void TellAgents() {
    if (!agents_.HasOthers() || absl::Now() < ask_for_agents_at_) return;
    ask_for_agents_at_ = absl::Now() + absl::Milliseconds(kAskForAgentsMs);
    const absl::StatusOr<std::vector<std::string>> heard = HostsHeard(*client_);
    if (heard.ok()) agents_.Heard(*heard);
  }

  // Until it is taken: a journal that cannot be written takes no wish, but there may be room soon.
  void AskToStop() {
    const absl::Status asked = AskToEnd(*client_, job_id_, v1::StopRequest::SAVE);
    if (absl::IsFailedPrecondition(asked)) return;  // it is over: that is being told
    stop_sent_ = asked.ok();
    if (stop_sent_) Say("stopping: saving at the next step boundary (Ctrl-C again stops at once)");
    if (asked.ok() || refusal_ == asked.message() || daemon_->Ended()) return;
    refusal_ = std::string(asked.message());
    Say(absl::StrCat("not stopping yet, but it is tried again (Ctrl-C again stops at once): ",
                     refusal_));
  }

  // A full disk takes away the words of whoever it stops.
  absl::Status WithDisk(const absl::Status& why) const {
    return {why.code(), absl::StrCat(why.message(), FullDiskText(options_.paths.folder))};
  }

  RunOutcome StopAtOnce() {
    if (!job_id_.empty()) AskToEnd(*client_, job_id_, v1::StopRequest::NOW).IgnoreError();
    return {RunEnd::kCancelled, "stopped at once", saved_step_};
  }

  RunOutcome CoordinatorLost() {
    const std::string log = DaemonLog();
    const std::string disk = FullDiskText(options_.paths.folder);
    Say(CoordinatorsEndText(log, log_begin_, disk));
    return {RunEnd::kCoordinatorLost, disk, saved_step_};
  }

  absl::StatusOr<RunOutcome> Over() {
    ASSIGN_OR_RETURN(const v1::Job job, client_->Get(job_id_));
    return OutcomeOf(job);
  }

  ForegroundOptions options_;
  const std::string run_id_;
  SilenceWatch silence_;
  std::optional<ChildProcess> daemon_;
  int daemon_starts_ = 0;
  int64_t log_begin_ = 0;              // of the weftd that was started last
  int failed_hosts_ = 0;               // that did not come up
  std::unique_ptr<NetworkDoor> door_;  // null: all agents are on this host
  Agents agents_;
  Descriptor wake_;  // an eventfd: the watch is over
  std::unique_ptr<ControlClient> client_;
  std::string job_id_;
  bool stop_sent_ = false;
  std::string refusal_;  // why it was not, as said
  absl::Time ask_for_agents_at_ = absl::InfinitePast();
  std::thread watch_;
  int64_t revision_ = 0;  // the newest event that was seen; of the watch's thread
  absl::Status watched_;  // how the watch ended; of its thread until watch_over_
  std::atomic<bool> watch_over_{false};
  std::atomic<int64_t> saved_step_{0};
  std::mutex mutex_;  // guards calls of say and on_event, which write to one terminal, and the next
  absl::Status not_written_;  // why the run cannot be gone on with
};

}  // namespace

absl::StatusOr<RunOutcome> RunInForeground(ForegroundOptions options) {
  return Foreground(std::move(options)).Run();
}

}  // namespace weft
