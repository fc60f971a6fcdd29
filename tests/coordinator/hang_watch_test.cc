#include "coordinator/hang_watch.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

Job Training() {
  Job job;
  job.generation.phase = GenerationPhase::kTraining;
  return job;
}

// A watch that has seen `steps` of `step_ms` each; the last one ended at steps * step_ms.
HangWatch After(int steps, int64_t step_ms) {
  HangWatch watch;
  for (int step = 1; step <= steps; ++step) watch.StepDone(step * step_ms);
  return watch;
}

TEST(HangWatch, GivesTheFirstStepsAFloorThatThePredictionRaises) {
  EXPECT_EQ(After(19, 10).StepBudgetMs(0.1), 20000);
  EXPECT_EQ(After(19, 10).StepBudgetMs(60), 300000);
}

TEST(HangWatch, GivesAStepThreeTimesTheNinetyNinthPercentileAndTwoSecondsAtLeast) {
  EXPECT_EQ(After(20, 10).StepBudgetMs(0.1), 2000);
  EXPECT_EQ(After(20, 1000).StepBudgetMs(0.1), 3000);
  HangWatch watch = After(199, 10);
  watch.StepDone(1990 + 5000);
  EXPECT_EQ(watch.StepBudgetMs(0.1), 2000) << "one slow step in 200 is not the 99th percentile";
  watch.StepDone(1990 + 10000);
  watch.StepDone(1990 + 15000);
  EXPECT_EQ(watch.StepBudgetMs(0.1), 15000);
}

TEST(HangWatch, ForgetsTheStepsOfAnotherGeneration) {
  HangWatch watch = After(50, 1000);
  watch.Forget();
  EXPECT_EQ(watch.StepBudgetMs(0.1), 20000);
}

TEST(HangWatch, LooksBeforeTheBudgetIsOverAndNotWhileThingsMove) {
  HangWatch watch = After(20, 100);
  EXPECT_FALSE(watch.IsQuiet(Training(), 2000 + 1000));
  EXPECT_TRUE(watch.IsQuiet(Training(), 2000 + 1300));
  watch.Moved(3200);
  EXPECT_FALSE(watch.IsQuiet(Training(), 3300)) << "a save has begun";
}

TEST(HangWatch, DoesNotLookAtAGenerationThatIsToEnd) {
  Job job = Training();
  job.generation.phase = GenerationPhase::kStopping;
  EXPECT_TRUE(HangWatch().IsQuiet(job, 60000)) << "finished ranks that do not leave";
  job.generation.cause = GenerationCause();
  EXPECT_FALSE(HangWatch().IsQuiet(job, 60000));
  job.generation.phase = GenerationPhase::kOpen;
  EXPECT_FALSE(HangWatch().IsQuiet(job, 60000));
}

TEST(HangWatch, BoundsWhatStepsDoNotByFloors) {
  Culprit culprit;
  culprit.evidence = Evidence::kStandsStill;
  for (const auto& [phase, budget_ms] : {std::pair{RankPhase::kStart, kStartFloorMs},
                                         {RankPhase::kLoad, kLoadFloorMs},
                                         {RankPhase::kStep, int64_t{2000}},
                                         {RankPhase::kEval, int64_t{2000}},
                                         {RankPhase::kSave, kSaveFloorMs},
                                         {RankPhase::kTeardown, kTeardownFloorMs}}) {
    culprit.phase = phase;
    EXPECT_EQ(BudgetMs(culprit, 2000), budget_ms) << NameOf(phase);
  }
}

TEST(HangWatch, KnowsAStopForWhatItIs) {
  Culprit culprit;
  culprit.evidence = Evidence::kStopped;
  culprit.phase = RankPhase::kSave;
  EXPECT_EQ(BudgetMs(culprit, 2000), 5000);
  culprit.phase = RankPhase::kStep;
  EXPECT_EQ(BudgetMs(culprit, 20000), 5000) << "of the first steps";
  EXPECT_EQ(BudgetMs(culprit, 2000), 2000);
}

}  // namespace
}  // namespace weft
