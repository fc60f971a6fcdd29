// A weftd that serves jobs over the network, with a standing agent on each of three hosts and
// people on any of them: real processes, real TLS, real links. Jobs train to the bits of one host,
// whoever is killed or cut off meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/hosts/hosts_run.h"
#include "tests/places.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kCoordinator[] = "h1:7070";

class ServiceOnHosts : public HostsRun {
 protected:
  void SetUp() override {
    HostsRun::SetUp();
    if (bed_ == nullptr) return;
    const std::string weftd = BinaryPath("/bin/weftd");
    std::string make = absl::StrCat(weftd, " authority ", ca(), " && ", Issue("server", "h1"));
    for (int host = 1; host <= 3; ++host) {
      absl::StrAppend(&make, " && ", Issue("agent", HostBed::Name(host)));
    }
    for (const char* person : {"ann", "bob", "eve"}) {
      absl::StrAppend(&make, " && ", Issue("submitter", person));
    }
    absl::StrAppend(&make, " && ", Issue("viewer", "guest"));
    const auto made = bed_->Run(1, make);
    ASSERT_EQ(made.exit_code, 0) << made.err;
    StartWeftd();
    for (int host = 1; host <= 3; ++host) StartAgent(host);
    ASSERT_TRUE(Eventually(kPatienceS, [&] { return HostsPresent() == 3; })) << ServiceWords();
  }

  void TearDown() override {
    if (bed_ == nullptr) return;
    for (const auto& [host, agent] : agents_) {
      SignalThere(host, "weft agent --standing", SIGTERM);
      EXPECT_TRUE(agent->Wait(120).has_value()) << agent->Stderr();
    }
    SignalThere(1, "weftd --socket", SIGTERM);
    EXPECT_TRUE(weftd_->Wait(120).has_value()) << weftd_->Stderr();
    if (HasFailure()) std::fprintf(stderr, "%s\n", ServiceWords().c_str());
    agents_.clear();
    weftd_.reset();
    HostsRun::TearDown();
  }

  std::string FolderOf(int job) const {
    return absl::StrCat(bed_->shared(), "/jobs/", job, "/tiny");
  }

  std::string ca() const { return bed_->shared() + "/ca"; }
  std::string Bundle(const std::string& name) const {
    return absl::StrCat(bed_->shared(), "/", name, ".pem");
  }
  std::string Issue(const std::string& role, const std::string& name) const {
    const std::string out = role == "server" ? "server" : name;
    return absl::StrCat(BinaryPath("/bin/weftd"), " issue ", role, " --authority ", ca(), " --out ",
                        Bundle(out), " ", name);
  }

  void StartWeftd() {
    weftd_ = bed_->Start(1, {BinaryPath("/bin/weftd"), "--socket=/dev/shm/weftd.sock",
                             "--state=" + bed_->shared() + "/state", "--listen=0.0.0.0:7070",
                             "--tls=" + Bundle("server"), "--revoked=" + ca() + "/revoked"});
  }
  void StartAgent(int host) {
    agents_[host] =
        bed_->Start(host, {BinaryPath("/bin/weft"), "agent", "--standing",
                           absl::StrCat("--coordinator=", kCoordinator),
                           "--tls=" + Bundle(HostBed::Name(host)), "--name=" + HostBed::Name(host),
                           "--slots=2", "--allow=ann", "--allow=bob", "--allow=eve"});
  }
  // The first process there whose command line has the words.
  void SignalThere(int host, const std::string& words, int signal) {
    bed_->Run(host,
              absl::StrCat("kill -", signal, " $(pgrep -f -- '^[^ ]*", words, "' | head -1)"));
  }

  // A verb of `weft`, as a person of that name on that host says it.
  HostBed::Answer Weft(const std::string& person, int host, const std::string& words) {
    return bed_->Run(host, absl::StrCat(BinaryPath("/bin/weft"), " ", words, " --coordinator ",
                                        kCoordinator, " --tls ", Bundle(person)));
  }
  std::string Submit(const std::string& person, int host, const std::string& job,
                     const std::string& folder) {
    const auto answer =
        Weft(person, host, absl::StrCat("submit ", job, " --json --run-folder ", folder));
    EXPECT_EQ(answer.exit_code, 0) << answer.err;
    const Json reply = Json::parse(answer.out, nullptr, false);
    return reply.is_object() ? reply.value("job_id", "") : "";
  }
  Json JobOf(const std::string& id) {
    return Json::parse(Weft("guest", 3, "status " + id + " --json").out, nullptr, false);
  }
  // A verb as weftd's own user says it, on its host.
  void Operator(const std::string& words) {
    const auto answer = bed_->Run(1, absl::StrCat(BinaryPath("/bin/weft"), " ", words,
                                                  " --coordinator unix:/dev/shm/weftd.sock"));
    EXPECT_EQ(answer.exit_code, 0) << words << ": " << answer.err;
  }
  std::vector<std::string> HostsOf(const std::string& id) {
    std::vector<std::string> hosts;
    const Json job = JobOf(id);
    if (!job.is_object()) return hosts;
    for (const Json& each : job.value("allocations", Json::array())) {
      hosts.push_back(each.value("host", ""));
    }
    return hosts;
  }
  bool Ends(const std::string& id, const std::string& phase, double timeout_s) {
    std::string last;
    const bool ended = Eventually(timeout_s, [&] {
      const Json job = JobOf(id);
      last = job.is_object() ? job.dump() : "";
      return job.is_object() && job.value("phase", "") == phase;
    });
    EXPECT_TRUE(ended) << id << ": " << last;
    return ended;
  }
  int HostsPresent() {
    const Json hosts = Json::parse(Weft("guest", 2, "hosts --json").out, nullptr, false);
    int present = 0;
    if (hosts.is_array()) {
      for (const Json& each : hosts) present += each.value("present", false) ? 1 : 0;
    }
    return present;
  }

  std::string ServiceWords() {
    std::string words = absl::StrCat("-- weftd\n", weftd_->Stderr());
    for (const auto& [host, agent] : agents_) {
      absl::StrAppend(&words, "-- agent of h", host, "\n", agent->Stderr());
    }
    return absl::StrCat(words, "-- jobs\n", Weft("guest", 1, "ps --all").out);
  }

  std::unique_ptr<Child> weftd_;
  std::map<int, std::unique_ptr<Child>> agents_;
};

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
