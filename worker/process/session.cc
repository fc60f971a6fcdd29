#include "worker/process/session.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "plan/errors.h"
#include "plan/spec/layout_text.h"
#include "process/log.h"
#include "process/progress_page.h"
#include "process/rank_place.h"
#include "process/signals.h"
#include "process/version.h"
#include "worker/backend/failure.h"
#include "worker/backend/library_environment.h"
#include "worker/backend/loader.h"
#include "worker/process/link.h"
#include "worker/process/measured_run.h"
#include "worker/process/process_rank.h"
#include "worker/process/rank_log.h"
#include "worker/state/groups.h"
#include "worker/train/step_report.h"
#include "worker/train/trainer.h"

namespace weft {
namespace {

constexpr int kExitFault = 1;
constexpr int kExitNoCoordinator = 75;
constexpr int64_t kLastWordsMs = 2000;  // to tell the coordinator of a fault or the end
// The coordinator gives up before, and names the slow rank (coordinator/liveness.h): a save, and
// the loading of what training starts from.
constexpr int64_t kSaveTimeoutMs = 1830000;
constexpr int64_t kLoadTimeoutMs = 1830000;
constexpr int64_t kAfterInitMs = 30000;  // beyond comm.init_timeout_seconds, if that is longer
constexpr std::chrono::seconds kLeaveWithin{1};

constexpr std::chrono::milliseconds kLookAtCommEvery{100};
constexpr std::chrono::seconds kSayWithin{1};

// The threads of a session share these.
struct Shared {
  std::atomic<bool> stop_signal{false};
  std::atomic<bool> lost{false};
  std::atomic<bool> leaving{false};  // somebody says why
  std::mutex mutex;                  // guards comm
  Comm* comm = nullptr;              // while it is open
  RankLog log;                       // the main thread opens it, CommGuard's bounds it
};

// Runs on a thread of the link: the main thread may be in a collective that never ends. Leaves
// whatever becomes of the interruption.
void LeaveWithoutCoordinator(Shared& shared, const absl::Status& why) {
  shared.lost = true;
  std::thread leave([] {
    std::this_thread::sleep_for(kLeaveWithin);
    _exit(kExitNoCoordinator);
  });
  LogError(absl::StrCat("leaving: ", why.message()));
  {
    const std::lock_guard<std::mutex> lock(shared.mutex);
    if (shared.comm != nullptr) shared.comm->Interrupt("the coordinator is gone");
  }
  leave.join();
}

// From the first thread that has something to say; nothing is destroyed, as that may wait for a
// device on which a transfer hangs.
[[noreturn]] void LeaveWithFault(Shared& shared, Link* link, const absl::Status& fault,
                                 bool loading = false) {
  if (shared.lost) _exit(kExitNoCoordinator);
  if (shared.leaving.exchange(true)) {  // the other one leaves when it has said so
    std::this_thread::sleep_for(2 * std::chrono::milliseconds(kLastWordsMs));
    _exit(kExitFault);
  }
  LogError(absl::StrCat(absl::StatusCodeToString(fault.code()), ": ", fault.message()));
  if (link != nullptr) link->ReportFault(fault, loading, kLastWordsMs);
  _exit(kExitFault);
}

std::optional<std::string> FromEnvironment(const std::string& name) {
  const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): only reader
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

// The page that the agent has made for this rank. Training does not depend on it.
ProgressWriter OpenPage(int64_t generation, int rank) {
  const std::optional<std::string> folder = FromEnvironment(kPagesVariable);
  if (!folder) return {};
  absl::StatusOr<ProgressWriter> page =
      ProgressWriter::Open(PagePath(*folder, rank), generation, rank);
  if (page.ok()) return *std::move(page);
  LogWarning(absl::StrCat("nobody will see what this rank is at: ", page.status().message()));
  return {};
}

// For tests: WEFT_SKIP_REDUCTION=RANK:STEP makes that rank of the first generation leave out a
// collective.
int64_t SkippedStep(int64_t generation, int rank) {
  const std::string asked = FromEnvironment("WEFT_SKIP_REDUCTION").value_or("");
  const std::vector<std::string> words = absl::StrSplit(asked, ':');
  int skips = -1;
  int64_t step = 0;
  const bool is_mine = words.size() == 2 && absl::SimpleAtoi(words[0], &skips) &&
                       absl::SimpleAtoi(words[1], &step) && skips == rank && generation == 1;
  return is_mine ? step : 0;
}

// For tests: ranks then hold parts of one device's memory.
bool SharesDevices() {
  return FromEnvironment("WEFT_SHARE_DEVICES").has_value();
}

// DeviceLog tells the log about a device while it trains: what the device itself remarks; what it
// replays, once two steps have shown that, and again where it changes later; and once, if so, that
// it takes more memory than is planned, to which what it replays adds.
class DeviceLog {
 public:
  DeviceLog(Device& device, int64_t library_bytes)
      : device_(device), library_bytes_(library_bytes) {}

