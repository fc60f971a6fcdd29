// Seeded chaos on three hosts, with the real binaries, ssh and mpirun: processes are killed and
// stopped, links cut, the disk fills, files cannot be written, descriptors run out, clocks jump.
// After each fault the run goes on by itself, whoever is to blame is named, and nobody else; at the
// end losses are those of one host, bit for bit, every checkpoint verifies, and nothing is left
// anywhere. The gate injects each fault once that no other test does; WEFT_CHAOS=n injects any n by
// hand, WEFT_CHAOS_SEED=random draws others than those of the fixed seed, a number repeats those of
// another run, WEFT_CHAOS_ONLY=words takes the faults alone whose name holds them.
#include "tests/chaos/hosts_chaos.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "process/failpoint.h"
#include "tests/chaos/damage.h"
#include "tests/chaos/tally.h"

namespace weft {
namespace {

constexpr unsigned kSeed = 1;
constexpr int kGateFailpoints = 3;  // chaos_test strikes others on one host
constexpr int kFaultsPerRun = 8;
constexpr int kMaxStarts = 6;
constexpr double kLastsS = 2;  // a fault that ends by itself
constexpr double kStrikesWithinS = 20;

constexpr char kWorkers[] = "^weft-worker --generation";
constexpr char kShims[] = "^weft-shim [0-9]";
constexpr char kDaemons[] = "^[^ ]*orted ";
constexpr char kAgents[] = "^/[^ ]*/weft agent";
constexpr char kWeftd[] = "^/[^ ]*/weftd ";
constexpr char kFaketimeLibrary[] = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

// Libraries that the programs of a run are started with; some faults need one. The gate's run has
// both.
enum class With { kAny, kFaultyDisk, kFaketime, kBoth };
constexpr With kRuns[] = {With::kAny, With::kFaultyDisk, With::kFaketime};

struct HostsFault {
  const char* name;
  With with;
  std::function<Expected(unsigned draw)> inject;
  bool in_gate = false;  // no other test of the gate does it
};

class Chaos : public HostsChaos {
 protected:
  std::vector<HostsFault> Faults() {
    std::vector<HostsFault> faults = Deaths();
    for (auto& part : {Stops(), Files()}) faults.insert(faults.end(), part.begin(), part.end());
    return faults;
  }

 private:
  static int AnyHost(unsigned draw) { return 1 + static_cast<int>(draw / 64 % 3); }
  static int OtherHost(unsigned draw) { return 2 + static_cast<int>(draw / 64 % 2); }
  std::string faulty() const { return bed_->shared() + "/faulty"; }
  std::string clock() const { return bed_->shared() + "/clock"; }

  // The victim is to blame, by its rank if it has one.
  Expected KillOne(int host, const std::string& pattern, unsigned draw, const std::string& said) {
    const Victim victim = Find(host, pattern, draw);
    return {.struck = Signal(host, victim, "KILL"),
            .host = HostBed::Name(host),
            .rank = victim.rank,
            .said = said};
  }

  std::vector<HostsFault> Deaths() {
    return {
        {"kill -9 of a rank", With::kAny,
         [this](unsigned draw) {
           return KillOne(AnyHost(draw), kWorkers, draw, "killed by signal 9 (SIGKILL)");
         }},
        {"kill -9 of a shim", With::kAny,
         [this](unsigned draw) {
           return KillOne(AnyHost(draw), kShims, draw, "killed by signal 9 (SIGKILL)");
         }},
        {"kill -9 of an orted", With::kAny,
         [this](unsigned draw) {
           return KillOne(OtherHost(draw), kDaemons, draw, " was killed by signal 9");
         }},
        {"kill -9 of mpirun", With::kAny,
         [this](unsigned draw) {
           return KillOne(1, "^mpirun", draw, "mpirun was killed by signal 9");
         }},
        {"kill -9 of an agent", With::kAny,
         [this](unsigned draw) { return KillOne(AnyHost(draw), kAgents, draw, "the agent on h"); }},
        {"kill -9 of an ssh", With::kAny,
         [this](unsigned draw) {
           const int host = OtherHost(draw);
           Expected expected = KillOne(1, absl::StrCat("^ssh .* h", host, " "), draw, "");
           expected.host = HostBed::Name(host);
           return expected;
         }},
        {"kill -9 of weftd", With::kAny,
         [this](unsigned draw) {
           return Expected{.struck = Signal(1, Find(1, kWeftd, draw), "KILL"), .goes_on = true};
         }},
        {"a bit of the newest checkpoint, and a rank", With::kAny,
         [this](unsigned draw) {
           const bool flipped = FlipABitOfTheNewest(folder() + "/checkpoint", draw);
           Expected expected = KillOne(AnyHost(draw), kWorkers, draw, "killed by signal 9");
           expected.struck = expected.struck && flipped;
           return expected;
         }},
    };
  }

