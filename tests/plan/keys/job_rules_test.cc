#include "plan/keys/job_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/spec/job_spec.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

JobSpec ValidJob() {
  JobSpec job;
  job.name = "tiny";
  job.output_dir = "/tmp/outputs";
  SetArchitecture(Architecture::kGpt2, job.model);
  job.model.vocab_size = 256;
  job.model.hidden_size = 64;
  job.model.num_blocks = 4;
  job.model.num_heads = 4;
  job.model.num_kv_heads = 4;
  job.model.head_dim = 16;
  job.model.ffn_size = 256;
  job.model.max_positions = 128;
  job.data.train = {{"/tmp/train.txt"}};
  job.data.valid = {{"/tmp/valid.txt"}};
  job.training.seq_len = 128;
  job.training.global_batch_size = 8;
  job.training.steps = 100;
  job.lr_scheduler.warmup_steps = 10;
  job.lr_scheduler.min_lr = 3e-5;
  job.checkpoint.interval = 50;
  job.validation = {.interval = 50, .steps = 4};
  job.cluster.name = "two-core";
  job.cluster.slots_per_node = 4;
  job.cluster.cores_per_node = 2;
  job.cluster.device.memory_bytes = int64_t{1} << 30;
  job.cluster.device.peak_flops_per_s.fp32 = 5e10;
  job.cluster.device.peak_memory_bytes_per_s = 1e10;
  job.cluster.intra_node = {.latency_s = 1e-6, .bytes_per_s = 5e9};
  return job;
}

std::vector<std::string> IssuesOf(const JobSpec& job) {
  std::vector<std::string> texts;
  for (const SpecIssue& issue : Validate(job)) {
    texts.push_back(absl::StrCat(issue.key, ": ", issue.message));
  }
  return texts;
}

struct Case {
  void (*change)(JobSpec&);
  const char* issue;
};

void ExpectEachCaughtAlone(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    JobSpec job = ValidJob();
    c.change(job);
    EXPECT_THAT(IssuesOf(job), ElementsAre(c.issue));
  }
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Validate, AcceptsASoundJob) {
  EXPECT_THAT(IssuesOf(ValidJob()), IsEmpty());
}

TEST(Validate, AcceptsTheEndsOfEachRange) {
  JobSpec job = ValidJob();
  job.training.gradient_clipping = 0;
  job.training.max_consecutive_skipped_steps = 1;
  job.training.seed = std::numeric_limits<uint64_t>::max();
  job.optimizer.beta1 = 0;
  job.optimizer.weight_decay = 0;
  job.lr_scheduler.warmup_steps = job.training.steps;
  job.lr_scheduler.min_lr = job.optimizer.lr;
  job.checkpoint.interval = 0;
  job.checkpoint.keep_latest_k = 2;
  job.fault_tolerance = {.max_restarts = 0, .heartbeat_timeout_seconds = 1};
  job.validation = {};
  job.data.valid.clear();
  job.layout.dp = 2;
  job.layout.tp = 1;
  job.layout.pp = 2;
  job.env = {{"OMP_PROC_BIND", ""}, {"_X1", "a b"}};
  EXPECT_THAT(IssuesOf(job), IsEmpty());
}

TEST(Validate, ChecksNamesAndData) {
  ExpectEachCaughtAlone({
      {[](JobSpec& j) { j.name = ""; },
       "job.name: \"\" cannot name a folder; use 1 to 100 letters, digits, dots, underscores and "
       "dashes, a letter or digit first"},
      {[](JobSpec& j) { j.name = "../up"; },
       "job.name: \"../up\" cannot name a folder; use 1 to 100 letters, digits, dots, underscores "
       "and dashes, a letter or digit first"},
      {[](JobSpec& j) { j.output_dir = "outputs"; },
       "job.output_dir: \"outputs\" is not an absolute path; use one, e.g. /tmp/weft"},
      {[](JobSpec& j) { j.data.train.clear(); },
       "data.train: is empty; name at least one file of tokens"},
      {[](JobSpec& j) { j.data.train[0].path = "train.txt"; },
       "data.train: \"train.txt\" is not an absolute path; use one"},
      {[](JobSpec& j) {
         j.data.valid.clear();
         j.data.split = 1;
       },
       "data.split: 1 is out of range; use 0 or more and less than 1"},
      {[](JobSpec& j) { j.data.split = kNan; },
       "data.split: nan is out of range; use 0 or more and less than 1"},
      {[](JobSpec& j) { j.data.split = 0.1; },
       "data.split: 0.1 holds out a part of data.train, but data.valid is given too; use one of "
       "them"},
      {[](JobSpec& j) { j.model.vocab_size = 128; },
       "model.vocab_size: 128 cannot hold every byte of data.format bytes; use 256 or more"},
  });
}

