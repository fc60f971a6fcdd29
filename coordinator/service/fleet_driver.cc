#include "coordinator/service/fleet_driver.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <future>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/caught.h"
#include "coordinator/service/control_messages.h"
#include "plan/errors.h"
#include "process/folder_entry.h"
#include "process/keyed_hash.h"
#include "process/log.h"

namespace weft {
namespace {

constexpr int64_t kTickMs = 50;
constexpr int kLookAtPromisesUs = 2000;
constexpr int kMaxRounds = 16;  // places that follow from places

std::string NewFleetId() {
  uint32_t id = 0;
  CHECK(getrandom(&id, sizeof(id), 0) == sizeof(id));
  return absl::StrCat(absl::Hex(id, absl::kZeroPad8));
}

// Journals hold what jobs were submitted with, and their names are weftd's alone: the folder is
// 0700 whatever the umask, and one that is there already becomes so.
absl::Status MakePrivate(const std::string& folder) {
  const auto cannot = [&](const char* what, int error) {
    return absl::UnavailableError(
        absl::StrCat("state folder ", folder, ": cannot be ", what, ": ", std::strerror(error)));
  };
  const std::string parent = std::filesystem::path(folder).parent_path();
  int error = parent.empty() ? 0 : MakeFolder(parent);
  if (error == 0 && mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) error = errno;
  if (error != 0) return cannot("made", error);
  struct stat found = {};
  if (stat(folder.c_str(), &found) != 0) return cannot("looked at", errno);
  if (found.st_uid != geteuid()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "state folder ", folder, ": belongs to user ", found.st_uid, ", and weftd runs as user ",
        geteuid(), "; name a folder of that user by --state"));
  }
  if ((found.st_mode & 0777) == 0700) return absl::OkStatus();
  if (chmod(folder.c_str(), 0700) != 0) return cannot("kept from other users", errno);
  LogWarning(absl::StrCat("state folder ", folder, ": had mode ",
                          absl::StrFormat("%o", found.st_mode & 0777), ", and has 0700 now"));
  return absl::OkStatus();
}

