// The book of a fleet: what is told of jobs, which answers are kept, and that a snapshot is worth
// as much as the records that it stands for.
#include "coordinator/service/fleet_book.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <random>

#include "coordinator/service/control_messages.h"
#include "coordinator/service/fleet_journal.h"
#include "proto/job_text.h"
#include "tests/plan/keys/full_job.h"

namespace weft {
namespace {

constexpr int64_t kNow = 1'700'000'000'000;

v1::SubmitRequest Request(const std::string& id) {
  v1::SubmitRequest request;
  request.set_request_id(id);
  request.set_name("job of " + id);
  request.mutable_submission()->set_job(JobText(FullJob()));
  request.mutable_submission()->set_run_folder("/runs/" + id);
  return request;
}

// Records at random, as weftd would write them.
class Writer {
 public:
  explicit Writer(uint32_t seed) : random_(seed) {}

  proto::FleetRecord Next(const FleetBook& book) {
    proto::FleetRecord record;
    record.set_revision(book.revision() + 1);
    record.set_unix_ms(now_ms_ += Pick(0, 60000));
    Fill(book, record);
    if (Pick(0, 2) == 0 || record.fact_case() == proto::FleetRecord::FACT_NOT_SET) {
      record.mutable_answered()->set_request_id("id" + std::to_string(book.revision()));
      record.mutable_answered()->set_asked("Stop 1");
      record.mutable_answered()->set_reply("reply");
    }
    return record;
  }

