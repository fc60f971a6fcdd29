// The shim, as mpirun would start it, and the agent's door where it reports. Real processes; every
// wait is bounded.
#include "launcher/shim/shim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "launcher/agent/shim_door.h"
#include "launcher/machine/child_process.h"
#include "launcher/machine/log_tail.h"
#include "launcher/shim/daemon_request.h"
#include "process/rank_place.h"
#include "tests/launcher/job_file_for_test.h"
#include "tests/places.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// The bound only ends a test that has failed. It is twice what a `sleep` of these tests takes: what
// is not told by then is not told when it ends by itself either.
template <typename Condition>
bool Eventually(const Condition& condition) {
  const Clock::time_point end = Clock::now() + std::chrono::seconds(60);
  while (Clock::now() < end) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return condition();
}

class ShimTest : public testing::Test {
 protected:
  void SetUp() override {
    auto door = ShimDoor::Open(folder_.path() + "/s");
    ASSERT_TRUE(door.ok()) << door.status();
    door_ = *std::move(door);
  }

  ChildProcess Start(const std::vector<std::string>& worker, const std::string& rank = "2") {
    std::vector<std::string> args = {"3", folder_.path() + "/logs"};
    args.insert(args.end(), worker.begin(), worker.end());
    return StartShim(args, {{"OMPI_COMM_WORLD_RANK", rank}});
  }

  ChildProcess StartShim(std::vector<std::string> args, std::map<std::string, std::string> env) {
    args.insert(args.begin(), BinaryPath("/bin/weft-shim"));
    env["WEFT_GENERATION"] = "3";
    env["WEFT_SHIM_SOCKET"] = folder_.path() + "/s";
    auto shim =
        ChildProcess::Start({.argv = args, .env = env, .output = folder_.path() + "/shim.txt"});
    EXPECT_TRUE(shim.ok()) << shim.status();
    return *std::move(shim);
  }

  // Waits for `count` messages.
  std::vector<ShimMessage> Hear(size_t count) {
    std::vector<ShimMessage> heard;
    EXPECT_TRUE(Eventually([&] {
      for (const ShimMessage& message : door_->Take()) heard.push_back(message);
      return heard.size() >= count;
    })) << heard.size();
    heard.resize(std::max(heard.size(), count));
    return heard;
  }

  int CodeOf(ChildProcess& shim) {
    EXPECT_TRUE(Eventually([&] { return shim.Ended().has_value(); }));
    return shim.Ended() ? WEXITSTATUS(*shim.Ended()) : -1;
  }

  const JobFolder folder_;
  std::unique_ptr<ShimDoor> door_;
};

TEST_F(ShimTest, TellsRankAndExitCodeAndLastLines) {
  ChildProcess shim = Start({"sh", "-c", "echo out; echo oops >&2; exit 7"});
  const std::vector<ShimMessage> heard = Hear(2);
  EXPECT_EQ(heard[0].kind, ShimMessage::Kind::kStarted);
  EXPECT_EQ(heard[0].generation, 3);
  EXPECT_EQ(heard[0].rank, 2);
  EXPECT_EQ(heard[1].kind, ShimMessage::Kind::kEnded);
  EXPECT_EQ(heard[1].pid, heard[0].pid);
  EXPECT_TRUE(WIFEXITED(heard[1].wait_status));
  EXPECT_EQ(WEXITSTATUS(heard[1].wait_status), 7);
  EXPECT_EQ(heard[1].last_out, "out\noops\n");
  EXPECT_EQ(CodeOf(shim), 7);
  EXPECT_EQ(ReadTail(folder_.path() + "/logs/rank-2.log", 100), "out\noops\n");
}

