// Ranks of real runs are made to hang, by all means and in all phases, and must be named: the rank,
// its phase and its call, within the budget, with the stacks kept. WEFT_HANGS=300 makes as many
// hangs by hand; WEFT_HANGS_SEED repeats those of another run.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <regex>
#include <sstream>

#include "process/progress_page.h"
#include "tests/end_to_end/tiny_run.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 4;
constexpr int kHangsInCi = 18;  // and two of a file that never answers, and a skipped call
constexpr double kSlackS = 3;   // of a loaded machine, beyond the budget

// A Verdict is what weftd says of the culprit before it ends the generation.
struct Verdict {
  int rank = -1;
  std::string phase;
  std::string collective;
  double age_s = 0;
  double budget_s = 0;
  std::string line;
};

std::optional<Verdict> VerdictOf(const TinyRun& run) {
  static const auto* said = new std::regex(
      "rank (\\d+) \\(.*\\) hangs in ([a-z ]+), (.*?): .*, for ([0-9.]+) s \\(budget ([0-9.]+) "
      "s\\)");
  std::istringstream log(ReadText(run.run_folder() + "/logs/weftd.log"));
  for (std::string line; std::getline(log, line);) {
    std::smatch match;
    if (!std::regex_search(line, match, *said)) continue;
    return Verdict{std::stoi(match[1]), match[2], match[3], std::stod(match[4]),
                   std::stod(match[5]), line};
  }
  return std::nullopt;
}

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

// Stops the rank where its page is as wanted, and returns what that is. A rank that has gone on in
// between goes on for good.
std::optional<PageView> StopWhere(const TinyRun& run, int rank, const Wanted& wanted) {
  std::optional<Worker> worker;
  if (!Eventually(20, [&] { return (worker = FindWorker(run, rank)).has_value(); })) return {};
  const auto reader = PageReader::Open(worker->page);
  if (!reader.ok()) return {};
  for (const double end_s = NowSeconds() + 30; NowSeconds() < end_s;) {
    const auto seen = reader->Read();
    if (!seen.ok() || StateOf(worker->process.pid) == '-') return {};
    if (!wanted(*seen)) continue;
    if (!KillFound(worker->process, SIGSTOP)) return {};
    Eventually(1, [&] { return StateOf(worker->process.pid) == 'T'; });
    const auto stopped = reader->Read();
    if (stopped.ok() && wanted(*stopped)) return *stopped;
    KillFound(worker->process, SIGCONT);
  }
  return {};
}

// Budgets of steps are known by then.
bool IsLearnt(const PageView& page) {
  return page.step > 30;
}

struct Kind {
  const char* name;
  Wanted wanted;
  const char* steps;
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
      {"start", [](const PageView& page) { return page.phase == RankPhase::kStart; }, "100000"},
      {"communicator start",
       [](const PageView& page) { return page.phase == RankPhase::kCommInit; }, "100000"},
      {"load", [](const PageView& page) { return page.phase == RankPhase::kLoad; }, "100000"},
      {"save",
       [](const PageView& page) { return IsLearnt(page) && page.phase == RankPhase::kSave; },
       "100000"},
      {"teardown", [](const PageView& page) { return page.phase == RankPhase::kTeardown; }, "40"},
  };
  return *kinds;
}

constexpr const char* kLayouts[] = {"dp: 2, pp: 2, tp: 1", "dp: 2, pp: 1, tp: 2",
                                    "dp: 1, pp: 2, tp: 2", "dp: 4, pp: 1, tp: 1",
                                    "dp: 1, pp: 4, tp: 1"};

std::vector<std::string> Arguments(const std::string& layout, const std::string& steps) {
  return {"--set", "training.steps=" + steps, "--set", "parallelism={" + layout + "}"};
}

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
  ASSERT_TRUE(Eventually(5, [&] { return !ReadText(StacksOf(run)).empty(); }));
  const std::string path = StacksOf(run);
  EXPECT_THAT(ReadText(path), HasSubstr("==== rank " + std::to_string(rank) + ", process "));
  struct stat found = {};
  ASSERT_EQ(stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777u, 0600u) << "stacks are nobody else's business";
}

