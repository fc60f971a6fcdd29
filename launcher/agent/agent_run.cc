#include "launcher/agent/agent_run.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/agent/agent_link.h"
#include "launcher/agent/agent_seat.h"
#include "launcher/agent/allowed_variables.h"
#include "launcher/agent/binding.h"
#include "launcher/agent/host_agent.h"
#include "launcher/agent/host_checker.h"
#include "launcher/agent/host_report.h"
#include "launcher/agent/host_slots.h"
#include "launcher/agent/launch_share.h"
#include "launcher/agent/nvml.h"
#include "launcher/agent/rank_group.h"
#include "launcher/agent/rank_stacks.h"
#include "launcher/agent/rank_watch.h"
#include "launcher/agent/report_message.h"
#include "launcher/agent/shim_door.h"
#include "launcher/machine/addresses.h"
#include "launcher/machine/descriptor.h"
#include "launcher/machine/leftovers.h"
#include "launcher/machine/machine.h"
#include "launcher/machine/start.h"
#include "plan/errors.h"
#include "process/clock.h"
#include "process/failpoint.h"
#include "process/log.h"
#include "process/version.h"
#include "proto/job_text.h"

namespace weft {
namespace {

// The agent that was here before says its last words and closes its door meanwhile.
constexpr int kSeatPatienceMs = 2500;
constexpr int kSweepPatienceMs = 5000;
constexpr int kKillEveryMs = 10;
constexpr int kLeaseLookMs = 5;
constexpr int kLookEveryMs = 1000;  // nothing waits for it
constexpr int kLookAroundMs = 15000;
constexpr int64_t kLastWordsMs = 500;

class AgentShell {
 public:
  explicit AgentShell(AgentOptions options)
      : options_(std::move(options)),
        host_(options_.name.empty() ? HostName() : options_.name),
        machine_(MachineId(host_)) {}
  ~AgentShell() = default;  // the seat goes last, and with it what is left of files
  AgentShell(const AgentShell&) = delete;
  AgentShell& operator=(const AgentShell&) = delete;

  absl::Status Begin();
  absl::Status Loop();

 private:
  absl::Status FindUser();
  void Happened(const HostFact& fact) { agent_ = Apply(std::move(agent_), fact); }
  void Wait();
  void TakeSignals();
  void TakeChildren();
  void TakeShims();
  void TakeOrders();
  void TakeLifeline();
  void TakeLease();
  void LeaveIfDone();
  void LookAround();
  // The ranks' share of the lease is over, and no other one has come.
  bool HaveRanksLostTheirLease() const { return BootTimeMs() >= link_->ranks_stop_ms(); }
  bool HasLease() const { return BootTimeMs() < link_->lease_end_ms(); }
  bool HasChildren() const;
  void Act();
  void SayReports();
  void TakeLaunch(const proto::Launch& launch);
  void StartGroupOf(const proto::Launch& launch);
  absl::StatusOr<std::vector<RankPlace>> Places() const;
  std::string AddressForMpi() const;
  GroupOptions OptionsOf(const proto::Launch& launch, std::vector<RankPlace> places) const;
  void StartDaemonOf(const std::vector<std::string>& args);
  std::string LogsOf(const proto::Launch& launch) const;
  std::string PagesFolder() const;
  void OpenPages();
  bool TakeLook(const proto::AgentOrder& order);
  void Say(proto::AgentReport report);

  const ProcessUser* user() const { return user_ ? &*user_ : nullptr; }

