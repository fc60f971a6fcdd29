#include "launcher/slurm/failed_hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/slurm/run_record.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kNow = 1'800'000'000;

std::vector<std::string> NamesOf(const std::vector<FailedHost>& hosts) {
  std::vector<std::string> names;
  for (const FailedHost& host : hosts) names.push_back(host.name);
  return names;
}

TEST(FailedHosts, AreLeftOutForAnHour) {
  std::vector<FailedHost> failed;
  TakeFailure("h2", "it was not heard", kNow, &failed);
  ASSERT_EQ(failed.size(), 1U);
  EXPECT_EQ(LeftOutUntil(failed[0], kNow + 10), kNow + 3600);
  EXPECT_EQ(LeftOutUntil(failed[0], kNow + 3599), kNow + 3600);
  EXPECT_EQ(LeftOutUntil(failed[0], kNow + 3600), 0);
  EXPECT_EQ(LeftOutLine(failed[0], "19:03"), "host h2 is left out until 19:03: it was not heard");
}

TEST(FailedHosts, MayComeBackTwice) {
  std::vector<FailedHost> failed;
  EXPECT_FALSE(TakeReturn("h2", &failed));
  for (int time = 0; time < 3; ++time) {
    TakeFailure("h2", "killed", kNow + time, &failed);
    EXPECT_GT(LeftOutUntil(failed[0], kNow + time), 0);
    EXPECT_TRUE(TakeReturn("h2", &failed));
    EXPECT_FALSE(TakeReturn("h2", &failed));
    EXPECT_EQ(LeftOutUntil(failed[0], kNow + time) > 0, time == 2) << time;
  }
  // The first of the three is an hour old.
  EXPECT_EQ(LeftOutUntil(failed[0], kNow + 3600), 0);
}

TEST(FailedHosts, AreForgottenAfterAnHour) {
  std::vector<FailedHost> failed;
  TakeFailure("h2", "lost", kNow, &failed);
  TakeFailure("h3", "lost", kNow + 3600, &failed);
  EXPECT_THAT(NamesOf(failed), ElementsAre("h3"));
}

TEST(FailedHosts, AreLeftOutAsLongAsEnoughOthersAreThere) {
  std::vector<FailedHost> failed;
  TakeFailure("h1", "lost", kNow - 100, &failed);
  TakeFailure("h9", "lost", kNow - 50, &failed);  // of another allocation
  TakeFailure("h3", "lost", kNow, &failed);
  const std::vector<std::string> hosts = {"h1", "h2", "h3", "h4"};
  struct Case {
    int least;
    std::vector<std::string> use, left_out, used_still;
  };
  for (const Case& each : {
           Case{2, {"h2", "h4"}, {"h3", "h1"}, {}},
           Case{3, {"h1", "h2", "h4"}, {"h3"}, {"h1"}},
           Case{4, {"h1", "h2", "h3", "h4"}, {}, {"h3", "h1"}},
           Case{5, {"h1", "h2", "h3", "h4"}, {}, {"h3", "h1"}},
       }) {
    SCOPED_TRACE(each.least);
    const ChosenHosts chosen = ChooseHosts(hosts, failed, each.least, kNow);
    EXPECT_EQ(chosen.use, each.use);
    EXPECT_EQ(NamesOf(chosen.left_out), each.left_out);
    EXPECT_EQ(NamesOf(chosen.used_still), each.used_still);
  }
  EXPECT_EQ(ChooseHosts(hosts, failed, 1, kNow + 4000).use, hosts);
}

TEST(SlurmRunRecord, KeepsFailedHosts) {
  SlurmRunRecord record{.job_id = "7", .idle_ends = 1};
  EXPECT_EQ(ParseSlurmRun(SlurmRunText(record)), record);
  EXPECT_EQ(SlurmRunText(record), "{\"format_version\":1,\"job_id\":\"7\",\"idle_ends\":1}\n");
  TakeFailure("h2", "\"lost\"", kNow, &record.failed_hosts);
  TakeFailure("h2", "again \xff", kNow + 1, &record.failed_hosts);
  TakeFailure("h3", "lost", kNow + 2, &record.failed_hosts);
  TakeReturn("h3", &record.failed_hosts);
  const std::optional<SlurmRunRecord> read = ParseSlurmRun(SlurmRunText(record));
  ASSERT_TRUE(read);
  record.failed_hosts[0].reason = "again \xEF\xBF\xBD";
  EXPECT_EQ(*read, record);
}

TEST(SlurmRunRecord, PassesOverWhatIsNoFailedHost) {
  for (const char* const list : {"7", "[7]", "[{\"host\":7}]", "[{\"host\":\"h2\"}]",
                                 "[{\"host\":\"h2\",\"failed_unix_s\":7}]",
                                 "[{\"host\":\"h2\",\"failed_unix_s\":[\"a\"]}]"}) {
    const std::optional<SlurmRunRecord> read =
        ParseSlurmRun("{\"format_version\":1,\"job_id\":\"7\",\"idle_ends\":0,\"failed_hosts\":" +
                      std::string(list) + "}");
    ASSERT_TRUE(read) << list;
    EXPECT_THAT(read->failed_hosts, IsEmpty()) << list;
  }
}

}  // namespace
}  // namespace weft
