#include "launcher/job_file/job_keys.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/job_file/yaml_values.h"
#include "plan/spec/nearest.h"

namespace weft {
namespace {

using enum KeyState;

constexpr JobKey kJobKeys[] = {
    {"job.name", ""},
    {"job.output_dir", ""},
    {"model.path", ""},
    {"model.init_from",
     "initial_load_path ExistingCheckpointInit.path pretrained_model_name_or_path "
     "model_name_or_path"},
    {"tokenizer.path", "hf_assets_path tokenizer_name_or_path vocab_file tokenizer_name", kNotYet},
    {"data.train", "data_stages train_data_paths data-path"},
    {"data.valid", ""},
    {"data.split", ""},
    {"data.format", ""},
    {"data.bos_token_id", ""},
    {"data.eos_token_id", "eod_token_id eod_id"},
    {"data.reset_attention_mask", "reset-attention-mask"},
    {"data.reset_position_ids", "reset-position-ids"},
    {"data.num_workers", "num-workers", kNotYet, "0"},
    {"training.seq_len",
     "tokens.sequence_length sequence_length seq_length max_seq_len max_seq_length seq-length "
     "block_size"},
    {"training.micro_batch_size",
     "local_batch_size tokens.micro_batch_size train_micro_batch_size_per_gpu "
     "device_train_microbatch_size per_device_train_batch_size micro-batch-size"},
    {"training.global_batch_size", "train_batch_size global_train_batch_size global-batch-size"},
    {"training.gradient_accumulation_steps", "tokens.batch_accumulation_per_replica"},
    {"training.steps", "tokens.train_steps train_iters max_steps train-iters max_iters"},
    {"training.tokens", ""},
    {"training.gradient_clipping",
     "max_norm optimizer.clip_grad max_grad_norm clip-grad gradient_clip_val"},
    {"training.mixed_precision", "mixed_precision_param"},
    {"training.seed", "debug.seed general.seed"},
    {"training.max_consecutive_skipped_steps", ""},
    {"training.head_chunk_tokens", ""},
    {"fp16.loss_scale", ""},
    {"fp16.initial_scale_power", ""},
    {"fp16.loss_scale_window", ""},
    {"fp16.hysteresis", ""},
    {"fp16.min_loss_scale", ""},
    {"optimizer.name", "type optim"},
    {"optimizer.lr", "optimizer.params.lr learning_rate"},
    {"optimizer.betas", "optimizer.params.betas"},
    {"optimizer.eps", "optimizer.params.eps"},
    {"optimizer.weight_decay", "optimizer.params.weight_decay"},
    {"optimizer.param_groups", ""},
    {"optimizer.momentum", "optimizer.params.momentum"},
    {"optimizer.dampening", ""},
    {"optimizer.nesterov", ""},
    {"optimizer.decay_rate", "beta2_decay"},
    {"optimizer.clip_threshold", ""},
    {"optimizer.scale_parameter", ""},
    {"optimizer.relative_step", "", kNotYet, "false"},
    {"optimizer.warmup_init", "", kNotYet, "false"},
    {"lr_scheduler.type", "lr_scheduler_type lr_decay_style decay_type"},
    {"lr_scheduler.warmup_steps", "lr_warmup_steps warmup_iters"},
    {"lr_scheduler.decay_steps", ""},
    {"lr_scheduler.min_lr", "min_decay_lr"},
    {"parallelism.dp", "data_parallel_shard_degree dp_shard_size"},
    {"parallelism.dp_replicate", "data_parallel_replicate_degree dp_replicate_size", kNotYet, "1"},
    {"parallelism.tp",
     "tensor_parallel_degree model_parallel_size tp_size autotp_size tensor-model-parallel-size "
     "tensor_model_parallel_size"},
    {"parallelism.pp",
     "pipeline_parallel_degree pipe_parallel_size pp_size pipeline-model-parallel-size "
     "pipeline_model_parallel_size"},
    {"parallelism.cp",
     "context_parallel_degree context_parallel_size cp_size sp_size context-parallel-size"},
    {"parallelism.ep",
     "expert_parallel_degree expert_parallel_size moe_world_size expert-model-parallel-size "
     "expert_model_parallel_size"},
    {"parallelism.sequence_parallel", "enable_sequence_parallel sequence-parallel"},
    {"parallelism.pp_schedule", "pipeline_parallel_schedule pp_engine"},
    {"parallelism.virtual_stages", "virtual_pipeline_model_parallel_size"},
    {"parallelism.layers_per_stage", ""},
    {"parallelism.zero_stage", "optimizer.zero_stage zero_optimization.stage"},
    {"parallelism.zero_hpz_partition_size", ""},
    {"activation_checkpointing.mode", "activation_checkpoint.mode"},
    {"activation_checkpointing.per_stage", ""},
    {"offload.optimizer", "offload_optimizer.device"},
    {"offload.params", "offload_param.device", kNotYet, "none"},
    {"checkpoint.folder", "checkpoints_path save save_folder"},
    {"checkpoint.interval",
     "checkpoint_interval checkpoint_factor save_interval save_steps "
     "save-interval"},
    {"checkpoint.keep_latest_k",
     "keep_last_n_checkpoints save_num_checkpoints_to_keep "
     "save_total_limit"},
    {"checkpoint.resume", "resume_checkpoint_path autoresume resume_from_checkpoint"},
    {"checkpoint.async", "async_save", kNotYet, "false"},
    {"checkpoint.export_hf", "", kNotYet, "never"},
    {"checkpoint.export_dtype", "", kNotYet},
    {"fault_tolerance.max_restarts", ""},
    {"fault_tolerance.heartbeat_timeout_seconds", ""},
    {"fault_tolerance.on_preempt", "", kNotYet, "save"},
    {"fault_tolerance.skip_loss_zscore", "", kNotYet, "0"},
    {"comm.init_timeout_seconds", ""},
    {"comm.train_timeout_seconds", "dist_timeout ddp_timeout"},
    {"validation.interval", "validation.freq val_check_interval eval_interval eval_steps"},
    {"validation.steps", "eval_iters"},
    {"metrics.log_freq",
     "iteration_step_info_interval log_interval console_log_interval "
     "logging_steps steps_per_print"},
    {"metrics.tensorboard", "", kNotYet, "false"},
    {"metrics.wandb", "", kNotYet, "false"},
    {"profiler.enable", "profiling.enable_profiling"},
    {"profiler.freq", "profiling.profile_freq"},
    {"profiler.memory_snapshot", "", kNotYet, "false"},
    {"lora.r", "rank"},
    {"lora.lora_alpha", "alpha"},
    {"lora.lora_dropout", "", kNotYet, "0 0.0"},
    {"lora.target_modules", ""},
    {"lora.quantization", ""},
    {"lora.double_quantization", "bnb_4bit_use_double_quant"},
    {"cluster.scheduler", "", kNotYet, "none"},
    {"cluster.profile", "", kFree},
    {"cluster.nodes", "num_nodes"},
    {"cluster.slots", ""},
    {"cluster.gpus_per_node", "num_gpus"},
    {"cluster.threads_per_worker", ""},
    {"cluster.partition", "", kNotYet},
    {"cluster.account", "", kNotYet},
    {"cluster.qos", "", kNotYet},
    {"cluster.time", "", kNotYet},
    {"cluster.env", "", kFree},
    {"deterministic", "debug.deterministic"},
    {"resolved", "", kFree},  // weft's own record in a resolved.yaml; reading it changes nothing
};

struct Hint {
  absl::string_view key;  // last part of the dotted key
  absl::string_view message;
  absl::string_view share_of = "";  // the value converts: it is a share of this key's
};
// Keys of other systems that mean something else, or have no single counterpart.
constexpr Hint kHints[] = {
    {"warmup", "is a share of the steps elsewhere; write lr_scheduler.warmup_steps",
     "training.steps"},
    {"warmup_ratio", "is a share of the steps; write lr_scheduler.warmup_steps", "training.steps"},
    {"t_warmup", "holds a number and a unit; write lr_scheduler.warmup_steps in steps"},
    {"min_lr_factor", "is a share of lr elsewhere; write lr_scheduler.min_lr", "optimizer.lr"},
    {"alpha_f", "is a share of lr elsewhere; write lr_scheduler.min_lr", "optimizer.lr"},
    {"decay_ratio", "is a share of the steps elsewhere; write lr_scheduler.decay_steps",
     "training.steps"},
    {"max_duration", "holds a number and a unit; write training.steps or training.tokens"},
    {"num_train_epochs", "counts passes over the data; write training.steps or training.tokens"},
    {"checkpoint_activations", "is a flag; write activation_checkpointing.mode: full or none"},
    {"recompute_layer", "is a flag; write activation_checkpointing.mode: full or none"},
    {"gradient_checkpointing", "is a flag; write activation_checkpointing.mode: full or none"},
    {"recompute-granularity",
     "has other values; write activation_checkpointing.mode: none, selective or full"},
    {"precision", "has other values; write training.mixed_precision: bf16, fp16, fp8 or fp32"},
    {"dtype", "has other values; write training.mixed_precision: bf16, fp16, fp8 or fp32"},
    {"bf16", "is a section of flags elsewhere; write training.mixed_precision: bf16"},
    {"sharding_strategy",
     "has other values; write parallelism.zero_stage: 3 for FULL_SHARD, 2 for SHARD_GRAD_OP"},
    {"fsdp_reshard_after_forward",
     "has other values; write parallelism.zero_stage: 3 for always, 2 for never"},
    {"tp_mode", "has other values; write parallelism.sequence_parallel: true for REDUCE_SCATTER"},
    {"load_step", "is a step elsewhere; write checkpoint.resume: auto or none"},
    {"async_mode", "has other values; write checkpoint.async: false"},
    {"last_save_in_hf", "is a flag; write checkpoint.export_hf: never"},
    {"enable_cpu_offload", "is a flag; write offload.optimizer: cpu or none"},
    {"cpu_offload", "is a flag; write offload.optimizer: cpu or none"},
    {"checkpoint_in_cpu", "is a flag; write offload.optimizer: none"},
    {"num-layers-per-virtual-pipeline-stage",
     "counts layers; write parallelism.virtual_stages, the chunks of a stage"},
    {"hostfile", "is a file of launcher flags; write cluster.nodes and cluster.slots"},
};

absl::string_view LastPart(absl::string_view dotted) {
  const size_t dot = dotted.rfind('.');
  return dot == absl::string_view::npos ? dotted : dotted.substr(dot + 1);
}

absl::string_view FirstPart(absl::string_view dotted) {
  return dotted.substr(0, dotted.find('.'));
}

const JobKey* FindKey(absl::string_view dotted) {
  for (const JobKey& key : kJobKeys) {
    if (key.key == dotted) return &key;
  }
  return nullptr;
}

std::map<std::string, std::string> MakeAliasTable() {
  std::map<std::string, std::string> table;
  for (const JobKey& key : kJobKeys) {
    for (absl::string_view alias : absl::StrSplit(key.aliases, ' ', absl::SkipEmpty())) {
      table.emplace(alias, key.key);
      if (absl::StrContains(alias, '.')) continue;
      table.emplace(absl::StrCat(FirstPart(key.key), ".", alias), key.key);
    }
    // Flat files (gpt-neox, Hugging Face arguments) hold the last part at the top.
    if (absl::StrContains(key.key, '.') && FirstPart(key.key) == "training") {
      table.emplace(LastPart(key.key), key.key);
    }
  }
  for (const char* too_vague : {"type", "rank", "alpha"}) table.erase(too_vague);
  return table;
}

// Dotted name anywhere in a file -> weft's key.
const std::map<std::string, std::string>& AliasTable() {
  static const auto* const table = new std::map<std::string, std::string>(MakeAliasTable());
  return *table;
}

bool IsSection(absl::string_view name) {
  const std::vector<std::string> sections = JobSections();
  return std::find(sections.begin(), sections.end(), name) != sections.end();
}

// Moves `node` to the dotted key `to`, making its section if there is none.
void PutAt(YamlNode* root, absl::string_view to, YamlNode node, Issues* issues,
           const std::string& from) {
  const std::vector<std::string> parts = absl::StrSplit(to, '.');
  YamlNode* map = root;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    YamlNode* next = map->Find(parts[i]);
    if (next == nullptr) {
      map->entries.push_back({parts[i], YamlNode::Map(node.place)});
      next = &map->entries.back().node;
    }
    if (next->is_null()) next->kind = YamlNode::Kind::kMap;
    map = next;
  }
  if (const YamlNode* taken = map->Find(parts.back())) {
    issues->Add(node.place, from,
                absl::StrCat("is another name of ", to, ", which stands on line ",
                             taken->place.line, "; keep one of the two"));
    return;
  }
  map->entries.push_back({parts.back(), std::move(node)});
}

// Takes every alias below `map` out of the tree, into `found` as (dotted name, node).
void TakeAliases(const std::map<std::string, std::string>& table, const std::string& path,
                 YamlNode* map, std::vector<std::pair<std::string, YamlNode>>* found) {
  std::set<std::string> taken;
  for (auto& [name, node] : map->entries) {
    const std::string dotted = path.empty() ? name : absl::StrCat(path, ".", name);
    if (table.count(dotted) > 0 && FindKey(dotted) == nullptr && !node.is_map()) {
      found->emplace_back(dotted, std::move(node));
      taken.insert(name);
    } else if (node.is_map() && FindKey(dotted) == nullptr && dotted != "model") {
      const bool had_entries = !node.entries.empty();
      TakeAliases(table, dotted, &node, found);
      // A foreign section that held nothing but aliases goes with them.
      if (had_entries && node.entries.empty() && !IsSection(dotted)) {
        taken.insert(name);
      }
    }
  }
  for (const std::string& name : taken) map->Remove(name);
}

// The hint with the value that keeps the meaning, where the file says enough to compute it.
std::string HintText(const Hint& hint, const YamlNode& root, const YamlNode& node) {
  if (hint.share_of.empty()) return absl::StrCat(hint.message);
  const YamlNode* whole = root.FindPath(hint.share_of);
  const auto share = ParseNumber(node.scalar);
  const auto total = whole != nullptr ? ParseNumber(whole->scalar) : std::nullopt;
  if (!share || !total) return absl::StrCat(hint.message, ": the share x ", hint.share_of);
  const double value = *share * *total;
  return absl::StrCat(
      hint.message, ": ",
      hint.share_of == "training.steps" ? absl::StrCat(std::llround(value)) : absl::StrCat(value));
}

void CheckUnknown(const YamlNode& root, const YamlNode& node, const std::string& name,
                  const std::string& path, Issues* issues) {
  const std::string dotted = path.empty() ? name : absl::StrCat(path, ".", name);
  for (const Hint& hint : kHints) {
    if (hint.key == name) {
      issues->Add(node.place, dotted, HintText(hint, root, node));
      return;
    }
  }
  std::vector<std::string> siblings = path.empty() ? JobSections() : std::vector<std::string>();
  for (const JobKey& key : kJobKeys) {
    if (!path.empty() && FirstPart(key.key) == path && key.key != path) {
      siblings.emplace_back(LastPart(key.key));
    }
    if (LastPart(key.key) == name) {
      issues->Add(node.place, dotted, absl::StrCat("unknown key; did you mean ", key.key, "?"));
      return;
    }
  }
  const std::map<std::string, std::string>& table = AliasTable();
  if (const auto alias = table.find(name); alias != table.end()) {
    issues->Add(node.place, dotted, absl::StrCat("unknown key; did you mean ", alias->second, "?"));
    return;
  }
  const std::optional<std::string> nearest = Nearest(name, siblings);
  issues->Add(node.place, dotted,
              nearest ? absl::StrCat("unknown key; did you mean ", *nearest, "?")
                      : absl::StrCat("unknown key; ", path.empty() ? "sections are " : "known are ",
                                     absl::StrJoin(siblings, ", ")));
}

void CheckMap(const YamlNode& root, const YamlNode& map, const std::string& path, Issues* issues) {
  for (const auto& [name, node] : map.entries) {
    const std::string dotted = path.empty() ? name : absl::StrCat(path, ".", name);
    if (dotted == "model" || FindKey(dotted) != nullptr) continue;  // model: see model_config
    if (!path.empty() || !IsSection(name)) {
      CheckUnknown(root, node, name, path, issues);
    } else if (node.is_map()) {
      CheckMap(root, node, dotted, issues);
    } else if (!node.is_null()) {
      issues->Add(node.place, dotted,
                  absl::StrCat("found ", node.Found(), "; a section is a map of keys"));
    }
  }
}

}  // namespace

