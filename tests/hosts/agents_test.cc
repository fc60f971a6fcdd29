// Agents of other hosts, with the real binaries, a real ssh and a real network: they come up, say
// Hello over mutual TLS, survive a cut link, leave with their lifeline, and what is wrong with a
// host is told in weft's words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "launcher/hosts/remote_agent.h"
#include "launcher/hosts/ssh.h"
#include "process/folder_token.h"
#include "process/version.h"
#include "tests/end_to_end/lacking.h"
#include "tests/hosts/host_bed.h"
#include "tests/hosts/kept_bed.h"
#include "tests/places.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Hosts : public ::testing::Test {
 protected:
  using Bed = KeptBed<HostBed, int>;

  void SetUp() override {
    END_FOR_WANT_OF(HostBed::Missing());
    bed_ = Bed::OfProcess().Take(2);
    const char* path = getenv("PATH");
    path_ = path == nullptr ? "" : path;
    setenv("PATH", (bed_->ssh_of_host1() + ":" + path_).c_str(), 1);
  }
  void TearDown() override {
    if (bed_ == nullptr) return;
    agent_.reset();
    if (weftd_ != nullptr) StopWeftd();  // the test has ended early
    bed_->ExpectNothingLeft();
    setenv("PATH", path_.c_str(), 1);
    Bed::OfProcess().GiveBack();
  }
  static void TearDownTestSuite() { Bed::OfProcess().TakeDown(); }

  // weftd on host 1, and an authority in its own /tmp.
  void StartWeftd() {
    const std::string weftd = BinaryPath("/bin/weftd");
    const auto made =
        bed_->Run(1, weftd + " authority /dev/shm/ca && " + weftd +
                         " issue server --authority /dev/shm/ca --out /dev/shm/s.pem");
    ASSERT_EQ(made.exit_code, 0) << made.err;
    port_file_ = bed_->shared() + "/port";
    weftd_ = bed_->Start(1, {weftd, "--socket=/dev/shm/weftd.sock", "--journal=/dev/shm/j.db",
                             "--listen=" + HostBed::Address(1) + ":0", "--tls=/dev/shm/s.pem",
                             "--revoked=/dev/shm/ca/revoked", "--port-file=" + port_file_});
    ASSERT_TRUE(Eventually(120, [&] { return std::filesystem::exists(port_file_); }))
        << weftd_->Stderr();
  }
  void StopWeftd() {
    const auto stopped = bed_->Run(1, "kill $(pgrep -x weftd)");
    EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
    EXPECT_TRUE(weftd_->Wait(kPatienceS).has_value());
    weftd_.reset();
    bed_->Run(1, "rm -rf /dev/shm/*");
  }

  // These options start the agent of host 2 from host 1.
  RemoteAgentOptions Agent() {
    const auto issued = bed_->Run(
        1, BinaryPath("/bin/weftd") + " issue agent h2 --authority " + "/dev/shm/ca --out -");
    std::string port = ReadText(port_file_);
    port.erase(port.find('\n'));
    const std::string token = NewToken();
    EXPECT_EQ(WriteToken(bed_->shared(), token), absl::OkStatus());
    return {.host = {.name = "h2"},
            .starter = SshStarter(bed_->ssh_options()),
            .program = BinaryPath("/bin/weft"),
            .coordinator = HostBed::Address(1) + ":" + port,
            .run_id = "bed",
            .hand_over = {.bundle = issued.out,
                          .env = {{"WEFT_RUN", "bed"}, {"GREETING", "it's \"me\""}},
                          .version = Version(),
                          .run_folder = bed_->shared(),
                          .token = token,
                          .network = HostBed::kNetwork},
            .log = bed_->shared() + "/agent-h2.log"};
  }
  void Start(const RemoteAgentOptions& options) {
    absl::StatusOr<RemoteAgent> agent = RemoteAgent::Start(options);
    ASSERT_TRUE(agent.ok()) << agent.status();
    agent_.emplace(*std::move(agent));
  }
  // How often the coordinator has heard Hello.
  int Hellos() const {
    const std::string log = weftd_->Stderr();
    int count = 0;
    for (size_t at = log.find("agent on h2"); at != std::string::npos;
         at = log.find("agent on h2", at + 1)) {
      ++count;
    }
    return count;
  }
  absl::Status End(double timeout_s = kPatienceS) {
    std::optional<absl::Status> ended;
    Eventually(timeout_s, [&] { return (ended = agent_->Ended()).has_value(); });
    return ended.value_or(absl::DeadlineExceededError("ssh still runs"));
  }
  // An agent that does not come up leaves these words.
  std::string Refusal(const RemoteAgentOptions& options) {
    Start(options);
    const absl::Status status = End();
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(Hellos(), 0);
    return std::string(status.message());
  }

  HostBed* bed_ = nullptr;
  std::unique_ptr<Child> weftd_;
  std::optional<RemoteAgent> agent_;
  std::string port_file_;
  std::string path_;
};

