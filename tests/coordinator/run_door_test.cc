// weft.v1 as a private weftd answers it: one job, one user, over a real socket.
#include "coordinator/service/run_door.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "process/rpc.h"
#include "process/version.h"
#include "proto/job_text.h"
#include "proto/wire.h"
#include "tests/coordinator/in_process.h"
#include "tests/plan/sample_jobs.h"

namespace weft {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::HasSubstr;

v1::SubmitRequest RunSubmission(const std::string& request_id) {
  v1::SubmitRequest request;
  request.set_request_id(request_id);
  request.set_brings_hosts(true);
  JobSpec job = SampleJob();
  job.fault_tolerance.preflight = false;
  request.mutable_submission()->set_job(JobText(job));
  request.mutable_submission()->set_run_folder("/run");
  Layout layout;
  layout.dp = 2;
  layout.gradient_accumulation_steps = 8;
  *request.mutable_submission()->mutable_layout() = ToProto(layout).properties();
  return request;
}

class RunDoorTest : public testing::Test {
 protected:
  using Stub = v1::Control::Stub;
  void SetUp() override { ASSERT_EQ(coordinator_.Start(), absl::OkStatus()); }

  template <typename Request, typename Reply>
  absl::Status Ask(grpc::Status (Stub::*call)(grpc::ClientContext*, const Request&, Reply*),
                   const Request& request, Reply* reply) {
    grpc::ClientContext context;
    SetDeadline(context, kPatienceMs);
    return FromGrpc((coordinator_.control().*call)(&context, request, reply));
  }
  // The status of a call alone.
  template <typename Request, typename Reply>
  absl::Status Try(grpc::Status (Stub::*call)(grpc::ClientContext*, const Request&, Reply*),
                   const Request& request) {
    Reply reply;
    return Ask(call, request, &reply);
  }
  v1::SubmitReply Submitted(const v1::SubmitRequest& request) {
    v1::SubmitReply reply;
    EXPECT_EQ(Ask(&Stub::Submit, request, &reply), absl::OkStatus());
    return reply;
  }
  // The job trains, as its agent and two ranks say.
  void Train() {
    Submitted(RunSubmission("r1"));
    host_ = std::make_unique<InProcessHost>(coordinator_);
    const auto order = host_->NextOrder();
    ASSERT_TRUE(order.ok() && order->has_launch()) << order.status();
    for (int rank = 0; rank < 2; ++rank) {
      workers_.push_back(std::make_unique<RawWorker>(host_->rank_target(), 1, rank, 2, Version()));
    }
    for (const auto& worker : workers_) {
      ASSERT_TRUE(worker->WaitFor([](const proto::Order& each) { return each.has_train(); }));
      proto::WorkerReport report;
      report.set_sequence(2);
      report.mutable_ready()->set_allocated_bytes(1000);
      report.mutable_ready()->set_planned_bytes(1000);
      worker->Say(report);
    }
    ASSERT_TRUE(coordinator_.WaitForPhase("RUNNING"));
  }
  // All messages of a watch until `is_enough`.
  std::vector<v1::WatchReply> WatchUntil(
      int64_t after_revision, const std::function<bool(const v1::WatchReply&)>& is_enough,
      absl::Status* status, const std::string& job_id = "job-1") {
    v1::WatchRequest request;
    request.set_job_id(job_id);
    request.set_after_revision(after_revision);
    grpc::ClientContext context;
    SetDeadline(context, kPatienceMs);
    const auto stream = coordinator_.control().Watch(&context, request);
    std::vector<v1::WatchReply> replies;
    v1::WatchReply reply;
    bool enough = false;
    while (!enough && stream->Read(&reply)) {
      replies.push_back(reply);
      enough = is_enough(reply);
    }
    if (enough) context.TryCancel();
    *status = FromGrpc(stream->Finish());
    return replies;
  }

  InProcessCoordinator coordinator_;
  std::unique_ptr<InProcessHost> host_;
  std::vector<std::unique_ptr<RawWorker>> workers_;
};

TEST_F(RunDoorTest, SaysThatItIsPrivate) {
  v1::VersionReply version;
  ASSERT_EQ(Ask(&Stub::Version, v1::VersionRequest(), &version), absl::OkStatus());
  EXPECT_TRUE(version.is_private());
  EXPECT_EQ(version.version(), Version());
  EXPECT_EQ(version.api_version(), "v1.1");
}

TEST_F(RunDoorTest, TakesAJobThatBringsItsHostsAndNoOther) {
  v1::SubmitRequest request = RunSubmission("r1");
  request.set_brings_hosts(false);
  const absl::Status refused = Try(&Stub::Submit, request);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("submit to a weftd of many jobs"));
  request.set_brings_hosts(true);
  request.set_request_id("");
  EXPECT_EQ(Try(&Stub::Submit, request).code(), absl::StatusCode::kInvalidArgument);
  v1::ListReply none;
  ASSERT_EQ(Ask(&Stub::List, v1::ListRequest(), &none), absl::OkStatus());
  EXPECT_EQ(none.jobs_size(), 0);
  EXPECT_EQ(Try(&Stub::Get, v1::GetRequest()).code(), absl::StatusCode::kNotFound);
}

