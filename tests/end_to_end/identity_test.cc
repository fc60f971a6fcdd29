// A run is known by its id, whatever becomes of the path of its folder: through the real binaries,
// with folders that are copied, moved and mounted twice, and launchers that stand still.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "checkpoint/folders.h"
#include "launcher/run/run_identity.h"
#include "tests/end_to_end/tiny_run.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<Found> LaunchersOf(const TinyRun& run) {
  std::vector<Found> found = run.Processes("weft");
  std::erase_if(found,
                [](const Found& each) { return each.command.find(" run ") == std::string::npos; });
  return found;
}

std::vector<Found> AgentsOf(const TinyRun& run) {
  std::vector<Found> found = run.Processes("weft");
  std::erase_if(
      found, [](const Found& each) { return each.command.find(" agent ") == std::string::npos; });
  return found;
}

// A StoppedProcess stands still in all its threads as long as this lives, as one that hangs on a
// disk: a SIGSTOP would end with its process group's last parent. It can be killed.
class StoppedProcess {
 public:
  explicit StoppedProcess(pid_t pid) : pid_(pid) {
    const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
    for (const auto& task : std::filesystem::directory_iterator(tasks)) {
      const pid_t thread = std::atoi(task.path().filename().c_str());
      EXPECT_EQ(ptrace(PTRACE_SEIZE, thread, nullptr, nullptr), 0) << std::strerror(errno);
      EXPECT_EQ(ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr), 0) << std::strerror(errno);
      threads_.push_back(thread);
    }
  }
  StoppedProcess(StoppedProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)), threads_(std::move(other.threads_)) {}
  ~StoppedProcess() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    // The first thread is the process, whose end comes behind theirs.
    for (auto thread = threads_.rbegin(); thread != threads_.rend(); ++thread) {
      int status = 0;
      while (waitpid(*thread, &status, __WALL) == *thread && WIFSTOPPED(status)) {
      }
    }
  }

 private:
  pid_t pid_;
  std::vector<pid_t> threads_;
};

// Kills the launcher of a run that trains, whose agent stands still and so does not leave.
StoppedProcess CrashWithAnAgentThatStays(TinyRun& run, bool kills_coordinator = false) {
  const std::unique_ptr<Child> weft = run.Run();
  run.WaitForStep(25);
  const std::vector<Found> agents = AgentsOf(run);
  EXPECT_EQ(agents.size(), 1u);
  std::vector<Found> coordinators;
  if (kills_coordinator) coordinators = run.Processes("weftd");
  StoppedProcess stopped(agents.empty() ? 0 : agents[0].pid);
  // The coordinator neither follows the launcher in good order, nor does that start another one.
  for (const Found& coordinator : coordinators) KillFound(coordinator, SIGSTOP);
  for (const Found& launcher : LaunchersOf(run)) KillFound(launcher, SIGKILL);
  for (const Found& coordinator : coordinators) KillFound(coordinator, SIGKILL);
  EXPECT_TRUE(weft->Wait(kPatienceS));
  SleepSeconds(1);  // whoever leaves by itself has left
  EXPECT_EQ(AgentsOf(run).size(), 1u) << "it stands still";
  return stopped;
}

// Copies as a person does: links, modes and times as they are.
void CopyRun(const std::string& folder, const std::string& to) {
  std::filesystem::create_directories(std::filesystem::path(to).parent_path());
  const std::string command = "cp -a '" + folder + "' '" + to + "'";
  ASSERT_EQ(std::system(command.c_str()), 0);
}

// Every checkpoint in the folder is of the run that the folder says it is.
void ExpectOwnCheckpoints(const std::string& run_folder) {
  const std::string id = StatedRunId(run_folder);
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(run_folder + "/checkpoint")) {
    if (!StepOf(entry.path().filename())) continue;
    const std::optional<Owner> owner = OwnerOf(entry.path());
    ASSERT_TRUE(owner) << entry.path();
    EXPECT_EQ(owner->run_id, id) << entry.path();
    ++count;
  }
  EXPECT_EQ(count, 3) << "checkpoint.keep_latest_k counts those that were copied, too";
}

// The journal of a run that was killed says where it trains: in the folder that was copied.
TEST(Identity, OfACopyIsItsOwnAndTheOriginalIsLeftAlone) {
  TinyRun run;
  const std::unique_ptr<Child> weft = run.Run();
  run.WaitForStep(25);
  for (const Found& launcher : LaunchersOf(run)) KillFound(launcher, SIGKILL);
  ASSERT_TRUE(Eventually(kLeavesWithinS, [&] { return weft->Wait(0) && run.Processes().empty(); }));
  const std::string before = ReadText(run.run_folder() + "/metrics.jsonl");
  const std::string copies = run.run_folder() + "-copies", copy = copies + "/tiny";
  CopyRun(run.run_folder(), copy);
  const TinyRun::Outcome outcome = run.RunToEnd({"--set", "job.output_dir=" + copies});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("this folder is a copy of the run in " + run.run_folder()),
                    HasSubstr("resume: "), Not(HasSubstr("left alone: "))));
  EXPECT_TRUE(std::filesystem::exists(copy + "/journal.db.of-another-folder"));
  EXPECT_NE(StatedRunId(copy), StatedRunId(run.run_folder()));
  ExpectOwnCheckpoints(copy);
  EXPECT_EQ(CurveOf(copy), UndisturbedCurve());
  EXPECT_EQ(ReadText(run.run_folder() + "/metrics.jsonl"), before) << "nobody trains there";
  const TinyRun::Outcome original = run.RunToEnd();
  EXPECT_EQ(original.exit_code, 0) << original.err;
  EXPECT_THAT(original.out, Not(HasSubstr("copy")));
  EXPECT_EQ(run.Curve(), UndisturbedCurve());
  run.ExpectNothingLeft();
}

