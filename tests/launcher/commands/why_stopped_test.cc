// `weft why-stopped` of run folders whose events are written here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/launcher/job_file_for_test.h"
#include "tests/launcher/run_weft.h"

namespace weft {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr char kSlow[] =
    R"({"unix_ms":60000,"revision":5,"generation":1,"event":"rank_slow","rank":2,"host":"h2",)"
    R"("share":0.92,"times":3.1,"since_step":40})"
    "\n";
constexpr char kStillRuns[] =
    R"({"unix_ms":60000,"revision":5,"generation":1,"event":"phase","phase":"RUNNING"})"
    "\n";
constexpr char kNoneSlow[] =
    R"({"unix_ms":90000,"revision":6,"generation":1,"event":"no_rank_slow","since_step":70})"
    "\n";
constexpr char kLost[] =
    R"({"unix_ms":95000,"revision":7,"generation":1,"event":"rank_lost","rank":1,"host":"h1",)"
    R"("reason":"rank 1 was killed"})"
    "\n"
    R"({"unix_ms":95000,"revision":7,"generation":1,"event":"phase","phase":"RECOVERING"})"
    "\n";

std::string WhyStopped(const std::string& events, const std::string& options = "") {
  const JobFolder folder;
  folder.Write("lock", "");
  folder.Write("events.jsonl", events);
  const Ran ran = RunWeft(folder, "why-stopped " + folder.path() + options);
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  return ran.out;
}

TEST(WhyStopped, NamesASlowRankOfARunThatGoesOn) {
  EXPECT_THAT(WhyStopped(std::string(kSlow) + kStillRuns),
              HasSubstr("\n  no generation was ended by a failure\n"
                        "a rank is slow, generation 1\n"
                        "  rank        2\n"
                        "  host        h2\n"
                        "  computes    for 92 % of each step, 3.1 times as long as the ranks that "
                        "do the same; they wait for it\n"
                        "  since       step 40, told at 1970-01-01T00:01:00Z\n"));
  EXPECT_THAT(WhyStopped(kStillRuns), Not(HasSubstr("slow")));
}

TEST(WhyStopped, SaysWhenTheSlownessWasOver) {
  const std::string why = WhyStopped(std::string(kSlow) + kNoneSlow);
  EXPECT_THAT(why, HasSubstr("a rank was slow, generation 1\n"));
  EXPECT_THAT(why, HasSubstr("  until       step 70, told at 1970-01-01T00:01:30Z\n"));
  const std::string ended = WhyStopped(std::string(kSlow) + kLost);
  EXPECT_THAT(ended, HasSubstr("\n  cause       rank 1 was killed\n"));
  EXPECT_THAT(ended, HasSubstr("a rank was slow, generation 1\n"));
  EXPECT_THAT(ended, HasSubstr("  until       the end of its generation\n"));
}

TEST(WhyStopped, TellsProgramsOfTheSlowRankBesideTheLoss) {
  EXPECT_EQ(WhyStopped(kStillRuns, " --json"), "null\n");
  const auto alone = nlohmann::json::parse(WhyStopped(kSlow, " --json"));
  EXPECT_EQ(alone.size(), 1u);
  EXPECT_EQ(alone.at("slow").at("rank"), 2);
  EXPECT_EQ(alone.at("slow").at("over"), false);
  const auto both = nlohmann::json::parse(WhyStopped(std::string(kSlow) + kLost, " --json"));
  EXPECT_EQ(both.at("rank"), 1);
  EXPECT_EQ(both.at("slow").at("over"), true);
  EXPECT_FALSE(nlohmann::json::parse(WhyStopped(kLost, " --json")).contains("slow"));
  EXPECT_EQ(WhyStopped(kSlow, " --json --generation 2"), "null\n");
}

TEST(WhyStopped, PassesOverLinesThatSayOddThings) {
  EXPECT_THAT(
      WhyStopped("7\n{\"event\":7}\n{\"event\":\"rank_slow\",\"rank\":\"x\",\"host\":[]}\n"),
      HasSubstr("a rank is slow, generation 0\n"));
}

}  // namespace
}  // namespace weft