// The second time from its journal, as nothing else is left of it.
TEST_F(RunDoorTest, ARepeatedSubmissionGetsTheSameAnswerAlsoFromASuccessor) {
  const v1::SubmitReply first = Submitted(RunSubmission("r1"));
  EXPECT_EQ(first.job_id(), "job-1");
  EXPECT_GT(first.revision(), 0);
  EXPECT_EQ(Submitted(RunSubmission("r1")).revision(), first.revision());
  coordinator_.Stop();
  ASSERT_EQ(coordinator_.Start(), absl::OkStatus());
  const v1::SubmitReply again = Submitted(RunSubmission("r1"));
  EXPECT_EQ(again.job_id(), "job-1");
  EXPECT_EQ(again.revision(), first.revision());
  v1::SubmitRequest other = RunSubmission("r1");
  other.mutable_submission()->set_run_folder("/elsewhere");
  const absl::Status used = Try(&Stub::Submit, other);
  EXPECT_EQ(used.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(used.message()), HasSubstr("was used for another wish before"));
}

TEST_F(RunDoorTest, TellsOfItsJobWhatAPersonAsks) {
  Train();
  v1::Job job;
  ASSERT_EQ(Ask(&Stub::Get, v1::GetRequest(), &job), absl::OkStatus());
  EXPECT_EQ(job.job_id(), "job-1");
  EXPECT_EQ(job.name(), SampleJob().name);
  EXPECT_EQ(job.owner_uid(), static_cast<int64_t>(geteuid()));
  EXPECT_EQ(job.phase(), "RUNNING");
  EXPECT_EQ(job.run_folder(), "/run");
  EXPECT_EQ(job.layout().at("dp"), "2");
  EXPECT_EQ(job.steps(), SampleJob().training.steps);
  EXPECT_GT(job.submitted_unix_ms(), 0);
  EXPECT_EQ(job.ended_unix_ms(), 0);
  EXPECT_TRUE(job.brings_hosts());
  v1::ListRequest request;
  request.add_phases("RUNNING");
  v1::ListReply list;
  ASSERT_EQ(Ask(&Stub::List, request, &list), absl::OkStatus());
  ASSERT_EQ(list.jobs_size(), 1);
  EXPECT_EQ(list.jobs(0).job_id(), "job-1");
  request.set_phases(0, "QUEUED");
  ASSERT_EQ(Ask(&Stub::List, request, &list), absl::OkStatus());
  EXPECT_EQ(list.jobs_size(), 0);
  request.set_page_size(1001);
  EXPECT_EQ(Try(&Stub::List, request).code(), absl::StatusCode::kInvalidArgument);
  v1::HostsReply hosts;
  ASSERT_EQ(Ask(&Stub::Hosts, v1::HostsRequest(), &hosts), absl::OkStatus());
  ASSERT_EQ(hosts.hosts_size(), 1);
  EXPECT_EQ(hosts.hosts(0).host(), "here");
  EXPECT_EQ(hosts.hosts(0).machine(), "machine-1");
  EXPECT_TRUE(hosts.hosts(0).present());
  EXPECT_EQ(hosts.hosts(0).slots_used(), 2);
  ASSERT_EQ(hosts.hosts(0).job_ids_size(), 1);
}

