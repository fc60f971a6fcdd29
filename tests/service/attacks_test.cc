// Users of one service try to harm each other, and the user as whom it runs: a real weftd of one
// user, with a submitter, a viewer and strangers, each with an id of its own.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "process/folder_users.h"
#include "process/rpc.h"
#include "process/run_lock.h"
#include "tests/service/users_bed.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kAskMs = 20000;
constexpr int kReaders = 64;  // of logs, that one caller may have

class Attacks : public UsersBed {
 protected:
  void SetUp() override {
    UsersBed::SetUp();
    secret_ = folder() + "/secret";
    WriteAs(kServiceUid, secret_, "stays", 0600);
  }

  std::string secret_;  // a file of the service's user alone
};

// The submitter lets weftd write in a folder of its own, and has a link where weftd has a file.
TEST_F(Attacks, ALinkInTheRunFolderIsNotFollowed) {
  StartHost(2);
  const std::vector<std::string> names = {"lock", "logs", "checkpoint", "checkpoint/.lock"};
  for (const std::string& name : names) {
    const std::string run = "linked-" + std::to_string(&name - names.data());
    MakeFolderAs(kSubmitter, folder() + "/" + run, 0777);
    const std::filesystem::path link = folder() + "/" + run + "/" + name;
    if (link.parent_path() != folder() + "/" + run) {
      MakeFolderAs(kSubmitter, link.parent_path(), 0777);
    }
    LinkAs(kSubmitter, name == "lock" || link.filename() == ".lock" ? secret_ : state(), link);
    std::string job;
    ASSERT_EQ(SubmitAs(kSubmitter, Job(run, 2, 1), &job), absl::OkStatus());
    EXPECT_THAT(WaitForPhase(job, "FAILED").reason(), HasSubstr("is a symbolic link of user 12345"))
        << name;
  }
  EXPECT_EQ(ReadText(secret_), "stays");
  EXPECT_FALSE(std::filesystem::exists(state() + "/.lock"));
  // A file that a job can do without is left alone, and weftd's log says so.
  const std::string run = folder() + "/noted";
  MakeFolderAs(kSubmitter, run, 0777);
  LinkAs(kSubmitter, secret_, run + "/events.jsonl");
  std::string job;
  ASSERT_EQ(SubmitAs(kSubmitter, Job("noted", 2, 1), &job), absl::OkStatus());
  WaitForPhase(job, "COMPLETED");
  EXPECT_EQ(ReadText(secret_), "stays");
  EXPECT_THAT(Words(), AllOf(HasSubstr("\"events.jsonl\" is a symbolic link of user 12345"),
                             Not(HasSubstr("line at byte"))))
      << "nor is it read";
}

// The submitter owns the run folder, and puts a link in the place of a folder there while ranks of
// another user train.
TEST_F(Attacks, ALinkInPlaceOfTheCheckpointsLeadsNobodyElsewhere) {
  StartHost(2);
  const std::string run = folder() + "/swapped", saved = run + "/checkpoint";
  const std::string victims = folder() + "/victims", events = run + "/events.jsonl";
  MakeFolderAs(kServiceUid, victims, 0755);
  MakeFolderAs(kSubmitter, run, 0777);
  std::string job;
  ASSERT_EQ(SubmitAs(kSubmitter, Job("swapped", 2, 4000), &job), absl::OkStatus());
  WaitForStep(job, 5);
  std::filesystem::rename(saved, run + "/aside");
  LinkAs(kSubmitter, victims, saved);
  ASSERT_EQ(Checkpoint(job), absl::OkStatus());
  const auto says = [&](const std::string& words) {
    return Eventually(kPatienceS,
                      [&] { return ReadText(events).find(words) != std::string::npos; });
  };
  EXPECT_TRUE(says("not_saved")) << ReadText(events);
  EXPECT_THAT(ReadText(events), HasSubstr("is a symbolic link of user 12345"));
  EXPECT_TRUE(std::filesystem::is_empty(victims));
  std::filesystem::remove(saved);
  std::filesystem::rename(run + "/aside", saved);
  ASSERT_EQ(Checkpoint(job), absl::OkStatus());
  EXPECT_TRUE(says("\"committed\"")) << ReadText(events);
  EXPECT_EQ(Stop(job, v1::StopRequest::NOW), absl::OkStatus());
  WaitForPhase(job, "CANCELLED");
}

