// A service of which weftd, the standing agent and the submitter are three users, as the shipped
// units have it.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/service/users_bed.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uid_t kAgents = 12349;

std::vector<std::string> Umask(const std::string& mask, const std::vector<std::string>& words) {
  std::vector<std::string> all = {"/bin/sh", "-c", "umask " + mask + "; exec \"$@\"", "sh"};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

uid_t OwnerOf(const std::string& path) {
  struct stat found = {};
  EXPECT_EQ(stat(path.c_str(), &found), 0) << path;
  return found.st_uid;
}

class ThreeUsers : public UsersBed {
 protected:
  uid_t AgentsUser() const override { return kAgents; }
  std::vector<std::string> WeftdWords() const override {
    std::vector<std::string> words = UsersBed::WeftdWords();
    words.push_back("--user=12349=agent");
    return Umask("027", words);  // weftd.service's
  }
  std::vector<std::string> HostWords(int slots) const override {
    return Umask("077", UsersBed::HostWords(slots));
  }
  std::string Read(uid_t user, const std::string& path) {
    return Run(As(user, {"/bin/cat", path}));
  }
};

TEST_F(ThreeUsers, TrainAJobInAFolderThatWeftdMakesForThem) {
  StartHost(2);
  const std::string run = folder() + "/runs/of/one/mine";
  const std::string path = folder() + "/mine.yaml";
  WriteAs(kSubmitter, path, JobFileText("mine", 2, 200), 0644);
  const std::string at = "--coordinator=unix:" + socket();
  ASSERT_THAT(Weft(kSubmitter, {"submit", path, at, "--run-folder", run}),
              HasSubstr("job-1: dp=2"));
  WaitForStep("job-1", 5);
  for (const char* program : {"weft-worker ", "mpirun "}) {
    const std::vector<Found> found = Processes(program);
    EXPECT_FALSE(found.empty()) << program;
    for (const Found& each : found) {
      EXPECT_EQ(OwnerOf("/proc/" + std::to_string(each.pid)), kAgents) << program;
    }
  }
  // Saves, gives the host back, and goes on from there.
  ASSERT_EQ(Pause("job-1"), absl::OkStatus());
  const int64_t paused_at = WaitForPhase("job-1", "PAUSED").step();
  EXPECT_TRUE(std::filesystem::exists(run + "/checkpoint/step-" + std::to_string(paused_at) +
                                      "/manifest.json"));
  ASSERT_EQ(Resume("job-1"), absl::OkStatus());
  const v1::Job done = WaitForPhase("job-1", "COMPLETED");
  EXPECT_EQ(done.step(), 200);
  EXPECT_EQ(CurveOf(run).size(), 200u);
  EXPECT_THAT(ReadText(run + "/events.jsonl"),
              AllOf(HasSubstr("COMPLETED"), Not(HasSubstr("not_saved"))));
  // Ranks' files are weftd's to read and remove, and the submitter's to read; nobody else's.
  v1::LogsRequest logs;
  logs.set_job_id("job-1");
  EXPECT_FALSE(Logs(logs).empty());
  const std::string manifest = run + "/checkpoint/step-200/manifest.json";
  EXPECT_EQ(OwnerOf(manifest), kAgents);
  EXPECT_EQ(OwnerOf(run), kServiceUid);
  const std::string rank_log = run + "/logs/generation-1/rank-0.log";
  for (const std::string& each : {manifest, rank_log, run + "/metrics.jsonl", run + "/events.jsonl",
                                  run + "/resolved.yaml"}) {
    EXPECT_THAT(Read(kSubmitter, each), Not(HasSubstr("ermission denied"))) << each;
    EXPECT_THAT(Read(kStranger, each), HasSubstr("ermission denied")) << each;
  }
  for (const uid_t other : {kAgents, kSubmitter, kStranger}) {
    EXPECT_THAT(Read(other, state() + "/fleet.db"), HasSubstr("ermission denied")) << other;
  }
  EXPECT_THAT(Run(As(kSubmitter, {"/usr/bin/touch", run + "/new"})), HasSubstr("ermission denied"));
  EXPECT_EQ(Run(As(kServiceUid, {"/bin/rm", "-r", run})), "");
  EXPECT_FALSE(std::filesystem::exists(run));
}

TEST_F(ThreeUsers, AnAgentsUserIsNotLetIntoWhatIsWeftdsOwn) {
  StartHost(2);
  MakeFolderAs(kServiceUid, folder() + "/keys", 0700);
  WriteAs(kServiceUid, folder() + "/keys/key", "secret", 0600);
  // Whoever submits as weftd's user may name all that is that user's; the agents' may not have it.
  std::string job;
  ASSERT_EQ(SubmitAs(kServiceUid, Job("keys", 2, 1), &job), absl::OkStatus());
  EXPECT_THAT(WaitForPhase(job, "FAILED").reason(),
              AllOf(HasSubstr("/keys: is there, and was not made for user 12349"),
                    HasSubstr("setfacl -R -m u:12349:rwX")));
  EXPECT_THAT(Run(As(kAgents, {"/bin/ls", folder() + "/keys"})), HasSubstr("ermission denied"));
}

// Users of any Debian.
constexpr uid_t kDaemon = 1;

class RootsAgent : public UsersBed {
 protected:
  uid_t AgentsUser() const override { return 0; }
  std::vector<std::string> WeftdWords() const override {
    std::vector<std::string> words = UsersBed::WeftdWords();
    words.push_back("--user=daemon=submitter");
    return words;
  }
  std::vector<std::string> HostWords(int slots) const override {
    std::vector<std::string> words = UsersBed::HostWords(slots);
    words.insert(words.begin(), {"/usr/bin/env", "SECRET_OF_ROOT=x"});
    return words;
  }
  // A line of /proc/PID/status, "Uid": without what does not print.
  static std::string StatusOf(int64_t pid, const std::string& name) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    std::string text;
    for (std::string line; std::getline(status, line);) {
      if (line.rfind(name + ":", 0) != 0) continue;
      std::istringstream words(line.substr(name.size() + 1));
      for (std::string word; words >> word;) text += (text.empty() ? "" : " ") + word;
    }
    return text;
  }
};

