// Several hosts over the wire: real sockets, an agent's real stream for each host, ranks by hand,
// and a clock that the tests let pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "process/version.h"
#include "tests/coordinator/in_process.h"
#include "tests/plan/sample_jobs.h"

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kShortLeaseMs = 800;

// Asks for three hosts of a slot each; goes on with two.
JobSpec JobOnThreeHosts() {
  JobSpec job = SampleJob();
  job.cluster.nodes = 3;
  job.cluster.slots_per_node = 1;
  job.hosts.least_nodes = 2;
  job.training.global_batch_size = 12;
  job.layout = {};
  job.layout.tp = job.layout.pp = 1;
  return job;
}

class HostsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(coordinator_.Start().ok());
    const auto job_id = coordinator_.Submit("r1", JobOnThreeHosts(), std::nullopt);
    ASSERT_TRUE(job_id.ok()) << job_id.status();
    for (int i = 0; i < 3; ++i) Bring(i);
  }
  // From its lease on a host's agent is known.
  void Bring(int i) {
    hosts_[static_cast<size_t>(i)] = std::make_unique<InProcessHost>(
        coordinator_, absl::StrCat("machine-", i), absl::StrCat("h", i));
    EXPECT_TRUE(host(i).WaitForLeaseTo(clock_.now_ms()));
  }
  // Lets time pass in which these hosts, and the ranks on them, are heard.
  bool Pass(int64_t ms, const std::vector<int>& live) {
    std::vector<const InProcessHost*> hosts;
    std::vector<RawWorker*> ranks;
    for (const int i : live) hosts.push_back(&host(i));
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      const bool lives = std::count(live.begin(), live.end(), host_of_rank_[rank]) > 0;
      if (lives) ranks.push_back(workers_[rank].get());
    }
    return PassTime(clock_, ms, kShortLeaseMs, hosts, ranks);
  }
  // Lets time pass until a host is told something; ranks are not heard any more.
  void PassUntilOrder(int i, const std::vector<int>& live) {
    workers_.clear();
    for (int rounds = 0; rounds < 100 && !host(i).AwaitOrder(20); ++rounds) {
      ASSERT_TRUE(Pass(kShortLeaseMs / 4, live));
    }
  }
  InProcessHost& host(int i) { return *hosts_[static_cast<size_t>(i)]; }

  // Every host of `indices` is told to launch the generation, with a rank each.
  void ExpectLaunch(const std::vector<int>& indices, int64_t generation) {
    for (const int i : indices) {
      SCOPED_TRACE(absl::StrCat("host ", i));
      const auto order = host(i).NextOrder();
      ASSERT_TRUE(order.ok() && order->has_launch()) << order.status();
      const proto::Launch& launch = order->launch();
      EXPECT_EQ(launch.generation(), generation);
      EXPECT_EQ(launch.world_size(), static_cast<int>(indices.size()));
      ExpectHosts(launch, indices, i == indices.front() ? indices : std::vector{indices[0], i});
    }
  }
  // The first host is told of all, each other one of the first and itself.
  static void ExpectHosts(const proto::Launch& launch, const std::vector<int>& indices,
                          const std::vector<int>& told) {
    ASSERT_EQ(launch.hosts_size(), static_cast<int>(told.size()));
    for (int place = 0; place < launch.hosts_size(); ++place) {
      const int of = told[static_cast<size_t>(place)];
      const auto rank = std::find(indices.begin(), indices.end(), of) - indices.begin();
      EXPECT_EQ(launch.hosts(place).host(), absl::StrCat("h", of));
      EXPECT_EQ(launch.hosts(place).machine(), absl::StrCat("machine-", of));
      EXPECT_THAT(launch.hosts(place).ranks(), ElementsAre(static_cast<int>(rank)));
    }
  }
  // A rank for each host of `indices`; all are told to train.
  void Register(const std::vector<int>& indices, int64_t generation) {
    workers_.clear();
    host_of_rank_ = indices;
    const auto world_size = static_cast<int>(indices.size());
    for (int rank = 0; rank < world_size; ++rank) {
      workers_.push_back(
          std::make_unique<RawWorker>(host(indices[static_cast<size_t>(rank)]).rank_target(),
                                      generation, rank, world_size, Version()));
    }
    for (const auto& worker : workers_) {
      EXPECT_TRUE(worker->WaitFor([](const proto::Order& order) { return order.has_train(); }));
    }
  }

  StandingClock clock_;
  InProcessCoordinator coordinator_{kShortLeaseMs, &clock_};
  std::array<std::unique_ptr<InProcessHost>, 3> hosts_;
  std::vector<std::unique_ptr<RawWorker>> workers_;
  std::vector<int> host_of_rank_;
};

