// One job on three hosts whose links are cut: the side that the coordinator is on goes on if it has
// enough hosts, else waits; the other one ends by its lease and comes back after healing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "tests/hosts/hosts_run.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kManySteps = 100000;  // a person stops it
// A silent host is lost its lease and a question of 3 s after its last word; then another
// generation starts, on a machine that may be busier than at the first start.
constexpr double kQuestionS = 3;
constexpr double kStarts = 2;
// ssh gives up after so long without an answer, in these tests.
constexpr char kImpatient[] = "-o ServerAliveInterval=1 -o ServerAliveCountMax=3";

class HostsLinks : public HostsRun {
 protected:
  void StartMany(const std::string& nodes, const std::string& ssh_options = "") {
    StartOnThreeHosts(WriteJob("pp: 2, tp: 1",
                               absl::StrCat("nodes: \"", nodes, "\", ", OnThreeHosts(ssh_options)),
                               ShortTimes(), kManySteps));
    ASSERT_TRUE(WaitForStep(13)) << Words();
    replanned_within_s_ = kLeaseS + kQuestionS + kStarts * SinceStart();
  }
  bool HasRanks(int host) { return !bed_->Run(host, "pgrep -x weft-worker").out.empty(); }
  // Nothing trains there any more, whether or not anybody could tell it to stop.
  void ExpectNoRanks(int host) {
    EXPECT_TRUE(Eventually(4 * kLeaseS, [&] {
      return bed_->Run(host, "pgrep -x weft-worker; pgrep -x orted").out.empty();
    })) << HostBed::Name(host);
  }
  // How many hosts the newest generation was planned for, as weftd's log says.
  bool PlannedFor(const std::string& words) const {
    const std::string log = WeftdLog();
    const size_t at = log.rfind("planned for ");
    return at != std::string::npos && log.compare(at, words.size(), words) == 0;
  }

  double replanned_within_s_ = 0;
};

TEST_F(HostsLinks, GoesOnOnTwoHostsAndGrowsAgain) {
  const std::map<int64_t, std::string> alone = CurveOfOneHost();
  ASSERT_NO_FATAL_FAILURE(StartMany("2:3"));
  bed_->CutLink(3);
  const double cut_s = NowSeconds();
  ASSERT_TRUE(WaitForStep(0, 2, 180)) << Words();
  const double took_s = NowSeconds() - cut_s;
  std::printf("trains on two hosts %.2f s after the cut, lease %d s\n", took_s, kLeaseS);
  EXPECT_LT(took_s, replanned_within_s_);
  EXPECT_TRUE(PlannedFor("planned for 2 of 3 hosts")) << Words();
  EXPECT_THAT(WeftdLog(), HasSubstr("host h3 lost"));
  bed_->RestoreLink(3);
  const double up_s = NowSeconds();
  ASSERT_TRUE(WaitForStep(0, 3, 180)) << Words();
  std::printf("trains on three hosts %.2f s after the link was up\n", NowSeconds() - up_s);
  StopAndExpectEnd();
  ExpectNear(alone);
}

// Host 1, where the coordinator is, on one side, the others on the other one.
TEST_F(HostsLinks, GoesOnWhereTheCoordinatorIsIfThatIsEnough) {
  const std::map<int64_t, std::string> alone = CurveOfOneHost();
  ASSERT_NO_FATAL_FAILURE(StartMany("1:3"));
  bed_->CutLink(1);
  const double cut_s = NowSeconds();
  ASSERT_TRUE(WaitForStep(0, 2, 180)) << Words();
  const double took_s = NowSeconds() - cut_s;
  std::printf("trains on one host %.2f s after the cut, lease %d s\n", took_s, kLeaseS);
  EXPECT_LT(took_s, replanned_within_s_);
  EXPECT_TRUE(PlannedFor("planned for 1 of 3")) << Words();
  ExpectNoRanks(2);
  ExpectNoRanks(3);
  bed_->RestoreLink(1);
  ASSERT_TRUE(Eventually(180, [&] { return HasRanks(2) && HasRanks(3); })) << Words();
  ASSERT_TRUE(Eventually(180, [&] { return LastGeneration() > 2; })) << Words();
  ASSERT_TRUE(WaitForStep(Steps().back().step + 15, 3, 180)) << Words();
  EXPECT_TRUE(HasRanks(2) && HasRanks(3));
  StopAndExpectEnd();
  ExpectNear(alone);
}

TEST_F(HostsLinks, WaitsWhereTooFewAreLeft) {
  const std::map<int64_t, std::string> alone = CurveOfOneHost();
  ASSERT_NO_FATAL_FAILURE(StartMany("2:3"));
  bed_->CutLink(1);
  for (int host = 1; host <= 3; ++host) ExpectNoRanks(host);
  ASSERT_TRUE(Eventually(kPatienceS, [&] {
    const std::vector<RunEvent> events = Events();
    return !events.empty() && events.back().reason.find("waiting for hosts: 1 of at least 2") == 0;
  })) << Words();
  const int64_t step = Steps().back().step;
  SleepSeconds(2);
  EXPECT_EQ(Steps().back().step, step) << "it waits";
  bed_->RestoreLink(1);
  const double up_s = NowSeconds();
  ASSERT_TRUE(WaitForStep(0, 2, 180)) << Words();
  std::printf("trains again %.2f s after the link was up\n", NowSeconds() - up_s);
  ASSERT_TRUE(WaitForStep(Steps().back().step + 15, 2, 180)) << Words();
  StopAndExpectEnd();
  ExpectNear(alone);
}

// ssh is gone for good and is started again. Over there its first agent does not hear of that, as
// it may not for hours: its sshd stands still here. It dials on, and there is a second one.
TEST_F(HostsLinks, MayBeCutForLongerThanSshWaits) {
  ASSERT_NO_FATAL_FAILURE(StartMany("2:3", kImpatient));
  const std::string sshd = bed_->Run(3, "pgrep -f 'sshd: .*notty' | tr '\\n' ' '").out;
  const std::string agents = "pgrep -f '^/[^ ]*/weft agent'";
  const std::string first = bed_->Run(3, agents).out;
  ASSERT_FALSE(sshd.empty() || first.empty());
  bed_->CutLink(3);
  bed_->Run(3, "kill -STOP " + sshd);
  ASSERT_TRUE(WaitForStep(0, 2, 180)) << Words();
  ASSERT_TRUE(Eventually(kPatienceS, [&] {
    return run_->Stdout().find("host h3: ") != std::string::npos;
  })) << Words();
  SleepSeconds(2);
  bed_->RestoreLink(3);
  // The first one may be back, and be trained on, before the second one comes.
  std::string second;
  ASSERT_TRUE(Eventually(180, [&] {
    second = bed_->Run(3, agents).out;
    return second.find(first) == std::string::npos && !second.empty();
  })) << Words();
  ASSERT_TRUE(Eventually(180, [&] { return HasRanks(3) && LastGeneration() > 2; })) << Words();
  ASSERT_TRUE(WaitForStep(Steps().back().step + 5, 3, 180)) << Words();
  const int64_t generation = LastGeneration();
  ASSERT_TRUE(WaitForStep(Steps().back().step + 25, generation, 180)) << Words();
  EXPECT_EQ(LastGeneration(), generation) << "the two evict each other\n" << Words();
  EXPECT_EQ(bed_->Run(3, agents).out, second);
  StopAndExpectEnd();
  bed_->Run(3, "kill -CONT " + sshd);
}

}  // namespace
}  // namespace weft
