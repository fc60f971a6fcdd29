// Ranks that load at different speeds meet before their first collective, not in it.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "tests/worker/passing_backend.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

// Less than a collective's deadline, which would end a rank that waits in one.
constexpr std::chrono::seconds kPatience{15};

bool Await(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!holds() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return holds();
}

// Waits with the first data that it is given: the weights.
class SlowDevice final : public PassingDevice {
 public:
  SlowDevice(Device& inner, std::function<void()> wait)
      : PassingDevice(inner), wait_(std::move(wait)) {}
  void CopyIn(View to, const void* from_host) override {
    if (wait_) std::exchange(wait_, nullptr)();
    PassingDevice::CopyIn(to, from_host);
  }

 private:
  std::function<void()> wait_;
};

class SlowLoad : public testing::TestWithParam<int> {};  // ZeRO stage

// Rank 1 loads nothing until rank 0 is through and says so.
TEST_P(SlowLoad, IsWaitedForOutsideOfCollectives) {
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.training.steps = 2;
  RankThreads run;
  run.assignment = {.job = job,
                    .layout = MakeLayout(2, 1, 1, ScheduleKind::kOneForwardOneBackward, 2, job),
                    .run_folder = folder.Make("run"),
                    .load_checkpoint = ""};
  run.assignment.layout.zero_stage = GetParam();
  std::atomic<int> ready = 0;
  std::atomic<bool> came_first = false;
  run.wrap_device = [&](int rank, Device& inner) -> std::unique_ptr<Device> {
    if (rank == 0) return std::make_unique<PassingDevice>(inner);
    return std::make_unique<SlowDevice>(inner,
                                        [&] { came_first = Await([&] { return ready == 1; }); });
  };
  run.begin = [&](int) {
    ++ready;
    return Await([&] { return ready == 2; }) ? absl::OkStatus()
                                             : absl::DeadlineExceededError("not all are ready");
  };
  const TrainingOutcome outcome = Train(run);
  EXPECT_TRUE(came_first);
  EXPECT_EQ(outcome.status(), absl::OkStatus());
  EXPECT_EQ(outcome.results[0].step, 2);
}

INSTANTIATE_TEST_SUITE_P(AnyZero, SlowLoad, testing::Values(0, 1, 3));

}  // namespace
}  // namespace weft
