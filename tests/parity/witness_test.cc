// The independent witness: our fp32 training against a GPT-2 in NumPy, double precision, that was
// written from the papers and shares no line with it (tests/reference/gpt2_reference.py).
#include <cstdlib>
#include <vector>

#include "gtest/gtest.h"
#include "tests/parity/expectations.h"
#include "tests/parity/training.h"
#include "tests/places.h"

namespace weft {
namespace {

JobSpec TenSteps() {
  JobSpec job = EnglishJob();
  job.training.steps = 10;
  return job;
}

// The jobs between them take every branch of optimizer and schedule.
std::vector<WitnessCase> Cases() {
  JobSpec linear = TenSteps();
  linear.lr_scheduler = {.type = LrSchedule::kLinear, .warmup_steps = 3, .decay_steps = 8};
  linear.training.gradient_clipping = 0;
  linear.training.seed = 0xFEDCBA9876543210;  // all 64 bits of it count
  linear.optimizer.beta2 = 0.999;
  JobSpec sgd = TenSteps();
  sgd.optimizer = {.name = OptimizerKind::kSgd, .lr = 0.05, .weight_decay = 0.01};
  sgd.lr_scheduler = {.type = LrSchedule::kConstant};
  JobSpec lion = TenSteps();
  lion.optimizer = {.name = OptimizerKind::kLion, .lr = 1e-4, .beta2 = 0.99};
  JobSpec adagrad = TenSteps();  // eps: of gradients next to 0 the last bit would decide the sign
  adagrad.optimizer = {
      .name = OptimizerKind::kAdagrad, .lr = 1e-3, .eps = 1e-4, .weight_decay = 0.01};
  JobSpec dampened = sgd;
  dampened.optimizer.lr = 0.01;
  dampened.optimizer.momentum = 0.9;
  JobSpec nesterov = dampened;
  dampened.optimizer.dampening = 0.3;
  nesterov.optimizer.nesterov = true;
  JobSpec groups = TenSteps();  // of decays that a mistake in them would show
  groups.optimizer.param_groups = {{{"*.bias", "blocks.1.*"}, 20}, {{"*.weight"}, 0.5}};
  JobSpec quantised = TenSteps();
  quantised.optimizer.name = OptimizerKind::kAdamw8bit;
  JobSpec factored = TenSteps();
  factored.optimizer = {.name = OptimizerKind::kAdafactor, .lr = 1e-3};
  JobSpec scaled = factored;
  scaled.optimizer.lr = 0.02;
  scaled.optimizer.decay_rate = -0.6;
  scaled.optimizer.clip_threshold = 0.5;
  scaled.optimizer.scale_parameter = true;
  return {{"cosine", TenSteps()},       {"linear", linear},        {"sgd", sgd},
          {"dampened", dampened},       {"nesterov", nesterov},    {"lion", lion},
          {"groups", groups},           {"adamw_8bit", quantised}, {"adafactor", factored},
          {"adafactor_scaled", scaled}, {"adagrad", adagrad}};
}

TEST(Witness, PassesItsOwnExamination) {
  const absl::Status numpy = HasNumpy();
  if (!numpy.ok()) GTEST_SKIP() << numpy;
  EXPECT_EQ(std::system(("timeout 160 /usr/bin/python3 " +
                         SourcePath("/tests/reference/gpt2_reference.py") + " --check")
                            .c_str()),
            0);
}

TEST(Witness, AgreesWithOurTenStepsAndEveryFirstGradient) {
  const absl::Status numpy = HasNumpy();
  if (!numpy.ok()) GTEST_SKIP() << numpy;
  ExpectAgreesWithNumpy(Cases());
}

TEST(Witness, SaysWhatItSaidBefore) {
  ExpectWhatNumpySaidBefore(TenSteps(), SourcePath("/tests/reference/losses.json"));
}

}  // namespace
}  // namespace weft
