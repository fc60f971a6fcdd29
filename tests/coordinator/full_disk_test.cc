// A journal whose disk is full for a while, as a file size limit shows it: who trains goes on,
// saves are given up by name, nothing is lost once there is room, and nobody waits for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "coordinator/patient_journal.h"
#include "tests/coordinator/in_process.h"
#include "tests/plan/sample_jobs.h"
#include "worker/process/link.h"

namespace weft {
namespace {

using testing::HasSubstr;

Layout TwoReplicas() {
  Layout layout;
  layout.dp = 2;
  layout.gradient_accumulation_steps = 8;
  return layout;
}

// No file of this process grows beyond `bytes` as long as this lives.
class FileLimit {
 public:
  explicit FileLimit(uintmax_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = std::min<rlim_t>(bytes, before_.rlim_max);
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_ = {};
  void (*handler_)(int);
};

class PatientJournalTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/patient-journal-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(PatientJournalTest, KeepsFactsInOrderUntilThereIsRoom) {
  const std::string path = folder_ + "/journal.db";
  {
    auto opened = Journal::Open(path);
    ASSERT_TRUE(opened.ok()) << opened.status();
    PatientJournal journal(*std::move(opened));
    journal.Add({1, 1, Restarted{}});
    EXPECT_EQ(journal.Commit(0), absl::OkStatus());
    EXPECT_TRUE(journal.behind().ok());
    {
      const FileLimit full(std::filesystem::file_size(path + "-wal"));
      journal.Add({2, 1, Launched{1}});
      EXPECT_EQ(journal.Commit(10), absl::OkStatus());
      journal.Add({3, 1, Launched{2}});
      EXPECT_EQ(journal.Commit(20), absl::OkStatus());
      EXPECT_FALSE(journal.behind().ok());
      EXPECT_EQ(journal.Commit(5000), absl::OkStatus());
      EXPECT_FALSE(journal.behind().ok());
    }
    EXPECT_EQ(journal.Commit(5001), absl::OkStatus());
    EXPECT_FALSE(journal.behind().ok()) << "not asked again so soon";
    EXPECT_EQ(journal.Commit(6000), absl::OkStatus());
    EXPECT_TRUE(journal.behind().ok());
  }
  auto again = Journal::Open(path);
  ASSERT_TRUE(again.ok()) << again.status();
  const auto stored = (*again)->Replay();
  ASSERT_TRUE(stored.ok()) << stored.status();
  ASSERT_EQ(stored->size(), 3u);
  EXPECT_TRUE((*stored)[2].event == Event(Launched{2}));
}

// No log that SQLite opens while it lives can be synced as long as it is to fail.
class FailingSync {
 public:
  FailingSync() {
    failing_ = *real_;
    failing_.zName = "failing-sync";
    failing_.xOpen = Open;
    EXPECT_EQ(sqlite3_vfs_register(&failing_, /*makeDflt=*/1), SQLITE_OK);
  }
  ~FailingSync() {
    fails_ = false;
    sqlite3_vfs_register(real_, /*makeDflt=*/1);
    sqlite3_vfs_unregister(&failing_);
  }
  FailingSync(const FailingSync&) = delete;
  FailingSync& operator=(const FailingSync&) = delete;
  void Fail(bool fails) { fails_ = fails; }

 private:
  static int Open(sqlite3_vfs*, sqlite3_filename name, sqlite3_file* file, int flags, int* out) {
    const int code = real_->xOpen(real_, name, file, flags, out);
    if (code != SQLITE_OK || (flags & SQLITE_OPEN_WAL) == 0) return code;
    real_sync_ = file->pMethods->xSync;
    methods_ = *file->pMethods;
    methods_.xSync = Sync;
    file->pMethods = &methods_;
    return code;
  }
  static int Sync(sqlite3_file* file, int flags) {
    return fails_ ? SQLITE_IOERR_FSYNC : real_sync_(file, flags);
  }

