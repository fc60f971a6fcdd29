// The journal on a real disk: what was appended is there after a kill, what was damaged is refused.
#include "coordinator/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/coordinator/job_script.h"
#include "tests/plan/keys/full_job.h"

namespace weft {
namespace {

using testing::HasSubstr;

Submitted FullSubmission() {
  Submitted submitted = std::get<Submitted>(ParseFact("submit r1"));
  submitted.spec = FullJob();
  submitted.layout = TwoRanks();
  submitted.planned_for = "0123456789abcdef";
  submitted.load_checkpoint = "/run/checkpoint/step-5";
  submitted.after_step = 5;
  submitted.run = {"3f9c", {{"a.b", "0.1"}, {"c.d", "4"}}, {"after step 2: a.b: 0.2 -> 0.1"}};
  submitted.older = {{2, "/run/checkpoint/step-2"}, {4, "/run/checkpoint/step-4"}};
  submitted.last_generation = 7;
  submitted.data = {"/data/a.bin 12:ab"};
  submitted.expected_hosts = 2;
  submitted.slots_as_offered = true;
  submitted.job_id = "job-17";
  return submitted;
}

// One of every kind of fact, no field at its default where that is possible.
std::vector<Event> EveryFact() {
  return {FullSubmission(),
          Planned{TwoRanks(), 1000, 0.25, "; planned anew"},
          PlanRefused{absl::StatusCode::kFailedPrecondition, "nothing fits"},
          Launched{3, {HostShare{"machine-1", "node1", {"10.0.0.1"}, {0, 1}}}},
          Registered{3, 1, "node1", 77, "0.1.0", 2},
          Ready{3, 1, 5, 900, 1000},
          ShardWritten{3, 1, 10, 2, {"rank-00001.safetensors", 64, "ab"}},
          SaveFailed{3, 1, 10, 2, "disk full"},
          Committed{3, 1, 10, "step-10", 128},
          Finished{3, 1, 20, true},
          Faulted{3, 1, absl::StatusCode::kDataLoss, "torn", true},
          Suspected{3, 1, "stream broke"},
          WorkerLost{3, 1, "silent"},
          Overdue{3, "too late"},
          RankEnded{3, 1, "node1", 9, 7, "killed", "last words"},
          AttemptEnded{3, false, 1, "node1", 9, 7, "killed", "last words", "machine-1"},
          HostOffered{
              "machine-1", "node1", 2, {"10.0.0.1"}, 77, 8, 64, "rack1", 1 << 20, 1 << 19, "GPU 0"},
          HostAway{"machine-1"},
          HostLost{3, "machine-1", "silent"},
          HostsAwaited{3},
          LaunchWaits{3, "h1 offers 1 of 2 slots"},
          MoreHosts{3},
          HostChecked{.round = 5,
                      .machine = "machine-1",
                      .host = "node1",
                      .agent_pid = 77,
                      .pairs_only = true,
                      .findings = {{"memory", Severity::kBroken, "1 GiB", "2 GiB", "add some"}},
                      .unreached = {{"machine-2", "node2", "no route"}},
                      .product_flops_per_s = 1.5e9},
          StopAsked{true},
          CheckpointAsked{},
          Restarted{},
          Hung{.generation = 3,
               .rank = 2,
               .host = "h2",
               .hang = {"save",
                        40,
                        "wait for the end of a save",
                        "state D",
                        "rank 0",
                        31000,
                        {"/run/logs/stacks-h2.txt"}}},
          RankSlow{3, 1, "h2", 92, 31, 40},
          HostFenced{3, "machine-1", "processes there cannot be ended"},
          HostLeaves{"machine-2"}};
}

class JournalTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "weft-journal-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = folder_ + "/journal.db";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::vector<Event>& events) {
    const auto journal = Journal::Open(path_);
    ASSERT_TRUE(journal.ok()) << journal.status();
    for (size_t i = 0; i < events.size(); ++i) {
      const auto revision = static_cast<int64_t>(i) + 1;
      ASSERT_TRUE((*journal)->Append({StoredEvent{revision, 1000 + revision, events[i]}}).ok());
    }
  }

  absl::StatusOr<std::vector<StoredEvent>> ReadAll() {
    absl::StatusOr<std::unique_ptr<Journal>> journal = Journal::Open(path_);
    if (!journal.ok()) return journal.status();
    return (*journal)->Replay();
  }

  void Sql(const std::string& sql) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &database), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(database);
    sqlite3_close(database);
  }

  std::string folder_;
  std::string path_;
};