TEST_F(Attacks, AJobWritesIntoNoFolderOfAnotherUser) {
  MakeFolderAs(kServiceUid, folder() + "/operators", 0755);
  MakeFolderAs(kStranger, folder() + "/strangers", 0777);
  MakeFolderAs(kSubmitter, folder() + "/closed", 0755);
  const auto said = [&](const v1::SubmitRequest& request) {
    const absl::Status status = SubmitAs(kSubmitter, request);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(said(Job("operators", 2, 1)),
              HasSubstr("/operators belongs to user 12346 and was not made for user 12345"));
  EXPECT_THAT(said(Job("strangers", 2, 1)), HasSubstr("belongs to user 12348"));
  EXPECT_THAT(said(Job("closed", 2, 1)), HasSubstr("cannot be written by user 12346"));
  v1::SubmitRequest inside = Job("inside", 2, 1);
  inside.mutable_submission()->set_run_folder(folder() + "/closed/inside");
  EXPECT_THAT(said(inside), AllOf(HasSubstr("run_folder: " + folder() +
                                            "/closed/inside cannot be made by user "
                                            "12346, as whom weftd runs: Permission"),
                                  HasSubstr("name a folder")));
}

TEST_F(Attacks, ASubmitterReadsTheRunThatWeftdMakesAndOthersDoNot) {
  StartHost(2);
  const std::string run = folder() + "/mine";
  const std::string path = folder() + "/mine.yaml";
  WriteAs(kSubmitter, path, JobFileText("mine", 2, 2), 0644);
  const std::string at = "--coordinator=unix:" + socket();
  EXPECT_THAT(Weft(kSubmitter, {"submit", path, at}), HasSubstr("job-1: dp=2"));
  WaitForPhase("job-1", "COMPLETED");
  struct stat made = {};
  ASSERT_EQ(stat(run.c_str(), &made), 0);
  EXPECT_EQ(made.st_uid, kServiceUid);
  EXPECT_EQ(made.st_mode & 022, 0u);
  EXPECT_EQ(UsersOf(run).readers, std::set<uid_t>{kSubmitter});
  EXPECT_THAT(Run(As(kSubmitter, {"/bin/cat", run + "/resolved.yaml"})),
              HasSubstr("name: \"mine\""));
  EXPECT_THAT(Run(As(kStranger, {"/bin/cat", run + "/resolved.yaml"})), HasSubstr("denied"));
  EXPECT_THAT(Run(As(kSubmitter, {"/usr/bin/touch", run + "/new"})), HasSubstr("denied"));
  EXPECT_THAT(Weft(kSubmitter, {"submit", path, at, "--set", "training.steps=3"}),
              HasSubstr("resume: " + run + " from step 2"));
  EXPECT_EQ(WaitForPhase("job-2", "COMPLETED").step(), 3);
  EXPECT_THAT(Weft(kSubmitter, {"submit", path, at, "--fresh"}), HasSubstr("--fresh: " + run));
}

// Nobody knows in which order weftd hears of calls that are made at once: it is counted how many it
// refuses.
TEST_F(Attacks, AViewersReadersOfLogsShutOutNobody) {
  constexpr int kTooMany = 16;
  v1::LogsRequest request;
  request.set_job_id(Submit(Job("queued", 2, 1)));
  request.set_follow(true);
  const auto viewer = Caller(kViewer);
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::thread> readers;
  std::atomic<int> refused = 0;
  for (int i = 0; i < kReaders + kTooMany; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.emplace_back([&, context = contexts.back().get()] {
      const auto stream = viewer->Logs(context, request);
      v1::LogsReply reply;
      while (stream->Read(&reply)) continue;
      const absl::Status end = FromGrpc(stream->Finish());
      if (absl::IsCancelled(end)) return;  // it has read on until the test's end
      EXPECT_THAT(std::string(end.message()), HasSubstr("has 64 readers of logs"));
      ++refused;
    });
  }
  EXPECT_TRUE(Eventually(kPatienceS, [&] { return refused == kTooMany; })) << refused;
  v1::LogsRequest once = request;
  once.set_follow(false);
  grpc::ClientContext context;
  SetDeadline(context, kAskMs);
  const auto other = Caller(kSubmitter)->Logs(&context, once);
  v1::LogsReply reply;
  while (other->Read(&reply)) continue;
  EXPECT_EQ(FromGrpc(other->Finish()), absl::OkStatus());
  EXPECT_EQ(refused, kTooMany);
  for (const auto& each : contexts) each->TryCancel();
  for (std::thread& each : readers) each.join();
}

// Names in /dev/shm are anybody's.
TEST_F(Attacks, ASquattedNameInSharedMemoryIsSteppedAround) {
  const std::string host = std::filesystem::path(folder()).filename();
  const std::string standing = "/dev/shm/weft-standing-" + std::to_string(kServiceUid) + "@" + host;
  MakeFolderAs(kStranger, standing, 0755);
  StartHost(2);
  EXPECT_TRUE(std::filesystem::exists(standing + "+1"));
  std::filesystem::remove(standing);
  RestartHost(SIGHUP, 2);  // finds its records where they are
  EXPECT_FALSE(std::filesystem::exists(standing));
  WaitForPhase(Submit(Job("one", 2, 1)), "COMPLETED");
}

TEST_F(Attacks, AnothersRunIsNotSaidToBeOverOrDamaged) {
  const std::string run = folder() + "/private";
  MakeFolderAs(kServiceUid, run, 0755);
  const absl::StatusOr<RunLock> lock = RunLock::Take(run);
  ASSERT_TRUE(lock.ok()) << lock.status();
  ASSERT_EQ(chmod((run + "/lock").c_str(), 0600), 0);
  WriteAs(kServiceUid, run + "/resolved.yaml", "job: {}\n", 0600);
  for (const char* verb : {"stop", "status", "attach", "watch", "logs"}) {
    EXPECT_THAT(Weft(kStranger, {verb, run}),
                AllOf(HasSubstr("cannot be read by user 12348: Permission denied"),
                      Not(HasSubstr("nothing runs")), Not(HasSubstr("damaged"))))
        << verb;
  }
  ASSERT_EQ(chmod((run + "/lock").c_str(), 0644), 0);
  EXPECT_THAT(Weft(kStranger, {"eval", run}),
              AllOf(HasSubstr("resolved.yaml: cannot be read by user 12348: Permission denied"),
                    Not(HasSubstr("damaged"))));
}

TEST_F(Attacks, StateIsItsUsersAloneAndIsNotTakenForEmpty) {
  StopWeftd();
  EXPECT_EQ(ModeOf(state()), 0700u);
  ASSERT_EQ(chmod(state().c_str(), 0777), 0);
  StartWeftd();
  EXPECT_EQ(ModeOf(state()), 0700u);
  EXPECT_THAT(Words(), HasSubstr("had mode 777, and has 0700 now"));
  StopWeftd();
  std::filesystem::remove(state() + "/fleet.db");
  std::filesystem::create_directory(state() + "/jobs/job-1");
  EXPECT_THAT(Run(WeftdWords()), AllOf(HasSubstr(state() + "/fleet.db: is missing, though " +
                                                 state() + "/jobs has journals of its jobs"),
                                       HasSubstr("put it back")));
  ASSERT_EQ(chown(state().c_str(), kStranger, kStranger), 0);
  ASSERT_EQ(chmod(state().c_str(), 0755), 0);
  EXPECT_THAT(Run(WeftdWords()), HasSubstr("belongs to user 12348, and weftd runs as user 12346"));
  std::filesystem::remove_all(state());
  StartWeftd();
}

}  // namespace
}  // namespace weft
