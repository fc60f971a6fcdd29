// A clock that calls move on, and a Comm of one rank: what the timer does on a machine that is
// slow all of a sudden.
#include "worker/links/link_timer.h"

#include <gtest/gtest.h>

#include <vector>

#include "worker/backend/cpu/device_cpu.h"

namespace weft {
namespace {

class AloneComm : public Comm {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  BackendStatus NewGroup(GroupUse /*use*/, const int* /*ranks*/, int /*count*/,
                         int* group) override {
    *group = 0;
    return {};
  }
  BackendStatus AllReduce(int /*group*/, ReduceOp /*op*/, View /*data*/) override { return {}; }
  BackendStatus ReduceScatter(int /*group*/, ReduceOp /*op*/, View /*data*/) override { return {}; }
  BackendStatus AllGather(int /*group*/, View /*data*/) override { return {}; }
  BackendStatus AllReduceHost(int /*group*/, ReduceOp /*op*/, double* /*values*/,
                              int /*count*/) override {
    return {};
  }
  BackendStatus Exchange(const Transfer* /*transfers*/, int /*count*/) override { return {}; }
  BackendStatus Barrier(int /*group*/) override { return {}; }
  BackendStatus Start(const CollectiveCall& /*call*/, int64_t* /*ticket*/) override { return {}; }
  BackendStatus StartBeside(const CollectiveCall& /*call*/) override { return {}; }
  BackendStatus WaitBeside() override { return {}; }
  BackendStatus Wait(int64_t /*ticket*/) override { return {}; }
  void Interrupt(const char* /*why*/) override {}
};

struct Timed {
  double best_s = 0;
  int calls = 0;
  double clock_s = 0;
};

// Times calls of which the first few take `durations_s`, all later ones the last of them.
Timed TimeCalls(const std::vector<double>& durations_s, double seconds) {
  Timed timed;
  const auto device = MakeCpuDevice({});
  AloneComm comm;
  LinkTimer timer(*device, comm, 0, seconds, [&timed] { return timed.clock_s; });
  const auto best_s = timer.Time([&] {
    const auto call = static_cast<size_t>(timed.calls++);
    timed.clock_s += call < durations_s.size() ? durations_s[call] : durations_s.back();
    return absl::OkStatus();
  });
  EXPECT_TRUE(best_s.ok()) << best_s.status();
  timed.best_s = best_s.value_or(0);
  return timed;
}

TEST(LinkTimer, RepeatsShortCallsForMillisecondsAndTakesTheLeastMean) {
  const Timed quick = TimeCalls({1e-3, 20e-6}, 1);
  EXPECT_NEAR(quick.best_s, 20e-6, 1e-12);
  EXPECT_GT(quick.clock_s, 5e-3);
  EXPECT_LT(quick.clock_s, 20e-3);
  const Timed disturbed = TimeCalls({1e-3, 20e-6, 5e-3, 5e-3, 20e-6}, 1);
  EXPECT_NEAR(disturbed.best_s, 20e-6, 1e-12);
}

TEST(LinkTimer, EndsSoonWhereCallsAreSlowAllOfASudden) {
  // The first is quick, as on an idle machine; then each waits for a core for 50 ms.
  const Timed slow = TimeCalls({1e-3, 20e-6, 50e-3}, 0.06);
  EXPECT_LE(slow.calls, 1 + 1 + 8);
  EXPECT_LT(slow.clock_s, 0.5);
  EXPECT_NEAR(slow.best_s, 20e-6, 1e-12);
  const Timed always_slow = TimeCalls({2}, 0.06);
  EXPECT_EQ(always_slow.calls, 3);
  EXPECT_NEAR(always_slow.best_s, 2, 1e-12);
}

TEST(LinkTimer, HandsOnWhatACallSays) {
  const auto device = MakeCpuDevice({});
  AloneComm comm;
  LinkTimer timer(*device, comm, 0, 1, [] { return 0.0; });
  EXPECT_EQ(timer.Time([] { return absl::UnavailableError("a lost rank"); }).status().message(),
            "a lost rank");
}

}  // namespace
}  // namespace weft