TEST_F(RunDoorTest, AWatchTellsWholeRevisionsAndResumesBehindEach) {
  Train();
  v1::Job job;
  ASSERT_EQ(Ask(&Stub::Get, v1::GetRequest(), &job), absl::OkStatus());
  absl::Status status;
  const auto is_marked = [&](const v1::WatchReply& reply) {
    return reply.revision() >= job.revision();
  };
  std::vector<v1::Event> all;
  int64_t before = 0;
  for (const v1::WatchReply& reply : WatchUntil(0, is_marked, &status)) {
    for (const v1::Event& event : reply.events()) {
      EXPECT_GT(event.revision(), before) << "cut: " << event.ShortDebugString();
      EXPECT_LE(event.revision(), reply.revision());
      EXPECT_EQ(event.job_id(), "job-1");
      all.push_back(event);
    }
    before = reply.revision();
  }
  ASSERT_GE(all.size(), 4u) << "submitted, planned, starting, running";
  // Behind each revision the rest follows, and nothing twice; behind the last one only a bookmark.
  for (size_t seen = 0; seen < all.size(); ++seen) {
    std::vector<int64_t> rest;
    for (const v1::WatchReply& reply : WatchUntil(all[seen].revision(), is_marked, &status)) {
      for (const v1::Event& event : reply.events()) rest.push_back(event.revision());
    }
    std::vector<int64_t> expected;
    for (const v1::Event& event : all) {
      if (event.revision() > all[seen].revision()) expected.push_back(event.revision());
    }
    EXPECT_EQ(rest, expected);
  }
  for (const int64_t wrong : {int64_t{-1}, job.revision() + 1000}) {
    EXPECT_TRUE(WatchUntil(wrong, is_marked, &status).empty());
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << wrong;
  }
  EXPECT_TRUE(WatchUntil(0, is_marked, &status, "job-9").empty());
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
}

// A step is not journaled: it carries the revision that the watcher can resume from.
TEST_F(RunDoorTest, AStepCarriesTheLastDurableRevision) {
  Train();
  proto::WorkerReport report;
  report.mutable_step()->set_step(1);
  report.mutable_step()->set_loss(5.5);
  workers_[0]->Say(report);
  absl::Status status;
  v1::Event step;
  int64_t told = 0;
  WatchUntil(
      0,
      [&](const v1::WatchReply& reply) {
        for (const v1::Event& event : reply.events()) {
          if (event.has_step()) {
            step = event;
          } else {
            told = event.revision();
          }
        }
        return step.has_step();
      },
      &status);
  EXPECT_EQ(step.step().step(), 1);
  EXPECT_GE(step.revision(), told);
  EXPECT_LE(step.revision(), coordinator_.Status()->revision());
}

TEST_F(RunDoorTest, ACheckpointIsAskedOfRankZeroOnceForEachWish) {
  Train();
  v1::CheckpointRequest request;
  request.set_request_id("save-1");
  request.set_job_id("job-1");
  v1::Job job;
  ASSERT_EQ(Ask(&Stub::Checkpoint, request, &job), absl::OkStatus());
  EXPECT_EQ(job.phase(), "RUNNING");
  EXPECT_TRUE(workers_[0]->WaitFor([](const proto::Order& order) { return order.has_save_now(); }));
  v1::Job again;
  ASSERT_EQ(Ask(&Stub::Checkpoint, request, &again), absl::OkStatus());
  EXPECT_TRUE(MessageDifferencer::Equals(again, job)) << "a retry";
  request.set_expected_revision(job.revision());
  EXPECT_EQ(Try(&Stub::Checkpoint, request).code(), absl::StatusCode::kInvalidArgument);
  request.set_request_id("");
  EXPECT_EQ(Try(&Stub::Checkpoint, request).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RunDoorTest, AMutationOfAnotherRevisionOrJobChangesNothing) {
  Train();
  const int64_t revision = coordinator_.Status()->revision();
  v1::StopRequest stop;
  stop.set_request_id("stop-1");
  stop.set_expected_revision(revision + 1);
  stop.set_level(v1::StopRequest::NOW);
  const absl::Status another = Try(&Stub::Stop, stop);
  EXPECT_EQ(another.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(another.message()), HasSubstr("look at it again"));
  stop.set_job_id("job-7");
  EXPECT_EQ(Try(&Stub::Stop, stop).code(), absl::StatusCode::kNotFound);
  stop.set_deadline_s(3);
  EXPECT_EQ(Try(&Stub::Stop, stop).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(coordinator_.Status()->phase(), "RUNNING");
  EXPECT_EQ(coordinator_.Status()->revision(), revision);
}

TEST_F(RunDoorTest, AStoppedJobIsOverAndNothingMoreIsAskedOfIt) {
  Train();
  v1::StopRequest stop;
  stop.set_request_id("stop-1");
  stop.set_expected_revision(coordinator_.Status()->revision());
  stop.set_level(v1::StopRequest::NOW);
  v1::Job job;
  ASSERT_EQ(Ask(&Stub::Stop, stop, &job), absl::OkStatus());
  host_->GroupEnded(1, /*clean=*/false);
  ASSERT_TRUE(coordinator_.WaitForPhase("CANCELLED"));
  v1::Job again;
  EXPECT_EQ(Ask(&Stub::Stop, stop, &again), absl::OkStatus()) << "a retry, however late";
  EXPECT_TRUE(MessageDifferencer::Equals(again, job));
  v1::CheckpointRequest save;
  save.set_request_id("save-1");
  const absl::Status over = Try(&Stub::Checkpoint, save);
  EXPECT_EQ(over.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(over.message()), "job-1 is CANCELLED already");
  for (int i = 0; i < 1000 && coordinator_.Status()->ended_unix_ms() == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_GE(coordinator_.Status()->ended_unix_ms(), job.submitted_unix_ms());
  absl::Status status;
  const auto until_its_end = [](const v1::WatchReply&) { return false; };
  EXPECT_FALSE(WatchUntil(0, until_its_end, &status).empty());
  EXPECT_EQ(status, absl::OkStatus()) << "the stream of a job that is over ends";
}

TEST_F(RunDoorTest, RefusesWhatTakesAFleetWithTheCure) {
  Train();
  const std::map<std::string, absl::Status> refused = {
      {"Pause", Try(&Stub::Pause, v1::PauseRequest())},
      {"Resume", Try(&Stub::Resume, v1::ResumeRequest())},
      {"Resize", Try(&Stub::Resize, v1::ResizeRequest())},
      {"DrainHost", Try(&Stub::DrainHost, v1::DrainHostRequest())},
      {"UndrainHost", Try(&Stub::UndrainHost, v1::UndrainHostRequest())}};
  for (const auto& [call, status] : refused) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << call;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat(call, " is of a weftd of many jobs")));
    EXPECT_THAT(std::string(status.message()), HasSubstr("weft stop saves the run"));
  }
}