Verdict AwaitVerdict(const TinyRun& run, double timeout_s) {
  std::optional<Verdict> verdict;
  EXPECT_TRUE(Eventually(timeout_s, [&] { return (verdict = VerdictOf(run)).has_value(); }))
      << "nobody was named within " << timeout_s << " s";
  return verdict.value_or(Verdict());
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
  const std::optional<PageView> truth = StopWhere(run, rank, kind.wanted);
  if (!truth) return std::nullopt;
  const double stopped_s = NowSeconds();
  const Verdict verdict = AwaitVerdict(run, 20);
  const double waited_s = NowSeconds() - stopped_s;
  tally.longest_over_budget_s = std::max(tally.longest_over_budget_s, waited_s - verdict.budget_s);
  EXPECT_EQ(verdict.rank, rank) << verdict.line;
  EXPECT_EQ(verdict.phase, NameOf(truth->phase)) << verdict.line;
  if (truth->call.kind != CallKind::kNone) {
    EXPECT_THAT(verdict.collective, HasSubstr(std::string(NameOf(truth->call.kind))));
  }
  EXPECT_LE(waited_s, verdict.budget_s + kSlackS) << verdict.line;
  ExpectStacks(run, rank);
  const bool is_right = verdict.rank == rank && verdict.phase == NameOf(truth->phase);
  std::printf("%-18s {%s} rank %d: %s after %.2f s (budget %.1f s): %s\n", kind.name,
              layout.c_str(), rank, is_right ? "named" : "MISSED", waited_s, verdict.budget_s,
              verdict.collective.c_str());
  std::fflush(stdout);
  return is_right;
}

