#include "launcher/standing/standing_run.h"

#include <poll.h>
#include <pwd.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/agent/host_report.h"
#include "launcher/machine/descriptor.h"
#include "launcher/machine/leftovers.h"
#include "launcher/machine/machine.h"
#include "launcher/machine/start.h"
#include "launcher/standing/agent_child.h"
#include "launcher/standing/standing_agent.h"
#include "launcher/standing/standing_link.h"
#include "launcher/standing/standing_records.h"
#include "plan/errors.h"
#include "process/clock.h"
#include "process/log.h"
#include "process/version.h"

namespace weft {
namespace {

constexpr int kLockPatienceMs = 3000;       // the one before it may just be leaving
constexpr int kStandingLookEveryMs = 1000;  // nothing waits for it
constexpr int kKillEveryMs = 20;
constexpr int64_t kLastWordsMs = 2000;
constexpr int kUnknownExit = -1;

std::string UserName() {
  const passwd* entry = getpwuid(getuid());
  return entry != nullptr ? entry->pw_name : absl::StrCat(getuid());
}

AllocationOrder OrderOf(const proto::StartAgent& start) {
  return {start.job_id(),     start.allocation(),    start.run_id(),
          start.run_folder(), start.host_slots(),    {start.slots().begin(), start.slots().end()},
          start.token(),      start.is_of_another(), start.ranks_user(),
          start.ranks_uid()};
}

proto::OfferReport MessageOf(const EndReport& report) {
  proto::OfferReport message;
  message.set_sequence(report.sequence);
  proto::AgentEnded& ended = *message.mutable_agent_ended();
  ended.set_job_id(report.job_id);
  ended.set_allocation(report.allocation);
  ended.set_exit_code(report.end.exit_code);
  ended.set_signal(report.end.signal);
  ended.set_last_words(report.end.last_words);
  return message;
}

std::string EndText(const AllocationEnd& end) {
  if (end.signal != 0) return absl::StrCat("signal ", end.signal);
  if (end.exit_code == kUnknownExit) return "an end that nobody saw";
  return absl::StrCat("exit code ", end.exit_code);
}

class StandingShell {
 public:
  explicit StandingShell(StandingOptions options)
      : options_(std::move(options)),
        host_(options_.name.empty() ? HostName() : options_.name),
        machine_(MachineId(host_)) {}

  absl::Status Begin();
  absl::Status Loop();

 private:
  void Happened(const StandingFact& fact) { agent_ = Apply(std::move(agent_), fact); }
  proto::HostOffer Offer() const;
  void TakeOver(const std::vector<AllocationRecord>& records);
  void Wait();
  void TakeSignals();
  void TakeOrders();
  void TakeEnds();
  void Act();
  void Start(const Allocation& allocation);
  void Sweep(const Allocation& allocation);
  void SayReports();
  void KeepRecords();
  std::vector<proto::RunningAgent> Running() const;
  absl::Status Left();

  const StandingOptions options_;
  const std::string host_;
  const std::string machine_;
  std::optional<StandingRecords> records_;
  Descriptor signals_;
  Descriptor wake_;
  StandingAgent agent_;
  std::map<int64_t, AllocationRecord> kept_;  // what the folder has
  std::map<int64_t, AgentChild> children_;    // those that may run
  bool leaves_them_ = false;                  // HUP
  std::unique_ptr<StandingLink> link_;        // last: it uses wake_
};

absl::Status StandingShell::Begin() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_ = Descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  wake_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!signals_.valid() || !wake_.valid()) {
    return absl::ErrnoToStatus(errno, "the standing agent cannot begin");
  }
  ASSIGN_OR_RETURN(StandingRecords records,
                   StandingRecords::Open(StandingFolder(options_.name), machine_, kLockPatienceMs));
  records_.emplace(std::move(records));
  TakeOver(records_->Read());
  StandingLinkOptions link;
  link.coordinator = options_.coordinator;
  link.bundle = {.file = options_.bundle_file};
  link.wake_fd = wake_.get();
  link.offer = Offer();
  LogInfo(absl::StrCat("weft standing agent ", Version(), ", process ", getpid(), " on ", host_,
                       ": offers ", link.offer.slots(), " slots of ",
                       HostText(link.offer.host_has())));
  link_ = std::make_unique<StandingLink>(std::move(link));
  return absl::OkStatus();
}