TEST_F(Hosts, AreReachedBySsh) {
  const auto answer = bed_->Run(1, "/usr/bin/ssh " + bed_->ssh_options() + " h2 hostname");
  EXPECT_EQ(answer.out, "h2\n") << answer.err;
  EXPECT_EQ(bed_->Run(2, "/usr/bin/ssh " + bed_->ssh_options() + " h1 hostname").out, "h1\n");
  EXPECT_EQ(bed_->Run(1, "touch /tmp/of_h1").exit_code, 0);
  EXPECT_NE(bed_->Run(2, "ls /tmp/of_h1").exit_code, 0);
  EXPECT_EQ(bed_->Run(1, "rm /tmp/of_h1").exit_code, 0);
}

TEST_F(Hosts, HaveAnAgentForAsLongAsItsLifelineHolds) {
  ASSERT_NO_FATAL_FAILURE(StartWeftd());
  Start(Agent());
  ASSERT_TRUE(Eventually(120, [&] { return Hellos() == 1; })) << weftd_->Stderr();
  // Neither the bundle nor a variable stands in a command line, on either host.
  for (const int host : {1, 2}) {
    for (const std::string& line : bed_->Processes(host)) {
      EXPECT_THAT(line, ::testing::Not(HasSubstr("PRIVATE"))) << host;
      EXPECT_THAT(line, ::testing::Not(HasSubstr("GREETING"))) << host;
    }
  }
  agent_->Leave();
  EXPECT_EQ(End(), absl::OkStatus()) << ReadText(bed_->shared() + "/agent-h2.log");
  StopWeftd();
}

TEST_F(Hosts, HaveAnAgentThatLeavesWhenItsStarterIsKilled) {
  ASSERT_NO_FATAL_FAILURE(StartWeftd());
  Start(Agent());
  ASSERT_TRUE(Eventually(120, [&] { return Hellos() == 1; })) << weftd_->Stderr();
  agent_.reset();  // kills ssh
  EXPECT_TRUE(Eventually(kPatienceS, [&] { return bed_->Run(2, "pgrep -x weft").out.empty(); }));
  StopWeftd();
}

// Slurm does so on a node that was cut off from whoever waits for its agent.
TEST_F(Hosts, HaveAnAgentThatLeavesWhenItIsAskedToAndHearsNobody) {
  ASSERT_NO_FATAL_FAILURE(StartWeftd());
  Start(Agent());
  ASSERT_TRUE(Eventually(120, [&] { return Hellos() == 1; })) << weftd_->Stderr();
  bed_->CutLink(2);
  EXPECT_EQ(bed_->Run(2, "kill $(pgrep -x weft)").exit_code, 0);
  EXPECT_TRUE(Eventually(kPatienceS, [&] { return bed_->Run(2, "pgrep -x weft").out.empty(); }));
  EXPECT_EQ(bed_->Run(2, "ls -A /dev/shm").out, "");
  bed_->RestoreLink(2);
  agent_.reset();
  StopWeftd();
}

TEST_F(Hosts, HaveAnAgentThatDialsAgainOnceItsLinkIsUp) {
  ASSERT_NO_FATAL_FAILURE(StartWeftd());
  Start(Agent());
  ASSERT_TRUE(Eventually(120, [&] { return Hellos() == 1; })) << weftd_->Stderr();
  bed_->CutLink(2);
  // Longer than either side waits for bytes to be taken, shorter than ssh's own patience.
  SleepSeconds(8);
  bed_->RestoreLink(2);
  EXPECT_TRUE(Eventually(kPatienceS, [&] { return Hellos() >= 2; })) << weftd_->Stderr();
  EXPECT_FALSE(agent_->Ended().has_value());
  agent_->Leave();
  EXPECT_EQ(End(), absl::OkStatus());
  StopWeftd();
}

TEST_F(Hosts, AreRefusedInWeftsWords) {
  ASSERT_NO_FATAL_FAILURE(StartWeftd());
  RemoteAgentOptions options = Agent();
  options.hand_over.run_folder = "/tmp";  // there is one on each host, but it is another one
  EXPECT_THAT(Refusal(options), HasSubstr("host h2: run folder /tmp: is another folder there"));
  options = Agent();
  options.hand_over.run_folder = "/no/folder";
  EXPECT_THAT(Refusal(options), HasSubstr("host h2: run folder /no/folder: No such file"));
  options = Agent();
  options.hand_over.version = "0.0.1";
  EXPECT_THAT(Refusal(options), HasSubstr("there but 0.0.1 here; install both from one build"));
  options = Agent();
  options.hand_over.network = "10.79.0.0/24";
  EXPECT_THAT(Refusal(options), HasSubstr("it has no address there, but 10.78.0.12"));
  options = Agent();
  options.program = "/opt/weft/bin/weft";
  EXPECT_THAT(Refusal(options), HasSubstr("/opt/weft/bin/weft is not there"));
  options = Agent();
  options.program = "/etc/passwd";
  EXPECT_THAT(Refusal(options), HasSubstr("/etc/passwd cannot be executed there"));
  StopWeftd();
}