// A placed job has its journal in `jobs`: where that stands without fleet.db, the queue is lost.
absl::Status CheckIsWhole(const std::string& state_folder) {
  std::error_code error;
  const std::string fleet = state_folder + "/fleet.db";
  const std::filesystem::directory_iterator journals(state_folder + "/jobs", error);
  if (std::filesystem::exists(fleet, error) || journals == std::filesystem::directory_iterator()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      fleet, ": is missing, though ", state_folder,
      "/jobs has journals of its jobs: the queue and the fleet were in it; put it back, or move ",
      state_folder, "/jobs away to begin with an empty queue"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<FleetDriver>> FleetDriver::Start(FleetDriverOptions options) {
  std::unique_ptr<FleetDriver> driver(new FleetDriver(std::move(options)));
  RETURN_IF_ERROR(driver->Open());
  driver->thread_ = std::thread([raw = driver.get()] { raw->Run(); });
  return driver;
}

FleetDriver::FleetDriver(FleetDriverOptions options)
    : options_(std::move(options)), queue_of_tasks_(options_.max_queued_bytes) {
  leases_.SetLength(options_.offer_lease_ms);
}

FleetDriver::~FleetDriver() {
  Close();
}

void FleetDriver::Close() {
  queue_of_tasks_.Close();
  if (thread_.joinable()) thread_.join();
  writer_.Close();
}

// Hosts that were there may be under way with the leases that an earlier weftd has granted.
absl::Status FleetDriver::Open() {
  RETURN_IF_ERROR(MakePrivate(options_.state_folder));
  RETURN_IF_ERROR(CheckIsWhole(options_.state_folder));
  ASSIGN_OR_RETURN(journal_, FleetJournal::Open(options_.state_folder + "/fleet.db"));
  RETURN_IF_ERROR(MakePrivate(options_.state_folder + "/jobs"));
  const auto restore = [this](const proto::FleetSnapshot& snapshot, int64_t revision) {
    return book_.Restore(snapshot, revision);
  };
  RETURN_IF_ERROR(journal_->Replay(
      restore, [this](const proto::FleetRecord& each) { return book_.Take(each); }));
  durable_revision_ = book_.revision();
  for (const auto& [machine, host] : book_.fleet().hosts) {
    if (host.present) leases_.Assume(machine, Now() + options_.offer_lease_ms);
  }
  // Nothing runs on other hosts that could go on.
  for (const int64_t job : book_.fleet().live) {
    for (const FleetShare& share : book_.fleet().jobs.at(job).shares) {
      if (PromisedUntilMs() > 0) leases_.Promise(share.machine, PromisedUntilMs());
    }
  }
  if (book_.revision() > 0) {
    LogInfo(absl::StrCat("replayed ", book_.revision(), " records: ", book_.fleet().jobs.size(),
                         " jobs, ", book_.fleet().hosts.size(), " hosts"));
  }
  proto::FleetRecord record = StartedRecord();
  if (PromisedUntilMs() > 0) {
    LogInfo(absl::StrCat("nothing of what runs is placed elsewhere for ",
                         (PromisedUntilMs() - Now()) / 1000, " s, as was promised"));
    record.mutable_started()->set_absent_until_unix_ms(book_.absent_until_ms());
    *record.mutable_started()->mutable_absent_by_boot() = book_.absent_by_boot();
  }
  Happened(std::move(record));
  WriteRound();
  RETURN_IF_ERROR(journal_->Commit(Now()));
  // Their agents come back as soon as somebody listens.
  KeepRunners();
  has_opened_ = true;
  return absl::OkStatus();
}

proto::FleetRecord FleetDriver::StartedRecord() const {
  proto::FleetRecord record;
  proto::FleetStarted& started = *record.mutable_started();
  started.set_version(options_.version);
  started.set_fleet_id(book_.fleet_id().empty() ? NewFleetId() : book_.fleet_id());
  const bool has_secret = !book_.agent_secret().empty();
  started.set_agent_secret(has_secret ? book_.agent_secret() : NewSecret());
  started.set_tokens_after_allocation(has_secret ? book_.tokens_after()
                                                 : book_.fleet().newest_allocation);
  return record;
}

// The end of a promise that is open, by the clock of leases; 0: none is.
int64_t FleetDriver::PromisedUntilMs() const {
  const int64_t left_ms = book_.PromiseLeftMs(options_.boot, Now(), options_.unix_ms());
  return left_ms > 0 ? Now() + std::min(left_ms, kLongestAbsenceMs) : 0;
}

// Durable before anybody is told: a successor has to know of it. Returns the Drivers that have
// agents to tell; none if it cannot be written.
std::vector<std::shared_ptr<Driver>> FleetDriver::WriteAbsence(int64_t absent_ms) {
  goes_away_ = true;
  proto::FleetRecord record = StartedRecord();
  record.mutable_started()->set_absent_until_unix_ms(options_.unix_ms() + absent_ms);
  proto::AbsenceByBoot& by_boot = *record.mutable_started()->mutable_absent_by_boot();
  by_boot.set_until_boot_ms(Now() + absent_ms);
  by_boot.set_boot(options_.boot);
  Happened(std::move(record));
  Settle();
  std::vector<std::shared_ptr<Driver>> drivers;
  if (broken_ || !journal_->behind().ok()) {
    LogWarning("the journal cannot be written: what runs stops when its leases end");
    return drivers;
  }
  for (const auto& [job, runner] : runners_) {
    if (runner.driver != nullptr && !runner.is_over) drivers.push_back(runner.driver);
  }
  return drivers;
}

void FleetDriver::GoAway(int64_t absent_ms) {
  const auto drivers = std::make_shared<std::promise<std::vector<std::shared_ptr<Driver>>>>();
  const bool posted = queue_of_tasks_.Post(
      [this, absent_ms, drivers] { drivers->set_value(WriteAbsence(absent_ms)); }, 0,
      TaskQueue::Room::kAlways);
  if (!posted) return;
  std::vector<std::shared_ptr<Driver>> told = drivers->get_future().get();
  const auto waits = std::make_shared<std::atomic<size_t>>(told.size());
  for (const auto& driver : told) driver->TellAbsence(absent_ms, [waits] { --*waits; });
  const int64_t until_ms = Now() + kTellAbsenceMs;
  const auto all_know = [&] {
    return *waits == 0 && std::all_of(told.begin(), told.end(), [](const auto& driver) {
      return driver->leases().AllHavePromises();
    });
  };
  while (!all_know() && Now() < until_ms) usleep(kLookAtPromisesUs);
  if (told.empty()) return;
  LogInfo(absl::StrCat("ends; what ", told.size(), " jobs run goes on for ", absent_ms / 1000, " s",
                       all_know() ? "" : ", but not every agent has said that it knows"));
}

// ---- rounds ----

void FleetDriver::Run() {
  while (queue_of_tasks_.Wait(kTickMs)) {
    const absl::Status ran = Caught("a round of the fleet", [this] { RunOnce(); });
    if (!ran.ok() && !broken_) Break(ran);
  }
  EndEverything();
}

// A caller's wish that fails unexpectedly is left out, and the others go on.
void FleetDriver::RunOnce() {
  for (const TaskQueue::Task& task : queue_of_tasks_.Take()) {
    Caught("a task of the fleet", task).IgnoreError();
  }
  LookAtLeases();
  EndJobs();
  if (!goes_away_) Decided();
  Settle();
}

void FleetDriver::Decided() {
  for (int round = 0; round < kMaxRounds && !broken_; ++round) {
    FleetDuties duties = Decide(book_.fleet(), options_.unix_ms());
    ends_ = std::move(duties.end);
    for (const MoveJob& each : duties.move) {
      proto::FleetRecord record;
      record.mutable_job_moves()->set_job(each.job);
      Happened(std::move(record));
    }
    for (const PlaceJob& each : duties.place) {
      proto::FleetRecord record;
      proto::FleetJobPlaced& placed = *record.mutable_job_placed();
      placed.set_job(each.job);
      for (const FleetShare& share : each.shares) {
        proto::FleetJobPlaced::Share& message = *placed.add_shares();
        message.set_machine(share.machine);
        message.mutable_slots()->Add(share.slots.begin(), share.slots.end());
      }
      Happened(std::move(record));
    }
    if (duties.place.empty() && duties.move.empty()) return;
  }
}

// Nothing is done or said on the strength of what a successor would not know of.
void FleetDriver::Settle() {
  WriteRound();
  if (!broken_) {
    const absl::Status written = journal_->Commit(Now());
    if (!written.ok()) Break(written);
  }
  if (broken_) return AnswerAll(absl::UnavailableError("the journal cannot be written"));
  if (!journal_->behind().ok()) {
    TellEnds(/*now_alone=*/true);  // a job can be ended whatever becomes of the disk
    for (const auto& answer : std::exchange(looks_, {})) answer(absl::OkStatus());
    return AnswerAll(absl::UnavailableError(
        absl::StrCat(journal_->behind().message(), "; ask again with the same request id")));
  }
  durable_revision_ = book_.revision();
  ShortenJournal();
  KeepRunners();
  KeepAgents();
  TellWatchers();
  AnswerAll(absl::OkStatus());
}

// Replies say how things are at the round's end: the places in the queue are looked at once.
void FleetDriver::WriteRound() {
  for (Written& each : std::exchange(round_, {})) {
    if (each.record.has_answered()) {
      proto::Answered& answered = *each.record.mutable_answered();
      answered.set_reply(each.reply());
      book_.SetReply(answered.request_id(), answered.reply());
    }
    journal_->Add(each.record);
  }
}

// A full disk only puts it off: the records stay as they are.
void FleetDriver::ShortenJournal() {
  if (journal_->records() < shorten_at_) return;
  const absl::Status shorter = journal_->Shorten(book_.Snapshot(), book_.revision());
  shorten_at_ = kMaxRecords + journal_->records();
  if (!shorter.ok()) LogWarning(absl::StrCat("the journal stays long: ", shorter.message()));
}

void FleetDriver::AnswerAll(const absl::Status& durable) {
  for (const auto& answer : std::exchange(answers_, {})) answer(durable);
  for (const auto& answer : std::exchange(looks_, {})) answer(durable);
}

absl::Status FleetDriver::Busy() {
  return absl::UnavailableError("weftd is busy or closing; ask again");
}

void FleetDriver::EndEverything() {
  const absl::Status why = absl::UnavailableError("weftd is closing; come back");
  AnswerAll(why);
  {
    const std::lock_guard<std::mutex> lock(doors_mutex_);
    doors_.clear();
  }
  for (const auto& [job, runner] : runners_) {
    if (runner.driver != nullptr) runner.driver->Close();
  }
  runners_.clear();
  for (const auto& [id, offer] : offers_) offer.port.close(why);
  for (const auto& [id, watcher] : watchers_) watcher.port.close(why);
  offers_.clear();
  watchers_.clear();
}

// ---- facts ----

bool FleetDriver::Happened(proto::FleetRecord record, const std::function<std::string()>& reply) {
  if (broken_) return false;
  record.set_revision(book_.revision() + 1);
  record.set_unix_ms(options_.unix_ms());
  const absl::Status taken = book_.Take(record);
  if (!taken.ok()) {
    Break(taken);
    return false;
  }
  round_.push_back({std::move(record), reply});
  return true;
}

// Memory is ahead of the disk now: nothing may be done on the strength of it.
void FleetDriver::Break(const absl::Status& why) {
  broken_ = true;
  LogError(why.message());
  if (options_.on_broken) options_.on_broken(why);
}

}  // namespace weft