TEST_F(RootsAgent, RunsRanksAsWhoeverHasSubmittedThem) {
  StartHost(2);
  const std::string run = folder() + "/runs/mine";
  const std::string path = folder() + "/mine.yaml";
  WriteAs(kDaemon, path, JobFileText("mine", 2, 200), 0644);
  ASSERT_THAT(
      Weft(kDaemon, {"submit", path, "--coordinator=unix:" + socket(), "--run-folder", run}),
      HasSubstr("job-1: dp=2"));
  WaitForStep("job-1", 5);
  for (const char* program : {"weft-worker ", "mpirun ", "weft-shim "}) {
    const std::vector<Found> found = Processes(program);
    EXPECT_FALSE(found.empty()) << program;
    for (const Found& each : found) {
      EXPECT_EQ(StatusOf(each.pid, "Uid"), "1 1 1 1") << program;
      EXPECT_EQ(StatusOf(each.pid, "Gid"), "1 1 1 1") << program;
      EXPECT_EQ(StatusOf(each.pid, "Groups"), "1") << program;
      EXPECT_EQ(StatusOf(each.pid, "CapPrm"), "0000000000000000") << program;
      EXPECT_EQ(StatusOf(each.pid, "CapEff"), "0000000000000000") << program;
      EXPECT_EQ(StatusOf(each.pid, "NoNewPrivs"), "1") << program;
      EXPECT_EQ(VariableOf(each.pid, "SECRET_OF_ROOT"), "") << program;
      EXPECT_EQ(VariableOf(each.pid, "USER"), "daemon") << program;
    }
  }
  ASSERT_EQ(Pause("job-1"), absl::OkStatus());
  WaitForPhase("job-1", "PAUSED");
  EXPECT_TRUE(Processes("weft-worker ").empty());
  ASSERT_EQ(Resume("job-1"), absl::OkStatus());
  EXPECT_EQ(WaitForPhase("job-1", "COMPLETED").step(), 200);
  EXPECT_EQ(CurveOf(run).size(), 200u);
  EXPECT_EQ(OwnerOf(run + "/checkpoint/step-200/manifest.json"), kDaemon);
  EXPECT_EQ(OwnerOf(run + "/logs/generation-1/rank-0.log"), kDaemon);
  v1::LogsRequest logs;
  logs.set_job_id("job-1");
  EXPECT_FALSE(Logs(logs).empty());
}

TEST_F(RootsAgent, RunsNoJobOfWhomItsHostDoesNotKnow) {
  StartHost(2);
  std::string job;
  ASSERT_EQ(SubmitAs(kSubmitter, Job("unknown", 2, 1), &job), absl::OkStatus());
  EXPECT_THAT(WaitForPhase(job, "FAILED").reason(),
              HasSubstr("the job is of user 12345, who is 12345 for weftd and unknown on this "
                        "host"));
}

}  // namespace
}  // namespace weft