 private:
  int Pick(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  int64_t Job(const FleetBook& book) {
    return Pick(1, static_cast<int>(book.fleet().newest_job) + 1);
  }
  std::string Machine() { return "m" + std::to_string(Pick(1, 4)); }

  void Queue(const FleetBook& book, proto::FleetJobQueued& queued) {
    queued.set_job(book.fleet().newest_job + 1);
    queued.set_owner("ann");
    queued.set_least_nodes(1);
    queued.set_nodes(Pick(1, 3));
    queued.set_slots_per_node(2);
    *queued.mutable_request() = Request(std::to_string(queued.job()));
  }

  void OfferHost(proto::HostOffer& offer) {
    offer.set_machine(Machine());
    offer.set_host("h");
    offer.set_owner("ann");
    offer.set_slots(2);
    offer.add_allows("*");
    offer.set_gives_tokens(Pick(0, 1) == 0);
  }

  void Fill(const FleetBook& book, proto::FleetRecord& record) {
    switch (Pick(0, 13)) {
      case 0:
        return OfferHost(*record.mutable_host_joined()->mutable_offer());
      case 1:
        record.mutable_host_gone()->set_machine(Machine());
        return record.mutable_host_gone()->set_unix_ms(now_ms_);
      case 2:
        record.mutable_host_failed()->set_machine(Machine());
        return record.mutable_host_failed()->set_unix_ms(now_ms_);
      case 3:
        record.mutable_host_drained()->set_machine(Machine());
        return record.mutable_host_drained()->set_reason("disk");
      case 4:
        return record.mutable_host_undrained()->set_machine(Machine());
      case 5:
        return Queue(book, *record.mutable_job_queued());
      case 6: {
        record.mutable_job_placed()->set_job(Job(book));
        proto::FleetJobPlaced::Share& share = *record.mutable_job_placed()->add_shares();
        share.set_machine(Machine());
        return share.add_slots(1);
      }
      case 7: {
        const char* ends[] = {"COMPLETED", "FAILED", "SUSPENDED", "CANCELLED"};
        record.mutable_job_ended()->set_job(Job(book));
        record.mutable_job_ended()->set_end(ends[Pick(0, 3)]);
        return record.mutable_job_ended()->set_unix_ms(now_ms_);
      }
      case 8:
        record.mutable_job_unwanted()->set_job(Job(book));
        record.mutable_job_unwanted()->set_save_until_ms(Pick(0, 1) * now_ms_);
        return record.mutable_job_unwanted()->set_unix_ms(now_ms_);
      case 9:
        return record.mutable_pause_asked()->set_job(Job(book));
      case 10:
        return record.mutable_resume_asked()->set_job(Job(book));
      case 11:
        record.mutable_resize_asked()->set_job(Job(book));
        record.mutable_resize_asked()->set_least_nodes(1);
        return record.mutable_resize_asked()->set_nodes(Pick(1, 4));
      case 12: {
        proto::FleetJobNews& news = *record.mutable_job_news();
        news.set_job(Job(book));
        news.set_allocation(1);
        news.set_driver_revision(Pick(1, 100));
        news.add_events()->mutable_phase()->set_phase("RUNNING");
        return news.mutable_status()->set_phase("RUNNING");
      }
      default:
        return record.mutable_job_moves()->set_job(Job(book));
    }
  }

  std::mt19937 random_;
  int64_t now_ms_ = kNow;
};

TEST(FleetBook, IsTheSameFromASnapshotAsFromItsRecords) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Writer writer(seed);
    FleetBook whole;
    FleetBook restored;
    for (int i = 0; i < 300; ++i) {
      const proto::FleetRecord record = writer.Next(whole);
      ASSERT_EQ(whole.Take(record), absl::OkStatus());
      ASSERT_EQ(restored.Take(record), absl::OkStatus());
      if (i % 50 == 25) {
        const proto::FleetSnapshot snapshot = restored.Snapshot();
        ASSERT_EQ(restored.Restore(snapshot, whole.revision()), absl::OkStatus());
      }
      ASSERT_EQ(restored.fleet(), whole.fleet()) << record.DebugString();
    }
    EXPECT_EQ(restored.Snapshot().SerializeAsString(), whole.Snapshot().SerializeAsString());
    EXPECT_GT(whole.fleet().newest_job, 3) << "the writer writes nothing";
  }
}

TEST(FleetBook, RefusesRecordsThatAreMissingOrUnknown) {
  FleetBook book;
  proto::FleetRecord record;
  record.set_revision(2);
  record.mutable_started()->set_version("1");
  EXPECT_TRUE(absl::IsDataLoss(book.Take(record)));
  record.set_revision(1);
  record.clear_started();
  EXPECT_TRUE(absl::IsDataLoss(book.Take(record)));
  EXPECT_EQ(book.revision(), 0);
}

TEST(FleetBook, KeepsAnAnswerForADay) {
  FleetBook book;
  const auto answer = [&](const std::string& id, int64_t unix_ms) {
    proto::FleetRecord record;
    record.set_revision(book.revision() + 1);
    record.set_unix_ms(unix_ms);
    record.mutable_answered()->set_request_id(id);
    ASSERT_EQ(book.Take(record), absl::OkStatus());
  };
  answer("old", kNow);
  answer("new", kNow + kAnswerAgeMs);
  EXPECT_NE(book.FindAnswer("old"), nullptr);
  answer("newer", kNow + kAnswerAgeMs + 1);
  EXPECT_EQ(book.FindAnswer("old"), nullptr);
  EXPECT_NE(book.FindAnswer("new"), nullptr);
}

// An operator, or a time server, may set the clock while weftd is away.
TEST(FleetBook, KeepsAPromiseWhateverTheTimeOfDayIsSetTo) {
  FleetBook book;
  proto::FleetRecord record;
  record.set_revision(1);
  record.mutable_started()->set_version("1");
  ASSERT_EQ(book.Take(record), absl::OkStatus());
  EXPECT_EQ(book.PromiseLeftMs("a", 1000, kNow), 0);
  record.set_revision(2);
  record.mutable_started()->set_absent_until_unix_ms(kNow + 600000);
  record.mutable_started()->mutable_absent_by_boot()->set_boot("a");
  record.mutable_started()->mutable_absent_by_boot()->set_until_boot_ms(601000);
  ASSERT_EQ(book.Take(record), absl::OkStatus());
  FleetBook restored;
  ASSERT_EQ(restored.Restore(book.Snapshot(), 2), absl::OkStatus());
  for (const FleetBook* each : {&book, &restored}) {
    EXPECT_EQ(each->PromiseLeftMs("a", 2000, kNow + 1000), 599000);
    EXPECT_EQ(each->PromiseLeftMs("a", 2000, kNow + 3600000), 599000) << "set an hour ahead";
    EXPECT_EQ(each->PromiseLeftMs("a", 2000, kNow - 3600000), 599000) << "set an hour back";
    EXPECT_EQ(each->PromiseLeftMs("b", 2000, kNow + 1000), 599000) << "booted since";
    EXPECT_LE(each->PromiseLeftMs("b", 2000, kNow + 600000), 0);
  }
  // A weftd that knows of no clock of a boot has written it.
  record.set_revision(3);
  record.mutable_started()->clear_absent_by_boot();
  ASSERT_EQ(book.Take(record), absl::OkStatus());
  EXPECT_EQ(book.PromiseLeftMs("", 2000, kNow + 1000), 599000);
}

TEST(FleetJournal, ReadsASnapshotAndWhatCameAfterIt) {
  std::string folder = testing::TempDir() + "/fleet-journal-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  Writer writer(7);
  FleetBook book;
  {
    auto journal = FleetJournal::Open(folder + "/fleet.db").value();
    for (int i = 0; i < 60; ++i) {
      const proto::FleetRecord record = writer.Next(book);
      ASSERT_EQ(book.Take(record), absl::OkStatus());
      journal->Add(record);
      ASSERT_EQ(journal->Commit(i), absl::OkStatus());
      if (i != 20 && i != 40) continue;
      ASSERT_EQ(journal->Shorten(book.Snapshot(), book.revision()), absl::OkStatus());
      EXPECT_EQ(journal->records(), 0);
    }
  }
  auto journal = FleetJournal::Open(folder + "/fleet.db").value();
  FleetBook again;
  int taken = 0;
  ASSERT_EQ(journal->Replay([&](const proto::FleetSnapshot& snapshot,
                                int64_t revision) { return again.Restore(snapshot, revision); },
                            [&](const proto::FleetRecord& record) {
                              ++taken;
                              return again.Take(record);
                            }),
            absl::OkStatus());
  EXPECT_EQ(taken, 19);
  EXPECT_EQ(again.Snapshot().SerializeAsString(), book.Snapshot().SerializeAsString());
  std::filesystem::remove_all(folder);
}

// Messages of Drivers become those of weft.v1 by their bytes.
void ExpectSameFields(const google::protobuf::Descriptor* inner,
                      const google::protobuf::Descriptor* outer) {
  SCOPED_TRACE(inner->full_name());
  ASSERT_EQ(inner->field_count(), outer->field_count());
  for (int i = 0; i < inner->field_count(); ++i) {
    const auto* one = inner->field(i);
    const auto* other = outer->FindFieldByNumber(one->number());
    ASSERT_NE(other, nullptr) << one->name();
    EXPECT_EQ(one->name(), other->name());
    EXPECT_EQ(one->type(), other->type()) << one->name();
    EXPECT_EQ(one->label(), other->label()) << one->name();
    if (one->message_type() != nullptr && !one->is_map()) {
      ExpectSameFields(one->message_type(), other->message_type());
    }
  }
}

TEST(ControlMessages, HaveTheFieldsOfThoseThatTheyAreMadeOf) {
  ExpectSameFields(proto::PhaseChanged::descriptor(), v1::PhaseChanged::descriptor());
  ExpectSameFields(proto::StepDone::descriptor(), v1::Step::descriptor());
  ExpectSameFields(proto::Committed::descriptor(), v1::Committed::descriptor());
  ExpectSameFields(proto::RankLost::descriptor(), v1::RankLost::descriptor());
  ExpectSameFields(proto::NotSaved::descriptor(), v1::NotSaved::descriptor());
  ExpectSameFields(proto::SlowRank::descriptor(), v1::SlowRank::descriptor());
  ExpectSameFields(proto::HostChecked::descriptor(), v1::HostChecked::descriptor());
  ExpectSameFields(proto::RunIdentity::descriptor(), v1::Submission::Run::descriptor());
}

}  // namespace
}  // namespace weft
