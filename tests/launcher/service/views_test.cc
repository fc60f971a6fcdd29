#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/service/harmless.h"
#include "launcher/service/host_view.h"
#include "launcher/service/job_view.h"
#include "launcher/service/message_json.h"
#include "launcher/service/text_table.h"

namespace weft {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::ResultOf;

constexpr char kEvil[] = "\x1b]0;pwned\x07\x1b[2J\xc2\x9b\xe2\x80\xae\xff\r\n\tx";

bool IsHarmful(const std::string& text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 && byte != '\n') return true;
    if (byte == 0x7f || byte == 0xff || text.compare(i, 2, "\xc2\x9b") == 0) return true;
    if (text.compare(i, 3, "\xe2\x80\xae") == 0) return true;
  }
  return false;
}

v1::Job EvilJob() {
  v1::Job job;
  // Strings of a message are valid UTF-8: only what is that can come over the wire.
  const std::string evil = "\x1b]0;pwned\x07\x1b[2J\xc2\x9b\xe2\x80\xae\r\n\tx";
  job.set_job_id(evil);
  job.set_name(evil);
  job.set_owner(evil);
  job.set_phase(evil);
  job.set_reason(evil);
  job.set_run_folder(evil);
  job.set_file(evil);
  job.add_overrides(evil);
  (*job.mutable_layout())[evil] = evil;
  job.add_allocations()->set_host(evil);
  job.set_steps(3);
  return job;
}

TEST(Harmless, SpellsOutWhatATerminalWouldObey) {
  EXPECT_EQ(Harmless("a plain l\xc3\xafne"), "a plain l\xc3\xafne");
  EXPECT_EQ(Harmless("\x1b[31mred\x1b[0m"), "\\x1b[31mred\\x1b[0m");
  EXPECT_EQ(Harmless("two\nlines"), "two\\x0alines");
  EXPECT_EQ(Harmless("a\tb"), "a       b");
  EXPECT_FALSE(IsHarmful(Harmless(kEvil)));
  EXPECT_THAT(HarmlessLines("one\r\ntwo\n\nfour\n"), ElementsAre("one", "two", "", "four"));
  EXPECT_THAT(HarmlessLines("1\n2\n3\n", 2), ElementsAre("1", "2"));
}

TEST(Harmless, EveryViewGoesThroughIt) {
  const v1::Job job = EvilJob();
  EXPECT_FALSE(IsHarmful(JobsTable({job}, 0, 80))) << JobsTable({job}, 0, 80);
  EXPECT_FALSE(IsHarmful(JobSheet(job, 0))) << JobSheet(job, 0);
  EXPECT_FALSE(IsHarmful(JobLine(job)));
  EXPECT_FALSE(IsHarmful(MessageJson(job))) << MessageJson(job);
  v1::Host host;
  for (std::string* field :
       {host.mutable_host(), host.mutable_owner(), host.mutable_reason(), host.add_job_ids()}) {
    *field = job.name();
  }
  EXPECT_FALSE(IsHarmful(HostsTable({host}, 0, 80)));
  EXPECT_FALSE(IsHarmful(HostLine(host, 0)));
  v1::LogsReply piece;
  piece.set_rank(-1);
  piece.set_file(job.name());
  piece.set_text(kEvil);
  EXPECT_FALSE(IsHarmful(LogText(piece, true))) << LogText(piece, true);
  EXPECT_FALSE(IsHarmful(MessageJson(piece))) << MessageJson(piece);
}

TEST(Harmless, EveryEventGoesThroughIt) {
  const std::string evil = EvilJob().name();
  std::vector<v1::Event> events(8);
  events[0].mutable_phase()->set_phase(evil);
  events[0].mutable_phase()->set_reason(evil);
  events[1].mutable_step()->set_step(3);
  events[2].mutable_committed()->set_folder(evil);
  events[3].mutable_lost()->set_host(evil);
  events[3].mutable_lost()->set_reason(evil);
  events[4].mutable_not_saved()->set_reason(evil);
  events[5].mutable_host_checked()->set_host(evil);
  events[6].mutable_host()->mutable_host()->set_host(evil);
  events[6].mutable_host()->set_what(evil);
  events[7].mutable_rank_slow()->set_host(evil);
  events.emplace_back();  // one that this version does not know
  for (v1::Event& event : events) {
    event.set_job_id(evil);
    EXPECT_FALSE(IsHarmful(EventText(event, true))) << EventText(event, true);
    EXPECT_FALSE(IsHarmful(MessageJson(event)));
    EXPECT_THAT(EventText(event, false), HasSubstr("1970-01-01T00:00:00Z  "));
  }
}

