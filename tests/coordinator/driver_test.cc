// These tests drive the coordinator's shell by hand: streams are recorded, time is the test's.
#include "coordinator/driver.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/hosts.h"
#include "plan/errors.h"
#include "process/version.h"
#include "proto/job_text.h"
#include "tests/plan/sample_jobs.h"

namespace weft {
namespace {

using testing::HasSubstr;

constexpr int64_t kLeaseMs = 4000;

// Asks for two hosts of a slot each.
JobSpec JobOnTwoHosts() {
  JobSpec job = SampleJob();
  job.cluster.nodes = 2;
  job.cluster.slots_per_node = 1;
  job.layout = {};
  job.fault_tolerance.preflight = false;
  job.layout.tp = job.layout.pp = 1;
  return job;
}

class DriverTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / "weft-driver-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    auto journal = Journal::Open(folder_ + "/journal.db");
    ASSERT_TRUE(journal.ok()) << journal.status();
    DriverOptions options;
    options.version = "v";
    options.lease_ms = kLeaseMs;
    options.own_thread = false;
    options.writes_tokens = false;
    options.now_ms = [this] { return now_ms_; };
    auto driver = Driver::Start(*std::move(journal), std::move(options));
    ASSERT_TRUE(driver.ok()) << driver.status();
    driver_ = *std::move(driver);
  }
  void TearDown() override {
    driver_.reset();
    std::filesystem::remove_all(folder_);
  }

  void Submit(const JobSpec& job) {
    proto::SubmitJobRequest request;
    request.set_request_id("r1");
    request.set_job(JobText(job));
    request.set_run_folder("/run");
    driver_->Submit(request, [](const absl::StatusOr<proto::SubmitJobReply>& reply) {
      ASSERT_TRUE(reply.ok()) << reply.status();
    });
    driver_->RunOnce();
  }
  // An agent's stream begins; what it is told is in told_[stream].
  void Bring(int64_t stream, const std::string& machine, int64_t held_generation = 0, int slots = 0,
             const std::string& version = "v") {
    driver_->AttachAgent(
        stream,
        {.send = [this, stream](const proto::AgentOrder& order) { told_[stream].push_back(order); },
         .close = [this, stream](const absl::Status& why) { closed_[stream] = why; }});
    proto::AgentReport report;
    report.mutable_hello()->set_version(version);
    report.mutable_hello()->set_wire_version(kWireVersion);
    report.mutable_hello()->set_host(absl::StrCat("host-", machine));
    report.mutable_hello()->set_machine(machine);
    report.mutable_hello()->set_generation(held_generation);
    report.mutable_hello()->set_slots(slots);
    report.mutable_hello()->mutable_host_has()->add_gpus();
    driver_->TakeAgentReport(stream, report);
  }
  void SayGroupEnded(int64_t stream, int64_t generation) {
    proto::AgentReport report;
    report.set_sequence(++sequence_);
    report.mutable_group_ended()->set_generation(generation);
    report.mutable_group_ended()->mutable_cause()->set_rank(-1);
    driver_->TakeAgentReport(stream, report);
  }
  // Rank 0 of generation 1 was killed, perhaps by mpirun.
  void SayInDoubt(int64_t stream, int64_t seen_ms_ago = 0) {
    proto::AgentReport report;
    report.set_sequence(++sequence_);
    report.mutable_rank_ended()->set_generation(1);
    report.mutable_rank_ended()->mutable_cause()->set_rank(0);
    report.mutable_rank_ended()->mutable_cause()->set_signal(9);
    report.mutable_rank_ended()->mutable_cause()->set_in_doubt(true);
    report.mutable_rank_ended()->mutable_cause()->set_seen_ms_ago(seen_ms_ago);
    driver_->TakeAgentReport(stream, report);
  }
  // The generation is launched on hosts a and b, whose agents are streams 1 and 2.
  void LaunchOnTwoHosts() {
    Submit(JobOnTwoHosts());
    Bring(1, "a");
    Bring(2, "b");
    driver_->RunOnce();
  }
  // mpirun has announced that it ends the ranks of this agent.
  void SayDoomed(int64_t stream) {
    proto::AgentReport report;
    report.set_sequence(++sequence_);
    report.mutable_rank_ended()->set_generation(1);
    proto::Cause& cause = *report.mutable_rank_ended()->mutable_cause();
    cause.set_rank(-1);
    cause.set_message("mpirun ends all ranks");
    cause.set_in_doubt(true);
    cause.set_is_elsewhere(true);
    driver_->TakeAgentReport(stream, report);
  }
  // Until what is in doubt is judged.
  void HearOthersOut() {
    driver_->RunOnce();
    now_ms_ += 30;
    driver_->RunOnce();
  }
  int Launches(int64_t stream, int64_t generation) {
    int count = 0;
    for (const proto::AgentOrder& order : told_[stream]) {
      count += order.has_launch() && order.launch().generation() == generation ? 1 : 0;
    }
    return count;
  }