absl::Span<const JobKey> JobKeys() {
  return kJobKeys;
}

std::vector<std::string> JobSections() {
  std::vector<std::string> sections;
  for (const JobKey& key : kJobKeys) {
    const std::string section(FirstPart(key.key));
    if (sections.empty() || sections.back() != section) sections.push_back(section);
  }
  return sections;
}

void RenameAliases(YamlNode* root, Issues* issues, std::vector<std::string>* notes) {
  const std::map<std::string, std::string>& table = AliasTable();
  std::vector<std::pair<std::string, YamlNode>> found;
  TakeAliases(table, "", root, &found);
  for (auto& [dotted, node] : found) {
    const std::string& to = table.at(dotted);
    notes->push_back(absl::StrCat(node.place.Text(), ": ", dotted, " is read as ", to));
    PutAt(root, to, std::move(node), issues, dotted);
  }
}

std::string CanonicalKey(absl::string_view dotted) {
  if (FindKey(dotted) != nullptr) return absl::StrCat(dotted);
  const std::map<std::string, std::string>& table = AliasTable();
  const auto found = table.find(absl::StrCat(dotted));
  return found == table.end() ? absl::StrCat(dotted) : found->second;
}

void CheckKnownKeys(const YamlNode& root, Issues* issues) {
  CheckMap(root, root, "", issues);
}

void CheckBuiltKeys(const YamlNode& root, Issues* issues) {
  for (const JobKey& key : kJobKeys) {
    if (key.state != kNotYet) continue;
    const YamlNode* node = root.FindPath(key.key);
    if (node == nullptr || node->is_null()) continue;
    const std::vector<std::string> accepted = absl::StrSplit(key.accepted, ' ', absl::SkipEmpty());
    if (node->is_scalar() &&
        std::find(accepted.begin(), accepted.end(), node->scalar) != accepted.end()) {
      continue;
    }
    const std::string found = node->is_scalar() ? absl::StrCat(node->scalar, " ") : "";
    issues->Add(
        node->place, key.key,
        absl::StrCat(found, "is not supported yet; ",
                     accepted.empty() ? "leave the key out"
                                      : absl::StrCat("use ", absl::StrJoin(accepted, " or "))));
  }
}

}  // namespace weft