DataSpec& Masked(JobSpec& job) {
  job.data.eos_token_id = 10;
  job.data.reset_attention_mask = true;
  return job.data;
}

TEST(Validate, ChecksDocuments) {
  ExpectEachCaughtAlone({
      {[](JobSpec& j) { j.data.reset_attention_mask = true; },
       "data.reset_attention_mask: true, but nothing says where documents start; give "
       "data.bos_token_id or data.eos_token_id, e.g. 50256 for GPT-2's <|endoftext|>"},
      {[](JobSpec& j) { j.data.reset_position_ids = true; },
       "data.reset_position_ids: true without data.reset_attention_mask; use true for both"},
      {[](JobSpec& j) { Masked(j).eos_token_id = 256; },
       "data.eos_token_id: 256 is out of range; use 0 to 255"},
      {[](JobSpec& j) { Masked(j).bos_token_id = -1; },
       "data.bos_token_id: -1 is out of range; use 0 to 255"},
  });
  JobSpec job = ValidJob();
  Masked(job).bos_token_id = 0;
  job.data.reset_position_ids = true;
  EXPECT_THAT(IssuesOf(job), IsEmpty());
}

TEST(Validate, ChecksMomentum) {
  ExpectEachCaughtAlone({
      {[](JobSpec& j) { j.optimizer.momentum = 0.9; },
       "optimizer.momentum: 0.9 with optimizer.name adamw, which has none of that kind; use 0, or "
       "optimizer.name sgd"},
      {[](JobSpec& j) { j.optimizer = {.name = OptimizerKind::kSgd, .momentum = 1}; },
       "optimizer.momentum: 1 is out of range; use 0 or more and less than 1"},
      {[](JobSpec& j) { j.optimizer = {.name = OptimizerKind::kSgd, .dampening = 0.5}; },
       "optimizer.dampening: 0.5 without optimizer.momentum; use 0"},
      {[](JobSpec& j) {
         j.optimizer = {.name = OptimizerKind::kSgd, .momentum = 0.9, .dampening = 0.5};
         j.optimizer.nesterov = true;
       },
       "optimizer.nesterov: true with optimizer.momentum 0.9 and dampening 0.5; it needs a "
       "momentum and no dampening"},
  });
}

TEST(Validate, ChecksWhatIsAdafactorsAlone) {
  ExpectEachCaughtAlone({
      {[](JobSpec& j) { j.optimizer = {.name = OptimizerKind::kAdafactor, .decay_rate = 0.8}; },
       "optimizer.decay_rate: 0.8 is out of range; use less than 0, e.g. -0.8"},
      {[](JobSpec& j) { j.optimizer = {.name = OptimizerKind::kAdafactor, .clip_threshold = 0}; },
       "optimizer.clip_threshold: 0 is out of range; use more than 0, e.g. 1"},
      {[](JobSpec& j) { j.optimizer.decay_rate = -0.5; },
       "optimizer.decay_rate: -0.5 with optimizer.name adamw, which has none of that kind; use "
       "-0.8, or optimizer.name adafactor"},
      {[](JobSpec& j) { j.optimizer.clip_threshold = 2; },
       "optimizer.clip_threshold: 2 with optimizer.name adamw, which has none of that kind; use "
       "1, or optimizer.name adafactor"},
      {[](JobSpec& j) { j.optimizer.scale_parameter = true; },
       "optimizer.scale_parameter: true with optimizer.name adamw, which has none of that kind; "
       "use false, or optimizer.name adafactor"},
  });
}

