#include "launcher/commands/run_in_slurm.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "launcher/commands/commands.h"
#include "launcher/slurm/after_run.h"
#include "launcher/slurm/slurm_program.h"
#include "launcher/slurm/srun.h"

namespace weft {
namespace {

constexpr double kLongestSleepS = 3600;
constexpr int kMostQuestions = 100000;

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