TEST(Hangs, OfAStoppedRankAreNamedInEveryPhase) {
  const int wanted = NumberFromEnvironment("WEFT_HANGS", kHangsInCi);
  const int seed =
      NumberFromEnvironment("WEFT_HANGS_SEED", static_cast<int>(std::random_device()() & 0xffff));
  std::printf("WEFT_HANGS_SEED=%d\n", seed);
  std::mt19937 random(static_cast<unsigned>(seed));
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
  ASSERT_TRUE(StopWhere(run, 1, Kinds()[0].wanted).has_value());
  ASSERT_TRUE(Eventually(40, [&] {
    const std::vector<StepMetrics> steps = run.Metrics();
    return !steps.empty() && steps.back().generation == 2;
  }));
  const std::unique_ptr<Child> stop = run.Weft({"stop", run.run_folder()});
  EXPECT_EQ(TinyRun::Finish(*stop, 30).exit_code, 0);
  EXPECT_EQ(TinyRun::Finish(*weft, 60).exit_code, 0);
  const std::unique_ptr<Child> why = run.Weft({"why-stopped", run.run_folder()});
  const TinyRun::Outcome said = TinyRun::Finish(*why, 30);
  EXPECT_EQ(said.exit_code, 0) << said.err;
  for (const char* part :
       {", generation 1\n", "cause       its process is stopped (state T", "rank        1\n",
        "phase       step, step ", "collective  ", "waiting     rank",
        "ended generation 1; the next one goes on after step", "/logs/generation-1/stacks-"}) {
    EXPECT_THAT(said.out, HasSubstr(part));
  }
  const std::unique_ptr<Child> json = run.Weft({"why-stopped", run.run_folder(), "--json"});
  const auto event = nlohmann::json::parse(TinyRun::Finish(*json, 30).out, nullptr, false);
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
  const Verdict verdict = AwaitVerdict(run, 40);
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

// Stopped for 60 of every 64 ms, it goes on for the rest of it: it is slow, and no more than that.
TEST(Hangs, AreNotSeenInARankThatIsOnlySlowWhichIsNamed) {
  TinyRun run;
  const std::unique_ptr<Child> weft = run.Run(Arguments("dp: 4, pp: 1, tp: 1", "100000"));
  run.WaitForStep(40);
  const std::optional<Worker> worker = FindWorker(run, 2);
  ASSERT_TRUE(worker.has_value());
  const double begun_s = NowSeconds();
  while (SlownessIn(run).empty() && NowSeconds() - begun_s < 60) {
    KillFound(worker->process, SIGSTOP);
    SleepSeconds(0.06);
    KillFound(worker->process, SIGCONT);
    SleepSeconds(0.004);
  }
  const std::string line = SlownessIn(run);
  std::printf("slow: named after %.1f s: %s\n", NowSeconds() - begun_s, line.c_str());
  EXPECT_THAT(line, HasSubstr("\"phase\":\"RUNNING\",\"reason\":\"rank 2 ("));
  EXPECT_THAT(line, HasSubstr(" is slow: it computes for "));
  const std::unique_ptr<Child> status = run.Weft({"status", run.run_folder()});
  EXPECT_THAT(TinyRun::Finish(*status, 30).out, HasSubstr(" is slow: it computes for "));
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
  const int sound_s = NumberFromEnvironment("WEFT_SOUND_S", 60);
  for (const std::string layout : {"dp: 4, pp: 1, tp: 1", "dp: 2, pp: 2, tp: 1"}) {
    SCOPED_TRACE(layout);
    TinyRun run;
    std::unique_ptr<Child> weft;
    {
      const OnOneCore bound;
      weft = run.Run(Arguments(layout, "100000"));
    }
    run.WaitForStep(20, 60);
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

// The run of `call` that never returns in rank 1 of a generation.
void ExpectHangOfAFile(const std::string& call, const std::string& phase, bool resumes) {
  TinyRun run;
  const std::string flag = std::filesystem::path(run.job_path()).parent_path() / "hanging";
  if (resumes) {
    const std::unique_ptr<Child> first = run.Run();
    run.WaitForStep(15);
    first->Signal(SIGINT);
    ASSERT_EQ(TinyRun::Finish(*first, 30).exit_code, 0);
    std::filesystem::remove(run.run_folder() + "/logs/weftd.log");
  }
  std::ofstream(flag) << "now";
  const std::unique_ptr<Child> weft = run.Run(
      {"--set", "training.steps=" + std::string(resumes ? "60" : "100000"), "--set",
       "cluster.env={LD_PRELOAD: " WEFT_HANGING_FILE ", HANGING_RANK: \"1\", HANGING_CALL: " +
           call + ", HANGING_FLAG: " + flag + "}"});
  const Verdict verdict = AwaitVerdict(run, 60);
  EXPECT_EQ(verdict.rank, 1) << verdict.line;
  EXPECT_EQ(verdict.phase, phase) << verdict.line;
  std::printf("%s of a file: %s\n", call.c_str(), verdict.line.c_str());
}

TEST(Hangs, OfAReadThatNeverReturnsAreNamed) {
  ExpectHangOfAFile("open", "load", /*resumes=*/true);
}

TEST(Hangs, OfASaveThatNeverReturnsAreNamed) {
  ExpectHangOfAFile("fsync", "save", /*resumes=*/false);
}

// A file system of its own in a file, which can be frozen; thawed and unmounted at the end.
class FrozenDisk {
 public:
  explicit FrozenDisk(const std::string& folder) : folder_(folder) {
    std::filesystem::create_directories(folder);
    const std::string image = folder + ".image";
    const std::string make = "truncate -s 64M " + image + " && mkfs.ext4 -q " + image +
                             " && mount -o loop " + image + " " + folder + " 2>/dev/null";
    mounted_ = std::system(make.c_str()) == 0;
  }
  ~FrozenDisk() {
    if (!mounted_) return;
    Thaw();
    umount2(folder_.c_str(), MNT_DETACH);
  }
  FrozenDisk(const FrozenDisk&) = delete;
  FrozenDisk& operator=(const FrozenDisk&) = delete;

  bool mounted() const { return mounted_; }
  bool Freeze() { return Ask(FIFREEZE); }
  void Thaw() { Ask(FITHAW); }

 private:
  bool Ask(unsigned long what) const {
    const int folder = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool done = folder >= 0 && ioctl(folder, what, 0) == 0;
    close(folder);
    return done;
  }

  const std::string folder_;
  bool mounted_ = false;
};

// All ranks write to it, so any of them may be the one; state D is what tells it.
TEST(Hangs, OfAFrozenFileSystemAreNamedAndTheRunGoesOnOnceItThaws) {
  TinyRun run;
  FrozenDisk disk(std::filesystem::path(run.job_path()).parent_path() / "disk");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a file needs root and a loop device";
  std::vector<std::string> arguments = Arguments("dp: 2, pp: 2, tp: 1", "100000");
  arguments.insert(
      arguments.end(),
      {"--set", "checkpoint.folder=" +
                    (std::filesystem::path(run.job_path()).parent_path() / "disk").string() +
                    "/checkpoint"});
  const std::unique_ptr<Child> weft = run.Run(arguments);
  run.WaitForStep(35);
  ASSERT_TRUE(disk.Freeze());
  const Verdict verdict = AwaitVerdict(run, 60);
  disk.Thaw();
  EXPECT_GE(verdict.rank, 0);
  EXPECT_EQ(verdict.phase, "save") << verdict.line;
  EXPECT_THAT(verdict.line, HasSubstr("state D"));
  std::printf("frozen: %s\n", verdict.line.c_str());
  EXPECT_TRUE(Eventually(40, [&] {
    const std::vector<StepMetrics> steps = run.Metrics();
    return !steps.empty() && steps.back().generation == 2;
  }));
}

}  // namespace
}  // namespace weft