TEST(Validate, ChecksTrainingAndOptimizer) {
  ExpectEachCaughtAlone({
      {[](JobSpec& j) { j.training.seq_len = 256; },
       "training.seq_len: 256 is more than model.n_positions 128; use at most 128"},
      {[](JobSpec& j) { j.training.steps = 0, j.lr_scheduler.warmup_steps = 0; },
       "training.steps: 0 is out of range; use 1 to 2147483648"},
      {[](JobSpec& j) { j.training.gradient_clipping = -1; },
       "training.gradient_clipping: -1 is out of range; use 0 (off) or more"},
      {[](JobSpec& j) { j.training.max_consecutive_skipped_steps = 0; },
       "training.max_consecutive_skipped_steps: 0 is out of range; use 1 to 2147483648"},
      {[](JobSpec& j) { j.fp16.loss_scale = -1; },
       "fp16.loss_scale: -1 is out of range; use 0 (off) or more"},
      {[](JobSpec& j) { j.fp16.initial_scale_power = 33; },
       "fp16.initial_scale_power: 33 is out of range; use 0 to 32"},
      {[](JobSpec& j) { j.fp16.loss_scale_window = 0; },
       "fp16.loss_scale_window: 0 is out of range; use 1 to 2147483648"},
      {[](JobSpec& j) { j.fp16.hysteresis = 0; },
       "fp16.hysteresis: 0 is out of range; use 1 to 2147483648"},
      {[](JobSpec& j) { j.fp16.min_loss_scale = 0; },
       "fp16.min_loss_scale: 0 is out of range; use more than 0, e.g. 1"},
      {[](JobSpec& j) { j.training.fp8_fast_accumulation = true; },
       "training.fp8_fast_accumulation: true with training.mixed_precision fp32, which has no "
       "products of 8 bits; use false, or mixed_precision fp8"},
      {[](JobSpec& j) { j.fp16.loss_scale = 5; },
       "fp16.loss_scale: 5 with training.mixed_precision fp32, whose loss is not scaled; use 0, or "
       "mixed_precision fp16"},
      {[](JobSpec& j) { j.fp16.hysteresis = 3; },
       "fp16.hysteresis: 3 with training.mixed_precision fp32, whose loss is not scaled; use 2, or "
       "mixed_precision fp16"},
      {[](JobSpec& j) { j.training.gradient_clipping = kNan; },
       "training.gradient_clipping: nan is out of range; use 0 (off) or more"},
      {[](JobSpec& j) { j.optimizer.lr = 0; },
       "optimizer.lr: 0 is out of range; use more than 0, e.g. 0.0003"},
      {[](JobSpec& j) { j.optimizer.lr = kInfinity; },
       "optimizer.lr: inf is out of range; use more than 0, e.g. 0.0003"},
      {[](JobSpec& j) { j.optimizer.beta1 = 1; },
       "optimizer.betas: 1 is out of range; use 0 or more and less than 1"},
      {[](JobSpec& j) { j.optimizer.beta2 = -0.5; },
       "optimizer.betas: -0.5 is out of range; use 0 or more and less than 1"},
      {[](JobSpec& j) { j.optimizer.eps = 0; },
       "optimizer.eps: 0 is out of range; use more than 0, e.g. 1e-08"},
      {[](JobSpec& j) { j.optimizer.weight_decay = -0.1; },
       "optimizer.weight_decay: -0.1 is out of range; use 0 (off) or more"},
  });
}

TEST(Validate, ChecksTheScheduleOfTheLearningRate) {
  ExpectEachCaughtAlone({
      {[](JobSpec& j) { j.lr_scheduler.warmup_steps = 101; },
       "lr_scheduler.warmup_steps: 101 is more than training.steps 100; use at most 100"},
      {[](JobSpec& j) { j.lr_scheduler.warmup_steps = -1; },
       "lr_scheduler.warmup_steps: -1 is out of range; use 0 to 2147483648"},
      {[](JobSpec& j) { j.lr_scheduler.decay_steps = -1; },
       "lr_scheduler.decay_steps: -1 is out of range; use 0 to 2147483648"},
      {[](JobSpec& j) { j.lr_scheduler.decay_steps = 9; },
       "lr_scheduler.decay_steps: 9 is less than lr_scheduler.warmup_steps 10; use 0 (until "
       "training.steps), or 10 or more"},
      {[](JobSpec& j) { j.lr_scheduler.min_lr = 1e-3; },
       "lr_scheduler.min_lr: 0.001 is more than optimizer.lr 0.0003; use at most 0.0003"},
      {[](JobSpec& j) { j.lr_scheduler.min_lr = -1; },
       "lr_scheduler.min_lr: -1 is out of range; use 0 to optimizer.lr"},
      {[](JobSpec& j) { j.lr_scheduler.warmup_min_lr = 1e-3; },
       "lr_scheduler.warmup_min_lr: 0.001 is more than optimizer.lr 0.0003; use at most 0.0003"},
      {[](JobSpec& j) { j.lr_scheduler.warmup_min_lr = -1; },
       "lr_scheduler.warmup_min_lr: -1 is out of range; use 0 to optimizer.lr"},
      {[](JobSpec& j) {
         j.lr_scheduler.warmup_steps = 0;
         j.lr_scheduler.warmup_min_lr = 1e-5;
       },
       "lr_scheduler.warmup_min_lr: 1e-05 has no use with lr_scheduler.warmup_steps 0; use 0, or "
       "lr_scheduler.warmup_steps 1 or more"},
  });
}