  void BeforeSteps(int64_t arena_bytes) {
    arena_bytes_ = arena_bytes;
    TakeRemarks();
    LookAtMemory();
  }
  void AfterStep() {
    TakeRemarks();
    if (++steps_ == 1) LookAtMemory();  // libraries load kernels as they are first needed
    const std::string replays = device_.DescribeReplays();
    if (steps_ < 2 || replays == replays_) return;
    replays_ = replays;
    LogInfo(absl::StrCat("passes are replayed by ", replays));
    LookAtMemory();
  }

 private:
  void TakeRemarks() {
    for (auto remark = device_.NextRemark(); remark.text != nullptr;
         remark = device_.NextRemark()) {
      (remark.is_warning ? LogWarning : LogInfo)(remark.text);
    }
  }
  void LookAtMemory() {
    if (has_warned_ || SharesDevices()) return;
    const std::string excess = LibraryExcess(device_.UsedBytes(), arena_bytes_, library_bytes_);
    has_warned_ = !excess.empty();
    if (has_warned_) LogWarning(excess);
  }

  Device& device_;
  const int64_t library_bytes_;
  int64_t arena_bytes_ = 0;
  int64_t steps_ = 0;
  std::string replays_;
  bool has_warned_ = false;
};

RunHooks HooksOf(Link& link, Shared& shared, Device& device, const JobSpec& job) {
  const auto init_ms = static_cast<int64_t>(job.comm.init_timeout_seconds * 1000);
  auto checkpoint_bytes = std::make_shared<int64_t>(0);
  auto log = std::make_shared<DeviceLog>(device, job.cluster.device.library_bytes);
  return RunHooks{
      .computes_by = {},
      .stop_requested = [&] { return shared.stop_signal || link.StopRequested(); },
      .save_requested = [&] { return link.TakeSaveWish(); },
      .coordinator_is_away = [&] { return link.IsCoordinatorAway(); },
      .ready =
          [&, log](int64_t after_step, int64_t allocated_bytes, int64_t planned_bytes) {
            log->BeforeSteps(allocated_bytes);
            link.ReportReady(after_step, allocated_bytes, planned_bytes);
          },
      .begin =
          [&, init_ms] {
            return link.AwaitBegin(std::max(kLoadTimeoutMs, init_ms + kAfterInitMs));
          },
      .step_done =
          [&, log](const StepReport& report) {
            link.ReportStep(report);
            log->AfterStep();
          },
      .exchange_shards =
          [&, checkpoint_bytes](const SaveId& save, const absl::StatusOr<ShardRecord>& shard) {
            auto shards = link.ExchangeShards(save, shard, kSaveTimeoutMs);
            *checkpoint_bytes = 0;
            if (shards.ok()) {
              for (const ShardRecord& each : *shards) *checkpoint_bytes += each.bytes;
            }
            return shards;
          },
      .committed =
          [&, checkpoint_bytes](const SaveId& save, const absl::StatusOr<std::string>& folder) {
            if (!folder.ok()) return link.ReportNotCommitted(save, folder.status());
            // "step-200": the wire names it inside the job's checkpoint folder.
            link.ReportCommitted(save.step, NameOf(*folder), *checkpoint_bytes);
          },
      .save_over = [&](const SaveId& save) { return link.AwaitSaveOver(save, kSaveTimeoutMs); },
      .warn = [](const std::string& text) { LogWarning(text); },
      .failed = [&](const absl::Status& why,
                    bool loading) { LeaveWithFault(shared, &link, why, loading); },
  };
}

// The backend's Relay, over this worker's stream to the coordinator.
class LinkRelay final : public Relay {
 public:
  explicit LinkRelay(Link& link) : link_(link) {}

