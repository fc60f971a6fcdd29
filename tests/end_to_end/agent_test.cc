// The agent of a run, through the real binaries: what it survives, what it is asked, what it
// leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>

#include "tests/end_to_end/tiny_run.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

// The processes of that name whose command has the word.
std::vector<Found> ProcessesWithWord(const TinyRun& run, const std::string& program,
                                     const std::string& word) {
  std::vector<Found> found = run.Processes(program);
  std::erase_if(found,
                [&](const Found& each) { return each.command.find(word) == std::string::npos; });
  return found;
}

// Kills one process of that kind at step 25: the run goes on to its end with the same losses.
void ExpectKillIsSurvived(const std::string& program, const std::string& word,
                          const std::string& said) {
  TinyRun run;
  const std::unique_ptr<Child> weft = run.Run();
  run.WaitForStep(25);
  const std::vector<Found> victims = ProcessesWithWord(run, program, word);
  ASSERT_FALSE(victims.empty());
  ASSERT_TRUE(KillFound(victims.back(), SIGKILL));
  const TinyRun::Outcome outcome = TinyRun::Finish(*weft, 240);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out + outcome.err, HasSubstr(said));
  EXPECT_EQ(run.Metrics().back().generation, 2);
  EXPECT_EQ(run.Curve(), UndisturbedCurve());
  run.ExpectNothingLeft();
}

// Another agent on the machine ends what is left of the ranks, and then it can vouch for them.
TEST(Agent, ThatIsKilledIsStartedAgainAndTheRunGoesOn) {
  ExpectKillIsSurvived("weft", " agent ", "it is started again");
}

TEST(Agent, NamesTheRankWhoseShimIsKilled) {
  ExpectKillIsSurvived("weft-shim", "", "killed by signal 9");
}

// A batch system sends USR2 before it takes the host away, to whichever process it knows of. TERM
// at the agent says that its host leaves, and this run has no other one: it may be tried again.
// TERM at weftd is a wish to save and stop, too, and it stays until that is done.
TEST(Agent, SavesAndStopsWhenItGetsASignal) {
  struct Case {
    const char* program;
    const char* word;
    int signal;
    int exit_code;
  };
  for (const Case& each : {Case{"weft", " agent ", SIGUSR2, 0},
                           Case{"weft", " agent ", SIGTERM, 75}, Case{"weft", " run ", SIGUSR2, 0},
                           Case{"weft-shim", "", SIGUSR2, 0}, Case{"weftd", "", SIGTERM, 0}}) {
    SCOPED_TRACE(std::string(each.program) + each.word + std::to_string(each.signal));
    TinyRun run;
    const std::unique_ptr<Child> weft = run.Run({"--set", TinyRun::kEndless});
    run.WaitForStep(13);
    const std::vector<Found> found = ProcessesWithWord(run, each.program, each.word);
    ASSERT_FALSE(found.empty());
    ASSERT_TRUE(KillFound(found.front(), each.signal));
    const TinyRun::Outcome outcome = TinyRun::Finish(*weft, 240);
    EXPECT_EQ(outcome.exit_code, each.exit_code) << outcome.out << outcome.err;
    const int64_t last = run.LastStep();
    EXPECT_EQ(run.Checkpoints().count("step-" + std::to_string(last)), 1u) << last;
    EXPECT_EQ(run.Metrics().back().generation, 1) << "nobody was killed for it";
    run.ExpectNothingLeft();
  }
}

// Slurm sends CONT and USR2 to all processes of a step, TERM where the job is cancelled. mpirun
// would pass CONT on to its shims, which take a CONT of its for the word that it ends its ranks.
TEST(Agent, SavesAndStopsWhenAllProcessesGetANotice) {
  for (const int notice : {SIGUSR2, SIGTERM}) {
    SCOPED_TRACE(notice);
    TinyRun run;
    const std::unique_ptr<Child> weft = run.Run({"--set", TinyRun::kEndless});
    run.WaitForStep(13);
    const std::vector<Found> starters = run.Processes("mpirun");
    ASSERT_EQ(starters.size(), 1u);
    ASSERT_TRUE(KillFound(starters.front(), SIGCONT));
    run.WaitForStep(run.LastStep() + 30);
    std::vector<Found> all = ProcessesWithWord(run, "weft", " agent ");
    for (const char* program : {"mpirun", "weft-shim", "weft-worker"}) {
      const std::vector<Found> found = run.Processes(program);
      all.insert(all.end(), found.begin(), found.end());
    }
    for (const Found& each : all) {
      EXPECT_TRUE(KillFound(each, SIGCONT));
      EXPECT_TRUE(KillFound(each, notice));
    }
    const TinyRun::Outcome outcome = TinyRun::Finish(*weft, 240);
    EXPECT_EQ(outcome.exit_code, notice == SIGTERM ? 75 : 0) << outcome.out << outcome.err;
    const int64_t last = run.LastStep();
    EXPECT_EQ(run.Checkpoints().count("step-" + std::to_string(last)), 1u) << last;
    EXPECT_EQ(run.Metrics().back().generation, 1) << "nobody was killed for it";
    run.ExpectNothingLeft();
  }
}

// A run folder may be deeper than a socket's address is long; its socket lies in it all the same,
// where nobody else can put one of their own.
TEST(Agent, ServesARunFolderHoweverDeepItIs) {
  TinyRun run;
  const std::string deep =
      std::filesystem::path(run.run_folder()).parent_path().string() + "/" + std::string(120, 'd');
  std::filesystem::create_directory(deep);
  const std::unique_ptr<Child> weft =
      run.Run({"--set", "job.output_dir=" + deep, "--set", TinyRun::kEndless});
  ASSERT_TRUE(Eventually(120, [&] { return std::filesystem::exists(deep + "/tiny/weftd.sock"); }));
  ASSERT_TRUE(Eventually(120, [&] { return !MetricsOf(deep + "/tiny").empty(); }));
  const std::unique_ptr<Child> status = run.Weft({"status", deep + "/tiny"});
  EXPECT_THAT(TinyRun::Finish(*status, 240).out, HasSubstr("RUNNING"));
  const std::unique_ptr<Child> stop = run.Weft({"stop", deep + "/tiny"});
  EXPECT_EQ(TinyRun::Finish(*stop, 240).exit_code, 0);
  EXPECT_EQ(TinyRun::Finish(*weft, 240).exit_code, 0);
  run.ExpectNothingLeft();
}

// Whatever lease the job file may ask for, the coordinator grants.
TEST(Agent, RunsWithALeaseOfHours) {
  TinyRun run;
  const TinyRun::Outcome outcome =
      run.RunToEnd({"--set", "fault_tolerance.heartbeat_timeout_seconds=7200"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(run.LastStep(), TinyRun::kSteps);
  run.ExpectNothingLeft();
}

}  // namespace
}  // namespace weft