  static inline sqlite3_vfs* const real_ = sqlite3_vfs_find(nullptr);
  static inline bool fails_ = false;
  static inline int (*real_sync_)(sqlite3_file*, int) = nullptr;
  static inline sqlite3_io_methods methods_ = {};
  sqlite3_vfs failing_ = {};
};

TEST_F(PatientJournalTest, RidesOutADiskThatCannotSync) {
  const std::string path = folder_ + "/journal.db";
  {
    FailingSync disk;
    auto opened = Journal::Open(path);
    ASSERT_TRUE(opened.ok()) << opened.status();
    PatientJournal journal(*std::move(opened));
    journal.Add({1, 1, Restarted{}});
    EXPECT_EQ(journal.Commit(0), absl::OkStatus());
    disk.Fail(true);
    journal.Add({2, 1, Launched{1}});
    journal.Add({3, 1, Launched{2}});
    EXPECT_EQ(journal.Commit(1000), absl::OkStatus()) << "training goes on";
    EXPECT_THAT(std::string(journal.behind().message()), HasSubstr("disk I/O error"));
    disk.Fail(false);
    EXPECT_EQ(journal.Commit(2000), absl::OkStatus());
    EXPECT_TRUE(journal.behind().ok());
  }
  auto again = Journal::Open(path);
  ASSERT_TRUE(again.ok()) << again.status();
  const auto stored = (*again)->Replay();
  ASSERT_TRUE(stored.ok()) << stored.status();
  ASSERT_EQ(stored->size(), 3u);
  EXPECT_TRUE((*stored)[1].event == Event(Launched{1}));
}

// Two ranks that train, and their coordinator.
class FullJournal : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(coordinator_.Start().ok());
    ASSERT_TRUE(coordinator_.Submit("r1", SampleJob(), TwoReplicas()).ok());
    host_.emplace(coordinator_);
    ASSERT_TRUE(host_->NextOrder().ok());
    for (int rank = 0; rank < 2; ++rank) {
      LinkOptions options;
      options.agent = host_->rank_target();
      options.rank = rank;
      options.world_size = 2;
      auto link = Link::Attach(std::move(options));
      ASSERT_TRUE(link.ok()) << link.status();
      links_.push_back(*std::move(link));
    }
    for (const auto& link : links_) {
      ASSERT_TRUE(link->WaitForTrain().ok());
      link->ReportReady(0, 1000, 1000);
    }
    ASSERT_TRUE(coordinator_.WaitForPhase("RUNNING"));
  }

  // Returns what both ranks hear of a save; empty: it is committed.
  std::string Save(int64_t step) {
    const SaveId id{++number_, step};
    EXPECT_TRUE(
        links_[1]->ExchangeShards(id, ShardRecord{"rank-00001.safetensors", 2, "b"}, 0).ok());
    const auto shards =
        links_[0]->ExchangeShards(id, ShardRecord{"rank-00000.safetensors", 1, "a"}, kPatienceMs);
    EXPECT_TRUE(shards.ok()) << shards.status();
    if (!shards.ok()) return "";
    if (!shards->empty()) links_[0]->ReportCommitted(step, "step-" + std::to_string(step), 3);
    std::string reason;
    for (const auto& link : links_) {
      const auto end = link->AwaitSaveOver(id, kPatienceMs);
      EXPECT_TRUE(end.ok()) << end.status();
      if (end.ok()) reason = end->reason;
    }
    return reason;
  }

  uintmax_t JournalBytes() const {
    return std::filesystem::file_size(coordinator_.journal() + "-wal");
  }

  // Nothing else may be kept of what was refused.
  void StartAgain() {
    links_.clear();
    coordinator_.Stop();
    ASSERT_TRUE(coordinator_.Start().ok());
  }

