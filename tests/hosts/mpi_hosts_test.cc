// One mpirun for the ranks of three hosts, its remote shell the agents: how a generation comes up,
// who tells of an end, and what is left. Real agents, shims, mpirun and orted; a small MPI program
// in the worker's place, and a coordinator that passes on and decides nothing. Every wait is
// bounded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/job_file/job_yaml.h"
#include "proto/job_text.h"
#include "tests/end_to_end/child.h"
#include "tests/end_to_end/lacking.h"
#include "tests/hosts/fake_coordinator.h"
#include "tests/hosts/three_hosts.h"
#include "tests/launcher/job_file_for_test.h"
#include "tests/places.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;

constexpr int kHosts = ThreeHosts::kHosts;
constexpr int kRanks = 6;
// On an idle machine. Each bound has beside it what the same test took from the launch to its fault
// or its stop, about half a second there, which grows with what else the machine does.
constexpr double kCleanWithinS = 2;
constexpr double kToldWithinS = 1;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// rank-1 is on the first host and rank-5 on the last: shares are no blocks.
std::vector<int> RanksOf(int host) {
  return {host, host + kHosts};
}

class MpiHosts : public testing::Test {
 protected:
  void SetUp() override {
    auto bed = ThreeHosts::Make();
    END_FOR_WANT_OF(bed.ok() ? "" : std::string(bed.status().message()));
    bed_ = *std::move(bed);
    // An agent finds the programs of its installation beside itself.
    programs_ = bed_->shared() + "/bin";
    std::filesystem::create_directory(programs_);
    for (const char* program : {"weft", "weft-shim"}) {
      std::filesystem::copy_file(BinaryPath(absl::StrCat("/bin/", program)),
                                 absl::StrCat(programs_, "/", program));
    }
    std::filesystem::copy_file(WEFT_SMALL_WORKER, programs_ + "/weft-worker");
    socket_ = bed_->shared() + "/c.sock";
    coordinator_ = std::make_unique<FakeCoordinator>(socket_);
    agents_.resize(kHosts);
    for (int host = 0; host < kHosts; ++host) StartAgent(host);
  }

  void TearDown() override {
    if (bed_ == nullptr) return;
    for (auto& agent : agents_) {
      if (agent) kill(agent->pid(), SIGKILL);
    }
    agents_.clear();
    coordinator_.reset();
  }

  // `place` is where it lives, `name` what it is told to be called.
  void StartAgent(int host, int place, const std::string& name) {
    const size_t before = coordinator_->hellos().size();
    auto agent =
        bed_->Start(place, {.argv = {programs_ + "/weft", "agent", "--coordinator=unix:" + socket_,
                                     "--run-id=" + run_, "--name=" + name},
                            .env = {{"WEFT_RUN", run_}},
                            .output = absl::StrCat(bed_->shared(), "/agent-", name, ".log"),
                            .death_signal = SIGKILL});
    ASSERT_TRUE(agent.ok()) << agent.status();
    agents_[static_cast<size_t>(host)].emplace(*std::move(agent));
    ASSERT_TRUE(Eventually(kPatienceS, [&] { return coordinator_->hellos().size() > before; }))
        << LogOf("agent-" + name + ".log");
  }
  void StartAgent(int host) { StartAgent(host, host, ThreeHosts::Name(host)); }

  std::string LogOf(const std::string& name) const {
    std::ifstream stream(bed_->shared() + "/" + name);
    std::stringstream text;
    text << stream.rdbuf();
    return text.str();
  }

  proto::Hello HelloOf(int host) const {
    proto::Hello newest;
    for (const proto::Hello& hello : coordinator_->hellos()) {
      if (hello.host() == ThreeHosts::Name(host)) newest = hello;
    }
    return newest;
  }

