// People and agents of a service who claim to be the agent of another one's job, on the socket as
// other users and over TLS with certificates of weftd's own authority: the job trains on to the
// bits that it would have had. And jobs that would have another user's processes run code of
// theirs.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "process/agent_token.h"
#include "process/rpc.h"
#include "proto/job_text.h"
#include "tests/end_to_end/lacking.h"
#include "tests/places.h"
#include "tests/service/service_bed.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

// Users of any Debian, with the roles that weftd gives them here.
constexpr char kSubmitterUser[] = "daemon", kViewerUser[] = "bin", kAgentUser[] = "sys";
constexpr char kWeftdsUser[] = "root";

class AgentAttacks : public ServiceBed {
 protected:
  void SetUp() override {
    END_FOR_WANT_OF(geteuid() == 0 ? "" : "other users cannot be taken on here; be root");
    ServiceBed::SetUp();
    // Other users come to the socket, and run the attacker, wherever this was built.
    std::filesystem::permissions(folder(), std::filesystem::perms(0755));
    std::filesystem::copy_file(BinaryPath("/bin/weft_attacker"), folder() + "/attacker");
  }
  void TearDown() override {
    if (geteuid() == 0) ServiceBed::TearDown();
  }
  std::vector<std::string> WeftdWords() const override {
    if (!std::filesystem::exists(ca())) MakeCertificates();
    std::vector<std::string> words = ServiceBed::WeftdWords();
    for (const std::string& word :
         {absl::StrCat("--user=", kSubmitterUser, "=submitter"),
          absl::StrCat("--user=", kViewerUser, "=viewer"),
          absl::StrCat("--user=", kAgentUser, "=agent"), std::string("--listen=127.0.0.1:0"),
          "--tls=" + Bundle("server"), "--revoked=" + ca() + "/revoked",
          "--port-file=" + folder() + "/port"}) {
      words.push_back(word);
    }
    return words;
  }

  std::string ca() const { return folder() + "/ca"; }
  std::string Bundle(const std::string& name) const { return folder() + "/" + name + ".pem"; }
  void MakeCertificates() const {
    const auto weftd = [this](const std::string& words) {
      const std::string command = absl::StrCat(WeftdPath(), " ", words, " > /dev/null");
      EXPECT_EQ(system(command.c_str()), 0) << command;
    };
    weftd("authority " + ca());
    weftd(
        absl::StrCat("issue server --authority ", ca(), " --out ", Bundle("server"), " localhost"));
    for (const char* role : {"submitter", "viewer", "agent"}) {
      weftd(absl::StrCat("issue ", role, " --authority ", ca(), " --out ", Bundle(role), " h9"));
    }
  }
  std::string Network() const {
    std::string port;
    EXPECT_TRUE(Eventually(kPatienceS, [&] {
      std::ifstream(folder() + "/port") >> port;
      return !port.empty();
    }));
    return "127.0.0.1:" + port;
  }

  // Returns what weftd says to a call of that user on the socket, or of that certificate over the
  // network.
  std::string OnSocket(const std::string& user, std::vector<std::string> words) {
    words.insert(words.begin(), {"/usr/bin/setpriv", "--reuid=" + user, "--clear-groups",
                                 folder() + "/attacker", "unix:" + socket()});
    return Run(words);
  }
  std::string OverTls(const std::string& bundle, std::vector<std::string> words) {
    words.insert(words.begin(), {folder() + "/attacker", Network()});
    words.push_back("tls=" + Bundle(bundle));
    return Run(words);
  }
};