  BackendStatus Send(const char* topic, const int* to, int count, const void* data,
                     int bytes) override {
    link_.SendNote(topic, absl::MakeConstSpan(to, static_cast<size_t>(count)),
                   {static_cast<const char*>(data), static_cast<size_t>(bytes)});
    return {};
  }
  BackendStatus Receive(const char* topic, int from, int64_t timeout_ms, void* data,
                        int bytes) override {
    const absl::StatusOr<std::string> value = link_.WaitForNote(topic, from, timeout_ms);
    if (!value.ok()) {
      return Failure(static_cast<FailureCode>(value.status().code()), "%s",
                     std::string(value.status().message()).c_str());
    }
    if (value->size() != static_cast<size_t>(bytes)) {
      return Failure(kInternal, "the %s of rank %d has %zu bytes instead of %d", topic, from,
                     value->size(), bytes);
    }
    std::memcpy(data, value->data(), value->size());
    return {};
  }

 private:
  Link& link_;
};

// Beside the main thread, which may wait for a device for ever: says in its place what broke the
// communicator, if it does not do so itself. Whatever the main thread is at, the log stays bounded.
class CommGuard {
 public:
  CommGuard(Shared& shared, Link& link, Comm& comm, int64_t max_log_bytes) : shared_(shared) {
    Set(&comm);
    thread_ = std::jthread([&shared, &link, max_log_bytes](const std::stop_token& stop) {
      BackendStatus failure;
      while (failure.ok()) {
        if (Rest(stop, kLookAtCommEvery)) return;
        shared.log.KeepWithin(max_log_bytes);
        const std::lock_guard<std::mutex> lock(shared.mutex);
        failure = shared.comm->FirstFailure();
      }
      if (Rest(stop, kSayWithin)) return;
      LeaveWithFault(shared, &link, ToStatus(failure));
    });
  }
  ~CommGuard() {
    thread_.request_stop();
    thread_.join();
    Set(nullptr);
  }
  CommGuard(const CommGuard&) = delete;
  CommGuard& operator=(const CommGuard&) = delete;

 private:
  // Whether the guard is over.
  static bool Rest(const std::stop_token& stop, std::chrono::milliseconds time) {
    std::mutex mutex;
    std::unique_lock<std::mutex> lock(mutex);
    std::condition_variable_any().wait_for(lock, stop, time, [] { return false; });
    return stop.stop_requested();
  }
  void Set(Comm* comm) {
    const std::lock_guard<std::mutex> lock(shared_.mutex);
    shared_.comm = comm;
  }