  InProcessCoordinator coordinator_;
  std::optional<InProcessHost> host_;
  std::vector<std::unique_ptr<Link>> links_;
  int64_t number_ = 0;
};

TEST_F(FullJournal, GivesSavesUpAndLetsTrainingGoOn) {
  EXPECT_EQ(Save(5), "");
  {
    const FileLimit full(JournalBytes());
    EXPECT_THAT(Save(10), HasSubstr("journal"));
    const auto status = coordinator_.Status();
    ASSERT_TRUE(status.ok()) << status.status();
    EXPECT_EQ(status->phase(), "RUNNING");
    EXPECT_EQ(status->saved_step(), 5);
  }
  for (int i = 0; i < 100 && !Save(15).empty(); ++i) {  // it is tried twice a second
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  // All that happened is in the journal: a successor knows the same.
  StartAgain();
  EXPECT_EQ(coordinator_.Status()->saved_step(), 15);
}

TEST_F(FullJournal, EndsAJobAtOnceButSaysThatASuccessorWouldNotKnow) {
  {
    const FileLimit full(JournalBytes());
    const absl::Status answer = coordinator_.StopJob(/*now=*/true);
    EXPECT_TRUE(absl::IsUnavailable(answer)) << answer;
    EXPECT_THAT(std::string(answer.message()), HasSubstr("ended at once all the same"));
    const auto status = coordinator_.Status();
    ASSERT_TRUE(status.ok()) << status.status();
    EXPECT_EQ(status->phase(), "DRAINING");  // its ranks are being ended
    EXPECT_FALSE(coordinator_.StopJob(/*now=*/true).ok()) << "it is as little durable as before";
  }
  // The wish is in the journal once there is room, and is then answered so.
  absl::Status answer = absl::UnavailableError("");
  for (int i = 0; i < 100 && absl::IsUnavailable(answer); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    answer = coordinator_.StopJob(/*now=*/true);
  }
  EXPECT_EQ(answer, absl::OkStatus());
  StartAgain();
  EXPECT_EQ(coordinator_.Status()->phase(), "DRAINING") << "a successor knows of it";
}

// Whether facts of the ranks wait for the disk already, or nothing does yet.
TEST_F(FullJournal, TakesNoWishThatASuccessorWouldNotKnowOf) {
  for (const bool facts_wait : {false, true}) {
    SCOPED_TRACE(facts_wait);
    const FileLimit full(JournalBytes());
    if (facts_wait) {
      EXPECT_THAT(Save(10), HasSubstr("journal"));
    }
    const auto submitted = coordinator_.Submit("r2", SampleJob(), TwoReplicas());
    const std::pair<const char*, absl::Status> answers[] = {
        {"Stop", coordinator_.StopJob(/*now=*/false)},
        {"Checkpoint", coordinator_.Checkpoint()},
        {"Submit", submitted.status()}};
    for (const auto& [call, answer] : answers) {
      EXPECT_TRUE(absl::IsUnavailable(answer)) << call << ": " << answer;
      EXPECT_THAT(std::string(answer.message()), HasSubstr("journal.db")) << call;
      EXPECT_THAT(std::string(answer.message()), HasSubstr("ask again")) << call;
    }
    const auto status = coordinator_.Status();
    ASSERT_TRUE(status.ok()) << status.status();
    EXPECT_EQ(status->phase(), "RUNNING");
    EXPECT_EQ(status->job_id(), "job-1");
    EXPECT_FALSE(links_[0]->TakeSaveWish());
    EXPECT_FALSE(links_[0]->StopRequested());
  }
  absl::Status asked;
  for (int i = 0; i < 100 && !(asked = coordinator_.StopJob(/*now=*/false)).ok(); ++i) {
    EXPECT_TRUE(absl::IsUnavailable(asked)) << asked;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  ASSERT_TRUE(asked.ok()) << asked;
  StartAgain();
  EXPECT_EQ(coordinator_.Status()->phase(), "DRAINING");
}

}  // namespace
}  // namespace weft