TEST_F(ShimTest, TellsTheLastLinesOfALogThatItsWorkerHasBegunAnew) {
  const std::string log = folder_.path() + "/logs/rank-2.log";
  ChildProcess shim = Start({"sh", "-c",
                             "echo out; mv \"$0\" \"$0.1\"; exec > \"$0\" 2>&1; echo oops; "
                             "until [ -e \"$0.go\" ]; do sleep 0.01; done",
                             log});
  EXPECT_EQ(Hear(1)[0].kind, ShimMessage::Kind::kStarted);
  // A shim that held it would keep a file on the disk that the worker has replaced.
  for (const auto& file :
       std::filesystem::directory_iterator("/proc/" + std::to_string(shim.pid()) + "/fd")) {
    std::error_code error;
    EXPECT_EQ(std::filesystem::read_symlink(file.path(), error).string().find(log),
              std::string::npos);
  }
  folder_.Write("logs/rank-2.log.go", "");
  EXPECT_EQ(Hear(1)[0].last_out, "out\noops\n");
  EXPECT_EQ(CodeOf(shim), 0);
}

TEST_F(ShimTest, GivesItsWorkerTheSlotThatTheAgentHasForIt) {
  std::vector<std::string> args = {"3", folder_.path() + "/logs", "sh", "-c",
                                   "echo slot $WEFT_LOCAL_RANK"};
  ChildProcess shim = StartShim(args, {{"OMPI_COMM_WORLD_RANK", "5"},
                                       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                       {"WEFT_PLACES", "0::-1;2::-1"}});
  EXPECT_EQ(Hear(2)[1].last_out, "slot 2\n");
  EXPECT_EQ(CodeOf(shim), 0);
  ChildProcess other =
      StartShim(args, {{"OMPI_COMM_WORLD_RANK", "5"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  EXPECT_EQ(Hear(2)[1].last_out, "slot 2\nslot\n") << "nobody has said a slot";
  EXPECT_EQ(CodeOf(other), 0);
}

TEST_F(ShimTest, PutsItsWorkerOnTheCpusThatTheAgentHasForIt) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(static_cast<size_t>(last), &allowed)) --last;
  const std::string places = PlacesText({{.slot = 0}, {.slot = 1, .cpus = {last}}});
  ChildProcess shim = StartShim({"3", folder_.path() + "/logs", "sed", "-n",
                                 "s/^Cpus_allowed_list:.//p", "/proc/self/status"},
                                {{"OMPI_COMM_WORLD_RANK", "1"},
                                 {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                 {"WEFT_PLACES", places}});
  EXPECT_EQ(Hear(2)[1].last_out, std::to_string(last) + "\n");
  EXPECT_EQ(CodeOf(shim), 0);
}

// A worker that ended by itself, after half a minute, would have another status.
TEST_F(ShimTest, TellsTheSignalThatKilledTheWorkerAtOnce) {
  ChildProcess shim = Start({"sleep", "30"});
  const ShimMessage started = Hear(1)[0];
  door_->Signal(3, SIGKILL);
  const ShimMessage ended = Hear(1)[0];
  EXPECT_EQ(ended.wait_status, SIGKILL);
  EXPECT_EQ(ended.pid, started.pid);
  EXPECT_EQ(CodeOf(shim), 128 + SIGKILL);
}

TEST_F(ShimTest, SaysThatAProgramCannotBeExecuted) {
  ChildProcess shim = Start({"/nonexistent/weft-worker"});
  const ShimMessage ended = Hear(2)[1];
  EXPECT_EQ(WEXITSTATUS(ended.wait_status), 127);
  EXPECT_THAT(ended.last_out, HasSubstr("/nonexistent/weft-worker cannot be executed"));
  EXPECT_EQ(CodeOf(shim), 127);
}

// TERM is mpirun's to everybody before it kills; USR2 may come from a batch system. Both mean "save
// and stop" to a worker.
TEST_F(ShimTest, PassesSignalsOnAsTheWishToSave) {
  for (const int signal : {SIGTERM, SIGUSR1, SIGUSR2}) {
    ChildProcess shim = Start({"sh", "-c",
                               "trap 'echo saved; exit 5' TERM; echo up; "
                               "while :; do sleep 0.02; done"});
    Hear(1);
    const std::string log = folder_.path() + "/logs/rank-2.log";
    ASSERT_TRUE(Eventually([&] { return ReadTail(log, 3) == "up\n"; }));
    kill(shim.pid(), signal);
    const ShimMessage ended = Hear(1)[0];
    EXPECT_EQ(WEXITSTATUS(ended.wait_status), 5) << signal;
    EXPECT_EQ(CodeOf(shim), 5);
  }
}

// Open MPI sends CONT to the ranks that it ends, and waits before it sends TERM.
TEST_F(ShimTest, TellsOnceThatItsStarterAnnouncesTheEnd) {
  ASSERT_EQ(mkfifo((folder_.path() + "/go").c_str(), 0600), 0);
  ChildProcess starter = [&] {
    auto shell = ChildProcess::Start(
        {.argv = {"sh", "-c",
                  absl::StrCat("trap '' CONT; ", BinaryPath("/bin/weft-shim 3 "), folder_.path(),
                               "/logs sleep 30 & shim=$!; read line < ", folder_.path(),
                               "/go; kill -CONT $shim; kill -CONT $shim; wait")},
         .env = {{"OMPI_COMM_WORLD_RANK", "2"},
                 {"WEFT_GENERATION", "3"},
                 {"WEFT_SHIM_SOCKET", folder_.path() + "/s"}},
         .output = folder_.path() + "/shim.txt"});
    EXPECT_TRUE(shell.ok());
    return *std::move(shell);
  }();
  const ShimMessage started = Hear(1)[0];
  std::ofstream(folder_.path() + "/go") << "go\n";
  const ShimMessage doomed = Hear(1)[0];
  EXPECT_EQ(doomed.kind, ShimMessage::Kind::kDoomed);
  EXPECT_EQ(doomed.rank, 2);
  EXPECT_EQ(kill(static_cast<pid_t>(started.pid), 0), 0) << "its worker goes on";
  door_->Signal(3, SIGKILL);
  const ShimMessage ended = Hear(1)[0];
  EXPECT_EQ(ended.kind, ShimMessage::Kind::kEnded) << "the second CONT was no news";
  EXPECT_TRUE(ended.was_doomed);
  EXPECT_TRUE(Eventually([&] { return starter.Ended().has_value(); }));
}

TEST_F(ShimTest, TakesAContFromElsewhereForNothing) {
  ChildProcess shim = Start({"sleep", "30"});
  const ShimMessage started = Hear(1)[0];
  const std::string outsider = absl::StrCat("kill -CONT ", shim.pid());
  ASSERT_EQ(system(outsider.c_str()), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(door_->Take().size(), 0u);
  kill(shim.pid(), SIGKILL);
  const ShimMessage ended = Hear(1)[0];
  EXPECT_TRUE(ended.shim_lost);
  EXPECT_FALSE(ended.was_doomed);
  EXPECT_EQ(ended.pid, started.pid);
}

TEST_F(ShimTest, TakesItsWorkerWithIt) {
  ChildProcess shim = Start({"sleep", "30"});
  const ShimMessage started = Hear(1)[0];
  kill(shim.pid(), SIGKILL);
  const ShimMessage ended = Hear(1)[0];
  EXPECT_EQ(ended.rank, 2);
  EXPECT_EQ(ended.wait_status, SIGKILL);
  EXPECT_TRUE(Eventually([&] { return kill(static_cast<pid_t>(started.pid), 0) != 0; }));
  EXPECT_EQ(door_->open_shims(), 0u);
}

TEST_F(ShimTest, KillsItsWorkerWhenTheAgentIsGone) {
  ChildProcess shim = Start({"sleep", "30"});
  const ShimMessage started = Hear(1)[0];
  door_.reset();
  EXPECT_EQ(CodeOf(shim), 128 + SIGKILL);
  EXPECT_NE(kill(static_cast<pid_t>(started.pid), 0), 0);
}

TEST_F(ShimTest, SaysWhatItLacks) {
  door_.reset();
  ChildProcess alone = Start({"true"});
  EXPECT_EQ(CodeOf(alone), 1);
  EXPECT_THAT(ReadTail(folder_.path() + "/shim.txt", 1000), HasSubstr("cannot be reached"));
  ChildProcess nobody = Start({"true"}, "second");
  EXPECT_EQ(CodeOf(nobody), 2);
  EXPECT_THAT(ReadTail(folder_.path() + "/shim.txt", 1000), HasSubstr("no rank"));
}

// mpirun's remote shell has to stay as long as the daemon does, which the agent knows.
TEST_F(ShimTest, AsksForADaemonAndStaysUntilTheAgentHangsUp) {
  ChildProcess shim = StartShim({"daemon", "weft-host-2", " orted", "-mca", "ess", "\"env\""}, {});
  const ShimMessage asked = Hear(1)[0];
  EXPECT_EQ(asked.kind, ShimMessage::Kind::kDaemonWanted);
  EXPECT_EQ(asked.generation, 3);
  EXPECT_EQ(asked.host, "weft-host-2");
  EXPECT_EQ(asked.args, (std::vector<std::string>{"-mca", "ess", "env"}));
  EXPECT_EQ(asked.pid, shim.pid()) << "as the kernel says it";
  EXPECT_FALSE(shim.Ended());
  door_->HangUp(asked.pid + 1);
  EXPECT_EQ(door_->open_shims(), 1u);
  door_->HangUp(asked.pid);
  EXPECT_EQ(CodeOf(shim), 0);
}

TEST_F(ShimTest, LeavesWhenMpirunIsGone) {
  ChildProcess mpirun = [&] {
    auto parent = ChildProcess::Start(
        {.argv = {"sh", "-c", BinaryPath("/bin/weft-shim daemon weft-host-1 orted & sleep 30")},
         .env = {{"WEFT_SHIM_SOCKET", folder_.path() + "/s"}, {"WEFT_GENERATION", "3"}},
         .output = folder_.path() + "/shim.txt"});
    EXPECT_TRUE(parent.ok());
    return *std::move(parent);
  }();
  const ShimMessage asked = Hear(1)[0];
  ASSERT_EQ(asked.kind, ShimMessage::Kind::kDaemonWanted);
  kill(mpirun.pid(), SIGKILL);  // the shell alone
  EXPECT_TRUE(Eventually([&] {
    door_->Take();
    return door_->open_shims() == 0;
  }));
}

TEST_F(ShimTest, AsksForNothingElseThanADaemon) {
  ChildProcess other = StartShim({"daemon", "weft-host-2", "sh", "-c", "id"}, {});
  EXPECT_EQ(CodeOf(other), 2);
  ChildProcess too_long =
      StartShim({"daemon", "weft-host-2", "orted", std::string(kMostShimBytes, 'x')}, {});
  EXPECT_EQ(CodeOf(too_long), 2);
  EXPECT_THAT(ReadTail(folder_.path() + "/shim.txt", 1000), HasSubstr("longer than 65536 bytes"));
  EXPECT_EQ(door_->Take().size(), 0u);
}

TEST_F(ShimTest, DoorIsForItsOwnerAlone) {
  struct stat entry = {};
  ASSERT_EQ(stat((folder_.path() + "/s").c_str(), &entry), 0);
  EXPECT_EQ(entry.st_mode & 0777, 0600u);
  EXPECT_FALSE(ShimDoor::Open(folder_.path() + "/s").ok()) << "one agent at a time";
}

TEST(ShimText, IsReadAsItWasWritten) {
  ShimMessage message;
  message.kind = ShimMessage::Kind::kEnded;
  message.generation = 4;
  message.rank = 12;
  message.pid = 4711;
  message.wait_status = 9;
  message.last_out.assign(3 * kMostLastBytes, 'x');
  message.last_out += "\nlast";
  const std::string text = ShimText(message);
  EXPECT_LE(text.size(), kMostShimBytes);
  const auto read = ParseShimText(text);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->rank, 12);
  EXPECT_EQ(read->wait_status, 9);
  EXPECT_EQ(read->last_out.size(), kMostLastBytes);
  EXPECT_EQ(read->last_out.substr(kMostLastBytes - 5), "\nlast");
}

TEST(ShimText, OfADoomedRankIsRead) {
  ShimMessage message;
  message.kind = ShimMessage::Kind::kDoomed;
  message.generation = 4;
  message.rank = 12;
  message.pid = 4711;
  const auto read = ParseShimText(ShimText(message));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->kind, ShimMessage::Kind::kDoomed);
  EXPECT_EQ(read->rank, 12);
  EXPECT_FALSE(ParseShimText("weft-shim 3 doomed 4 12"));
}

TEST(ShimText, OfADaemonKeepsItsArguments) {
  ShimMessage message;
  message.kind = ShimMessage::Kind::kDaemonWanted;
  message.generation = 4;
  message.pid = 4711;
  message.host = "weft-host-2";
  message.args = {"-mca", "", "two words", "line\nbreak"};
  const auto read = ParseShimText(ShimText(message));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->kind, ShimMessage::Kind::kDaemonWanted);
  EXPECT_EQ(read->host, "weft-host-2");
  EXPECT_EQ(read->args, message.args);
  message.args.clear();
  EXPECT_TRUE(ParseShimText(ShimText(message)));
}

