// The simulated coordinator, its journal and its queue; and the run as a whole.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "coordinator/hosts.h"
#include "plan/errors.h"
#include "process/log.h"
#include "proto/job_text.h"
#include "tests/coordinator/fleet.h"
#include "tests/plan/sample_jobs.h"

namespace weft {

SimFleet::SimFleet(const SimOptions& options) : options_(options), random_(options.seed) {
  char name[64];
  std::snprintf(name, sizeof(name), "/dev/shm/weft-sim-%d-%u.db", getpid(), options.seed);
  journal_ = name;
  RemoveJournal();
  for (int i = 0; i < options.hosts; ++i) {
    hosts_.emplace_back();
    hosts_.back().index = i;
    hosts_.back().machine = absl::StrCat("machine-", i);
  }
}
SimFleet::~SimFleet() {
  driver_.reset();
  RemoveJournal();
}

SimResult SimFleet::Run() {
  SetLeastLogLevel(options_.tells ? LogLevel::kInfo : LogLevel::kNone);
  StartCoordinator();
  Submit();
  for (Host& host : hosts_) After(Number(0, 200), [this, &host] { StartAgent(host); });
  if (options_.faults) PlanFaults();
  EveryTick();
  StepAll();
  while (!events_.empty() && result_.broken.empty() && !IsThrough()) {
    Timed next = events_.top();
    events_.pop();
    now_ms_ = next.at_ms;
    if (now_ms_ > EndOfTimeMs()) break;
    next.what();
    Check();
  }
  Finish();
  return result_;
}

// ---- the coordinator ----

void SimFleet::RemoveJournal() const {
  for (const char* end : {"", "-wal", "-shm"}) {
    std::error_code error;
    std::filesystem::remove(journal_ + end, error);
  }
}

void SimFleet::StartCoordinator() {
  auto journal = Journal::Open(journal_);
  CHECK(journal.ok());
  DriverOptions options;
  options.version = kSimVersion;
  options.lease_ms = kLeaseMs;
  options.own_thread = false;
  options.writes_tokens = false;
  options.now_ms = [this] { return now_ms_ + 1; };  // 0 would mean "never"
  options.unix_ms = [this] { return kStartedUnixMs + now_ms_; };
  auto driver = Driver::Start(*std::move(journal), std::move(options));
  if (!driver.ok()) return Broken(absl::StrCat("the journal: ", driver.status().message()));
  driver_ = *std::move(driver);
  ++incarnation_;
  if (known_) {
    // Everything that anybody was told of is there again.
    Job replayed = driver_->job();
    if (replayed.generation.number < known_->generation.number ||
        replayed.newest().step < known_->newest().step) {
      Broken("the coordinator has forgotten what it had journaled");
    }
  }
}

void SimFleet::CrashCoordinator(int64_t away_ms) {
  if (driver_ == nullptr) return;
  known_ = driver_->job();
  ++incarnation_;  // whatever it still says reaches nobody
  driver_.reset();
  if (Has(PlantedBug::kJournalForgets)) RemoveJournal();
  for (Host& host : hosts_) BreakStream(host);
  After(away_ms, [this] { StartCoordinator(); });
}

void SimFleet::Submit() {
  JobSpec job = SampleJob();
  job.training.steps = kSteps;
  job.training.global_batch_size = 12;
  job.cluster.nodes = options_.hosts;
  job.cluster.slots_per_node = options_.slots;
  job.hosts.least_nodes = options_.least_hosts;
  job.layout.tp = job.layout.pp = 1;
  if (options_.dp) {
    job.layout.dp = options_.dp;
    job.layout.cp = 1;
  }
  job.fault_tolerance.max_restarts = 1000;
  job.fault_tolerance.preflight = options_.seed % 2 == 1;  // both ways
  job.checkpoint.interval = kSaveEvery;
  proto::SubmitJobRequest request;
  request.set_request_id("r1");
  request.set_job(JobText(job));
  request.set_run_folder("/run");
  driver_->Submit(request,
                  [](const absl::StatusOr<proto::SubmitJobReply>& reply) { CHECK(reply.ok()); });
  driver_->RunOnce();
}

void SimFleet::EveryTick() {
  RunCoordinator();
  After(kTickMs, [this] { EveryTick(); });
}

// A disk that hangs holds the driver, but not those who grant leases.
void SimFleet::RunCoordinator() {
  if (driver_ != nullptr && now_ms_ >= held_until_ms_) driver_->RunOnce();
}

void SimFleet::CoordinatorSoon() {
  After(Number(0, 3), [this] { RunCoordinator(); });
}

SimResult Simulate(const SimOptions& options) {
  return SimFleet(options).Run();
}

}  // namespace weft