proto::HostOffer StandingShell::Offer() const {
  proto::HostOffer offer;
  offer.set_wire_version(kWireVersion);
  offer.set_version(Version());
  offer.set_host(host_);
  offer.set_machine(machine_);
  offer.set_gives_tokens(true);
  offer.set_starts_as_submitter(geteuid() == 0);
  offer.set_pid(getpid());
  offer.set_owner_uid(getuid());
  offer.set_owner(UserName());
  *offer.mutable_host_has() = DescribeHost();
  const proto::Host& has = offer.host_has();
  const int devices = has.gpus_size() > 0 ? has.gpus_size() : has.cores();
  offer.set_slots(options_.slots > 0 ? options_.slots : devices);
  for (const std::string& user : options_.allows) offer.add_allows(user);
  for (const proto::RunningAgent& each : Running()) *offer.add_running() = each;
  return offer;
}

std::vector<proto::RunningAgent> StandingShell::Running() const {
  std::vector<proto::RunningAgent> running;
  for (const AllocationOrder& order : RunningOf(agent_)) {
    running.emplace_back().set_job_id(order.job_id);
    running.back().set_allocation(order.allocation);
  }
  return running;
}

void StandingShell::TakeOver(const std::vector<AllocationRecord>& records) {
  for (const AllocationRecord& record : records) {
    const int64_t number = record.order.allocation;
    kept_[number] = record;
    Happened(AllocationFound{record.order, record.end});
    if (record.end) continue;
    std::optional<AgentChild> child = AgentChild::Find(record.order.run_id, host_);
    if (child) {
      LogInfo(absl::StrCat(record.order.job_id, ": process ", child->pid(),
                           " of the standing agent before this one goes on"));
      children_.emplace(number, *std::move(child));
    } else {
      const std::string words = LastWords(record.words, record.words_from);
      Happened(AllocationExited{number, {kUnknownExit, 0, words}});
    }
  }
}

absl::Status StandingShell::Loop() {
  while (true) {
    Wait();
    TakeSignals();
    if (leaves_them_) return Left();
    TakeEnds();
    TakeOrders();
    link_->CutIfQuiet();
    Happened(StandingTimePassed{BootTimeMs()});
    Act();
    SayReports();
    KeepRecords();
    link_->SetRunning(Running());
    if (const std::optional<absl::Status> refused = link_->refused()) return *refused;
    if (!MayLeave(agent_)) continue;
    link_->Flush(kLastWordsMs);
    TakeOrders();  // what was acknowledged just now
    KeepRecords();
    records_->RemoveIfEmpty();
    return absl::OkStatus();
  }
}

absl::Status StandingShell::Left() {
  LogInfo(absl::StrCat("leaves ", children_.size(),
                       " agents running; the next standing agent of this host takes them over"));
  return absl::OkStatus();
}

void StandingShell::Wait() {
  const int wait_ms = Decide(agent_).empty() ? kStandingLookEveryMs : kKillEveryMs;
  std::vector<pollfd> fds = {{signals_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  for (const auto& [number, child] : children_) fds.push_back({child.pidfd(), POLLIN, 0});
  poll(fds.data(), fds.size(), wait_ms);
  uint64_t count = 0;
  if (read(wake_.get(), &count, sizeof(count)) < 0) return;  // nothing was written
}

void StandingShell::TakeSignals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    if (info.ssi_signo == SIGCHLD) continue;  // their pidfds tell
    if (info.ssi_signo == SIGHUP) {
      leaves_them_ = true;
    } else {
      LogInfo(absl::StrCat("signal ", info.ssi_signo, ": this host leaves; what the jobs of ",
                           children_.size(), " agents have here is saved, then they end"));
      link_->SayLeaving();
      Happened(StandingEndAsked{});
    }
  }
}

void StandingShell::TakeOrders() {
  for (const proto::OfferOrder& order : link_->Take()) {
    if (order.acknowledged() > 0) Happened(EndsAcknowledged{order.acknowledged()});
    if (order.has_start_agent()) {
      Happened(AllocationGiven{OrderOf(order.start_agent())});
    } else if (order.has_stop_agent()) {
      const proto::StopAgent& stop = order.stop_agent();
      LogInfo(absl::StrCat(stop.job_id(), ": is to end: ", stop.reason()));
      Happened(AllocationTaken{stop.job_id(), stop.allocation(), stop.reason()});
    }
  }
}

