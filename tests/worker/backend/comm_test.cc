// The collectives, run by threads over mailboxes. What MPI adds is in process_test.cc.
#include "worker/backend/comm.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/backend/all_ranks.h"
#include "tests/worker/backend/thread_comm.h"
#include "worker/backend/cpu/comm/collectives.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int kAborted = static_cast<int>(absl::StatusCode::kAborted);
constexpr int kDeadlineExceeded = static_cast<int>(absl::StatusCode::kDeadlineExceeded);
constexpr int kInvalidArgument = static_cast<int>(absl::StatusCode::kInvalidArgument);

struct ReduceCase {
  int world;
  int64_t count;
};

class AllReduce : public ::testing::TestWithParam<ReduceCase> {};

TEST_P(AllReduce, GivesEveryRankTheSumInRankOrderToTheBit) {
  const auto [world, count] = GetParam();
  std::vector<float> expected(static_cast<size_t>(count));
  std::vector<float> highest(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    float sum = Value(0, i);
    float most = sum;
    for (int rank = 1; rank < world; ++rank) {
      sum += Value(rank, i);
      most = std::max(most, Value(rank, i));
    }
    expected[static_cast<size_t>(i)] = sum;
    highest[static_cast<size_t>(i)] = most;
  }
  OnAllRanks(MakeThreadComms(world), [&](Comm& comm) {
    const int group = World(comm);
    std::vector<float> own(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) own[static_cast<size_t>(i)] = Value(comm.rank(), i);
    std::vector<float> sum = own;
    const BackendStatus summed = comm.AllReduce(group, ReduceOp::kSum, Row(sum));
    ASSERT_TRUE(summed.ok()) << summed.text;
    EXPECT_TRUE(sum == expected) << "rank " << comm.rank();
    ASSERT_TRUE(comm.AllReduce(group, ReduceOp::kMax, Row(own)).ok());
    EXPECT_TRUE(own == highest) << "rank " << comm.rank();
  });
}

std::vector<ReduceCase> ReduceCases() {
  std::vector<ReduceCase> cases;
  for (int world = 1; world <= 5; ++world) {
    // Below, at and above the small path; fewer elements than ranks; odd slices.
    for (const int64_t count : {1, 3, 2048, 2049, 10007}) cases.push_back({world, count});
  }
  // More than one segment, the last one shorter than a slice.
  cases.push_back({2, 2 * (kReduceSliceBytes / 4) + 1});
  cases.push_back({3, 3 * (kReduceSliceBytes / 4) + 70001});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Worlds, AllReduce, ::testing::ValuesIn(ReduceCases()),
                         [](const auto& instance) {
                           return "World" + std::to_string(instance.param.world) + "Count" +
                                  std::to_string(instance.param.count);
                         });

class ReduceScatter : public ::testing::TestWithParam<ReduceCase> {};

// `count` elements a rank, so all sizes divide.
TEST_P(ReduceScatter, GivesEachRankItsRangeAsAllReduceWouldAndAllGatherTheRest) {
  const auto [world, count] = GetParam();
  const int64_t all = count * world;
  OnAllRanks(MakeThreadComms(world, {.max_message_bytes = 100'000}), [&](Comm& comm) {
    const int group = World(comm);
    const int64_t own = comm.rank() * count;
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
      std::vector<float> scattered(static_cast<size_t>(all));
      for (int64_t i = 0; i < all; ++i) scattered[static_cast<size_t>(i)] = Value(comm.rank(), i);
      std::vector<float> reduced = scattered;
      ASSERT_TRUE(comm.AllReduce(group, op, Row(reduced)).ok());
      const BackendStatus s = comm.ReduceScatter(group, op, Row(scattered));
      ASSERT_TRUE(s.ok()) << s.text;
      ASSERT_TRUE(std::equal(scattered.begin() + own, scattered.begin() + own + count,
                             reduced.begin() + own))
          << "rank " << comm.rank();
      // The gather takes no account of what the other ranges hold.
      std::fill(scattered.begin(), scattered.begin() + own, -1.0F);
      std::fill(scattered.begin() + own + count, scattered.end(), -1.0F);
      ASSERT_TRUE(comm.AllGather(group, Row(scattered)).ok());
      ASSERT_TRUE(scattered == reduced) << "rank " << comm.rank();
    }
  });
}