TEST_F(HostsTest, EachIsToldItsShareAndTheirRanksTrainTogether) {
  ASSERT_NO_FATAL_FAILURE(ExpectLaunch({0, 1, 2}, 1));
  Register({0, 1, 2}, 1);
  for (const auto& worker : workers_) {
    proto::WorkerReport ready;
    ready.mutable_ready();
    ready.set_sequence(2);
    worker->Say(ready);
  }
  EXPECT_TRUE(coordinator_.WaitForPhase("RUNNING"));
}

TEST_F(HostsTest, MpirunsWishForADaemonReachesTheHostAndNoOther) {
  ASSERT_NO_FATAL_FAILURE(ExpectLaunch({0, 1, 2}, 1));
  host(0).WantDaemon(1, "h2", {"-mca", "x", "a b"});
  host(1).WantDaemon(1, "h0", {"--forged"});  // it has started no mpirun
  const auto order = host(2).NextOrder();
  ASSERT_TRUE(order.ok() && order->has_start_daemon()) << order.status();
  EXPECT_EQ(order->start_daemon().generation(), 1);
  EXPECT_THAT(order->start_daemon().args(), ElementsAre("-mca", "x", "a b"));
  EXPECT_EQ(host(0).NextOrder(300).status().code(), absl::StatusCode::kDeadlineExceeded);
}