void StandingShell::TakeEnds() {
  for (auto child = children_.begin(); child != children_.end();) {
    const std::optional<ChildEnd> ended = child->second.Ended();
    if (!ended) {
      ++child;
      continue;
    }
    const AllocationRecord& record = kept_[child->first];
    AllocationEnd end{kUnknownExit, 0, LastWords(record.words, record.words_from)};
    if (ended->is_known) {
      end.exit_code = ended->exit_code;
      end.signal = ended->signal;
    }
    LogInfo(absl::StrCat(record.order.job_id, ": its agent, process ", child->second.pid(),
                         ", has ended: ", EndText(end)));
    Happened(AllocationExited{child->first, std::move(end)});
    child = children_.erase(child);
  }
}

void StandingShell::Act() {
  for (const StandingDuty& duty : Decide(agent_)) {
    const Allocation& allocation = agent_.allocations.at(duty.allocation);
    const auto child = children_.find(duty.allocation);
    switch (duty.kind) {
      case StandingDutyKind::kStart:
        Start(allocation);
        break;
      case StandingDutyKind::kTell:
        if (child != children_.end()) child->second.Signal(SIGTERM);
        Happened(AllocationTold{duty.allocation, BootTimeMs()});
        break;
      case StandingDutyKind::kKill:
        if (child != children_.end()) child->second.Signal(SIGKILL);
        break;
      case StandingDutyKind::kSweep:
        Sweep(allocation);
        break;
    }
  }
}

void StandingShell::Start(const Allocation& allocation) {
  const AllocationOrder order = allocation.order;
  AllocationRecord record{.order = order, .words = WordsFile(order, host_, records_->folder())};
  record.words_from = FileSize(record.words);
  absl::Status status = records_->Write(record);
  if (status.ok()) {
    kept_[order.allocation] = record;
    absl::StatusOr<AgentChild> child =
        AgentChild::Start({.program = options_.program.empty() ? Beside("weft") : options_.program,
                           .coordinator = options_.coordinator,
                           .bundle_file = options_.bundle_file,
                           .host = host_,
                           .name = options_.name,
                           .domain = options_.domain,
                           .allowed_env = options_.allowed_env,
                           .order = order,
                           .words = record.words});
    status = child.status();
    if (child.ok()) {
      LogInfo(absl::StrCat(order.job_id, ": its agent is process ", child->pid(), ", words in ",
                           record.words));
      children_.emplace(order.allocation, *std::move(child));
      return Happened(AllocationStarted{order.allocation});
    }
  }
  LogError(absl::StrCat(order.job_id, ": ", status.message()));
  Happened(AllocationNotStarted{order.allocation, std::string(status.message())});
}

// An agent that was killed leaves ranks behind, which the kernel ends, and files.
void StandingShell::Sweep(const Allocation& allocation) {
  const AllocationOrder order = allocation.order;
  std::optional<uid_t> also;
  if (!order.ranks_user.empty()) also = static_cast<uid_t>(order.ranks_uid);
  if (KillProcessesOnce(order.run_id, ProcessKind::kOfAGeneration, host_, also) > 0) return;
  RemoveTemporaryFolders(order.run_id, options_.name);
  Happened(AllocationSwept{order.allocation});
}

void StandingShell::SayReports() {
  for (const EndReport& report : std::exchange(agent_.reports, {})) link_->Say(MessageOf(report));
}

// The folder has what is known; an end that cannot be written is said again as one that nobody saw.
void StandingShell::KeepRecords() {
  for (auto kept = kept_.begin(); kept != kept_.end();) {
    const auto known = agent_.allocations.find(kept->first);
    if (known == agent_.allocations.end()) {
      records_->Remove(kept->second);
      kept = kept_.erase(kept);
      continue;
    }
    if (known->second.phase == AllocationPhase::kEnded && !kept->second.end) {
      kept->second.end = known->second.end;
      const absl::Status written = records_->Write(kept->second);
      if (!written.ok()) LogWarning(written.message());
    }
    ++kept;
  }
}

}  // namespace

absl::Status RunStandingAgent(const StandingOptions& options) {
  StandingShell shell(options);
  RETURN_IF_ERROR(shell.Begin());
  return shell.Loop();
}

}  // namespace weft