TEST(Validate, ChecksFixedDegreesAndTheBatchEquation) {
  ExpectEachCaughtAlone({
      {[](JobSpec& j) { j.layout.tp = 3; },
       "parallelism.tp: 3 does not divide n_head 4; use 1, 2 or 4"},
      {[](JobSpec& j) { j.layout.dp = 0; }, "parallelism.dp: 0 is too few; use 1 or more, or auto"},
      {[](JobSpec& j) { j.layout.dp = 8; },
       "parallelism.dp: 8 is more than the number of slots 4 (cluster.nodes 1 x cluster.slots 4); "
       "use at most 4, or more slots"},
      {[](JobSpec& j) { j.layout.tp = j.layout.pp = 4; },
       "parallelism: dp 1 x tp 4 x pp 4 = 16 workers are more than the number of slots 4 "
       "(cluster.nodes 1 x cluster.slots 4); lower a degree or use more slots"},
      {[](JobSpec& j) { j.layout.cp = 8; },
       "parallelism.cp: 8 is more than the number of slots 4 (cluster.nodes 1 x cluster.slots 4); "
       "use at most 4, or more slots"},
      {[](JobSpec& j) { j.layout.ep = 2; },
       "parallelism.ep: 2 with a model without experts; use 1"},
      {[](JobSpec& j) { j.layout.zero_stage = 4; },
       "parallelism.zero_stage: 4 is not a stage of ZeRO; use 0, 1, 2 or 3"},
      {[](JobSpec& j) {
         j.layout.dp = j.layout.cp = 2;
         j.layout.zero_hpz_partition_size = 3;
       },
       "parallelism.zero_hpz_partition_size: 3 does not divide the data group 4; use 1, 2 or 4"},
      {[](JobSpec& j) {
         j.layout.virtual_stages = 2;
         j.layout.pp_schedule = ScheduleKind::kGpipe;
       },
       "parallelism.virtual_stages: 2 with pp_schedule gpipe; use 1, or pp_schedule "
       "interleaved_1f1b"},
      {[](JobSpec& j) {
         j.layout.layers_per_stage = {{1, 100}};
       },
       "parallelism.layers_per_stage: 1, 100 are not 2 positive numbers that sum to n_layer 4"},
      {[](JobSpec& j) {
         j.layout.recompute = Recompute::kFull;
         j.layout.recompute_per_stage = {Recompute::kNone};
       },
       "activation_checkpointing.per_stage: stands beside activation_checkpointing.mode full; keep "
       "one of the two"},
      {[](JobSpec& j) { j.layout.dp = 3; },
       "parallelism.dp: 3 does not divide training.global_batch_size 8; use 1, 2, 4 or 8"},
      {[](JobSpec& j) {
         j.layout.dp = 2;
         j.layout.micro_batch_size = 2;
         j.layout.gradient_accumulation_steps = 4;
       },
       "training.global_batch_size: 8 is not training.micro_batch_size 2 x "
       "training.gradient_accumulation_steps 4 x parallelism.dp 2 = 16; use 16, or auto for one of "
       "the others"},
      {[](JobSpec& j) { j.training.global_batch_size = 0; },
       "training.global_batch_size: 0 is out of range; use 1 to 1048576"},
  });
}

