// `weft run` promises this when nothing goes wrong: it trains, twice the same, in any layout, goes
// on where it was, and refuses what would mix two runs in one folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tests/end_to_end/tiny_run.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

TEST(Run, TrainsUntilTheLossHasFallenAndLeavesItsFiles) {
  TinyRun run;
  const TinyRun::Outcome outcome = run.RunToEnd();
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::vector<StepMetrics> metrics = run.Metrics();
  ASSERT_EQ(metrics.size(), static_cast<size_t>(TinyRun::kSteps));
  EXPECT_NEAR(metrics.front().loss, std::log(256.0), 0.1);
  EXPECT_LT(metrics.back().loss, metrics.front().loss - 1.5);
  EXPECT_NEAR(std::strtod(metrics.back().loss_hex.c_str(), nullptr), metrics.back().loss, 1e-7);
  for (const char* file : {"resolved.yaml", "events.jsonl", "journal.db", "logs/weftd.log",
                           "logs/generation-1/rank-0.log", "logs/generation-1/rank-3.log",
                           "checkpoint/step-60/manifest.json"}) {
    EXPECT_TRUE(std::filesystem::exists(run.run_folder() + "/" + file)) << file;
  }
  EXPECT_EQ(run.Checkpoints(), (std::set<std::string>{"step-40", "step-50", "step-60"}));
  // In a pipe: plain lines, no cursor movements.
  EXPECT_THAT(outcome.out + outcome.err, AllOf(HasSubstr("60/60"), Not(HasSubstr("\x1b["))));
  run.ExpectNothingLeft();
}

// A person may give a token or a password by cluster.env.
TEST(Run, KeepsTheJobsEnvironmentToItsUser) {
  const mode_t before = umask(022);
  TinyRun run;
  const std::string secret = "hunter2-" + std::to_string(getpid());
  const std::unique_ptr<Child> child = run.Run({"--set", "cluster.env={TOKEN: " + secret + "}"});
  run.WaitForStep(15);
  const auto expect_private = [&] {
    int holders = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(run.run_folder())) {
      struct stat status = {};
      if (lstat(entry.path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
      if (ReadText(entry.path()).find(secret) == std::string::npos) continue;
      EXPECT_EQ(status.st_mode & 0777U, 0600U) << entry.path();
      ++holders;
    }
    return holders;
  };
  EXPECT_GE(expect_private(), 2) << "the journal, or what is beside it, and resolved.yaml";
  EXPECT_EQ(child->Wait(kPatienceS)->exit_code, 0) << child->Stderr();
  EXPECT_GE(expect_private(), 2);
  for (const char* file : {"/journal.db", "/resolved.yaml"}) {
    struct stat status = {};
    ASSERT_EQ(stat((run.run_folder() + file).c_str(), &status), 0) << file;
    EXPECT_EQ(status.st_mode & 0777U, 0600U) << file;
  }
  umask(before);
  run.ExpectNothingLeft();
}

TEST(Run, TwiceGivesTheSameBits) {
  TinyRun again;
  EXPECT_EQ(again.RunToEnd().exit_code, 0);
  EXPECT_EQ(again.Curve(), UndisturbedCurve());
}

// The first command that a run offers under "try next:", without the program's name.
std::vector<std::string> OfferedCommand(const std::string& out) {
  std::istringstream lines(out.substr(std::min(out.size(), out.find("try next:\n"))));
  std::string title, program, word;
  std::getline(lines, title);
  std::getline(lines, word);
  std::istringstream words(word);
  words >> program;
  return {std::istream_iterator<std::string>(words), {}};
}

TEST(Run, ThatIsDoneSaysSoAndOffersToGoOn) {
  TinyRun run;
  const TinyRun::Outcome first = run.RunToEnd();
  ASSERT_EQ(first.exit_code, 0);
  const TinyRun::Outcome again = run.RunToEnd();
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("done: step 60 of 60"));
  EXPECT_EQ(run.Metrics().size(), static_cast<size_t>(TinyRun::kSteps));
  const std::vector<std::string> offered = OfferedCommand(again.out);
  EXPECT_EQ(offered, OfferedCommand(first.out));
  ASSERT_GE(offered.size(), 4u) << again.out;
  const TinyRun::Outcome more = TinyRun::Finish(*run.Weft(offered), 240);
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_EQ(run.LastStep(), 2 * TinyRun::kSteps);
  EXPECT_EQ(run.Metrics().size(), 2u * TinyRun::kSteps);
  EXPECT_THAT(run.RunToEnd().out, HasSubstr("done: step 120 is saved, training.steps asks for 60"));
  run.ExpectNothingLeft();
}