  Shared& shared_;
  std::jthread thread_;
};

struct Opened {
  const BackendApi* api = nullptr;
  Device* device = nullptr;
  Comm* comm = nullptr;
};

// The same for all ranks of this generation of this run, and for no others on this host.
std::string Rendezvous(const SessionOptions& options) {
  return absl::StrCat("/weft-", getuid(), "-",
                      absl::Hex(std::hash<std::string>{}(options.run_folder)), "-",
                      options.generation);
}

// Normally by the devices that the ranks hold. WEFT_TRANSPORT is for tests and for experiments.
absl::StatusOr<TransportKind> AskedTransport() {
  const std::string asked = FromEnvironment("WEFT_TRANSPORT").value_or("auto");
  if (asked == "auto") return TransportKind::kAuto;
  if (asked == "nccl") return TransportKind::kNccl;
  if (asked == "local") return TransportKind::kLocal;
  return absl::InvalidArgumentError(
      absl::StrCat("WEFT_TRANSPORT: \"", asked, "\" is unknown; use auto, nccl or local"));
}

// Normally by the device, which knows what serves. WEFT_ATTENTION is for experiments.
absl::StatusOr<AttentionKind> AskedAttention() {
  const std::string asked = FromEnvironment("WEFT_ATTENTION").value_or("auto");
  if (asked == "auto") return AttentionKind::kAuto;
  if (asked == "own") return AttentionKind::kOwn;
  if (asked == "cudnn") return AttentionKind::kCudnn;
  return absl::InvalidArgumentError(
      absl::StrCat("WEFT_ATTENTION: \"", asked, "\" is unknown; use auto, own or cudnn"));
}

// Off until a device has shown what it is worth. WEFT_CUDA_GRAPHS is for experiments.
absl::StatusOr<bool> AskedGraphs() {
  const std::string asked = FromEnvironment("WEFT_CUDA_GRAPHS").value_or("0");
  if (asked == "0" || asked == "1") return asked == "1";
  return absl::InvalidArgumentError(
      absl::StrCat("WEFT_CUDA_GRAPHS: \"", asked, "\" is unknown; use 0 or 1"));
}

WaitMarks MarksOf(const PollMarks& marks) {
  return {.polls = marks.polls, .peer = marks.peer};
}

absl::StatusOr<Opened> OpenBackend(const SessionOptions& options, const ProcessRank& me,
                                   const Assignment& assignment, Link& link,
                                   ProgressWriter& progress) {
  const JobSpec& job = assignment.job;
  progress.SetPhase(RankPhase::kCommInit);
  Opened opened;
  if (job.cluster.device.backend == BackendKind::kCpu) {
    for (const std::string& note : SettleLibraryEnvironment()) LogWarning(note);
  }
  ASSIGN_OR_RETURN(opened.api, LoadBackend(job.cluster.device.backend, options.backend_folder));
  ASSIGN_OR_RETURN(const AttentionKind attention, AskedAttention());
  ASSIGN_OR_RETURN(const bool replays, AskedGraphs());
  const DeviceOptions device{.local_index = me.local_rank,
                             .share_devices = SharesDevices(),
                             .threads = job.threads_per_worker,
                             .deterministic = job.deterministic,
                             .attention = attention,
                             .replays = replays,
                             .fp8 = job.training.mixed_precision == Precision::kFp8,
                             .fp8_fast_accumulation = job.training.fp8_fast_accumulation};
  RETURN_IF_ERROR(ToStatus(opened.api->open_device(&device, &opened.device)));
  const std::string rendezvous = Rendezvous(options);
  LinkRelay relay(link);
  ASSIGN_OR_RETURN(const TransportKind transport, AskedTransport());
  const CommOptions comm{
      .init_timeout_ms = static_cast<int64_t>(job.comm.init_timeout_seconds * 1000),
      .timeout_ms = static_cast<int64_t>(job.comm.train_timeout_seconds * 1000),
      .rank = me.rank,
      .world_size = me.world_size,
      .rendezvous = rendezvous.c_str(),
      .device = opened.device,
      .relay = &relay,
      .transport = transport,
      .rank_order = job.deterministic,
      .starts_calls = RankGroups::StartsCalls(assignment.layout),
      .starts_beside = RankGroups::StartsBeside(assignment.layout),
      .blocking_marks = MarksOf(progress.blocking_marks()),
      .started_marks = MarksOf(progress.started_marks())};
  RETURN_IF_ERROR(ToStatus(opened.api->open_comm(&comm, &opened.comm)));
  if (opened.comm->rank() != me.rank || opened.comm->world_size() != me.world_size) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the process manager says rank ", me.rank, " of ", me.world_size, ", the ",
        opened.api->name, " backend says ", opened.comm->rank(), " of ", opened.comm->world_size(),
        "; start all workers of a generation with one mpirun"));
  }
  LogInfo(absl::StrCat("backend ", opened.api->name, " (", opened.api->versions, ") is open"));
  const absl::string_view reached = opened.comm->description();
  if (!reached.empty()) LogInfo(absl::StrCat("ranks are reached by ", reached));
  return opened;
}

// Where a run has these again it has the same bits again: libraries choose their kernels by the
// device, and by how much of it the process has (CUDA's MPS may give it a part).
absl::StatusOr<std::map<std::string, std::string>> ComputesBy(const BackendApi& api,
                                                              int local_rank) {
  int count = 0;
  RETURN_IF_ERROR(ToStatus(api.device_count(&count)));
  DeviceDescription device;
  RETURN_IF_ERROR(ToStatus(api.describe_device(local_rank % std::max(count, 1), &device)));
  std::map<std::string, std::string> by = {{"device", device.name}, {"libraries", api.versions}};
  if (device.compute_units > 0) by["compute_units"] = absl::StrCat(device.compute_units);
  return by;
}

absl::StatusOr<Assignment> AwaitTrain(Link& link, ProgressWriter& progress) {
  const InCall meeting(progress, CallKind::kMeeting, MeetingAxis::kTrain);
  return link.WaitForTrain();
}