  std::string folder_;
  int64_t now_ms_ = 1000;
  int64_t sequence_ = 0;
  std::map<int64_t, std::vector<proto::AgentOrder>> told_;
  std::map<int64_t, absl::Status> closed_;  // streams that were turned away
  std::unique_ptr<Driver> driver_;
};

TEST_F(DriverTest, WaitsForNoAgentThatCameBetweenALaunchAndItsEnd) {
  LaunchOnTwoHosts();
  ASSERT_EQ(Launches(1, 1), 1);
  ASSERT_EQ(Launches(2, 1), 1);
  // The stream breaks before b has heard of it; it is back as a says that its part is over.
  driver_->DetachAgent(2);
  driver_->RunOnce();
  Bring(3, "b", /*held_generation=*/0);
  SayGroupEnded(1, 1);
  driver_->RunOnce();
  driver_->RunOnce();
  EXPECT_EQ(Launches(3, 1), 0) << "its end is decided";
  EXPECT_EQ(Launches(1, 2), 1);
  EXPECT_EQ(Launches(3, 2), 1);
}

// mpirun may have killed the ranks of one host because it has lost another: that is in doubt.
TEST_F(DriverTest, BlamesTheHostWhoseAgentIsGoneForWhatIsInDoubt) {
  LaunchOnTwoHosts();
  driver_->DetachAgent(2);
  SayInDoubt(1);
  HearOthersOut();
  ASSERT_TRUE(driver_->job().last_failure);
  EXPECT_EQ(driver_->job().last_failure->cause.host, "host-b");
  EXPECT_EQ(driver_->job().last_failure->cause.rank, -1);
}

// It is there, but stands still: its ranks have stopped themselves, as nobody renews their lease.
TEST_F(DriverTest, BlamesTheHostWhoseAgentIsSilentForWhatIsInDoubt) {
  LaunchOnTwoHosts();
  const int64_t lease_ms = *driver_->leases().Grant(1, now_ms_);
  for (int i = 0; i < 16; ++i) {
    now_ms_ += lease_ms / 20;  // 0.8 of it in all, in which b says nothing
    driver_->leases().Grant(1, now_ms_);
    driver_->RunOnce();
  }
  ASSERT_FALSE(driver_->job().last_failure);
  SayInDoubt(1);
  HearOthersOut();
  ASSERT_TRUE(driver_->job().last_failure);
  EXPECT_EQ(driver_->job().last_failure->cause.host, "host-b");
  EXPECT_EQ(driver_->job().last_failure->cause.rank, -1);
  EXPECT_THAT(driver_->job().last_failure->cause.text,
              testing::HasSubstr("the agent on host-b has not been heard for "));
}

// An agent says both in one breath, where it has waited in vain for a better cause.
TEST_F(DriverTest, JudgesWhatIsInDoubtBeforeNothingIsLeftOfItsHost) {
  LaunchOnTwoHosts();
  driver_->DetachAgent(2);
  SayInDoubt(1);
  SayGroupEnded(1, 1);
  driver_->RunOnce();
  EXPECT_FALSE(driver_->job().last_failure);
  HearOthersOut();
  ASSERT_TRUE(driver_->job().last_failure);
  EXPECT_EQ(driver_->job().last_failure->cause.host, "host-b");
  EXPECT_TRUE(FindShare(driver_->job(), "a") == nullptr || FindShare(driver_->job(), "a")->gone)
      << "its end is not forgotten";
}

