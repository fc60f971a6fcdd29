// The fleet driver's part that has to do with placed jobs: each has a Driver of its own.
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "coordinator/service/control_messages.h"
#include "coordinator/service/fleet_driver.h"
#include "coordinator/service/run_folders.h"
#include "plan/errors.h"
#include "process/folder_entry.h"
#include "process/log.h"

namespace weft {
namespace {

constexpr int64_t kMaxWriteMs = 5000;  // that files of a run may take beyond its end
constexpr int64_t kWatch = 1;          // the fleet's own stream of a Driver's events

proto::FleetRecord EndOf(int64_t job, const std::string& end, const std::string& reason,
                         int64_t unix_ms) {
  proto::FleetRecord record;
  proto::FleetJobEnded& ended = *record.mutable_job_ended();
  ended.set_job(job);
  ended.set_end(end);
  ended.set_reason(reason);
  ended.set_unix_ms(unix_ms);
  return record;
}

proto::StopJobRequest StopOf(bool now) {
  proto::StopJobRequest request;
  request.set_now(now);
  return request;
}

// A journal that cannot be replayed says what a job did, and may be all that is left of it: it is
// moved, with what SQLite has beside it, and never removed. Returns why its job fails.
absl::Status SetAside(const std::string& journal, const std::string& state_folder,
                      const absl::Status& why) {
  const std::filesystem::path path(journal);
  const std::string aside =
      absl::StrCat(state_folder, "/set-aside/", path.parent_path().filename().string(), ".",
                   path.filename().string());
  std::error_code error;
  std::filesystem::create_directories(state_folder + "/set-aside", error);
  for (const char* part : {"-wal", "-shm"}) {
    std::filesystem::rename(journal + part, aside + part, error);
  }
  std::filesystem::rename(journal, aside, error);
  const std::string now = error ? absl::StrCat(" stays there: ", error.message())
                                : absl::StrCat(" is moved away already, it is now ", aside);
  return {why.code(), absl::StrCat("the job cannot be replayed: ", why.message(), "; its journal",
                                   now, "; submit the job again")};
}

}  // namespace

std::string FleetDriver::JournalOf(int64_t job, int64_t allocation) const {
  return absl::StrCat(options_.state_folder, "/jobs/", JobName(job), "/allocation-", allocation,
                      ".db");
}

absl::StatusOr<AgentPlace> FleetDriver::FindPlace(const proto::Hello& hello,
                                                  const AgentPeer& peer) const {
  const std::lock_guard<std::mutex> lock(doors_mutex_);
  const auto found = doors_.find(hello.job_id());
  if (found == doors_.end()) return NoRight(hello);
  ASSIGN_OR_RETURN(const AgentStay stay, found->second.rights.Check(hello, peer));
  return AgentPlace{found->second.driver, stay};
}

FleetDriver::Runner* FleetDriver::FindRunner(int64_t job, int64_t allocation) {
  const auto found = runners_.find(job);
  if (found == runners_.end() || found->second.allocation != allocation) return nullptr;
  return &found->second;
}

// A Driver for each placed job and for no other one; those that are to end are told so.
void FleetDriver::KeepRunners() {
  std::vector<int64_t> done;
  for (const auto& [job, runner] : runners_) {
    const auto placed = book_.fleet().jobs.find(job);
    const bool runs = placed != book_.fleet().jobs.end() &&
                      placed->second.phase == FleetPhase::kPlaced &&
                      placed->second.allocation == runner.allocation;
    if (!runs) done.push_back(job);
  }
  for (const int64_t job : done) DropRunner(job);
  for (const int64_t job : book_.fleet().live) {
    const FleetJob& placed = book_.fleet().jobs.at(job);
    if (placed.phase != FleetPhase::kPlaced || runners_.count(job) > 0) continue;
    const absl::Status started = StartRunner(job, placed);
    if (started.ok()) continue;
    LogError(absl::StrCat(JobName(job), ": cannot be started: ", started.message()));
    Runner& failed = runners_[job];
    failed.allocation = placed.allocation;
    failed.is_over = true;
    failed.end = "FAILED";
    failed.reason = absl::StrCat(started.message());
  }
  TellEnds(/*now_alone=*/false);
}

void FleetDriver::TellEnds(bool now_alone) {
  for (const EndJob& each : ends_) {
    if (now_alone && !each.now) continue;
    const auto runner = runners_.find(each.job);
    const FleetStop wanted = each.now ? FleetStop::kNow : FleetStop::kSave;
    if (runner == runners_.end() || runner->second.told >= wanted) continue;
    runner->second.told = wanted;
    if (runner->second.driver == nullptr) continue;
    // While its journal cannot be written a job refuses: it is told again.
    const auto told = [this, job = each.job,
                       allocation = runner->second.allocation](const absl::Status& status) {
      if (!absl::IsUnavailable(status)) return;
      queue_of_tasks_.Post(
          [this, job, allocation] {
            Runner* const refused = FindRunner(job, allocation);
            if (refused != nullptr) refused->told = FleetStop::kNone;
          },
          0, TaskQueue::Room::kAlways, TaskQueue::Wake::kWithTick);
    };
    runner->second.driver->StopJob(StopOf(each.now), told);
  }
}

absl::StatusOr<std::unique_ptr<Driver>> FleetDriver::StartDriver(int64_t job, int64_t allocation) {
  const std::string path = JournalOf(job, allocation);
  MakeFolder(std::filesystem::path(path).parent_path());  // the journal says what is wrong there
  ASSIGN_OR_RETURN(std::unique_ptr<Journal> journal, Journal::Open(path));
  if (!journal->moved_aside().empty()) {
    LogWarning(absl::StrCat(JobName(job), ": its journal of another version is now ",
                            journal->moved_aside(), "; it goes on from its newest checkpoint"));
  }
  DriverOptions options;
  options.version = options_.version;
  options.lease_ms = options_.lease_ms;
  if (!has_opened_) options.promised_until_ms = PromisedUntilMs();
  options.on_broken = [this, job, allocation](const absl::Status& why) {
    queue_of_tasks_.Post([this, job, allocation, why] { OnRunnerOver(job, allocation, why); }, 0,
                         TaskQueue::Room::kAlways);
  };
  return Driver::Start(std::move(journal), std::move(options));
}

absl::Status FleetDriver::StartRunner(int64_t job, const FleetJob& placed) {
  ASSIGN_OR_RETURN(proto::SubmitJobRequest request, DriverRequest(job, placed, book_.entry(job)));
  ASSIGN_OR_RETURN(std::vector<RunLock> locks,
                   TakeFolders(JobName(job), request, WritersOf(placed, book_.fleet().hosts)));
  absl::StatusOr<std::unique_ptr<Driver>> driver = StartDriver(job, placed.allocation);
  if (!driver.ok()) {
    return SetAside(JournalOf(job, placed.allocation), options_.state_folder, driver.status());
  }
  Runner& runner = runners_[job];
  runner.allocation = placed.allocation;
  runner.locks = std::move(locks);
  runner.driver = *std::move(driver);
  runner.rights = AgentRights(JobName(job), placed, book_.fleet().hosts,
                              {book_.agent_secret(), book_.tokens_after()});
  {
    const std::lock_guard<std::mutex> lock(doors_mutex_);
    doors_[JobName(job)] = {runner.driver, runner.rights};
  }
  LogInfo(absl::StrCat(JobName(job), ": has allocation ", placed.allocation, " of ",
                       placed.shares.size(), " hosts"));
  // The same request again, after a restart, changes nothing.
  const auto refused = [this, job, allocation = placed.allocation](
                           const absl::StatusOr<proto::SubmitJobReply>& reply) {
    if (reply.ok() || absl::IsUnavailable(reply.status())) return;
    queue_of_tasks_.Post(
        [this, job, allocation, why = reply.status()] { OnRunnerOver(job, allocation, why); }, 0,
        TaskQueue::Room::kAlways);
  };
  runner.driver->Submit(request, refused);
  WatchRunner(job, runner);
  runner.is_writing = true;
  WriteFiles(job, runner, request);
  return absl::OkStatus();
}

// From where the fleet has heard of this Driver, which tells what it was before a restart too.
void FleetDriver::WatchRunner(int64_t job, const Runner& runner) {
  const JobEntry& entry = book_.entry(job);
  proto::WatchRequest request;
  if (entry.allocation == runner.allocation) request.set_after_revision(entry.driver_revision);
  const int64_t allocation = runner.allocation;
  const auto post = [this](std::function<void()> task) {
    queue_of_tasks_.Post(std::move(task), 0, TaskQueue::Room::kAlways, TaskQueue::Wake::kWithTick);
  };
  WatcherPort port;
  port.stands = [this, post, job, allocation](const proto::JobStatus& status) {
    post([this, job, allocation, status] {
      if (Runner* const heard = FindRunner(job, allocation)) heard->stands = status;
    });
  };
  port.send = [this, job, allocation](const std::vector<proto::JobEvent>& events) {
    const bool is_step = events.size() == 1 && events.front().has_step();
    queue_of_tasks_.Post([this, job, allocation, events] { OnNews(job, allocation, events); }, 0,
                         TaskQueue::Room::kAlways,
                         is_step ? TaskQueue::Wake::kWithTick : TaskQueue::Wake::kNow);
  };
  port.close = [this, job, allocation](const absl::Status& why) {
    queue_of_tasks_.Post([this, job, allocation, why] { OnRunnerOver(job, allocation, why); }, 0,
                         TaskQueue::Room::kAlways);
  };
  runner.driver->Watch(kWatch, std::move(request), std::move(port));
}

void FleetDriver::WriteFiles(int64_t job, const Runner& runner,
                             const proto::SubmitJobRequest& request) {
  const int64_t allocation = runner.allocation;
  const auto post = [this](std::function<void()> task) {
    queue_of_tasks_.Post(std::move(task), 0, TaskQueue::Room::kAlways);
  };
  writer_.Begin({.job_id = JobName(job),
                 .allocation = allocation,
                 .request = request,
                 .version = options_.version,
                 .reader = OtherUser(book_.fleet().jobs.at(job).request.owner_uid),
                 .driver = runner.driver,
                 .warn =
                     [this, post, job, allocation](const std::string& what) {
                       post([this, job, allocation, what] { OnNotWritten(job, allocation, what); });
                     },
                 .done =
                     [this, post, job, allocation](const absl::Status& end) {
                       post([this, job, allocation, end] { OnWritten(job, allocation, end); });
                     }});
}

void FleetDriver::OnWritten(int64_t job, int64_t allocation, const absl::Status& end) {
  Runner* const runner = FindRunner(job, allocation);
  if (runner == nullptr) return;
  runner->is_writing = false;
  runner->looked_at = end;
}

// It is an event of the job, and no more: training goes on.
void FleetDriver::OnNotWritten(int64_t job, int64_t allocation, const std::string& what) {
  LogWarning(absl::StrCat(JobName(job), ": ", what));
  if (FindRunner(job, allocation) == nullptr) return;
  const JobEntry& entry = book_.entry(job);
  if (entry.allocation != allocation) return;
  proto::FleetRecord record;
  proto::FleetJobNews& news = *record.mutable_job_news();
  news.set_job(job);
  news.set_allocation(allocation);
  news.set_driver_revision(entry.driver_revision);
  *news.mutable_status() = entry.status;
  proto::JobEvent& event = *news.add_events();
  event.set_generation(entry.status.generation());
  event.set_unix_ms(options_.unix_ms());
  event.mutable_not_written()->set_what(what);
  Happened(std::move(record));
}

void FleetDriver::OnNews(int64_t job, int64_t allocation,
                         const std::vector<proto::JobEvent>& events) {
  Runner* const runner = FindRunner(job, allocation);
  if (runner == nullptr) return;
  proto::FleetRecord record;
  proto::FleetJobNews& news = *record.mutable_job_news();
  for (const proto::JobEvent& each : events) {
    if (!each.has_step()) {
      *news.add_events() = each;
      news.set_driver_revision(each.revision());
      continue;
    }
    if (std::optional<v1::Event> step = EventMessage(each)) {
      step->set_job_id(JobName(job));
      last_steps_[job] = *step;
      new_steps_[job] = *std::move(step);
    }
  }
  if (news.events().empty()) return;
  news.set_job(job);
  news.set_allocation(allocation);
  *news.mutable_status() = runner->stands;
  Happened(std::move(record));
}

// The Driver says that nothing more will come: the job is over, or the Driver itself is.
void FleetDriver::OnRunnerOver(int64_t job, int64_t allocation, const absl::Status& why) {
  Runner* const runner = FindRunner(job, allocation);
  if (runner == nullptr || runner->is_over) return;
  runner->is_over = true;
  runner->over_ms = Now();
  runner->end = why.ok() ? book_.entry(job).status.phase() : "FAILED";
  runner->reason = why.ok() ? book_.entry(job).status.reason() : std::string(why.message());
  {
    const std::lock_guard<std::mutex> lock(doors_mutex_);
    doors_.erase(JobName(job));
  }
  // Its agents come back, find nobody who knows them, and end.
  runner->driver->Close();
}

// Nothing of the job is left on any host that is reached, and no lease of any other runs.
bool FleetDriver::HasAgents(int64_t job, const FleetJob& placed) const {
  for (const FleetShare& share : placed.shares) {
    const Offer* const offer = OfferOf(share.machine);
    if (offer != nullptr && offer->running.count({job, placed.allocation}) > 0) return true;
    if (offer == nullptr && book_.fleet().hosts.at(share.machine).present) return true;
  }
  return false;
}

void FleetDriver::EndJobs() {
  for (const auto& [job, runner] : runners_) {
    const auto placed = book_.fleet().jobs.find(job);
    // Another run may take the folder then, so its files are done, unless their disk hangs.
    const bool is_written = !runner.is_writing || Now() - runner.over_ms > kMaxWriteMs;
    const bool ends = runner.is_over && is_written && placed != book_.fleet().jobs.end() &&
                      placed->second.phase == FleetPhase::kPlaced &&
                      placed->second.allocation == runner.allocation &&
                      !HasAgents(job, placed->second);
    if (!ends) continue;
    const absl::Status& is_so = runner.looked_at;
    // An older version, which may read this, takes a job for over that is saved and not to move.
    const FleetJob& job_now = placed->second;
    const bool moves = runner.end == "SUSPENDED" && job_now.stop == FleetStop::kNone &&
                       job_now.after_save == AfterSave::kIsOver && is_so.ok();
    if (moves) {
      proto::FleetRecord record;
      record.mutable_job_moves()->set_job(job);
      Happened(std::move(record));
    }
    Happened(is_so.ok() ? EndOf(job, runner.end, runner.reason, options_.unix_ms())
                        : EndOf(job, "FAILED", std::string(is_so.message()), options_.unix_ms()));
  }
}

// The files of a Driver are done with; a job that had none leaves whatever is there.
void FleetDriver::DropRunner(int64_t job) {
  const auto found = runners_.find(job);
  const bool has_run = found->second.driver != nullptr;
  if (has_run) found->second.driver->Close();
  runners_.erase(found);
  last_steps_.erase(job);
  new_steps_.erase(job);
  const std::string folder = absl::StrCat(options_.state_folder, "/jobs/", JobName(job));
  std::error_code error;
  if (has_run) {
    std::filesystem::remove_all(folder, error);
  } else {
    std::filesystem::remove(folder, error);  // if it is empty
  }
}

}  // namespace weft
