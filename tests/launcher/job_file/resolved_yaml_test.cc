#include "launcher/job_file/resolved_yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/job_file/job_yaml.h"
#include "plan/keys/job_keys.h"
#include "plan/search/search.h"
#include "tests/launcher/job_file_for_test.h"

namespace weft {
namespace {

class ResolvedYaml : public ::testing::Test {
 protected:
  JobSpec Job(std::vector<std::string> sets = {}) {
    const auto file =
        ReadJobText(kGoodJob, folder_.job(), {.sets = std::move(sets), .check_files = true});
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? file->job : JobSpec();
  }
  JobFolder folder_;
};

const RunRecord kRecord = {.generation = 3,
                           .weft_version = "0.1.0 (a \"quoted\" one)",
                           .planned_bytes = 123456789012,
                           .predicted_step_s = 0.1234567890123,
                           .data = {"/a b/c.txt 4000:0123456789abcdef"}};

TEST_F(ResolvedYaml, ReadsBackAsTheSameJobAndRecord) {
  const std::vector<std::vector<std::string>> variants = {
      {},
      {"optimizer.lr=0.1234567890123456789", "training.seed=9007199254740993",
       "cluster.env={A: \"x: \\\"y\\\" # z\", B: \"12\"}", "checkpoint.interval=7",
       "validation.interval=5", "validation.steps=2", "data.split=0.25"},
      {"optimizer.param_groups=[{params: [\"*.bias\", embed.tokens.weight], weight_decay: 0.5}, "
       "{params: [\"*.norm*.weight\", \"*weight\"], weight_decay: 0}]"},
      {"optimizer.name=sgd", "optimizer.momentum=0.9", "optimizer.dampening=0.1"},
      {"optimizer.name=sgd", "optimizer.momentum=0.9", "optimizer.nesterov=true"},
      {"optimizer.name=adafactor", "optimizer.decay_rate=-0.7", "optimizer.clip_threshold=0.5",
       "optimizer.scale_parameter=true"},
      {"optimizer.name=sgd", "lr_scheduler.type=constant", "parallelism.pp_schedule=gpipe",
       "checkpoint.resume=none", "cluster.threads_per_worker=2", "job.output_dir=/tmp/a b",
       "deterministic=true"},
      {"data.bos_token_id=2", "data.eos_token_id=10", "data.reset_attention_mask=true",
       "data.reset_position_ids=true"},
  };
  for (const auto& sets : variants) {
    const JobSpec job = Job(sets);
    const auto plan = FindPlan(job, Purpose::kRun);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const JobSpec resolved = Resolve(job, plan->layout);
    const std::string text = ResolvedText(resolved, kRecord);
    const auto again = ReadJobText(text, "/elsewhere/resolved.yaml", {});
    ASSERT_TRUE(again.ok()) << again.status() << "\n" << text;
    EXPECT_TRUE(again->job == resolved) << text;
    EXPECT_TRUE(again->notes.empty());
    const RunRecord record = ReadRecord(again->tree);
    EXPECT_EQ(record.generation, kRecord.generation);
    EXPECT_EQ(record.weft_version, kRecord.weft_version);
    EXPECT_EQ(record.planned_bytes, kRecord.planned_bytes);
    EXPECT_EQ(record.predicted_step_s, kRecord.predicted_step_s);
    EXPECT_EQ(record.data, kRecord.data);
    // The plan is repeated without a search, and is the same.
    ASSERT_TRUE(FixedLayout(again->job).has_value());
    EXPECT_TRUE(*FixedLayout(again->job) == plan->layout);
    EXPECT_TRUE(FindPlan(again->job, Purpose::kRun)->layout == plan->layout);
  }
}

TEST_F(ResolvedYaml, ReadsBackAnyModelAndGpus) {
  JobSpec job = Job({"cluster={profile: h200, gpus_per_node: 4}"});
  EXPECT_EQ(job.cluster.slots_per_node, 4);
  SetArchitecture(Architecture::kLlama, job.model);
  job.model.num_kv_heads = 2;
  job.model.tied_embeddings = false;
  const JobSpec resolved = Resolve(job, Layout{.dp = 2, .pp = 2, .gradient_accumulation_steps = 4});
  const auto again = ReadJobText(ResolvedText(resolved, kRecord), "/r.yaml", {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->job == resolved);
}

TEST_F(ResolvedYaml, ReadsBackAnyLayout) {
  JobSpec job = Job({"cluster={profile: h200, gpus_per_node: 8}", "training.mixed_precision=bf16",
                     "lora={r: 4, target_modules: all-linear, quantization: nf4, "
                     "double_quantization: true}"});
  EXPECT_EQ(job.lora->quantization, FrozenFormat::kNf4Double);
  job.layout = {};
  const Layout layouts[] = {{.dp = 2,
                             .pp = 2,
                             .cp = 2,
                             .zero_stage = 1,
                             .gradient_accumulation_steps = 4,
                             .zero_hpz_partition_size = 2},
                            {.dp = 1,
                             .pp = 2,
                             .pp_schedule = ScheduleKind::kInterleaved,
                             .gradient_accumulation_steps = 8,
                             .recompute = Recompute::kFull,
                             .virtual_stages = 2,
                             .offload_optimizer = OffloadDevice::kCpu},
                            {.dp = 1,
                             .pp = 2,
                             .tp = 2,
                             .pp_schedule = ScheduleKind::kZeroBubbleH1,
                             .gradient_accumulation_steps = 8,
                             .sequence_parallel = true,
                             .head_chunk_tokens = 32,
                             .layers_per_stage = {1, 3},
                             .recompute_per_stage = {Recompute::kSelective, Recompute::kNone}}};
  for (const Layout& layout : layouts) {
    const JobSpec resolved = Resolve(job, layout);
    const std::string text = ResolvedText(resolved, kRecord);
    const auto again = ReadJobText(text, "/r.yaml", {});
    ASSERT_TRUE(again.ok()) << again.status() << text;
    EXPECT_TRUE(again->job == resolved) << text;
    ASSERT_TRUE(FixedLayout(again->job).has_value()) << text;
    EXPECT_TRUE(*FixedLayout(again->job) == layout) << text;
  }
}

TEST_F(ResolvedYaml, LeavesNothingToThePlanner) {
  const JobSpec job = Job({"parallelism.dp=auto", "parallelism.pp=auto"});
  EXPECT_FALSE(FixedLayout(job).has_value());
  std::string text = ResolvedText(Resolve(job, FindPlan(job, Purpose::kRun)->layout), kRecord);
  text.erase(text.find("resume: auto"), 12);  // a mode, not a value to be found
  EXPECT_THAT(text, testing::Not(testing::HasSubstr(": auto\n")));
}

TEST_F(ResolvedYaml, HoldsEveryKeyThatMeansSomethingHere) {
  const auto file = ReadJobText(
      ResolvedText(Resolve(Job(), Layout{.dp = 2, .pp = 2, .micro_batch_size = 4}), kRecord),
      "/r.yaml", {});
  ASSERT_TRUE(file.ok()) << file.status();
  for (const JobKey& key : JobKeys()) {
    // A key whose value another one holds, or of which nothing is built, is not written; a CPU
    // cluster counts slots.
    const bool is_input =
        key.kind == KeyKind::kInput && key.key != "cluster.profile" && key.key != "resolved";
    const bool is_nothing = key.kind == KeyKind::kNotBuilt && key.otherwise.empty();
    const bool apart =
        is_input || is_nothing || key.section() == "lora" || key.key == "cluster.gpus_per_node";
    EXPECT_NE(file->tree.FindPath(key.key) != nullptr, apart) << key.key;
  }
}

TEST_F(ResolvedYaml, TellsMathematicsFromExecution) {
  const Layout layout{.dp = 2, .pp = 2, .micro_batch_size = 4};
  const auto changes = [&](std::vector<std::string> sets, const Layout& now) {
    std::vector<std::string> texts;
    for (const SpecChange& change :
         Changes(Resolve(Job(), layout), Resolve(Job(std::move(sets)), now))) {
      texts.push_back(absl::StrCat(change.mathematics ? "math " : "exec ", change.key, ": ",
                                   change.before, " -> ", change.after));
    }
    return texts;
  };
  EXPECT_THAT(changes({}, layout), testing::IsEmpty());
  EXPECT_THAT(changes({"optimizer.lr=0.5", "model.n_layer=6", "training.seed=1",
                       "training.global_batch_size=16", "data.split=0.5"},
                      layout),
              testing::UnorderedElementsAre(
                  "math model.n_layer: 4 -> 6", "math data.split: 0 -> 0.5",
                  "math training.global_batch_size: 8 -> 16", "math training.seed: 42 -> 1",
                  "math optimizer.lr: 0.001 -> 0.5"));
  EXPECT_THAT(
      changes(
          {"checkpoint.interval=7", "cluster.slots=8", "parallelism.tp=2"},
          Layout{
              .dp = 2, .pp = 2, .tp = 2, .micro_batch_size = 2, .gradient_accumulation_steps = 2}),
      testing::UnorderedElementsAre(
          "exec training.micro_batch_size: 4 -> 2",
          "exec training.gradient_accumulation_steps: 1 -> 2", "exec parallelism.tp: 1 -> 2",
          "exec checkpoint.interval: 0 -> 7", "exec cluster.slots: 4 -> 8"));
  // The same profile, described anew.
  JobSpec measured = Resolve(Job(), layout);
  measured.cluster.device.op_overhead_s = 5e-6;
  const std::vector<SpecChange> anew = Changes(Resolve(Job(), layout), measured);
  ASSERT_EQ(anew.size(), 1u);
  EXPECT_EQ(anew[0].before, "cpu with op_overhead_s: 2e-06");
  EXPECT_EQ(anew[0].after, "cpu with op_overhead_s: 5e-06");
  // More steps are execution, unless the learning rate decays until the last one.
  EXPECT_THAT(changes({"training.steps=40"}, layout),
              testing::UnorderedElementsAre("exec training.steps: 20 -> 40",
                                            "math lr_scheduler.decay_steps: 20 -> 40"));
  EXPECT_THAT(changes({"training.steps=40", "lr_scheduler.decay_steps=20"}, layout),
              testing::UnorderedElementsAre("exec training.steps: 20 -> 40"));
}

}  // namespace
}  // namespace weft
