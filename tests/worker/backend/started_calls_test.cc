// The asynchronous form of the collectives (Comm::Start), run by threads over mailboxes.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/backend/all_ranks.h"
#include "tests/worker/backend/thread_comm.h"
#include "worker/backend/comm.h"

namespace weft {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int kAborted = static_cast<int>(absl::StatusCode::kAborted);
constexpr int kDeadlineExceeded = static_cast<int>(absl::StatusCode::kDeadlineExceeded);
constexpr int kInvalidArgument = static_cast<int>(absl::StatusCode::kInvalidArgument);
// A call ends by then: who ends before was not ended by it.
const std::chrono::milliseconds kDeadline(ThreadCommOptions().comm.timeout_ms);

class Started : public ::testing::TestWithParam<int> {};

TEST_P(Started, HasTheBitsOfTheBlockingCall) {
  OnAllRanks(MakeThreadComms(GetParam(), {.max_message_bytes = 100'000}), [](Comm& comm) {
    const int group = World(comm);
    for (const int64_t each : {1, 2049, 300'001}) {
      std::vector<float> sum = Values(comm.rank(), each * comm.world_size());
      std::vector<float> part = sum;
      std::vector<float> all = sum;
      std::vector<float> started_sum = sum;
      std::vector<float> started_part = sum;
      std::vector<float> started_all = sum;
      ASSERT_TRUE(comm.AllReduce(group, ReduceOp::kSum, Row(sum)).ok());
      ASSERT_TRUE(comm.ReduceScatter(group, ReduceOp::kSum, Row(part)).ok());
      ASSERT_TRUE(comm.AllGather(group, Row(all)).ok());
      const CollectiveCall calls[] = {
          {CollectiveKind::kAllReduce, group, ReduceOp::kSum, Row(started_sum)},
          {CollectiveKind::kReduceScatter, group, ReduceOp::kSum, Row(started_part)},
          {CollectiveKind::kAllGather, group, ReduceOp::kSum, Row(started_all)}};
      int64_t ticket = 0;
      for (const CollectiveCall& call : calls) ASSERT_TRUE(comm.Start(call, &ticket).ok());
      const BackendStatus waited = comm.Wait(ticket);  // so all before it have ended as well
      ASSERT_TRUE(waited.ok()) << waited.text;
      EXPECT_TRUE(started_sum == sum);
      EXPECT_TRUE(started_part == part);
      EXPECT_TRUE(started_all == all);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Started, ::testing::Values(1, 2, 3, 4));

// Rank 1 starts its half only after ten blocking calls, in which rank 0 takes part meanwhile.
TEST(Start, LetsBlockingCallsOfOtherGroupsGoOn) {
  OnAllRanks(MakeThreadComms(2), [](Comm& comm) {
    const int started = World(comm);
    const int blocking = World(comm, GroupUse::kBlocking);
    std::vector<float> sum(500'000, static_cast<float>(comm.rank() + 1));
    int64_t ticket = 0;
    const auto start = [&] {
      ASSERT_TRUE(
          comm.Start({CollectiveKind::kAllReduce, started, ReduceOp::kSum, Row(sum)}, &ticket)
              .ok());
    };
    if (comm.rank() == 0) start();
    for (int i = 0; i < 10; ++i) {
      std::vector<float> other(5000, 1);
      const BackendStatus s = comm.AllReduce(blocking, ReduceOp::kSum, Row(other));
      ASSERT_TRUE(s.ok()) << s.text;
      ASSERT_THAT(other, Each(2.0F));
    }
    if (comm.rank() == 1) start();
    ASSERT_TRUE(comm.Wait(ticket).ok());
    EXPECT_THAT(sum, Each(3.0F));
  });
}

// The second sums what the first one made.
TEST(Start, RunsCallsInTheirOrder) {
  OnAllRanks(MakeThreadComms(3), [](Comm& comm) {
    const int group = World(comm);
    std::vector<float> values(10'000, 1);
    int64_t first = 0;
    int64_t second = 0;
    const CollectiveCall sum = {CollectiveKind::kAllReduce, group, ReduceOp::kSum, Row(values)};
    ASSERT_TRUE(comm.Start(sum, &first).ok());
    ASSERT_TRUE(comm.Start(sum, &second).ok());
    EXPECT_EQ(second, first + 1);
    ASSERT_TRUE(comm.Wait(second).ok());
    EXPECT_THAT(values, Each(9.0F));
    EXPECT_TRUE(comm.Wait(first).ok());
    EXPECT_TRUE(comm.Wait(0).ok());
  });
}

TEST(Start, RefusesWhatCannotBe) {
  OnAllRanks(MakeThreadComms(2), [](Comm& comm) {
    const int group = World(comm);
    EXPECT_EQ(comm.Wait(1).code, kInvalidArgument);
    std::vector<float> values(7);
    int64_t ticket = 0;
    ASSERT_TRUE(
        comm.Start({CollectiveKind::kAllGather, group, ReduceOp::kSum, Row(values)}, &ticket).ok());
    const BackendStatus waited = comm.Wait(ticket);
    EXPECT_THAT(waited.text, HasSubstr("all-gather: 7 elements are not equal ranges for 2 ranks"));
    EXPECT_EQ(std::string(comm.Barrier(group).text), waited.text) << "broken for good";
  });
}

TEST(Start, EndsByTheDeadlineWithTheNamesOfTheCallAndOfTheRanksThatDidNotCome) {
  OnAllRanks(MakeThreadComms(3, {.comm = {.timeout_ms = kShortTimeoutMs}}), [](Comm& comm) {
    const int group = World(comm);
    if (comm.rank() == 1) return;
    std::vector<float> values(100'000);
    int64_t first = 0;
    int64_t second = 0;
    const CollectiveCall call = {
        CollectiveKind::kReduceScatter, group, ReduceOp::kSum, {values.data(), 1, 99'999}};
    ASSERT_TRUE(comm.Start(call, &first).ok());
    ASSERT_TRUE(comm.Start(call, &second).ok());
    const BackendStatus waited = comm.Wait(second);
    EXPECT_EQ(waited.code, kDeadlineExceeded);
    EXPECT_THAT(waited.text, HasSubstr("reduce-scatter of group 0"));
    EXPECT_THAT(waited.text, HasSubstr("not heard from rank 1 for 1000 ms"));
    // The first cause, whatever is called later.
    EXPECT_EQ(std::string(comm.Barrier(group).text), waited.text);
    int64_t third = 0;
    EXPECT_EQ(comm.Start(call, &third).code, kDeadlineExceeded);
  });
}

// How long Comm::Interrupt takes to end a call that was started.
Clock::duration InterruptStarted(bool is_waited_for) {
  const auto comms = MakeThreadComms(2);
  Comm& comm = *comms[0];
  const int group = World(comm);
  std::vector<float> values(100'000);
  int64_t ticket = 0;
  const CollectiveCall call = {CollectiveKind::kAllReduce, group, ReduceOp::kSum, Row(values)};
  EXPECT_TRUE(comm.Start(call, &ticket).ok());
  BackendStatus status;
  Clock::time_point ended;
  std::thread waiting([&] {
    if (is_waited_for) status = comm.Wait(ticket);
    ended = Clock::now();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  const Clock::time_point interrupted = Clock::now();
  comm.Interrupt("the lease has run out");
  waiting.join();
  if (!is_waited_for) {
    status = comm.Wait(ticket);
    ended = Clock::now();
  }
  EXPECT_EQ(status.code, kAborted);
  EXPECT_THAT(status.text, HasSubstr("the lease has run out"));
  EXPECT_EQ(comm.Start(call, &ticket).code, kAborted);
  return ended - interrupted;
}

TEST(Start, IsInterruptedWithinATenthOfASecondWaitedForOrNot) {
  for (const bool is_waited_for : {true, false}) {
    EXPECT_LT(MiddleOfFive([&] { return InterruptStarted(is_waited_for); }),
              std::chrono::milliseconds(100))
        << is_waited_for;
  }
}

// A Comm that is closed does not wait for what nobody waits for.
TEST(Start, IsGivenUpWhenTheCommGoes) {
  const Clock::time_point begin = Clock::now();
  std::vector<float> values(100'000);
  {
    const auto comms = MakeThreadComms(2);
    const int group = World(*comms[0]);
    int64_t ticket = 0;
    ASSERT_TRUE(
        comms[0]
            ->Start({CollectiveKind::kAllReduce, group, ReduceOp::kSum, Row(values)}, &ticket)
            .ok());
  }
  EXPECT_LT(Clock::now() - begin, kDeadline);
}

// A failure that breaks the Comm ends what is under way, so that its buffers may go.
TEST(Start, IsLeftAloneOnceAWaitHasFailed) {
  if (!ThreadCommsSeeTheirPeers()) GTEST_SKIP() << "they do not see how long a message is";
  const Clock::time_point begin = Clock::now();
  std::vector<float> values(100'000, 7);
  OnAllRanks(MakeThreadComms(2), [&](Comm& comm) {
    const int group = World(comm);
    int64_t ticket = 0;
    const CollectiveCall call = {CollectiveKind::kAllReduce, group, ReduceOp::kSum, Row(values)};
    if (comm.rank() == 0) {
      ASSERT_TRUE(comm.Start(call, &ticket).ok());
    }
    std::vector<float> message(comm.rank() == 0 ? 3 : 4);
    const Transfer transfer = {comm.rank() == 0, 1 - comm.rank(), Row(message)};
    const BackendStatus broken = comm.Exchange(&transfer, 1);
    ASSERT_FALSE(broken.ok());
    EXPECT_EQ(std::string(comm.Wait(ticket).text), broken.text);
  });
  EXPECT_LT(Clock::now() - begin, kDeadline);
  EXPECT_THAT(values, Each(7.0F));
}

}  // namespace
}  // namespace weft