std::vector<ReduceCase> RangeCases() {
  std::vector<ReduceCase> cases;
  for (int world = 1; world <= 5; ++world) {
    for (const int64_t count : {0, 1, 2049}) cases.push_back({world, count});
  }
  cases.push_back({2, kReduceSliceBytes / 4 + 1});  // more than one segment
  cases.push_back({3, 2 * (kReduceSliceBytes / 4) + 7001});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Worlds, ReduceScatter, ::testing::ValuesIn(RangeCases()),
                         [](const auto& instance) {
                           return "World" + std::to_string(instance.param.world) + "Count" +
                                  std::to_string(instance.param.count);
                         });

TEST(Ranges, ThatTheGroupsSizeDoesNotDivideAreRefusedByName) {
  OnAllRanks(MakeThreadComms(3), [](Comm& comm) {
    const int group = World(comm);
    std::vector<float> values(7);
    EXPECT_THAT(comm.AllGather(group, Row(values)).text,
                HasSubstr("all-gather: 7 elements are not equal ranges for 3 ranks"));
    EXPECT_EQ(comm.ReduceScatter(group, ReduceOp::kSum, Row(values)).code, kInvalidArgument);
    EXPECT_TRUE(comm.Barrier(group).ok()) << "the refusal came before anything was sent";
  });
}

TEST(AllGather, TakesBytesOfAnyType) {
  OnAllRanks(MakeThreadComms(3), [](Comm& comm) {
    const int group = World(comm);
    std::vector<uint8_t> bytes(15);
    std::fill_n(bytes.begin() + 5 * comm.rank(), 5, static_cast<uint8_t>(10 + comm.rank()));
    ASSERT_TRUE(comm.AllGather(group, {bytes.data(), 3, 5, DType::kU8}).ok());
    for (size_t i = 0; i < bytes.size(); ++i) EXPECT_EQ(bytes[i], 10 + i / 5);
  });
}

constexpr ThreadCommOptions kInRankOrder = {.comm = {.timeout_ms = 20000, .rank_order = true}};

float FloatOf(uint16_t bf16_bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bf16_bits) << 16);
}
uint16_t Bf16Bits(float value) {  // of a value that bf16 holds exactly
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}

View Bf16Row(std::vector<uint16_t>& bits) {
  return {bits.data(), 1, static_cast<int64_t>(bits.size()), DType::kBf16};
}

// 256 + 1 is a tie in bf16, whose neighbours are 2 apart there: rounding after each addition would
// stay at 256 (ties go to even) and lose all three ones.
TEST(Bf16Reductions, InRankOrderAccumulateInF32AndRoundOnceToNearestEven) {
  struct Case {
    float terms[4];
    float sum;
  };
  const float infinity = std::numeric_limits<float>::infinity();
  const Case cases[] = {{{256, 1, 1, 1}, 260},       // 259: a tie between 258 and 260
                        {{256, 1, 0, 0}, 256},       // 257: a tie between 256 and 258
                        {{256, 0.5, 1, 0}, 258},     // 257.5
                        {{-256, -1, -1, -1}, -260},  // the same on the other side
                        {{1, 2, 3, 4}, 10},         {{infinity, 1, 2, 3}, infinity}};
  constexpr size_t kRepeat = 1000;  // past the small path
  for (const size_t repeat : {size_t{1}, kRepeat}) {
    OnAllRanks(MakeThreadComms(4, kInRankOrder), [&](Comm& comm) {
      const int group = World(comm);
      const size_t count = std::size(cases) * repeat;
      std::vector<uint16_t> values(count);
      for (size_t i = 0; i < count; ++i) {
        values[i] = Bf16Bits(cases[i % std::size(cases)].terms[comm.rank()]);
      }
      std::vector<uint16_t> scattered = values;
      ASSERT_TRUE(comm.AllReduce(group, ReduceOp::kSum, Bf16Row(values)).ok());
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(values[i], Bf16Bits(cases[i % std::size(cases)].sum)) << i;
      }
      scattered.resize(count / 4 * 4);
      ASSERT_TRUE(comm.ReduceScatter(group, ReduceOp::kSum, Bf16Row(scattered)).ok());
      const size_t part = scattered.size() / 4;
      const size_t own = static_cast<size_t>(comm.rank()) * part;
      for (size_t i = own; i < own + part; ++i) ASSERT_EQ(scattered[i], values[i]) << i;
    });
  }
}