  const AgentOptions options_;
  std::optional<ProcessUser> user_;  // as whom ranks run, where that is not the agent's
  absl::Status why_no_user_;         // there is to be one, and is none
  const std::string host_;
  const std::string machine_;
  std::optional<AgentSeat> seat_;
  Descriptor signals_;
  Descriptor wake_;
  std::unique_ptr<ShimDoor> door_;
  std::vector<int> gpu_nodes_;  // by GPU
  std::vector<int> used_slots_;
  std::string socket_;       // of the shims
  std::string rank_socket_;  // of the ranks
  std::unique_ptr<AgentLink> link_;
  HostAgent agent_;
  std::deque<proto::AgentOrder> orders_;  // that wait for an older generation to be gone
  std::optional<proto::Launch> launch_;   // of the generation that is held
  absl::StatusOr<JobSpec> job_ = absl::UnknownError("no generation is held");        // of the same
  absl::StatusOr<LaunchShare> share_ = absl::UnknownError("no generation is held");  // of the same
  std::optional<RankGroup> group_;  // of the same, once it was started
  bool told_term_ = false;
  int64_t look_around_ms_ = 0;
  absl::Status gone_;  // why it leaves where nobody has refused it
  std::optional<HostChecker> checker_;
  std::optional<RankWatch> watch_;  // of the generation that is held, once it was started
  std::optional<StackTaker> stacks_;
};

absl::Status AgentShell::Begin() {
  Failpoint("agent.begin");
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_ = Descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  wake_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!signals_.valid() || !wake_.valid() || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    return absl::ErrnoToStatus(errno, "the agent cannot begin");
  }
  ASSIGN_OR_RETURN(AgentSeat seat,
                   AgentSeat::Take(options_.run_id, options_.name, kSeatPatienceMs));
  seat_.emplace(std::move(seat));
  RETURN_IF_ERROR(FindUser());
  // An agent that was here before may have been killed. Its Hello says that nothing is left.
  constexpr ProcessKind kRanks = ProcessKind::kOfAGeneration;
  KillProcessesOf(options_.run_id, kRanks, kSweepPatienceMs, host_, IdOf(user()));
  if (!ProcessesOf(options_.run_id, kRanks, host_, IdOf(user())).empty()) {
    return absl::UnavailableError("processes of an earlier generation cannot be ended");
  }
  socket_ = seat_->folder() + "/shims.sock";
  ASSIGN_OR_RETURN(door_, ShimDoor::Open(socket_, user_));
  rank_socket_ = seat_->folder() + "/ranks.sock";
  AgentLinkOptions link;
  link.coordinator = options_.coordinator;
  link.rank_socket = rank_socket_;
  link.ranks_user = IdOf(user());
  link.bundle = options_.bundle;
  link.wake_fd = wake_.get();
  link.hello.set_version(Version());
  link.hello.set_wire_version(kWireVersion);
  link.hello.set_host(host_);
  link.hello.set_pid(getpid());
  link.hello.set_machine(machine_);
  link.hello.set_job_id(options_.job_id);
  link.hello.set_allocation(options_.allocation);
  link.hello.set_token(options_.token);
  link.hello.set_domain(options_.domain);
  link.hello.set_takes_absence(true);
  *link.hello.mutable_host_has() = DescribeHost();
  const proto::Host& has = link.hello.host_has();
  for (const proto::Gpu& gpu : has.gpus()) gpu_nodes_.push_back(gpu.numa_node());
  used_slots_ = UsedSlots(options_.slots, has.gpus_size() > 0 ? has.gpus_size() : has.cores());
  link.hello.set_slots(static_cast<int>(used_slots_.size()));
  if (const proto::Gpu* const gpu = PoorestGpu(has, used_slots_)) {
    link.hello.set_gpu_free_bytes(std::max<int64_t>(1, gpu->free_bytes()));
    link.hello.set_gpu_text(GpuMemoryText(*gpu));
  }
  const std::string host = absl::StrCat(
      HostText(has), used_slots_.empty() ? "" : ", slots ", absl::StrJoin(used_slots_, ","),
      options_.domain.empty() ? "" : ", domain ", options_.domain);
  checker_.emplace(HostChecker::Options{machine_, absl::StartsWith(options_.coordinator, "unix:"),
                                        wake_.get(), used_slots_, user_});
  stacks_.emplace(wake_.get());
  ASSIGN_OR_RETURN(link_, AgentLink::Start(std::move(link)));
  LogInfo(
      absl::StrCat("weft agent ", Version(), ", process ", getpid(), " on ", host_, ": ", host));
  return absl::OkStatus();
}

// A job of somebody whom this host does not know fails by that, and not the host by the job.
absl::Status AgentShell::FindUser() {
  if (options_.ranks_user.empty()) return absl::OkStatus();
  absl::StatusOr<ProcessUser> user = FindProcessUser(options_.ranks_user, options_.ranks_uid);
  why_no_user_ = user.status();
  if (!user.ok()) return absl::OkStatus();
  user_ = *std::move(user);
  return LetPass(seat_->folder());  // to the sockets
}

absl::Status AgentShell::Loop() {
  while (true) {
    Wait();
    // A shim tells of its worker before it ends itself, so its words come first.
    TakeShims();
    TakeChildren();
    TakeSignals();
    TakeLifeline();
    TakeOrders();
    TakeLease();
    LookAround();
    if (watch_) watch_->Glance(BootTimeMs());
    Happened(TimePassed{BootTimeMs()});
    Act();
    SayReports();
    const std::optional<HostDuty> duty = Decide(agent_);
    if (!duty || !std::holds_alternative<Leave>(*duty)) continue;
    link_->Flush(kLastWordsMs);
    const std::optional<absl::Status> refused = link_->refused();
    return refused ? *refused : gone_;
  }
}

void AgentShell::Wait() {
  int wait_ms = kLookEveryMs;
  const std::optional<HostDuty> duty = Decide(agent_);
  const bool starts = duty && (std::holds_alternative<StartGroup>(*duty) ||
                               std::holds_alternative<StartDaemon>(*duty));
  if (starts) wait_ms = HasLease() ? 0 : kLeaseLookMs;
  if (agent_.phase == GroupPhase::kKilling) wait_ms = kKillEveryMs;
  if (agent_.phase == GroupPhase::kStopping) {
    const int64_t left_ms = agent_.stopping_since_ms + kStopPatienceMs - BootTimeMs();
    wait_ms = static_cast<int>(std::clamp<int64_t>(left_ms, 0, kStopPatienceMs));
  }
  if (agent_.phase == GroupPhase::kRunning) {
    if (agent_.doubtful) {
      const int64_t doubt_ms = agent_.doubtful_since_ms + kDoubtMs - BootTimeMs();
      wait_ms = static_cast<int>(std::clamp<int64_t>(doubt_ms, 0, kDoubtMs));
    }
    const int64_t left_ms = std::max<int64_t>(1, link_->lease_end_ms() - BootTimeMs());
    wait_ms = static_cast<int>(std::min<int64_t>(wait_ms, left_ms));
  }
  const bool listens = options_.leaves_with_stdin && !agent_.leaving;
  std::array<pollfd, 4> fds = {pollfd{signals_.get(), POLLIN, 0}, pollfd{wake_.get(), POLLIN, 0},
                               pollfd{door_->poll_fd(), POLLIN, 0},
                               pollfd{listens ? STDIN_FILENO : -1, POLLIN, 0}};
  poll(fds.data(), fds.size(), wait_ms);
  uint64_t count = 0;
  if (read(wake_.get(), &count, sizeof(count)) < 0) return;  // nothing was written
}

void AgentShell::TakeSignals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    if (info.ssi_signo == SIGCHLD) continue;
    const bool is_told_to_end = info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT;
    const bool leaves = is_told_to_end || options_.allocation != 0;
    LogInfo(absl::StrCat("signal ", info.ssi_signo, ": ",
                         leaves ? "is to leave; what runs here is saved first"
                                : "asks the coordinator to save and stop"));
    Happened(SaveAsked{leaves});
  }
}

