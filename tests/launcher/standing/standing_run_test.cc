// The standing agent as it runs: this very program, started again with --stand, against a weftd
// that the test plays; what it starts is a small stand-in for `weft agent`.
#include "launcher/standing/standing_run.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "launcher/machine/leftovers.h"
#include "process/authority.h"
#include "process/version.h"
#include "tests/launcher/standing/fleet_link_server.h"
#include "tests/places.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int kPatienceMs = 60000;  // of a loaded machine: it only ends a test that has failed
constexpr int kPollMs = 20;
constexpr int kStillRuns = -1000;

bool Await(const std::function<bool()>& holds) {
  for (int waited = 0; waited < kPatienceMs; waited += kPollMs) {
    if (holds()) return true;
    usleep(kPollMs * 1000);
  }
  return holds();
}

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

bool Lives(pid_t pid) {
  const std::string stat = TextOf(absl::StrCat("/proc/", pid, "/stat"));
  return !stat.empty() && !absl::StrContains(stat, ") Z ");
}

// A standing agent in a process of its own; killed when this goes.
class Standing {
 public:
  Standing(const std::string& coordinator, const std::string& name, const std::string& program,
           const std::string& words, const std::string& bundle_file = "") {
    std::vector<std::string> argv = {"/proc/self/exe", "--stand",  coordinator, name,
                                     program,          bundle_file};
    std::vector<char*> pointers;
    for (std::string& each : argv) pointers.push_back(each.data());
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, words.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (posix_spawn(&pid_, argv[0].c_str(), &files, nullptr, pointers.data(), environ) != 0)
      abort();
    posix_spawn_file_actions_destroy(&files);
  }
  ~Standing() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  void Signal(int signal) const { kill(pid_, signal); }
  // Its exit code, or minus the signal that ended it.
  int Ended() {
    int status = 0;
    if (!Await([&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) return kStillRuns;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
};

class StandingRunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = "/tmp/weft-test-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    name_ = "standing-" + name.substr(name.size() - 6);
    run_ = "run-" + name.substr(name.size() - 6);
    server_ = std::make_unique<FleetLinkServer>(folder_ + "/s");
    // It says who it is, and ends with 5 when it is asked to.
    WriteAgent("trap 'echo asked >&2; exit 5' TERM");
  }
  void TearDown() override {
    standing_.reset();
    KillProcessesOf(run_, ProcessKind::kAny, kPatienceMs, name_);
    server_.reset();
    std::error_code error;
    std::filesystem::remove_all(StandingFolder(name_), error);
    std::filesystem::remove_all(folder_, error);
  }

  void WriteAgent(const std::string& begins) const {
    std::ofstream(folder_ + "/agent") << "#!/bin/sh\n"
                                      << begins << "\necho $$ >> " << folder_
                                      << "/pids\necho \"$@\" >&2\n"
                                         "while :; do sleep 0.05; done\n";
    std::filesystem::permissions(folder_ + "/agent", std::filesystem::perms::owner_all);
  }
  void Stand(const std::string& program = "") {
    standing_.emplace("unix:" + folder_ + "/s", name_,
                      program.empty() ? folder_ + "/agent" : program, folder_ + "/words");
  }
  void StandAndWait(size_t offers = 1) {
    Stand();
    ASSERT_TRUE(Await([&] { return server_->offers().size() >= offers; })) << Words();
  }
  std::string Words() const { return TextOf(folder_ + "/words"); }
  void Give(int64_t allocation) const {
    proto::OfferOrder order;
    proto::StartAgent& start = *order.mutable_start_agent();
    start.set_job_id("job-1");
    start.set_allocation(allocation);
    start.set_run_id(run_);
    start.set_run_folder(folder_ + "/run");
    start.set_host_slots(2);
    start.add_slots(1);
    server_->Send(order);
  }
  void Take(int64_t allocation) const {
    proto::OfferOrder order;
    order.mutable_stop_agent()->set_job_id("job-1");
    order.mutable_stop_agent()->set_allocation(allocation);
    order.mutable_stop_agent()->set_reason("preempted");
    server_->Send(order);
  }
  // The newest stand-in, once there have been so many.
  pid_t Agent(int count = 1) const {
    pid_t pid = 0;
    Await([&] {
      std::ifstream pids(folder_ + "/pids");
      int seen = 0;
      for (pid_t each = 0; pids >> each; ++seen) pid = each;
      return seen >= count && absl::EndsWith(TextOf(folder_ + "/pids"), "\n");
    });
    return pid;
  }
  bool AwaitEnds(size_t count) const {
    return Await([&] { return server_->ended().size() >= count; });
  }

  std::string folder_;
  std::string name_;
  std::string run_;
  std::unique_ptr<FleetLinkServer> server_;
  std::optional<Standing> standing_;
};

TEST_F(StandingRunTest, OffersItsHostAndKeepsTheLease) {
  StandAndWait();
  const proto::HostOffer offer = server_->offers().at(0);
  EXPECT_EQ(offer.wire_version(), kWireVersion);
  EXPECT_EQ(offer.host(), name_);
  EXPECT_EQ(offer.slots(), 2);
  EXPECT_EQ(offer.owner_uid(), getuid());
  EXPECT_THAT(offer.allows(), ElementsAre("*"));
  EXPECT_GT(offer.host_has().cores(), 0);
  EXPECT_THAT(offer.machine(), HasSubstr(name_));
  EXPECT_GT(offer.sent_boot_ms(), 0);
  EXPECT_TRUE(Await([&] { return server_->heartbeats() >= 2; }));
  EXPECT_THAT(server_->offers(), SizeIs(1));
}

TEST_F(StandingRunTest, StartsAnAgentOnceAndReportsHowItEnded) {
  StandAndWait();
  Give(7);
  const pid_t agent = Agent();
  ASSERT_GT(agent, 0) << Words();
  Give(7);
  Take(7);
  ASSERT_TRUE(AwaitEnds(1)) << Words();
  const proto::OfferReport report = server_->ended().at(0);
  EXPECT_EQ(report.sequence(), 1);
  EXPECT_EQ(report.agent_ended().job_id(), "job-1");
  EXPECT_EQ(report.agent_ended().allocation(), 7);
  EXPECT_EQ(report.agent_ended().exit_code(), 5);
  EXPECT_THAT(report.agent_ended().last_words(),
              HasSubstr(absl::StrCat("agent --coordinator=unix:", folder_,
                                     "/s --job-id=job-1 --allocation=7 --run-id=", run_,
                                     " --slots=2 --only-slots=1 --name=", name_)));
  EXPECT_THAT(report.agent_ended().last_words(), HasSubstr("asked\n"));
  EXPECT_EQ(Agent(), agent) << "it was started twice";
}

TEST_F(StandingRunTest, SaysAnEndAgainUntilItIsAcknowledged) {
  server_->Behave({.acknowledges = false});
  StandAndWait();
  Give(7);
  ASSERT_GT(Agent(), 0);
  kill(Agent(), SIGKILL);
  ASSERT_TRUE(AwaitEnds(1)) << Words();
  EXPECT_EQ(server_->ended().at(0).agent_ended().signal(), SIGKILL);
  server_->Cut(absl::UnavailableError("restarting"));
  ASSERT_TRUE(AwaitEnds(2)) << Words();
  EXPECT_EQ(server_->offers().at(1).running_size(), 0);
  EXPECT_EQ(server_->ended().at(1).sequence(), 1);
  // Not even the death of the standing agent makes it forget.
  standing_->Signal(SIGKILL);
  EXPECT_EQ(standing_->Ended(), -SIGKILL);
  server_->Behave({});
  StandAndWait(3);
  ASSERT_TRUE(AwaitEnds(3)) << Words();
  EXPECT_EQ(server_->ended().at(2).agent_ended().signal(), SIGKILL);
  EXPECT_TRUE(Await([&] {
    return !std::filesystem::exists(StandingFolder(name_) + "/allocation-7.json");
  })) << "the record of an acknowledged end is kept";
}

TEST_F(StandingRunTest, TakesOverTheAgentsOfAStandingAgentThatWasKilled) {
  StandAndWait();
  Give(7);
  const pid_t agent = Agent();
  ASSERT_GT(agent, 0);
  standing_->Signal(SIGKILL);
  EXPECT_EQ(standing_->Ended(), -SIGKILL);
  ASSERT_TRUE(Lives(agent)) << "a restart of the standing agent ends jobs";
  StandAndWait(2);
  ASSERT_THAT(server_->offers().at(1).running(), SizeIs(1));
  EXPECT_EQ(server_->offers().at(1).running(0).allocation(), 7);
  Give(7);  // weftd says again what is to run
  Take(7);
  ASSERT_TRUE(AwaitEnds(1)) << Words();
  EXPECT_EQ(server_->ended().at(0).agent_ended().exit_code(), -1) << "only a parent is told more";
  EXPECT_THAT(server_->ended().at(0).agent_ended().last_words(), HasSubstr("asked"));
  EXPECT_FALSE(Lives(agent));
  EXPECT_EQ(Agent(), agent);
}

TEST_F(StandingRunTest, KillsAnAgentThatDoesNotEndWithWhatItHasStarted) {
  WriteAgent("trap '' TERM; WEFT_GENERATION=1 sleep 300 & echo $! > " + folder_ + "/rank");
  StandAndWait();
  Give(7);
  ASSERT_GT(Agent(), 0);
  pid_t rank = 0;
  ASSERT_TRUE(absl::SimpleAtoi(TextOf(folder_ + "/rank"), &rank));
  ASSERT_TRUE(Lives(rank));
  Take(7);
  ASSERT_TRUE(AwaitEnds(1)) << Words();
  EXPECT_EQ(server_->ended().at(0).agent_ended().signal(), SIGKILL);
  EXPECT_FALSE(Lives(rank)) << "the end was said before all had ended";
}

TEST_F(StandingRunTest, EndsItsAgentsAndThenItselfWhenItIsAskedTo) {
  StandAndWait();
  Give(7);
  const pid_t agent = Agent();
  ASSERT_GT(agent, 0);
  standing_->Signal(SIGTERM);
  EXPECT_EQ(standing_->Ended(), 0) << Words();
  EXPECT_FALSE(Lives(agent));
  ASSERT_THAT(server_->ended(), SizeIs(1));
  EXPECT_EQ(server_->ended().at(0).agent_ended().exit_code(), 5);
  ASSERT_THAT(server_->offers(), SizeIs(2)) << "weftd was not told that the host leaves";
  EXPECT_TRUE(server_->offers().at(1).leaves());
  EXPECT_FALSE(std::filesystem::exists(StandingFolder(name_)));
}

TEST_F(StandingRunTest, LeavesItsAgentsToTheNextOneOnAHangUp) {
  StandAndWait();
  Give(7);
  const pid_t agent = Agent();
  ASSERT_GT(agent, 0);
  standing_->Signal(SIGHUP);
  EXPECT_EQ(standing_->Ended(), 0) << Words();
  EXPECT_TRUE(Lives(agent));
}

TEST_F(StandingRunTest, LeavesWithAWordWhenAnotherHasTakenItsPlace) {
  StandAndWait();
  Give(7);
  const pid_t agent = Agent();
  ASSERT_GT(agent, 0);
  server_->Cut(absl::AbortedError("process 4711 has come"));
  EXPECT_EQ(standing_->Ended(), 1);
  EXPECT_THAT(Words(), HasSubstr("another standing agent of this machine has taken this one's "
                                 "place (process 4711 has come)"));
  EXPECT_TRUE(Lives(agent));
}

TEST_F(StandingRunTest, LeavesWhenItIsRefused) {
  server_->Behave({.refuses = absl::PermissionDeniedError("user 7 may not offer hosts")});
  Stand();
  EXPECT_EQ(standing_->Ended(), 1);
  EXPECT_THAT(Words(), HasSubstr("user 7 may not offer hosts"));
}

TEST_F(StandingRunTest, IsAloneOnItsHost) {
  StandAndWait();
  Standing second("unix:" + folder_ + "/s", name_, folder_ + "/agent", folder_ + "/second");
  EXPECT_EQ(second.Ended(), 1);
  EXPECT_THAT(TextOf(folder_ + "/second"), HasSubstr("another standing agent of this host runs"));
}

// The short lease comes once its agent runs: whatever ends it, and however soon, that one is kept.
TEST_F(StandingRunTest, KeepsItsAgentsAndDialsAgainWhenNoLeaseComes) {
  StandAndWait();
  Give(7);
  const pid_t agent = Agent();
  ASSERT_GT(agent, 0);
  server_->Behave({.lease_ms = 500});
  const int heartbeats = server_->heartbeats();
  ASSERT_TRUE(Await([&] { return server_->heartbeats() > heartbeats; })) << Words();
  server_->Behave({.lease_ms = 500, .grants = false});
  ASSERT_TRUE(Await([&] { return server_->offers().size() >= 2; })) << Words();
  EXPECT_EQ(server_->offers().at(1).running_size(), 1);
  EXPECT_TRUE(Lives(agent));
}

TEST_F(StandingRunTest, DialsOverTlsAndGivesItsAgentsTheSameBundle) {
  const int64_t now_s = std::time(nullptr);
  const auto authority = Authority::Create(folder_ + "/ca", now_s);
  ASSERT_TRUE(authority.ok()) << authority.status();
  for (const BundleRole role : {BundleRole::kServer, BundleRole::kAgent}) {
    const bool is_agent = role == BundleRole::kAgent;
    const auto bundle = authority->Issue(
        role, is_agent ? std::vector<std::string>{name_} : std::vector<std::string>{}, now_s);
    ASSERT_TRUE(bundle.ok()) << bundle.status();
    const std::string path = folder_ + (is_agent ? "/agent.pem" : "/server.pem");
    std::ofstream(path) << *bundle;
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  }
  server_ = nullptr;
  server_ = std::make_unique<FleetLinkServer>(folder_ + "/s", folder_ + "/server.pem");
  standing_.emplace(server_->address(), name_, folder_ + "/agent", folder_ + "/words",
                    folder_ + "/agent.pem");
  ASSERT_TRUE(Await([&] { return !server_->offers().empty(); })) << Words();
  Give(7);
  ASSERT_GT(Agent(), 0) << Words();
  Take(7);
  ASSERT_TRUE(AwaitEnds(1)) << Words();
  EXPECT_THAT(server_->ended().at(0).agent_ended().last_words(),
              HasSubstr("--tls=" + folder_ + "/agent.pem\n"));
}

TEST_F(StandingRunTest, StartsTheRealAgentWhichSaysItsJob) {
  Stand(BinaryPath("/bin/weft"));
  ASSERT_TRUE(Await([&] { return !server_->offers().empty(); })) << Words();
  Give(7);
  ASSERT_TRUE(Await([&] { return !server_->hellos().empty(); }))
      << Words() << TextOf(folder_ + "/run/logs/agent-" + name_ + ".log");
  EXPECT_EQ(server_->hellos().at(0).job_id(), "job-1");
  EXPECT_EQ(server_->hellos().at(0).slots(), 1);
  Take(7);
  ASSERT_TRUE(AwaitEnds(1)) << Words();
  EXPECT_THAT(ProcessesOf(run_, ProcessKind::kAny, name_), SizeIs(0));
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  if (argc == 6 && std::string(argv[1]) == "--stand") {
    const absl::Status status = weft::RunStandingAgent({.coordinator = argv[2],
                                                        .bundle_file = argv[5],
                                                        .name = argv[3],
                                                        .slots = 2,
                                                        .allows = {"*"},
                                                        .program = argv[4]});
    if (!status.ok()) std::cerr << status.message() << "\n";
    return status.ok() ? 0 : 1;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
