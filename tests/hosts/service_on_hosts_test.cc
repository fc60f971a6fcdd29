// Jobs of a weftd that serves them over the network train to the bits of one host, whoever is
// killed or cut off meanwhile.
#include "tests/hosts/service_on_hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using ::testing::HasSubstr;

TEST_F(ServiceOnHosts, GivesTheVeryLossesOfOneHost) {
  const std::map<int64_t, std::string> alone = CurveOfOneHost();
  const std::string job = WriteJob(kFixed, OnThreeHosts() + ", nodes: 3, slots: 2");
  const std::string id = Submit("ann", 2, job, folder());
  ASSERT_FALSE(id.empty());
  ASSERT_TRUE(Ends(id, "COMPLETED", 180));
  EXPECT_EQ(Curve(), alone);
  // A viewer may only look.
  const auto denied = Weft("guest", 3, "stop " + id);
  EXPECT_NE(denied.exit_code, 0);
  EXPECT_THAT(denied.err, HasSubstr("guest"));
}

// A job grows, loses hosts in good order and is asked away: each time it is saved first, so that no
// step is done twice.
TEST_F(ServiceOnHosts, MovesAJobAmongItsHostsWithoutDoingAStepTwice) {
  constexpr int64_t kJobSteps = 300;
  const std::map<int64_t, std::string> alone = CurveOfOneHost(kJobSteps);
  const std::string job =
      WriteJob("dp: 2", OnThreeHosts() + ", nodes: 1, slots: 2", ShortTimes(), kJobSteps);
  const std::string id = Submit("ann", 2, job, folder());
  ASSERT_FALSE(id.empty());
  ASSERT_TRUE(WaitForStep(20)) << ServiceWords();
  const auto refused = Weft("ann", 2, "resize " + id + " 9");
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err, HasSubstr("9 hosts are more than the 3"));
  // One host is not free: the job goes on until it is.
  Operator("drain h3");
  const std::string first = HostsOf(id).front();
  const std::string second = first == "h1" ? "h2" : "h1";
  Operator("drain " + second);
  EXPECT_EQ(Weft("ann", 2, "resize " + id + " 2").exit_code, 0);
  EXPECT_THAT(JobOf(id).value("reason", ""), HasSubstr("it is to have 2 hosts"));
  const int64_t reached = Steps().back().step;
  ASSERT_TRUE(WaitForStep(reached + 20)) << ServiceWords();
  EXPECT_EQ(LastGeneration(), 1);
  Operator("undrain " + second);
  ASSERT_TRUE(WaitForStep(reached + 30, 2)) << ServiceWords();
  EXPECT_THAT(HostsOf(id), ::testing::UnorderedElementsAre(first, second));
  // The first host leaves: the third one takes its place.
  Operator("undrain h3");
  const int leaves = first.back() - '0';
  SignalThere(leaves, "weft agent --standing", SIGTERM);
  EXPECT_TRUE(agents_[leaves]->Wait(kPatienceS).has_value()) << agents_[leaves]->Stderr();
  ASSERT_TRUE(WaitForStep(reached + 40, 3)) << ServiceWords();
  EXPECT_THAT(HostsOf(id), ::testing::UnorderedElementsAre(second, "h3"));
  StartAgent(leaves);
  ASSERT_TRUE(Eventually(kPatienceS, [&] { return HostsPresent() == 3; })) << ServiceWords();
  Operator("drain --move h3");
  ASSERT_TRUE(WaitForStep(reached + 50, 4)) << ServiceWords();
  EXPECT_THAT(HostsOf(id), ::testing::UnorderedElementsAre(first, second));
  ASSERT_TRUE(Ends(id, "COMPLETED", 180));
  const std::vector<StepMetrics> steps = Steps();
  for (size_t i = 1; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].step, steps[i - 1].step + 1) << "in generation " << steps[i].generation;
  }
  ExpectNear(alone);
}

// A job that may have fewer hosts does not wait for one that leaves, and has it again later.
TEST_F(ServiceOnHosts, KeepsAnElasticJobRunningWhileAHostIsShutDown) {
  const std::string job =
      WriteJob("", OnThreeHosts() + ", nodes: \"1:2\", slots: 2", ShortTimes(), 1000);
  const std::string id = Submit("ann", 2, job, folder());
  ASSERT_FALSE(id.empty());
  ASSERT_TRUE(WaitForStep(13)) << ServiceWords();
  const std::vector<std::string> hosts = HostsOf(id);
  ASSERT_EQ(hosts.size(), 2u);
  const int leaves = hosts.back().back() - '0';
  SignalThere(leaves, "weft agent --standing", SIGTERM);
  EXPECT_TRUE(agents_[leaves]->Wait(kPatienceS).has_value()) << agents_[leaves]->Stderr();
  ASSERT_TRUE(WaitForStep(20, 2)) << ServiceWords();
  const std::vector<StepMetrics> steps = Steps();
  for (size_t i = 1; i < steps.size(); ++i) EXPECT_EQ(steps[i].step, steps[i - 1].step + 1);
  EXPECT_EQ(HostsOf(id), hosts) << "it keeps its part of the host";
  StartAgent(leaves);
  EXPECT_TRUE(WaitForStep(30, 3)) << ServiceWords();
  EXPECT_EQ(Weft("ann", 1, "stop " + id).exit_code, 0);
  ASSERT_TRUE(Ends(id, "SUSPENDED", kPatienceS));
}

// Each job is the same, but for its folder and its owner: so are their losses.
TEST_F(ServiceOnHosts, ServesThreePeopleWhileHostsComeAndGo) {
  constexpr int kJobs = 20;
  constexpr int64_t kJobSteps = 80;
  const std::string job = WriteJob("dp: 2", OnThreeHosts() + ", slots: 2", ShortTimes(), kJobSteps);
  const char* const people[] = {"ann", "bob", "eve"};
  std::vector<std::string> ids;
  for (int n = 0; n < kJobs; ++n) {
    ids.push_back(Submit(people[n % 3], 1 + n % 3, job, FolderOf(n)));
    ASSERT_FALSE(ids.back().empty());
  }
  ASSERT_TRUE(Eventually(kPatienceS, [&] { return !MetricsOf(FolderOf(2)).empty(); }))
      << ServiceWords();
  bed_->CutLink(3);
  SignalThere(2, "weft agent --standing", SIGKILL);
  EXPECT_TRUE(agents_[2]->Wait(120).has_value());
  StartAgent(2);
  SleepSeconds(6);  // beyond a job's lease
  bed_->RestoreLink(3);
  SignalThere(1, "weftd --socket", SIGKILL);
  EXPECT_TRUE(weftd_->Wait(120).has_value());
  StartWeftd();
  EXPECT_EQ(Weft("ann", 2, "stop --now " + ids[1]).exit_code, 1);  // it is bob's
  for (const std::string& id : ids) ASSERT_TRUE(Ends(id, "COMPLETED", 180));
  const std::map<int64_t, std::string> first = CurveIn(FolderOf(0));
  EXPECT_EQ(first.size(), static_cast<size_t>(kJobSteps));
  for (int n = 1; n < kJobs; ++n) EXPECT_EQ(CurveIn(FolderOf(n)), first) << ids[n];
}

}  // namespace
}  // namespace weft