absl::StatusOr<RunResult> Train(const SessionOptions& options, const ProcessRank& me, Link& link,
                                Shared& shared, ProgressWriter& progress) {
  ASSIGN_OR_RETURN(const Assignment assignment, AwaitTrain(link, progress));
  LogInfo(
      absl::StrCat("rank ", me.rank, " of ", me.world_size, ", ", LayoutText(assignment.layout)));
  ASSIGN_OR_RETURN(const Opened opened, OpenBackend(options, me, assignment, link, progress));
  RunResult result;
  {
    const CommGuard guard(shared, link, *opened.comm, assignment.job.max_log_bytes);
    if (shared.lost) return absl::AbortedError("the coordinator is gone");
    if (options.generation == 1 && assignment.job.comm.measure_seconds > 0) {
      RETURN_IF_ERROR(MeasureLinksOfRun(assignment.job, options.run_folder, *opened.device,
                                        *opened.comm, progress));
    }
    RunHooks hooks = HooksOf(link, shared, *opened.device, assignment.job);
    ASSIGN_OR_RETURN(hooks.computes_by, ComputesBy(*opened.api, me.local_rank));
    hooks.progress = &progress;
    hooks.skips_reduction_in_step = SkippedStep(options.generation, me.rank);
    const auto places = ParsePlaces(FromEnvironment(kPlacesVariable).value_or(""));
    if (places) hooks.cpu_sharers = SharersOf(*places, me.local_rank);
    ASSIGN_OR_RETURN(
        const std::unique_ptr<Trainer> trainer,
        Trainer::Create(assignment, me.rank, *opened.device, *opened.comm, std::move(hooks)));
    for (const std::string& difference : trainer->differences()) LogWarning(difference);
    if (!trainer->attention().empty()) {
      LogInfo(absl::StrCat("attention is computed by ", trainer->attention()));
    }
    ASSIGN_OR_RETURN(result, trainer->Run());
  }
  opened.api->close_comm(opened.comm);
  opened.api->close_device(opened.device);
  return result;
}

}  // namespace

std::string LibraryExcess(int64_t used_bytes, int64_t arena_bytes, int64_t planned_bytes) {
  const int64_t libraries = used_bytes - arena_bytes;
  if (used_bytes == 0 || libraries <= planned_bytes) return "";
  return absl::StrCat("cluster.device.library_bytes: ", planned_bytes, " are planned, but ",
                      libraries, " of the device's memory are in use beside the arena of ",
                      arena_bytes,
                      "; another layout may not fit: weft calibrate measures them, nvidia-smi "
                      "shows other processes");
}

int RunSession(const SessionOptions& options) {
  Shared shared;
  const absl::StatusOr<ProcessRank> me = FindProcessRank(FromEnvironment);
  if (!me.ok()) LeaveWithFault(shared, nullptr, me.status());
  ProgressWriter progress = OpenPage(options.generation, me->rank);
  const absl::Status redirected =
      shared.log.Redirect(options.run_folder, options.generation, me->rank);
  if (!redirected.ok()) {
    LeaveWithFault(shared, nullptr, redirected);
  }
  // Its parent is mpirun's daemon: without it nobody collects this worker.
  if (const absl::Status status = DieWithParent(SIGKILL, getppid()); !status.ok()) {
    LeaveWithFault(shared, nullptr, status);
  }
  // A file size limit then shows as a failed write of a checkpoint, by name, not as a dead rank.
  (void)std::signal(SIGXFSZ, SIG_IGN);
  const SignalWatcher signals({SIGTERM, SIGUSR2}, [&](int) { shared.stop_signal = true; });
  LogInfo(absl::StrCat(VersionText(), ", generation ", options.generation, ", pid ", getpid()));

  LinkOptions link_options;
  link_options.agent = options.agent;
  link_options.rank = me->rank;
  link_options.world_size = me->world_size;
  link_options.generation = options.generation;
  link_options.on_lost = [&](const absl::Status& why) { LeaveWithoutCoordinator(shared, why); };
  absl::StatusOr<std::unique_ptr<Link>> link = Link::Attach(std::move(link_options));
  if (!link.ok()) _exit(kExitNoCoordinator);  // on_lost has said why

  const absl::StatusOr<RunResult> result = Train(options, *me, **link, shared, progress);
  if (!result.ok()) LeaveWithFault(shared, link->get(), result.status());
  // Whoever is not heard has failed, so a coordinator that is away is waited for, as for a save.
  (*link)->ReportFinished(*result, kSaveTimeoutMs);
  LogInfo(absl::StrCat(result->stopped ? "stopped" : "finished", " after step ", result->step));
  return 0;
}

}  // namespace weft