TEST_F(Hosts, AreNamedWhereSshIsNotLetIn) {
  ASSERT_NO_FATAL_FAILURE(StartWeftd());
  RemoteAgentOptions options = Agent();
  options.host.name = "h9";
  EXPECT_THAT(Refusal(options), HasSubstr("host h9: there is no host of that name"));
  options = Agent();
  options.starter = SshStarter("-p 2222 " + bed_->ssh_options());
  EXPECT_THAT(Refusal(options), HasSubstr("host h2: no sshd listens there"));
  options = Agent();
  options.starter = SshStarter(
      "-F none -o StrictHostKeyChecking=yes -o UserKnownHostsFile=/dev/null "
      "-o GlobalKnownHostsFile=/dev/null");
  EXPECT_THAT(Refusal(options), HasSubstr("host h2: its host key is not known here"));
  options = Agent();
  options.starter = SshStarter(
      "-F none -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "
      "-o IdentityFile=/dev/null -o IdentitiesOnly=yes");
  EXPECT_THAT(Refusal(options), HasSubstr("host h2: ssh is not let in"));
  options = Agent();
  options.starter = SshStarter("-o Nonsense=1");
  EXPECT_THAT(Refusal(options), HasSubstr("host h2: ssh does not know an option"));
  StopWeftd();
}

// A job file for one worker; its runs lie in `output_dir`.
std::string WriteJob(const HostBed& bed, const std::string& output_dir) {
  const std::string path = bed.shared() + "/job.yaml";
  std::ofstream(path)
      << "job: {name: tiny, output_dir: " << output_dir << "}\n"
      << "model: {model_type: gpt2, vocab_size: 256, n_positions: 32, n_embd: 32,"
      << " n_layer: 2, n_head: 2}\n"
      << "data: {format: bytes, train: [{path: /usr/share/common-licenses/GPL-3}]}\n"
      << "training: {seq_len: 32, global_batch_size: 2, steps: 100000}\n"
      << "optimizer: {name: sgd, lr: 1.0e-3}\n"
      << "parallelism: {dp: 1, pp: 1, tp: 1}\n"
      << "cluster: {profile: cpu, slots: 1, network: 10.78.0.0/24, "
      << "ssh_options: \"" << bed.ssh_options() << "\"}\n";
  return path;
}

// /tmp is there on both hosts, and is not the same folder.
TEST_F(Hosts, AreHeldAgainstTheRunFolderBeforeARunBegins) {
  const std::string run = BinaryPath("/bin/weft") + " run " + WriteJob(*bed_, "/tmp/runs") +
                          " --hosts h2 --set fault_tolerance.preflight=";
  const auto failed = bed_->Run(1, run + "true; echo exit $?");
  EXPECT_THAT(failed.out, HasSubstr("exit 1")) << failed.err;
  EXPECT_THAT(failed.out, Not(HasSubstr("STARTING")));
  EXPECT_THAT(failed.err, HasSubstr("weft: the job failed: host h2: run folder: /tmp/runs/tiny: "
                                    "No such file"));
  bed_->Run(1, "rm -rf /tmp/runs");
  const auto refused = bed_->Run(1, run + "false; echo exit $?");
  EXPECT_THAT(refused.out, HasSubstr("exit 2")) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("weft: host h2: run folder /tmp/runs/tiny: No such file"));
  EXPECT_EQ(bed_->Run(1, "ls -A /dev/shm").out, "");
  bed_->Run(1, "rm -rf /tmp/runs");
}

TEST_F(Hosts, AreGivenAnAgentByARun) {
  const std::string folder = bed_->shared() + "/tiny";
  const std::string job = WriteJob(*bed_, bed_->shared());
  const std::unique_ptr<Child> run =
      bed_->Start(1, {BinaryPath("/bin/weft"), "run", job, "--hosts", "h2"});
  EXPECT_TRUE(Eventually(120,
                         [&] {
                           return ReadText(folder + "/logs/weftd.log").find("agent on h2") !=
                                  std::string::npos;
                         }))
      << run->Stdout() << run->Stderr();
  const auto stopped = bed_->Run(1, BinaryPath("/bin/weft") + " stop --now " + folder);
  EXPECT_TRUE(run->Wait(120).has_value()) << stopped.err;
}

}  // namespace
}  // namespace weft
