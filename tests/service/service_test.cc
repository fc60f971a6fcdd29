// A weftd that serves many jobs, with real agents, ranks and clients.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_replace.h"
#include "launcher/job_file/job_yaml.h"
#include "launcher/job_file/resolved_yaml.h"
#include "process/rpc.h"
#include "process/run_lock.h"
#include "tests/end_to_end/lacking.h"
#include "tests/service/service_bed.h"

namespace weft {
namespace {

using testing::HasSubstr;

std::vector<std::string> Phases(const std::vector<v1::Event>& events) {
  std::vector<std::string> phases;
  for (const v1::Event& each : events) {
    if (!each.has_phase()) continue;
    if (phases.empty() || phases.back() != each.phase().phase()) {
      phases.push_back(each.phase().phase());
    }
  }
  return phases;
}

TEST_F(ServiceBed, TrainsAJobOnTheHostsOfItsFleet) {
  StartHost(2);
  const std::string job = Submit(Job("one", 2, 30));
  EXPECT_EQ(job, "job-1");
  const v1::Job done = WaitForPhase(job, "COMPLETED");
  EXPECT_EQ(done.step(), 30);
  EXPECT_EQ(Curve("one").size(), 30u);
  EXPECT_THAT(Phases(Events(job)),
              testing::ElementsAre("QUEUED", "SUBMITTED", "PLANNED", "STARTING", "RUNNING",
                                   "DRAINING", "COMPLETED"));
  EXPECT_TRUE(Eventually(kPatienceS, [&] { return Host().slots_used() == 0; }));
}

// The lines of a job's events.jsonl, each "revision event phase".
std::vector<std::string> EventLines(const std::string& run_folder) {
  std::vector<std::string> lines;
  std::ifstream file(run_folder + "/events.jsonl");
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    EXPECT_EQ(json.at("job"), "job-1");
    lines.push_back(std::to_string(json.at("revision").get<int64_t>()) + " " +
                    json.at("event").get<std::string>() + " " + json.value("phase", ""));
  }
  return lines;
}

TEST_F(ServiceBed, WritesTheFilesOfARunAsARunOfItsOwnWould) {
  StartHost(2);
  const std::string job = Submit(Job("one", 2, 250));
  WaitForStep(job, 5);
  const std::string resolved = folder() + "/one/resolved.yaml";
  ASSERT_TRUE(Eventually(kPatienceS, [&] { return std::filesystem::exists(resolved); }));
  const auto read = ReadJobFile(resolved, {.sets = {}, .check_files = false});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->job.layout.dp, 2);
  EXPECT_EQ(ReadRecord(read->tree).generation, 1);
  KillWeftd();  // what it has written is not written again
  WaitForPhase(job, "COMPLETED");
  const std::vector<std::string> lines = EventLines(folder() + "/one");
  EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()).size(), lines.size());
  std::vector<std::string> words;
  for (const std::string& line : lines) words.push_back(line.substr(line.find(' ') + 1));
  EXPECT_THAT(words, testing::IsSupersetOf({"phase SUBMITTED", "phase STARTING", "phase RUNNING",
                                            "committed ", "phase COMPLETED"}));
  EXPECT_EQ(words.back(), "phase COMPLETED");
}

TEST_F(ServiceBed, TrainsOnWhereFilesOfTheRunCannotBeWrittenAndSaysSo) {
  StartHost(2);
  const std::string run = folder() + "/one";
  std::filesystem::create_directories(run + "/resolved.yaml.part");
  std::filesystem::create_symlink("/dev/full", run + "/events.jsonl");
  const std::string job = Submit(Job("one", 2, 60));
  const v1::Job done = WaitForPhase(job, "COMPLETED");
  EXPECT_EQ(done.step(), 60);
  EXPECT_EQ(done.generation(), 1);
  std::string told;
  for (const v1::Event& each : Events(job)) {
    if (each.has_not_written()) told += each.not_written().what() + "\n";
  }
  EXPECT_THAT(told, HasSubstr(run + "/events.jsonl: cannot append a line"));
  EXPECT_THAT(told, HasSubstr("cannot create " + run + "/resolved.yaml.part"));
}

