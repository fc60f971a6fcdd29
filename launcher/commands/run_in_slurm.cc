#include "launcher/commands/run_in_slurm.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/slurm_verbs.h"
#include "launcher/machine/start.h"
#include "launcher/slurm/accounting.h"
#include "launcher/slurm/after_run.h"
#include "launcher/slurm/failed_hosts.h"
#include "launcher/slurm/run_record.h"
#include "launcher/slurm/slurm_program.h"
#include "launcher/slurm/srun.h"
#include "launcher/slurm/topology.h"

namespace weft {
namespace {

constexpr double kLongestSleepS = 3600;
constexpr int kMostQuestions = 100000;
constexpr int kAccountingMs = 5000;   // a database that is slower is not waited for
constexpr int kQuickAnswerMs = 2000;  // a run begins, or ends, once it has come

// Slurm prints local time: 2026-11-24T20:00:00.
std::optional<double> SecondsUntil(const std::string& time) {
  absl::Time when;
  if (!absl::ParseTime("%Y-%m-%dT%H:%M:%S", time, absl::LocalTimeZone(), &when, nullptr)) {
    return std::nullopt;
  }
  return absl::ToDoubleSeconds(when - absl::Now());
}

}  // namespace

std::vector<ListedHost> HostsOf(const SlurmAllocation& allocation) {
  std::vector<ListedHost> hosts;
  for (const std::string& name : allocation.hosts) hosts.push_back({.name = name});
  return hosts;
}

AgentStarter StarterOf(const SlurmAllocation& allocation, const std::string& container) {
  return SrunStarter({.job_id = allocation.job_id,
                      .cpus = allocation.cpus,
                      .hosts = allocation.hosts,
                      .container = container});
}

EndTimer::EndTimer(std::string job_id, double notice_s, std::function<void()> notice)
    : job_id_(std::move(job_id)), notice_s_(notice_s), notice_(std::move(notice)) {
  thread_ = std::thread([this] { Wait(); });
}

EndTimer::~EndTimer() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool EndTimer::Sleep(double seconds) {
  std::unique_lock<std::mutex> lock(mutex_);
  return !changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                            [this] { return ending_; });
}

void EndTimer::Wait() {
  for (int question = 0; question < kMostQuestions; ++question) {
    const absl::StatusOr<SlurmJob> job = AskForJob(job_id_);
    if (!job.ok()) return;
    const std::optional<double> end_s = SecondsUntil(job->end_time);
    if (!end_s) return;  // there is no limit
    const double left_s = *end_s - notice_s_;
    if (left_s <= 0) return notice_();
    if (!Sleep(std::min(left_s, kLongestSleepS))) return;
  }
}

std::vector<std::string> LeaveOutFailedHosts(const SlurmAllocation& allocation,
                                             const std::string& run_folder, int least,
                                             std::vector<ListedHost>* hosts,
                                             std::vector<ListedHost>* left_out) {
  if (!allocation.is_batch) return {};
  const std::optional<SlurmRunRecord> record = ReadSlurmRun(run_folder);
  if (!record) return {};
  const int64_t now_s = absl::ToUnixSeconds(absl::Now());
  const ChosenHosts chosen = ChooseHosts(allocation.hosts, record->failed_hosts, least, now_s);
  std::vector<std::string> lines;
  for (const FailedHost& host : chosen.left_out) {
    std::erase_if(*hosts, [&](const ListedHost& each) { return each.name == host.name; });
    left_out->push_back({.name = host.name});
    lines.push_back(LeftOutLine(host, LocalTimeText(LeftOutUntil(host, now_s))));
  }
  for (const FailedHost& host : chosen.used_still) {
    lines.push_back(absl::StrCat("host ", host.name, " has failed before (", host.reason,
                                 "), but is used: too few others are there"));
  }
  return lines;
}

std::vector<ChildProcess> ClearHosts(const AgentStarter& starter, const JobSpec& job,
                                     const std::string& run_id,
                                     const std::vector<ListedHost>& hosts) {
  std::vector<ChildProcess> visits;
  const std::string& folder = job.hosts.remote_path;
  const std::string program = folder.empty() ? Beside("weft") : folder + "/weft";
  for (const ListedHost& host : hosts) {
    absl::StatusOr<ChildProcess> visit = ChildProcess::Start(
        {.argv = starter.argv(
             host, {program, "agent", "--clear", "--run-id=" + run_id, "--name=" + host.name}),
         .env = {}});
    if (visit.ok()) visits.push_back(*std::move(visit));
  }
  return visits;
}

std::unique_ptr<HostBook> OpenHostBook(const SlurmAllocation& allocation,
                                       const std::string& run_folder) {
  if (!allocation.is_batch) return nullptr;
  return std::make_unique<HostBook>(HostBookOptions{
      .run_folder = run_folder,
      .job_id = allocation.name(),
      .ask = [id = allocation.name()] { return AskForJob(id, kQuickAnswerMs); },
      .now_unix_s = [] { return absl::ToUnixSeconds(absl::Now()); },
      .warn = [](const std::string& words) { std::cerr << "weft: warning: " << words << "\n"; }});
}

void TakeCheck(const v1::Event& event, HostBook* book) {
  if (book == nullptr || !event.has_host_checked()) return;
  const v1::HostChecked& checked = event.host_checked();
  for (const v1::HostChecked::Result& result : checked.results()) {
    if (result.severity() != v1::HostChecked::Result::BROKEN) continue;
    return book->TakeCheck(
        checked.host(), absl::UnavailableError(absl::StrCat(result.name(), ": ", result.found())));
  }
  // A check of pairs alone, and what hosts say of each other, tell of faults only.
  if (checked.round() > 0 && !checked.pairs_only()) {
    book->TakeCheck(checked.host(), absl::OkStatus());
  }
}

std::string TakeTopology(std::vector<ListedHost>* hosts) {
  if (hosts->size() < 2) return "";
  const absl::StatusOr<SlurmAnswer> answer =
      AskSlurm({"scontrol", "show", "topology"}, "", kQuickAnswerMs);
  if (!answer.ok() || answer->exit_code != 0 || !SetTopology(answer->out, hosts)) return "";
  return absl::StrCat("topology: ", TopologyText(*hosts));
}

void PrintAccounting(const SlurmAllocation& allocation) {
  const absl::StatusOr<SlurmAnswer> answer =
      AskSlurm(SacctArgv(allocation.name()), "", kAccountingMs);
  if (!answer.ok() || answer->exit_code != 0) return;
  const std::optional<SlurmAccounting> figures = ParseAccounting(answer->out, allocation.name());
  if (figures) std::cout << "slurm: accounting: " << AccountingText(*figures) << std::endl;
}

int EndInSlurm(const SlurmAllocation& allocation, const std::string& run_folder,
               const EndedRun& run, int code) {
  const AfterRunAnswer answer = AskAfterRun(allocation, run_folder, run);
  if (run.may_go_on && !answer.why.empty()) std::cout << "slurm: " << answer.why << std::endl;
  switch (answer.after) {
    case AfterRun::kRequeue:
      return kExitTryAgain;
    case AfterRun::kHold: {
      const absl::Status held = HoldJob(allocation.name());
      return held.ok() ? kExitFailed : Fail(held);
    }
    case AfterRun::kLeave:
      break;
  }
  return allocation.is_batch && code == kExitTryAgain ? kExitFailed : code;
}

}  // namespace weft
