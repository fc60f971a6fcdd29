// The independent witness: our fp32 training against a GPT-2 in NumPy, double precision, that was
// written from the papers and shares no line with it (tests/reference/gpt2_reference.py).
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/parity/curve.h"

namespace weft {
namespace {

using ::testing::IsEmpty;

constexpr char kGolden[] = WEFT_SOURCE_DIR "/tests/reference/losses.json";

JobSpec TenSteps() {
  JobSpec job = EnglishJob();
  job.training.steps = 10;
  return job;
}

// The three jobs between them take every branch of optimizer and schedule.
struct WitnessCase {
  const char* name;
  JobSpec job;
};

std::vector<WitnessCase> Cases() {
  JobSpec linear = TenSteps();
  linear.lr_scheduler = {.type = LrSchedule::kLinear, .warmup_steps = 3, .decay_steps = 8};
  linear.training.gradient_clipping = 0;
  linear.training.seed = 0xFEDCBA9876543210;  // all 64 bits of it count
  linear.optimizer.beta2 = 0.999;
  JobSpec sgd = TenSteps();
  sgd.optimizer = {.name = OptimizerKind::kSgd, .lr = 0.05, .weight_decay = 0.01};
  sgd.lr_scheduler = {.type = LrSchedule::kConstant};
  return {{"cosine", TenSteps()}, {"linear", linear}, {"sgd", sgd}};
}

TEST(Witness, PassesItsOwnExamination) {
  const absl::Status numpy = HasNumpy();
  if (!numpy.ok()) GTEST_SKIP() << numpy;
  EXPECT_EQ(std::system("timeout 60 /usr/bin/python3 " WEFT_SOURCE_DIR
                        "/tests/reference/gpt2_reference.py --check"),
            0);
}

TEST(Witness, AgreesWithOurTenStepsAndEveryFirstGradient) {
  const absl::Status numpy = HasNumpy();
  if (!numpy.ok()) GTEST_SKIP() << numpy;
  for (const WitnessCase& c : Cases()) {
    const auto witness = TrainInNumpy(c.job);
    ASSERT_TRUE(witness.ok()) << witness.status();
    ASSERT_EQ(witness->losses.size(), 10u);
    ASSERT_EQ(witness->gradients.size(), Tensors(c.job.model).size());
    const Layout layout =
        MakeLayout(c.job, 1, 1, 1, ScheduleKind::kOneForwardOneBackward, /*micro_batch_size=*/4);
    const auto ours = TrainUnderMpi({.job = c.job, .layout = layout});
    ASSERT_TRUE(ours.ok()) << ours.status();
    EXPECT_THAT(Differences(*ours, *witness), IsEmpty()) << c.name;
  }
}

// Committed numbers keep script and text from changing unnoticed, and stand in where Python lacks
// NumPy. UPDATE_GOLDEN=1 rewrites them.
TEST(Witness, SaysWhatItSaidBefore) {
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    const auto witness = TrainInNumpy(TenSteps());
    ASSERT_TRUE(witness.ok()) << witness.status();
    std::ofstream(kGolden) << nlohmann::json({{"losses", witness->losses},
                                              {"grad_norms", witness->grad_norms}})
                                  .dump(1)
                           << "\n";
  }
  std::ifstream file(kGolden);
  const auto golden = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(golden.is_object()) << kGolden;
  Curve committed;
  committed.losses = golden.at("losses").get<std::vector<double>>();
  committed.grad_norms = golden.at("grad_norms").get<std::vector<double>>();
  ASSERT_EQ(committed.losses.size(), 10u);

  const JobSpec job = TenSteps();
  auto ours = TrainUnderMpi(
      {.job = job,
       .layout = MakeLayout(job, 1, 1, 1, ScheduleKind::kGpipe, /*micro_batch_size=*/8)});
  ASSERT_TRUE(ours.ok()) << ours.status();
  ours->gradients.clear();
  EXPECT_THAT(Differences(*ours, committed), IsEmpty());

  const absl::Status numpy = HasNumpy();
  if (!numpy.ok()) return;
  const auto witness = TrainInNumpy(job);
  ASSERT_TRUE(witness.ok()) << witness.status();
  for (size_t step = 0; step < 10; ++step) {
    EXPECT_NEAR(witness->losses[step], committed.losses[step], 1e-11) << "step " << step + 1;
    EXPECT_NEAR(witness->grad_norms[step], committed.grad_norms[step], 1e-10);
  }
}

}  // namespace
}  // namespace weft