  void Launch(bool stays) {
    std::ofstream(bed_->shared() + "/corpus.txt") << std::string(4000, 'a');
    auto file = ReadJobText(kGoodJob, bed_->shared() + "/job.yaml", {});
    ASSERT_TRUE(file.ok()) << file.status();
    file->job.env["HELLO"] = "a b";
    if (stays) file->job.env["STAYS"] = "1";
    proto::AgentOrder order;
    proto::Launch& launch = *order.mutable_launch();
    launch.set_generation(++generation_);
    launch.set_world_size(kRanks);
    launch.set_job(JobText(file->job));
    launch.set_run_folder(Run());
    std::filesystem::create_directories(Run());
    for (int host = 0; host < kHosts; ++host) {
      proto::HostRanks& share = *launch.add_hosts();
      const proto::Hello hello = HelloOf(host);
      share.set_host(hello.host());
      share.set_machine(hello.machine());
      *share.mutable_addresses() = hello.host_has().addresses();
      for (const int rank : RanksOf(host)) share.add_ranks(rank);
    }
    launched_ = Clock::now();
    for (int host = 0; host < kHosts; ++host) coordinator_->Send(ThreeHosts::Name(host), order);
  }

  std::string Run() const { return absl::StrCat(bed_->shared(), "/run-", generation_); }

  // Returns what the ranks have written; empty until all have.
  std::vector<std::vector<std::string>> Ranks() const {
    std::vector<std::vector<std::string>> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      std::ifstream stream(absl::StrCat(Run(), "/rank-", rank));
      std::string line;
      if (!std::getline(stream, line)) return {};
      ranks.push_back(absl::StrSplit(line, ' '));
    }
    return ranks;
  }

  bool AreUp() {
    const bool up = Eventually(kPatienceS, [&] { return !Ranks().empty(); });
    EXPECT_TRUE(up) << absl::StrJoin(coordinator_->told(), "\n") << Logs();
    return up;
  }

  std::string Logs() const {
    std::string text;
    for (int host = 0; host < kHosts; ++host) {
      absl::StrAppend(&text, "\n", LogOf(absl::StrCat("agent-", ThreeHosts::Name(host), ".log")));
    }
    return text + LogOf(absl::StrCat("run-", generation_, "/logs/generation-", generation_,
                                     "/mpirun.log"));
  }

  void Stop() {
    proto::AgentOrder order;
    order.mutable_stop_group()->set_generation(generation_);
    order.mutable_stop_group()->set_reason("a test");
    for (int host = 0; host < kHosts; ++host) coordinator_->Send(ThreeHosts::Name(host), order);
  }

  // Whatever is on the hosts besides agents and their sockets.
  std::vector<std::string> Left() const {
    std::vector<std::string> left;
    for (int host = 0; host < kHosts; ++host) {
      for (const std::string& each : bed_->Processes(host)) {
        const bool agent = each.find("weft agent ") != std::string::npos;
        if (!agent) left.push_back(absl::StrCat(ThreeHosts::Name(host), ": ", each));
      }
      for (const std::string& file : bed_->TemporaryFiles(host)) {
        const std::filesystem::path path(file);
        const bool of_agent = path.extension() == ".sock" || path.filename() == "agent.lock" ||
                              absl::StartsWith(path.filename().string(), "weft-" + run_);
        if (!of_agent) left.push_back(absl::StrCat(ThreeHosts::Name(host), ": ", file));
      }
    }
    return left;
  }

  bool AllHaveEnded() const {
    const std::vector<std::string> told = coordinator_->told();
    for (int host = 0; host < kHosts; ++host) {
      const std::string end =
          absl::StrCat(ThreeHosts::Name(host), ": group ", generation_, " ended");
      if (std::none_of(told.begin(), told.end(),
                       [&](const std::string& each) { return absl::StartsWith(each, end); })) {
        return false;
      }
    }
    return true;
  }

  // Everybody is told to stop: how long until nothing is left.
  void ExpectCleanAfterStop(const std::string& what) {
    const double since_launch_s = SecondsSince(launched_);
    const Clock::time_point stopped = Clock::now();
    Stop();
    EXPECT_TRUE(Eventually(kCleanWithinS + since_launch_s,
                           [&] { return Left().empty() && AllHaveEnded(); }))
        << absl::StrJoin(Left(), "\n") << "\n"
        << absl::StrJoin(coordinator_->told(), "\n");

    std::printf("%s: clean %.3f s after the stop\n", what.c_str(), SecondsSince(stopped));
  }

  // As above, where an agent that holds nothing says nothing.
  void ExpectGone(const std::string& what) {
    const double since_launch_s = SecondsSince(launched_);
    const Clock::time_point stopped = Clock::now();
    Stop();
    EXPECT_TRUE(Eventually(kCleanWithinS + since_launch_s, [&] { return Left().empty(); }))
        << absl::StrJoin(Left(), "\n");
    std::printf("%s: clean %.3f s after the stop\n", what.c_str(), SecondsSince(stopped));
  }

  // Kills one process of the host: returns what is told first, within a second.
  std::string ToldOfTheLoss(int host, const std::string& program, size_t which) {
    Launch(/*stays=*/true);
    EXPECT_TRUE(AreUp());
    const std::vector<pid_t> victims = bed_->ProcessesOf(host, program);
    EXPECT_GT(victims.size(), which) << absl::StrJoin(bed_->Processes(host), "\n");
    if (victims.size() <= which) return "";
    const size_t before = coordinator_->told().size();
    const double since_launch_s = SecondsSince(launched_);
    const Clock::time_point killed = Clock::now();
    kill(victims[which], SIGKILL);
    EXPECT_TRUE(Eventually(kToldWithinS + since_launch_s,
                           [&] { return coordinator_->told().size() > before; }));
    std::printf("%s: told %.3f s after the kill\n", program.c_str(), SecondsSince(killed));
    const std::vector<std::string> told = coordinator_->told();
    return told.size() > before ? told[before] : "";
  }

  // Stops what is left; the agents go on: the next generation comes up.
  void ExpectTheNextComesUp(const std::string& program) {
    ExpectCleanAfterStop(program);
    Launch(/*stays=*/false);
    EXPECT_TRUE(AreUp());
    EXPECT_TRUE(Eventually(kPatienceS, [&] { return AllHaveEnded() && Left().empty(); }))
        << absl::StrJoin(Left(), "\n");
  }

  void ExpectTold(int host, const std::string& program, const std::string& told) {
    EXPECT_THAT(ToldOfTheLoss(host, program, 0), HasSubstr(told));
    ExpectTheNextComesUp(program);
  }

  const std::string run_ = absl::StrCat("hosts", getpid());
  std::unique_ptr<ThreeHosts> bed_;
  std::string programs_;
  std::string socket_;
  std::unique_ptr<FakeCoordinator> coordinator_;
  std::vector<std::optional<ChildProcess>> agents_;
  int64_t generation_ = 0;
  Clock::time_point launched_;
};

