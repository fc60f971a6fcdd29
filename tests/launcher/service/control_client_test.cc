#include "launcher/service/control_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <thread>

#include "tests/launcher/service/fake_control.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr ControlClient::Patience kShort{
    .call_ms = 20000, .attempts = 3, .watch_attempts = 4, .first_wait_ms = 5, .last_wait_ms = 10};

v1::Event Event(int64_t revision, const std::string& job = "job-1") {
  v1::Event event;
  event.set_revision(revision);
  event.set_job_id(job);
  event.mutable_phase()->set_phase("RUNNING");
  return event;
}

class ControlClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = "/tmp/weft-test-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    server_ = std::make_unique<FakeControl>(folder_ + "/s");
    state_.jobs.emplace_back().set_job_id("job-1");
    server_->Set(state_);
    auto client = ControlClient::Open({"unix:" + folder_ + "/s"}, kShort);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  void TearDown() override {
    client_.reset();
    server_.reset();
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }
  // The revisions that a watch tells of.
  absl::Status Watch(int64_t after, std::vector<int64_t>* seen) {
    return client_->Watch("job-1", &after, [&](const v1::WatchReply& reply) {
      for (const v1::Event& event : reply.events()) seen->push_back(event.revision());
      return true;
    });
  }

  std::string folder_;
  FakeControlState state_;
  std::unique_ptr<FakeControl> server_;
  std::unique_ptr<ControlClient> client_;
};

TEST_F(ControlClientTest, MakesAMutationAgainWithTheSameRequestId) {
  state_.refusals = 2;
  server_->Set(state_);
  v1::CheckpointRequest request;
  request.set_job_id("job-1");
  const auto job = client_->Checkpoint(request);
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_THAT(server_->asked(), SizeIs(3));
  EXPECT_EQ(std::set<std::string>({server_->asked()[0], server_->asked()[1]}),
            std::set<std::string>({server_->asked()[2]}));
  ASSERT_TRUE(client_->Checkpoint(request).ok());
  EXPECT_NE(server_->asked()[3], server_->asked()[2]) << "another wish needs another id";
}

TEST_F(ControlClientTest, GivesUpAfterABoundedNumberOfAttempts) {
  state_.refusals = 100;
  server_->Set(state_);
  const absl::Status status = client_->Get("job-1").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("does not answer (closing)"));
  EXPECT_THAT(server_->asked(), SizeIs(3));
}

TEST_F(ControlClientTest, DoesNotInsistWhereAnAnswerIsGiven) {
  state_.refusals = 100;
  state_.refusal = absl::PermissionDeniedError("it is ada's job");
  server_->Set(state_);
  EXPECT_EQ(client_->Pause({}).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(server_->asked(), SizeIs(1));
  EXPECT_EQ(client_->SetLogLevel({}).status().code(), absl::StatusCode::kUnimplemented);
}

TEST_F(ControlClientTest, DoesNotSendWhatIsTooLarge) {
  v1::SubmitRequest request;
  request.set_name(std::string(size_t{65} << 20, 'x'));
  const absl::Status status = client_->Submit(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("weftd takes 67108864 at most"));
  EXPECT_THAT(server_->asked(), SizeIs(0));
}

TEST_F(ControlClientTest, ReachesAWeftdThatWasStartedAgain) {
  ASSERT_TRUE(client_->Get("job-1").ok());
  server_.reset();
  server_ = std::make_unique<FakeControl>(folder_ + "/s");
  server_->Set(state_);
  EXPECT_TRUE(client_->Get("job-1").ok());
}

TEST_F(ControlClientTest, ResumesABrokenWatchWhereItWas) {
  for (int64_t revision = 1; revision <= 7; ++revision) state_.events.push_back(Event(revision));
  state_.events.push_back(Event(8, "job-2"));
  state_.revision = 8;
  state_.events_a_stream = 2;
  server_->Set(state_);
  std::vector<int64_t> seen;
  EXPECT_TRUE(Watch(1, &seen).ok());
  EXPECT_THAT(seen, ElementsAre(2, 3, 4, 5, 6, 7));
}

TEST_F(ControlClientTest, EndsAWatchThatBringsNothingWithinABound) {
  state_.refusals = 100;
  server_->Set(state_);
  std::vector<int64_t> seen;
  EXPECT_EQ(Watch(0, &seen).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(server_->asked(), SizeIs(4));
}

TEST_F(ControlClientTest, LeavesAWatchWhenItIsTold) {
  state_.events = {Event(1)};
  state_.lasts = true;
  server_->Set(state_);
  int64_t revision = 0;
  std::thread leaver;
  const absl::Status status = client_->Watch("job-1", &revision, [&](const v1::WatchReply&) {
    if (!leaver.joinable()) leaver = std::thread([&] { client_->Leave(); });
    return true;
  });
  leaver.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(client_->Logs({}, [](const v1::LogsReply&) {}).code(), absl::StatusCode::kCancelled);
}

TEST_F(ControlClientTest, LeavesAWatchWhenItsCallerHasSeenEnough) {
  state_.events = {Event(1)};
  state_.lasts = true;
  server_->Set(state_);
  int64_t revision = 0;
  EXPECT_TRUE(client_->Watch("job-1", &revision, [](const v1::WatchReply&) { return false; }).ok());
}

TEST_F(ControlClientTest, SaysWhereNobodyListens) {
  const absl::Status status = ControlClient::Open({"unix:" + folder_ + "/none"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("WEFT_COORDINATOR"));
}

TEST(FreshRequestId, NeverComesTwice) {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) ids.insert(FreshRequestId());
  EXPECT_THAT(ids, SizeIs(1000));
  EXPECT_EQ(ids.begin()->size(), 32);
}

}  // namespace
}  // namespace weft