// An agent that is killed before its ranks have come is followed by one that knows of no launch: a
// wish that comes before that is none to it.
TEST_F(HostsTest, ANewAgentHearsOfMpirunsWishOnceItIsToldToLaunch) {
  ASSERT_NO_FATAL_FAILURE(ExpectLaunch({0, 1, 2}, 1));
  host(0).WantDaemon(1, "h2", {"-mca", "x"});
  const auto lost = host(2).NextOrder();
  ASSERT_TRUE(lost.ok() && lost->has_start_daemon()) << lost.status();
  hosts_[2].reset();
  Bring(2);
  const auto launch = host(2).NextOrder();
  ASSERT_TRUE(launch.ok() && launch->has_launch()) << launch.status();
  const auto daemon = host(2).NextOrder();
  ASSERT_TRUE(daemon.ok() && daemon->has_start_daemon()) << daemon.status();
  EXPECT_THAT(daemon->start_daemon().args(), ElementsAre("-mca", "x"));
  EXPECT_EQ(host(2).NextOrder(300).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(HostsTest, TheJobGoesOnWithThoseThatAreLeft) {
  ASSERT_NO_FATAL_FAILURE(ExpectLaunch({0, 1, 2}, 1));
  Register({0, 1, 2}, 1);
  hosts_[1].reset();
  ASSERT_TRUE(Pass(kShortLeaseMs + kSilenceMarginMs, {0, 2}));
  EXPECT_FALSE(host(0).AwaitOrder(100)) << "it may have gone on until then";
  ASSERT_NO_FATAL_FAILURE(PassUntilOrder(0, {0, 2}));
  for (const int i : {0, 2}) {
    const auto order = host(i).NextOrder();
    ASSERT_TRUE(order.ok() && order->has_stop_group()) << order.status();
    EXPECT_THAT(order->stop_group().reason(),
                HasSubstr("host h1 lost: nothing heard of its agent"));
  }
  host(0).GroupEnded(1, /*clean=*/false);
  EXPECT_EQ(host(0).NextOrder(200).status().code(), absl::StatusCode::kDeadlineExceeded)
      << "h2 has not said that nothing is left there";
  host(2).GroupEnded(1, /*clean=*/false);
  ASSERT_NO_FATAL_FAILURE(PassUntilOrder(0, {0, 2}));
  ASSERT_NO_FATAL_FAILURE(ExpectLaunch({0, 2}, 2));
  Register({0, 2}, 2);
  EXPECT_THAT(coordinator_.Status()->layout().at("dp"), "2");
}

TEST_F(HostsTest, TheJobWaitsWhereTooFewAreLeft) {
  ASSERT_NO_FATAL_FAILURE(ExpectLaunch({0, 1, 2}, 1));
  Register({0, 1, 2}, 1);
  hosts_[1].reset();
  hosts_[2].reset();
  ASSERT_TRUE(Pass(kShortLeaseMs + kSilenceMarginMs, {0}));
  ASSERT_NO_FATAL_FAILURE(PassUntilOrder(0, {0}));
  ASSERT_TRUE(host(0).NextOrder()->has_stop_group());
  host(0).GroupEnded(1, /*clean=*/false);
  const std::string waits = "waiting for hosts: 1 of at least 2 are there: h0";
  for (int i = 0; i < 1000 && coordinator_.Status()->reason() != waits; ++i) {
    ASSERT_TRUE(Pass(kShortLeaseMs / 2, {0}));
  }
  ASSERT_TRUE(Pass(3000, {0}));
  EXPECT_FALSE(host(0).AwaitOrder(100));
  EXPECT_EQ(coordinator_.Status()->reason(), waits);
  Bring(2);
  ASSERT_NO_FATAL_FAILURE(PassUntilOrder(0, {0, 2}));
  ASSERT_NO_FATAL_FAILURE(ExpectLaunch({0, 2}, 2));
}

TEST_F(HostsTest, AnotherAgentOnAHostEndsTheGenerationAndTheHostStays) {
  ASSERT_NO_FATAL_FAILURE(ExpectLaunch({0, 1, 2}, 1));
  Register({0, 1, 2}, 1);
  hosts_[1].reset();  // killed, and started again by whoever started it
  Bring(1);
  for (const int i : {0, 2}) {
    const auto order = host(i).NextOrder();
    ASSERT_TRUE(order.ok() && order->has_stop_group()) << order.status();
    EXPECT_THAT(order->stop_group().reason(), HasSubstr("the agent on h1 ended"));
    host(i).GroupEnded(1, /*clean=*/false);
  }
  ASSERT_NO_FATAL_FAILURE(ExpectLaunch({0, 1, 2}, 2));
}

// Hosts that answer for themselves when they are told to check.
class PreflightOverTheWire : public testing::Test {
 protected:
  void Begin(int nodes, int least, int spares) {
    coordinator_.CheckHosts();
    ASSERT_TRUE(coordinator_.Start().ok());
    JobSpec job = JobOnThreeHosts();
    job.cluster.nodes = nodes;
    job.hosts.least_nodes = least;
    job.hosts.spares = spares;
    ASSERT_TRUE(coordinator_.Submit("r1", job, std::nullopt).ok());
    for (int i = 0; i < 3; ++i) {
      hosts_[static_cast<size_t>(i)] = std::make_unique<InProcessHost>(
          coordinator_, absl::StrCat("machine-", i), absl::StrCat("h", i));
    }
  }
  InProcessHost& host(int i) { return *hosts_[static_cast<size_t>(i)]; }
  bool Pass(int64_t ms, const std::vector<int>& live) {
    std::vector<const InProcessHost*> hosts;
    for (const int i : live) hosts.push_back(&host(i));
    return PassTime(clock_, ms, kShortLeaseMs, hosts);
  }
  // Each opens its door; each is told of the other two.
  void OpenDoors() {
    for (int i = 0; i < 3; ++i) {
      const auto order = host(i).NextOrder();
      ASSERT_TRUE(order.ok() && order->has_check_host()) << order.status();
      round_ = order->check_host().round();
      EXPECT_TRUE(order->check_host().has_peers());
      proto::AgentReport report;
      report.mutable_check_opened()->set_round(round_);
      report.mutable_check_opened()->set_address("10.0.0.1");
      report.mutable_check_opened()->set_port(1000 + i);
      host(i).Say(report);
    }
    std::string secret;
    for (int i = 0; i < 3; ++i) {
      const auto order = host(i).NextOrder();
      ASSERT_TRUE(order.ok() && order->has_check_peers()) << order.status();
      EXPECT_EQ(order->check_peers().peers_size(), 2);
      EXPECT_EQ(order->check_peers().dialled_by(), 2);
      EXPECT_EQ(order->check_peers().secret().size(), 32u);
      if (i == 0) secret = order->check_peers().secret();
      EXPECT_EQ(order->check_peers().secret(), secret);
    }
  }
  void Answer(int i, bool passed) {
    proto::AgentReport report;
    report.mutable_host_checked()->set_round(round_);
    if (!passed) {
      proto::CheckResult& result = *report.mutable_host_checked()->add_results();
      result.set_name("memory");
      result.set_severity(proto::CheckResult::BROKEN);
      result.set_found("1 GiB free");
      result.set_cure("add some");
    }
    host(i).Say(report);
  }

  StandingClock clock_;
  InProcessCoordinator coordinator_{kShortLeaseMs, &clock_};
  std::array<std::unique_ptr<InProcessHost>, 3> hosts_;
  int64_t round_ = 0;
};

TEST_F(PreflightOverTheWire, NothingIsLaunchedBeforeAllAreCheckedAndABadHostIsLeftOut) {
  ASSERT_NO_FATAL_FAILURE(Begin(3, 2, 0));
  ASSERT_NO_FATAL_FAILURE(OpenDoors());
  Answer(0, true);
  Answer(2, true);
  EXPECT_EQ(host(0).NextOrder(300).status().code(), absl::StatusCode::kDeadlineExceeded);
  Answer(1, false);
  for (const int i : {0, 2}) {
    const auto order = host(i).NextOrder();
    ASSERT_TRUE(order.ok() && order->has_launch()) << order.status();
    EXPECT_EQ(order->launch().hosts_size(), 2);
  }
  EXPECT_EQ(host(1).NextOrder(200).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(coordinator_.Status()->reason(),
              HasSubstr("host h1 is left out: memory: 1 GiB free; add some"));
}

TEST_F(PreflightOverTheWire, AFailedHostIsCheckedAgainByTheSameAgentEachTimeLater) {
  constexpr int64_t kAgainMs = 200;
  coordinator_.CheckFailedHostsAgainAfter(kAgainMs);
  ASSERT_NO_FATAL_FAILURE(Begin(3, 2, 0));
  ASSERT_NO_FATAL_FAILURE(OpenDoors());
  Answer(0, true);
  Answer(2, true);
  Answer(1, false);
  for (const int i : {0, 2}) {
    const auto order = host(i).NextOrder();
    ASSERT_TRUE(order.ok() && order->has_launch()) << order.status();
  }
  for (const int64_t wait_ms : {kAgainMs, 2 * kAgainMs}) {
    int64_t passed_ms = 0;
    for (; passed_ms < 5000 && !host(1).AwaitOrder(50); passed_ms += 100) {
      ASSERT_TRUE(Pass(100, {0, 1, 2}));
    }
    const auto again = host(1).NextOrder();
    ASSERT_TRUE(again.ok() && again->has_check_host()) << again.status();
    EXPECT_GT(again->check_host().round(), round_);
    EXPECT_GE(passed_ms, wait_ms);
    round_ = again->check_host().round();
    for (const int i : {0, 2}) {
      const auto pairs = host(i).NextOrder();
      ASSERT_TRUE(pairs.ok() && pairs->has_check_host()) << pairs.status();
      EXPECT_TRUE(pairs->check_host().pairs_only());
      Answer(i, true);
    }
    Answer(1, false);
  }
}

TEST_F(PreflightOverTheWire, ASpareReadsWhatIsSavedAndTakesALostHostsPlace) {
  ASSERT_NO_FATAL_FAILURE(Begin(2, 0, 1));
  ASSERT_NO_FATAL_FAILURE(OpenDoors());
  for (int i = 0; i < 3; ++i) Answer(i, true);
  std::vector<std::unique_ptr<RawWorker>> workers;
  for (const int i : {0, 1}) {
    const auto order = host(i).NextOrder();
    ASSERT_TRUE(order.ok() && order->has_launch()) << order.status();
    workers.push_back(std::make_unique<RawWorker>(host(i).rank_target(), 1, i, 2, Version()));
  }
  for (const auto& worker : workers) {
    ASSERT_TRUE(worker->WaitFor([](const proto::Order& order) { return order.has_train(); }));
    proto::WorkerReport ready;
    ready.mutable_ready();
    worker->Say(ready);
  }
  ASSERT_TRUE(coordinator_.WaitForPhase("RUNNING"));
  proto::WorkerReport committed;
  committed.mutable_committed()->set_step(10);
  committed.mutable_committed()->set_folder("step-10");
  workers[0]->Say(committed);
  const auto read = host(2).NextOrder();
  ASSERT_TRUE(read.ok() && read->has_read_ahead()) << read.status();
  EXPECT_THAT(read->read_ahead().folder(), HasSubstr("/step-10"));
  host(0).RankEnded(1, 0, 9);
  const auto stop = host(1).NextOrder();
  ASSERT_TRUE(stop.ok() && stop->has_stop_group()) << stop.status();
  hosts_[0].reset();
  host(1).GroupEnded(1, /*clean=*/false);
  for (int rounds = 0; rounds < 100 && !host(1).AwaitOrder(20); ++rounds) {
    ASSERT_TRUE(Pass(kShortLeaseMs / 2, {1, 2}));
  }
  for (const int i : {1, 2}) {
    const auto order = host(i).NextOrder();
    ASSERT_TRUE(order.ok() && order->has_launch()) << i << ": " << order.status();
    EXPECT_EQ(order->launch().generation(), 2);
    EXPECT_EQ(order->launch().world_size(), 2);
    EXPECT_EQ(order->launch().after_step(), 10);
    ASSERT_EQ(order->launch().hosts_size(), 2);
    EXPECT_EQ(order->launch().hosts(1).host(), "h2");
  }
}

}  // namespace
}  // namespace weft
