// One job on three hosts: the losses are those of one host, whatever is killed; who it was is said,
// and nothing is left anywhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/hosts/hosts_run.h"
#include "tests/places.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

// On an idle machine it is 1.5 s at most (bench/README.md). Other tests run beside, so it may take
// as long again as the first start of the same run has, with its first steps.
constexpr double kTrainsAgainWithinS = 1.5;

// Links are measured by the means of training, among as many workers as the hosts are named with.
// The hosts are not checked before: they share this machine with other tests.
TEST_F(HostsRun, CanBeMeasuredIntoAProfile) {
  const std::string profile = bed_->shared() + "/lab.yaml";
  const std::vector<std::string> command = {BinaryPath("/bin/weft"),
                                            "calibrate",
                                            "--output",
                                            profile,
                                            "--slots",
                                            "1",
                                            "--seconds",
                                            "2",
                                            "--hosts",
                                            kThreeHosts,
                                            "--set",
                                            "cluster.ssh_options=" + bed_->ssh_options(),
                                            "--set",
                                            "fault_tolerance.preflight=false",
                                            "--set",
                                            absl::StrCat("cluster.network=", HostBed::kNetwork)};
  run_ = bed_->Start(1, command, {});
  const auto ended = run_->Wait(240);
  ASSERT_TRUE(ended) << run_->Stdout();
  ASSERT_EQ(ended->signal, 0) << run_->Stdout() << run_->Stderr();
  ASSERT_EQ(ended->exit_code, 0) << run_->Stdout() << run_->Stderr();
  EXPECT_THAT(run_->Stdout(), HasSubstr("measuring links among 3 hosts, 2 workers on each"));
  EXPECT_THAT(run_->Stdout(), HasSubstr("GB/s a NIC, of which a host has 1"));
  const std::string text = ReadText(profile);
  EXPECT_THAT(text, HasSubstr("inter_node: {latency_s: "));
  EXPECT_THAT(text, HasSubstr("collective: all_reduce, ranks: 3, bytes: 4096"));
  EXPECT_THAT(text, HasSubstr("nodes: 3}"));
  EXPECT_FALSE(std::filesystem::exists(bed_->shared() + "/lab-links")) << "the run is left";
}

TEST_F(HostsRun, GivesTheVeryLossesOfOneHost) {
  const std::map<int64_t, std::string> alone = CurveOfOneHost();
  StartOnThreeHosts(WriteJob(kFixed, OnThreeHosts()));
  ExpectEnd();
  EXPECT_EQ(Curve(), alone);
  const std::string words = run_->Stdout();
  EXPECT_THAT(words.substr(words.find("try next:")), HasSubstr(" --hosts h1")) << "the same hosts";
}

// A slot is a device or a share of the cores: which one a rank has is the person's choice.
TEST_F(HostsRun, KeepsToTheSlotsThatAreIncluded) {
  Start(WriteJob(kFixed, OnThreeHosts(), kUnchecked, 100000),
        {"--hosts", "h1:4,h2:4,h3:4", "--include", "h1:0,1@h2:1,3@h3:2,3"});
  ASSERT_TRUE(WaitForStep(2)) << Words();
  const char* const slots[] = {"0 1", "1 3", "2 3"};
  for (int host = 1; host <= 3; ++host) {
    const auto answer =
        bed_->Run(host,
                  "for p in $(pgrep -x weft-worker); do tr '\\0' '\\n' < /proc/$p/environ | "
                  "sed -n 's/^WEFT_LOCAL_RANK=//p'; done | sort | tr '\\n' ' '");
    EXPECT_EQ(answer.out, absl::StrCat(slots[host - 1], " ")) << HostBed::Name(host);
  }
  EXPECT_THAT(run_->Stdout(), HasSubstr("slots: h1: slots 0, 1 of 4; h2: slots 1, 3 of 4"));
  EXPECT_THAT(ReadText(folder() + "/logs/agent-h2.log"), HasSubstr("on slots 1, 3"));
  StopAndExpectEnd();
}