TEST_F(AgentAttacks, NobodyTakesAJobsAgentsPlaceWithoutItsToken) {
  StartHost(2);
  const std::string job = Submit(Job("victim", 2, 400));
  WaitForStep(job, 5);
  const v1::Host host = Host();
  // Anybody who may look learns so much.
  const auto claim = [&](const std::string& call, const std::string& name) {
    return std::vector<std::string>{call, "job=" + job, "allocation=1", "machine=" + host.machine(),
                                    "host=" + name};
  };
  const std::vector<std::string> attach = claim("attach", host.host());
  const std::string guess = "token=" + std::string(64, '0');
  const auto with_guess = [&](std::vector<std::string> words) {
    words.push_back(guess);
    return words;
  };
  const auto refused = HasSubstr("ABORTED: the agent on ");
  // On the socket.
  EXPECT_THAT(OnSocket(kSubmitterUser, attach), HasSubstr("UNIMPLEMENTED"));
  EXPECT_THAT(OnSocket(kViewerUser, attach), HasSubstr("UNIMPLEMENTED"));
  EXPECT_THAT(OnSocket(kAgentUser, with_guess(attach)), refused);
  EXPECT_THAT(OnSocket(kWeftdsUser, attach), refused);
  EXPECT_THAT(OnSocket(kWeftdsUser, with_guess(attach)), refused);
  EXPECT_THAT(OnSocket(kSubmitterUser, claim("offer", host.host())), HasSubstr("UNIMPLEMENTED"));
  EXPECT_THAT(OnSocket(kAgentUser, claim("offer", host.host())), HasSubstr("is offered already"));
  // With certificates of weftd's own authority.
  EXPECT_THAT(OverTls("submitter", attach), HasSubstr("PERMISSION_DENIED"));
  EXPECT_THAT(OverTls("viewer", attach), HasSubstr("PERMISSION_DENIED"));
  EXPECT_THAT(OverTls("agent", with_guess(attach)), HasSubstr("the certificate is of h9"));
  EXPECT_THAT(OverTls("agent", with_guess(claim("attach", "h9"))), refused);
  EXPECT_THAT(OverTls("agent", claim("offer", "h9")), HasSubstr("is offered already"));
  EXPECT_THAT(OverTls("submitter", claim("offer", "h9")), HasSubstr("PERMISSION_DENIED"));
  // The job has noticed nothing.
  const v1::Job done = WaitForPhase(job, "COMPLETED");
  EXPECT_EQ(done.generation(), 1);
  EXPECT_EQ(Curve("victim"), UndisturbedCurve(2, 400));
}

// Whoever has the agent's token, root of its host for one, is the job's agent; but what it says has
// to be possible.
TEST_F(AgentAttacks, AnEndThatIsNoneIsNotBelievedOfTheJobsOwnAgent) {
  StartHost(2);
  const std::string job = Submit(Job("ended", 2, 200));
  const std::pair<int, std::string> ends[] = {
      {3, "says that it is through after step 3; the job ends at step 200"},
      {200, "says that it is through, but step 200, the last one, was not committed"}};
  std::array<char, 256> rank_host = {};
  ASSERT_EQ(gethostname(rank_host.data(), rank_host.size() - 1), 0);
  int64_t generation = 0;
  for (const auto& [step, why] : ends) {
    generation = WaitFor(job, [&](const v1::Job& seen) {
                   return seen.generation() > generation && seen.phase() == "RUNNING";
                 }).generation();
    const std::string number = absl::StrCat(generation);
    std::string rank_pid;
    for (const Found& rank : Processes("weft-worker ")) {
      const bool is_first = VariableOf(rank.pid, "OMPI_COMM_WORLD_RANK") == "0";
      if (is_first && VariableOf(rank.pid, "WEFT_GENERATION") == number) {
        rank_pid = absl::StrCat(rank.pid);
      }
    }
    const std::vector<Found> agents = Processes(BinaryPath("/bin/weft") + " agent --coordinator");
    ASSERT_EQ(agents.size(), 1u) << Words();
    const v1::Host host = Host();
    const std::string said =
        OnSocket(kWeftdsUser, {"end", "job=" + job, "allocation=1", "machine=" + host.machine(),
                               "host=" + host.host(), absl::StrCat("pid=", agents[0].pid),
                               "token=" + VariableOf(agents[0].pid, kAgentTokenVariable),
                               "generation=" + number, absl::StrCat("rank_host=", rank_host.data()),
                               "rank_pid=" + rank_pid, absl::StrCat("step=", step)});
    EXPECT_THAT(said, HasSubstr(why));
  }
  EXPECT_EQ(WaitForPhase(job, "COMPLETED").step(), 200);
  EXPECT_EQ(Curve("ended"), UndisturbedCurve(2, 200));
}