TEST(Run, OffersMoreTokensWhereTheJobCountsThem) {
  TinyRun run;
  std::ifstream in(run.job_path());
  std::string text((std::istreambuf_iterator<char>(in)), {});
  const std::string steps = "steps: 60";
  const size_t at = text.find(steps);
  ASSERT_NE(at, std::string::npos) << text;
  text.replace(at, steps.size(), "tokens: 20480");
  std::ofstream(run.job_path()) << text;
  const TinyRun::Outcome first = run.RunToEnd();
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const int64_t last = run.LastStep();
  const TinyRun::Outcome more = TinyRun::Finish(*run.Weft(OfferedCommand(first.out)), 240);
  EXPECT_EQ(more.exit_code, 0) << more.err << first.out;
  EXPECT_EQ(run.LastStep(), 2 * last);
  run.ExpectNothingLeft();
}

TEST(Run, GoesOnInAnotherLayoutFromTheSameCheckpoint) {
  TinyRun run;
  ASSERT_EQ(run.RunToEnd({"--set", "training.steps=30"}).exit_code, 0);
  const TinyRun::Outcome outcome =
      run.RunToEnd({"--set", "parallelism.dp=1", "--set", "parallelism.tp=2"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::vector<StepMetrics> metrics = run.Metrics();
  ASSERT_EQ(metrics.size(), static_cast<size_t>(TinyRun::kSteps));
  const std::map<int64_t, std::string> expected = UndisturbedCurve();
  for (const StepMetrics& step : metrics) {
    const double loss = std::strtod(expected.at(step.step).c_str(), nullptr);
    EXPECT_NEAR(step.loss, loss, 1e-6 * loss) << "step " << step.step;
  }
  run.ExpectNothingLeft();
}

TEST(Run, FreshStartsAnew) {
  TinyRun run;
  ASSERT_EQ(run.RunToEnd({"--set", "training.steps=20"}).exit_code, 0);
  const std::map<int64_t, std::string> first = run.Curve();
  ASSERT_EQ(run.RunToEnd({"--set", "training.steps=20", "--fresh"}).exit_code, 0);
  EXPECT_EQ(run.Curve(), first);
  EXPECT_EQ(run.Metrics().size(), 20u) << "metrics of the old run are not mixed in";
}

TEST(Run, RefusesToChangeTheMathematicsOfAFolder) {
  TinyRun run;
  ASSERT_EQ(run.RunToEnd({"--set", "training.steps=10"}).exit_code, 0);
  const struct {
    const char* set;
    const char* says;
  } changes[] = {{"training.seed=43", "training.seed"},
                 {"training.global_batch_size=32", "training.global_batch_size"},
                 {"optimizer.lr=0.5", "optimizer.lr"},
                 {"data.train=[{path: /usr/share/common-licenses/GPL-2}]", "data.train"}};
  for (const auto& change : changes) {
    const TinyRun::Outcome outcome =
        run.RunToEnd({"--set", "training.steps=10", "--set", change.set});
    EXPECT_EQ(outcome.exit_code, 2) << change.set;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(change.says), HasSubstr("--fresh")));
  }
}

TEST(Run, RefusesDataThatHasChangedBehindItsName) {
  TinyRun run;
  const std::string text = std::filesystem::path(run.job_path()).parent_path() / "text";
  std::filesystem::copy_file("/usr/share/common-licenses/GPL-3", text);
  const std::vector<std::string> arguments = {"--set", "training.steps=10", "--set",
                                              "data.train=[{path: " + text + "}]"};
  ASSERT_EQ(run.RunToEnd(arguments).exit_code, 0);
  std::ofstream(text, std::ios::app) << "one more line\n";
  const TinyRun::Outcome outcome = run.RunToEnd(arguments);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr(text));
}