// The number of chunks is nobody's fault where nobody gave it.
TEST(Validate, NamesTheScheduleWhereItsFewestChunksCannotBeHad) {
  ExpectEachCaughtAlone({
      {[](JobSpec& j) {
         j.layout.pp = 1;
         j.layout.pp_schedule = ScheduleKind::kInterleaved;
       },
       "parallelism.pp_schedule: interleaved_1f1b with parallelism.pp 1 and n_layer 4; it needs 2 "
       "or more stages of 2 or more chunks, each with a block; use parallelism.pp 2 or more, or "
       "1f1b"},
      {[](JobSpec& j) {
         j.layout.pp = 4;
         j.layout.pp_schedule = ScheduleKind::kInterleaved;
       },
       "parallelism.pp_schedule: interleaved_1f1b with parallelism.pp 4 and n_layer 4; it needs 2 "
       "or more stages of 2 or more chunks, each with a block; use 1f1b"},
  });
}

TEST(Validate, TakesEveryLayoutThatCanBePriced) {
  const std::function<void(JobSpec&)> fixes[] = {
      [](JobSpec& j) { j.layout.cp = 2; },
      [](JobSpec& j) { j.layout.zero_stage = 3; },
      [](JobSpec& j) {
        j.layout.zero_hpz_partition_size = 2;
      },  // of a data group that is not known yet
      [](JobSpec& j) { j.layout.pp_schedule = ScheduleKind::kInterleaved; },
      [](JobSpec& j) { j.layout.virtual_stages = 2; },
      [](JobSpec& j) {
        j.layout.layers_per_stage = {{1, 3}};
      },
      [](JobSpec& j) { j.layout.layers_per_stage = std::vector<int64_t>(); },
      [](JobSpec& j) {
        j.layout.recompute_per_stage = {Recompute::kNone, Recompute::kFull};
      },
      [](JobSpec& j) { j.layout.offload_optimizer = OffloadDevice::kCpu; },
      [](JobSpec& j) { j.layout.head_chunk_tokens = 16; },
      [](JobSpec& j) { j.optimizer.name = OptimizerKind::kAdafactor; },
      [](JobSpec& j) { j.lora = LoraSpec{}; },
  };
  for (const auto& fix : fixes) {
    JobSpec job = ValidJob();
    fix(job);
    EXPECT_THAT(IssuesOf(job), testing::IsEmpty());
  }
}

TEST(Validate, ChecksAdaptersAndNumberFormats) {
  ExpectEachCaughtAlone({
      {[](JobSpec& j) { j.lora = LoraSpec{.r = 0}; }, "lora.r: 0 is out of range; use 1 to 64"},
      {[](JobSpec& j) {
         j.lora = LoraSpec{.r = 0, .lora_alpha = 0};  // as it is where only r is given
       },
       "lora.r: 0 is out of range; use 1 to 64"},
      {[](JobSpec& j) { j.lora = LoraSpec{.lora_alpha = -1}; },
       "lora.lora_alpha: -1 is out of range; use more than 0, e.g. 16"},
      {[](JobSpec& j) { j.lora = LoraSpec{.target_modules = {}}; },
       "lora.target_modules: is empty; use e.g. [q_proj, v_proj]"},
      {[](JobSpec& j) { j.lora = LoraSpec{.target_modules = {"lm_head"}}; },
       "lora.target_modules: \"lm_head\" is not a linear layer that takes adapters; use "
       "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj, or for gpt2 c_attn, "
       "c_proj and c_fc"},
      {[](JobSpec& j) { j.layout.head_chunk_tokens = -1; },
       "training.head_chunk_tokens: -1 is out of range; use 0 to 1099511627776"},
  });
}

TEST(Validate, RefusesToOffloadWhatIsNotThereOrNeedsToBeWhole) {
  ExpectEachCaughtAlone({
      {[](JobSpec& j) {
         j.layout.offload_optimizer = OffloadDevice::kCpu;
         j.optimizer.name = OptimizerKind::kSgd;
       },
       "offload.optimizer: cpu with optimizer.name sgd without momentum in fp32, which keeps "
       "nothing to offload; use none"},
      {[](JobSpec& j) {
         j.layout.offload_optimizer = OffloadDevice::kCpu;
         j.optimizer.name = OptimizerKind::kAdafactor;
       },
       "offload.optimizer: cpu with optimizer.name adafactor, whose update needs whole tensors at "
       "once; use none"},
  });
  JobSpec momentum = ValidJob();
  momentum.layout.offload_optimizer = OffloadDevice::kCpu;
  momentum.optimizer.name = OptimizerKind::kSgd;
  momentum.optimizer.momentum = 0.9;
  EXPECT_THAT(IssuesOf(momentum), testing::IsEmpty());
  JobSpec narrow = ValidJob();  // the master weights
  narrow.layout.offload_optimizer = OffloadDevice::kCpu;
  narrow.optimizer.name = OptimizerKind::kSgd;
  narrow.training.mixed_precision = Precision::kBf16;
  narrow.cluster.device.peak_flops_per_s.bf16 = 1e12;
  EXPECT_THAT(IssuesOf(narrow), testing::IsEmpty());
}