TEST_F(MpiHosts, OneMpirunJoinsTheRanksOfAllHosts) {
  Launch(/*stays=*/false);
  ASSERT_TRUE(AreUp());
  EXPECT_TRUE(Eventually(kPatienceS, [&] { return AllHaveEnded(); }));
  std::printf("six ranks on three hosts: %.3f s from the launch to the end\n",
              SecondsSince(launched_));
  const auto ranks = Ranks();
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string host = ThreeHosts::Name(rank % kHosts);
    const std::vector<std::string>& said = ranks[static_cast<size_t>(rank)];
    EXPECT_EQ(said[0], "15") << "the sum of all ranks";
    EXPECT_EQ(said[1], host);
    EXPECT_EQ(said[2], host) << "its agent's mark";
    EXPECT_THAT(said[3], HasSubstr("weft-" + run_ + "@" + host + "-tmp/ranks.sock"));
    EXPECT_EQ(said[4], run_);
    EXPECT_EQ(said[5] + " " + said[6], "a b") << "cluster.env";
    EXPECT_THAT(said[7], HasSubstr("@" + host + "-tmp/g1"));
    EXPECT_THAT(said[9], HasSubstr("@" + host + "-tmp/g1/vader_segment")) << "no TCP on a host";
  }
  const std::vector<std::string> told = coordinator_->told();
  EXPECT_THAT(told, Contains("h1: wants a daemon on h2"));
  for (int host = 0; host < kHosts; ++host) {
    EXPECT_THAT(told, Contains(absl::StrCat(ThreeHosts::Name(host), ": group 1 ended clean")));
    for (const int rank : RanksOf(host)) {
      EXPECT_THAT(told, Contains(absl::StrCat(ThreeHosts::Name(host), ": rank ", rank,
                                              " signal 0 code 0 ")));
    }
  }
  EXPECT_TRUE(Eventually(kCleanWithinS + SecondsSince(launched_), [&] { return Left().empty(); }))
      << absl::StrJoin(Left(), "\n");
}