TEST_F(JournalTest, GivesBackEveryKindOfFactAsItWas) {
  const std::vector<Event> facts = EveryFact();
  ASSERT_EQ(facts.size(), std::variant_size_v<Event>);
  Write(facts);
  const auto stored = ReadAll();
  ASSERT_TRUE(stored.ok()) << stored.status();
  ASSERT_EQ(stored->size(), facts.size());
  for (size_t i = 0; i < facts.size(); ++i) {
    EXPECT_EQ((*stored)[i].event.index(), i) << "one of each kind, in order";
    EXPECT_TRUE((*stored)[i].event == facts[i]) << i;
    EXPECT_EQ((*stored)[i].revision, static_cast<int64_t>(i) + 1);
    EXPECT_EQ((*stored)[i].unix_ms, 1001 + static_cast<int64_t>(i));
  }
}

TEST_F(JournalTest, IsHeldByOneProcessAtATime) {
  const auto first = Journal::Open(path_);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = Journal::Open(path_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("another weftd"));
}

TEST_F(JournalTest, MovesAnotherVersionsFormatAside) {
  for (const std::string aside : {".format-1", ".format-1.1"}) {
    Write({Restarted{}, Launched{1}});
    Sql("UPDATE meta SET value='1'");
    const auto journal = Journal::Open(path_);
    ASSERT_TRUE(journal.ok()) << journal.status();
    EXPECT_EQ((*journal)->moved_aside(), path_ + aside);
    EXPECT_TRUE(std::filesystem::exists(path_ + aside));
    EXPECT_TRUE((*journal)->Replay()->empty());
    EXPECT_TRUE((*journal)->Append({StoredEvent{1, 1, Restarted{}}}).ok());
    std::filesystem::remove(path_);
    for (const char* part : {"-wal", "-shm"}) std::filesystem::remove(path_ + part);
  }
}

// A run folder that was copied: what its journal tells of is the other one's to go on with.
TEST_F(JournalTest, OfAnotherRunFolderIsMovedAside) {
  Submitted submitted = FullSubmission();
  submitted.run_folder = folder_;
  Write({submitted});
  std::filesystem::create_directory(folder_ + "/copy");
  std::filesystem::copy_file(path_, folder_ + "/copy/journal.db");
  std::filesystem::create_directory_symlink(folder_, folder_ + "/link");
  for (const std::string& same : {path_, folder_ + "/link/journal.db"}) {
    const auto own = Journal::OpenInRunFolder(same, submitted.run.id);
    ASSERT_TRUE(own.ok()) << own.status();
    EXPECT_EQ((*own)->moved_aside(), "");
    EXPECT_EQ((*own)->Replay()->size(), 1u);
  }
  const auto copied = Journal::OpenInRunFolder(folder_ + "/copy/journal.db", submitted.run.id);
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ((*copied)->moved_aside(), folder_ + "/copy/journal.db.of-another-folder");
  EXPECT_TRUE((*copied)->Replay()->empty());
  EXPECT_EQ(Journal::OpenToRead((*copied)->moved_aside()).value()->Replay()->size(), 1u);
}

// Two folders may have one path, in two containers: the run's id tells them apart.
TEST_F(JournalTest, OfAnotherRunInTheSameFolderIsMovedAside) {
  Submitted submitted = FullSubmission();
  submitted.run_folder = folder_;
  submitted.run.id = "00000000000000aa";
  Write({submitted});
  EXPECT_EQ(Journal::OpenInRunFolder(path_, "00000000000000aa").value()->moved_aside(), "");
  EXPECT_EQ(Journal::OpenInRunFolder(path_, "").value()->moved_aside(), "") << "whichever it is";
  const auto other = Journal::OpenInRunFolder(path_, "00000000000000bb");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ((*other)->moved_aside(), path_ + ".of-another-folder");
  EXPECT_TRUE((*other)->Replay()->empty());
}

