// The coordinator over the wire: a real unix socket, real gRPC, workers by worker/process/link or
// by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/service/run_service.h"
#include "launcher/agent/lease_times.h"
#include "process/clock.h"
#include "process/version.h"
#include "tests/coordinator/in_process.h"
#include "tests/plan/sample_jobs.h"
#include "worker/process/link.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

Layout TwoReplicas() {
  Layout layout;
  layout.dp = 2;
  layout.gradient_accumulation_steps = 8;
  return layout;
}

LinkOptions OptionsFor(const InProcessHost& host, int64_t generation, int rank) {
  LinkOptions options;
  options.agent = host.rank_target();
  options.rank = rank;
  options.world_size = 2;
  options.generation = generation;
  return options;
}

// Attaches both ranks of `generation` and makes them ready to train.
std::vector<std::unique_ptr<Link>> StartTwo(const InProcessHost& host, int64_t generation) {
  std::vector<std::unique_ptr<Link>> links;
  for (int rank = 0; rank < 2; ++rank) {
    auto link = Link::Attach(OptionsFor(host, generation, rank));
    EXPECT_TRUE(link.ok()) << link.status();
    if (!link.ok()) return {};
    links.push_back(*std::move(link));
  }
  for (const auto& link : links) {
    const absl::StatusOr<Assignment> assignment = link->WaitForTrain();
    EXPECT_TRUE(assignment.ok()) << assignment.status();
    if (!assignment.ok()) return {};
    EXPECT_EQ(assignment->generation, generation);
    EXPECT_EQ(assignment->layout, TwoReplicas());
    EXPECT_EQ(assignment->run_folder, "/run");
    // Nobody begins before all are ready.
    if (link == links.back()) {
      EXPECT_EQ(links.front()->AwaitBegin(50).code(), absl::StatusCode::kDeadlineExceeded);
    }
    link->ReportReady(0, 1000, 1000);
  }
  for (const auto& link : links) EXPECT_EQ(link->AwaitBegin(kPatienceMs), absl::OkStatus());
  return links;
}

// Both ranks save `step`; rank 0 gets the grant and publishes.
absl::StatusOr<std::vector<ShardRecord>> Save(const std::vector<std::unique_ptr<Link>>& links,
                                              int64_t step, int64_t number = 1) {
  const absl::StatusOr<std::vector<ShardRecord>> none = links[1]->ExchangeShards(
      {number, step}, ShardRecord{"rank-00001.safetensors", 20, "bb"}, kPatienceMs);
  EXPECT_TRUE(none.ok() && none->empty());
  auto shards = links[0]->ExchangeShards(
      {number, step}, ShardRecord{"rank-00000.safetensors", 10, "aa"}, kPatienceMs);
  if (shards.ok()) links[0]->ReportCommitted(step, absl::StrCat("step-", step), 30);
  return shards;
}

// "STARTING", "step 3", "committed 10", "lost 1"
std::string Short(const v1::Event& event) {
  if (event.has_phase()) return event.phase().phase();
  if (event.has_step()) return absl::StrCat("step ", event.step().step());
  if (event.has_committed()) return absl::StrCat("committed ", event.committed().step());
  if (event.has_not_saved()) return absl::StrCat("not saved ", event.not_saved().step());
  return absl::StrCat("lost ", event.lost().rank());
}

std::vector<std::string> Short(const std::vector<v1::Event>& events) {
  std::vector<std::string> texts;
  for (const v1::Event& event : events) texts.push_back(Short(event));
  return texts;
}

class ServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    const absl::Status started = coordinator_.Start();
    ASSERT_TRUE(started.ok()) << started;
    agent_ = std::make_unique<InProcessHost>(coordinator_);
  }
  void SubmitTwoReplicas() {
    const auto job_id = coordinator_.Submit("r1", SampleJob(), TwoReplicas());
    ASSERT_TRUE(job_id.ok()) << job_id.status();
    EXPECT_EQ(*job_id, "job-1");
  }
  void ExpectLaunch(int64_t generation, int64_t after_step) {
    const auto order = agent_->NextOrder();
    ASSERT_TRUE(order.ok()) << order.status();
    ASSERT_TRUE(order->has_launch()) << order->ShortDebugString();
    EXPECT_EQ(order->launch().generation(), generation);
    EXPECT_EQ(order->launch().world_size(), 2);
    EXPECT_EQ(order->launch().after_step(), after_step);
    EXPECT_EQ(order->launch().run_folder(), "/run");
  }
  void ExpectOver(const std::string& phase, int64_t step) {
    EXPECT_TRUE(coordinator_.WaitForPhase(phase)) << coordinator_.Status()->ShortDebugString();
    EXPECT_EQ(coordinator_.Status()->saved_step(), step);
  }
  InProcessCoordinator coordinator_;
  std::unique_ptr<InProcessHost> agent_;
};

