// Reports of ranks have to be possible for the job as it stands.
#include "coordinator/fact_check.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/coordinator/job_script.h"

namespace weft {
namespace {

// The job has 20 steps; its two ranks are placed on m1 and m2, and step 10 is saved.
Job SmallJobAtStep(int64_t saved_step) {
  Job job;
  job.id = "job-1";
  job.spec = SmallJob();
  job.layout = TwoRanks();
  job.generation.shares = {{"m1", "h1", {}, {0}}, {"m2", "h2", {}, {1}}};
  job.saved = {{saved_step, "/run/checkpoints/step-10"}};
  return job;
}

TEST(FactCheck, BelievesAnEndAtTheLastStepWithItsCheckpointAlone) {
  const Job job = SmallJobAtStep(10), saved = SmallJobAtStep(20);
  EXPECT_TRUE(CheckFact(saved, Finished{1, 0, 20, false}).ok());
  EXPECT_TRUE(CheckFact(job, Finished{1, 0, 12, /*stopped=*/true}).ok());
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(CheckFact(job, Finished{1, 0, 20, false}).code(), invalid) << "step 10 is saved";
  EXPECT_EQ(CheckFact(saved, Finished{1, 0, 19, false}).code(), invalid);
  EXPECT_EQ(CheckFact(saved, Finished{1, 0, 21, false}).code(), invalid);
  EXPECT_EQ(CheckFact(saved, Finished{1, 0, -1, true}).code(), invalid);
  EXPECT_EQ(CheckFact(job, Finished{1, 0, 20, false}).message(),
            "rank 0 says that it is through, but step 20, the last one, was not committed; the "
            "newest checkpoint is of step 10");
}

TEST(FactCheck, TakesNamesOfCheckpointsAndShardsThatAreNoPaths) {
  const Job job = SmallJobAtStep(10);
  const auto committed = [&](int64_t step, const std::string& folder) {
    return CheckFact(job, Committed{1, 0, step, folder, 100}).ok();
  };
  EXPECT_TRUE(committed(20, "step-20"));
  EXPECT_FALSE(committed(21, "step-21")) << "a step that the job has not";
  const auto written = [&](const std::string& file) {
    return CheckFact(job, ShardWritten{1, 0, 20, 1, {file, 100, "0"}}).ok();
  };
  EXPECT_TRUE(written("rank-0.safetensors"));
  for (const char* const path : {"", ".", "..", "../step-20", "/etc", "a/b"}) {
    EXPECT_FALSE(committed(20, path)) << path;
    EXPECT_FALSE(written(path)) << path;
  }
}

TEST(FactCheck, ARankComesFromWhereItWasPlaced) {
  const Job job = SmallJobAtStep(10);
  EXPECT_TRUE(CheckPlaced(job, 0, "m1").ok());
  EXPECT_TRUE(CheckPlaced(job, 1, "m2").ok());
  EXPECT_FALSE(CheckPlaced(job, 0, "m2").ok());
  EXPECT_FALSE(CheckPlaced(job, 0, "m3").ok());
  EXPECT_FALSE(CheckPlaced(job, 2, "m1").ok());
}

}  // namespace
}  // namespace weft
