// Users of one service try to harm each other, and the user as whom it runs: a real weftd of one
// user, with a submitter, a viewer and strangers, each with an id of its own.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "process/folder_reader.h"
#include "process/rpc.h"
#include "process/run_lock.h"
#include "tests/end_to_end/lacking.h"
#include "tests/places.h"
#include "tests/service/service_bed.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uid_t kService = 12346;  // weftd's and the standing agent's
constexpr uid_t kSubmitter = 12345;
constexpr uid_t kViewer = 12347;
constexpr uid_t kStranger = 12348;  // whom the service does not know
constexpr int64_t kAskMs = 20000;
constexpr int kReaders = 64;  // of logs, that one caller may have

std::vector<std::string> As(uid_t user, std::vector<std::string> words) {
  const std::string id = std::to_string(user);
  words.insert(words.begin(),
               {"/usr/bin/setpriv", "--reuid=" + id, "--regid=" + id, "--clear-groups"});
  return words;
}

class Attacks : public ServiceBed {
 protected:
  void SetUp() override {
    END_FOR_WANT_OF(geteuid() == 0 ? "" : "other users cannot be played here; be root");
    ServiceBed::SetUp();
    secret_ = folder() + "/secret";
    WriteAs(kService, secret_, "stays", 0600);
  }
  // The users of the service reach its programs by a way of their own: this checkout may lie where
  // they may not look.
  void PrepareFolder() override {
    ASSERT_EQ(chown(folder().c_str(), kService, kService), 0);
    ASSERT_EQ(chmod(folder().c_str(), 0755), 0);
    std::filesystem::create_directory(programs());
    const std::string there = programs();
    ASSERT_EQ(mount(BinaryPath("/bin").c_str(), there.c_str(), nullptr, MS_BIND, nullptr), 0);
    // Whoever removes the folder removes no program.
    const unsigned long only_look = MS_BIND | MS_REMOUNT | MS_RDONLY;
    ASSERT_EQ(mount(nullptr, there.c_str(), nullptr, only_look, nullptr), 0);
    UseWeftd(programs() + "/weftd");
  }
  void TearDown() override {
    if (folder().empty()) return;
    umount2(programs().c_str(), MNT_DETACH);  // which only takes the name away
    ServiceBed::TearDown();
  }
  std::string programs() const { return folder() + "/programs"; }
  std::vector<std::string> WeftdWords() const override {
    return As(kService, {WeftdPath(), "--socket=" + socket(), "--state=" + state(),
                         "--user=root=operator", "--user=12345=submitter", "--user=12347=viewer"});
  }
  std::vector<std::string> HostWords(int slots) const override {
    std::vector<std::string> words = ServiceBed::HostWords(slots);
    words[0] = programs() + "/weft";
    words.push_back("--allow=*");
    return As(kService, words);
  }

  // The kernel tells weftd who has connected, whoever speaks later.
  std::unique_ptr<v1::Control::Stub> Caller(uid_t user) const {
    EXPECT_EQ(seteuid(user), 0);
    const auto channel = OpenChannel("unix:" + socket(), {}, Listens::kService);
    EXPECT_EQ(seteuid(0), 0);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return channel.ok() ? v1::Control::NewStub(*channel) : nullptr;
  }
  absl::Status SubmitAs(uid_t user, const v1::SubmitRequest& request, std::string* job = nullptr) {
    grpc::ClientContext context;
    SetDeadline(context, kAskMs);
    v1::SubmitReply reply;
    const absl::Status status = FromGrpc(Caller(user)->Submit(&context, request, &reply));
    if (job != nullptr) *job = reply.job_id();
    return status;
  }
  std::string Weft(uid_t user, std::vector<std::string> words) {
    words.insert(words.begin(), programs() + "/weft");
    return Run(As(user, std::move(words)));
  }

  static void WriteAs(uid_t user, const std::string& path, const std::string& text, mode_t mode) {
    std::ofstream(path) << text;
    ASSERT_EQ(chown(path.c_str(), user, user), 0);
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
  }
  static void MakeFolderAs(uid_t user, const std::string& path, mode_t mode) {
    ASSERT_TRUE(std::filesystem::create_directory(path)) << path;
    ASSERT_EQ(chown(path.c_str(), user, user), 0);
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
  }
  static void LinkAs(uid_t user, const std::string& to, const std::string& path) {
    std::filesystem::create_symlink(to, path);
    ASSERT_EQ(lchown(path.c_str(), user, user), 0);
  }
  static mode_t ModeOf(const std::string& path) {
    struct stat found = {};
    EXPECT_EQ(stat(path.c_str(), &found), 0) << path;
    return found.st_mode & 07777;
  }
  std::string state() const { return folder() + "/state"; }

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
  EXPECT_THAT(Words(), HasSubstr("\"events.jsonl\" is a symbolic link of user 12345"));
}

TEST_F(Attacks, AJobWritesIntoNoFolderOfAnotherUser) {
  MakeFolderAs(kService, folder() + "/operators", 0755);
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
  EXPECT_EQ(made.st_uid, kService);
  EXPECT_EQ(made.st_mode & 022, 0u);
  EXPECT_EQ(ReaderOf(run), kSubmitter);
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
  const std::string standing = "/dev/shm/weft-standing-" + std::to_string(kService) + "@" + host;
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
  MakeFolderAs(kService, run, 0755);
  const absl::StatusOr<RunLock> lock = RunLock::Take(run);
  ASSERT_TRUE(lock.ok()) << lock.status();
  ASSERT_EQ(chmod((run + "/lock").c_str(), 0600), 0);
  WriteAs(kService, run + "/resolved.yaml", "job: {}\n", 0600);
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
