// Ranks of real runs are made to hang, by all means and in all phases, and must be named: the rank,
// its phase and its call, within the budget, with the stacks kept. WEFT_HANGS=300 makes as many
// hangs by hand; WEFT_HANGS_SEED=random draws other layouts and ranks than those of the fixed seed,
// a number repeats those of another run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sstream>

#include "process/progress_page.h"
#include "tests/end_to_end/slow_rank.h"
#include "tests/hangs/hung_run.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 4;
constexpr int kHangsInGate = 7;  // one of each kind, if all moments are met
// Beyond the budget: pages are read, told and judged, and the words written, by three processes one
// after the other. On a busy machine each may be late by as much as this one is at its worst, and a
// page is looked at twice before it counts.
constexpr double kSlackS = 1.5;
constexpr double kLateTimes = 6;

struct Worker {
  Found process;
  int rank = -1;
  std::string page;  // path
};

std::optional<Worker> FindWorker(const TinyRun& run, int rank) {
  for (const Found& process : run.Processes("weft-worker")) {
    if (VariableOf(process.pid, "OMPI_COMM_WORLD_RANK") != std::to_string(rank)) continue;
    const std::string folder = VariableOf(process.pid, kPagesVariable);
    if (folder.empty()) continue;
    return Worker{process, rank, PagePath(folder, rank)};
  }
  return std::nullopt;
}

char StateOf(int pid) {
  const std::string stat = ReadText("/proc/" + std::to_string(pid) + "/stat");
  const size_t end = stat.rfind(") ");
  return end == std::string::npos ? '-' : stat[end + 2];
}

using Wanted = std::function<bool(const PageView&)>;

// Budgets of steps are known by then.
bool IsLearnt(const PageView& page) {
  return page.step > 30;
}

struct Kind {
  const char* name;
  Wanted wanted;
  const char* steps;
  bool is_once = false;  // its moment does not come again once steps are done
};

const std::vector<Kind>& Kinds() {
  static const auto* kinds = new std::vector<Kind>{
      {"compute",
       [](const PageView& page) {
         return IsLearnt(page) && page.phase == RankPhase::kStep &&
                page.call.kind == CallKind::kNone;
       },
       "100000"},
      {"collective",
       [](const PageView& page) {
         return IsLearnt(page) && page.phase == RankPhase::kStep &&
                page.call.kind != CallKind::kNone && page.call.kind != CallKind::kDevice;
       },
       "100000"},
      {"start", [](const PageView& page) { return page.phase == RankPhase::kStart; }, "100000",
       true},
      {"communicator start",
       [](const PageView& page) { return page.phase == RankPhase::kCommInit; }, "100000", true},
      {"load", [](const PageView& page) { return page.phase == RankPhase::kLoad; }, "100000", true},
      {"save",
       [](const PageView& page) { return IsLearnt(page) && page.phase == RankPhase::kSave; },
       "100000"},
      {"teardown", [](const PageView& page) { return page.phase == RankPhase::kTeardown; }, "40"},
  };
  return *kinds;
}

// Stops the rank where its page is as wanted, and returns what that is. A rank that has gone on in
// between goes on for good.
std::optional<PageView> StopWhere(const TinyRun& run, int rank, const Kind& kind) {
  std::optional<Worker> worker;
  if (!Eventually(120, [&] { return (worker = FindWorker(run, rank)).has_value(); })) return {};
  const auto reader = PageReader::Open(worker->page);
  if (!reader.ok()) return {};
  for (const double end_s = NowSeconds() + 120; NowSeconds() < end_s;) {
    const auto seen = reader->Read();
    if (!seen.ok() || StateOf(worker->process.pid) == '-') return {};
    if (kind.is_once && seen->phase == RankPhase::kStep && seen->step > 1) return {};
    if (!kind.wanted(*seen)) continue;
    if (!KillFound(worker->process, SIGSTOP)) return {};
    Eventually(1, [&] { return StateOf(worker->process.pid) == 'T'; });
    const auto stopped = reader->Read();
    if (stopped.ok() && kind.wanted(*stopped)) return *stopped;
    KillFound(worker->process, SIGCONT);
  }
  return {};
}

constexpr const char* kLayouts[] = {"dp: 2, pp: 2, tp: 1", "dp: 2, pp: 1, tp: 2",
                                    "dp: 1, pp: 2, tp: 2", "dp: 4, pp: 1, tp: 1",
                                    "dp: 1, pp: 4, tp: 1"};

std::string StacksOf(const TinyRun& run) {
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(run.run_folder() + "/logs/generation-1", error)) {
    if (entry.path().filename().string().rfind("stacks-", 0) == 0) return entry.path().string();
  }
  return "";
}