TEST_F(HostsRun, GoesOnWhateverIsKilled) {
  const std::map<int64_t, std::string> alone = CurveOfOneHost();
  struct Case {
    int host;
    const char* pattern;  // of pgrep -f
    int blamed;           // host
    const char* said;
  };
  for (const Case& each : {
           Case{2, "^weft-worker --generation", 2, "(h2) killed by signal 9 (SIGKILL)"},
           Case{3, "^weft-shim [0-9]", 3, "(h3) killed by signal 9 (SIGKILL)"},
           Case{2, "orted", 2, "mpirun's daemon on h2 was killed by signal 9"},
           Case{1, "^mpirun", 1, "mpirun was killed by signal 9"},
           Case{3, "^/[^ ]*/weft agent", 3, "the agent on h3 is gone"},
           Case{1, "^/[^ ]*/weft agent", 1, "the agent on h1 "},
           Case{1, "^ssh .* h2 ", 2, ""},
       }) {
    SCOPED_TRACE(each.pattern);
    StartOnThreeHosts(WriteJob(kFixed, OnThreeHosts()));
    ASSERT_TRUE(WaitForStep(13)) << Words();
    const double start_s = SinceStart();
    const int rank = Kill(each.host, each.pattern);
    const double again_s = SecondsToTrainAgain(1, 180);
    EXPECT_GT(again_s, 0) << Words();
    EXPECT_LT(again_s, kTrainsAgainWithinS + start_s) << Words();
    std::printf("%s on h%d: trains again %.2f s after the proof\n", each.pattern, each.host,
                again_s);
    ExpectEnd();
    const std::vector<RunEvent> events = Events();
    const auto lost = std::find_if(events.begin(), events.end(), [](const RunEvent& event) {
      return event.event == "rank_lost";
    });
    ASSERT_NE(lost, events.end()) << Words();
    EXPECT_EQ(lost->host, HostBed::Name(each.blamed));
    EXPECT_EQ(lost->rank, rank) << lost->reason;
    EXPECT_THAT(lost->reason, HasSubstr(each.said));
    EXPECT_EQ(Curve(), alone);
    EXPECT_LE(LastGeneration(), 3) << "one more at most, which waits for the host\n" << Words();
    bed_->ExpectNothingLeft();
    std::filesystem::remove_all(folder());
  }
}

// The next agent is there before the one before has left, which then takes away what was its own.
TEST_F(HostsRun, LosesNothingToAnAgentThatLeavesLate) {
  const std::map<int64_t, std::string> alone = CurveOfOneHost();
  StartOnThreeHosts(WriteJob(kFixed, OnThreeHosts()));
  ASSERT_TRUE(WaitForStep(23)) << Words();
  const std::string agent = bed_->Run(2, "pgrep -f '^/[^ ]*/weft agent' | tr '\\n' ' '").out;
  ASSERT_FALSE(agent.empty());
  bed_->Run(2, "kill -STOP " + agent);
  Kill(1, "^ssh .* h2 ");
  SleepSeconds(1.5);
  bed_->Run(2, "kill -CONT " + agent);
  ASSERT_TRUE(WaitForStep(25, 2)) << Words();
  const int64_t generation = LastGeneration();
  Kill(2, "weft-worker --generation");
  ExpectEnd();
  EXPECT_EQ(Curve(), alone);
  EXPECT_EQ(LastGeneration(), generation + 1) << Words();
}

// It stands still, so it is killed in the end, and cannot clean up behind itself.
TEST_F(HostsRun, LeavesNothingOfAnAgentThatHadToBeKilled) {
  Start(WriteJob(kFixed, "slots: 6", kUnchecked, 100000), {"--hosts", "h1:6"});
  ASSERT_TRUE(WaitForStep(2)) << Words();
  bed_->Run(1, "kill -STOP $(pgrep -f '^/[^ ]*/weft agent')");
  bed_->Run(1, BinaryPath("/bin/weft") + " stop --now " + folder());
  EXPECT_TRUE(run_->Wait(120).has_value()) << Words();
}