TEST_F(AgentAttacks, ATokenStandsInNoCommandLineAndIsToldToNoRank) {
  StartHost(2);
  const std::string job = Submit(Job("victim", 2, 4000));
  WaitForStep(job, 5);
  const std::vector<Found> agents = Processes(BinaryPath("/bin/weft") + " agent --coordinator");
  ASSERT_EQ(agents.size(), 1u) << Words();
  const std::string token = VariableOf(agents[0].pid, kAgentTokenVariable);
  EXPECT_EQ(token.size(), 64u);
  for (const Found& each : Processes("")) EXPECT_FALSE(absl::StrContains(each.command, token));
  const std::vector<Found> ranks = Processes("weft-worker ");
  ASSERT_EQ(ranks.size(), 2u);
  for (const Found& rank : ranks) EXPECT_EQ(VariableOf(rank.pid, kAgentTokenVariable), "");
  EXPECT_EQ(Stop(job, v1::StopRequest::NOW), absl::OkStatus());
  WaitForPhase(job, "CANCELLED");
}

// The host takes anybody's jobs, and ranks run as its owner.
class JobAttacks : public AgentAttacks {
 protected:
  std::vector<std::string> HostWords(int slots) const override {
    std::vector<std::string> words = ServiceBed::HostWords(slots);
    words.insert(words.end(), {"--allow=*", "--allow-env=SITE_*"});
    return words;
  }
  // Submits, as the submitter of that certificate, a job that sets these.
  std::string SubmitAsAnother(const std::string& name,
                              const std::map<std::string, std::string>& env) {
    v1::SubmitRequest request = Job(name, 2, 4000);
    JobSpec spec = ParseJobText(request.submission().job()).value();
    spec.env = env;
    request.mutable_submission()->set_job(JobText(spec));
    const auto channel = OpenChannel(Network(), {.file = Bundle("submitter")});
    EXPECT_TRUE(channel.ok()) << channel.status();
    grpc::ClientContext context;
    v1::SubmitReply reply;
    const auto stub = v1::Control::NewStub(*channel);
    EXPECT_EQ(FromGrpc(stub->Submit(&context, request, &reply)), absl::OkStatus());
    return reply.job_id();
  }
};

TEST_F(JobAttacks, AJobOfAnotherUserSetsNoVariableThatLoadsCode) {
  StartHost(2);
  const std::string job = SubmitAsAnother(
      "evil", {{"LD_PRELOAD", "/tmp/evil.so"}, {"OMPI_MCA_plm_rsh_agent", "/tmp/evil"}});
  EXPECT_THAT(WaitForPhase(job, "FAILED").reason(),
              HasSubstr("cluster.env: LD_PRELOAD, OMPI_MCA_plm_rsh_agent: may not be set"));
}

TEST_F(JobAttacks, WhatAJobOfAnotherUserMaySetReachesItsRanksAlone) {
  StartHost(2);
  const std::string job = SubmitAsAnother("mild", {{"NCCL_DEBUG", "WARN"}, {"SITE_X", "y z"}});
  WaitForStep(job, 5);
  const std::vector<Found> ranks = Processes("weft-worker "), starters = Processes("mpirun ");
  ASSERT_EQ(ranks.size(), 2u);
  ASSERT_EQ(starters.size(), 1u);
  for (const Found& rank : ranks) {
    EXPECT_EQ(VariableOf(rank.pid, "NCCL_DEBUG"), "WARN");
    EXPECT_EQ(VariableOf(rank.pid, "SITE_X"), "y z");
  }
  EXPECT_EQ(VariableOf(starters[0].pid, "NCCL_DEBUG"), "");
  EXPECT_EQ(VariableOf(starters[0].pid, "SITE_X"), "");
  EXPECT_EQ(Stop(job, v1::StopRequest::NOW), absl::OkStatus());
  WaitForPhase(job, "CANCELLED");
}

}  // namespace
}  // namespace weft