  Expected StopFor(int host, const std::string& pattern, unsigned draw, double seconds) {
    const Victim victim = Find(host, pattern, draw);
    const bool stopped = Signal(host, victim, "STOP");
    SleepSeconds(seconds);
    Signal(host, victim, "CONT");
    return {.struck = stopped};
  }

  Expected CutFor(int host, double seconds) {
    bed_->CutLink(host);
    SleepSeconds(seconds);
    bed_->RestoreLink(host);
    return {};
  }

  std::vector<HostsFault> Stops() {
    return {
        {"SIGSTOP of a rank", With::kAny,
         [this](unsigned draw) {
           const int host = AnyHost(draw);
           const Victim victim = Find(host, kWorkers, draw);
           // The rank's lease of 4 s may end before it counts as one that hangs.
           return Expected{.struck = Signal(host, victim, "STOP"),
                           .host = HostBed::Name(host),
                           .rank = victim.rank,
                           .said = " hangs in ",
                           .or_said = "nothing heard for"};
         },
         true},
        {"SIGSTOP of an agent for 7 s", With::kAny,
         [this](unsigned draw) {
           Expected expected = StopFor(AnyHost(draw), kAgents, draw, kLeaseS + 3);
           expected.host = HostBed::Name(AnyHost(draw));
           return expected;
         }},
        {"SIGSTOP of weftd for 1.5 s", With::kAny,
         [this](unsigned draw) {
           Expected expected = StopFor(1, kWeftd, draw, 1.5);
           expected.goes_on = true;
           return expected;
         },
         true},
        {"a link cut for 7 s", With::kAny,
         [this](unsigned draw) {
           const int host = OtherHost(draw);
           Expected expected = CutFor(host, kLeaseS + 3);
           expected.host = HostBed::Name(host);
           return expected;
         }},
        {"the coordinator's link cut for 7 s", With::kAny,
         [this](unsigned) { return CutFor(1, kLeaseS + 3); }},
        {"a link cut for 0.5 s", With::kAny,
         [this](unsigned draw) {
           Expected expected = CutFor(AnyHost(draw), 0.5);
           expected.goes_on = true;
           return expected;
         },
         true},
        {"the clock of host 1 an hour ahead", With::kFaketime,
         [this](unsigned) { return MoveClock("+3600"); }, true},
        {"the clock of host 1 an hour back", With::kFaketime,
         [this](unsigned) { return MoveClock("-3600"); }, true},
    };
  }

  Expected MoveClock(const std::string& by) {
    std::ofstream(clock() + ".new") << by << "\n";
    std::filesystem::rename(clock() + ".new", clock());
    SleepSeconds(kLastsS);
    return {.goes_on = true};
  }

  // Whatever the process would open fails, for a while.
  Expected ExhaustDescriptors(int host, const std::string& pattern, unsigned draw) {
    const Victim victim = Find(host, pattern, draw);
    if (victim.pid <= 0) return {.struck = false};
    const auto limit = [&](const std::string& soft) {
      return bed_->Run(host, absl::StrCat("prlimit --pid ", victim.pid, " --nofile=", soft, ":"))
          .exit_code;
    };
    const std::string before =
        bed_->Run(host, absl::StrCat("prlimit --pid ", victim.pid,
                                     " --nofile -o SOFT --noheadings | tr -d ' \\n'"))
            .out;
    const bool limited = limit("3") == 0;
    SleepSeconds(kLastsS);
    limit(before);
    return {.struck = limited, .goes_on = true};
  }

  // Calls of a program on that host fail, of 100 so many, for a while and until one has; errno 0:
  // they write half.
  Expected Fail(int host, const char* program, const char* call, int error, int percent) {
    std::ofstream(faulty() + ".new") << absl::StrCat(HostBed::Name(host), " ", program, " ", call,
                                                     " ", error, " ", percent, "\n");
    std::filesystem::rename(faulty() + ".new", faulty());
    const double end_s = NowSeconds() + kLastsS;
    Eventually(kStrikesWithinS, [&] {
      return NowSeconds() > end_s && std::filesystem::exists(faulty() + ".struck");
    });
    std::filesystem::remove(faulty());
    return {.struck = std::filesystem::remove(faulty() + ".struck"), .goes_on = true};
  }