void AgentShell::TakeChildren() {
  int status = 0;
  for (pid_t child = 0; (child = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (!group_) continue;
    std::optional<HostFact> fact = group_->Ended(child, status);
    if (!fact) continue;
    if (auto* const exited = std::get_if<RankExited>(&*fact)) {
      exited->lost_lease = HaveRanksLostTheirLease();
    }
    Happened(*fact);
  }
  if (group_ && !HasChildren() && door_->open_shims() == 0) {
    Happened(NothingLeft{group_->generation()});
  }
  if (group_ && agent_.phase == GroupPhase::kNone) {
    group_->RemoveFiles();
    group_.reset();
    watch_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(PagesFolder(), ignored);
  }
}

bool AgentShell::HasChildren() const {
  siginfo_t info = {};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

void AgentShell::TakeShims() {
  for (const ShimMessage& message : door_->Take()) {
    if (message.kind == ShimMessage::Kind::kEnded) {
      Happened(RankExited{message.generation, message.rank, message.wait_status, message.last_out,
                          message.shim_lost, message.was_doomed, HaveRanksLostTheirLease()});
    } else if (message.kind == ShimMessage::Kind::kDoomed) {
      Happened(StarterEnds{message.generation});
    } else if (message.kind == ShimMessage::Kind::kDaemonWanted) {
      const std::optional<HostFact> wish = group_ ? group_->WishOf(message) : std::nullopt;
      if (wish) {
        Happened(*wish);
      } else {
        LogWarning(absl::StrCat("refused process ", message.pid, " a daemon on ", message.host,
                                ": it is not asked for by this generation's mpirun"));
        door_->HangUp(message.pid);
      }
    }
  }
}

void AgentShell::TakeLifeline() {
  if (!options_.leaves_with_stdin || agent_.leaving) return;
  pollfd lifeline{STDIN_FILENO, POLLIN, 0};
  if (poll(&lifeline, 1, 0) <= 0) return;
  char ignored[256];
  if (read(STDIN_FILENO, ignored, sizeof(ignored)) <= 0) Happened(LeaveAsked{});
}

void AgentShell::TakeLease() {
  LeaveIfDone();
  const bool may_run =
      agent_.phase == GroupPhase::kRunning || agent_.phase == GroupPhase::kStopping;
  if (!may_run || HasLease()) return;
  LogError("this host's lease has ended: its ranks may not go on");
  Happened(LeaseEnded{});
}

// Whoever holds its lifeline may be cut off too, and a scheduler that has asked it to stop kills
// it before long, with its files in place. An agent of a fleet's job goes once nothing runs here
// and weftd knows that nothing more is to.
void AgentShell::LeaveIfDone() {
  const bool is_asked = agent_.save_requested && agent_.phase == GroupPhase::kNone && !group_;
  if (!is_asked || agent_.leaving) return;
  const bool all_is_told = agent_.reports.empty() && link_->AllIsAcknowledged();
  if (options_.allocation != 0 && all_is_told) {
    LogInfo("leaving: nothing runs on this host any more");
    Happened(LeaveAsked{});
  } else if (!HasLease()) {
    LogInfo("leaving: it was asked to stop, and hears no coordinator");
    gone_ = absl::UnavailableError("it was asked to stop, and the coordinator is gone");
    Happened(LeaveAsked{});
  }
}

void AgentShell::LookAround() {
  const bool is_cut_off = agent_.phase == GroupPhase::kNone && !agent_.leaving && !HasLease();
  const int64_t now_ms = BootTimeMs();
  if (!is_cut_off || !options_.when_cut_off) {
    look_around_ms_ = now_ms + kLookAroundMs;
  } else if (now_ms >= look_around_ms_) {
    options_.when_cut_off();
    look_around_ms_ = BootTimeMs() + kLookAroundMs;
  }
}

// A generation that comes while an older one is held waits until nothing is left of that, and what
// is ordered of it waits with it.
void AgentShell::TakeOrders() {
  for (proto::AgentOrder& order : link_->Take()) orders_.push_back(std::move(order));
  for (const proto::AgentOrder& order : std::exchange(orders_, {})) {
    const bool waits = !orders_.empty();
    if (checker_->Take(order) || TakeLook(order)) continue;
    if (order.has_launch()) {
      if (order.launch().generation() <= agent_.generation) continue;
      if (agent_.phase == GroupPhase::kNone) {
        TakeLaunch(order.launch());
      } else {
        Happened(Superseded{order.launch().generation()});
        orders_.push_back(order);
      }
    } else if (order.has_start_daemon()) {
      const proto::StartDaemon& daemon = order.start_daemon();
      if (waits && daemon.generation() > agent_.generation) {
        orders_.push_back(order);
      } else {
        Happened(DaemonOrdered{daemon.generation(), {daemon.args().begin(), daemon.args().end()}});
      }
    } else if (order.has_stop_group()) {
      const proto::StopGroup& stop = order.stop_group();
      if (waits && stop.generation() > agent_.generation) {
        orders_.push_back(order);
      } else {
        Happened(StopOrdered{stop.generation(), stop.reason(), BootTimeMs()});
      }
    }
  }
  if (!agent_.leaving && link_->refused()) {
    LogError(absl::StrCat("leaving: ", link_->refused()->message()));
    Happened(LeaveAsked{});
  }
}

// The backend needs no MPI where there is a GPU. A launch that makes no sense is held too: its end
// is said as every other's.
void AgentShell::TakeLaunch(const proto::Launch& launch) {
  Failpoint("agent.launch");
  launch_ = launch;
  job_ = ParseJobText(launch.job());
  const bool needs_mpi = job_.ok() && job_->cluster.device.backend == BackendKind::kCpu;
  share_ = ShareOf(launch, machine_, needs_mpi);
  LaunchOrdered ordered{launch.generation(), launch.world_size(), GroupKind::kForked};
  if (share_.ok()) {
    ordered.kind = share_->kind;
    const auto& hosts = share_->hosts;
    ordered.has_other_hosts = hosts.size() > 1;
    if (!hosts.empty()) ordered.ranks = static_cast<int>(hosts[share_->own_host].ranks.size());
  }
  Happened(ordered);
}

void AgentShell::Act() {
  const std::optional<HostDuty> duty = Decide(agent_);
  if (!duty) return;
  if (std::holds_alternative<StartGroup>(*duty)) {
    // A host that was cut off or frozen may hear of a launch before it has a right to it again.
    if (HasLease()) StartGroupOf(*launch_);
  } else if (std::holds_alternative<StartDaemon>(*duty)) {
    StartDaemonOf(agent_.daemon_args);
  } else if (std::holds_alternative<TermRanks>(*duty)) {
    if (!std::exchange(told_term_, true)) group_->Term();
  } else if (std::holds_alternative<KillGroup>(*duty)) {
    if (group_) {
      group_->Kill();
    } else {
      Happened(NothingLeft{agent_.generation});  // it was never started
    }
  }
}

// REQUIRES: there are a job and a share.
absl::StatusOr<std::vector<RankPlace>> AgentShell::Places() const {
  ASSIGN_OR_RETURN(const std::vector<int> slots, SlotsOfRanks(used_slots_, agent_.ranks));
  const bool on_gpus = job_->cluster.device.backend == BackendKind::kCuda;
  if (on_gpus) RETURN_IF_ERROR(CheckGpuSlots(slots, static_cast<int>(gpu_nodes_.size())));
  BindingQuestion question{.slots = slots,
                           .all_slots = options_.slots.all,
                           .threads = job_->threads_per_worker,
                           .usable_cores = UsableCores(),
                           .cpus = UsableCpus()};
  if (on_gpus) question.gpu_nodes = gpu_nodes_;
  Binding binding = BindRanks(question);
  if (!job_->bind) {
    for (RankPlace& place : binding.places) place = {.slot = place.slot};
    binding.words = "not bound: cluster.bind is false";
  }
  LogInfo(absl::StrCat("generation ", agent_.generation, ": ", binding.words));
  return std::move(binding.places);
}

// mpirun listens even where nobody has to reach it.
std::string AgentShell::AddressForMpi() const {
  if (agent_.kind == GroupKind::kForked) return "";
  if (share_->hosts.size() <= 1) return "127.0.0.1";
  const std::string& network = job_->hosts.network;
  return network.empty() ? "" : OwnAddressIn(network).value_or("");
}

GroupOptions AgentShell::OptionsOf(const proto::Launch& launch,
                                   std::vector<RankPlace> places) const {
  const bool forks = agent_.kind == GroupKind::kForked;
  return {
      .worker = forks ? Beside("weft-worker") : "weft-worker",
      .run_folder = launch.run_folder(),
      .run_id = options_.run_id,
      .temporary_folder = absl::StrCat(
          TemporaryFolder(options_.run_id, agent_.ranks, options_.name), "/g", launch.generation()),
      .generation = launch.generation(),
      .world_size = launch.world_size(),
      .threads = job_->threads_per_worker,
      .as_root = geteuid() == 0 && !user_,
      .user = user_,
      .single_copy = SingleCopyPermitted(),
      .env = job_->env,
      .is_env_for_ranks_alone = options_.is_of_another,
      .host = host_,
      .programs = ProgramFolder(),
      .shim_socket = socket_,
      .rank_socket = rank_socket_,
      .pages = PagesFolder(),
      .hosts = share_->hosts,
      .own_host = share_->own_host,
      .address = AddressForMpi(),
      .places = std::move(places),
      .network = job_->hosts.network};
}

void AgentShell::StartGroupOf(const proto::Launch& launch) {
  Failpoint("agent.start_group");
  told_term_ = false;
  absl::Status sense = job_.ok() ? share_.status() : job_.status();
  if (sense.ok()) sense = why_no_user_;
  if (sense.ok() && options_.is_of_another) sense = CheckVariables(job_->env, options_.allowed_env);
  absl::StatusOr<std::vector<RankPlace>> places = std::vector<RankPlace>();
  places = sense.ok() ? Places() : sense;
  if (!places.ok()) {
    return Happened(GroupNotStarted{launch.generation(), absl::StrCat(places.status().message())});
  }
  std::vector<int> slots;
  for (const RankPlace& place : *places) slots.push_back(place.slot);
  group_.emplace(OptionsOf(launch, *std::move(places)), agent_.kind, LogsOf(launch), *door_);
  OpenPages();
  const absl::Status started = group_->Start();
  if (started.ok()) {
    if (!used_slots_.empty()) LogInfo(SlotsText(group_->ranks(), slots));
    LogInfo(absl::StrCat("generation ", launch.generation(), ": ", agent_.ranks, " of ",
                         launch.world_size(), " ranks ",
                         agent_.kind == GroupKind::kGuest ? "wait for mpirun" : "are started",
                         ", after step ", launch.after_step()));
    Happened(GroupStarted{launch.generation()});
  } else {
    LogError(absl::StrCat("generation ", launch.generation(), ": ", started.message()));
    Happened(GroupNotStarted{launch.generation(), absl::StrCat(started.message())});
  }
}

void AgentShell::StartDaemonOf(const std::vector<std::string>& args) {
  const absl::Status started = group_->StartDaemon(args, share_->first_addresses);
  if (started.ok()) return Happened(DaemonStarted{agent_.generation});
  LogError(absl::StrCat("generation ", agent_.generation, ": ", started.message()));
  Happened(DaemonNotStarted{agent_.generation, absl::StrCat(host_, ": ", started.message())});
}

std::string AgentShell::LogsOf(const proto::Launch& launch) const {
  return absl::StrCat(launch.run_folder(), "/logs/generation-", launch.generation());
}

// In memory: no disk holds up a rank that writes its page.
std::string AgentShell::PagesFolder() const {
  return absl::StrCat(seat_->folder(), "/pages-", agent_.generation);
}

// Ranks train without pages, but then nobody can say which of them hangs.
void AgentShell::OpenPages() {
  Failpoint("agent.pages");
  absl::StatusOr<RankWatch> watch =
      RankWatch::Create(PagesFolder(), options_.run_id, host_, group_->ranks(), user_);
  watch_.reset();
  if (watch.ok()) {
    watch_.emplace(*std::move(watch));
  } else {
    LogWarning(absl::StrCat("hangs will not be explained: ", watch.status().message()));
  }
}

bool AgentShell::TakeLook(const proto::AgentOrder& order) {
  if (order.has_look_at_ranks()) {
    const proto::LookAtRanks& look = order.look_at_ranks();
    if (!watch_ || look.generation() != agent_.generation) return true;
    const int64_t now_ms = BootTimeMs();
    watch_->Look(now_ms);
    proto::AgentReport report;
    report.mutable_ranks_seen()->set_generation(look.generation());
    report.mutable_ranks_seen()->set_number(look.number());
    for (proto::RankSeen& seen : watch_->Seen(now_ms)) {
      *report.mutable_ranks_seen()->add_ranks() = std::move(seen);
    }
    Say(std::move(report));
    return true;
  }
  if (!order.has_take_stacks()) return false;
  if (watch_ && order.take_stacks().generation() == agent_.generation) {
    stacks_->Take(order.take_stacks(), watch_->Processes(),
                  absl::StrCat(LogsOf(*launch_), "/stacks-", host_, ".txt"), user_);
  }
  return true;
}

void AgentShell::Say(proto::AgentReport report) {
  report.set_sequence(++agent_.last_sequence);
  link_->Say(report);
}

void AgentShell::SayReports() {
  for (const HostReport& report : agent_.reports) link_->Say(MessageOf(report));
  Failpoint("agent.reported");
  agent_.reports.clear();
  for (proto::AgentReport& report : checker_->TakeReports()) Say(std::move(report));
  for (proto::StacksTaken& taken : stacks_->Taken()) {
    proto::AgentReport report;
    *report.mutable_stacks_taken() = std::move(taken);
    Say(std::move(report));
  }
}

}  // namespace

absl::Status RunAgent(const AgentOptions& options) {
  AgentShell shell(options);
  RETURN_IF_ERROR(shell.Begin());
  return shell.Loop();
}

}  // namespace weft