// As mpirun 4.1.4 passes it to its remote shell, and as that of a user of sh gets it.
TEST(DaemonArguments, AreUnquotedWithoutAShell) {
  using Words = std::vector<std::string>;
  const Words args = {"-mca", "ess", "env", "-mca", "orte_node_regex", "m[1:1-3]@0(3)"};
  const Words quoted = {" orted",           "-mca", "ess", "\"env\"", "-mca", "orte_node_regex",
                        "\"m[1:1-3]@0(3)\""};
  EXPECT_EQ(DaemonArguments(quoted), args);
  Words of_sh = {"(", "test", "!", "-r", "./.profile", "||", ".", "./.profile;"};
  of_sh.insert(of_sh.end(), quoted.begin(), quoted.end());
  of_sh.emplace_back(")");
  EXPECT_EQ(DaemonArguments(of_sh), args);
  EXPECT_EQ(DaemonArguments({"orted", "\"a \\\"b\\\" $c\"", "\"\""}), (Words{"a \"b\" $c", ""}));
  EXPECT_EQ(DaemonArguments({"orted"}), Words{});
}

TEST(DaemonArguments, OfAnotherCommandAreNone) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{},
                                             {"sh", "-c", "id"},
                                             {"/tmp/orted"},
                                             {"env", "orted"},
                                             {"(", "true;", "orted"},
                                             {"orted", "\"open"},
                                             {"orted", "\"a\"b"},
                                             {"orted", "a\"b\""},
                                             {"orted", "'a'"},
                                             {"orted", "\"a\\"}}) {
    EXPECT_FALSE(DaemonArguments(words)) << words.size();
  }
}

TEST(ShimText, OfAnotherVersionOrShapeIsRefused) {
  for (const char* text :
       {"", "weft-shim 2 started 1 0 7", "weft-shim 3 started 1 0", "weft-shim 3 started 1 0 7 8",
        "weft-shim 3 ended 1 0 7", "weft-shim 3 started 0 0 7", "weft-shim 3 started 1 -1 7",
        "weft-shim 3 started 1 x 7", "weft-shim 3 daemon 1 7", "weft-shim 3 daemon 1 7 h2 h3",
        "weft-shim 3 daemon 0 7 h2", "weft-shim 3 daemon 1 7 h2\nno end", "GET / HTTP/1.1"}) {
    EXPECT_FALSE(ParseShimText(text)) << text;
  }
}

}  // namespace
}  // namespace weft