TEST_F(DriverTest, BelievesWhatIsInDoubtWhereAllAgentsAreThere) {
  LaunchOnTwoHosts();
  SayInDoubt(1);
  HearOthersOut();
  ASSERT_TRUE(driver_->job().last_failure);
  EXPECT_EQ(driver_->job().last_failure->cause.host, "host-a");
  EXPECT_EQ(driver_->job().last_failure->cause.rank, 0);
}

TEST_F(DriverTest, BlamesTheHostThatSawItsEndFirstOfThoseInDoubt) {
  LaunchOnTwoHosts();
  SayInDoubt(1, 200);
  driver_->RunOnce();
  EXPECT_FALSE(driver_->job().last_failure);
  now_ms_ += 10;
  SayInDoubt(2, 215);  // 5 ms before the other one
  HearOthersOut();
  ASSERT_TRUE(driver_->job().last_failure);
  EXPECT_EQ(driver_->job().last_failure->cause.host, "host-b");
}

TEST_F(DriverTest, BlamesTheHostThatIsAbsentForWhatMpirunAnnounces) {
  LaunchOnTwoHosts();
  driver_->DetachAgent(2);
  SayDoomed(1);
  HearOthersOut();
  ASSERT_TRUE(driver_->job().last_failure);
  EXPECT_EQ(driver_->job().last_failure->cause.host, "host-b");
}

// Whoever it is may be starved, and tells later than all the others.
TEST_F(DriverTest, WaitsForACauseWhereMpirunEndsRanksAndNobodyIsAbsent) {
  LaunchOnTwoHosts();
  SayDoomed(1);
  HearOthersOut();
  now_ms_ += 290;
  driver_->RunOnce();
  EXPECT_FALSE(driver_->job().last_failure);
  SayInDoubt(2);
  driver_->RunOnce();
  ASSERT_TRUE(driver_->job().last_failure);
  EXPECT_EQ(driver_->job().last_failure->cause.host, "host-b");
  EXPECT_EQ(driver_->job().last_failure->cause.rank, 0);
}

TEST_F(DriverTest, BlamesNobodyWhereMpirunEndsRanksAndNobodyTellsWhy) {
  LaunchOnTwoHosts();
  SayDoomed(1);
  HearOthersOut();
  now_ms_ += 300;
  driver_->RunOnce();
  ASSERT_TRUE(driver_->job().last_failure);
  EXPECT_EQ(driver_->job().last_failure->cause.host, "");
  EXPECT_EQ(driver_->job().last_failure->cause.rank, -1);
  EXPECT_EQ(driver_->job().last_failure->cause.text, "mpirun ends all ranks");
}

TEST_F(DriverTest, TellsAllRanksOfAnAgentToTrainByOneMessage) {
  JobSpec job = SampleJob();
  job.cluster.slots_per_node = 2;
  job.fault_tolerance.preflight = false;
  job.layout.tp = job.layout.pp = 1;
  job.layout.dp = 2;
  Submit(job);
  Bring(1, "a");
  driver_->RunOnce();
  ASSERT_EQ(Launches(1, 1), 1);
  told_.clear();
  for (int rank = 0; rank < 2; ++rank) {
    driver_->Attach(10 + rank, {.agent = 1, .stream = 5 + rank});
    proto::WorkerReport report;
    report.set_rank(rank);
    report.set_generation(1);
    report.set_sequence(1);
    report.mutable_register_()->set_host("host-a");
    report.mutable_register_()->set_pid(100 + rank);
    report.mutable_register_()->set_version("v");
    report.mutable_register_()->set_world_size(2);
    driver_->Report(10 + rank, report);
  }
  driver_->RunOnce();
  ASSERT_EQ(told_[1].size(), 2u) << "a welcome, and what to train";
  for (const proto::AgentOrder& order : told_[1]) {
    EXPECT_THAT(order.to_ranks().streams(), testing::ElementsAre(5, 6));
  }
  proto::Order order;
  ASSERT_TRUE(order.ParseFromString(told_[1][0].to_ranks().order()));
  EXPECT_TRUE(order.has_welcome());
  EXPECT_EQ(order.acknowledged(), 1);
  ASSERT_TRUE(order.ParseFromString(told_[1][1].to_ranks().order()));
  EXPECT_TRUE(order.has_train());
}