// Ranks that are through with the run have none.
void ExpectStacks(const TinyRun& run, int rank) {
  ASSERT_TRUE(Eventually(kPatienceS, [&] { return !ReadText(StacksOf(run)).empty(); }));
  const std::string path = StacksOf(run);
  EXPECT_THAT(ReadText(path), HasSubstr("==== rank " + std::to_string(rank) + ", process "));
  struct stat found = {};
  ASSERT_EQ(stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777u, 0600u) << "stacks are nobody else's business";
}

struct Tally {
  int named = 0;
  int missed = 0;
  double longest_over_budget_s = 0;
};

// One run, one rank of it that is stopped; the moment may be too short to be met, then none.
std::optional<bool> HangOnce(const Kind& kind, const std::string& layout, int rank, Tally& tally) {
  TinyRun run;
  const std::unique_ptr<Child> weft = run.Run(Arguments(layout, kind.steps));
  const std::optional<PageView> truth = StopWhere(run, rank, kind);
  if (!truth) return std::nullopt;
  const double stopped_s = NowSeconds();
  double seen_s = stopped_s, late_s = 0;
  std::optional<Verdict> named;
  EXPECT_TRUE(Eventually(kPatienceS, [&] {
    late_s = std::max(late_s, NowSeconds() - seen_s);
    seen_s = NowSeconds();
    return (named = VerdictOf(run)).has_value();
  })) << "nobody was named";
  const Verdict verdict = named.value_or(Verdict());
  const double waited_s = NowSeconds() - stopped_s;
  tally.longest_over_budget_s = std::max(tally.longest_over_budget_s, waited_s - verdict.budget_s);
  EXPECT_EQ(verdict.rank, rank) << verdict.line;
  EXPECT_EQ(verdict.phase, NameOf(truth->phase)) << verdict.line;
  if (truth->call.kind != CallKind::kNone) {
    EXPECT_THAT(verdict.collective, HasSubstr(std::string(NameOf(truth->call.kind))));
  }
  EXPECT_LE(waited_s, verdict.budget_s + kSlackS + kLateTimes * late_s) << verdict.line;
  ExpectStacks(run, rank);
  const bool is_right = verdict.rank == rank && verdict.phase == NameOf(truth->phase);
  std::printf("%-18s {%s} rank %d: %s after %.2f s (budget %.1f s): %s\n", kind.name,
              layout.c_str(), rank, is_right ? "named" : "MISSED", waited_s, verdict.budget_s,
              verdict.collective.c_str());
  std::fflush(stdout);
  return is_right;
}

TEST(Hangs, OfAStoppedRankAreNamedInEveryPhase) {
  const int wanted = NumberFromEnvironment("WEFT_HANGS", kHangsInGate);
  std::mt19937 random(SeedFromEnvironment("WEFT_HANGS_SEED", 1));
  Tally tally;
  int not_met = 0;
  for (int i = 0; tally.named + tally.missed < wanted && not_met < 10 + wanted; ++i) {
    const Kind& kind = Kinds()[static_cast<size_t>(i) % Kinds().size()];
    const std::string layout = kLayouts[random() % std::size(kLayouts)];
    const int rank = static_cast<int>(random() % kRanks);
    SCOPED_TRACE(std::string(kind.name) + " of rank " + std::to_string(rank) + ", " + layout);
    const std::optional<bool> named = HangOnce(kind, layout, rank, tally);
    if (!named) {
      ++not_met;
    } else {
      ++(*named ? tally.named : tally.missed);
    }
  }
  std::printf("%d named, %d missed, %d moments not met, at most %.2f s beyond the budget\n",
              tally.named, tally.missed, not_met, tally.longest_over_budget_s);
  EXPECT_EQ(tally.named, wanted);
}

TEST(Hangs, AreExplainedByWhyStoppedOnceTheRunHasGoneOn) {
  TinyRun run;
  const std::unique_ptr<Child> weft = run.Run(Arguments("dp: 2, pp: 1, tp: 2", "100000"));
  ASSERT_TRUE(StopWhere(run, 1, Kinds()[0]).has_value());
  ASSERT_TRUE(Eventually(180, [&] {
    const std::vector<StepMetrics> steps = run.Metrics();
    return !steps.empty() && steps.back().generation == 2;
  }));
  const std::unique_ptr<Child> stop = run.Weft({"stop", run.run_folder()});
  EXPECT_EQ(TinyRun::Finish(*stop, 240).exit_code, 0);
  EXPECT_EQ(TinyRun::Finish(*weft, 240).exit_code, 0);
  const std::unique_ptr<Child> why = run.Weft({"why-stopped", run.run_folder()});
  const TinyRun::Outcome said = TinyRun::Finish(*why, 240);
  EXPECT_EQ(said.exit_code, 0) << said.err;
  for (const char* part :
       {", generation 1\n", "cause       its process is stopped (state T", "rank        1\n",
        "phase       step, step ", "collective  ", "waiting     rank",
        "ended generation 1; the next one goes on after step", "/logs/generation-1/stacks-"}) {
    EXPECT_THAT(said.out, HasSubstr(part));
  }
  const std::unique_ptr<Child> json = run.Weft({"why-stopped", run.run_folder(), "--json"});
  const auto event = nlohmann::json::parse(TinyRun::Finish(*json, 240).out, nullptr, false);
  ASSERT_TRUE(event.is_object());
  EXPECT_EQ(event.at("rank"), 1);
  EXPECT_EQ(event.at("phase"), "step");
  run.ExpectNothingLeft();
}

