#include "worker/process/waiting_reports.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

proto::WorkerReport Step(int64_t sequence, bool stopping = false) {
  proto::WorkerReport report;
  report.set_sequence(sequence);
  report.mutable_step()->set_step(sequence);
  report.mutable_step()->set_stopping(stopping);
  return report;
}

proto::WorkerReport Shard(int64_t sequence) {
  proto::WorkerReport report;
  report.set_sequence(sequence);
  report.mutable_shard()->set_step(sequence);
  return report;
}

std::vector<int64_t> SequencesOf(const std::vector<proto::WorkerReport>& reports) {
  std::vector<int64_t> sequences;
  for (const proto::WorkerReport& report : reports) sequences.push_back(report.sequence());
  return sequences;
}

TEST(WaitingReports, AreSentOnceOnAStreamAndAgainOnTheNext) {
  WaitingReports waiting;
  for (int64_t sequence = 1; sequence <= 3; ++sequence) waiting.Add(Step(sequence));
  EXPECT_EQ(SequencesOf(waiting.TakeUnsent()), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_FALSE(waiting.has_unsent());
  waiting.Add(Shard(4));
  EXPECT_EQ(SequencesOf(waiting.TakeUnsent()), (std::vector<int64_t>{4}));
  waiting.Acknowledge(2);
  waiting.BeginStream();
  EXPECT_EQ(SequencesOf(waiting.TakeUnsent()), (std::vector<int64_t>{3, 4}));
  waiting.Acknowledge(9);
  EXPECT_EQ(waiting.size(), 0u);
}

// A disk that is full for a day: nothing is acknowledged, and the rank trains on.
TEST(WaitingReports, KeepEveryFactAndTheNewestStepsOfALongOutage) {
  WaitingReports waiting;
  waiting.Add(Shard(1));
  const int64_t last = 500000;
  for (int64_t sequence = 2; sequence < last; ++sequence) {
    waiting.Add(sequence % 100000 == 0 ? Shard(sequence) : Step(sequence));
    if (sequence == 300) waiting.TakeUnsent();  // on a stream that broke later
  }
  waiting.Add(Step(last, /*stopping=*/true));
  waiting.BeginStream();
  const std::vector<proto::WorkerReport> sent = waiting.TakeUnsent();
  EXPECT_EQ(sent.size(), WaitingReports::kMostSteps + 6);
  int shards = 0;
  for (size_t i = 0; i < sent.size(); ++i) {
    shards += sent[i].has_shard() ? 1 : 0;
    if (i > 0) {
      EXPECT_GT(sent[i].sequence(), sent[i - 1].sequence());
    }
  }
  EXPECT_EQ(shards, 5);
  EXPECT_TRUE(sent.back().step().stopping());
  EXPECT_EQ(sent[sent.size() - 2].sequence(), last - 1);
}

TEST(WaitingReports, SendNothingTwiceBecauseAnOlderOneWasLetGo) {
  WaitingReports waiting;
  int64_t sequence = 0;
  std::vector<int64_t> sent;
  for (int round = 0; round < 30; ++round) {
    for (int each = 0; each < 100; ++each) waiting.Add(Step(++sequence));
    for (const int64_t each : SequencesOf(waiting.TakeUnsent())) sent.push_back(each);
  }
  ASSERT_EQ(sent.size(), 3000u);
  for (size_t i = 0; i < sent.size(); ++i) EXPECT_EQ(sent[i], static_cast<int64_t>(i) + 1);
}

}  // namespace
}  // namespace weft