// Its journals are on a small disk of their own.
class ServiceOnASmallDisk : public ServiceBed {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/weft-small-disk-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    disk_ = pattern;
    is_mounted_ = mount("tmpfs", pattern, "tmpfs", 0, "size=8m") == 0;
    END_FOR_WANT_OF(is_mounted_ ? "" : "a file system cannot be mounted here; be root");
    ServiceBed::SetUp();
  }
  void TearDown() override {
    if (is_mounted_) ServiceBed::TearDown();
    if (is_mounted_) {
      EXPECT_EQ(umount2(disk_.c_str(), MNT_DETACH), 0);
    }
    rmdir(disk_.c_str());
  }
  std::vector<std::string> WeftdWords() const override {
    return {WeftdPath(), "--socket=" + socket(), "--state=" + disk_ + "/state"};
  }
  std::string Filler() const { return disk_ + "/filler"; }
  void Fill() {
    std::ofstream filler(Filler(), std::ios::binary);
    const std::string block(4096, 'x');
    while (filler.write(block.data(), std::ssize(block)).flush()) {
    }
  }
  int64_t ListedRevision() {
    grpc::ClientContext context;
    v1::ListReply reply;
    EXPECT_TRUE(control().List(&context, {}, &reply).ok());
    return reply.revision();
  }

 private:
  std::string disk_;
  bool is_mounted_ = false;
};

TEST_F(ServiceOnASmallDisk, EndsAJobAtOnceThoughTheJournalsDiskIsFull) {
  StartHost(2);
  const std::string job = Submit(Job("one", 2, 20000));
  WaitForStep(job, 5);
  Fill();
  const absl::Status save = Stop(job, v1::StopRequest::SAVE);  // this one waits for room
  EXPECT_TRUE(absl::IsUnavailable(save)) << save;
  EXPECT_EQ(Get(job).phase(), "RUNNING") << "who only looks is answered";
  const int64_t durable = ListedRevision();
  const absl::Status now = Stop(job, v1::StopRequest::NOW);
  EXPECT_TRUE(absl::IsUnavailable(now)) << "nobody is told OK of what is not durable: " << now;
  EXPECT_EQ(ListedRevision(), durable) << "a successor gives the next one to something else";
  EXPECT_TRUE(Eventually(kPatienceS, [&] { return Processes("weft-worker ").empty(); }));
  std::filesystem::remove(Filler());
  WaitForPhase(job, "CANCELLED");
}

TEST_F(ServiceBed, SharesAHostAmongJobsAndQueuesTheRestByPriority) {
  StartHost(2);
  const std::string first = Submit(Job("first", 1, 4000));
  const std::string second = Submit(Job("second", 1, 4000));
  WaitForPhase(first, "RUNNING");
  WaitForPhase(second, "RUNNING");
  const std::string low = Submit(Job("low", 1, 20));
  const std::string high = Submit(Job("high", 1, 20, /*priority=*/5));
  EXPECT_EQ(Get(high).queue_place(), 1);
  EXPECT_EQ(Get(low).queue_place(), 2);
  EXPECT_THAT(Get(high).reason(), HasSubstr("waits for 1 host with 1 slot free"));
  EXPECT_EQ(Host().slots_used(), 2);
  EXPECT_EQ(Stop(first, v1::StopRequest::NOW), absl::OkStatus());
  EXPECT_EQ(WaitForPhase(high, "COMPLETED").step(), 20);
  WaitForPhase(low, "COMPLETED");
  EXPECT_EQ(Get(first).phase(), "CANCELLED");
  EXPECT_EQ(Get(second).phase(), "RUNNING");
  EXPECT_EQ(Stop(second, v1::StopRequest::NOW), absl::OkStatus());
  WaitForPhase(second, "CANCELLED");
  EXPECT_LT(WaitForPhase(high, "COMPLETED").ended_unix_ms(), Get(low).ended_unix_ms());
}

TEST_F(ServiceBed, PausesAndResumesWithTheSameBits) {
  StartHost(2);
  const std::map<int64_t, std::string> undisturbed = UndisturbedCurve(2, 120);
  const std::string job = Submit(Job("paused", 2, 120));
  WaitForStep(job, 30);
  EXPECT_EQ(Pause(job), absl::OkStatus());
  const v1::Job paused = WaitForPhase(job, "PAUSED");
  EXPECT_GE(paused.saved_step(), 30);
  EXPECT_EQ(Host().slots_used(), 0);
  EXPECT_EQ(Resume(job), absl::OkStatus());
  const v1::Job done = WaitForPhase(job, "COMPLETED");
  EXPECT_GT(done.generation(), paused.generation());
  EXPECT_EQ(Curve("paused"), undisturbed);
  const std::vector<std::string> phases = Phases(Events(job));
  EXPECT_THAT(phases, testing::Not(testing::Contains("SUSPENDED")));
  EXPECT_THAT(phases, testing::IsSupersetOf({"DRAINING", "PAUSED", "QUEUED", "COMPLETED"}));
}