TEST(Hangs, OfARankThatSkipsACollectiveAreNamed) {
  TinyRun run;
  setenv("WEFT_SKIP_REDUCTION", "2:40", 1);
  const std::unique_ptr<Child> weft = run.Run(Arguments("dp: 2, pp: 2, tp: 1", "100000"));
  unsetenv("WEFT_SKIP_REDUCTION");
  const Verdict verdict = AwaitVerdict(run, 180);
  EXPECT_EQ(verdict.rank, 2) << verdict.line;
  EXPECT_EQ(verdict.phase, "step");
  EXPECT_EQ(verdict.collective, "a collective over all ranks that it skipped");
  EXPECT_THAT(verdict.line, HasSubstr("in step 40 it has made"));
}

std::string SlownessIn(const TinyRun& run) {
  std::istringstream events(ReadText(run.run_folder() + "/events.jsonl"));
  for (std::string line; std::getline(events, line);) {
    if (line.find(" is slow: ") != std::string::npos) return line;
  }
  return "";
}

TEST(Hangs, AreNotSeenInARankThatIsOnlySlowWhichIsNamed) {
  TinyRun run;
  const std::unique_ptr<Child> weft = run.Run(Arguments("dp: 4, pp: 1, tp: 1", "100000"));
  run.WaitForStep(40);
  const std::optional<Worker> worker = FindWorker(run, 2);
  ASSERT_TRUE(worker.has_value());
  const double begun_s = NowSeconds();
  SlowDownUntil(worker->process, 240, [&] { return !SlownessIn(run).empty(); });
  const std::string line = SlownessIn(run);
  std::printf("slow: named after %.1f s: %s\n", NowSeconds() - begun_s, line.c_str());
  EXPECT_THAT(line, HasSubstr("\"phase\":\"RUNNING\",\"reason\":\"rank 2 ("));
  EXPECT_THAT(line, HasSubstr(" is slow: it computes for "));
  const std::unique_ptr<Child> status = run.Weft({"status", run.run_folder()});
  EXPECT_THAT(TinyRun::Finish(*status, 240).out, HasSubstr(" is slow: it computes for "));
  const std::unique_ptr<Child> why = run.Weft({"why-stopped", run.run_folder()});
  const std::string said = TinyRun::Finish(*why, 240).out;
  EXPECT_THAT(said, HasSubstr("no generation was ended by a failure\na rank "));
  EXPECT_THAT(said, HasSubstr(" slow, generation 1\n  rank        2\n  host        "));
  EXPECT_THAT(said, HasSubstr("\n  since       step "));
  EXPECT_FALSE(VerdictOf(run).has_value());
  EXPECT_EQ(run.Metrics().back().generation, 1);
}

// OnOneCore binds what this thread starts to one core, until the end of its scope.
class OnOneCore {
 public:
  OnOneCore() {
    sched_getaffinity(0, sizeof before_, &before_);
    int core = 0;
    while (!CPU_ISSET(core, &before_)) ++core;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  }
  ~OnOneCore() { sched_setaffinity(0, sizeof before_, &before_); }
  OnOneCore(const OnOneCore&) = delete;
  OnOneCore& operator=(const OnOneCore&) = delete;

 private:
  cpu_set_t before_ = {};
};

// WEFT_SOUND_S=3600 is an hour of it.
TEST(Hangs, AndSlownessAreNotSeenWhereFourRanksShareOneCore) {
  const int sound_s = NumberFromEnvironment("WEFT_SOUND_S", 8);
  for (const std::string layout : {"dp: 4, pp: 1, tp: 1", "dp: 2, pp: 2, tp: 1"}) {
    SCOPED_TRACE(layout);
    TinyRun run;
    std::unique_ptr<Child> weft;
    {
      const OnOneCore bound;
      weft = run.Run(Arguments(layout, "100000"));
    }
    run.WaitForStep(20, kPatienceS);
    const double begun_s = NowSeconds();
    const auto has_ended = [&] { return weft->Wait(0).has_value(); };
    EXPECT_FALSE(Eventually(sound_s, [&] { return has_ended() || !SlownessIn(run).empty(); }))
        << SlownessIn(run);
    EXPECT_FALSE(VerdictOf(run).has_value());
    std::printf("%s: %lld steps of four ranks on one core in %.0f s, nobody is blamed\n",
                layout.c_str(), static_cast<long long>(run.LastStep()), NowSeconds() - begun_s);
    EXPECT_EQ(run.Metrics().back().generation, 1);
  }
}

}  // namespace
}  // namespace weft