TEST_F(RunDoorTest, TellsWhatRanksHaveWritten) {
  const std::string run = std::filesystem::path(coordinator_.journal()).parent_path() / "run";
  std::filesystem::create_directories(run + "/logs/generation-1");
  std::ofstream(run + "/logs/generation-1/rank-0.log") << "one\ntwo\n";
  std::ofstream(run + "/logs/generation-1/rank-1.log") << "three\n";
  v1::SubmitRequest submission = RunSubmission("r1");
  submission.mutable_submission()->set_run_folder(run);
  Submitted(submission);
  v1::LogsRequest request;
  request.set_generation(1);
  request.set_tail_lines(1);
  request.add_ranks(0);
  grpc::ClientContext context;
  SetDeadline(context, kPatienceMs);
  const auto stream = coordinator_.control().Logs(&context, request);
  std::string text;
  v1::LogsReply piece;
  while (stream->Read(&piece)) {
    EXPECT_EQ(piece.rank(), 0);
    text += piece.text();
  }
  EXPECT_EQ(FromGrpc(stream->Finish()), absl::OkStatus());
  EXPECT_EQ(text, "two\n");
}

TEST_F(RunDoorTest, PlansAndSetsItsLog) {
  v1::PlanRequest request;
  request.set_job(JobText(SampleJob()));
  v1::PlanReply plan;
  ASSERT_EQ(Ask(&Stub::Plan, request, &plan), absl::OkStatus());
  EXPECT_GT(plan.ranks(), 0);
  v1::SetLogLevelRequest level;
  level.set_request_id("log-1");
  level.set_level(v1::SetLogLevelRequest::ERROR);
  v1::SetLogLevelReply before;
  ASSERT_EQ(Ask(&Stub::SetLogLevel, level, &before), absl::OkStatus());
  EXPECT_EQ(before.before(), v1::SetLogLevelRequest::INFO);
  level.set_request_id("log-2");
  level.set_level(v1::SetLogLevelRequest::INFO);
  ASSERT_EQ(Ask(&Stub::SetLogLevel, level, &before), absl::OkStatus());
  EXPECT_EQ(before.before(), v1::SetLogLevelRequest::ERROR);
}

// Whoever was told nothing yet, or hangs up at once, leaves nothing behind that is in the way.
TEST_F(RunDoorTest, WatchersThatHangUpAtOnceAreForgotten) {
  Train();
  for (int i = 0; i < 1100; ++i) {  // more than may watch at a time
    grpc::ClientContext context;
    SetDeadline(context, kPatienceMs);
    const auto stream = coordinator_.control().Watch(&context, v1::WatchRequest());
    context.TryCancel();
    stream->Finish();
  }
  absl::Status status;
  EXPECT_FALSE(WatchUntil(
                   0, [](const v1::WatchReply&) { return true; }, &status)
                   .empty())
      << status;
}

}  // namespace
}  // namespace weft
