// The list of keys is frozen: a new one needs a reason why the planner cannot choose its value.
#include "plan/keys/job_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "plan/keys/key_names.h"
#include "plan/keys/model_keys.h"
#include "tests/places.h"

namespace weft {
namespace {

TEST(JobKeys, AreFrozen) {
  const std::vector<std::string> frozen = absl::StrSplit(
      "job.name job.output_dir model.path model.init_from data.train data.tokenizer data.cache "
      "data.valid "
      "data.split data.format data.dtype data.bos_token_id data.eos_token_id "
      "data.reset_attention_mask "
      "data.reset_position_ids data.num_workers training.seq_len training.micro_batch_size "
      "training.global_batch_size training.gradient_accumulation_steps training.steps "
      "training.tokens training.epochs training.gradient_clipping training.z_loss "
      "training.label_smoothing training.mixed_precision "
      "training.reduce_dtype "
      "training.fp8_fast_accumulation training.seed "
      "training.max_consecutive_skipped_steps training.head_chunk_tokens fp16.loss_scale "
      "fp16.initial_scale_power fp16.loss_scale_window fp16.hysteresis fp16.min_loss_scale "
      "optimizer.name optimizer.lr optimizer.betas "
      "optimizer.eps optimizer.weight_decay optimizer.param_groups "
      "optimizer.momentum optimizer.dampening optimizer.nesterov optimizer.decay_rate "
      "optimizer.clip_threshold optimizer.scale_parameter optimizer.relative_step "
      "optimizer.warmup_init lr_scheduler.type "
      "lr_scheduler.warmup_steps lr_scheduler.warmup_min_lr "
      "lr_scheduler.decay_steps lr_scheduler.min_lr parallelism.dp parallelism.dp_replicate "
      "parallelism.tp parallelism.pp parallelism.cp parallelism.ep parallelism.etp "
      "parallelism.sequence_parallel "
      "parallelism.pp_schedule parallelism.virtual_stages parallelism.layers_per_stage "
      "parallelism.zero_stage parallelism.zero_hpz_partition_size activation_checkpointing.mode "
      "activation_checkpointing.per_stage offload.optimizer offload.params checkpoint.folder "
      "checkpoint.interval checkpoint.keep_latest_k checkpoint.resume checkpoint.async "
      "checkpoint.export_hf checkpoint.export_dtype fault_tolerance.max_restarts "
      "fault_tolerance.heartbeat_timeout_seconds fault_tolerance.steady_seconds "
      "fault_tolerance.preflight "
      "fault_tolerance.on_preempt "
      "fault_tolerance.skip_loss_zscore comm.init_timeout_seconds comm.train_timeout_seconds "
      "comm.measure_seconds "
      "validation.interval validation.steps metrics.log_freq metrics.tensorboard metrics.wandb "
      "metrics.max_file_bytes logs.max_file_bytes "
      "profiler.enable profiler.freq profiler.memory_snapshot lora.r lora.lora_alpha "
      "lora.lora_dropout lora.target_modules lora.quantization lora.double_quantization "
      "cluster.scheduler cluster.profile cluster.nodes cluster.slots cluster.gpus_per_node "
      "cluster.threads_per_worker cluster.bind cluster.network cluster.spares "
      "cluster.failure_domains cluster.ssh_options "
      "cluster.remote_path "
      "cluster.partition cluster.account cluster.qos cluster.constraint cluster.exclude "
      "cluster.reservation cluster.time cluster.dependency cluster.sbatch_options cluster.setup "
      "cluster.container cluster.image cluster.namespace cluster.volume cluster.volume_path "
      "cluster.queue cluster.priority_class cluster.runtime_class cluster.gpu_resource "
      "cluster.resources cluster.node_selector cluster.jobset cluster.pod cluster.env "
      "deterministic "
      "resolved",
      ' ');
  std::vector<std::string> keys;
  for (const JobKey& key : JobKeys()) keys.emplace_back(key.key);
  EXPECT_EQ(keys, frozen);
}

TEST(JobKeys, ModelKeysAreFrozen) {
  EXPECT_THAT(ModelKeyList(ModelFamily::kGpt2),
              testing::ElementsAre("activation_function", "add_cross_attention", "attn_pdrop",
                                   "embd_pdrop", "initializer_range", "layer_norm_epsilon",
                                   "model_type", "n_embd", "n_head", "n_inner", "n_layer",
                                   "n_positions", "resid_pdrop", "scale_attn_by_inverse_layer_idx",
                                   "scale_attn_weights", "tie_word_embeddings", "vocab_size"));
  EXPECT_THAT(
      ModelKeyList(ModelFamily::kLlama),
      testing::ElementsAre(
          "attention_bias", "attention_dropout", "attention_multiplier", "attn_logit_softcapping",
          "decoder_sparse_step", "embedding_multiplier", "expert_imbalance",
          "final_logit_softcapping", "first_k_dense_replace", "head_dim", "hidden_act",
          "hidden_size", "initializer_range", "intermediate_size", "kv_lora_rank", "layer_types",
          "logit_scale", "logits_scaling", "max_position_embeddings", "max_window_layers",
          "mlp_bias", "mlp_only_layers", "model_type", "moe_intermediate_size", "moe_layer_freq",
          "n_shared_experts", "no_rope_layer_interval", "no_rope_layers", "num_attention_heads",
          "num_experts_per_tok", "num_hidden_layers", "num_key_value_heads", "num_local_experts",
          "partial_rotary_factor", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
          "query_pre_attn_scalar", "residual_multiplier", "rms_norm_eps", "rope_local_base_freq",
          "rope_parameters", "rope_scaling", "rope_theta", "router_jitter_noise",
          "shared_expert_gate", "shared_expert_intermediate_size", "sliding_window",
          "sliding_window_pattern", "tie_word_embeddings", "use_layer_norm",
          "use_parallel_residual", "use_plain_mlp", "use_qk_norm", "use_sliding_window",
          "v_head_dim", "vocab_size"));
}

TEST(JobKeys, EachAliasMeansOneKey) {
  std::set<std::string> seen;
  for (const JobKey& key : JobKeys()) {
    for (absl::string_view alias : absl::StrSplit(key.aliases, ' ', absl::SkipEmpty())) {
      EXPECT_TRUE(seen.emplace(alias).second) << alias;
    }
  }
  EXPECT_GT(seen.size(), 90);
}

TEST(CanonicalKey, KnowsEveryAliasOfTheTable) {
  const std::pair<const char*, const char*> cases[] = {
      {"training.local_batch_size", "training.micro_batch_size"},
      {"train_micro_batch_size_per_gpu", "training.micro_batch_size"},
      {"micro-batch-size", "training.micro_batch_size"},
      {"tokens.sequence_length", "training.seq_len"},
      {"general.seed", "training.seed"},
      {"seed", "training.seed"},
      {"optimizer.params.lr", "optimizer.lr"},
      {"optimizer.type", "optimizer.name"},
      {"parallelism.tensor_parallel_degree", "parallelism.tp"},
      {"tensor-model-parallel-size", "parallelism.tp"},
      {"tensor_model_parallel_size", "parallelism.tp"},
      {"pipeline_model_parallel_size", "parallelism.pp"},
      {"context_parallel_size", "parallelism.cp"},
      {"expert_model_parallel_size", "parallelism.ep"},
      {"virtual_pipeline_model_parallel_size", "parallelism.virtual_stages"},
      {"training.sequence_length", "training.seq_len"},
      {"learning_rate", "optimizer.lr"},
      {"gradient_clip_val", "training.gradient_clipping"},
      {"optim", "optimizer.name"},
      {"zero_optimization.stage", "parallelism.zero_stage"},
      {"checkpoint.save_interval", "checkpoint.interval"},
      {"eval_iters", "validation.steps"},
      {"training.steps", "training.steps"},
      {"nothing.of.ours", "nothing.of.ours"},
  };
  for (const auto& [alias, key] : cases) EXPECT_EQ(CanonicalKey(alias), key) << alias;
}

TEST(JobKeys, NameTheWordsOfTheirEnumerations) {
  EXPECT_EQ(MeaningText(*FindJobKey("lr_scheduler.type")), "`constant`, `linear` or `cosine`");
  EXPECT_EQ(MeaningText(*FindJobKey("checkpoint.resume")), "`auto` or `none`");
  EXPECT_EQ(MeaningText(*FindJobKey("training.steps")), "optimizer updates of the whole run");
  for (const JobKey& key : JobKeys()) {
    EXPECT_EQ(MeaningText(key).find('{' + std::string("words")), std::string::npos) << key.key;
  }
}

// docs/job_yaml.md says of each key what the table says.
TEST(JobKeys, AreDocumentedAsTheyAre) {
  std::set<std::string> expected;
  for (const JobKey& key : JobKeys()) {
    if (key.key == "resolved") continue;
    const std::string text = DefaultText(key);
    expected.insert(absl::StrCat("| ", key.key, key.planned_only ? " *" : "", " | ",
                                 text.empty() ? "-" : text, " | ", MeaningText(key), " |"));
  }
  const std::vector<std::string> sections = JobSections();
  std::ifstream docs(SourcePath("/docs/job_yaml.md"));
  ASSERT_TRUE(docs.good());
  std::set<std::string> found;
  for (std::string line; std::getline(docs, line);) {
    const std::vector<std::string> cells = absl::StrSplit(line, " | ");
    if (cells.size() != 3 || line[0] != '|') continue;
    const std::string name = cells[0].substr(2);
    const bool is_key = std::find(sections.begin(), sections.end(),
                                  name.substr(0, name.find_first_of(". "))) != sections.end();
    // Hugging Face's own key, which model_keys.h has.
    if (!is_key || name == "model.model_type") continue;
    EXPECT_TRUE(found.insert(line).second) << "twice: " << line;
  }
  for (const std::string& line : expected) EXPECT_EQ(found.count(line), 1u) << "missing: " << line;
  for (const std::string& line : found) EXPECT_EQ(expected.count(line), 1u) << "wrong: " << line;
}

}  // namespace
}  // namespace weft
