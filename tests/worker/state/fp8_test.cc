// Training with the blocks' linear layers in 8-bit floating point (plan/spec/fp8.h).
#include "plan/spec/fp8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "plan/memory/memory.h"
#include "tests/worker/passing_backend.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

class Fp8 : public testing::Test {
 protected:
  Fp8() : job_(SmallJob(folder_.path())) { job_.training.mixed_precision = Precision::kFp8; }

  TrainingOutcome TrainLayout(const Layout& layout, const std::string& load = "") {
    return TrainWith(job_, layout, folder_.Make("run" + std::to_string(runs_++)), load);
  }
  TrainingOutcome TrainOn(
      const Layout& layout,
      const std::function<std::unique_ptr<Device>(int rank, Device& inner)>& wrap_device) {
    RankThreads run;
    run.assignment = {.job = job_,
                      .layout = layout,
                      .run_folder = folder_.Make("run" + std::to_string(runs_++)),
                      .load_checkpoint = ""};
    run.wrap_device = wrap_device;
    return Train(run);
  }
  Layout Single(int64_t micro_batch_size = 2) const {
    return MakeLayout(1, 1, 1, k1f1b, micro_batch_size, job_);
  }
  // Trains the job on one rank in `precision`.
  TrainingOutcome SingleIn(Precision precision) {
    JobSpec other = job_;
    other.training.mixed_precision = precision;
    return TrainWith(other, Single(), folder_.Make("run" + std::to_string(runs_++)));
  }

  const TestFolder folder_;
  JobSpec job_;
  int runs_ = 0;
};

// Bounds of the distance of two layouts' gradients, worst tensor (GradientDifference).
//
// kSameTerms: operands of the same numbers, so the same codes; only sums in another order.
//
// kOtherRoundings: over tp, numbers are rounded to bf16 in another order; of a microbatch that is
// cut otherwise, those below 2^-13 of their tensor's largest have other codes (fp8.h). However
// little that is, it grows: numbers that differ by d fall to other sides of a rounding d / s times,
// s the distance of codes, and then differ by s: sqrt(d s) at random, more than d. It ends where
// roundings have nothing to do with each other, at sqrt(2 / 12) s: 2^-4.3 of a number in e4m3, s at
// most 2^-3; 2^-3.3 in e5m2, 2^-2. The gradient of a weight is a product of both: 2^-3.1 at most.
constexpr double kSameTerms = 2e-6;
constexpr double kOtherRoundings = 0x1p-3;

struct LayoutCase {
  const char* name;
  int dp, tp, pp;
  ScheduleKind schedule;
  int64_t micro_batch_size;
  double bound;
  int zero_stage = 0;
  bool sequence_parallel = false;
  Recompute recompute = Recompute::kNone;
  int cp = 1;
};

class Fp8Layouts : public Fp8, public testing::WithParamInterface<LayoutCase> {};

