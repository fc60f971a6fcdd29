// These tests drive the coordinator's shell by hand: streams are recorded, time is the test's.
#include "coordinator/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "process/version.h"
#include "proto/job_text.h"
#include "tests/plan/sample_jobs.h"

namespace weft {
namespace {

using testing::HasSubstr;

constexpr int64_t kLeaseMs = 4000;

// Asks for two hosts of a slot each.
JobSpec JobOnTwoHosts() {
  JobSpec job = SampleJob();
  job.cluster.nodes = 2;
  job.cluster.slots_per_node = 1;
  job.layout = {};
  job.fault_tolerance.preflight = false;
  job.layout.tp = job.layout.pp = 1;
  return job;
}

class DriverTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / "weft-driver-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    auto journal = Journal::Open(folder_ + "/journal.db");
    ASSERT_TRUE(journal.ok()) << journal.status();
    DriverOptions options;
    options.version = "v";
    options.lease_ms = kLeaseMs;
    options.own_thread = false;
    options.writes_tokens = false;
    options.now_ms = [this] { return now_ms_; };
    auto driver = Driver::Start(*std::move(journal), std::move(options));
    ASSERT_TRUE(driver.ok()) << driver.status();
    driver_ = *std::move(driver);
  }
  void TearDown() override {
    driver_.reset();
    std::filesystem::remove_all(folder_);
  }

  void Submit(const JobSpec& job) {
    proto::SubmitJobRequest request;
    request.set_request_id("r1");
    request.set_job(JobText(job));
    request.set_run_folder("/run");
    driver_->Submit(request, [](const absl::StatusOr<proto::SubmitJobReply>& reply) {
      ASSERT_TRUE(reply.ok()) << reply.status();
    });
    driver_->RunOnce();
  }
  // An agent's stream begins; what it is told is in told_[stream].
  void Bring(int64_t stream, const std::string& machine, int64_t held_generation = 0,
             int slots = 0) {
    driver_->AttachAgent(
        stream,
        {.send = [this, stream](const proto::AgentOrder& order) { told_[stream].push_back(order); },
         .close = [](const absl::Status&) {}});
    proto::AgentReport report;
    report.mutable_hello()->set_version("v");
    report.mutable_hello()->set_wire_version(kWireVersion);
    report.mutable_hello()->set_host(absl::StrCat("host-", machine));
    report.mutable_hello()->set_machine(machine);
    report.mutable_hello()->set_generation(held_generation);
    report.mutable_hello()->set_slots(slots);
    driver_->TakeAgentReport(stream, report);
  }
  void SayGroupEnded(int64_t stream, int64_t generation) {
    proto::AgentReport report;
    report.set_sequence(++sequence_);
    report.mutable_group_ended()->set_generation(generation);
    report.mutable_group_ended()->mutable_cause()->set_rank(-1);
    driver_->TakeAgentReport(stream, report);
  }
  int Launches(int64_t stream, int64_t generation) {
    int count = 0;
    for (const proto::AgentOrder& order : told_[stream]) {
      count += order.has_launch() && order.launch().generation() == generation ? 1 : 0;
    }
    return count;
  }

  std::string folder_;
  int64_t now_ms_ = 1000;
  int64_t sequence_ = 0;
  std::map<int64_t, std::vector<proto::AgentOrder>> told_;
  std::unique_ptr<Driver> driver_;
};

TEST_F(DriverTest, WaitsForNoAgentThatCameBetweenALaunchAndItsEnd) {
  Submit(JobOnTwoHosts());
  Bring(1, "a");
  Bring(2, "b");
  driver_->RunOnce();
  ASSERT_EQ(Launches(1, 1), 1);
  ASSERT_EQ(Launches(2, 1), 1);
  // The stream breaks before b has heard of it; it is back as a says that its part is over.
  driver_->DetachAgent(2);
  driver_->RunOnce();
  Bring(3, "b", /*held_generation=*/0);
  SayGroupEnded(1, 1);
  driver_->RunOnce();
  driver_->RunOnce();
  EXPECT_EQ(Launches(3, 1), 0) << "its end is decided";
  EXPECT_EQ(Launches(1, 2), 1);
  EXPECT_EQ(Launches(3, 2), 1);
}

TEST_F(DriverTest, TellsAllRanksOfAnAgentToTrainByOneMessage) {
  JobSpec job = SampleJob();
  job.cluster.slots_per_node = 2;
  job.fault_tolerance.preflight = false;
  job.layout.tp = job.layout.pp = 1;
  job.layout.dp = 2;
  Submit(job);
  Bring(1, "a");
  driver_->RunOnce();
  ASSERT_EQ(Launches(1, 1), 1);
  told_.clear();
  for (int rank = 0; rank < 2; ++rank) {
    driver_->Attach(10 + rank, {.agent = 1, .stream = 5 + rank});
    proto::WorkerReport report;
    report.set_rank(rank);
    report.set_generation(1);
    report.set_sequence(1);
    report.mutable_register_()->set_host("host-a");
    report.mutable_register_()->set_pid(100 + rank);
    report.mutable_register_()->set_version("v");
    report.mutable_register_()->set_world_size(2);
    driver_->Report(10 + rank, report);
  }
  driver_->RunOnce();
  ASSERT_EQ(told_[1].size(), 2u) << "a welcome, and what to train";
  for (const proto::AgentOrder& order : told_[1]) {
    EXPECT_THAT(order.to_ranks().streams(), testing::ElementsAre(5, 6));
  }
  proto::Order order;
  ASSERT_TRUE(order.ParseFromString(told_[1][0].to_ranks().order()));
  EXPECT_TRUE(order.has_welcome());
  EXPECT_EQ(order.acknowledged(), 1);
  ASSERT_TRUE(order.ParseFromString(told_[1][1].to_ranks().order()));
  EXPECT_TRUE(order.has_train());
}

TEST_F(DriverTest, SaysOnceWhichHostLacksSlotsAndHowToCureIt) {
  JobSpec job = JobOnTwoHosts();
  job.cluster.slots_per_node = 2;
  Submit(job);
  Bring(1, "a", 0, /*slots=*/2);
  Bring(2, "b", 0, /*slots=*/1);
  driver_->RunOnce();
  EXPECT_EQ(driver_->job().reason,
            "waiting for hosts: host-b offers 1 of the 2 slots that cluster.slots_per_node says of "
            "each, so 4 ranks have no place on 2 hosts; start its agent with as many --slots, or "
            "lower cluster.slots_per_node");
  const int64_t revision = driver_->job().revision;
  for (int i = 0; i < 5; ++i) driver_->RunOnce();
  EXPECT_EQ(driver_->job().revision, revision) << "it is said once";
  Bring(3, "b", 0, /*slots=*/2);
  driver_->RunOnce();
  EXPECT_EQ(Launches(3, 1), 1);
}

TEST_F(DriverTest, HearsOfAWishToStopBetweenGenerationsToo) {
  Submit(JobOnTwoHosts());
  Bring(1, "a");
  driver_->RunOnce();
  ASSERT_EQ(driver_->job().generation.phase, GenerationPhase::kOpen);
  proto::AgentReport report;
  report.set_sequence(1);
  report.mutable_save_requested();
  driver_->TakeAgentReport(1, report);
  driver_->RunOnce();
  EXPECT_EQ(driver_->job().phase, Phase::kSuspended);
  EXPECT_EQ(told_[1].back().acknowledged(), 1);
}

}  // namespace
}  // namespace weft
