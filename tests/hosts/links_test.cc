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

constexpr int64_t kManySteps = 100000;    // a person stops it
constexpr double kReplannedWithinS = 10;  // the lease, and 6 s more on a loaded machine
// ssh gives up after so long without an answer, in these tests.
constexpr char kImpatient[] = "-o ServerAliveInterval=1 -o ServerAliveCountMax=3";

class HostsLinks : public HostsRun {
 protected:
  void StartMany(const std::string& nodes, const std::string& ssh_options = "") {
    StartOnThreeHosts(WriteJob("pp: 2, tp: 1",
                               absl::StrCat("nodes: \"", nodes, "\", ", OnThreeHosts(ssh_options)),
                               ShortTimes(), kManySteps));
    ASSERT_TRUE(WaitForStep(13)) << Words();
  }
  // How many hosts the newest generation was planned for, as weftd's log says.
  bool PlannedFor(const std::string& words) const {
    const std::string log = WeftdLog();
    const size_t at = log.rfind("planned for ");
    return at != std::string::npos && log.compare(at, words.size(), words) == 0;
  }
};

TEST_F(HostsLinks, GoesOnOnTwoHostsAndGrowsAgain) {
  const std::map<int64_t, std::string> alone = CurveOfOneHost();
  ASSERT_NO_FATAL_FAILURE(StartMany("2:3"));
  bed_->CutLink(3);
  const double cut_s = NowSeconds();
  ASSERT_TRUE(WaitForStep(0, 2, 30)) << Words();
  const double took_s = NowSeconds() - cut_s;
  std::printf("trains on two hosts %.2f s after the cut, lease %d s\n", took_s, kLeaseS);
  EXPECT_LT(took_s, kReplannedWithinS);
  EXPECT_TRUE(PlannedFor("planned for 2 of 3 hosts")) << Words();
  EXPECT_THAT(WeftdLog(), HasSubstr("host h3 lost"));
  bed_->RestoreLink(3);
  const double up_s = NowSeconds();
  ASSERT_TRUE(WaitForStep(0, 3, 60)) << Words();
  std::printf("trains on three hosts %.2f s after the link was up\n", NowSeconds() - up_s);
  StopAndExpectEnd();
  ExpectNear(alone);
}

// ssh is gone for good and is started again. Over there its first agent does not hear of that, as
// it may not for hours: its sshd stands still here. It dials on, and there is a second one.
TEST_F(HostsLinks, MayBeCutForLongerThanSshWaits) {
  ASSERT_NO_FATAL_FAILURE(StartMany("2:3", kImpatient));
  const std::string sshd = bed_->Run(3, "pgrep -f 'sshd: .*notty' | tr '\\n' ' '").out;
  ASSERT_FALSE(sshd.empty());
  bed_->CutLink(3);
  bed_->Run(3, "kill -STOP " + sshd);
  ASSERT_TRUE(WaitForStep(0, 2, 30)) << Words();
  ASSERT_TRUE(Eventually(30, [&] { return run_->Stdout().find("host h3: ") != std::string::npos; }))
      << Words();
  SleepSeconds(2);
  bed_->RestoreLink(3);
  ASSERT_TRUE(WaitForStep(0, 3, 90)) << Words();
  const int64_t generation = LastGeneration();
  ASSERT_TRUE(WaitForStep(Steps().back().step + 25, generation, 60)) << Words();
  EXPECT_EQ(LastGeneration(), generation) << "the two agents evict each other\n" << Words();
  EXPECT_EQ(bed_->Run(3, "pgrep -fc '^/[^ ]*/weft agent'").out, "1\n");
  StopAndExpectEnd();
  bed_->Run(3, "kill -CONT " + sshd);
}

}  // namespace
}  // namespace weft