TEST(Run, HoldsItsFolderAlone) {
  TinyRun run;
  const std::unique_ptr<Child> first = run.Run();
  run.WaitForStep(3);
  const TinyRun::Outcome second = run.RunToEnd({}, kPatienceS);
  EXPECT_EQ(second.exit_code, 75);
  EXPECT_THAT(second.err, HasSubstr("in use by another weft"));
  EXPECT_EQ(TinyRun::Finish(*first, 240).exit_code, 0);
  run.ExpectNothingLeft();
}

TEST(Run, RepeatsFromItsResolvedYaml) {
  TinyRun run;
  ASSERT_EQ(run.RunToEnd({"--set", "training.steps=20"}).exit_code, 0);
  const std::map<int64_t, std::string> first = run.Curve();
  const std::string resolved = run.run_folder() + "/resolved.yaml";
  const std::unique_ptr<Child> weft = run.Weft({"run", resolved, "--fresh"});
  const TinyRun::Outcome outcome = TinyRun::Finish(*weft, 240);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(run.Curve(), first);
}

// A run starts from a checkpoint of another run and from what weft export makes of it; the weights
// are needed until the run has begun.
TEST(Run, StartsFromTheWeightsOfAnotherRun) {
  TinyRun run;
  ASSERT_EQ(run.RunToEnd({"--set", "training.steps=30"}).exit_code, 0);
  const double trained = run.Metrics().back().loss;
  const std::string checkpoints = run.run_folder() + "/checkpoint";
  const std::string exported = run.run_folder() + "/exported";
  ASSERT_EQ(
      TinyRun::Finish(*run.Weft({"export", run.run_folder(), "--hf", exported}), 240).exit_code, 0);
  const std::filesystem::path folder = std::filesystem::path(run.job_path()).parent_path();
  const auto start = [&](const std::string& name, const std::string& from, int steps) {
    return run.RunToEnd({"--set", "job.name=" + name, "--set", "model.init_from=" + from, "--set",
                         "training.steps=" + std::to_string(steps)});
  };
  const std::string old = folder / "weights";
  std::string first_losses[2];
  for (const bool from_step : {true, false}) {
    std::filesystem::rename(from_step ? checkpoints + "/step-30" : exported, old);
    const std::string name = from_step ? "from_step" : "from_exported";
    const TinyRun::Outcome begun = start(name, old, 5);
    ASSERT_EQ(begun.exit_code, 0) << begun.err;
    const std::vector<StepMetrics> metrics = MetricsOf(folder / name);
    ASSERT_EQ(metrics.size(), 5u);
    first_losses[from_step ? 0 : 1] = metrics.front().loss_hex;
    EXPECT_NEAR(metrics.front().loss, trained, 0.3) << "not drawn weights, whose loss is 5.5";
    std::filesystem::rename(old, old + "." + name);
    const TinyRun::Outcome gone_on = start(name, old, 8);
    EXPECT_EQ(gone_on.exit_code, 0) << gone_on.err;
    EXPECT_EQ(MetricsOf(folder / name).size(), 8u);
    const TinyRun::Outcome anew = start(name + "_anew", old, 5);
    EXPECT_EQ(anew.exit_code, 2);
    EXPECT_THAT(anew.err, AllOf(HasSubstr("model.init_from"), HasSubstr(old)));
  }
  EXPECT_EQ(first_losses[0], first_losses[1]);
  run.ExpectNothingLeft();
}

TEST(Run, OfABadJobFileStartsNothing) {
  const struct {
    const char* set;
    int exit_code;
    const char* says;
  } cases[] = {{"training.stepz=3", 2, "did you mean steps"},
               {"parallelism.pp=3", 2, "3"},
               {"data.train=[{path: /nonexistent}]", 2, "/nonexistent"},
               {"parallelism.tp=8", 2, "tp"}};
  for (const auto& c : cases) {
    TinyRun run;
    const TinyRun::Outcome outcome = run.RunToEnd({"--set", c.set}, 120);
    EXPECT_EQ(outcome.exit_code, c.exit_code) << c.set << ": " << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(c.says)) << c.set;
    EXPECT_FALSE(std::filesystem::exists(run.run_folder())) << c.set;
    run.ExpectNothingLeft();
  }
}

}  // namespace
}  // namespace weft