TEST_F(ServiceTest, CarriesAJobFromSubmissionToCompletion) {
  JobSpec job = SampleJob();
  job.training.steps = 2;
  ASSERT_TRUE(coordinator_.Submit("r1", job, TwoReplicas()).ok());
  absl::Status watched;
  std::future<std::vector<v1::Event>> watching =
      std::async(std::launch::async, [&] { return coordinator_.Watch(0, 1000, &watched); });
  ExpectLaunch(1, 0);
  const auto links = StartTwo(*agent_, 1);
  ASSERT_EQ(links.size(), 2u);
  ASSERT_TRUE(coordinator_.WaitForPhase("RUNNING"));
  for (int64_t step = 1; step <= 2; ++step) {
    for (const auto& link : links) link->ReportStep({.step = step, .loss = 5.5, .valid_loss = {}});
  }
  const auto shards = Save(links, 2);
  ASSERT_TRUE(shards.ok()) << shards.status();
  ASSERT_EQ(shards->size(), 2u);
  EXPECT_EQ((*shards)[0].file, "rank-00000.safetensors");
  EXPECT_EQ((*shards)[1].file, "rank-00001.safetensors");
  EXPECT_EQ((*shards)[1].bytes, 20);
  EXPECT_EQ((*shards)[1].xxh3, "bb");
  for (const auto& link : links) link->ReportFinished({2, false}, kPatienceMs);
  agent_->GroupEnded(1, /*clean=*/true);
  ExpectOver("COMPLETED", 2);
  EXPECT_THAT(Short(watching.get()), ElementsAre("SUBMITTED", "PLANNED", "STARTING", "RUNNING",
                                                 "step 1", "step 2", "committed 2", "COMPLETED"));
  EXPECT_TRUE(watched.ok()) << watched;
  const auto status = coordinator_.Status();
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->step(), 2);
  EXPECT_EQ(status->saved_step(), 2);
  EXPECT_GT(status->peak_bytes(), 0);
  EXPECT_GT(status->planned_bytes(), 0);
}

TEST_F(ServiceTest, PlansAJobWithoutALayoutAsTheLauncherWould) {
  ASSERT_TRUE(coordinator_.Submit("r1", SampleJob(), std::nullopt).ok());
  const auto status = coordinator_.Status();
  ASSERT_TRUE(status.ok());
  EXPECT_TRUE(coordinator_.WaitForPhase("STARTING")) << "an agent is there";
  EXPECT_EQ(status->layout().count("dp"), 1U);
}

TEST_F(ServiceTest, FailsAJobThatFitsNowhere) {
  JobSpec job = SampleJob();
  job.cluster.device.memory_bytes = (int64_t{256} << 20) + 4096;
  // Few layouts to look at: advice on what would fit takes long under a sanitizer.
  job.layout.dp = 4;
  job.layout.tp = job.layout.pp = 1;
  job.layout.zero_stage = 0;
  ASSERT_TRUE(coordinator_.Submit("r1", job, std::nullopt).ok());
  ExpectOver("FAILED", 0);
}