TEST_F(MpiHosts, AStopLeavesNothingOnAnyHost) {
  Launch(/*stays=*/true);
  ASSERT_TRUE(AreUp());
  ExpectCleanAfterStop("a running generation");
}

TEST_F(MpiHosts, AStopBeforeTheRanksAreUpLeavesNothing) {
  Launch(/*stays=*/true);
  ASSERT_TRUE(Eventually(kPatienceS, [&] { return !coordinator_->told().empty(); }));
  ExpectCleanAfterStop("a generation that comes up");
}

TEST_F(MpiHosts, ALostRankIsToldByItsOwnHost) {
  ExpectTold(1, "weft-worker", "h2: rank ");
  EXPECT_THAT(coordinator_->told(), Contains(HasSubstr("signal 9")));
}

// mpirun ends the ranks of the other hosts, too, which it announces: their agents blame nobody.
TEST_F(MpiHosts, ALostShimIsToldAsSuch) {
  const std::string told = ToldOfTheLoss(2, "weft-shim", 1);
  EXPECT_THAT(told, AllOf(StartsWith("h3: rank "), HasSubstr("its shim was killed")));
  const auto said = [&](const std::string& host) {
    for (const std::string& each : coordinator_->told()) {
      if (absl::StartsWith(each, host) && absl::StrContains(each, "mpirun ends all ranks")) {
        return true;
      }
    }
    return false;
  };
  EXPECT_TRUE(Eventually(kPatienceS, [&] { return said("h1: rank -1") && said("h2: rank -1"); }))
      << absl::StrJoin(coordinator_->told(), "\n");
  for (const std::string& each : coordinator_->told()) {
    EXPECT_FALSE(absl::StrContains(each, "signal 9") && !absl::StartsWith(each, "h3: ")) << each;
  }
  ExpectTheNextComesUp("weft-shim");
}

TEST_F(MpiHosts, ALostDaemonIsToldByItsHost) {
  ExpectTold(1, "orted",
             "h2: rank -1 signal 0 code 0 mpirun's daemon on h2 was killed by signal 9");
}

TEST_F(MpiHosts, ALostMpirunIsToldByTheFirstHost) {
  ExpectTold(0, "mpirun", "h1: rank -1 signal 0 code 0 mpirun was killed by signal 9");
}

// Its ranks end with it, or when the next agent sweeps; only then it says Hello.
TEST_F(MpiHosts, ALostAgentLeavesNothingToTheNext) {
  for (const int host : {1, 0}) {
    Launch(/*stays=*/true);
    ASSERT_TRUE(AreUp());
    const size_t before = coordinator_->told().size();
    kill(agents_[static_cast<size_t>(host)]->pid(), SIGKILL);
    const Clock::time_point killed = Clock::now();
    EXPECT_FALSE(Eventually(0.1, [&] { return coordinator_->told().size() > before; }))
        << "no rank is to blame: " << coordinator_->told().back();
    for (int other = 0; other < kHosts; ++other) {
      proto::AgentOrder order;
      order.mutable_stop_group()->set_generation(generation_);
      if (other != host) coordinator_->Send(ThreeHosts::Name(other), order);
    }
    StartAgent(host);
    EXPECT_TRUE(Eventually(kCleanWithinS + SecondsSince(launched_), [&] { return Left().empty(); }))
        << absl::StrJoin(Left(), "\n");
    std::printf("the agent of %s: clean %.3f s after its death\n", ThreeHosts::Name(host).c_str(),
                SecondsSince(killed));
    Launch(/*stays=*/false);
    EXPECT_TRUE(AreUp());
    EXPECT_TRUE(Eventually(kPatienceS, [&] { return AllHaveEnded() && Left().empty(); }))
        << absl::StrJoin(Left(), "\n");
  }
}