TEST(Identity, OfAMovedRunFindsWhatTheCrashLeft) {
  TinyRun run;
  const StoppedProcess agent = CrashWithAnAgentThatStays(run);
  const std::string id = StatedRunId(run.run_folder());
  const std::string moves = run.run_folder() + "-moves", moved = moves + "/tiny";
  std::filesystem::create_directory(moves);
  std::filesystem::rename(run.run_folder(), moved);
  const TinyRun::Outcome outcome = run.RunToEnd({"--set", "job.output_dir=" + moves});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_EQ(StatedRunId(moved), id);
  EXPECT_EQ(CurveOf(moved), UndisturbedCurve());
  EXPECT_FALSE(std::filesystem::exists(run.run_folder()));
  run.ExpectNothingLeft();
}

// The old path still leads to a folder with that id: to this one.
TEST(Identity, IsTheSameWhereItsFolderIsMountedTwice) {
  TinyRun run;
  const StoppedProcess agent = CrashWithAnAgentThatStays(run);
  const std::string id = StatedRunId(run.run_folder());
  const std::string again = run.run_folder() + "-again";
  std::filesystem::create_directory(again);
  const std::string runs = std::filesystem::path(run.run_folder()).parent_path();
  const std::unique_ptr<Child> there =
      run.RunWhereMounted(runs, again, {"--set", "job.output_dir=" + again});
  const TinyRun::Outcome outcome = TinyRun::Finish(*there, 240);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, Not(HasSubstr("copy")));
  EXPECT_EQ(StatedRunId(run.run_folder()), id);
  EXPECT_EQ(run.Curve(), UndisturbedCurve());
  run.ExpectNothingLeft();
}

// Two containers see two folders under one path, and share processes and memory files. The first
// one's launcher stands still; it lives all the same.
TEST(Identity, OfALivingRunIsNotTakenByItsNamesakeUnderTheSamePath) {
  TinyRun run;
  const std::unique_ptr<Child> weft = run.Run({"--set", TinyRun::kEndless});
  run.WaitForStep(25);
  const std::vector<Found> launchers = LaunchersOf(run);
  ASSERT_EQ(launchers.size(), 1u);
  ASSERT_TRUE(KillFound(launchers[0], SIGSTOP));
  // All of them stand still for a moment: a database that is written has no copy.
  const std::vector<Found> before = run.Processes();
  for (const Found& each : before) KillFound(each, SIGSTOP);
  const std::string copy = run.run_folder() + "-copies/tiny";
  CopyRun(run.run_folder(), copy);
  for (const Found& each : before) {
    if (each.pid != launchers[0].pid) KillFound(each, SIGCONT);
  }
  const std::unique_ptr<Child> there =
      run.RunWhereMounted(copy, run.run_folder(), {"--set", TinyRun::kEndless});
  EXPECT_TRUE(Eventually(kPatienceS, [&] { return CurveOf(copy).count(TinyRun::kSteps) > 0; }));
  there->Signal(SIGINT);
  const TinyRun::Outcome outcome = TinyRun::Finish(*there, 240);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("this folder is a copy of the run in "));
  std::map<int64_t, std::string> curve = CurveOf(copy);
  std::erase_if(curve, [](const auto& each) { return each.first > TinyRun::kSteps; });
  EXPECT_EQ(curve, UndisturbedCurve());
  EXPECT_NE(StatedRunId(copy), StatedRunId(run.run_folder()));
  std::set<int> alive;
  for (const Found& each : run.Processes()) alive.insert(each.pid);
  for (const Found& each : before) EXPECT_TRUE(alive.count(each.pid) > 0) << each.command;
  ASSERT_TRUE(KillFound(launchers[0], SIGCONT));
  weft->Signal(SIGINT);
  const TinyRun::Outcome stopped = TinyRun::Finish(*weft, 240);
  EXPECT_EQ(stopped.exit_code, 0) << stopped.out << stopped.err;
  EXPECT_EQ(run.Metrics().back().generation, 1) << "nobody was started again";
  run.ExpectNothingLeft();
}

// A run that --fresh moves aside takes along what a crash has left of it: an agent that stands
// still, and the doors of a coordinator that was killed.
TEST(Identity, OfARunThatIsMovedAsideIsEndedToo) {
  TinyRun run;
  const StoppedProcess agent = CrashWithAnAgentThatStays(run, /*kills_coordinator=*/true);
  ASSERT_TRUE(std::filesystem::exists(run.run_folder() + "/weftd.sock"));
  const std::string id = StatedRunId(run.run_folder());
  const TinyRun::Outcome outcome = run.RunToEnd({"--fresh"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_NE(StatedRunId(run.run_folder()), id);
  EXPECT_EQ(StatedRunId(run.run_folder() + ".old-1"), id);
  EXPECT_EQ(run.Curve(), UndisturbedCurve());
  run.ExpectNothingLeft();
}

}  // namespace
}  // namespace weft
