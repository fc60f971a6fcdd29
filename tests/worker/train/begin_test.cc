// Ranks that load at different speeds meet before their first collective, not in it.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "tests/worker/passing_backend.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

constexpr int64_t kCollectiveMs = 500;
constexpr std::chrono::milliseconds kLoading{1500};

// Takes its time for the first data that it is given: the weights.
class SlowDevice final : public PassingDevice {
 public:
  using PassingDevice::PassingDevice;
  void CopyIn(View to, const void* from_host) override {
    if (!has_slept_) std::this_thread::sleep_for(kLoading);
    has_slept_ = true;
    PassingDevice::CopyIn(to, from_host);
  }

 private:
  bool has_slept_ = false;
};

class SlowLoad : public testing::TestWithParam<int> {};  // ZeRO stage

TEST_P(SlowLoad, IsWaitedForLongerThanACollective) {
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.training.steps = 2;
  RankThreads run;
  run.assignment = {.job = job,
                    .layout = MakeLayout(2, 1, 1, ScheduleKind::kOneForwardOneBackward, 2, job),
                    .run_folder = folder.Make("run"),
                    .load_checkpoint = ""};
  run.assignment.layout.zero_stage = GetParam();
  run.timeout_ms = kCollectiveMs;
  run.wrap_device = [](int rank, Device& inner) -> std::unique_ptr<Device> {
    if (rank == 1) return std::make_unique<SlowDevice>(inner);
    return std::make_unique<PassingDevice>(inner);
  };
  std::atomic<int> ready = 0;
  run.begin = [&ready](int) {
    ++ready;
    for (int i = 0; i < 1000 && ready < 2; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return ready == 2 ? absl::OkStatus() : absl::DeadlineExceededError("not all are ready");
  };
  const TrainingOutcome outcome = Train(run);
  EXPECT_EQ(outcome.status(), absl::OkStatus());
  EXPECT_EQ(outcome.results[0].step, 2);
}

INSTANTIATE_TEST_SUITE_P(AnyZero, SlowLoad, testing::Values(0, 1, 3));

}  // namespace
}  // namespace weft