// In whatever order, the bound of comm.h.
TEST(Bf16Reductions, OfAnyBackendAreWithinARoundingForEachAdditionAndTheSameOnAllRanks) {
  constexpr int kWorld = 5;
  constexpr size_t kCount = kWorld * 1001;
  const auto term = [](int rank, size_t i) {
    return FloatOf(Bf16Bits(Value(rank, static_cast<int64_t>(i))));
  };
  const double share = std::pow(1 + 0x1p-8, kWorld - 1) - 1;
  std::vector<std::vector<uint16_t>> sums(kWorld, std::vector<uint16_t>(kCount));
  std::vector<std::vector<uint16_t>> parts = sums;
  OnAllRanks(MakeThreadComms(kWorld), [&](Comm& comm) {
    const int group = World(comm);
    std::vector<uint16_t>& sum = sums[static_cast<size_t>(comm.rank())];
    for (size_t i = 0; i < kCount; ++i) sum[i] = Bf16Bits(term(comm.rank(), i));
    std::vector<uint16_t>& part = parts[static_cast<size_t>(comm.rank())];
    part = sum;
    ASSERT_TRUE(comm.AllReduce(group, ReduceOp::kSum, Bf16Row(sum)).ok());
    ASSERT_TRUE(comm.ReduceScatter(group, ReduceOp::kSum, Bf16Row(part)).ok());
  });
  for (size_t i = 0; i < kCount; ++i) {
    double exact = 0;
    double magnitudes = 0;
    for (int rank = 0; rank < kWorld; ++rank) {
      exact += term(rank, i);
      magnitudes += std::abs(term(rank, i));
    }
    const double bound = share * magnitudes;
    ASSERT_NEAR(FloatOf(sums[0][i]), exact, bound) << i;
    ASSERT_NEAR(FloatOf(parts[i / (kCount / kWorld)][i]), exact, bound) << i;
    for (const auto& sum : sums) ASSERT_EQ(sum[i], sums[0][i]) << i;
  }
}

TEST(Bf16Reductions, KeepANotANumberWhateverItsBits) {
  OnAllRanks(MakeThreadComms(2), [](Comm& comm) {
    const int group = World(comm);
    // The lowest bit of the significand alone: what a carry or a cut of f32's bits could lose.
    uint16_t values[] = {comm.rank() == 0 ? uint16_t{0x7f81} : Bf16Bits(1), 0xffff};
    for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kSum}) {
      ASSERT_TRUE(comm.AllReduce(group, op, {values, 1, 2, DType::kBf16}).ok());
      for (const uint16_t bits : values) EXPECT_GT(bits & 0x7fff, 0x7f80);
    }
  });
}

TEST(AllReduceHost, AddsDoublesInRankOrderShortAndLong) {
  constexpr int kWorld = 3;
  for (const int count : {1, 3, 5000}) {
    OnAllRanks(MakeThreadComms(kWorld), [count](Comm& comm) {
      const int group = World(comm);
      std::vector<double> values(static_cast<size_t>(count));
      const auto value = [](int rank, int i) { return std::exp(rank * 9.0) / (i + 3); };
      for (int i = 0; i < count; ++i) values[static_cast<size_t>(i)] = value(comm.rank(), i);
      ASSERT_TRUE(comm.AllReduceHost(group, ReduceOp::kSum, values.data(), count).ok());
      for (int i = 0; i < count; ++i) {
        ASSERT_EQ(values[static_cast<size_t>(i)], value(0, i) + value(1, i) + value(2, i));
      }
    });
  }
}

TEST(AllReduceTotals, AddsDoublesInRankOrderShortAndLong) {
  constexpr int kWorld = 3;
  for (const int64_t count : {1, 3, 5000}) {
    OnAllRanks(MakeThreadComms(kWorld), [count](Comm& comm) {
      const int group = World(comm);
      std::vector<double> values(static_cast<size_t>(count));
      const auto value = [](int rank, int64_t i) {
        return std::exp(rank * 9.0) / static_cast<double>(i + 3);
      };
      for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = value(comm.rank(), i);
      const View totals = {values.data(), 1, count, DType::kF64};
      ASSERT_TRUE(comm.AllReduce(group, ReduceOp::kSum, totals).ok());
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(values[static_cast<size_t>(i)], value(0, i) + value(1, i) + value(2, i));
      }
      for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = value(comm.rank(), i);
      ASSERT_TRUE(comm.AllReduce(group, ReduceOp::kMax, totals).ok());
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(values[static_cast<size_t>(i)], value(kWorld - 1, i));
      }
    });
  }
}

