// Seeded chaos with the real binaries: processes die at the code's failpoints, are stopped, and
// checkpoints are damaged. After each fault the run goes on, by itself or by the same command; its
// losses are those of an undisturbed run, bit for bit, every checkpoint that is listed verifies,
// and nothing is left. The gate strikes failpoints alone: crash_test.cc kills, stops and damages.
// WEFT_CHAOS=n injects any n faults by hand; WEFT_CHAOS_SEED=random draws others than those of the
// fixed seed, a number repeats those of another run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "checkpoint/verify.h"
#include "process/failpoint.h"
#include "tests/chaos/damage.h"
#include "tests/chaos/tally.h"
#include "tests/end_to_end/tiny_run.h"

namespace weft {
namespace {

constexpr unsigned kSeed = 1;
constexpr int kGateFaults = 10;
constexpr int kMaxStarts = 6;  // of one run, until it is through
// So many of ten draws are of failpoints.
constexpr unsigned kFailpointKinds = 6;
constexpr unsigned kKinds = 10;

// Losses of all lines, repeated steps too. No generation does a step twice; another start of a run
// that had saved nothing begins with the same generation.
std::string WrongLosses(const TinyRun& run, bool started_once) {
  const std::map<int64_t, std::string> expected = UndisturbedCurve();
  std::set<std::pair<int64_t, int64_t>> told;
  for (const StepMetrics& metrics : run.Metrics()) {
    const std::string where = "step " + std::to_string(metrics.step) + " of generation " +
                              std::to_string(metrics.generation);
    if (metrics.loss_hex != expected.at(metrics.step)) return where + " has another loss";
    const bool is_new = told.emplace(metrics.generation, metrics.step).second;
    if (started_once && !is_new) return where + " is told twice";
  }
  return run.Curve() == expected ? "" : "steps are missing";
}

// Runs the same command until it is through.
std::string WrongEnd(TinyRun& run, std::unique_ptr<Child> weft, Outcome& outcome) {
  for (outcome.starts = 1;; ++outcome.starts) {
    const TinyRun::Outcome end = TinyRun::Finish(*weft, 240);
    if (end.exit_code == 0) return "";
    if (outcome.starts == kMaxStarts) {
      return "not through after " + std::to_string(kMaxStarts) + " starts: exit " +
             std::to_string(end.exit_code) + ": " + end.err;
    }
    if (end.exit_code == 2 || end.exit_code == 3) return "refused: " + end.err;
    weft = run.Run();
  }
}

std::string WrongCheckpoints(TinyRun& run) {
  for (const std::string& name : run.Checkpoints()) {
    const auto verified = VerifyCheckpoint(run.run_folder() + "/checkpoint/" + name);
    if (!verified.ok()) return name + ": " + std::string(verified.status().message());
  }
  return run.Checkpoints().empty() ? "no checkpoint is left" : "";
}

// The whole of it, after a fault that the callback injects into the run that has begun.
template <typename Inject>
std::string Survive(TinyRun& run, std::unique_ptr<Child> weft, const Inject& inject,
                    Outcome& outcome) {
  outcome.struck = inject();
  const std::string end = WrongEnd(run, std::move(weft), outcome);
  if (!end.empty()) return end;
  const std::string losses = WrongLosses(run, outcome.starts == 1);
  if (!losses.empty()) return losses;
  return WrongCheckpoints(run);
}

// One process dies where the code has that failpoint, at the `count`-th time that it comes there.
std::string DieAt(const std::string& failpoint, int count, Outcome& outcome) {
  TinyRun run;
  const std::string token = std::filesystem::path(run.job_path()).parent_path() / "failpoint";
  std::ofstream(token) << "once\n";
  const std::string asked = failpoint + ":" + std::to_string(count) + ":" + token;
  setenv(kFailpointVariable, asked.c_str(), 1);
  std::unique_ptr<Child> weft = run.Run();
  unsetenv(kFailpointVariable);
  std::string wrong = Survive(
      run, std::move(weft), [] { return true; }, outcome);
  outcome.struck = !std::filesystem::exists(token);
  run.ExpectNothingLeft();
  return wrong;
}

// A process of the run gets the signal after some step.
std::string SignalOne(const std::string& program, int signal, int64_t step, unsigned draw,
                      Outcome& outcome) {
  TinyRun run;
  const auto inject = [&] {
    run.WaitForStep(step);
    const std::vector<Found> found = run.Processes(program);
    return !found.empty() && KillFound(found[draw % found.size()], signal);
  };
  std::unique_ptr<Child> weft = run.Run();
  std::string wrong = Survive(run, std::move(weft), inject, outcome);
  run.ExpectNothingLeft();
  return wrong;
}

// Flips one bit of the newest checkpoint of a run that was interrupted, and resumes it.
std::string FlipOne(unsigned draw, Outcome& outcome) {
  TinyRun run;
  {
    const std::unique_ptr<Child> first = run.Run();
    run.WaitForStep(35);
    first->Signal(SIGINT);
    TinyRun::Finish(*first, 240);
  }
  const bool flipped = FlipABitOfTheNewest(run.run_folder() + "/checkpoint", draw);
  std::string wrong = Survive(
      run, run.Run(), [&] { return flipped; }, outcome);
  run.ExpectNothingLeft();
  return wrong;
}

// In each step, or more often.
bool ComesOften(const std::string& failpoint) {
  const std::string group = failpoint.substr(0, failpoint.find('.'));
  return group == "step" || group == "driver" || group == "journal" || group == "file" ||
         failpoint == "rank.report_step" || failpoint == "agent.reported";
}

// The fault that a draw stands for, of the first `kinds`; the name is that of its class.
std::string Fault(unsigned kinds, std::mt19937& random, std::string* name, Outcome& outcome) {
  const auto kind = static_cast<unsigned>(random() % kinds);
  const auto draw = static_cast<unsigned>(random() & 0xffffff);
  const auto step = static_cast<int64_t>(3 + random() % 50);
  if (kind < kFailpointKinds) {
    const std::string failpoint = kFailpoints[draw % kFailpoints.size()];
    const int count = 1 + static_cast<int>((draw >> 8) % (ComesOften(failpoint) ? 60 : 2));
    *name = "killed at " + failpoint;
    return DieAt(failpoint, count, outcome);
  }
  const char* const programs[] = {"weft-worker", "weftd"};
  if (kind < 8) {
    *name = std::string("SIGKILL of ") + programs[kind - 6];
    return SignalOne(programs[kind - 6], SIGKILL, step, draw, outcome);
  }
  if (kind == 8) {
    *name = "SIGSTOP of weft-worker";
    return SignalOne("weft-worker", SIGSTOP, step, draw, outcome);
  }
  *name = "a bit of the newest checkpoint";
  return FlipOne(draw, outcome);
}

TEST(Chaos, LeavesTheSameLossesAndNothingElse) {
  const int by_hand = NumberFromEnvironment("WEFT_CHAOS", 0);  // 0: the gate's
  const unsigned seed = SeedFromEnvironment("WEFT_CHAOS_SEED", kSeed);
  std::mt19937 random(seed);
  Tally tally;
  for (int i = 0; i < (by_hand > 0 ? by_hand : kGateFaults); ++i) {
    Outcome outcome;
    std::string name;
    const std::string wrong = Fault(by_hand > 0 ? kKinds : kFailpointKinds, random, &name, outcome);
    tally.Add(name, wrong, outcome);
    EXPECT_EQ(wrong, "") << name << ", fault " << i << " of seed " << seed;
  }
  tally.Print();
  EXPECT_GT(tally.struck(), 0);
}

// It strikes each failpoint once, in the order of the list; by hand, as it takes minutes.
TEST(ChaosByHand, AtEachFailpointLeavesTheSameLossesAndNothingElse) {
  Tally tally;
  for (const char* failpoint : kFailpoints) {
    Outcome outcome;
    const std::string wrong = DieAt(failpoint, 1, outcome);
    tally.Add(failpoint, wrong, outcome);
    EXPECT_EQ(wrong, "") << failpoint;
  }
  tally.Print();
}

}  // namespace
}  // namespace weft