TEST_F(ServiceBed, SavesWhenAskedAndGoesOn) {
  StartHost(2);
  const std::string job = Submit(Job("one", 2, 4000));
  EXPECT_TRUE(absl::IsFailedPrecondition(Checkpoint(Submit(Job("waits", 2, 4000)))));
  WaitForStep(job, 5);
  for (int wish = 0; wish < 3; ++wish) {
    const int64_t step = Get(job).step();
    EXPECT_EQ(Checkpoint(job), absl::OkStatus());
    WaitFor(job, [&](const v1::Job& seen) { return seen.saved_step() >= step; });
  }
  const v1::Job seen = WaitForStep(job, Get(job).saved_step() + 5);
  EXPECT_EQ(seen.phase(), "RUNNING");
  EXPECT_EQ(seen.generation(), 1);
  EXPECT_LT(seen.saved_step(), 1000) << "it was the interval's";
  EXPECT_EQ(Stop(job, v1::StopRequest::NOW), absl::OkStatus());
  WaitForPhase(job, "CANCELLED");
}

TEST_F(ServiceBed, StopsWithACheckpointAndASecondJobGoesOnFromIt) {
  StartHost(2);
  const std::map<int64_t, std::string> undisturbed = UndisturbedCurve(2, 120);
  const v1::SubmitRequest request = Job("stopped", 2, 120);
  const std::string job = Submit(request);
  WaitForStep(job, 20);
  EXPECT_EQ(Stop(job, v1::StopRequest::SAVE), absl::OkStatus());
  const v1::Job stopped = WaitForPhase(job, "SUSPENDED");
  ASSERT_GT(stopped.saved_step(), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(Stop(job, v1::StopRequest::SAVE)));
  v1::SubmitRequest again = request;
  again.set_request_id(NewId());
  again.mutable_submission()->mutable_load()->set_step(stopped.saved_step());
  again.mutable_submission()->mutable_load()->set_folder(folder() + "/stopped/checkpoint/step-" +
                                                         std::to_string(stopped.saved_step()));
  again.mutable_submission()->set_last_generation(stopped.generation());
  WaitForPhase(Submit(again), "COMPLETED");
  EXPECT_EQ(Curve("stopped"), undisturbed);
}

TEST_F(ServiceBed, TellsTheLogsOfRanksAndFollowsThemUntilTheJobIsOver) {
  StartHost(2);
  const std::string job = Submit(Job("one", 2, 100));
  WaitForStep(job, 5);
  v1::LogsRequest request;
  request.set_job_id(job);
  request.add_ranks(1);
  request.set_follow(true);
  const auto followed = Logs(request);
  EXPECT_EQ(Get(job).phase(), "COMPLETED");
  ASSERT_EQ(followed.size(), 1u);
  const std::string& text = followed.at("generation-1/rank-1.log");
  EXPECT_EQ(text, ReadText(folder() + "/one/logs/generation-1/rank-1.log"));
  ASSERT_FALSE(text.empty());
  request.set_follow(false);
  request.set_tail_lines(1);
  const std::string last = Logs(request).at("generation-1/rank-1.log");
  EXPECT_EQ(last, text.substr(text.rfind('\n', text.size() - 2) + 1));
  request.clear_ranks();
  const auto all = Logs(request);
  EXPECT_EQ(all.count("generation-1/rank-0.log"), 1u);
  EXPECT_GE(all.size(), 3u) << "the agent's words are missing";
}

TEST_F(ServiceBed, IsKilledUnderRunningJobsAndLosesNothing) {
  StartHost(2);
  const std::map<int64_t, std::string> undisturbed = UndisturbedCurve(1, 250);
  const std::string runs = Submit(Job("runs", 1, 250));
  const std::string other = Submit(Job("other", 1, 250));
  const std::string waits = Submit(Job("waits", 2, 20));
  WaitForStep(runs, 30);
  WaitForStep(other, 30);
  const int64_t revision = Get(waits).revision();
  KillWeftd();
  EXPECT_EQ(Get(waits).phase(), "QUEUED");
  EXPECT_EQ(Get(waits).revision(), revision);
  const v1::Job done = WaitForPhase(runs, "COMPLETED", 300);
  WaitForPhase(other, "COMPLETED", 300);
  EXPECT_EQ(done.generation(), 1) << "its ranks were not adopted";
  EXPECT_EQ(WaitForPhase(waits, "COMPLETED").step(), 20);
  EXPECT_EQ(Curve("runs"), undisturbed);
  EXPECT_EQ(Phases(Events(runs)).back(), "COMPLETED");
}

