#include "launcher/slurm/host_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <optional>

#include "launcher/slurm/run_record.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kBookBegins = 1'800'000'000;

class BookOfHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/host_book_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    book_.emplace(HostBookOptions{.run_folder = folder_,
                                  .job_id = "7",
                                  .ask = [this] { return Answer(); },
                                  .now_unix_s = [this] { return now_.load(); },
                                  .warn = [this](const std::string& words) { said_ += words; }});
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  absl::StatusOr<SlurmJob> Answer() {
    ++questions_;
    may_answer_.wait();
    return job_;
  }
  // Lets Slurm answer, and waits until all is taken down.
  std::vector<FailedHost> Close() {
    answered_.set_value();
    book_.reset();
    return ReadSlurmRun(folder_).value_or(SlurmRunRecord{}).failed_hosts;
  }

  std::string folder_;
  std::promise<void> answered_;
  const std::shared_future<void> may_answer_ = answered_.get_future().share();
  std::atomic<int> questions_{0};
  std::atomic<int64_t> now_{kBookBegins};
  absl::StatusOr<SlurmJob> job_ = ParseSlurmJob("JobId=7 JobState=RUNNING");
  std::string said_;
  std::optional<HostBook> book_;
};

absl::Status Lost(const std::string& host) {
  return absl::UnavailableError("host " + host + ": its agent was not heard\nmore");
}

// Slurm does not answer until Close: a Take that waited for it would never return.
TEST_F(BookOfHosts, KeepsNobodyWaitingForSlurm) {
  book_->Take("h2", Lost("h2"));
  book_->Take("h3", Lost("h3"));
  now_ = kBookBegins + 100;
  book_->Take("h3", absl::OkStatus());
  EXPECT_FALSE(ReadSlurmRun(folder_));
  const std::vector<FailedHost> failed = Close();
  ASSERT_EQ(failed.size(), 2U);
  EXPECT_EQ(failed[0], (FailedHost{"h2", {kBookBegins}, false, "its agent was not heard"}));
  EXPECT_EQ(failed[1], (FailedHost{"h3", {kBookBegins}, true, "its agent was not heard"}));
  EXPECT_LE(questions_, 2) << "those that are lost together are one question";
  EXPECT_EQ(ReadSlurmRun(folder_)->job_id, "7");
}

TEST_F(BookOfHosts, TakesNothingDownOfAJobThatSlurmEnds) {
  job_->state = "COMPLETING";
  book_->Take("h2", Lost("h2"));
  EXPECT_THAT(Close(), IsEmpty());
  EXPECT_FALSE(ReadSlurmRun(folder_));
}

TEST_F(BookOfHosts, TakesNothingDownOfAJobThatIsPreempted) {
  job_ = ParseSlurmJob("JobId=7 JobState=RUNNING PreemptTime=2026-11-26T20:00:00");
  book_->Take("h2", Lost("h2"));
  EXPECT_THAT(Close(), IsEmpty());
}

TEST_F(BookOfHosts, TakesNothingDownWhereSlurmDoesNotAnswer) {
  job_ = absl::UnavailableError("it has not ended after 2 s");
  book_->Take("h2", Lost("h2"));
  book_->Take("h2", absl::OkStatus());
  EXPECT_THAT(Close(), IsEmpty());
}

// A check is told again once the hosts' findings are held against each other.
TEST_F(BookOfHosts, CountsACheckOnceUntilItIsWell) {
  book_->TakeCheck("h1", absl::OkStatus());
  book_->TakeCheck("h3", absl::UnavailableError("shared memory: 1.00 MiB free"));
  book_->TakeCheck("h3", absl::UnavailableError("pairs: h3 does not reach h2"));
  now_ = kBookBegins + 100;
  book_->TakeCheck("h3", absl::OkStatus());
  book_->TakeCheck("h3", absl::UnavailableError("devices: no GPU"));
  const std::vector<FailedHost> failed = Close();
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_EQ(failed[0].name, "h3");
  EXPECT_THAT(failed[0].failed_unix_s, ElementsAre(kBookBegins, kBookBegins + 100));
  EXPECT_FALSE(failed[0].is_back);
  EXPECT_EQ(failed[0].reason, "devices: no GPU");
}

TEST_F(BookOfHosts, WarnsWhereItCannotWrite) {
  std::filesystem::remove_all(folder_);
  book_->Take("h2", Lost("h2"));
  EXPECT_THAT(Close(), IsEmpty());
  EXPECT_THAT(said_, HasSubstr("slurm.json"));
}

}  // namespace
}  // namespace weft