// A fact that could not be written for want of room is written later, and nothing is lost or
// doubled.
TEST_F(JournalTest, TakesTheSameFactAgainOnceThereIsRoom) {
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  auto journal = Journal::Open(path_);
  ASSERT_TRUE(journal.ok()) << journal.status();
  const auto limit_to = [](rlim_t bytes) {
    rlimit limit = {};
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = std::min(bytes, limit.rlim_max);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  };
  const Faulted long_words{1, 0, absl::StatusCode::kInternal, std::string(3000, 'x'), false};
  limit_to(64 << 10);
  int64_t written = 0;
  absl::Status status;
  while (status.ok() && written < 1000) {
    status = (*journal)->Append({StoredEvent{written + 1, 1, long_words}});
    if (status.ok()) ++written;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_FALSE((*journal)->Append({StoredEvent{written + 1, 1, long_words}}).ok());
  limit_to(RLIM_INFINITY);
  std::signal(SIGXFSZ, before);
  EXPECT_EQ((*journal)->Append({StoredEvent{written + 1, 1, long_words}}), absl::OkStatus());
  journal->reset();
  EXPECT_EQ(std::ssize(*ReadAll()), written + 1);
}

TEST_F(JournalTest, RefusesAnAlteredRecordAndAGap) {
  for (const char* damage :
       {"UPDATE record SET body = body || x'00' WHERE revision = 2",
        "UPDATE record SET checksum = checksum + 1 WHERE revision = 2",
        "DELETE FROM record WHERE revision = 2",
        // The checksum is right, but no revision is in it.
        "UPDATE record SET body = x'', checksum = 3244421341483603138 WHERE revision = 2"}) {
    Write({Restarted{}, Launched{1}, StopAsked{false}});
    Sql(damage);
    const absl::Status status = ReadAll().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << damage;
    EXPECT_THAT(std::string(status.message()), HasSubstr("record 2")) << damage;
    EXPECT_THAT(std::string(status.message()), HasSubstr("move it away and run the same command"));
    std::filesystem::remove(path_);
  }
}

TEST_F(JournalTest, RefusesAFileThatIsNoJournal) {
  std::ofstream(path_) << std::string(5000, 'x');
  const absl::Status status = ReadAll().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
}

TEST_F(JournalTest, NeverGivesBackAWrongHistoryFromATruncatedOrFlippedFile) {
  std::vector<Event> facts;
  for (int i = 1; i <= 200; ++i) facts.push_back(Launched{i});
  Write(facts);
  std::string whole;
  {
    std::ifstream in(path_, std::ios::binary);
    whole.assign(std::istreambuf_iterator<char>(in), {});
  }
  ASSERT_GT(whole.size(), 8192u);
  int refused = 0;
  for (size_t i = 0; i < 60; ++i) {
    std::string torn = whole;
    const size_t at = whole.size() * (i / 2) / 30 + 7;
    if (i % 2 == 0) {
      torn.resize(at);
    } else {
      torn[at] = static_cast<char>(torn[at] ^ 0x20);
    }
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << torn;
    const auto stored = ReadAll();
    if (!stored.ok()) {
      ++refused;
      continue;
    }
    // A flip in a free byte changes nothing; anything else would be a lie.
    ASSERT_EQ(stored->size(), facts.size()) << "case " << i << " at byte " << at;
    for (size_t k = 0; k < facts.size(); ++k) ASSERT_TRUE((*stored)[k].event == facts[k]) << i;
  }
  EXPECT_GT(refused, 30);
}

TEST_F(JournalTest, HasEveryFactThatWasAcknowledgedBeforeAKill) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t writer = fork();
  if (writer == 0) {
    const auto journal = Journal::Open(path_);
    if (!journal.ok()) _exit(1);
    for (int64_t revision = 1; revision < 1000000; ++revision) {
      if (!(*journal)->Append({StoredEvent{revision, 0, Launched{revision}}}).ok()) _exit(1);
      if (write(ends[1], &revision, sizeof(revision)) != sizeof(revision)) _exit(1);
    }
    _exit(0);
  }
  close(ends[1]);
  int64_t acknowledged = 0;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(read(ends[0], &acknowledged, 8), 8);
  ASSERT_EQ(kill(writer, SIGKILL), 0);
  int64_t last = 0;
  while (read(ends[0], &last, 8) == 8) acknowledged = last;
  close(ends[0]);
  waitpid(writer, nullptr, 0);
  const auto stored = ReadAll();
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_GE(static_cast<int64_t>(stored->size()), acknowledged);
  EXPECT_LE(static_cast<int64_t>(stored->size()), acknowledged + 1);
}

TEST(Record, RefusesAFactOfALaterVersion) {
  proto::Record record;
  record.set_revision(7);
  record.GetReflection()->MutableUnknownFields(&record)->AddVarint(99, 1);
  const absl::Status status = FromRecord(record).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("record 7: holds no fact"));
}

TEST_F(JournalTest, CannotBeMadeWhereNobodyMayWrite) {
  const auto journal = Journal::Open(folder_ + "/missing/journal.db");
  EXPECT_FALSE(journal.ok());
  EXPECT_THAT(std::string(journal.status().message()), HasSubstr("cannot be opened"));
}

}  // namespace
}  // namespace weft