// mpirun does not notice for many seconds; the agents need nobody.
TEST_F(MpiHosts, ACutLinkKeepsNobodyFromEnding) {
  Launch(/*stays=*/true);
  ASSERT_TRUE(AreUp());
  bed_->SetLink(1, false);
  ExpectCleanAfterStop("a generation whose link is cut");
  bed_->SetLink(1, true);
}

// Three names, one machine: each agent knows its own processes and files.
TEST_F(MpiHosts, AgentsOnOneMachineDoNotSweepEachOther) {
  for (int host = 1; host < kHosts; ++host) {
    kill(agents_[static_cast<size_t>(host)]->pid(), SIGKILL);
    StartAgent(host, /*place=*/0, ThreeHosts::Name(host));
  }
  EXPECT_NE(HelloOf(1).machine(), HelloOf(2).machine());
  Launch(/*stays=*/true);
  ASSERT_TRUE(AreUp());
  const auto count = [&](const std::string& program) {
    return bed_->ProcessesOf(0, program).size();
  };
  agents_.resize(kHosts + 1);
  StartAgent(kHosts, 0, "h9");
  EXPECT_EQ(count("weft-worker"), static_cast<size_t>(kRanks));
  EXPECT_EQ(count("weft-shim"), static_cast<size_t>(kRanks + 2)) << "two of them ask for daemons";
  EXPECT_EQ(count("orted"), 2u);
  EXPECT_EQ(count("mpirun"), 1u);
  kill(agents_[2]->pid(), SIGKILL);
  StartAgent(2, 0, ThreeHosts::Name(2));
  ExpectGone("on one machine");
  EXPECT_THAT(coordinator_->told(), Contains(StartsWith("h2: group 1 ended")));
}

// Nobody but mpirun may ask for a daemon, and nothing but orted is started.
TEST_F(MpiHosts, ADaemonIsForMpirunAlone) {
  Launch(/*stays=*/true);
  ASSERT_TRUE(AreUp());
  const size_t before = coordinator_->told().size();
  auto stranger = bed_->Start(
      0,
      {.argv = {programs_ + "/weft-shim", "daemon", "weft-host-1", "orted", "-mca", "ess", "env"},
       .env = {{"WEFT_GENERATION", "1"},
               {"WEFT_SHIM_SOCKET", "/dev/shm/weft-" + run_ + "@h1-tmp/shims.sock"}},
       .output = bed_->shared() + "/stranger.txt"});
  ASSERT_TRUE(stranger.ok());
  EXPECT_TRUE(Eventually(kPatienceS, [&] { return stranger->Ended().has_value(); }))
      << "it is cut off";
  EXPECT_EQ(coordinator_->told().size(), before);
  EXPECT_THAT(LogOf("agent-h1.log"), HasSubstr("a daemon on weft-host-1: it is not asked for"));
  ExpectCleanAfterStop("a generation with a stranger");
}

TEST_F(MpiHosts, ADaemonsArgumentsAreNotBelieved) {
  Launch(/*stays=*/true);
  proto::AgentOrder order;
  order.mutable_start_daemon()->set_generation(generation_);
  order.mutable_start_daemon()->add_args("--bootproxy");
  coordinator_->Send("h2", order);
  ASSERT_TRUE(Eventually(kPatienceS, [&] {
    const auto told = coordinator_->told();
    return std::any_of(told.begin(), told.end(), [](const std::string& each) {
      return absl::StartsWith(each, "h2: rank -1");
    });
  })) << absl::StrJoin(coordinator_->told(), "\n");
  EXPECT_THAT(coordinator_->told(), Contains(HasSubstr("unknown option --bootproxy")));
  ExpectCleanAfterStop("a generation whose daemon is refused");
}

}  // namespace
}  // namespace weft