proto::WorkerReport ReportOf(int rank, int64_t sequence) {
  proto::WorkerReport report;
  report.set_rank(rank);
  report.set_generation(1);
  report.set_sequence(sequence);
  return report;
}

// Two ranks of one host train, and have done steps of 100 ms.
class HangDriverTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    Train();
    Step(30);
  }
  void Train() {
    JobSpec job = SampleJob();
    job.cluster.slots_per_node = 2;
    job.fault_tolerance.preflight = false;
    job.layout.tp = job.layout.pp = 1;
    job.layout.dp = 2;
    Submit(job);
    Bring(1, "a");
    driver_->RunOnce();
    for (int rank = 0; rank < 2; ++rank) {
      driver_->Attach(10 + rank, {.agent = 1, .stream = 5 + rank});
      proto::WorkerReport report = ReportOf(rank, 1);
      report.mutable_register_()->set_host("host-a");
      report.mutable_register_()->set_pid(100 + rank);
      report.mutable_register_()->set_version("v");
      report.mutable_register_()->set_world_size(2);
      driver_->Report(10 + rank, report);
    }
    driver_->RunOnce();
    for (int rank = 0; rank < 2; ++rank) {
      proto::WorkerReport report = ReportOf(rank, 2);
      report.mutable_ready();
      driver_->Report(10 + rank, report);
    }
    driver_->RunOnce();
  }
  void Step(int steps) {
    for (int step = 1; step <= steps; ++step) {
      now_ms_ += 100;
      proto::WorkerReport report = ReportOf(0, 2 + step);
      report.mutable_step()->set_step(step);
      driver_->Report(10, report);
      driver_->RunOnce();
    }
    told_.clear();
  }
  // Time passes, and the host is heard meanwhile.
  void Pass(int64_t ms) {
    now_ms_ += ms;
    driver_->leases().Grant(1, now_ms_);
    driver_->Heard(1, {10, 11});
    driver_->RunOnce();
  }
  template <typename Has>
  const proto::AgentOrder* Last(const Has& has) {
    const proto::AgentOrder* last = nullptr;
    for (const proto::AgentOrder& order : told_[1]) last = has(order) ? &order : last;
    return last;
  }
  // The agent says of rank 1 in which state its process is, stopped unless it is said otherwise,
  // and of rank 0 that it waits for it.
  void SayRanks(int64_t number, int64_t still_ms, const std::string& state = "T",
                int64_t idle_ms = 0) {
    proto::AgentReport report;
    report.set_sequence(++sequence_);
    report.mutable_ranks_seen()->set_generation(1);
    report.mutable_ranks_seen()->set_number(number);
    for (int rank = 0; rank < 2; ++rank) {
      proto::RankSeen& seen = *report.mutable_ranks_seen()->add_ranks();
      seen.set_rank(rank);
      seen.set_has_page(true);
      seen.set_state(rank == 1 ? state : "S");
      seen.set_idle_ms(state == "T" ? still_ms : idle_ms);
      seen.set_phase(static_cast<int>(RankPhase::kStep));
      seen.set_step(31);
      seen.set_still_ms(still_ms);
      for (int axis = 0; axis < kMeetingAxes; ++axis) {
        seen.add_group_keys(9);
        seen.add_group_calls(rank == 0 ? 17 : 16);
      }
      if (rank == 1) continue;
      seen.set_call_kind(static_cast<int>(CallKind::kAllReduce));
      seen.set_call_axis(static_cast<int>(MeetingAxis::kWorld));
      seen.set_call_sequence(17);
    }
    driver_->TakeAgentReport(1, report);
    driver_->RunOnce();
  }
};

// Its ranks have done no step yet.
class FirstStepDriverTest : public HangDriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    Train();
    told_.clear();
  }
};

bool IsLook(const proto::AgentOrder& order) {
  return order.has_look_at_ranks();
}
bool TakesStacks(const proto::AgentOrder& order) {
  return order.has_take_stacks();
}
bool StopsGroup(const proto::AgentOrder& order) {
  return order.has_stop_group();
}