TEST_F(ServiceTest, RefusesWrongSubmissionsAndKeepsNoJob) {
  JobSpec job = SampleJob();
  job.training.steps = -1;
  EXPECT_EQ(coordinator_.Submit("r1", job, std::nullopt).status().code(),
            absl::StatusCode::kInvalidArgument);
  Layout layout = TwoReplicas();
  layout.tp = 3;
  EXPECT_EQ(coordinator_.Submit("r1", SampleJob(), layout).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(coordinator_.Submit("", SampleJob(), std::nullopt).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(coordinator_.Status().status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ServiceTest, ARepeatedRequestIsTheSameJobAndANewOneTakesItsPlace) {
  SubmitTwoReplicas();
  EXPECT_EQ(*coordinator_.Submit("r1", SampleJob(), TwoReplicas()), "job-1");
  EXPECT_EQ(*coordinator_.Submit("r2", SampleJob(), TwoReplicas()), "job-2");
  EXPECT_EQ(coordinator_.Status()->job_id(), "job-2");
}

TEST_F(ServiceTest, TurnsAwayWorkersOfAnotherGenerationVersionOrWorld) {
  SubmitTwoReplicas();
  ExpectLaunch(1, 0);
  const auto refusal = [&](int64_t generation, int rank, int world, const std::string& version) {
    RawWorker worker(agent_->rank_target(), generation, rank, world, version);
    return worker.WaitForEnd();
  };
  EXPECT_EQ(refusal(7, 0, 2, Version()).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(refusal(0, 0, 2, Version()).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(refusal(1, 0, 3, Version()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal(1, 2, 2, Version()).code(), absl::StatusCode::kInvalidArgument);
  const absl::Status skew = refusal(1, 0, 2, "0.0.1");
  EXPECT_EQ(skew.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(skew.message()), HasSubstr("is weft 0.0.1, its agent is weft"));
  const auto link = Link::Attach(OptionsFor(*agent_, 7, 0));
  EXPECT_EQ(link.status().code(), absl::StatusCode::kAborted) << link.status();
}

TEST_F(ServiceTest, CutsAStreamThatSpeaksForAnother) {
  SubmitTwoReplicas();
  ExpectLaunch(1, 0);
  RawWorker worker(agent_->rank_target(), 1, 0, 2, Version());
  ASSERT_TRUE(worker.WaitFor([](const proto::Order& order) { return order.has_welcome(); }));
  RawWorker second(agent_->rank_target(), 1, 1, 3, Version());
  EXPECT_EQ(second.WaitForEnd().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(coordinator_.StopJob(/*now=*/true).ok());
  EXPECT_TRUE(worker.WaitFor([](const proto::Order& order) { return order.has_abort(); }))
      << "one that is turned away does not disturb the others";
}

// Ranks meet at a save's end, which no collective's deadline counts: whoever is done early waits
// for the slow one here.
TEST_F(ServiceTest, TellsEveryRankHowASaveEndedOnceTheSlowestHasSaidItsPart) {
  SubmitTwoReplicas();
  ExpectLaunch(1, 0);
  const auto links = StartTwo(*agent_, 1);
  ASSERT_EQ(links.size(), 2u);
  const absl::Status full = absl::ResourceExhaustedError("rank-00001.safetensors: disk full");
  ASSERT_TRUE(links[0]
                  ->ExchangeShards({1, 5}, ShardRecord{"rank-00000.safetensors", 1, "a"}, 0)
                  .status()
                  .code() == absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(links[0]->AwaitSaveOver({1, 5}, 100).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(links[1]->ExchangeShards({1, 5}, full, kPatienceMs).ok());
  for (const auto& link : links) {
    const auto end = link->AwaitSaveOver({1, 5}, kPatienceMs);
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_FALSE(end->committed);
    EXPECT_EQ(end->reason, "rank-00001.safetensors: disk full");
  }
  // The same step again, and now rank 0 finds that it cannot publish it.
  ASSERT_TRUE(
      links[1]->ExchangeShards({2, 5}, ShardRecord{"rank-00001.safetensors", 1, "b"}, 0).ok());
  const auto shards =
      links[0]->ExchangeShards({2, 5}, ShardRecord{"rank-00000.safetensors", 1, "a"}, kPatienceMs);
  ASSERT_TRUE(shards.ok()) << shards.status();
  EXPECT_EQ(shards->size(), 2u);
  links[0]->ReportNotCommitted({2, 5}, absl::FailedPreconditionError("step-5 is another run's"));
  for (const auto& link : links) {
    const auto end = link->AwaitSaveOver({2, 5}, kPatienceMs);
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_EQ(end->reason, "step-5 is another run's");
  }
  ASSERT_TRUE(Save(links, 6, 3).ok());
  EXPECT_TRUE(links[1]->AwaitSaveOver({3, 6}, kPatienceMs)->committed);
  absl::Status watched;
  const auto events = Short(coordinator_.Watch(0, 7, &watched));
  EXPECT_EQ(std::count(events.begin(), events.end(), "not saved 5"), 2);
  EXPECT_EQ(std::count(events.begin(), events.end(), "committed 6"), 1);
}

TEST_F(ServiceTest, SavesAndSuspendsOnAStopRequest) {
  SubmitTwoReplicas();
  ExpectLaunch(1, 0);
  const auto links = StartTwo(*agent_, 1);
  ASSERT_EQ(links.size(), 2u);
  ASSERT_TRUE(coordinator_.WaitForPhase("RUNNING"));
  EXPECT_FALSE(links[0]->StopRequested());
  ASSERT_TRUE(coordinator_.StopJob(/*now=*/false).ok());
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(kPatienceMs);
  while (!(links[0]->StopRequested() && links[1]->StopRequested()) && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(links[0]->StopRequested() && links[1]->StopRequested());
  ASSERT_TRUE(Save(links, 7).ok());
  for (const auto& link : links) link->ReportFinished({7, true}, kPatienceMs);
  agent_->GroupEnded(1, /*clean=*/true);
  ExpectOver("SUSPENDED", 7);
}

TEST_F(ServiceTest, StopsTheGroupAndAbortsTheWorkersAtOnceOnDemand) {
  SubmitTwoReplicas();
  ExpectLaunch(1, 0);
  RawWorker worker(agent_->rank_target(), 1, 0, 2, Version());
  ASSERT_TRUE(worker.WaitFor([](const proto::Order& order) { return order.has_welcome(); }));
  ASSERT_TRUE(coordinator_.StopJob(/*now=*/true).ok());
  EXPECT_TRUE(worker.WaitFor([](const proto::Order& order) { return order.has_abort(); }));
  const auto order = agent_->NextOrder();
  ASSERT_TRUE(order.ok() && order->has_stop_group());
  EXPECT_EQ(order->stop_group().generation(), 1);
  agent_->GroupEnded(1, /*clean=*/false);
  ExpectOver("CANCELLED", 0);
}

TEST_F(ServiceTest, RestartsFromTheLastCommittedStepWhenAProcessDies) {
  SubmitTwoReplicas();
  ExpectLaunch(1, 0);
  auto links = StartTwo(*agent_, 1);
  ASSERT_EQ(links.size(), 2u);
  ASSERT_TRUE(Save(links, 10).ok());
  // The last words may not have arrived yet.
  absl::Status watched;
  EXPECT_THAT(Short(coordinator_.Watch(0, 5, &watched)), Contains("committed 10"));
  links.clear();  // the processes are gone
  agent_->RankEnded(1, /*rank=*/1, /*signal=*/9);
  const auto stop = agent_->NextOrder();
  ASSERT_TRUE(stop.ok() && stop->has_stop_group()) << stop.status();
  agent_->GroupEnded(1, /*clean=*/false);
  ExpectLaunch(2, 10);
  const auto again = StartTwo(*agent_, 2);
  ASSERT_EQ(again.size(), 2u);
  ASSERT_TRUE(coordinator_.WaitForPhase("RUNNING"));
  absl::Status status;
  const std::vector<v1::Event> events = coordinator_.Watch(0, 9, &status);
  EXPECT_THAT(Short(events),
              ElementsAre("SUBMITTED", "PLANNED", "STARTING", "RUNNING", "committed 10", "lost 1",
                          "RECOVERING", "STARTING", "RUNNING"));
  EXPECT_THAT(events[5].lost().reason(), HasSubstr("killed by signal 9 (SIGKILL)"));
  EXPECT_EQ(events[5].generation(), 1);
}

TEST_F(ServiceTest, TellsALaunchAgainThatWasLostOnItsWay) {
  SubmitTwoReplicas();
  ExpectLaunch(1, 0);
  agent_.reset();  // its stream broke before it had read the order
  agent_ = std::make_unique<InProcessHost>(coordinator_);
  ExpectLaunch(1, 0);
  // One that has launched it says so, and is not told again.
  RawAgent knowing(coordinator_.target(), RawAgent::Self{.generation = 1});
  EXPECT_EQ(knowing.NextOrder(300).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ServiceTest, TakesAnAgentsWordForItsOwnMachineAlone) {
  SubmitTwoReplicas();
  ExpectLaunch(1, 0);
  const auto links = StartTwo(*agent_, 1);
  ASSERT_EQ(links.size(), 2u);
  // That agent never had the group, whose ranks still train.
  RawAgent elsewhere(coordinator_.target(), {.machine = "machine-2"});
  elsewhere.RankEnded(1, /*rank=*/1, /*signal=*/9);
  elsewhere.GroupEnded(1, /*clean=*/false);
  EXPECT_EQ(elsewhere.NextOrder(500).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(coordinator_.Status()->phase(), "RUNNING");
  // Another one on the machine has ended what it found there before it said Hello.
  RawAgent successor(coordinator_.target());
  const auto order = successor.NextOrder();
  ASSERT_TRUE(order.ok() && order->has_launch()) << order.status();
  EXPECT_EQ(order->launch().generation(), 2);
}

TEST_F(ServiceTest, HearsRepeatedReportsOnceAndAcknowledgesThem) {
  SubmitTwoReplicas();
  ExpectLaunch(1, 0);
  RawAgent agent(coordinator_.target(), {.generation = 1});
  proto::AgentReport report;
  report.set_sequence(7);
  report.mutable_group_ended()->set_generation(1);
  report.mutable_group_ended()->mutable_cause()->set_rank(-1);
  for (int i = 0; i < 3; ++i) agent.Say(report);
  const auto order = agent.NextOrder();
  ASSERT_TRUE(order.ok() && order->has_launch()) << order.status();
  EXPECT_EQ(order->launch().generation(), 2);
  EXPECT_EQ(agent.NextOrder(300).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(agent.acknowledged(), 7);
  EXPECT_EQ(coordinator_.Status()->restarts_left(), SampleJob().fault_tolerance.max_restarts - 1);
}

// Streams are numbered as they are accepted, and speak when they like.
TEST_F(ServiceTest, HearsRanksInWhateverOrderTheyBegin) {
  SubmitTwoReplicas();
  ExpectLaunch(1, 0);
  RawAgent agent(coordinator_.target(), {.generation = 1});
  for (const int64_t stream : {2, 1}) {
    proto::WorkerReport worker;
    worker.set_rank(static_cast<int>(stream) - 1);
    worker.set_generation(1);
    worker.mutable_register_()->set_host("here");
    worker.mutable_register_()->set_pid(stream);
    worker.mutable_register_()->set_version(Version());
    worker.mutable_register_()->set_world_size(2);
    proto::AgentReport report;
    report.mutable_from_rank()->set_stream(stream);
    worker.SerializeToString(report.mutable_from_rank()->mutable_report());
    agent.Say(report);
  }
  EXPECT_EQ(agent.WaitForTrains(2), 2);
}

TEST_F(ServiceTest, SavesAndStopsWhenAnAgentIsAskedTo) {
  SubmitTwoReplicas();
  ExpectLaunch(1, 0);
  const auto links = StartTwo(*agent_, 1);
  ASSERT_EQ(links.size(), 2u);
  agent_->AskToSave();
  EXPECT_TRUE(coordinator_.WaitForPhase("DRAINING"));
}

TEST_F(ServiceTest, TurnsAwayAnAgentOfAnotherWireVersion) {
  RawAgent skewed(coordinator_.target(), {.version = "9.0.1", .wire_version = kWireVersion + 1});
  const absl::Status why = skewed.WaitForEnd();
  EXPECT_EQ(why.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(why.message()),
              HasSubstr("the agent on here, weft 9.0.1, speaks wire version"));
}

TEST_F(ServiceTest, TurnsAwayAHostWithAnotherVersionOfMpiThanTheOthersHave) {
  SubmitTwoReplicas();
  ExpectLaunch(1, 0);  // begun without the hosts that come now
  RawAgent first(coordinator_.target(), {.machine = "m1", .mpi = "Open MPI 4.1.4"});
  EXPECT_FALSE(first.NextOrder(500).ok()) << "it is welcome, and has nothing to do";
  RawAgent other(coordinator_.target(), {.machine = "m2", .mpi = "Open MPI 4.1.5"});
  const absl::Status why = other.WaitForEnd();
  EXPECT_EQ(why.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(why.message()),
            "the host here has Open MPI 4.1.5, the host here has Open MPI 4.1.4; install one "
            "version of MPI on all hosts of a job");
}

TEST_F(ServiceTest, TurnsAwayAHostWithAnotherVersionOfMpiThatCameBeforeTheJob) {
  RawAgent first(coordinator_.target(), {.machine = "m1", .mpi = "Open MPI 4.1.4"});
  RawAgent other(coordinator_.target(), {.machine = "m2", .mpi = "Open MPI 4.1.5"});
  EXPECT_FALSE(first.NextOrder(500).ok()) << "it is welcome, and has nothing to do";
  EXPECT_FALSE(other.NextOrder(500).ok()) << "and so is this one: nothing is known of a job yet";
  SubmitTwoReplicas();
  const absl::Status why = other.WaitForEnd();
  EXPECT_EQ(why.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(why.message()), HasSubstr("install one version of MPI"));
}

TEST_F(ServiceTest, WatchResumesAfterTheRevisionThatWasSeen) {
  SubmitTwoReplicas();
  ExpectLaunch(1, 0);
  absl::Status status;
  const std::vector<v1::Event> first = coordinator_.Watch(0, 2, &status);
  ASSERT_EQ(first.size(), 2u);
  const std::vector<v1::Event> rest = coordinator_.Watch(first.back().revision(), 1, &status);
  EXPECT_THAT(Short(rest), ElementsAre("STARTING"));
  EXPECT_GT(rest[0].revision(), first.back().revision());
}

TEST_F(ServiceTest, ARestartedCoordinatorAdoptsItsWorkers) {
  SubmitTwoReplicas();
  ExpectLaunch(1, 0);
  const auto links = StartTwo(*agent_, 1);
  ASSERT_EQ(links.size(), 2u);
  ASSERT_TRUE(coordinator_.WaitForPhase("RUNNING"));
  const int64_t revision = coordinator_.Status()->revision();
  coordinator_.Stop();
  // Said while nobody listens: it is said again.
  ASSERT_TRUE(
      links[1]->ExchangeShards({1, 5}, ShardRecord{"rank-00001.safetensors", 20, "bb"}, 0).ok());
  const absl::Status started = coordinator_.Start();
  ASSERT_TRUE(started.ok()) << started;
  ASSERT_TRUE(coordinator_.WaitForPhase("RUNNING"));
  const auto shards = links[0]->ExchangeShards(
      {1, 5}, ShardRecord{"rank-00000.safetensors", 10, "aa"}, kPatienceMs);
  ASSERT_TRUE(shards.ok()) << shards.status();
  EXPECT_EQ(shards->size(), 2u);
  const auto status = coordinator_.Status();
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->generation(), 1) << "nobody was restarted";
  EXPECT_GT(status->revision(), revision);
}

TEST(ServiceLease, AWorkerThatFallsSilentIsLostAndItsPeersAreToldToLeave) {
  constexpr int64_t kLeaseMs = 600;
  StandingClock clock;
  InProcessCoordinator coordinator(kLeaseMs, &clock);
  ASSERT_TRUE(coordinator.Start().ok());
  ASSERT_TRUE(coordinator.Submit("r1", SampleJob(), TwoReplicas()).ok());
  auto host = std::make_unique<InProcessHost>(coordinator);
  ASSERT_TRUE(host->NextOrder()->has_launch());
  RawWorker mute(host->rank_target(), 1, 1, 2, Version());
  RawWorker lively(host->rank_target(), 1, 0, 2, Version());
  ASSERT_TRUE(mute.WaitFor([](const proto::Order& order) { return order.has_train(); }));
  // The host's next heartbeat says that both have spoken, as they came.
  ASSERT_TRUE(PassTime(clock, kLeaseMs / 4, kLeaseMs, {host.get()}, {&lively}));
  ASSERT_TRUE(PassTime(clock, kLeaseMs, kLeaseMs, {host.get()}, {&lively}));
  EXPECT_FALSE(host->AwaitOrder(100)) << "it may be silent for so long";
  ASSERT_TRUE(PassTime(clock, kLeaseMs / 4, kLeaseMs, {host.get()}));
  EXPECT_TRUE(lively.WaitFor([](const proto::Order& order) { return order.has_abort(); }));
  const auto order = host->NextOrder();
  ASSERT_TRUE(order.ok() && order->has_stop_group()) << order.status();
  EXPECT_THAT(order->stop_group().reason(), HasSubstr("rank 1 (here) lost: nothing heard for 0."));
  // The host falls silent too; its lease and a margin are proof enough.
  host.reset();
  RawAgent elsewhere(coordinator.target(), {.machine = "machine-2"});
  ASSERT_TRUE(PassTime(clock, kLeaseMs + kSilenceMarginMs, kLeaseMs, {}));
  EXPECT_FALSE(elsewhere.NextOrder(100).ok()) << "it may have gone on until then";
  auto next = elsewhere.NextOrder(20);
  for (int rounds = 0; rounds < 100 && !next.ok(); ++rounds) {
    clock.Pass(kLeaseMs / 4);
    next = elsewhere.NextOrder(20);
  }
  ASSERT_TRUE(next.ok() && next->has_launch()) << next.status();
  EXPECT_EQ(next->launch().generation(), 2);
}

// Returns once the link has had its host's newest lease, which lies before the note that comes
// back.
bool HasLease(Link& link, int64_t number) {
  const std::string topic = absl::StrCat("word-", number);
  link.SendNote(topic, {0}, "");
  return link.WaitForNote(topic, 0, kPatienceMs).ok();
}

// ServiceClock has one rank, whose link goes by the test's clock, as host and coordinator do.
class ServiceClock : public testing::Test {
 protected:
  static constexpr int64_t kLeaseMs = 800;
  void Begin(const JobSpec& job = SampleJob()) {
    ASSERT_TRUE(coordinator_.Start().ok());
    ASSERT_TRUE(coordinator_.Submit("r1", job, TwoReplicas()).ok());
    host_.emplace(coordinator_);
    ASSERT_TRUE(host_->NextOrder()->has_launch());
    LinkOptions options = OptionsFor(*host_, 1, 0);
    options.now_ms = coordinator_.clock();
    options.on_lost = [&](const absl::Status& status) { lost_.set_value(status); };
    auto link = Link::Attach(std::move(options));
    ASSERT_TRUE(link.ok()) << link.status();
    link_ = *std::move(link);
  }
  void Pass(int64_t ms) {
    for (; ms > 0; ms -= kLeaseMs / 4) {
      ASSERT_TRUE(PassTime(clock_, std::min(ms, kLeaseMs / 4), kLeaseMs, {&*host_}));
      ASSERT_TRUE(HasLease(*link_, ++words_));
    }
  }
  // A link looks at its lease four times a second.
  bool IsLost() const {
    return why_.wait_for(std::chrono::milliseconds(500)) == std::future_status::ready;
  }

  StandingClock clock_;
  InProcessCoordinator coordinator_{kLeaseMs, &clock_};
  std::optional<InProcessHost> host_;
  std::promise<absl::Status> lost_;
  std::future<absl::Status> why_ = lost_.get_future();
  std::unique_ptr<Link> link_;
  int64_t words_ = 0;
};

TEST_F(ServiceClock, AWorkerGivesUpACoordinatorThatIsGoneBeforeItsLeaseEnds) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_NO_FATAL_FAILURE(Pass(kLeaseMs * 3 / 2));
  EXPECT_FALSE(IsLost()) << "the agent's heartbeats keep it";
  coordinator_.Stop();
  clock_.Pass(RanksShareMs(kLeaseMs) - 1);
  EXPECT_FALSE(IsLost());
  clock_.Pass(1);
  EXPECT_LT(clock_.now_ms(), host_->lease_end_ms());
  ASSERT_EQ(why_.wait_for(std::chrono::milliseconds(kPatienceMs)), std::future_status::ready);
  EXPECT_EQ(why_.get().code(), absl::StatusCode::kUnavailable);
}

// A host that sleeps past the lease wakes up with workers that have no right to train any more,
// though no clock that stands still meanwhile says so.
TEST(ServiceLease, AWorkerCountsTheTimeThatItsHostSlept) {
  InProcessCoordinator coordinator(/*lease_ms=*/60000);
  ASSERT_TRUE(coordinator.Start().ok());
  ASSERT_TRUE(coordinator.Submit("r1", SampleJob(), TwoReplicas()).ok());
  InProcessHost host(coordinator);
  ASSERT_TRUE(host.NextOrder()->has_launch());
  std::promise<absl::Status> lost;
  std::future<absl::Status> why = lost.get_future();
  std::atomic<int64_t> slept_ms = 0;
  LinkOptions options = OptionsFor(host, 1, 0);
  options.now_ms = [&] { return BootTimeMs() + slept_ms; };
  options.on_lost = [&](const absl::Status& status) { lost.set_value(status); };
  const auto link = Link::Attach(std::move(options));
  ASSERT_TRUE(link.ok()) << link.status();
  slept_ms = 50000;
  ASSERT_EQ(why.wait_for(std::chrono::milliseconds(kPatienceMs)), std::future_status::ready);
  EXPECT_EQ(why.get().code(), absl::StatusCode::kUnavailable);
}

// A disk that hangs, or a plan that takes long, is no reason for anybody to stop training. A turn
// is an eighth of the lease: the rank's own thread may be six turns late.
TEST_F(ServiceClock, LeasesAreAnsweredByAThreadThatNeverWaitsForTheDriver) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  std::promise<void> goes_on;
  coordinator_.HoldDriver(goes_on.get_future().share());
  for (int turn = 0; turn < 20; ++turn) {
    ASSERT_TRUE(PassTime(clock_, kLeaseMs / 8, kLeaseMs, {&*host_})) << turn;
  }
  EXPECT_FALSE(IsLost());
  goes_on.set_value();
  EXPECT_EQ(coordinator_.Status()->generation(), 1) << "nor is anybody called silent for it";
}

// How long ranks wait for one another is the job's to say: a rank has no limit of its own.
TEST_F(ServiceClock, AWorkerWaitsForTheOthersUntilTheJobsLimit) {
  JobSpec job = SampleJob();
  job.comm.init_timeout_seconds = 3;
  ASSERT_NO_FATAL_FAILURE(Begin(job));
  std::future<absl::Status> waits =
      std::async(std::launch::async, [&] { return link_->WaitForTrain().status(); });
  ASSERT_NO_FATAL_FAILURE(Pass(3000));
  EXPECT_EQ(waits.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  ASSERT_TRUE(PassTime(clock_, kLeaseMs / 4, kLeaseMs, {&*host_}));
  const absl::Status given_up = waits.get();
  EXPECT_EQ(given_up.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(given_up.message(), HasSubstr("within comm.init_timeout_seconds 3"));
}

TEST_F(ServiceClock, AWorkerWaitsForTheOthersNoLongerThanItsLease) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  coordinator_.Stop();
  std::future<absl::Status> waits =
      std::async(std::launch::async, [&] { return link_->WaitForTrain().status(); });
  EXPECT_EQ(waits.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  clock_.Pass(kLeaseMs);
  EXPECT_EQ(waits.get().code(), absl::StatusCode::kUnavailable);
}

TEST(ServiceLease, AWorkerLeavesWhenItsGenerationIsOver) {
  InProcessCoordinator coordinator;
  ASSERT_TRUE(coordinator.Start().ok());
  ASSERT_TRUE(coordinator.Submit("r1", SampleJob(), TwoReplicas()).ok());
  InProcessHost host(coordinator);
  ASSERT_TRUE(host.NextOrder()->has_launch());
  std::promise<absl::Status> lost;
  std::future<absl::Status> why = lost.get_future();
  LinkOptions options = OptionsFor(host, 1, 0);
  options.on_lost = [&](const absl::Status& status) { lost.set_value(status); };
  const auto link = Link::Attach(std::move(options));
  ASSERT_TRUE(link.ok()) << link.status();
  host.RankEnded(1, /*rank=*/1, /*signal=*/9);
  ASSERT_EQ(why.wait_for(std::chrono::milliseconds(kPatienceMs)), std::future_status::ready);
  EXPECT_EQ(why.get().code(), absl::StatusCode::kAborted);
}

// A report that was dropped would be covered by the next one's acknowledgement, and never said
// again.
TEST(ServiceQueue, EndsAStreamWhoseReportItHasNoRoomForRatherThanLoseIt) {
  InProcessCoordinator coordinator;
  coordinator.LimitQueue(2000);
  ASSERT_TRUE(coordinator.Start().ok());
  InProcessHost host(coordinator);
  Layout layout = TwoReplicas();
  ASSERT_TRUE(coordinator.Submit("r1", SampleJob(), layout).ok());
  ASSERT_TRUE(host.NextOrder()->has_launch());
  RawWorker worker(host.rank_target(), 1, 0, 2, Version());
  ASSERT_TRUE(worker.WaitFor([](const proto::Order& order) { return order.has_welcome(); }));
  proto::WorkerReport large;
  large.set_sequence(2);
  large.mutable_fault()->set_message(std::string(4000, 'x'));
  worker.Say(large);
  proto::WorkerReport small;
  small.set_sequence(3);
  small.mutable_step()->set_step(1);
  worker.Say(small);
  EXPECT_EQ(worker.WaitForEnd().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(worker.WaitFor([](const proto::Order& order) { return order.acknowledged() >= 3; }));
}

TEST(ServiceSocket, IsForItsOwnerAloneAndGoneAfterwards) {
  InProcessCoordinator coordinator;
  ASSERT_TRUE(coordinator.Start().ok());
  struct stat entry = {};
  ASSERT_EQ(stat(coordinator.socket().c_str(), &entry), 0);
  EXPECT_TRUE(S_ISSOCK(entry.st_mode));
  EXPECT_EQ(entry.st_mode & 0777, 0600u);
  coordinator.Stop();
  EXPECT_NE(stat(coordinator.socket().c_str(), &entry), 0);
}

TEST(ServiceSocket, TakesOverAStaleSocketButNotALiveOne) {
  InProcessCoordinator coordinator;
  ASSERT_TRUE(coordinator.Start().ok());
  const auto journal = Journal::Open(coordinator.journal() + "2");
  ASSERT_TRUE(journal.ok());
  const std::string kept = coordinator.socket() + ".kept";
  std::filesystem::create_hard_link(coordinator.socket(), kept);
  EXPECT_FALSE(coordinator.Start().ok()) << "the journal and the socket are in use";
  coordinator.Stop();
  std::filesystem::rename(kept, coordinator.socket());  // as a killed weftd leaves it
  const absl::Status again = coordinator.Start();
  EXPECT_TRUE(again.ok()) << again;
}

}  // namespace
}  // namespace weft