TEST(ColumnsOf, CountsWhatATerminalShows) {
  EXPECT_EQ(ColumnsOf("abc"), 3);
  EXPECT_EQ(ColumnsOf("\xe7\xbb\x87\xe6\x9c\xba"), 4);  // two of East Asia
  EXPECT_EQ(ColumnsOf("e\xcc\x81"), 1);                 // an accent of its own
  EXPECT_EQ(CutTo("abcdef", 4), "abc~");
  EXPECT_EQ(CutTo("abcd", 4), "abcd");
  EXPECT_EQ(CutTo("\xe7\xbb\x87\xe6\x9c\xba", 3), "\xe7\xbb\x87~");
}

std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(absl::string_view(text).substr(0, text.size() - 1), '\n');
}

v1::Job LargeJob() {
  v1::Job job;
  job.set_job_id("job-123456");
  job.set_name("llama-70b-with-a-rather-long-name-of-an-experiment");
  job.set_owner("a-user-with-a-long-name");
  job.set_phase("RECOVERING");
  job.set_reason("waits for 12 hosts of 8 slots each; 3 are free, 2 of them for this user");
  job.set_step(1234567);
  job.set_steps(2345678);
  job.set_nodes(1024);
  job.set_submitted_unix_ms(1);
  return job;
}

TEST(JobsTable, FitsEightyColumnsHoweverLongItsCellsAre) {
  v1::Job small;
  small.set_job_id("job-1");
  small.set_phase("RUNNING");
  small.set_steps(300);
  small.set_step(120);
  small.set_nodes(2);
  small.set_submitted_unix_ms(1000);
  const std::string table = JobsTable({LargeJob(), small}, 8000000000, 80);
  EXPECT_THAT(Lines(table), Each(ResultOf(ColumnsOf, Le(80)))) << table;
  EXPECT_THAT(table, HasSubstr("job-123456"));
  EXPECT_THAT(table, HasSubstr("RECOVERING"));
  EXPECT_THAT(table, HasSubstr("92d14h"));
  EXPECT_THAT(Lines(table), Each(Not(HasSubstr("  \n"))));
}

TEST(JobsTable, IsPlainWhereThereIsRoomAndLeavesOutEmptyColumns) {
  v1::Job job;
  job.set_job_id("job-1");
  job.set_name("small");
  job.set_owner("ada");
  job.set_phase("RUNNING");
  job.set_steps(300);
  job.set_step(120);
  job.set_nodes(2);
  job.add_allocations()->set_host("n1");
  EXPECT_EQ(JobsTable({job}, 61000, 80),
            "JOB    NAME   OWNER  PHASE    STEP     HOSTS  AGE\n"
            "job-1  small  ada    RUNNING  120/300  1/2    1m\n");
}

TEST(HostsTable, FitsEightyColumnsAndSaysTheState) {
  v1::Host host;
  host.set_host("a-host-with-a-long-name.of.a.long.domain.example.org");
  host.set_owner("a-user-with-a-long-name");
  host.set_slots(10000);
  host.set_slots_used(9999);
  host.set_gpus(8);
  host.set_memory_bytes(int64_t{2} << 40);
  host.set_present(true);
  host.set_left_out_until_unix_ms(4200000);
  host.set_reason("failed 3 times within an hour, and has a long reason for that");
  for (int i = 0; i < 20; ++i) host.add_job_ids(absl::StrCat("job-", i));
  const std::string table = HostsTable({host}, 60000, 80);
  EXPECT_THAT(Lines(table), Each(ResultOf(ColumnsOf, Le(80)))) << table;
  EXPECT_THAT(table, HasSubstr("9999/10000"));
  EXPECT_EQ(HostState(host, 60000), "left out 1h09m");
  EXPECT_EQ(HostState(host, 4200000), "ready");
  host.set_slots_used(10000);
  EXPECT_EQ(HostState(host, 4200000), "full");
  host.set_drained(true);
  EXPECT_EQ(HostState(host, 60000), "drained");
  host.set_leaving(true);
  EXPECT_EQ(HostState(host, 60000), "leaving");
  host.set_present(false);
  EXPECT_EQ(HostState(host, 60000), "absent");
}

TEST(HostsTable, CallsNoHostReadyThatGetsNoJob) {
  v1::Host host;
  host.set_host("n1");
  host.set_slots(2);
  host.set_present(true);
  EXPECT_EQ(HostState(host, 0), "ready");
  host.set_reason("its standing agent gives no tokens: install this weftd's version there");
  EXPECT_EQ(HostState(host, 0), "not used");
  EXPECT_THAT(HostLine(host, 0), HasSubstr("n1: not used (its standing agent gives no tokens"));
}

TEST(HostLine, SaysTheStateOnce) {
  v1::Host host;
  host.set_host("n1");
  host.set_slots(2);
  host.set_present(true);
  host.set_drained(true);
  host.set_reason("drained: disk is old");
  EXPECT_EQ(HostLine(host, 0), "n1: drained (disk is old), 0 of 2 slots used\n");
  host.set_reason("disk is old");
  EXPECT_EQ(HostLine(host, 0), "n1: drained (disk is old), 0 of 2 slots used\n");
  EXPECT_THAT(HostsTable({host}, 0, 80), HasSubstr("  disk is old\n"));
}