TEST_F(HangDriverTest, TakesStacksOfAHangBeforeItEndsAnything) {
  Pass(1000);
  EXPECT_EQ(Last(TakesStacks), nullptr) << "a step may take 2 s";
  Pass(1100);
  ASSERT_NE(Last(IsLook), nullptr);
  SayRanks(Last(IsLook)->look_at_ranks().number(), 2100);
  ASSERT_NE(Last(TakesStacks), nullptr);
  EXPECT_EQ(driver_->job().phase, Phase::kRunning);
  EXPECT_EQ(Last(StopsGroup), nullptr) << "nothing is killed before the stacks are there";
  proto::AgentReport report;
  report.set_sequence(++sequence_);
  report.mutable_stacks_taken()->set_generation(1);
  report.mutable_stacks_taken()->set_number(Last(TakesStacks)->take_stacks().number());
  report.mutable_stacks_taken()->set_file("/run/logs/stacks-a.txt");
  driver_->TakeAgentReport(1, report);
  driver_->RunOnce();
  EXPECT_NE(Last(StopsGroup), nullptr);
  EXPECT_EQ(driver_->job().phase, Phase::kRecovering);
  const GenerationCause& cause = driver_->job().last_failure->cause;
  EXPECT_EQ(cause.rank, 1);
  EXPECT_EQ(cause.host, "host-a");
  EXPECT_EQ(cause.hang.phase, "step");
  EXPECT_EQ(cause.hang.collective, "all-reduce over all ranks (call 17)");
  EXPECT_THAT(cause.hang.stacks, testing::ElementsAre("/run/logs/stacks-a.txt"));
}

TEST_F(FirstStepDriverTest, EndsNobodyWhoComputesHoweverLongItTakes) {
  for (int i = 0; i < 300; ++i) {
    Pass(1000);
    if (Last(IsLook) == nullptr) continue;
    SayRanks(Last(IsLook)->look_at_ranks().number(), 1000 * i, "R", /*idle_ms=*/50);
  }
  EXPECT_EQ(driver_->job().phase, Phase::kRunning);
  EXPECT_EQ(Last(TakesStacks), nullptr);
  const int64_t idle_ms = 1000000;  // now it does nothing
  Pass(1000);
  SayRanks(Last(IsLook)->look_at_ranks().number(), idle_ms, "S", idle_ms);
  EXPECT_NE(Last(TakesStacks), nullptr);
}

TEST_F(HangDriverTest, DoesNotWaitForStacksForEver) {
  Pass(2100);
  SayRanks(Last(IsLook)->look_at_ranks().number(), 2100);
  ASSERT_NE(Last(TakesStacks), nullptr);
  for (int i = 0; i < 6; ++i) Pass(500);
  EXPECT_NE(Last(StopsGroup), nullptr);
  EXPECT_EQ(driver_->job().last_failure->cause.rank, 1);
}

TEST_F(HangDriverTest, EndsNobodyWhoHasMovedWithinItsBudget) {
  for (int i = 0; i < 20; ++i) {
    Pass(400);
    if (Last(IsLook) != nullptr) SayRanks(Last(IsLook)->look_at_ranks().number(), 900);
  }
  EXPECT_EQ(Last(TakesStacks), nullptr) << "the step takes long, but a rank is only slow";
  EXPECT_EQ(driver_->job().phase, Phase::kRunning);
}

TEST_F(HangDriverTest, BelievesNoAnswerToAnOlderQuestion) {
  Pass(2100);
  SayRanks(Last(IsLook)->look_at_ranks().number() - 1, 2100);
  EXPECT_EQ(Last(TakesStacks), nullptr);
}

