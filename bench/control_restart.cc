#include "bench/control_restart.h"

#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/simulated_agent.h"
#include "bench/weftd_process.h"
#include "coordinator/service/fleet_book.h"
#include "coordinator/service/fleet_driver.h"
#include "coordinator/service/fleet_journal.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr int64_t kCommitted = 1000;  // records, with one wait for the disk
constexpr double kRestartLimitS = 300;

// Writes records as a weftd does, one revision after the other; with snapshots in place of old ones
// as often as weftd writes them, if it is asked to.
class History final {
 public:
  History(FleetJournal& journal, bool snapshots) : journal_(journal), snapshots_(snapshots) {}

  absl::Status Add(proto::FleetRecord record) {
    record.set_revision(++revision_);
    record.set_unix_ms(UnixTimeUs() / 1000);
    journal_.Add(record);
    if (snapshots_) RETURN_IF_ERROR(book_.Take(record));
    if (revision_ % kCommitted != 0) return absl::OkStatus();
    RETURN_IF_ERROR(Commit());
    if (!snapshots_ || journal_.records() < kMaxRecords) return absl::OkStatus();
    return journal_.Shorten(book_.Snapshot(), revision_);
  }
  absl::Status Commit() { return journal_.Commit(UnixTimeUs() / 1000); }
  int64_t revision() const { return revision_; }

 private:
  FleetJournal& journal_;
  const bool snapshots_;
  FleetBook book_;
  int64_t revision_ = 0;
};

proto::FleetRecord Joined() {
  proto::FleetRecord record;
  proto::HostOffer& offer = *record.mutable_host_joined()->mutable_offer();
  offer.set_host("h0");
  offer.set_machine("machine-h0");
  offer.set_slots(1);
  return record;
}

proto::FleetRecord Queued(int64_t job, int64_t revision) {
  proto::FleetRecord record;
  proto::FleetJobQueued& queued = *record.mutable_job_queued();
  queued.set_job(job);
  queued.set_owner("somebody");
  queued.set_least_nodes(1);
  queued.set_nodes(1);
  queued.set_slots_per_node(1);
  *queued.mutable_request() =
      SmallSubmission(absl::StrCat("wish-", job), absl::StrCat("/shared/runs/run-", job));
  v1::SubmitReply reply;
  reply.set_job_id(absl::StrCat("job-", job));
  reply.set_revision(revision);
  record.mutable_answered()->set_request_id(queued.request().request_id());
  record.mutable_answered()->set_asked("Submit 0123456789abcdef");
  record.mutable_answered()->set_reply(reply.SerializeAsString());
  return record;
}

proto::FleetRecord Placed(int64_t job) {
  proto::FleetRecord record;
  record.mutable_job_placed()->set_job(job);
  proto::FleetJobPlaced::Share& share = *record.mutable_job_placed()->add_shares();
  share.set_machine("machine-h0");
  share.add_slots(0);
  return record;
}

// `allocation` counts placements, as the fleet does.
proto::FleetRecord News(int64_t job, const std::string& phase, int64_t driver_revision) {
  proto::FleetRecord record;
  proto::FleetJobNews& news = *record.mutable_job_news();
  news.set_job(job);
  news.set_allocation(job);
  news.set_driver_revision(driver_revision);
  proto::JobEvent& event = *news.add_events();
  event.set_revision(driver_revision);
  event.set_generation(1);
  event.set_unix_ms(UnixTimeUs() / 1000);
  event.mutable_phase()->set_phase(phase);
  news.mutable_status()->set_phase(phase);
  news.mutable_status()->set_generation(1);
  news.mutable_status()->set_steps(100);
  return record;
}

proto::FleetRecord Ended(int64_t job) {
  proto::FleetRecord record;
  record.mutable_job_ended()->set_job(job);
  record.mutable_job_ended()->set_end("COMPLETED");
  record.mutable_job_ended()->set_unix_ms(UnixTimeUs() / 1000);
  return record;
}

absl::Status WriteHistory(const std::string& path, int64_t records, bool snapshots) {
  ASSIGN_OR_RETURN(const std::unique_ptr<FleetJournal> journal, FleetJournal::Open(path));
  History history(*journal, snapshots);
  proto::FleetRecord started;
  started.mutable_started()->set_version("bench");
  started.mutable_started()->set_fleet_id("0123abcd");
  RETURN_IF_ERROR(history.Add(std::move(started)));
  RETURN_IF_ERROR(history.Add(Joined()));
  for (int64_t job = 1; history.revision() < records; ++job) {
    RETURN_IF_ERROR(history.Add(Queued(job, history.revision() + 1)));
    RETURN_IF_ERROR(history.Add(Placed(job)));
    RETURN_IF_ERROR(history.Add(News(job, "STARTING", 1)));
    RETURN_IF_ERROR(history.Add(News(job, "RUNNING", 2)));
    RETURN_IF_ERROR(history.Add(News(job, "COMPLETED", 3)));
    RETURN_IF_ERROR(history.Add(Ended(job)));
  }
  return history.Commit();
}

}  // namespace

absl::Status MeasureRestart(const ControlBenchOptions& options) {
  ASSIGN_OR_RETURN(const auto folder, BenchFolder::Make(options.folder));
  const std::string state = folder->path() + "/state";
  std::filesystem::create_directory(state);
  RETURN_IF_ERROR(WriteHistory(state + "/fleet.db", options.records, !options.all_records));
  const double mib =
      static_cast<double>(std::filesystem::file_size(state + "/fleet.db")) / (1 << 20);
  const WeftdProcess weftd(options.weftd, folder->path(), {"--state=" + state});
  ASSIGN_OR_RETURN(const double took_s, WaitForControl(weftd.Target(), kRestartLimitS));
  std::printf("restart: %.2f s after %lld records, %.0f MiB: %.2f s of processor time, %.0f MiB\n",
              took_s, static_cast<long long>(options.records), mib, weftd.CpuSeconds(),
              static_cast<double>(weftd.ResidentBytes()) / (1 << 20));
  return absl::OkStatus();
}

}  // namespace weft