TEST(AllReduceMax, KeepsInfinitiesAndNotANumber) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  OnAllRanks(MakeThreadComms(2), [&](Comm& comm) {
    const int group = World(comm);
    std::vector<float> values = comm.rank() == 0 ? std::vector<float>{-infinity, nan, 1, infinity}
                                                 : std::vector<float>{5, 2, nan, 3};
    ASSERT_TRUE(comm.AllReduce(group, ReduceOp::kMax, Row(values)).ok());
    EXPECT_EQ(values[0], 5);
    EXPECT_TRUE(std::isnan(values[1]));
    EXPECT_TRUE(std::isnan(values[2]));
    EXPECT_EQ(values[3], infinity);
  });
}

// A 2 x 2 grid: rows {0, 1}, {2, 3} and columns {0, 2}, {1, 3}, and a group of rank 3 alone.
TEST(Groups, OfSeveralRoundsDoNotMix) {
  OnAllRanks(MakeThreadComms(4), [](Comm& comm) {
    const int rank = comm.rank();
    const int row_ranks[] = {rank / 2 * 2, rank / 2 * 2 + 1};
    const int column_ranks[] = {rank % 2, rank % 2 + 2};
    int row = -1;
    int column = -1;
    int alone = -1;
    ASSERT_TRUE(comm.NewGroup(GroupUse::kBlocking, row_ranks, 2, &row).ok());
    ASSERT_TRUE(comm.NewGroup(GroupUse::kBlocking, &rank, rank == 3 ? 1 : 0, &alone).ok());
    ASSERT_TRUE(comm.NewGroup(GroupUse::kBlocking, column_ranks, 2, &column).ok());
    for (int repeat = 0; repeat < 20; ++repeat) {
      std::vector<float> by_row = {static_cast<float>(rank)};
      std::vector<float> by_column(5000, static_cast<float>(rank));
      ASSERT_TRUE(comm.AllReduce(row, ReduceOp::kSum, Row(by_row)).ok());
      ASSERT_TRUE(comm.AllReduce(column, ReduceOp::kSum, Row(by_column)).ok());
      ASSERT_EQ(by_row[0], static_cast<float>(row_ranks[0] + row_ranks[1]));
      ASSERT_EQ(by_column[4999], static_cast<float>(column_ranks[0] + column_ranks[1]));
    }
    std::vector<float> value = {7};
    const BackendStatus s = comm.AllReduce(rank == 3 ? alone : 1, ReduceOp::kSum, Row(value));
    EXPECT_EQ(s.code, rank == 3 ? 0 : kInvalidArgument) << s.text;
    EXPECT_EQ(value[0], 7);
  });
}

// The same two ranks in two groups, each rank in another one: their messages must not pair up.
TEST(Groups, CallsOfDifferentGroupsNeverMeet) {
  OnAllRanks(MakeThreadComms(2, {.comm = {.timeout_ms = kShortTimeoutMs}}), [](Comm& comm) {
    const int groups[] = {World(comm), World(comm)};
    std::vector<float> values(10, 1);
    const BackendStatus s = comm.AllReduce(groups[comm.rank()], ReduceOp::kSum, Row(values));
    EXPECT_EQ(s.code, kDeadlineExceeded) << s.text;
    EXPECT_THAT(values, ::testing::Each(1.0F));
  });
}

TEST(Groups, ThatAreNotAscendingOrLackThisRankAreRefused) {
  const auto comms = MakeThreadComms(3);
  int group = -1;
  for (const std::vector<int>& ranks : {std::vector<int>{1, 0}, {1, 2}, {0, 0}, {0, 3}, {-1, 0}}) {
    const int count = static_cast<int>(ranks.size());
    EXPECT_EQ(comms[0]->NewGroup(GroupUse::kBlocking, ranks.data(), count, &group).code,
              kInvalidArgument);
  }
}

