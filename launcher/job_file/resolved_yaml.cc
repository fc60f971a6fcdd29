#include "launcher/job_file/resolved_yaml.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/job_file/cluster_yaml.h"
#include "launcher/job_file/job_keys.h"
#include "launcher/job_file/model_config.h"
#include "launcher/job_file/yaml_values.h"

namespace weft {
namespace {

template <typename T>
std::string OrAuto(const std::optional<T>& value) {
  return value ? absl::StrCat(*value) : "auto";
}

std::string OrNull(const std::optional<int64_t>& value) {
  return value ? absl::StrCat(*value) : "null";
}

std::string FlagText(bool value) {
  return value ? "true" : "false";
}

std::string FlagOrAuto(const std::optional<bool>& value) {
  return value ? FlagText(*value) : "auto";
}

// [a, b]
std::string ListText(const std::vector<std::string>& items) {
  return absl::StrCat("[", absl::StrJoin(items, ", "), "]");
}

std::string LayersText(const std::optional<std::vector<int64_t>>& layers) {
  if (!layers) return "auto";
  return layers->empty() ? "even" : absl::StrCat("[", absl::StrJoin(*layers, ", "), "]");
}

// [{path: "a"}, {path: "b"}], one file per line; null if there is none.
std::string SourcesText(const std::vector<DataSource>& sources) {
  if (sources.empty()) return "null";
  std::string text;
  for (const DataSource& source : sources) {
    absl::StrAppend(&text, "\n    - {path: ", YamlText(source.path), "}");
  }
  return text;
}

std::string ParamGroupsText(const std::vector<ParamGroup>& groups) {
  if (groups.empty()) return "null";
  std::string text;
  for (const ParamGroup& group : groups) {
    std::vector<std::string> params;
    for (const std::string& pattern : group.params) params.push_back(YamlText(pattern));
    absl::StrAppend(&text, "\n    - {params: ", ListText(params),
                    ", weight_decay: ", NumberText(group.weight_decay), "}");
  }
  return text;
}

using KeyValues = std::vector<std::pair<std::string, std::string>>;

KeyValues ModelValues(const ModelShape& model) {
  const auto key = [&](absl::string_view field) {
    return absl::StrCat("model.", ModelKeyOf(model.family, field));
  };
  KeyValues values = {{"model.model_type", absl::StrCat(ModelTypeOf(model))},
                      {key("vocab_size"), absl::StrCat(model.vocab_size)},
                      {key("max_positions"), absl::StrCat(model.max_positions)},
                      {key("hidden_size"), absl::StrCat(model.hidden_size)},
                      {key("num_blocks"), absl::StrCat(model.num_blocks)},
                      {key("num_heads"), absl::StrCat(model.num_heads)},
                      {key("ffn_size"), absl::StrCat(model.ffn_size)},
                      {key("norm_eps"), NumberText(model.norm_eps)},
                      {key("initializer_range"), NumberText(model.initializer_range)},
                      {key("tied_embeddings"), FlagText(model.tied_embeddings)}};
  if (model.family == ModelFamily::kLlama) {
    values.emplace_back(key("num_kv_heads"), absl::StrCat(model.num_kv_heads));
    values.emplace_back(key("head_dim"), absl::StrCat(model.head_dim));
    values.emplace_back(key("rope_theta"), NumberText(model.rope_theta));
    values.emplace_back("model.attention_bias", FlagText(model.attention_bias));
    values.emplace_back("model.rope_scaling", RopeScalingText(model.rope_scaling));
  }
  if (model.num_experts > 0) {
    values.emplace_back("model.num_local_experts", absl::StrCat(model.num_experts));
    values.emplace_back("model.num_experts_per_tok", absl::StrCat(model.experts_per_token));
  }
  return values;
}

// Adds the values that a layout is made of: parallelism, recompute, offload.
void AddLayoutValues(const JobSpec& job, KeyValues& values) {
  const ParallelismSpec& fixed = job.parallelism;
  const ActivationCheckpointingSpec& checkpointing = job.activation_checkpointing;
  const std::string whole_group = "1";  // DeepSpeed's word for it
  const auto name = [](absl::string_view text) { return std::string(text); };
  std::vector<std::string> per_stage;
  for (const Recompute recompute : checkpointing.per_stage) {
    per_stage.push_back(name(RecomputeName(recompute)));
  }
  const std::string mode = checkpointing.mode  ? name(RecomputeName(*checkpointing.mode))
                           : per_stage.empty() ? "auto"
                                               : "null";
  const KeyValues layout = {
      {"parallelism.dp", OrAuto(fixed.dp)},
      {"parallelism.tp", OrAuto(fixed.tp)},
      {"parallelism.pp", OrAuto(fixed.pp)},
      {"parallelism.cp", OrAuto(fixed.cp)},
      {"parallelism.ep", OrAuto(fixed.ep)},
      {"parallelism.sequence_parallel", FlagOrAuto(fixed.sequence_parallel)},
      {"parallelism.pp_schedule",
       fixed.pp_schedule ? name(ScheduleName(*fixed.pp_schedule)) : "auto"},
      {"parallelism.virtual_stages", OrAuto(fixed.virtual_stages)},
      {"parallelism.layers_per_stage", LayersText(fixed.layers_per_stage)},
      {"parallelism.zero_stage", OrAuto(fixed.zero_stage)},
      {"parallelism.zero_hpz_partition_size",
       fixed.zero_group == 0 ? whole_group : OrAuto(fixed.zero_group)},
      {"activation_checkpointing.mode", mode},
      {"activation_checkpointing.per_stage", per_stage.empty() ? "null" : ListText(per_stage)},
      {"offload.optimizer", !job.offload.optimizer   ? "auto"
                            : *job.offload.optimizer ? "cpu"
                                                     : "none"}};
  values.insert(values.end(), layout.begin(), layout.end());
}

void AddLoraValues(const LoraSpec& lora, KeyValues& values) {
  values.emplace_back("lora.r", absl::StrCat(lora.r));
  values.emplace_back("lora.lora_alpha", NumberText(lora.lora_alpha));
  values.emplace_back("lora.target_modules", ListText(lora.target_modules));
  const bool twice = lora.quantization == FrozenFormat::kNf4Double;
  const FrozenFormat format = twice ? FrozenFormat::kNf4 : lora.quantization;
  values.emplace_back("lora.quantization", absl::StrCat(FrozenFormatName(format)));
  values.emplace_back("lora.double_quantization", twice ? "true" : "false");
}

void AddFp16Values(const Fp16Spec& fp16, KeyValues& values) {
  values.emplace_back("fp16.loss_scale", NumberText(fp16.loss_scale));
  values.emplace_back("fp16.initial_scale_power", absl::StrCat(fp16.initial_scale_power));
  values.emplace_back("fp16.loss_scale_window", absl::StrCat(fp16.loss_scale_window));
  values.emplace_back("fp16.hysteresis", absl::StrCat(fp16.hysteresis));
  values.emplace_back("fp16.min_loss_scale", NumberText(fp16.min_loss_scale));
}

// Data, and the weights that training starts from.
void AddSourceValues(const JobSpec& job, KeyValues& values) {
  const DataSpec& data = job.data;
  values.emplace_back("model.init_from", job.init_from.empty() ? "null" : YamlText(job.init_from));
  const KeyValues of_data = {{"data.train", SourcesText(data.train)},
                             {"data.valid", SourcesText(data.valid)},
                             {"data.split", NumberText(data.split)},
                             {"data.format", absl::StrCat(TokenFormatName(data.format))},
                             {"data.bos_token_id", OrNull(data.bos_token_id)},
                             {"data.eos_token_id", OrNull(data.eos_token_id)},
                             {"data.reset_attention_mask", FlagText(data.reset_attention_mask)},
                             {"data.reset_position_ids", FlagText(data.reset_position_ids)}};
  values.insert(values.end(), of_data.begin(), of_data.end());
}

void AddOwnValues(const OptimizerSpec& optimizer, KeyValues& values) {
  values.emplace_back("optimizer.momentum", NumberText(optimizer.momentum));
  values.emplace_back("optimizer.dampening", NumberText(optimizer.dampening));
  values.emplace_back("optimizer.nesterov", FlagText(optimizer.nesterov));
  values.emplace_back("optimizer.decay_rate", NumberText(optimizer.decay_rate));
  values.emplace_back("optimizer.clip_threshold", NumberText(optimizer.clip_threshold));
  values.emplace_back("optimizer.scale_parameter", FlagText(optimizer.scale_parameter));
}

// Values of the keys that are used, in no particular order; `cluster.profile` is written apart.
KeyValues SpecValues(const JobSpec& job) {
  const TrainingSpec& training = job.training;
  const OptimizerSpec& optimizer = job.optimizer;
  std::vector<std::string> env;
  for (const auto& [name, value] : job.env) {
    env.push_back(absl::StrCat(YamlText(name), ": ", YamlText(value)));
  }
  KeyValues values = {
      {"job.name", YamlText(job.name)},
      {"job.output_dir", YamlText(job.output_dir)},
      {"training.seq_len", absl::StrCat(training.seq_len)},
      {"training.micro_batch_size", OrAuto(training.micro_batch_size)},
      {"training.global_batch_size", absl::StrCat(training.global_batch_size)},
      {"training.gradient_accumulation_steps", OrAuto(training.gradient_accumulation_steps)},
      {"training.steps", absl::StrCat(training.steps)},
      {"training.gradient_clipping", NumberText(training.gradient_clipping)},
      {"training.mixed_precision", absl::StrCat(PrecisionName(training.mixed_precision))},
      {"training.seed", absl::StrCat(training.seed)},
      {"training.max_consecutive_skipped_steps",
       absl::StrCat(training.max_consecutive_skipped_steps)},
      {"training.head_chunk_tokens", OrAuto(training.head_chunk_tokens)},
      {"optimizer.name", absl::StrCat(OptimizerName(optimizer.name))},
      {"optimizer.lr", NumberText(optimizer.lr)},
      {"optimizer.betas",
       absl::StrCat("[", NumberText(optimizer.beta1), ", ", NumberText(optimizer.beta2), "]")},
      {"optimizer.eps", NumberText(optimizer.eps)},
      {"optimizer.weight_decay", NumberText(optimizer.weight_decay)},
      {"optimizer.param_groups", ParamGroupsText(optimizer.param_groups)},
      {"lr_scheduler.type", absl::StrCat(LrScheduleName(job.lr_scheduler.type))},
      {"lr_scheduler.warmup_steps", absl::StrCat(job.lr_scheduler.warmup_steps)},
      {"lr_scheduler.decay_steps", absl::StrCat(job.lr_scheduler.decay_steps)},
      {"lr_scheduler.min_lr", NumberText(job.lr_scheduler.min_lr)},
      {"checkpoint.folder", YamlText(job.checkpoint.folder)},
      {"checkpoint.interval", absl::StrCat(job.checkpoint.interval)},
      {"checkpoint.keep_latest_k", absl::StrCat(job.checkpoint.keep_latest_k)},
      {"checkpoint.resume", job.checkpoint.resume == ResumeMode::kNone ? "none" : "auto"},
      {"fault_tolerance.max_restarts", absl::StrCat(job.fault_tolerance.max_restarts)},
      {"fault_tolerance.heartbeat_timeout_seconds",
       NumberText(job.fault_tolerance.heartbeat_timeout_seconds)},
      {"comm.init_timeout_seconds", NumberText(job.comm.init_timeout_seconds)},
      {"comm.train_timeout_seconds", NumberText(job.comm.train_timeout_seconds)},
      {"validation.interval", absl::StrCat(job.validation.interval)},
      {"validation.steps", absl::StrCat(job.validation.steps)},
      {"metrics.log_freq", absl::StrCat(job.log_freq)},
      {"profiler.enable", job.profiler_freq > 0 ? "true" : "false"},
      {"profiler.freq", absl::StrCat(job.profiler_freq > 0 ? job.profiler_freq : 100)},
      {"cluster.nodes", absl::StrCat(job.cluster.nodes)},
      {absl::StrCat(SlotsKey(job.cluster.device.backend)),
       absl::StrCat(job.cluster.slots_per_node)},
      {"cluster.threads_per_worker", absl::StrCat(job.threads_per_worker)},
      {"cluster.env", absl::StrCat("{", absl::StrJoin(env, ", "), "}")},
      {"deterministic", FlagText(job.deterministic)},
  };
  AddOwnValues(optimizer, values);
  AddFp16Values(job.fp16, values);
  AddSourceValues(job, values);
  AddLayoutValues(job, values);
  if (job.lora) AddLoraValues(*job.lora, values);
  return values;
}

std::string Section(absl::string_view key) {
  return absl::StrCat(key.substr(0, key.find('.')));
}

// Returns the value of a key that is not used: the one value that weft carries out, or "null".
std::string UnusedValue(const JobKey& key) {
  const std::string first(key.accepted.substr(0, key.accepted.find(' ')));
  return first.empty() ? "null" : first;
}

std::string ValueOf(const KeyValues& values, absl::string_view key) {
  for (const auto& [name, value] : values) {
    if (name == key) return value;
  }
  return "";
}

void AppendKey(const JobSpec& job, const KeyValues& values, const JobKey& key, std::string* text) {
  const std::string name(key.key.substr(key.key.find('.') + 1));
  if (key.key == "cluster.profile") {
    absl::StrAppend(text, "  profile:\n", ClusterText(job.cluster, 4));
    return;
  }
  const std::string value = ValueOf(values, key.key);
  const std::string written = value.empty() ? UnusedValue(key) : value;
  absl::StrAppend(text, "  ", name, ":", written[0] == '\n' ? "" : " ", written, "\n");
}

std::string RecordText(const RunRecord& record) {
  std::string text = absl::StrCat(
      "resolved:  # weft's record of the run; nothing here changes how it computes\n",
      "  format_version: 1\n", "  run_id: ", YamlText(record.run_id), "\n",
      "  generation: ", record.generation, "\n", "  weft_version: ", YamlText(record.weft_version),
      "\n", "  planned_bytes: ", record.planned_bytes, "\n",
      "  predicted_step_s: ", NumberText(record.predicted_step_s), "\n", "  data:\n");
  for (const std::string& file : record.data) {
    absl::StrAppend(&text, "    - ", YamlText(file), "\n");
  }
  if (!record.accepted.empty()) text += "  accepted:\n";
  for (const std::string& change : record.accepted) {
    absl::StrAppend(&text, "    - ", YamlText(change), "\n");
  }
  return text;
}

// A value as it stands in a sentence.
std::string OneLine(absl::string_view value) {
  std::vector<absl::string_view> lines;
  for (absl::string_view line : absl::StrSplit(value, '\n', absl::SkipWhitespace())) {
    lines.push_back(absl::StripAsciiWhitespace(line));
  }
  return absl::StrJoin(lines, " ");
}

constexpr std::array<absl::string_view, 9> kMathematics = {"model.",
                                                           "data.",
                                                           "training.seq_len",
                                                           "training.global_batch_size",
                                                           "training.gradient_clipping",
                                                           "training.mixed_precision",
                                                           "lora.",
                                                           "optimizer.",
                                                           "lr_scheduler."};

bool IsMathematics(absl::string_view key) {
  if (key == "training.seed") return true;
  return std::any_of(kMathematics.begin(), kMathematics.end(),
                     [&](absl::string_view prefix) { return absl::StartsWith(key, prefix); });
}

// A person's word may change these keys of mathematics, and no others.
constexpr std::array<absl::string_view, 10> kAcceptable = {"optimizer.lr",
                                                           "optimizer.betas",
                                                           "optimizer.eps",
                                                           "optimizer.weight_decay",
                                                           "optimizer.param_groups",
                                                           "lr_scheduler.type",
                                                           "lr_scheduler.warmup_steps",
                                                           "lr_scheduler.decay_steps",
                                                           "lr_scheduler.min_lr",
                                                           "training.gradient_clipping"};

// Holds paths, which may move while what lies there stays the same: others compare that.
bool IsPath(absl::string_view key) {
  return key == "data.train" || key == "data.valid" || key == "model.init_from";
}

// The profile without the numbers of nodes and slots, which have keys of their own.
std::string ProfileText(Cluster cluster) {
  cluster.nodes = 1;
  cluster.slots_per_node = 1;
  return ClusterText(cluster, 0);
}

// Names, if they differ; else the first line that does: the same profile, described anew.
std::pair<std::string, std::string> ProfileChange(const Cluster& before, const Cluster& after) {
  if (before.name != after.name) return {before.name, after.name};
  const std::string old_text = ProfileText(before), new_text = ProfileText(after);
  const std::vector<absl::string_view> old_lines = absl::StrSplit(old_text, '\n');
  const std::vector<absl::string_view> new_lines = absl::StrSplit(new_text, '\n');
  size_t line = 0;
  while (line < old_lines.size() && line < new_lines.size() && old_lines[line] == new_lines[line]) {
    ++line;
  }
  const auto shown = [&](absl::Span<const absl::string_view> lines) {
    return absl::StrCat(before.name, " with ",
                        line < lines.size() ? absl::StripAsciiWhitespace(lines[line]) : "no more");
  };
  return {shown(old_lines), shown(new_lines)};
}

KeyValues AllValues(const JobSpec& job) {
  KeyValues values = ModelValues(job.model);
  const KeyValues spec = SpecValues(job);
  values.insert(values.end(), spec.begin(), spec.end());
  values.emplace_back("cluster.profile", ProfileText(job.cluster));
  return values;
}

}  // namespace

JobSpec Resolve(JobSpec job, const Layout& layout) {
  ParallelismSpec& fixed = job.parallelism;
  fixed.dp = layout.dp;
  fixed.tp = layout.tp;
  fixed.pp = layout.pp;
  fixed.cp = layout.cp;
  fixed.ep = layout.ep;
  fixed.zero_stage = layout.zero_stage;
  fixed.zero_group = layout.zero_group;
  fixed.sequence_parallel = layout.sequence_parallel;
  fixed.pp_schedule = layout.schedule;
  fixed.virtual_stages = layout.virtual_stages;
  fixed.layers_per_stage = layout.stage_blocks;
  job.activation_checkpointing = {.mode = layout.recompute, .per_stage = layout.stage_recompute};
  if (!layout.stage_recompute.empty()) job.activation_checkpointing.mode.reset();
  job.offload.optimizer = layout.offload_optimizer;
  const int64_t tokens = layout.micro_batch_size * job.training.seq_len / layout.cp;
  job.training.head_chunk_tokens =
      layout.head_chunks == 1 ? 0 : (tokens + layout.head_chunks - 1) / layout.head_chunks;
  job.training.micro_batch_size = layout.micro_batch_size;
  job.training.gradient_accumulation_steps = layout.num_microbatches;
  if (job.lr_scheduler.type == LrSchedule::kConstant) {
    job.lr_scheduler.decay_steps = 0;  // it has none
  } else if (job.lr_scheduler.decay_steps == 0) {
    job.lr_scheduler.decay_steps = job.training.steps;
  }
  return job;
}

std::string ResolvedText(const JobSpec& job, const RunRecord& record) {
  const KeyValues values = SpecValues(job);
  std::string text = absl::StrCat("# Written by weft: the job as it runs. `weft run` of this file ",
                                  "repeats it without a search.\n");
  std::string section;
  for (const JobKey& key : JobKeys()) {
    if (key.key == "resolved" || key.key == "training.tokens") continue;
    if (key.key == "deterministic") {
      absl::StrAppend(&text, "deterministic: ", ValueOf(values, key.key), "\n");
      continue;
    }
    // A section for which nothing is built, or a key of the other backend.
    const std::string other =
        job.cluster.device.backend == BackendKind::kCpu ? "cluster.gpus_per_node" : "cluster.slots";
    if (key.key == other) continue;
    const bool absent =
        (Section(key.key) == "lora" && !job.lora) || Section(key.key) == "tokenizer";
    if (Section(key.key) != section) {
      section = Section(key.key);
      absl::StrAppend(&text, section, absent ? ": null\n" : ":\n");
      if (section == "model") {
        for (const auto& [name, value] : ModelValues(job.model)) {
          absl::StrAppend(&text, "  ", name.substr(name.find('.') + 1), ": ", value, "\n");
        }
      }
    }
    if (!absent) AppendKey(job, values, key, &text);
  }
  return text + RecordText(record);
}

RunRecord ReadRecord(const YamlNode& tree) {
  RunRecord record;
  Issues none;
  const YamlValues values(tree, "", &none);
  values.Read("resolved.run_id", &record.run_id);
  values.Read("resolved.generation", &record.generation);
  values.Read("resolved.weft_version", &record.weft_version);
  values.Read("resolved.planned_bytes", &record.planned_bytes);
  values.Read("resolved.predicted_step_s", &record.predicted_step_s);
  if (const YamlNode* data = values.Node("resolved.data")) {
    for (const YamlNode& file : data->items) record.data.push_back(file.scalar);
  }
  if (const YamlNode* accepted = values.Node("resolved.accepted")) {
    for (const YamlNode& change : accepted->items) record.accepted.push_back(change.scalar);
  }
  return record;
}

std::optional<Layout> FixedLayout(const JobSpec& job) {
  const ParallelismSpec& fixed = job.parallelism;
  const ActivationCheckpointingSpec& checkpointing = job.activation_checkpointing;
  const bool recompute_fixed = checkpointing.mode || !checkpointing.per_stage.empty();
  if (!fixed.dp || !fixed.tp || !fixed.pp || !fixed.cp || !fixed.ep || !fixed.zero_stage ||
      !fixed.zero_group || !fixed.sequence_parallel || !fixed.pp_schedule ||
      !fixed.virtual_stages || !fixed.layers_per_stage || !recompute_fixed ||
      !job.offload.optimizer || !job.training.head_chunk_tokens || !job.training.micro_batch_size ||
      !job.training.gradient_accumulation_steps) {
    return std::nullopt;
  }
  Layout layout;
  layout.dp = *fixed.dp;
  layout.tp = *fixed.tp;
  layout.pp = *fixed.pp;
  layout.cp = *fixed.cp;
  layout.ep = *fixed.ep;
  layout.zero_stage = *fixed.zero_stage;
  layout.zero_group = *fixed.zero_group;
  layout.sequence_parallel = *fixed.sequence_parallel;
  layout.schedule = *fixed.pp_schedule;
  layout.virtual_stages = *fixed.virtual_stages;
  layout.stage_blocks = *fixed.layers_per_stage;
  layout.recompute = checkpointing.mode.value_or(Recompute::kNone);
  layout.stage_recompute = checkpointing.per_stage;
  layout.offload_optimizer = *job.offload.optimizer;
  layout.micro_batch_size = *job.training.micro_batch_size;
  layout.num_microbatches = *job.training.gradient_accumulation_steps;
  layout.head_chunks = HeadChunks(*job.training.head_chunk_tokens, job.batch(), layout);
  return layout;
}

std::vector<SpecChange> Changes(const JobSpec& before, const JobSpec& after) {
  const KeyValues old_values = AllValues(before);
  const KeyValues new_values = AllValues(after);
  std::vector<SpecChange> changes;
  for (const auto& [key, value] : new_values) {
    const std::string old_value = ValueOf(old_values, key);
    if (old_value == value) continue;
    SpecChange change{key, OneLine(old_value), OneLine(value), IsMathematics(key)};
    if (key == "cluster.profile") {
      std::tie(change.before, change.after) = ProfileChange(before.cluster, after.cluster);
    }
    changes.push_back(std::move(change));
  }
  return changes;
}

bool IsAcceptable(absl::string_view key) {
  return std::find(kAcceptable.begin(), kAcceptable.end(), key) != kAcceptable.end();
}

std::string AcceptableKeys() {
  return absl::StrJoin(kAcceptable, ", ");
}

std::map<std::string, std::string> Mathematics(const JobSpec& job) {
  std::map<std::string, std::string> stated;
  for (const auto& [key, value] : AllValues(job)) {
    if (IsMathematics(key) && !IsPath(key)) stated[key] = OneLine(value);
  }
  return stated;
}

std::vector<SpecChange> ChangedMathematics(const std::map<std::string, std::string>& before,
                                           const JobSpec& job) {
  std::vector<SpecChange> changes;
  const std::map<std::string, std::string> now = Mathematics(job);
  for (const auto& [key, value] : before) {
    const auto found = now.find(key);
    const std::string is = found == now.end() ? "not there" : found->second;
    if (is != value) changes.push_back({key, value, is, true});
  }
  return changes;
}

}  // namespace weft