TEST(EventText, SaysOfAHangWhereItWasAndWhoWaited) {
  v1::Event event;
  v1::RankLost& lost = *event.mutable_lost();
  lost.set_rank(1);
  lost.set_host("n1");
  lost.set_reason("stood still for 4 s");
  EXPECT_EQ(EventText(event, false),
            "1970-01-01T00:00:00Z  lost rank 1 on n1: stood still for 4 s\n");
  lost.set_phase("step");
  lost.set_step(7);
  lost.set_collective("all-reduce over dp (call 3)");
  lost.set_waiting("rank 0 in all-reduce over dp (call 3)");
  lost.set_did("ended the generation");
  EXPECT_EQ(EventText(event, false),
            "1970-01-01T00:00:00Z  lost rank 1 on n1: stood still for 4 s\n"
            "  | in step 7, all-reduce over dp (call 3)\n"
            "  | waiting: rank 0 in all-reduce over dp (call 3)\n"
            "  | weft: ended the generation\n");
}

TEST(IsJobId, TellsAJobFromARunFolder) {
  for (const char* job : {"job-1", "job-170000"}) EXPECT_TRUE(IsJobId(job)) << job;
  for (const char* run : {"job-", "job-x", "./job-1", "job-1/", "runs/a", "job.yaml", ""}) {
    EXPECT_FALSE(IsJobId(run)) << run;
  }
}

TEST(AgeText, IsShort) {
  const std::vector<std::pair<int64_t, std::string>> cases = {
      {-5, "0s"},         {42000, "42s"},      {720000, "12m"},
      {3600000, "1h00m"}, {11220000, "3h07m"}, {int64_t{86400000} * 5, "5d00h"},
  };
  for (const auto& [ms, text] : cases) EXPECT_EQ(AgeText(ms), text);
}

TEST(StepThinner, ShowsAStepASecondAndTheLastOne) {
  StepThinner thinner;
  const auto step = [](int64_t unix_ms, bool stopping = false) {
    v1::Event event;
    event.set_job_id("job-1");
    event.set_unix_ms(unix_ms);
    event.mutable_step()->set_stopping(stopping);
    return event;
  };
  EXPECT_TRUE(thinner.Shows(step(10000)));
  EXPECT_FALSE(thinner.Shows(step(10999)));
  EXPECT_TRUE(thinner.Shows(step(11000)));
  EXPECT_TRUE(thinner.Shows(step(11001, true)));
  EXPECT_TRUE(thinner.Shows(step(5000))) << "the clock was set back";
  v1::Event phase;
  phase.mutable_phase();
  EXPECT_TRUE(thinner.Shows(phase));
}

TEST(MessageJson, HasAllFieldsByNameAndNumbersAsNumbers) {
  v1::Event event;
  event.set_revision(int64_t{1} << 60);
  event.mutable_step()->set_loss(2.5);
  EXPECT_EQ(MessageJson(event),
            "{\"revision\":1152921504606846976,\"job_id\":\"\",\"generation\":0,\"unix_ms\":0,"
            "\"step\":{\"step\":0,\"loss\":2.5,\"grad_norm\":0.0,\"lr\":0.0,\"tokens\":0,"
            "\"step_s\":0.0,\"peak_bytes\":0,\"stopping\":false,\"skipped\":false,"
            "\"skipped_steps\":0,\"loss_scale\":0.0,\"not_written\":\"\"}}");
  v1::Job job;
  (*job.mutable_layout())["tp"] = "2";
  (*job.mutable_layout())["dp"] = "4";
  job.add_allocations()->add_slots(3);
  EXPECT_THAT(MessageJson(job), HasSubstr("\"layout\":{\"dp\":\"4\",\"tp\":\"2\"}"));
  EXPECT_THAT(MessageJson(job), HasSubstr("\"slots\":[3]"));
  EXPECT_EQ(ArrayJson({}), "[]\n");
  EXPECT_EQ(ArrayJson({"1", "2"}), "[\n1,\n2\n]\n");
}

TEST(LogText, SaysWhoseEachLineIs) {
  v1::LogsReply piece;
  piece.set_rank(3);
  piece.set_text("one\ntwo\n");
  EXPECT_EQ(LogText(piece, true), "[3] one\n[3] two\n");
  EXPECT_EQ(LogText(piece, false), "one\ntwo\n");
  piece.set_rank(-1);
  piece.set_file("agent-n1.log");
  EXPECT_EQ(LogText(piece, false), "[agent-n1.log] one\n[agent-n1.log] two\n");
}

}  // namespace
}  // namespace weft