  std::vector<HostsFault> Files() {
    return {
        {"the disk is full for 2 s", With::kAny,
         [this](unsigned) {
           FillDisk();
           SleepSeconds(kLastsS);
           EmptyDisk();
           return Expected{.goes_on = true};
         }},
        {"no descriptors for weftd", With::kAny,
         [this](unsigned draw) { return ExhaustDescriptors(1, kWeftd, draw); }, true},
        {"no descriptors for an agent", With::kAny,
         [this](unsigned draw) { return ExhaustDescriptors(AnyHost(draw), kAgents, draw); }, true},
        {"no descriptors for a rank", With::kAny,
         [this](unsigned draw) { return ExhaustDescriptors(AnyHost(draw), kWorkers, draw); }, true},
        {"EIO from fsync in the ranks of a host", With::kFaultyDisk,
         [this](unsigned draw) { return Fail(AnyHost(draw), "weft-worker", "fsync", EIO, 100); }},
        {"EIO from write in the ranks of a host", With::kFaultyDisk,
         [this](unsigned draw) { return Fail(AnyHost(draw), "weft-worker", "write", EIO, 50); }},
        {"ENOSPC from rename in the ranks of host 1, which commit", With::kFaultyDisk,
         [this](unsigned) { return Fail(1, "weft-worker", "rename", ENOSPC, 100); }, true},
        {"short writes in the ranks of a host", With::kFaultyDisk,
         [this](unsigned draw) { return Fail(AnyHost(draw), "weft-worker", "write", 0, 50); },
         true},
        {"EIO from writes of the journal", With::kFaultyDisk,
         [this](unsigned) { return Fail(1, "weftd", "pwrite", EIO, 50); }, true},
        {"EIO from the journal's fsync", With::kFaultyDisk,
         [this](unsigned) { return Fail(1, "weftd", "fdatasync", EIO, 50); }, true},
        {"short writes of the journal", With::kFaultyDisk,
         [this](unsigned) { return Fail(1, "weftd", "pwrite", 0, 50); }, true},
        {"EIO from write in weft and its agent on host 1", With::kFaultyDisk,
         [this](unsigned) { return Fail(1, "weft", "write", EIO, 50); }, true},
    };
  }

