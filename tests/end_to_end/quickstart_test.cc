// The newcomer's run, configs/jobs/quickstart.yaml as it stands, on the corpus that
// deploy/prepare_corpus.sh makes. The README states the range of its losses; this test holds it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/end_to_end/tiny_run.h"
#include "tests/places.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The README's words: "from 5.6 to 1.75, give or take 0.1".
constexpr double kFirstLoss = 5.6;
constexpr double kFinalLoss = 1.75;
constexpr double kBound = 0.1;

double MeanOfLast(const std::vector<StepMetrics>& metrics, size_t count) {
  double sum = 0;
  for (size_t i = metrics.size() - count; i < metrics.size(); ++i) sum += metrics[i].loss;
  return sum / static_cast<double>(count);
}

TEST(Quickstart, ReachesTheLossThatTheReadmePromises) {
  const std::string corpus = BinaryPath("/corpus/kjv.txt");
  const std::string prepare =
      "bash '" + SourcePath("/deploy/prepare_corpus.sh") + "' '" + corpus + "'";
  ASSERT_EQ(std::system(prepare.c_str()), 0);
  TinyRun run;
  const std::string folder = std::filesystem::path(run.run_folder()).parent_path();
  const std::unique_ptr<Child> weft = run.Weft(
      {"run", SourcePath("/configs/jobs/quickstart.yaml"), "--set", "job.name=tiny", "--set",
       "job.output_dir=" + folder, "--set", "data.train=[{path: " + corpus + "}]"});
  const TinyRun::Outcome outcome = TinyRun::Finish(*weft, 600);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::vector<StepMetrics> metrics = run.Metrics();
  ASSERT_GE(metrics.size(), 100u);
  EXPECT_NEAR(metrics.front().loss, kFirstLoss, kBound);
  EXPECT_NEAR(MeanOfLast(metrics, 20), kFinalLoss, kBound);
  // A newcomer reads this at the end.
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("done: "), HasSubstr("validation"), HasSubstr("tokens/s"),
                    HasSubstr("checkpoint  " + run.run_folder()), HasSubstr("metrics.jsonl"),
                    HasSubstr("logs"), HasSubstr("try next")));
  run.ExpectNothingLeft();
}

}  // namespace
}  // namespace weft