TEST_F(HangDriverTest, FencesAHostWhoseProcessesCannotBeEnded) {
  proto::AgentReport report;
  report.set_sequence(++sequence_);
  report.mutable_rank_ended()->set_generation(1);
  report.mutable_rank_ended()->mutable_cause()->set_rank(1);
  report.mutable_rank_ended()->mutable_cause()->set_signal(9);
  driver_->TakeAgentReport(1, report);
  driver_->RunOnce();
  ASSERT_NE(Last(StopsGroup), nullptr);
  for (int i = 0; i < 24; ++i) Pass(400);
  EXPECT_TRUE(driver_->job().fenced.empty());
  for (int i = 0; i < 4; ++i) Pass(400);
  ASSERT_EQ(driver_->job().fenced.count("a"), 1u);
  EXPECT_EQ(driver_->leases().Grant(1, now_ms_), std::nullopt) << "it gets no lease any more";
  EXPECT_EQ(driver_->job().generation.number, 1);
  for (int i = 0; i < 20; ++i) Pass(400);
  EXPECT_EQ(driver_->job().generation.number, 2) << "once its lease is over";
  Bring(2, "a", /*held_generation=*/1);
  driver_->RunOnce();
  EXPECT_EQ(Launches(2, 2), 0) << "the same agent still holds what cannot be ended";
}

TEST_F(DriverTest, TakesAgentsOfAnotherBuildButOfOne) {
  Submit(JobOnTwoHosts());
  Bring(1, "a", 0, 0, "yesterday's");
  driver_->RunOnce();
  Bring(2, "b");
  driver_->RunOnce();
  EXPECT_EQ(closed_.count(1), 0u) << "it speaks the same wire";
  ASSERT_EQ(closed_.count(2), 1u);
  EXPECT_THAT(std::string(closed_[2].message()),
              HasSubstr("the agent on host-b is weft v, that on host-a is weft yesterday's"));
  Bring(3, "a");  // installed anew
  Bring(4, "b");
  driver_->RunOnce();
  EXPECT_EQ(closed_.count(4), 0u);
  EXPECT_EQ(Launches(4, 1), 1);
}

TEST_F(DriverTest, KnowsHowManyGpusAHostHas) {
  Submit(JobOnTwoHosts());
  Bring(1, "a");
  driver_->RunOnce();
  EXPECT_EQ(driver_->job().offers.at("a").gpus, 1);
}

TEST_F(DriverTest, PlansForTheSlotsThatHostsOffer) {
  JobSpec job = JobOnTwoHosts();
  job.cluster.slots_per_node = 2;
  Submit(job);
  Bring(1, "a", 0, /*slots=*/2);
  Bring(2, "b", 0, /*slots=*/1);
  driver_->RunOnce();
  EXPECT_EQ(driver_->job().shape, (ClusterShape{2, 1}));
  EXPECT_EQ(driver_->job().world_size(), 2);
  EXPECT_EQ(Launches(2, 1), 1);
}

TEST_F(DriverTest, SaysOnceWhichHostLacksSlotsAndHowToCureIt) {
  JobSpec job = JobOnTwoHosts();
  job.cluster.slots_per_node = 2;
  job.layout.dp = 4;
  Submit(job);
  Bring(1, "a", 0, /*slots=*/2);
  Bring(2, "b", 0, /*slots=*/1);
  driver_->RunOnce();
  EXPECT_THAT(
      driver_->job().reason,
      testing::AllOf(testing::StartsWith("waiting for hosts: there is no plan for 2 of 2 "
                                         "with 1 of 2 slots each: "),
                     testing::EndsWith("; host-b offers 1 of the 2 slots that cluster.slots "
                                       "says of each: start its agent with more --slots, "
                                       "or change the job")));
  const int64_t revision = driver_->job().revision;
  for (int i = 0; i < 5; ++i) driver_->RunOnce();
  EXPECT_EQ(driver_->job().revision, revision) << "it is said once";
  Bring(3, "b", 0, /*slots=*/2);
  driver_->RunOnce();
  EXPECT_EQ(Launches(3, 1), 1);
}

TEST_F(DriverTest, HearsOfAWishToStopBetweenGenerationsToo) {
  Submit(JobOnTwoHosts());
  Bring(1, "a");
  driver_->RunOnce();
  ASSERT_EQ(driver_->job().generation.phase, GenerationPhase::kOpen);
  proto::AgentReport report;
  report.set_sequence(1);
  report.mutable_save_requested();
  driver_->TakeAgentReport(1, report);
  driver_->RunOnce();
  EXPECT_EQ(driver_->job().phase, Phase::kSuspended);
  EXPECT_EQ(told_[1].back().acknowledged(), 1);
}

}  // namespace
}  // namespace weft