 protected:
  // A run that is there for as many faults as wanted.
  void Begin(With with) {
    std::string cluster = OnThreeHosts();
    std::vector<std::string> variables, libraries;
    if (with == With::kFaultyDisk || with == With::kBoth) {
      absl::StrAppend(&cluster, ", env: {LD_PRELOAD: ", WEFT_FAULTY_DISK,
                      ", FAULTY_DISK: ", faulty(), "}");
      libraries.push_back(WEFT_FAULTY_DISK);
      variables.push_back("FAULTY_DISK=" + faulty());
    }
    if (with == With::kFaketime || with == With::kBoth) {
      std::ofstream(clock()) << "+0\n";
      libraries.push_back(kFaketimeLibrary);
      variables.insert(variables.end(), {absl::StrCat("FAKETIME_TIMESTAMP_FILE=", clock()),
                                         "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"});
    }
    if (!libraries.empty()) {
      variables.push_back(absl::StrCat("LD_PRELOAD=", absl::StrJoin(libraries, ":")));
    }
    std::filesystem::remove_all(folder());
    StartChaos(
        WriteJob(kFixed, cluster,
                 absl::StrCat("fault_tolerance: {heartbeat_timeout_seconds: ", kLeaseS,
                              ", steady_seconds: 1, max_restarts: 1000, preflight: false}\n"),
                 1000000),
        variables);
    ASSERT_TRUE(WaitForStep(kStepsBetween)) << Words();
  }
};

// Numbers in Faults() of what is done to one run after the other.
using Schedule = std::vector<std::pair<With, std::vector<size_t>>>;

Schedule OfTheGate(const std::vector<HostsFault>& faults) {
  std::vector<size_t> once;
  for (size_t i = 0; i < faults.size(); ++i) {
    if (faults[i].in_gate) once.push_back(i);
  }
  return {{With::kBoth, once}};
}

// Any `wanted` of the faults whose name holds the words.
Schedule Drawn(const std::vector<HostsFault>& faults, int wanted, std::mt19937& random) {
  const char* const only = getenv("WEFT_CHAOS_ONLY");
  Schedule schedule;
  int in_vain = 0;  // runs in a row that no fault is for
  for (int run = 0; wanted > 0 && in_vain < static_cast<int>(std::size(kRuns)); ++run) {
    const With with = kRuns[static_cast<size_t>(run) % std::size(kRuns)];
    std::vector<size_t> fitting;
    for (size_t i = 0; i < faults.size(); ++i) {
      const bool is_asked =
          only == nullptr || std::string(faults[i].name).find(only) != std::string::npos;
      if (is_asked && (faults[i].with == With::kAny || faults[i].with == with)) {
        fitting.push_back(i);
      }
    }
    in_vain = fitting.empty() ? in_vain + 1 : 0;
    if (fitting.empty()) continue;
    std::vector<size_t> of_run;
    for (int i = 0; i < kFaultsPerRun && wanted > 0; ++i, --wanted) {
      of_run.push_back(fitting[random() % fitting.size()]);
    }
    schedule.emplace_back(with, of_run);
  }
  return schedule;
}

TEST_F(Chaos, OnThreeHostsLeavesTheSameLossesAndNamesTheCulprit) {
  const int wanted = NumberFromEnvironment("WEFT_CHAOS", 0);  // 0: the gate's
  const unsigned seed = SeedFromEnvironment("WEFT_CHAOS_SEED", kSeed);
  std::mt19937 random(seed);
  const std::vector<HostsFault> faults = Faults();
  const Schedule schedule = wanted > 0 ? Drawn(faults, wanted, random) : OfTheGate(faults);
  ASSERT_FALSE(schedule.empty()) << "no fault is named so";
  Tally tally;
  for (const auto& [with, of_run] : schedule) {
    ASSERT_NO_FATAL_FAILURE(Begin(with));
    for (const size_t number : of_run) {
      const HostsFault& fault = faults[number];
      const auto draw = static_cast<unsigned>(random() & 0xffffff);
      const int64_t generation = LastGeneration(), step = Steps().back().step;
      const double begun_s = NowSeconds();
      Expected expected = fault.inject(draw);
      if (!expected.struck) expected = {.struck = false, .goes_on = true};
      const std::string wrong = WrongAfter(expected, generation, step);
      tally.Add(fault.name, wrong, {.struck = expected.struck, .seconds = NowSeconds() - begun_s});
      EXPECT_EQ(wrong, "") << fault.name << ", seed " << seed;
      if (!wrong.empty()) break;
    }
    EXPECT_EQ(WrongEnd(), "") << "seed " << seed;
    bed_->ExpectNothingLeft();
  }
  tally.Print();
  EXPECT_GT(tally.struck(), 0);
}

// Wherever a process of any host dies; by hand, WEFT_CHAOS_ALL=1 strikes each failpoint once.
TEST_F(Chaos, OnThreeHostsAtFailpointsLeavesTheSameLosses) {
  const bool all = NumberFromEnvironment("WEFT_CHAOS_ALL", 0) != 0;
  const size_t count = all ? kFailpoints.size() : kGateFailpoints;
  const unsigned seed = SeedFromEnvironment("WEFT_CHAOS_SEED", kSeed);
  std::mt19937 random(seed);
  const std::map<int64_t, std::string> alone = CurveOfOneHost();
  Tally tally;
  for (size_t i = 0; i < count; ++i) {
    const std::string failpoint =
        kFailpoints[all ? i : static_cast<size_t>(random()) % kFailpoints.size()];
    const std::string token = bed_->shared() + "/token";
    std::ofstream(token) << "once\n";
    const std::string job = WriteJob(kFixed, OnThreeHosts("-o SendEnv=WEFT_FAILPOINT"));
    Outcome outcome = {.starts = 0};
    std::optional<Ended> ended;
    do {
      StartChaos(job, {absl::StrCat(kFailpointVariable, "=", failpoint, ":1:", token)});
      ended = run_->Wait(240);
    } while (++outcome.starts < kMaxStarts && (!ended || ended->exit_code != 0));
    outcome.struck = !std::filesystem::exists(token);
    std::string wrong;
    if (!ended || ended->exit_code != 0) wrong = "not through:\n" + Words();
    if (wrong.empty()) wrong = WrongLosses(alone);
    if (wrong.empty()) wrong = WrongCheckpoints();
    tally.Add("killed at " + failpoint, wrong, outcome);
    EXPECT_EQ(wrong, "") << failpoint << ", seed " << seed;
    bed_->ExpectNothingLeft();
    std::filesystem::remove_all(folder());
  }
  tally.Print();
  EXPECT_GT(tally.struck(), 0);
}

}  // namespace
}  // namespace weft