// The host leaves, the run does not: the third one takes its place.
TEST_F(HostsRun, SavesAndGoesOnWithoutAHostThatLeaves) {
  const std::map<int64_t, std::string> alone = CurveOfOneHost();
  Start(WriteJob("", OnThreeHosts() + ", nodes: \"2:3\", slots: 2"), {"--hosts", kThreeHosts});
  ASSERT_TRUE(WaitForStep(13)) << Words();
  const auto told = bed_->Run(2, "kill -TERM $(pgrep -f '^/[^ ]*/weft agent' | head -1)");
  EXPECT_EQ(told.exit_code, 0) << told.err;
  ExpectEnd();
  EXPECT_EQ(LastGeneration(), 2) << Words();
  const std::vector<StepMetrics> steps = Steps();
  for (size_t i = 1; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].step, steps[i - 1].step + 1) << "in generation " << steps[i].generation;
  }
  ExpectNear(alone);
}

// Its agents and ranks come back to the next one within the lease.
// Whoever has /dev/shm of that host could take an agent's place with it.
TEST_F(HostsRun, LeavesNoKeyBehindWhenItIsKilled) {
  StartOnThreeHosts(WriteJob(kFixed, OnThreeHosts(), ShortTimes(), 1000));
  ASSERT_TRUE(WaitForStep(5)) << Words();
  Kill(1, "^[^ ]*weft run ");
  EXPECT_TRUE(run_->Wait(kPatienceS).has_value());
  for (int host = 1; host <= 3; ++host) {
    EXPECT_TRUE(Eventually(kPatienceS, [&] {
      return bed_->Run(host, "ls -d /dev/shm/* /tmp/weft-*-tmp 2>/dev/null").out.empty();
    })) << bed_->Run(host, "ls -lR /dev/shm").out;
  }
  const HostBed::Answer kept = bed_->Run(1, "grep -rls 'PRIVATE KEY' " + folder() + " || true");
  EXPECT_EQ(kept.out, "");
}

TEST_F(HostsRun, TrainsOnWhenWeftdIsKilled) {
  const std::map<int64_t, std::string> alone = CurveOfOneHost();
  StartOnThreeHosts(WriteJob(kFixed, OnThreeHosts()));
  ASSERT_TRUE(WaitForStep(23)) << Words();
  Kill(1, "^/[^ ]*/weftd ");
  ExpectEnd();
  EXPECT_THAT(run_->Stdout() + run_->Stderr(), HasSubstr("(weftd) was killed by signal 9"));
  EXPECT_EQ(Curve(), alone);
  EXPECT_EQ(LastGeneration(), 1) << Words();
}

// The gate proves it of srun, which is waited for as long as a lease (tests/slurm/ends_test.cc);
// ssh, which gives a link up by itself, is for half a minute.
class HostsByHand : public HostsRun {};

// The agent's starter does not notice that the agent is gone.
TEST_F(HostsByHand, StartsAnAgentAgainWhoseStarterNeverEnds) {
  const std::map<int64_t, std::string> alone = CurveOfOneHost();
  const std::string bin = bed_->shared() + "/bin";
  std::filesystem::create_directory(bin);
  std::ofstream(bin + "/ssh") << "#!/bin/sh\nexec 3<&0\n/usr/bin/ssh \"$@\" <&3 &\n"
                              << "exec sleep 1000000\n";
  std::filesystem::permissions(bin + "/ssh", std::filesystem::perms::owner_all);
  Start(WriteJob(kFixed, OnThreeHosts()), {"--hosts", kThreeHosts},
        {{"PATH", bin + ":" + getenv("PATH")}});
  ASSERT_TRUE(WaitForStep(23)) << Words();
  Kill(1, "^/usr/bin/ssh .* h2 ");
  const double killed_s = NowSeconds();
  ASSERT_TRUE(WaitForStep(0, 2, kPatienceS)) << Words();
  std::printf("trains again %.1f s after the agent was gone\n", NowSeconds() - killed_s);
  ExpectEnd();
  EXPECT_THAT(run_->Stdout(), HasSubstr("host h2: its agent was not heard for 3"));
  EXPECT_THAT(run_->Stdout(), HasSubstr("does not end, and is killed; its agent is started again"));
  EXPECT_EQ(Curve(), alone);
}

}  // namespace
}  // namespace weft
