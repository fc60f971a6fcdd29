// One job under Slurm, and one fault after the other: it goes on, with the losses of a run that
// nothing was done to. The gate injects each fault once that no other of its tests does;
// WEFT_SLURM_FAULTS=n injects any n by hand, WEFT_SLURM_SEED=random draws others than those of the
// fixed seed, a number repeats those of another run. A line is printed for each fault, and what the
// first start took.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/slurm/slurm_run.h"

namespace weft {
namespace {

constexpr int64_t kStepsBetween = 12;  // a checkpoint lies in between: each generation gets on

using Clock = std::chrono::steady_clock;

enum class What { kKill, kRequeue, kCutLink, kKillSlurmd };

struct Fault {
  const char* name;
  What what;
  const char* pattern = "";  // of pgrep -f; of several processes one is killed
  bool on_any_node = true;   // or on the first alone
  bool is_harmless = false;  // the generation goes on
  bool in_gate = false;  // ends_test.cc and, with ssh in srun's place, hosts/run_test.cc do others
};

constexpr Fault kFaults[] = {
    {"kill -9 of a rank", What::kKill, "^weft-worker --generation"},
    {"kill -9 of a shim", What::kKill, "^[^ ]*weft-shim"},
    {"kill -9 of an agent", What::kKill, "^/[^ ]*/weft agent", true, false, true},
    {"kill -9 of weftd", What::kKill, "^/[^ ]*/weftd ", false, /*is_harmless=*/true},
    {"kill -9 of a slurmstepd", What::kKill, "^slurmstepd: \\[[0-9]*\\.[0-9]"},
    {"kill -9 of slurmd", What::kKillSlurmd, "", true, /*is_harmless=*/true, true},
    {"a link cut for 6 s", What::kCutLink, "", true, false, /*in_gate=*/true},
    {"scontrol requeue", What::kRequeue},
};

std::vector<Fault> ChooseFaults(std::minstd_rand& random) {
  std::vector<Fault> faults;
  const int by_hand = NumberFromEnvironment("WEFT_SLURM_FAULTS", 0);
  if (by_hand == 0) {
    std::copy_if(std::begin(kFaults), std::end(kFaults), std::back_inserter(faults),
                 [](const Fault& fault) { return fault.in_gate; });
    std::shuffle(faults.begin(), faults.end(), random);
  }
  for (int i = 0; i < by_hand; ++i) faults.push_back(kFaults[random() % std::size(kFaults)]);
  return faults;
}

class SlurmFaults : public SlurmRun {
 protected:
  void Inject(const Fault& fault, int node, const std::string& job) {
    switch (fault.what) {
      case What::kKill: {
        const HostBed::Answer killed =
            bed_->hosts().Run(node, std::string("kill -9 $(pgrep -f -- '") + fault.pattern +
                                        "' | shuf -n 1) && echo done");
        EXPECT_EQ(killed.out, "done\n") << fault.name << killed.err;
        return;
      }
      case What::kRequeue:
        bed_->Head("scontrol requeue " + job);
        LetGoOn(job);
        return;
      case What::kCutLink:
        bed_->hosts().CutLink(node);
        SleepSeconds(6);
        bed_->hosts().RestoreLink(node);
        return;
      case What::kKillSlurmd:
        bed_->KillSlurmd(node);
        bed_->StartNode(node);
        return;
    }
  }

  // Waits for a step of a later generation, or of any where none is awaited. Returns how long it
  // took since `from`.
  double SecondsToTheNextStep(int64_t step, int64_t generation, Clock::time_point from) {
    EXPECT_TRUE(Eventually(120, [&] {
      SleepSeconds(0.01);
      return LastGeneration() >= generation && (generation > 0 || LastStep() > step);
    }));
    return std::chrono::duration<double>(Clock::now() - from).count();
  }

  // Prints how long it took from the batch script's start until the first step was done.
  // REQUIRES: it is done just now.
  void PrintStart(const std::string& job) {
    const double now_s =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    const HostBed::Answer begun = bed_->hosts().Run(
        SlurmBed::kHead, "stat -c %.3W " + folder() + "/logs/slurm-" + job + ".log");
    const double begun_s = std::atof(begun.out.c_str());
    if (begun_s <= 0) return;  // a file system that does not know when a file was made
    std::printf("the batch script's start to the first step: %.2f s\n", now_s - begun_s);
  }
};

TEST_F(SlurmFaults, LeaveTheLossesAsTheyWere) {
  std::minstd_rand random(SeedFromEnvironment("WEFT_SLURM_SEED", 1));
  SlurmJobWords words = {.more =
                             "fault_tolerance: {heartbeat_timeout_seconds: 4, steady_seconds: 1, "
                             "max_restarts: 1000, preflight: false}\n",
                         .steps = 1000000};
  const std::string job = Submit(WriteJob(words));
  ASSERT_TRUE(WaitForStep(1)) << Words();
  PrintStart(job);
  ASSERT_TRUE(WaitForStep(kStepsBetween)) << Words();
  int number = 0, requeues = 0;
  for (const Fault& fault : ChooseFaults(random)) {
    const int node = fault.on_any_node ? 1 + static_cast<int>(random() % SlurmBed::kNodes) : 1;
    const int64_t before = LastStep(), next = fault.is_harmless ? 0 : LastGeneration() + 1;
    const Clock::time_point injected = Clock::now();
    Inject(fault, node, job);
    requeues += fault.what == What::kRequeue ? 1 : 0;
    std::printf("%2d: %s, on h%d at step %lld: the next step after %.2f s\n", ++number, fault.name,
                node, static_cast<long long>(before), SecondsToTheNextStep(before, next, injected));
    std::fflush(stdout);
    ASSERT_TRUE(WaitForStep(before + kStepsBetween, "tiny", 300)) << fault.name << "\n" << Words();
  }
  EXPECT_EQ(bed_->JobField(job, "Restarts"), std::to_string(requeues))
      << "all else is restarted in the allocation";
  EXPECT_EQ(Weft("stop " + folder()).exit_code, 0);
  EXPECT_EQ(bed_->AwaitState(job, {"COMPLETED", "PENDING"}, kPatienceS), "COMPLETED");
  const std::map<int64_t, std::string> curve = Curve();
  words.steps = LastStep();
  words.name = "local";
  EXPECT_EQ(curve, LocalCurve(words));
}

}  // namespace
}  // namespace weft