TEST_P(Fp8Layouts, TrainAsASingleRankInThePlannedMemory) {
  const LayoutCase& c = GetParam();
  Layout layout = MakeLayout(c.dp, c.tp, c.pp, c.schedule, c.micro_batch_size, job_);
  layout.zero_stage = c.zero_stage;
  layout.sequence_parallel = c.sequence_parallel;
  layout.recompute = c.recompute;
  layout.cp = c.cp;
  job_.training.steps = 1;
  const TrainingOutcome single = TrainLayout(Single());
  const TrainingOutcome outcome = TrainLayout(layout);
  ASSERT_EQ(single.status(), absl::OkStatus());
  ASSERT_EQ(outcome.status(), absl::OkStatus());
  EXPECT_EQ(outcome.allocated_bytes, outcome.planned_bytes);
  EXPECT_LE(GradientDifference(outcome, single), c.bound);
  EXPECT_LT(RelativeDifference(outcome.losses(), single.losses()), 0x1p-8 / 4);
  EXPECT_EQ(Bits(TrainLayout(layout).reports.front()), Bits(outcome.reports.front()));
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, Fp8Layouts,
    testing::Values(
        LayoutCase{"dp2", 2, 1, 1, k1f1b, 2, kSameTerms},
        LayoutCase{"pp2", 1, 1, 2, k1f1b, 2, kSameTerms},
        LayoutCase{"gpipe", 1, 1, 2, ScheduleKind::kGpipe, 2, kSameTerms},
        LayoutCase{"zb", 1, 1, 2, ScheduleKind::kZeroBubbleH1, 2, kSameTerms},
        LayoutCase{"zero1", 4, 1, 1, k1f1b, 2, kSameTerms, 1},
        LayoutCase{"zero2", 2, 1, 1, k1f1b, 2, kSameTerms, 2},
        LayoutCase{"zero3", 2, 1, 1, k1f1b, 2, kSameTerms, 3},
        LayoutCase{"recompute", 1, 1, 1, k1f1b, 2, 0, 0, false, Recompute::kFull},
        LayoutCase{"selective", 1, 1, 1, k1f1b, 2, 0, 0, false, Recompute::kSelective},
        LayoutCase{"small_microbatches", 1, 1, 1, k1f1b, 1, kOtherRoundings},
        LayoutCase{"dp4_pp2_small", 4, 1, 2, k1f1b, 1, kOtherRoundings},
        LayoutCase{"tp2", 1, 2, 1, k1f1b, 2, kOtherRoundings},
        LayoutCase{"tp4", 1, 4, 1, k1f1b, 2, kOtherRoundings},
        LayoutCase{"sp2", 1, 2, 1, k1f1b, 2, kOtherRoundings, 0, true},
        LayoutCase{"cp2", 1, 1, 1, k1f1b, 2, kOtherRoundings, 0, false, Recompute::kNone, 2},
        LayoutCase{"dp2_tp2_sp_cp2", 2, 2, 1, k1f1b, 2, kOtherRoundings, 1, true, Recompute::kFull,
                   2},
        LayoutCase{"dp2_tp2_pp2_zb", 2, 2, 2, ScheduleKind::kZeroBubbleH1, 2, kOtherRoundings, 1}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST_F(Fp8, GivesTheSameBitsTwiceAndAfterAResume) {
  Layout layout = MakeLayout(2, 2, 1, k1f1b, 2, job_);
  layout.zero_stage = 1;
  const TrainingOutcome whole = TrainLayout(layout);
  EXPECT_EQ(Bits(TrainLayout(layout).reports.front()), Bits(whole.reports.front()));
  job_.training.steps = 8;
  const TrainingOutcome first = TrainLayout(layout);
  ASSERT_EQ(first.committed.size(), 1);
  job_.training.steps = 20;
  const TrainingOutcome second = TrainLayout(layout, first.committed.front());
  ASSERT_EQ(second.status(), absl::OkStatus());
  EXPECT_EQ(second.weights, whole.weights);
  EXPECT_EQ(Bits(second.reports.front()),
            Bits({whole.reports.front().begin() + 8, whole.reports.front().end()}));
}

TEST_F(Fp8, TrainsNearBf16) {
  job_.training.steps = 60;
  for (const Architecture architecture : {Architecture::kGpt2, Architecture::kLlama}) {
    SetArchitecture(architecture, job_.model);
    job_.model.num_kv_heads = architecture == Architecture::kGpt2 ? 4 : 2;
    job_.model.tied_embeddings = architecture == Architecture::kGpt2;
    const std::vector<double> narrow = SingleIn(Precision::kFp8).losses();
    const std::vector<double> wide = SingleIn(Precision::kBf16).losses();
    ASSERT_EQ(narrow.size(), 60);
    EXPECT_LT(RelativeDifference(narrow, wide), 0.02);
    EXPECT_NE(narrow, wide);
    EXPECT_LT(narrow.back(), 0.7 * narrow.front()) << "it learns";
  }
}

// With a learning rate of 0 the weights stay what they are.
TEST_F(Fp8, ValidationIsThatOfBf16) {
  job_.optimizer.lr = 0;
  job_.training.steps = 2;
  job_.validation = {.interval = 2, .steps = 2};
  const TrainingOutcome narrow = SingleIn(Precision::kFp8);
  const TrainingOutcome wide = SingleIn(Precision::kBf16);
  ASSERT_EQ(narrow.status(), absl::OkStatus());
  EXPECT_EQ(narrow.reports.front().back().valid_loss, wide.reports.front().back().valid_loss);
  EXPECT_NE(narrow.losses(), wide.losses());
}

class CountingProducts : public PassingDevice {
 public:
  CountingProducts(Device& inner, std::atomic<int>* narrow, std::atomic<int>* wide)
      : PassingDevice(inner), narrow_(narrow), wide_(wide) {}
  void MatMul(View a, Transpose transpose_a, View b, Transpose transpose_b, float beta,
              View c) override {
    ++*wide_;
    inner_.MatMul(a, transpose_a, b, transpose_b, beta, c);
  }
  void Fp8MatMul(const Fp8View& a, const Fp8View& b, float beta, View c) override {
    ++*narrow_;
    inner_.Fp8MatMul(a, b, beta, c);
  }

 private:
  std::atomic<int>* const narrow_;
  std::atomic<int>* const wide_;
};

TEST_F(Fp8, IsOfTheBlocksLinearLayersAlone) {
  std::atomic<int> narrow = 0, wide = 0;
  job_.training.steps = 1;
  const TrainingOutcome outcome = TrainOn(Single(), [&](int, Device& inner) {
    return std::make_unique<CountingProducts>(inner, &narrow, &wide);
  });
  ASSERT_EQ(outcome.status(), absl::OkStatus());
  constexpr int kMicrobatches = 4, kBlocks = 4, kLayers = 4, kProducts = 3;
  EXPECT_EQ(narrow, kMicrobatches * kBlocks * kLayers * kProducts);
  EXPECT_EQ(wide, kMicrobatches * kProducts);  // the head's
}

class CountingCasts : public PassingDevice {
 public:
  CountingCasts(Device& inner, std::atomic<int>* casts) : PassingDevice(inner), casts_(casts) {}
  void ToFp8(View x, View codes, View transposed, View scale) override {
    ++*casts_;
    inner_.ToFp8(x, codes, transposed, scale);
  }

 private:
  std::atomic<int>* const casts_;
};

// Llama's q, k and v are one layer, gate and up another, o and down their own.
TEST_F(Fp8, AnInputIsCastOnceForAllLayersThatTakeIt) {
  SetArchitecture(Architecture::kLlama, job_.model);
  job_.training.steps = 1;
  constexpr int kInputs = 4, kLayers = 4, kBlocks = 4, kMicrobatches = 4;
  const struct {
    ScheduleKind schedule;
    int casts;  // of a block and a microbatch
  } cases[] = {
      {k1f1b, kInputs + (kInputs + kLayers)},
      // Gradients of outputs are cast for the inputs' gradients, and again for the weights'.
      {ScheduleKind::kZeroBubbleH1, kInputs + kLayers + (kInputs + kLayers)},
  };
  for (const auto& c : cases) {
    std::atomic<int> casts = 0;
    const TrainingOutcome outcome =
        TrainOn(MakeLayout(1, 1, 2, c.schedule, 2, job_),
                [&](int, Device& inner) { return std::make_unique<CountingCasts>(inner, &casts); });
    ASSERT_EQ(outcome.status(), absl::OkStatus());
    EXPECT_EQ(casts, kBlocks * (kLayers + kMicrobatches * c.casts)) << static_cast<int>(c.schedule);
  }
}

// Makes codes that are kept anew, from the weight as it is, before each product that takes them.
class RecastingDevice : public PassingDevice {
 public:
  RecastingDevice(Device& inner, std::atomic<int>* recasts)
      : PassingDevice(inner), recasts_(recasts) {}
  void ToFp8(View x, View codes, View transposed, View scale) override {
    inner_.ToFp8(x, codes, transposed, scale);
    if (!IsOfWeight(codes, transposed)) return;
    kept_[codes.data] = kept_[transposed.data] = {x, codes, transposed, scale};
  }
  void Fp8MatMul(const Fp8View& a, const Fp8View& b, float beta, View c) override {
    if (const auto kept = kept_.find(b.codes.data); kept != kept_.end()) {
      const auto& [x, codes, transposed, scale] = kept->second;
      inner_.ToFp8(x, codes, transposed, scale);
      ++*recasts_;
    }
    inner_.Fp8MatMul(a, b, beta, c);
  }

  // Gradients alone are cast both ways beside them.
  static bool IsOfWeight(View codes, View transposed) {
    return codes.data != nullptr && transposed.data != nullptr && codes.dtype == DType::kE4m3;
  }

 private:
  std::map<void*, std::array<View, 4>> kept_;
  std::atomic<int>* const recasts_;
};

// Leaves kept codes as the first step has made them.
class StaleDevice : public PassingDevice {
 public:
  using PassingDevice::PassingDevice;
  void ToFp8(View x, View codes, View transposed, View scale) override {
    const bool is_kept = RecastingDevice::IsOfWeight(codes, transposed);
    if (is_kept && !made_.insert(codes.data).second) return;
    inner_.ToFp8(x, codes, transposed, scale);
  }

 private:
  std::set<void*> made_;
};

struct KeptCase {
  const char* name;
  int dp, tp, pp;
  ScheduleKind schedule = k1f1b;
  int zero_stage = 0;
  Recompute recompute = Recompute::kNone;
  int virtual_stages = 1;
};

class Fp8KeptCodes : public Fp8, public testing::WithParamInterface<KeptCase> {};

TEST_P(Fp8KeptCodes, AreThoseThatEachProductWouldMake) {
  const KeptCase& c = GetParam();
  SetArchitecture(Architecture::kLlama, job_.model);
  job_.model.num_kv_heads = 2;
  job_.training.steps = 3;
  Layout layout = MakeLayout(c.dp, c.tp, c.pp, c.schedule, 1, job_);
  layout.zero_stage = c.zero_stage;
  layout.recompute = c.recompute;
  layout.virtual_stages = c.virtual_stages;
  ASSERT_GT(layout.gradient_accumulation_steps, 1);
  const TrainingOutcome kept = TrainLayout(layout);
  ASSERT_EQ(kept.status(), absl::OkStatus());
  std::atomic<int> recasts = 0;
  const TrainingOutcome anew = TrainOn(layout, [&](int, Device& inner) {
    return std::make_unique<RecastingDevice>(inner, &recasts);
  });
  EXPECT_EQ(Bits(anew.reports.front()), Bits(kept.reports.front()));
  EXPECT_EQ(anew.weights, kept.weights);
  EXPECT_EQ(recasts > 0, c.zero_stage < 3);
  const TrainingOutcome stale =
      TrainOn(layout, [&](int, Device& inner) { return std::make_unique<StaleDevice>(inner); });
  EXPECT_EQ(stale.weights == kept.weights, c.zero_stage == 3) << "the weights have changed";
}

INSTANTIATE_TEST_SUITE_P(Layouts, Fp8KeptCodes,
                         testing::Values(KeptCase{"single", 1, 1, 1}, KeptCase{"dp2", 2, 1, 1},
                                         KeptCase{"tp2", 1, 2, 1}, KeptCase{"pp2", 1, 1, 2},
                                         KeptCase{"interleaved", 1, 1, 2,
                                                  ScheduleKind::kInterleaved, 0, Recompute::kNone,
                                                  2},
                                         KeptCase{"zb", 1, 1, 2, ScheduleKind::kZeroBubbleH1},
                                         KeptCase{"recompute", 1, 1, 1, k1f1b, 0, Recompute::kFull},
                                         KeptCase{"zero1", 2, 1, 1, k1f1b, 1},
                                         KeptCase{"zero2_pp2", 2, 1, 2, k1f1b, 2},
                                         KeptCase{"zero3", 2, 1, 1, k1f1b, 3}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// 8 columns of q on each of 2 ranks; then microbatches of 24 tokens.
TEST_F(Fp8, LayersOfOtherSizesAreInBf16OnAllRanks) {
  SetArchitecture(Architecture::kLlama, job_.model);
  job_.model.head_dim = 4;
  const Layout layout = MakeLayout(1, 2, 1, k1f1b, 2, job_);
  const Fp8Layers layers = Fp8LayersOf(job_.model, job_.batch(), layout);
  EXPECT_TRUE(layers.mlp && !layers.query && !layers.key);
  std::atomic<int> narrow = 0, wide = 0;
  job_.training.steps = 1;
  const TrainingOutcome outcome = TrainOn(layout, [&](int, Device& inner) {
    return std::make_unique<CountingProducts>(inner, &narrow, &wide);
  });
  ASSERT_EQ(outcome.status(), absl::OkStatus());
  EXPECT_EQ(outcome.allocated_bytes, outcome.planned_bytes);
  EXPECT_EQ(narrow, 2 * 4 * 4 * 2 * 3);  // ranks, microbatches, blocks, gate_up and down, products

  job_.training.seq_len = 24;
  EXPECT_FALSE(Fp8LayersOf(job_.model, job_.batch(), Single(1)).any());
  JobSpec wide_job = job_;
  wide_job.training.mixed_precision = Precision::kBf16;
  EXPECT_EQ(TrainLayout(Single(1)).weights,
            TrainWith(wide_job, Single(1), folder_.Make("wide")).weights);
  EXPECT_EQ(PlanRankMemory(job_.model, job_.batch(), Single(1), 0, job_.numerics()).total_bytes(),
            PlanRankMemory(wide_job.model, wide_job.batch(), Single(1), 0, wide_job.numerics())
                .total_bytes());
}

// Planted bugs, which the bounds must see.
enum class Bug { kStaleScale, kMissingTranspose, kWrongFormat, kLastOperand };

class BuggyDevice : public PassingDevice {
 public:
  BuggyDevice(Device& inner, Bug bug) : PassingDevice(inner), bug_(bug) {}
  void ToFp8(View x, View codes, View transposed, View scale) override {
    const bool is_gradient = (codes.data ? codes.dtype : transposed.dtype) == DType::kE5m2;
    if (bug_ == Bug::kLastOperand && is_gradient && ++calls_ % 7 == 0) return;
    if (bug_ == Bug::kMissingTranspose && transposed.data != nullptr) {
      const View untransposed = {transposed.data, x.rows, x.cols, transposed.dtype};
      inner_.ToFp8(x, untransposed, View(), scale);
      if (codes.data != nullptr) inner_.ToFp8(x, codes, View(), scale);
      return;
    }
    if (bug_ == Bug::kWrongFormat && !is_gradient) {
      codes.dtype = transposed.dtype = DType::kE5m2;
    }
    inner_.ToFp8(x, codes, transposed, scale);
    auto* const factor = static_cast<float*>(scale.data);
    if (bug_ == Bug::kStaleScale) {
      std::swap(*factor, last_[is_gradient ? 1 : 0]);
      if (*factor == 0) *factor = last_[is_gradient ? 1 : 0];
    }
  }

 private:
  const Bug bug_;
  int calls_ = 0;
  float last_[2] = {0, 0};
};

TEST_F(Fp8, PlantedBugsAreSeenByTheBoundOfTp) {
  job_.training.steps = 1;
  const TrainingOutcome right = TrainLayout(Single());
  for (const Bug bug :
       {Bug::kStaleScale, Bug::kMissingTranspose, Bug::kWrongFormat, Bug::kLastOperand}) {
    const TrainingOutcome wrong = TrainOn(
        Single(), [&](int, Device& inner) { return std::make_unique<BuggyDevice>(inner, bug); });
    EXPECT_GT(GradientDifference(wrong, right), kOtherRoundings) << static_cast<int>(bug);
  }
}

}  // namespace
}  // namespace weft
