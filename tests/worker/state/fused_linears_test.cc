// Blocks that compute q, k and v as one layer, and gate and up: as many products as that needs, and
// the same training as with layers apart. The models are such that tp cuts tensors into parts that
// leave gaps in a bucket, so that one rank fuses what two compute apart
// (plan/shards/fused_linears.h).
#include "plan/shards/fused_linears.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "plan/shards/buckets.h"
#include "tests/worker/passing_backend.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

// Biases of 16 elements, of 8 in two.
JobSpec NarrowGpt(const std::string& folder) {
  JobSpec job = SmallJob(folder);
  job.training.steps = 6;
  job.model.hidden_size = 16;
  job.model.num_heads = job.model.num_kv_heads = 2;
  job.model.head_dim = 8;
  job.model.ffn_size = 48;
  return job;
}

// Gates of 16 elements each, of 8 in two; q, k and v are fused either way.
JobSpec NarrowLlama(const std::string& folder) {
  JobSpec job = NarrowGpt(folder);
  SetArchitecture(Architecture::kLlama, job.model);
  job.model.num_heads = 4;
  job.model.num_kv_heads = 2;
  job.model.head_dim = 8;
  job.model.ffn_size = 2;
  job.model.hidden_size = 8;
  job.model.tied_embeddings = false;
  return job;
}

FusedLinears FusedIn(const JobSpec& job, const Layout& layout) {
  return LinearsOfOneRun(BucketsOf(job.model, layout, 0, job.numerics().optimizer));
}

void ExpectSameTraining(const JobSpec& job, const TestFolder& folder) {
  const TrainingOutcome fused =
      TrainWith(job, MakeLayout(1, 1, 1, k1f1b, 2, job), folder.Make("fused"));
  const TrainingOutcome apart =
      TrainWith(job, MakeLayout(1, 2, 1, k1f1b, 2, job), folder.Make("apart"));
  ASSERT_EQ(fused.status(), absl::OkStatus());
  ASSERT_EQ(apart.status(), absl::OkStatus());
  EXPECT_LT(RelativeDifference(apart.losses(), fused.losses()), 2e-6);
  EXPECT_LT(RelativeDifference(apart.grad_norms(), fused.grad_norms()), 2e-5);
  EXPECT_LT(GradientDifference(apart, fused), 1e-4);
}

TEST(FusedQkv, TrainsAsLayersApart) {
  const TestFolder folder;
  const JobSpec job = NarrowGpt(folder.path());
  ASSERT_TRUE(FusedIn(job, MakeLayout(1, 1, 1, k1f1b, 2, job)).qkv);
  ASSERT_FALSE(FusedIn(job, MakeLayout(1, 2, 1, k1f1b, 2, job)).qkv);
  ExpectSameTraining(job, folder);
}

TEST(FusedGateUp, TrainsAsLayersApart) {
  const TestFolder folder;
  const JobSpec job = NarrowLlama(folder.path());
  ASSERT_TRUE(FusedIn(job, MakeLayout(1, 1, 1, k1f1b, 2, job)).gate_up);
  ASSERT_FALSE(FusedIn(job, MakeLayout(1, 2, 1, k1f1b, 2, job)).gate_up);
  ExpectSameTraining(job, folder);
}

// Counts the operations of a step's passes.
struct Counts {
  int layers = 0;  // Linear, LinearGelu
  int products = 0;
  int turns = 0;
  int bias_gradients = 0;
};

class CountingDevice final : public PassingDevice {
 public:
  CountingDevice(Device& inner, Counts* counts) : PassingDevice(inner), counts_(*counts) {}

  void MatMul(View a, Transpose transpose_a, View b, Transpose transpose_b, float beta,
              View c) override {
    ++counts_.products;
    inner_.MatMul(a, transpose_a, b, transpose_b, beta, c);
  }
  void Linear(View x, View weight, View bias, View residual, View y) override {
    ++counts_.layers;
    inner_.Linear(x, weight, bias, residual, y);
  }
  void LinearGelu(View x, View weight, View bias, View h, View y) override {
    ++counts_.layers;
    inner_.LinearGelu(x, weight, bias, h, y);
  }
  void Rotate(View table, Turn turn, const RotatedHeads& heads, View x) override {
    ++counts_.turns;
    inner_.Rotate(table, turn, heads, x);
  }
  void LinearGradient(View dy, View x, View dweight, View dbias) override {
    Device::LinearGradient(dy, x, dweight, dbias);  // by the two that are counted
  }
  void BiasGradient(View dy, View dbias) override {
    ++counts_.bias_gradients;
    inner_.BiasGradient(dy, dbias);
  }

 private:
  Counts& counts_;
};

// A single microbatch's, by one rank.
Counts CountsOf(JobSpec job, const TestFolder& folder) {
  Counts counts;
  job.training.steps = 1;
  job.validation.interval = 0;
  RankThreads run;
  run.assignment = {
      .job = job,
      .layout = MakeLayout(1, 1, 1, k1f1b, 8, job),
      .run_folder = folder.Make(absl::StrCat(WordOf(job.model.architecture), " counted")),
      .load_checkpoint = ""};
  run.wrap_device = [&](int, Device& inner) {
    return std::make_unique<CountingDevice>(inner, &counts);
  };
  EXPECT_EQ(Train(run).status(), absl::OkStatus());
  return counts;
}

TEST(FusedLinears, MakeOneProductOfEachPassForAllOfThem) {
  const TestFolder folder;
  const int64_t blocks = SmallJob(folder.path()).model.num_blocks;
  const Counts gpt2 = CountsOf(SmallJob(folder.path()), folder);
  EXPECT_EQ(gpt2.layers, blocks * 4) << "qkv, o, up, down";
  // Gradients of four weights, of the inputs of qkv, o and up (down's is GeluLinearGradient's); the
  // head's three.
  EXPECT_EQ(gpt2.products, blocks * (4 + 3) + 3);
  EXPECT_EQ(gpt2.bias_gradients, blocks * 4);
  JobSpec job = SmallJob(folder.path());
  SetArchitecture(Architecture::kLlama, job.model);
  job.model.num_kv_heads = 2;
  job.model.tied_embeddings = false;
  const Counts llama = CountsOf(job, folder);
  EXPECT_EQ(llama.layers, blocks * 4) << "qkv, o, gate with up, down";
  EXPECT_EQ(llama.products, blocks * (4 + 4) + 3);
  EXPECT_EQ(llama.turns, blocks * 2) << "q with k";
}

}  // namespace
}  // namespace weft