TEST(Exchange, PostsAllBeforeItWaitsAndKeepsTheOrderOfAPair) {
  // Messages are cut into pieces of 40 bytes, so that splitting is in every case.
  const auto comms = MakeThreadComms(3, {.max_message_bytes = 40});
  OnAllRanks(comms, [](Comm& comm) {
    const int rank = comm.rank();
    const int next = (rank + 1) % 3;
    const int previous = (rank + 2) % 3;
    std::vector<float> sent(25, static_cast<float>(rank));
    std::vector<float> sent_second(7, static_cast<float>(rank + 10));
    std::vector<float> received(25);
    std::vector<float> received_second(7);
    std::vector<float> none;
    const Transfer transfers[] = {{true, next, Row(sent)},
                                  {true, next, Row(sent_second)},
                                  {false, previous, Row(received)},
                                  {true, next, Row(none)},
                                  {false, previous, Row(received_second)}};
    const BackendStatus s = comm.Exchange(transfers, 5);
    ASSERT_TRUE(s.ok()) << s.text;
    EXPECT_THAT(received, ::testing::Each(static_cast<float>(previous)));
    EXPECT_THAT(received_second, ::testing::Each(static_cast<float>(previous + 10)));
  });
}

TEST(Exchange, WithAMessageOfAnotherLengthFailsOnBothSides) {
  if (!ThreadCommsSeeTheirPeers()) GTEST_SKIP() << "they do not see how long a message is";
  OnAllRanks(MakeThreadComms(2), [](Comm& comm) {
    std::vector<float> values(comm.rank() == 0 ? 3 : 4);
    const Transfer transfer = {comm.rank() == 0, 1 - comm.rank(), Row(values)};
    EXPECT_FALSE(comm.Exchange(&transfer, 1).ok());
  });
}

TEST(Barrier, HoldsEveryRankUntilTheLastHasCome) {
  std::atomic<int> come = 0;
  OnAllRanks(MakeThreadComms(4), [&come](Comm& comm) {
    const int group = World(comm);
    for (int repeat = 1; repeat <= 10; ++repeat) {
      ++come;
      ASSERT_TRUE(comm.Barrier(group).ok());
      ASSERT_GE(come, 4 * repeat);
      ASSERT_TRUE(comm.Barrier(group).ok());
    }
  });
}