// Returns a copy of the weftd that says that it is of another commit, as its next build would.
std::string AnotherBuildOf(const std::string& weftd, const std::string& version,
                           const std::string& folder) {
  const std::string commit = version.substr(version.find('(') + 1, 12);
  std::string program = ReadText(weftd);
  size_t patched = 0;
  for (size_t at = program.find(commit); at != std::string::npos; at = program.find(commit, at)) {
    program.replace(at, commit.size(), "feedfeedfeed");
    ++patched;
  }
  EXPECT_GT(patched, 0u) << commit;
  const std::string path = folder + "/weftd-newer";
  std::ofstream(path, std::ios::binary) << program;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

TEST_F(ServiceBed, IsUpgradedUnderRunningJobsAndDowngradedAgain) {
  StartHost(2);
  const std::string runs = Submit(Job("runs", 2, 400));
  const std::string waits = Submit(Job("waits", 2, 20));
  WaitForStep(runs, 50);
  const std::string older = WeftdVersion(), older_path = WeftdPath();
  UseWeftd(AnotherBuildOf(older_path, older, folder()));
  for (const std::string& next : {WeftdPath(), older_path}) {
    UseWeftd(next);
    StopWeftd();
    StartWeftd();
    EXPECT_EQ(WeftdVersion() == older, next == older_path);
    const v1::Job job = WaitForPhase(runs, "RUNNING");
    WaitForStep(runs, job.step() + 50);
    EXPECT_EQ(Get(waits).phase(), "QUEUED");
  }
  EXPECT_EQ(WaitForPhase(runs, "COMPLETED", 300).generation(), 1) << "its ranks were not adopted";
  EXPECT_EQ(WaitForPhase(waits, "COMPLETED").step(), 20);
  EXPECT_EQ(Curve("runs"), UndisturbedCurve(2, 400));
}

TEST_F(ServiceBed, KeepsTheAnswerOfARequestAndChangesNothingTwice) {
  StartHost(2);
  const v1::SubmitRequest request = Job("one", 2, 4000);
  const std::string job = Submit(request);
  EXPECT_EQ(Submit(request), job);
  WaitForPhase(job, "RUNNING");
  v1::PauseRequest pause;
  pause.set_request_id("pause");
  pause.set_job_id(job);
  const auto ask = [&](const v1::PauseRequest& asked) {
    grpc::ClientContext context;
    v1::Job reply;
    return FromGrpc(control().Pause(&context, asked, &reply));
  };
  EXPECT_EQ(ask(pause), absl::OkStatus());
  WaitForPhase(job, "PAUSED");
  EXPECT_EQ(Resume(job), absl::OkStatus());
  WaitForPhase(job, "RUNNING");
  KillWeftd();
  EXPECT_EQ(ask(pause), absl::OkStatus()) << "a late retry";
  pause.set_expected_revision(7);
  EXPECT_TRUE(absl::IsInvalidArgument(ask(pause))) << "the same id for another wish";
  pause.set_request_id("other");
  EXPECT_TRUE(absl::IsAborted(ask(pause))) << "the job is at another revision";
  EXPECT_EQ(Submit(request), job) << "a late retry of the submission";
  WaitForPhase(job, "RUNNING");
  EXPECT_EQ(Stop(job, v1::StopRequest::NOW), absl::OkStatus());
  WaitForPhase(job, "CANCELLED");
}

TEST_F(ServiceBed, ItsJournalsCanBeCheckedOnceItHasEnded) {
  StartHost(2);
  WaitForPhase(Submit(Job("one", 2, 20)), "COMPLETED");
  Submit(Job("waits", 8, 20));
  const auto check = [&] {
    return Run({WeftdPath(), "--check", "--state=" + folder() + "/state"});
  };
  EXPECT_THAT(check(), HasSubstr("is held by another weftd"));
  StopWeftd();
  EXPECT_THAT(check(), HasSubstr("2 jobs, 1 hosts"));
  std::filesystem::resize_file(folder() + "/state/fleet.db", 5000);
  EXPECT_THAT(check(), HasSubstr("is damaged"));
  std::filesystem::remove(folder() + "/state/fleet.db");
  StartWeftd();
  EXPECT_EQ(Submit(Job("other", 8, 20)), "job-1");
}

// One journal is damaged, and the other job's events.jsonl ends with a line that is nested 400,000
// deep, which once took any reader's stack.
TEST_F(ServiceBed, AJobThatCannotBeReplayedIsSetAsideAndOthersGoOn) {
  StartHost(2);
  const std::string broken = Submit(Job("broken", 1, 4000));
  const std::string goes_on = Submit(Job("goes_on", 1, 400));
  WaitForPhase(broken, "RUNNING");
  WaitForPhase(goes_on, "RUNNING");
  StopWeftd();
  const std::string name = "/" + broken + "/allocation-1.db";
  const std::string damage(100, 'x');
  std::fstream(folder() + "/state/jobs" + name, std::ios::in | std::ios::out | std::ios::binary)
      .write(damage.data(), std::ssize(damage));
  std::ofstream(folder() + "/goes_on/events.jsonl", std::ios::app)
      << std::string(400'000, '[') << "\n";
  StartWeftd();
  const std::string aside = folder() + "/state/set-aside/" + broken + ".allocation-1.db";
  EXPECT_THAT(WaitForPhase(broken, "FAILED").reason(),
              testing::AllOf(HasSubstr("the job cannot be replayed: journal "), HasSubstr(name),
                             HasSubstr("it is now " + aside + "; submit the job again")));
  EXPECT_TRUE(std::filesystem::exists(aside));
  EXPECT_EQ(WaitForPhase(goes_on, "COMPLETED").step(), 400);
}

TEST_F(ServiceBed, FailsAJobWhoseRunFolderSomebodyElseHolds) {
  StartHost(2);
  const absl::StatusOr<RunLock> lock = RunLock::Take(folder() + "/one");
  ASSERT_TRUE(lock.ok()) << lock.status();
  ASSERT_EQ(lock->WriteHolder(4242), absl::OkStatus());
  const std::string job = Submit(Job("one", 2, 10));
  EXPECT_THAT(WaitForPhase(job, "FAILED").reason(), HasSubstr("by another weft (pid 4242)"));
}

TEST_F(ServiceBed, RefusesWhatItCannotTakeAndSaysWhy) {
  const auto submit = [&](const v1::SubmitRequest& request) {
    grpc::ClientContext context;
    v1::SubmitReply reply;
    return FromGrpc(control().Submit(&context, request, &reply));
  };
  v1::SubmitRequest request = Job("one", 2, 10);
  request.clear_request_id();
  EXPECT_THAT(submit(request).ToString(), HasSubstr("request_id: has 0 bytes"));
  request.set_request_id(NewId());
  request.set_priority(5000);
  EXPECT_THAT(submit(request).ToString(), HasSubstr("priority: 5000 is outside -1000 to 1000"));
  request.set_priority(0);
  request.mutable_submission()->set_job("{}");
  EXPECT_TRUE(absl::IsInvalidArgument(submit(request)));
  request = Job("one", 2, 10);
  request.mutable_submission()->set_run_folder("relative");
  EXPECT_THAT(submit(request).ToString(), HasSubstr("\"relative\" is not an absolute path"));
  request = Job("one", 2, 10);
  request.set_brings_hosts(true);
  EXPECT_THAT(submit(request).ToString(), HasSubstr("brings_hosts: "));
  request = Job("two", 2, 10);
  *request.mutable_submission()->mutable_job() = absl::StrReplaceAll(
      request.submission().job(), {{"\"dp\":2", "\"dp\":4"}, {"\"nodes\":1", "\"nodes\":2"}});
  const std::string job = Submit(request);
  EXPECT_THAT(submit(Job("two", 2, 10)).ToString(), HasSubstr("is job-1's, which is not over"));
  EXPECT_TRUE(absl::IsNotFound(Stop("job-9", v1::StopRequest::NOW)));
  EXPECT_TRUE(absl::IsNotFound(Stop("../job", v1::StopRequest::NOW)));
  EXPECT_TRUE(absl::IsInvalidArgument(Stop("", v1::StopRequest::NOW)));
  v1::ResizeRequest resize;
  resize.set_request_id(NewId());
  resize.set_job_id(job);
  resize.set_nodes(1);
  grpc::ClientContext context;
  v1::Job resized;
  EXPECT_THAT(FromGrpc(control().Resize(&context, resize, &resized)).ToString(),
              HasSubstr("job-1: there is no plan for 1 host: "))
      << "its dp is for two hosts";
  EXPECT_EQ(Stop(job, v1::StopRequest::SAVE), absl::OkStatus());
  EXPECT_EQ(Get(job).phase(), "CANCELLED");
}

}  // namespace
}  // namespace weft
