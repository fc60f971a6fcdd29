// Files that grow while a run lives, and a bound that keeps them from filling a disk: what people
// are shown of them is the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tests/end_to_end/tiny_run.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;
using ::testing::Not;

std::string BytesOf(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// The numbers of the lines that the library has talked of.
std::vector<int64_t> TalkIn(const std::string& text) {
  constexpr char kTalk[] = "talk ";
  std::vector<int64_t> numbers;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(kTalk, 0) == 0) numbers.push_back(std::stoll(line.substr(sizeof(kTalk) - 1)));
  }
  return numbers;
}

// The lines of rank 0 fill one file and a half, those of the others have no end.
TEST(BoundedFiles, OfRanksThatTalkKeepTheirEndAndAreFollowedLineByLine) {
  constexpr int64_t kLines = 800;
  TinyRun run;
  const std::unique_ptr<Child> weft =
      run.Run({"--set", TinyRun::kEndless, "--set", "checkpoint.interval=1000000", "--set",
               "fault_tolerance.max_restarts=0", "--set", "logs.max_file_bytes=65536", "--set",
               "cluster.env={LD_PRELOAD: " WEFT_TALKING_LIBRARY ", TALKING_LINES: \"" +
                   std::to_string(kLines) + "\"}"});
  const std::string logs = run.run_folder() + "/logs/generation-1/rank-";
  ASSERT_TRUE(Eventually(kPatienceS, [&] { return fs::exists(logs + "0.log"); }));
  const std::unique_ptr<Child> follow = run.Weft({"logs", "-f", "--rank", "0", run.run_folder()});
  ASSERT_TRUE(Eventually(kPatienceS, [&] {
    const std::vector<int64_t> older = TalkIn(BytesOf(logs + "1.log.1"));
    return !older.empty() && older.front() > 0 && std::ssize(TalkIn(follow->Stdout())) == kLines;
  })) << follow->Stderr();
  std::vector<Found> workers = run.Processes("weft-worker");
  std::erase_if(workers, [](const Found& worker) {
    return VariableOf(worker.pid, "OMPI_COMM_WORLD_RANK") != "1";
  });
  ASSERT_EQ(workers.size(), 1u);
  ASSERT_TRUE(KillFound(workers[0], SIGKILL));
  const TinyRun::Outcome outcome = TinyRun::Finish(*weft, 240);
  EXPECT_EQ(outcome.exit_code, 1);
  const TinyRun::Outcome followed = TinyRun::Finish(*follow, 240);
  EXPECT_EQ(followed.exit_code, 0) << followed.err;
  EXPECT_EQ(followed.out, BytesOf(logs + "0.log.1") + BytesOf(logs + "0.log"));
  const std::vector<int64_t> told = TalkIn(followed.out);
  ASSERT_EQ(std::ssize(told), kLines);
  for (int64_t i = 0; i < kLines; ++i) EXPECT_EQ(told[static_cast<size_t>(i)], i);
  const std::vector<int64_t> kept = TalkIn(BytesOf(logs + "1.log.1") + BytesOf(logs + "1.log"));
  for (size_t i = 1; i < kept.size(); ++i) EXPECT_EQ(kept[i], kept[i - 1] + 1);
  EXPECT_FALSE(fs::exists(logs + "1.log.2"));
  char last[16];
  std::snprintf(last, sizeof(last), "talk %09d", static_cast<int>(kept.back()));
  EXPECT_THAT(BytesOf(run.run_folder() + "/events.jsonl"), HasSubstr(last)) << "why it was lost";
  run.ExpectNothingLeft();
}

// Steps of the earlier runs and of this one, each once, and the bound counts as no loss.
TEST(BoundedFiles, OfMetricsHaveEachStepOnceOverAStopAndAResume) {
  TinyRun run;
  // A machine that is too busy may lose a rank, whose steps since the last save come again: few.
  const std::vector<std::string> more = {"--set", "checkpoint.interval=20", "--set",
                                         "metrics.max_file_bytes=65536", "--set"};
  const auto run_to = [&](const char* steps) {
    std::vector<std::string> words = more;
    words.emplace_back(steps);
    return words;
  };
  {
    const std::unique_ptr<Child> weft = run.Run(run_to("training.steps=260"));
    run.WaitForStep(20);
    weft->Signal(SIGTERM);
    const TinyRun::Outcome stopped = TinyRun::Finish(*weft, 240);
    EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  }
  const std::string older = run.run_folder() + "/metrics.jsonl.1";
  const TinyRun::Outcome first = run.RunToEnd(run_to("training.steps=260"));
  EXPECT_EQ(first.exit_code, 0) << first.err;
  ASSERT_TRUE(fs::exists(older));
  EXPECT_LE(fs::file_size(older), 65536u);
  std::vector<StepMetrics> metrics = run.Metrics();
  ASSERT_EQ(metrics.size(), 260u);
  for (size_t i = 0; i < metrics.size(); ++i) EXPECT_EQ(metrics[i].step, static_cast<int>(i) + 1);
  const TinyRun::Outcome second = run.RunToEnd(run_to("training.steps=700"));
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.err, Not(HasSubstr("lacks the lines")));
  metrics = run.Metrics();
  EXPECT_LT(metrics.size(), 500u) << "nothing has gone";
  EXPECT_EQ(metrics.back().step, 700);
  for (size_t i = 1; i < metrics.size(); ++i) EXPECT_EQ(metrics[i].step, metrics[i - 1].step + 1);
  run.ExpectNothingLeft();
}

}  // namespace
}  // namespace weft