TEST(RunIssues, NameWhatCanBePlannedButNotRunYet) {
  const std::pair<std::function<void(JobSpec&)>, const char*> cases[] = {
      {[](JobSpec&) {}, ""},
      {[](JobSpec& j) { j.layout.cp = 2; }, ""},
      {[](JobSpec& j) { j.layout.recompute = Recompute::kFull; }, ""},
      {[](JobSpec& j) {
         j.layout.recompute = Recompute::kFull;
         j.layout.pp = 2;
         j.layout.pp_schedule = ScheduleKind::kZeroBubbleH1;
       },
       ""},
      {[](JobSpec& j) { j.layout.offload_optimizer = OffloadDevice::kCpu; }, ""},
      {[](JobSpec& j) { j.training.mixed_precision = Precision::kFp8; }, ""},
      {[](JobSpec& j) {
         j.training.mixed_precision = Precision::kFp8;
         j.model.hidden_size = 72;
       },
       "training.mixed_precision: fp8 would be in no product, as hidden_size 72 is not a multiple "
       "of "
       "16; use bf16"},
      {[](JobSpec& j) { j.layout.head_chunk_tokens = 16; }, ""},
      {[](JobSpec& j) { j.optimizer.name = OptimizerKind::kAdafactor; }, ""},
      {[](JobSpec& j) { j.lora = LoraSpec{.r = 16}; },
       "lora.r: 16 is not supported yet; leave the section lora out"},
      {[](JobSpec& j) { j.model.num_experts = 8; },
       "model.num_local_experts: 8 is not supported yet; use a model without experts"},
  };
  for (const auto& [ask, expected] : cases) {
    JobSpec job = ValidJob();
    ask(job);
    std::string found;
    for (const SpecIssue& issue : RunIssues(job)) found += issue.key + ": " + issue.message;
    EXPECT_EQ(found, expected);
  }
}

