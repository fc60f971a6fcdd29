// An exception ends the work that has thrown it, and neither the process nor what others have
// asked.
#include "coordinator/caught.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>

#include "coordinator/driver.h"
#include "coordinator/journal.h"
#include "coordinator/service/fleet_driver.h"

namespace weft {
namespace {

using testing::HasSubstr;

class CaughtTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/weft-caught-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
};

void Throw(const absl::Status&) {
  throw std::out_of_range("made up");
}

TEST_F(CaughtTest, IsWhatIsThrownByName) {
  EXPECT_EQ(Caught("a walk", [] {}), absl::OkStatus());
  const absl::Status caught = Caught("a walk", [] { throw std::out_of_range("made up"); });
  EXPECT_EQ(caught.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(caught.message()), HasSubstr("a walk failed unexpectedly (made up)"));
}

TEST_F(CaughtTest, InTheFleetIsOneWishAndNoMore) {
  const auto fleet = FleetDriver::Start({.version = "test", .state_folder = folder_}).value();
  v1::WatchRequest unknown;
  unknown.set_job_id("job-99");
  fleet->Watch(1, unknown, {.send = [](const v1::WatchReply&) {}, .close = Throw});
  std::promise<absl::Status> answer;
  fleet->List(
      {}, [&](const absl::StatusOr<v1::ListReply>& reply) { answer.set_value(reply.status()); });
  EXPECT_EQ(answer.get_future().get(), absl::OkStatus());
}

TEST_F(CaughtTest, InAJobEndsThatJob) {
  std::promise<absl::Status> broken;
  DriverOptions options;
  options.on_broken = [&](const absl::Status& why) { broken.set_value(why); };
  const auto driver =
      Driver::Start(Journal::Open(folder_ + "/job.db").value(), std::move(options)).value();
  proto::WatchRequest unknown;
  unknown.set_job_id("job-99");
  driver->Watch(1, unknown, {.send = [](const std::vector<proto::JobEvent>&) {}, .close = Throw});
  EXPECT_THAT(broken.get_future().get().ToString(), HasSubstr("a round of a job failed"));
}

}  // namespace
}  // namespace weft