TEST(StartBeside, HasTheBitsOfTheBlockingCallAndLeavesItsGroupToThat) {
  OnAllRanks(MakeThreadComms(3), [](Comm& comm) {
    const int group = World(comm, GroupUse::kBeside);
    for (const int64_t each : {1, 2049, 30'001}) {
      std::vector<float> sum = Values(comm.rank(), each * comm.world_size());
      std::vector<float> all = sum;
      std::vector<float> beside_sum = sum;
      std::vector<float> beside_all = sum;
      ASSERT_TRUE(
          comm.StartBeside({CollectiveKind::kAllReduce, group, ReduceOp::kSum, Row(beside_sum)})
              .ok());
      ASSERT_TRUE(
          comm.StartBeside({CollectiveKind::kAllGather, group, ReduceOp::kSum, Row(beside_all)})
              .ok());
      const BackendStatus waited = comm.WaitBeside();  // for both
      ASSERT_TRUE(waited.ok()) << waited.text;
      ASSERT_TRUE(comm.AllReduce(group, ReduceOp::kSum, Row(sum)).ok());
      ASSERT_TRUE(comm.AllGather(group, Row(all)).ok());
      ASSERT_TRUE(comm.Barrier(group).ok());
      EXPECT_TRUE(beside_sum == sum);
      EXPECT_TRUE(beside_all == all);
    }
  });
}

TEST(StartBeside, RefusesOtherGroupsAndReductions) {
  OnAllRanks(MakeThreadComms(2), [](Comm& comm) {
    const int blocking = World(comm, GroupUse::kBlocking);
    const int started = World(comm, GroupUse::kStarted);
    const int beside = World(comm, GroupUse::kBeside);
    std::vector<float> values(8);
    std::vector<double> totals(8);
    const View wide = {totals.data(), 1, 8, DType::kF64};
    int64_t ticket = 0;
    const struct {
      BackendStatus status;
      const char* text;
    } refused[] = {
        {comm.StartBeside({CollectiveKind::kAllReduce, blocking, ReduceOp::kSum, Row(values)}),
         "start beside: group 0 was made for blocking calls alone"},
        {comm.StartBeside({CollectiveKind::kAllReduce, started, ReduceOp::kSum, Row(values)}),
         "start beside: group 1 was made for other started calls"},
        {comm.Start({CollectiveKind::kAllReduce, beside, ReduceOp::kSum, Row(values)}, &ticket),
         "start: group 2 was made for other started calls"},
        {comm.StartBeside({CollectiveKind::kAllReduce, beside, ReduceOp::kMax, Row(values)}),
         "start beside: only gathers and sums of f32, bf16 and f16 are"},
        {comm.StartBeside({CollectiveKind::kAllReduce, beside, ReduceOp::kSum, wide}),
         "start beside: only gathers and sums of f32, bf16 and f16 are"}};
    for (const auto& [status, text] : refused) {
      EXPECT_EQ(status.code, kInvalidArgument);
      EXPECT_STREQ(status.text, text);
    }
    EXPECT_TRUE(comm.WaitBeside().ok());
    EXPECT_TRUE(comm.Barrier(beside).ok()) << "nothing is broken by it";
  });
}

TEST(Timeout, NamesTheCallAndTheRanksThatDidNotCome) {
  const auto comms = MakeThreadComms(4, {.comm = {.timeout_ms = kShortTimeoutMs}});
  OnAllRanks(comms, [](Comm& comm) {
    const int group = World(comm);
    if (comm.rank() == 1 || comm.rank() == 3) return;
    std::vector<float> values(10);
    const BackendStatus s = comm.AllReduce(group, ReduceOp::kSum, Row(values));
    EXPECT_EQ(s.code, kDeadlineExceeded);
    EXPECT_THAT(s.text, HasSubstr("all-reduce of group 0"));
    const int other = 2 - comm.rank();
    const std::string silent = ThreadCommsSeeTheirPeers()
                                   ? "not heard from rank 1, 3 for 1000 ms"
                                   : "not done after 1000 ms; it needs rank " +
                                         std::string(other == 0 ? "0, 1, 3" : "1, 2, 3");
    EXPECT_THAT(s.text, HasSubstr(silent));
    // Broken for good: the same cause at once.
    EXPECT_EQ(std::string(comm.Barrier(group).text), s.text);
  });
}

TEST(Timeout, EndsTheHalvesOfAReductionToo) {
  OnAllRanks(MakeThreadComms(2, {.comm = {.timeout_ms = kShortTimeoutMs}}), [](Comm& comm) {
    const int group = World(comm);
    if (comm.rank() == 1) return;
    std::vector<float> values(10);
    const BackendStatus s = comm.AllGather(group, Row(values));
    EXPECT_EQ(s.code, kDeadlineExceeded);
    EXPECT_THAT(s.text, HasSubstr("all-gather of group 0"));
    EXPECT_EQ(comm.ReduceScatter(group, ReduceOp::kSum, Row(values)).code, kDeadlineExceeded);
  });
}

TEST(Interrupt, EndsAWaitWithinATenthOfASecondAndAllLaterCalls) {
  EXPECT_LT(MiddleOfFive([] {
              const auto comms = MakeThreadComms(2);
              Comm& comm = *comms[0];
              std::atomic<int> group = -1;
              OnAllRanks(comms, [&](Comm& each) { group = World(each); });
              BackendStatus status;
              Clock::time_point ended;
              std::thread waiting([&] {
                std::vector<float> values(100000);
                status = comm.AllReduce(group, ReduceOp::kSum, Row(values));
                ended = Clock::now();
              });
              // So that it naps already; where it has not even begun, it ends as it begins.
              std::this_thread::sleep_for(std::chrono::milliseconds(60));
              const Clock::time_point interrupted = Clock::now();
              comm.Interrupt("the lease has run out");
              waiting.join();
              EXPECT_EQ(status.code, kAborted);
              EXPECT_THAT(status.text, HasSubstr("the lease has run out"));
              EXPECT_EQ(comm.Barrier(group).code, kAborted);
              double value = 0;
              EXPECT_EQ(comm.AllReduceHost(group, ReduceOp::kSum, &value, 1).code, kAborted);
              return ended - interrupted;
            }),
            std::chrono::milliseconds(100));
}

}  // namespace
}  // namespace weft