TEST(Validate, ChecksCheckpointsValidationAndLimits) {
  ExpectEachCaughtAlone({
      {[](JobSpec& j) { j.checkpoint.keep_latest_k = 1; },
       "checkpoint.keep_latest_k: 1 is out of range; use 2 or more: the newest may turn out "
       "damaged"},
      {[](JobSpec& j) { j.checkpoint.interval = -5; },
       "checkpoint.interval: -5 is out of range; use 0 to 2147483648"},
      {[](JobSpec& j) { j.checkpoint.folder = ""; },
       "checkpoint.folder: is empty; use a folder's name, e.g. checkpoint"},
      {[](JobSpec& j) { j.validation.steps = 0; },
       "validation.steps: 0 with validation.interval 50; use 1 or more global batches, or interval "
       "0 (off)"},
      {[](JobSpec& j) { j.data.valid.clear(); },
       "validation.interval: 50 but nothing is held out; give data.valid or data.split, or use 0 "
       "(off)"},
      {[](JobSpec& j) { j.fault_tolerance.max_restarts = -1; },
       "fault_tolerance.max_restarts: -1 is out of range; use 0 to 1000000"},
      {[](JobSpec& j) { j.fault_tolerance.heartbeat_timeout_seconds = 0.5; },
       "fault_tolerance.heartbeat_timeout_seconds: 0.5 is out of range; use 1 to 86400 seconds"},
      {[](JobSpec& j) { j.comm.init_timeout_seconds = kNan; },
       "comm.init_timeout_seconds: nan is out of range; use 1 to 86400 seconds"},
      {[](JobSpec& j) { j.comm.train_timeout_seconds = 1e6; },
       "comm.train_timeout_seconds: 1e+06 is out of range; use 1 to 86400 seconds"},
      {[](JobSpec& j) { j.log_freq = 0; },
       "metrics.log_freq: 0 is out of range; use 1 to 2147483648"},
      {[](JobSpec& j) { j.max_log_bytes = 65535; },
       "logs.max_file_bytes: 65535 is out of range; use 65536 to 1099511627776 bytes"},
      {[](JobSpec& j) { j.max_metrics_bytes = 0; },
       "metrics.max_file_bytes: 0 is out of range; use 65536 to 1099511627776 bytes"},
      {[](JobSpec& j) { j.threads_per_worker = 0; },
       "cluster.threads_per_worker: 0 is out of range; use 1 to 1024"},
      {[](JobSpec& j) {
         j.env = {{"A=B", ""}};
       },
       "cluster.env: \"A=B\" cannot name a variable; use letters, digits and underscores"},
      {[](JobSpec& j) {
         j.env = {{"WEFT_RANK", "0"}};
       },
       "cluster.env: WEFT_RANK is weft's own to set; remove it"},
      {[](JobSpec& j) { j.hosts.least_nodes = j.cluster.nodes + 1; },
       "cluster.nodes: 2:1 begins above its end; write MIN:MAX"},
      {[](JobSpec& j) { j.hosts.network = "eth0"; },
       "cluster.network: \"eth0\" is not a subnet; write an address and how many of its bits "
       "count, "
       "e.g. 10.78.0.0/24"},
      {[](JobSpec& j) { j.hosts.network = "10.78.0.11/24"; },
       "cluster.network: \"10.78.0.11/24\" has bits beyond the first 24, as a host's address has; "
       "write the network's, whose other bits are 0"},
      {[](JobSpec& j) { j.hosts.remote_path = "weft/bin"; },
       "cluster.remote_path: weft/bin is not an absolute path; begin with /"},
      {[](JobSpec& j) { j.hosts.ssh_options = "2222"; },
       "cluster.ssh_options: \"2222\" does not begin with an option; write e.g. -p 2222"},
      {[](JobSpec& j) {
         j.hosts.failure_domains = {{"rack1", "n[8-1]"}};
       },
       "cluster.failure_domains: rack1: [8-1] is no range; write hosts as a,n[1-8,12],gpu*"},
      {[](JobSpec& j) { j.hosts.spares = -1; },
       "cluster.spares: -1 is out of range; use 0 to 100000"},
  });
}

TEST(Validate, ChecksWhatASchedulerIsTold) {
  ExpectEachCaughtAlone({
      {[](JobSpec& j) {
         j.scheduler.kind = Scheduler::kSlurm;
         j.scheduler.partition = "a b";
       },
       "cluster.partition: \"a b\" is not one plain word; write it without spaces and quotes"},
      {[](JobSpec& j) {
         j.scheduler.kind = Scheduler::kSlurm;
         j.scheduler.time = "soon";
       },
       "cluster.time: soon is no time; write minutes, HH:MM:SS or D-HH:MM:SS"},
      {[](JobSpec& j) {
         j.scheduler.kind = Scheduler::kSlurm;
         j.scheduler.options = "nice";
       },
       "cluster.sbatch_options: \"nice\" does not begin with an option; write e.g. "
       "--mail-type=END"},
      {[](JobSpec& j) {
         j.scheduler.kind = Scheduler::kSlurm;
         j.scheduler.container = "a\nb";
       },
       "cluster.container: has several lines; write one"},
      {[](JobSpec& j) { j.scheduler.partition = "gpu"; },
       "cluster.partition: \"gpu\" with cluster.scheduler none, which is told nothing of it; use "
       "null, or cluster.scheduler slurm"},
  });
}

PodsSpec& PodsOf(JobSpec& job) {
  job.scheduler.kind = Scheduler::kKubernetes;
  job.scheduler.pods.image = "weft:1";
  job.scheduler.pods.volume = "data";
  job.scheduler.pods.volume_path = "/data";
  return job.scheduler.pods;
}

