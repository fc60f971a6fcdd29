// The memory model against published peaks, one of each kind, so that a change of a formula shows
// here and not only in bench/README.md's figures. Rows: Megatron-LM's functional tests (bytes of
// the last rank) and SimuMax's release 1.2 (largest rank).
#include "bench/accuracy_memory.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "bench/memory_cross.h"
#include "plan/spec/layout_text.h"

namespace weft {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

MeasuredRun Row(const char* source, const char* hardware, double peak_gib, const char* notes) {
  MeasuredRun run;
  run.source = source;
  run.hardware = hardware;
  run.notes = notes;
  run.counted = "torch_allocated";
  run.peak_bytes = std::llround(peak_gib * kGiB);
  run.layout.zero_stage = 1;
  return run;
}

// GPT of 7B parameters with 8 kv heads, sequences of 8192, dropout, no fused weight gradients.
MeasuredRun Gpt7b(const char* hardware, double rest_gib, double peak_gib) {
  MeasuredRun run =
      Row("NVIDIA/Megatron-LM (tests/functional_tests golden values)", hardware, peak_gib,
          "dropout 0.1/0.1; linear bias yes; deterministic kernels; no "
          "fused wgrad accumulation");
  run.shape = {.vocab_size = 131073,
               .hidden_size = 4096,
               .num_blocks = 32,
               .num_heads = 32,
               .num_kv_heads = 8,
               .head_dim = 128,
               .ffn_size = 16384,
               .max_positions = 8192,
               .tied_embeddings = false};
  SetArchitecture(Architecture::kGpt2, run.shape);
  run.batch = {.global_batch_size = 8, .seq_len = 8192};
  run.rank_or_stage = "last";
  run.gpus = 8;
  run.allocated_bytes = std::llround(rest_gib * kGiB);
  return run;
}

// Twelve layers of Llama-3 70B's shape, fused loss.
MeasuredRun Llama70bOfTwelve(double peak_gib, int dp, int tp, int pp, int cp, int64_t seq_len) {
  MeasuredRun run =
      Row("MooreThreads/SimuMax", "B200", peak_gib, "Megatron-LM; fused cross-entropy");
  run.shape = {.architecture = Architecture::kLlama,
               .vocab_size = 128256,
               .hidden_size = 8192,
               .num_blocks = 12,
               .num_heads = 64,
               .num_kv_heads = 8,
               .head_dim = 128,
               .ffn_size = 28672,
               .max_positions = seq_len,
               .tied_embeddings = false};
  run.layout.dp = dp;
  run.layout.tp = tp;
  run.layout.pp = pp;
  run.layout.cp = cp;
  run.layout.gradient_accumulation_steps = 4;
  run.layout.sequence_parallel = tp > 1;
  run.batch = {.global_batch_size = 4 * dp, .seq_len = seq_len};
  run.rank_or_stage = "max";
  run.gpus = 8;
  return run;
}

std::vector<MeasuredRun> PublishedRuns() {
  std::vector<MeasuredRun> runs;
  for (const auto& [hardware, rest_gib, peak_gib] :
       {std::tuple{"A100-80G", 19.2170, 54.1919}, {"H100-80G", 19.2444, 53.2193}}) {
    MeasuredRun run = Gpt7b(hardware, rest_gib, peak_gib);
    run.layout.dp = 2;
    run.layout.tp = 4;
    run.layout.micro_batch_size = 2;
    run.layout.gradient_accumulation_steps = 2;
    runs.push_back(run);
  }
  for (const auto& [hardware, rest_gib, peak_gib] :
       {std::tuple{"A100-80G", 22.8275, 56.3348}, {"H100-80G", 23.1052, 56.5507}}) {
    MeasuredRun run = Gpt7b(hardware, rest_gib, peak_gib);
    run.layout.dp = 2;
    run.layout.pp = 4;
    run.layout.pp_schedule = ScheduleKind::kInterleaved;
    run.layout.virtual_stages = 8;
    run.layout.gradient_accumulation_steps = 4;
    runs.push_back(run);
  }
  runs.push_back(Llama70bOfTwelve(66.55, 4, 1, 2, 1, 4096));
  runs.push_back(Llama70bOfTwelve(60.68, 4, 2, 1, 1, 4096));
  runs.push_back(Llama70bOfTwelve(39.07, 2, 4, 1, 1, 4096));
  runs.push_back(Llama70bOfTwelve(28.29, 1, 8, 1, 1, 4096));
  runs.push_back(Llama70bOfTwelve(68.43, 1, 2, 1, 4, 32768));
  runs.push_back(Llama70bOfTwelve(147.99, 1, 1, 1, 8, 131072));
  return runs;
}

TEST(PredictMemory, IsWithinAPercentOfPublishedPeaks) {
  MeasuredTable table;
  table.runs = PublishedRuns();
  const MemoryAccuracy accuracy = PredictMemory(table);
  ASSERT_EQ(accuracy.left_out.size(), 0U) << accuracy.left_out[0].reason;
  for (const MemoryPrediction& prediction : accuracy.predictions) {
    EXPECT_EQ(prediction.engine, "megatron");
    EXPECT_LT(std::abs(*prediction.peak_error()), 0.01)
        << prediction.run->hardware << " " << LayoutText(prediction.run->layout);
    if (prediction.resting_error()) {
      EXPECT_LT(std::abs(*prediction.resting_error()), 0.015) << prediction.run->hardware;
    }
  }
}

TEST(PredictMemory, LeavesOutWhatIsNoMeasurementAndSaysWhy) {
  const struct {
    const char* reason;
    void (*change)(MeasuredRun&);
  } cases[] = {
      {"a closed form, not a measurement", [](MeasuredRun& run) { run.counted = "formula"; }},
      {"recordings of one configuration differ by more than 2 % at the peak",
       [](MeasuredRun& run) { run.notes = "median of 2 recordings; peak spread x1.22; test t"; }},
      {"recompute is not stated", [](MeasuredRun& run) { run.assumed = {"recompute"}; }},
      {"parallelism.pp: 16 is more than num_hidden_layers 12; use 1 to 12",
       [](MeasuredRun& run) {
         run.layout.pp = 16;
         run.gpus = 64;
       }},
  };
  for (const auto& c : cases) {
    MeasuredTable table;
    table.runs = {Llama70bOfTwelve(66.55, 4, 1, 2, 1, 4096)};
    c.change(table.runs[0]);
    const MemoryAccuracy accuracy = PredictMemory(table);
    ASSERT_EQ(accuracy.left_out.size(), 1U) << c.reason;
    EXPECT_EQ(accuracy.left_out[0].reason, c.reason);
  }
}

TEST(CountFits, FindsADeviceThatAPredictionFitsAndTheRunDoesNot) {
  const MeasuredRun run = Row("s", "B200", 79.0, "");
  MemoryPrediction prediction;
  prediction.run = &run;
  const auto false_fits = [&](double predicted_gib, double guard_gib) {
    prediction.peak = MemoryEstimate();
    prediction.peak[MemoryTerm::kWeights] = std::llround(predicted_gib * kGiB);
    prediction.guard_bytes = std::llround(guard_gib * kGiB);
    return CountFits({&prediction});
  };
  EXPECT_EQ(false_fits(78.5, 1).false_fits, 0);
  EXPECT_EQ(false_fits(78.5, 1).false_misfits, 0);
  EXPECT_EQ(false_fits(79.5, 1).false_misfits, 1);  // 80 GiB would have done
  EXPECT_EQ(false_fits(46.5, 1).false_fits, 1);     // 48 GiB would not
  EXPECT_EQ(false_fits(39, 1).false_fits, 2);       // nor 40
}

// Peaks that the model itself says, of another width of logits and another context: found again.
TEST(FindHabits, FindsTheHabitsThatMadeThePeaks) {
  std::vector<MeasuredRun> runs;
  for (const int64_t vocab : {32000, 64000, 128000, 256000}) {
    MeasuredRun run = Gpt7b("H100-80G SXM", 0, 1);
    run.allocated_bytes.reset();
    run.rank_or_stage = "max";
    run.shape.vocab_size = vocab;
    run.layout = {.tp = 4, .gradient_accumulation_steps = 8};
    absl::StatusOr<MemoryQuestion> asked = MemoryQuestionOf(run);
    ASSERT_TRUE(asked.ok()) << asked.status();
    asked->question.engine.memory.logit_bytes = 10;
    asked->question.engine.memory.context_bytes = 800.0 * 1024 * 1024;
    run.peak_bytes = PredictMemory(run, *asked).peak.total_bytes();
    runs.push_back(std::move(run));
  }
  std::vector<const MeasuredRun*> all;
  for (const MeasuredRun& run : runs) all.push_back(&run);
  const FoundHabits found = FindHabits(all);
  EXPECT_EQ(found.logit_bytes, 10);
  EXPECT_EQ(found.context_bytes, 800.0 * 1024 * 1024);
  EXPECT_LT(found.guard_share, 1e-6);
}

}  // namespace
}  // namespace weft
