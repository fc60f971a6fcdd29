// These tests count what a training step asks of cuBLASLt: of GPT-2 in 16 bits, one product for
// each linear layer with its bias, its GELU and its residual.
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gpu/emulation/fake_cublaslt.h"
#include "tests/worker/rank_threads.h"
#include "worker/backend/cuda/device_cuda.h"

namespace weft {
namespace {

struct ProductsOfStep {
  int plain = 0, bias = 0, gelu = 0, gelu_gradient = 0, bias_gradient = 0;
  int that_add_a_residual = 0;
  int fast = 0;  // that add up in the tensor cores' own sums
};

// One microbatch, one rank; its memory is the host's, so the threads' Comm serves.
ProductsOfStep RunSteps(int64_t steps, Architecture architecture, Precision precision,
                        Recompute recompute) {
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  SetArchitecture(architecture, job.model);
  job.model.num_blocks = 2;
  job.model.hidden_size = 32;
  job.model.head_dim = 8;
  job.model.ffn_size = 64;
  job.training.seq_len = 16;
  job.training.steps = steps;
  job.training.mixed_precision = precision;
  Layout layout = MakeLayout(1, 1, 1, ScheduleKind::kOneForwardOneBackward,
                             job.training.global_batch_size, job);
  layout.recompute = recompute;
  RankThreads run;
  run.assignment = {
      .job = job, .layout = layout, .run_folder = folder.Make("run"), .load_checkpoint = ""};
  run.wrap_device = [](int, Device&) {
    std::unique_ptr<Device> device;
    EXPECT_TRUE(OpenCudaDevice({.fp8_fast_accumulation = true}, &device).ok());
    return device;
  };
  emulation::SetAlgorithms({{}});
  EXPECT_EQ(Train(run).status(), absl::OkStatus());
  const ProductsOfStep products = {.plain = emulation::RunsWith(CUBLASLT_EPILOGUE_DEFAULT),
                                   .bias = emulation::RunsWith(CUBLASLT_EPILOGUE_BIAS),
                                   .gelu = emulation::RunsWith(CUBLASLT_EPILOGUE_GELU_AUX_BIAS),
                                   .gelu_gradient = emulation::RunsWith(CUBLASLT_EPILOGUE_DGELU),
                                   .bias_gradient = emulation::RunsWith(CUBLASLT_EPILOGUE_BGRADB),
                                   .that_add_a_residual = emulation::RunsThatAddAnother(),
                                   .fast = emulation::FastRuns()};
  emulation::ResetAlgorithms();
  return products;
}

// The second, for in the first products are timed.
ProductsOfStep RunOneStep(Architecture architecture, Precision precision, Recompute recompute) {
  const ProductsOfStep one = RunSteps(1, architecture, precision, recompute);
  const ProductsOfStep two = RunSteps(2, architecture, precision, recompute);
  return {.plain = two.plain - one.plain,
          .bias = two.bias - one.bias,
          .gelu = two.gelu - one.gelu,
          .gelu_gradient = two.gelu_gradient - one.gelu_gradient,
          .bias_gradient = two.bias_gradient - one.bias_gradient,
          .that_add_a_residual = two.that_add_a_residual - one.that_add_a_residual,
          .fast = two.fast - one.fast};
}

// Each block forward has products for q with k and v, o, up, down. Backward it has those for the
// inputs of all but down, whose goes through GELU, and four weights with their biases. The head has
// one and two.
TEST(FusedStep, OfGpt2HasOneProductForEachLinearLayer) {
  const ProductsOfStep step = RunOneStep(Architecture::kGpt2, Precision::kBf16, Recompute::kNone);
  EXPECT_EQ(step.bias, 2 * 3);
  EXPECT_EQ(step.gelu, 2);
  EXPECT_EQ(step.that_add_a_residual, 2 * 2);
  EXPECT_EQ(step.gelu_gradient, 2);
  EXPECT_EQ(step.bias_gradient, 2 * 4);
  EXPECT_EQ(step.plain, 2 * 3 + 3);
}

TEST(FusedStep, OfGpt2MakesAgainWithTheSameProducts) {
  const ProductsOfStep full = RunOneStep(Architecture::kGpt2, Precision::kBf16, Recompute::kFull);
  EXPECT_EQ(full.gelu, 2 * 2);
  EXPECT_EQ(full.gelu_gradient, 2);
  const ProductsOfStep selective =
      RunOneStep(Architecture::kGpt2, Precision::kBf16, Recompute::kSelective);
  EXPECT_EQ(selective.gelu, 2) << "GELU alone is made again";
}

TEST(FusedStep, OfLlamaAddsItsResiduals) {
  const ProductsOfStep step = RunOneStep(Architecture::kLlama, Precision::kBf16, Recompute::kNone);
  EXPECT_EQ(step.that_add_a_residual, 2 * 2);
  EXPECT_EQ(step.bias + step.gelu + step.gelu_gradient + step.bias_gradient, 0);
}

// q with k and v, o, gate with up, and down have one product each, forward (where it is fast) and
// for both gradients; the head has three.
TEST(FusedStep, OfLlamaInFp8HasOneProductForEachFusedLayer) {
  const ProductsOfStep step = RunOneStep(Architecture::kLlama, Precision::kFp8, Recompute::kNone);
  EXPECT_EQ(step.plain, 2 * 4 * 3 + 3);
  EXPECT_EQ(step.fast, 2 * 4);
  EXPECT_EQ(RunOneStep(Architecture::kLlama, Precision::kBf16, Recompute::kNone).fast, 0);
}

TEST(FusedStep, InSinglePrecisionHasPlainProductsOnly) {
  const ProductsOfStep step = RunOneStep(Architecture::kGpt2, Precision::kFp32, Recompute::kNone);
  EXPECT_EQ(step.bias + step.gelu + step.gelu_gradient + step.bias_gradient, 0);
  EXPECT_EQ(step.that_add_a_residual, 0);
  EXPECT_EQ(step.plain, 2 * 12 + 3);
}

}  // namespace
}  // namespace weft