TEST(Validate, ChecksWhatKubernetesIsTold) {
  ExpectEachCaughtAlone({
      {[](JobSpec& j) { PodsOf(j).image.clear(); },
       "cluster.image: is not there, and cluster.scheduler kubernetes needs it; "
       "docs/kubernetes.md says what it is"},
      {[](JobSpec& j) { PodsOf(j).volume_path = "data"; },
       "cluster.volume_path: data is not an absolute path; begin with /"},
      {[](JobSpec& j) { PodsOf(j).queue = "a b"; },
       "cluster.queue: \"a b\" is not one plain word; write it without spaces and quotes"},
      {[](JobSpec& j) {
         PodsOf(j).node_selector = {{"pool", "a \n"}};
       },
       "cluster.node_selector: \"pool: a \n\" are not two plain words; write them without spaces "
       "and quotes"},
      {[](JobSpec& j) {
         PodsOf(j);
         j.scheduler.partition = "gpu";
       },
       "cluster.partition: \"gpu\" with cluster.scheduler kubernetes, which is told nothing of it; "
       "use null, or cluster.scheduler slurm"},
      {[](JobSpec& j) { j.scheduler.pods.image = "weft:1"; },
       "cluster.image: \"weft:1\" with cluster.scheduler none, which is told nothing of it; use "
       "null, or cluster.scheduler kubernetes"},
  });
}

TEST(Validate, RefusesARunWhoseTokensCannotBeCounted) {
  JobSpec job = ValidJob();
  job.training.steps = int64_t{1} << 31;
  job.training.global_batch_size = int64_t{1} << 20;
  job.training.seq_len = job.model.max_positions = int64_t{1} << 20;
  EXPECT_THAT(IssuesOf(job),
              ElementsAre("training.steps: 2147483648 makes 2.36118e+21 tokens in all; use fewer "
                          "steps"));
}

TEST(Validate, ReportsEveryBrokenRuleAtOnce) {
  JobSpec job = ValidJob();
  job.name = "a b";
  job.data.train.clear();
  job.training.seq_len = 1024;
  job.layout.micro_batch_size = 3;
  job.optimizer.lr = -1;
  job.lr_scheduler.warmup_steps = 1000;
  job.layout.tp = 3;
  job.layout.zero_stage = 4;
  job.checkpoint.keep_latest_k = 0;
  job.validation.steps = 0;
  job.fault_tolerance.heartbeat_timeout_seconds = 0;
  std::vector<std::string> keys;
  for (const SpecIssue& issue : Validate(job)) keys.push_back(issue.key);
  EXPECT_THAT(keys, testing::UnorderedElementsAre(
                        "job.name", "data.train", "training.seq_len", "training.micro_batch_size",
                        "optimizer.lr", "lr_scheduler.warmup_steps", "parallelism.tp",
                        "parallelism.zero_stage", "checkpoint.keep_latest_k", "validation.steps",
                        "fault_tolerance.heartbeat_timeout_seconds"));
}

TEST(Validate, AnEmptyJobIsRefusedWithoutCrashing) {
  std::vector<std::string> keys;
  for (const SpecIssue& issue : Validate(JobSpec{})) keys.push_back(issue.key);
  EXPECT_THAT(keys, testing::IsSupersetOf({"job.name", "job.output_dir", "model.vocab_size",
                                           "model.hidden_size", "data.train", "training.steps",
                                           "cluster.device.memory_bytes"}));
}

TEST(Validate, AModelThatCannotBeDividedStopsOnlyTheChecksThatNeedIt) {
  JobSpec job = ValidJob();
  job.model.num_heads = 0;
  job.layout.tp = 3;
  job.optimizer.lr = 0;
  EXPECT_THAT(IssuesOf(job),
              ElementsAre("optimizer.lr: 0 is out of range; use more than 0, e.g. 0.0003",
                          "model.n_head: 0 is out of range; use 1 to 1048576"));
}

template <typename E>
void ExpectParsedBack() {
  for (size_t i = 0; i < WordsOf(E{}).size(); ++i) {
    const auto value = static_cast<E>(i);
    const absl::StatusOr<E> back = ParseWord<E>(WordOf(value), "a word");
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, value);
  }
}

TEST(Words, AreParsedBack) {
  ExpectParsedBack<TokenFormat>();
  ExpectParsedBack<OptimizerKind>();
  ExpectParsedBack<LrSchedule>();
  EXPECT_EQ(
      ParseTokenFormat("jsonl").status(),
      absl::InvalidArgumentError(
          "\"jsonl\" is not a token format that weft reads; use bytes, llmc, nanogpt or megatron"));
}

}  // namespace
}  // namespace weft
