#include "proto/run_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace weft {
namespace {

TEST(RunText, EventsAreOneJsonObjectEachAndStepsAreNot) {
  v1::Event step;
  step.mutable_step()->set_step(1);
  EXPECT_EQ(EventLine(step), "");
  v1::Event not_saved;
  not_saved.mutable_not_saved()->set_step(60);
  not_saved.mutable_not_saved()->set_rank(1);
  not_saved.mutable_not_saved()->set_reason("disk full");
  not_saved.mutable_not_saved()->set_saved_step(50);
  EXPECT_EQ(EventLine(not_saved),
            "{\"unix_ms\":0,\"revision\":0,\"generation\":0,\"event\":\"not_saved\",\"step\":60,"
            "\"rank\":1,\"reason\":\"disk full\",\"saved_step\":50}\n");
  v1::Event lost;
  lost.set_revision(7);
  lost.set_generation(2);
  lost.set_unix_ms(1000);
  lost.mutable_lost()->set_rank(3);
  lost.mutable_lost()->set_host("vm");
  lost.mutable_lost()->set_reason("killed \"by\"\nsignal 9 \xff");
  EXPECT_EQ(EventLine(lost),
            "{\"unix_ms\":1000,\"revision\":7,\"generation\":2,\"event\":\"rank_lost\",\"rank\":3,"
            "\"host\":\"vm\",\"reason\":\"killed \\\"by\\\"\\nsignal 9 \xEF\xBF\xBD\"}\n");
}

TEST(RunText, ASlowRankIsToldAndThatNoneIsAnyMore) {
  v1::Event slow;
  slow.mutable_rank_slow()->set_rank(0);
  slow.mutable_rank_slow()->set_host("h0");
  slow.mutable_rank_slow()->set_share(92 / 100.0);
  slow.mutable_rank_slow()->set_times(31 / 10.0);
  slow.mutable_rank_slow()->set_since_step(40);
  EXPECT_EQ(EventLine(slow),
            "{\"unix_ms\":0,\"revision\":0,\"generation\":0,\"event\":\"rank_slow\",\"rank\":0,"
            "\"host\":\"h0\",\"share\":0.92,\"times\":3.1,\"since_step\":40}\n");
  v1::Event none;
  none.mutable_rank_slow()->set_rank(-1);
  none.mutable_rank_slow()->set_since_step(90);
  EXPECT_EQ(EventLine(none),
            "{\"unix_ms\":0,\"revision\":0,\"generation\":0,\"event\":\"no_rank_slow\","
            "\"since_step\":90}\n");
}

// Runs that are over are told from their lines.
TEST(RunText, ALineTellsTheEventThatItWasMadeOf) {
  std::vector<v1::Event> events(6);
  events[0].mutable_phase()->set_phase("RUNNING");
  events[0].mutable_phase()->set_reason("generation 2");
  events[1].mutable_committed()->set_step(20);
  events[1].mutable_committed()->set_folder("step-20");
  events[1].mutable_committed()->set_bytes(128);
  events[2].mutable_not_saved()->set_step(60);
  events[2].mutable_not_saved()->set_rank(-1);
  events[2].mutable_not_saved()->set_reason("disk full");
  events[2].mutable_not_saved()->set_saved_step(50);
  v1::RankLost& hung = *events[3].mutable_lost();
  hung.set_rank(3);
  hung.set_host("vm");
  hung.set_reason("stood still");
  hung.set_did("generation 2 was ended");
  hung.set_phase("step");
  hung.set_step(7);
  hung.set_collective("all-reduce");
  hung.set_why("it has not called it");
  hung.set_waiting("rank 1");
  hung.set_age_ms(2500);
  hung.add_stacks("stacks-vm.txt");
  events[4].mutable_rank_slow()->set_rank(0);
  events[4].mutable_rank_slow()->set_host("h0");
  events[4].mutable_rank_slow()->set_share(0.5);
  events[4].mutable_rank_slow()->set_times(3.25);
  events[5].mutable_rank_slow()->set_rank(-1);
  events[5].mutable_rank_slow()->set_since_step(90);
  for (v1::Event& event : events) {
    event.set_revision(7);
    event.set_generation(2);
    event.set_unix_ms(1000);
    event.set_job_id("job-3");
    const std::string line = EventLine(event, event.job_id(), 1);
    const auto read = EventOf(nlohmann::ordered_json::parse(line));
    ASSERT_TRUE(read) << line;
    EXPECT_EQ(read->DebugString(), event.DebugString()) << line;
  }
  for (const char* other : {"{}", "[]", "7", "null", "{\"event\":3}", "{\"event\":\"new\"}"}) {
    EXPECT_FALSE(EventOf(nlohmann::ordered_json::parse(other))) << other;
  }
  const auto odd = EventOf(nlohmann::ordered_json::parse(
      "{\"event\":\"rank_lost\",\"rank\":1e300,\"stood_still_s\":1e300,\"stacks\":[7]}"));
  ASSERT_TRUE(odd);
  EXPECT_EQ(odd->lost().rank(), -1);
}

TEST(RunText, LinesOfAServedJobSayWhereToGoOn) {
  v1::Event event;
  event.set_revision(7);
  event.mutable_phase()->set_phase("RUNNING");
  const std::string line = EventLine(event, "job-3", 2);
  EXPECT_EQ(line,
            "{\"unix_ms\":0,\"revision\":7,\"generation\":0,\"job\":\"job-3\",\"allocation\":2,"
            "\"event\":\"phase\",\"phase\":\"RUNNING\",\"reason\":\"\"}\n");
  const auto parse = [](const std::string& text) { return nlohmann::ordered_json::parse(text); };
  EXPECT_EQ(RevisionIn(parse(line), "job-3", 2), 7);
  EXPECT_EQ(RevisionIn(parse(line), "job-3", 1), 0) << "another allocation counts anew";
  EXPECT_EQ(RevisionIn(parse(line), "job-4", 2), 0);
  for (const char* other : {"{}", "[]", "7", "{\"job\":3}", "{\"job\":\"job-3\",\"allocation\":2}",
                            "{\"job\":\"job-3\",\"allocation\":2,\"revision\":\"7\"}"}) {
    EXPECT_EQ(RevisionIn(parse(other), "job-3", 2), 0) << other;
  }
  EXPECT_EQ(RevisionIn(parse(EventLine(event)), "job-3", 2), 0);
}

}  // namespace
}  // namespace weft
