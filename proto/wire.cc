#include "proto/wire.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "plan/errors.h"

namespace weft {
namespace {

absl::Status Missing(absl::string_view field) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": is missing from the message; the sender is not this version of weft"));
}

// Puts the field's path before a parse error.
template <typename T>
absl::StatusOr<T> Named(absl::string_view field, absl::StatusOr<T> parsed) {
  if (parsed.ok()) return parsed;
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", parsed.status().message()));
}

absl::string_view ResumeText(ResumeMode mode) {
  return mode == ResumeMode::kAuto ? "auto" : "none";
}

absl::StatusOr<ResumeMode> ParseResume(absl::string_view name) {
  if (name == "auto") return ResumeMode::kAuto;
  if (name == "none") return ResumeMode::kNone;
  return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" is unknown; use auto or none"));
}

void Fill(const ModelShape& model, proto::ModelShape& message) {
  message.set_family(absl::StrCat(FamilyName(model.family)));
  message.set_vocab_size(model.vocab_size);
  message.set_hidden_size(model.hidden_size);
  message.set_num_blocks(model.num_blocks);
  message.set_num_heads(model.num_heads);
  message.set_num_kv_heads(model.num_kv_heads);
  message.set_head_dim(model.head_dim);
  message.set_ffn_size(model.ffn_size);
  message.set_max_positions(model.max_positions);
  message.set_norm_eps(model.norm_eps);
  message.set_initializer_range(model.initializer_range);
  message.set_rope_theta(model.rope_theta);
  message.set_tied_embeddings(model.tied_embeddings);
  message.set_num_experts(model.num_experts);
  message.set_experts_per_token(model.experts_per_token);
  message.set_expert_ffn_size(model.expert_ffn_size);
  proto::RopeScaling& scaling = *message.mutable_rope_scaling();
  scaling.set_factor(model.rope_scaling.factor);
  scaling.set_low_freq_factor(model.rope_scaling.low_freq_factor);
  scaling.set_high_freq_factor(model.rope_scaling.high_freq_factor);
  scaling.set_original_max_positions(model.rope_scaling.original_max_positions);
  message.set_attention_bias(model.attention_bias);
}

absl::Status Read(const proto::ModelShape& message, ModelShape& model) {
  ASSIGN_OR_RETURN(model.family, Named("model.family", ParseFamily(message.family())));
  model.vocab_size = message.vocab_size();
  model.hidden_size = message.hidden_size();
  model.num_blocks = message.num_blocks();
  model.num_heads = message.num_heads();
  model.num_kv_heads = message.num_kv_heads();
  model.head_dim = message.head_dim();
  model.ffn_size = message.ffn_size();
  model.max_positions = message.max_positions();
  model.norm_eps = message.norm_eps();
  model.initializer_range = message.initializer_range();
  model.rope_theta = message.rope_theta();
  model.tied_embeddings = message.tied_embeddings();
  model.num_experts = message.num_experts();
  model.experts_per_token = message.experts_per_token();
  model.expert_ffn_size = message.expert_ffn_size();
  if (!message.has_rope_scaling()) return Missing("model.rope_scaling");
  const proto::RopeScaling& scaling = message.rope_scaling();
  model.rope_scaling = {scaling.factor(), scaling.low_freq_factor(), scaling.high_freq_factor(),
                        scaling.original_max_positions()};
  model.attention_bias = message.attention_bias();
  return absl::OkStatus();
}

void Fill(const DataSpec& data, proto::DataSpec& message) {
  for (const DataSource& source : data.train) message.add_train(source.path);
  for (const DataSource& source : data.valid) message.add_valid(source.path);
  message.set_split(data.split);
  message.set_format(absl::StrCat(TokenFormatName(data.format)));
  if (data.bos_token_id) message.set_bos_token_id(*data.bos_token_id);
  if (data.eos_token_id) message.set_eos_token_id(*data.eos_token_id);
  message.set_reset_attention_mask(data.reset_attention_mask);
  message.set_reset_position_ids(data.reset_position_ids);
}

absl::Status Read(const proto::DataSpec& message, DataSpec& data) {
  for (const std::string& path : message.train()) data.train.push_back({path});
  for (const std::string& path : message.valid()) data.valid.push_back({path});
  data.split = message.split();
  ASSIGN_OR_RETURN(data.format, Named("data.format", ParseTokenFormat(message.format())));
  if (message.has_bos_token_id()) data.bos_token_id = message.bos_token_id();
  if (message.has_eos_token_id()) data.eos_token_id = message.eos_token_id();
  data.reset_attention_mask = message.reset_attention_mask();
  data.reset_position_ids = message.reset_position_ids();
  return absl::OkStatus();
}

void Fill(const TrainingSpec& training, proto::TrainingSpec& message) {
  message.set_seq_len(training.seq_len);
  message.set_global_batch_size(training.global_batch_size);
  if (training.micro_batch_size) message.set_micro_batch_size(*training.micro_batch_size);
  if (training.gradient_accumulation_steps) {
    message.set_gradient_accumulation_steps(*training.gradient_accumulation_steps);
  }
  message.set_steps(training.steps);
  message.set_gradient_clipping(training.gradient_clipping);
  message.set_seed(training.seed);
  message.set_mixed_precision(absl::StrCat(PrecisionName(training.mixed_precision)));
  message.set_max_consecutive_skipped_steps(training.max_consecutive_skipped_steps);
  if (training.head_chunk_tokens) message.set_head_chunk_tokens(*training.head_chunk_tokens);
}

absl::Status Read(const proto::TrainingSpec& message, TrainingSpec& training) {
  training.seq_len = message.seq_len();
  training.global_batch_size = message.global_batch_size();
  if (message.has_micro_batch_size()) training.micro_batch_size = message.micro_batch_size();
  if (message.has_gradient_accumulation_steps()) {
    training.gradient_accumulation_steps = message.gradient_accumulation_steps();
  }
  training.steps = message.steps();
  training.gradient_clipping = message.gradient_clipping();
  training.seed = message.seed();
  ASSIGN_OR_RETURN(training.mixed_precision,
                   Named("training.mixed_precision", ParsePrecision(message.mixed_precision())));
  training.max_consecutive_skipped_steps = message.max_consecutive_skipped_steps();
  if (message.has_head_chunk_tokens()) training.head_chunk_tokens = message.head_chunk_tokens();
  return absl::OkStatus();
}

void Fill(const Fp16Spec& fp16, proto::Fp16Spec& message) {
  message.set_loss_scale(fp16.loss_scale);
  message.set_initial_scale_power(fp16.initial_scale_power);
  message.set_loss_scale_window(fp16.loss_scale_window);
  message.set_hysteresis(fp16.hysteresis);
  message.set_min_loss_scale(fp16.min_loss_scale);
}

Fp16Spec Read(const proto::Fp16Spec& message) {
  return {.loss_scale = message.loss_scale(),
          .initial_scale_power = message.initial_scale_power(),
          .loss_scale_window = message.loss_scale_window(),
          .hysteresis = message.hysteresis(),
          .min_loss_scale = message.min_loss_scale()};
}

void Fill(const OptimizerSpec& optimizer, proto::OptimizerSpec& message) {
  message.set_name(absl::StrCat(OptimizerName(optimizer.name)));
  message.set_lr(optimizer.lr);
  message.set_beta1(optimizer.beta1);
  message.set_beta2(optimizer.beta2);
  message.set_eps(optimizer.eps);
  message.set_weight_decay(optimizer.weight_decay);
  message.set_momentum(optimizer.momentum);
  message.set_dampening(optimizer.dampening);
  message.set_nesterov(optimizer.nesterov);
  message.set_decay_rate(optimizer.decay_rate);
  message.set_clip_threshold(optimizer.clip_threshold);
  message.set_scale_parameter(optimizer.scale_parameter);
  for (const ParamGroup& group : optimizer.param_groups) {
    proto::ParamGroup& out = *message.add_param_groups();
    for (const std::string& pattern : group.params) out.add_params(pattern);
    out.set_weight_decay(group.weight_decay);
  }
}

absl::Status Read(const proto::OptimizerSpec& message, OptimizerSpec& optimizer) {
  ASSIGN_OR_RETURN(optimizer.name, Named("optimizer.name", ParseOptimizer(message.name())));
  optimizer.lr = message.lr();
  optimizer.beta1 = message.beta1();
  optimizer.beta2 = message.beta2();
  optimizer.eps = message.eps();
  optimizer.weight_decay = message.weight_decay();
  optimizer.momentum = message.momentum();
  optimizer.dampening = message.dampening();
  optimizer.nesterov = message.nesterov();
  optimizer.decay_rate = message.decay_rate();
  optimizer.clip_threshold = message.clip_threshold();
  optimizer.scale_parameter = message.scale_parameter();
  for (const proto::ParamGroup& group : message.param_groups()) {
    optimizer.param_groups.push_back(
        {{group.params().begin(), group.params().end()}, group.weight_decay()});
  }
  return absl::OkStatus();
}

void Fill(const LrSchedulerSpec& scheduler, proto::LrSchedulerSpec& message) {
  message.set_type(absl::StrCat(LrScheduleName(scheduler.type)));
  message.set_warmup_steps(scheduler.warmup_steps);
  message.set_decay_steps(scheduler.decay_steps);
  message.set_min_lr(scheduler.min_lr);
}

absl::Status Read(const proto::LrSchedulerSpec& message, LrSchedulerSpec& scheduler) {
  ASSIGN_OR_RETURN(scheduler.type, Named("lr_scheduler.type", ParseLrSchedule(message.type())));
  scheduler.warmup_steps = message.warmup_steps();
  scheduler.decay_steps = message.decay_steps();
  scheduler.min_lr = message.min_lr();
  return absl::OkStatus();
}

void Fill(const ParallelismSpec& parallelism, proto::ParallelismSpec& message) {
  if (parallelism.dp) message.set_dp(*parallelism.dp);
  if (parallelism.tp) message.set_tp(*parallelism.tp);
  if (parallelism.pp) message.set_pp(*parallelism.pp);
  if (parallelism.cp) message.set_cp(*parallelism.cp);
  if (parallelism.ep) message.set_ep(*parallelism.ep);
  if (parallelism.zero_stage) message.set_zero_stage(*parallelism.zero_stage);
  if (parallelism.zero_group) message.set_zero_group(*parallelism.zero_group);
  if (parallelism.sequence_parallel) {
    message.set_sequence_parallel(*parallelism.sequence_parallel);
  }
  if (parallelism.pp_schedule) {
    message.set_pp_schedule(absl::StrCat(ScheduleName(*parallelism.pp_schedule)));
  }
  if (parallelism.virtual_stages) message.set_virtual_stages(*parallelism.virtual_stages);
  if (parallelism.layers_per_stage) {
    proto::LayersPerStage& layers = *message.mutable_layers_per_stage();
    for (const int64_t count : *parallelism.layers_per_stage) layers.add_layers(count);
  }
}

absl::Status Read(const proto::ParallelismSpec& message, ParallelismSpec& parallelism) {
  if (message.has_dp()) parallelism.dp = message.dp();
  if (message.has_tp()) parallelism.tp = message.tp();
  if (message.has_pp()) parallelism.pp = message.pp();
  if (message.has_cp()) parallelism.cp = message.cp();
  if (message.has_ep()) parallelism.ep = message.ep();
  if (message.has_zero_stage()) parallelism.zero_stage = message.zero_stage();
  if (message.has_zero_group()) parallelism.zero_group = message.zero_group();
  if (message.has_sequence_parallel()) {
    parallelism.sequence_parallel = message.sequence_parallel();
  }
  if (message.has_pp_schedule()) {
    ASSIGN_OR_RETURN(parallelism.pp_schedule,
                     Named("parallelism.pp_schedule", ParseSchedule(message.pp_schedule())));
  }
  if (message.has_virtual_stages()) parallelism.virtual_stages = message.virtual_stages();
  if (message.has_layers_per_stage()) {
    const auto& layers = message.layers_per_stage().layers();
    parallelism.layers_per_stage.emplace(layers.begin(), layers.end());
  }
  return absl::OkStatus();
}

void Fill(const ActivationCheckpointingSpec& checkpointing,
          proto::ActivationCheckpointingSpec& message) {
  if (checkpointing.mode) message.set_mode(absl::StrCat(RecomputeName(*checkpointing.mode)));
  for (const Recompute recompute : checkpointing.per_stage) {
    message.add_per_stage(absl::StrCat(RecomputeName(recompute)));
  }
}

absl::Status Read(const proto::ActivationCheckpointingSpec& message,
                  ActivationCheckpointingSpec& checkpointing) {
  if (message.has_mode()) {
    ASSIGN_OR_RETURN(checkpointing.mode,
                     Named("activation_checkpointing.mode", ParseRecompute(message.mode())));
  }
  for (const std::string& name : message.per_stage()) {
    ASSIGN_OR_RETURN(const Recompute recompute,
                     Named("activation_checkpointing.per_stage", ParseRecompute(name)));
    checkpointing.per_stage.push_back(recompute);
  }
  return absl::OkStatus();
}

void Fill(const LoraSpec& lora, proto::LoraSpec& message) {
  message.set_r(lora.r);
  message.set_lora_alpha(lora.lora_alpha);
  for (const std::string& module : lora.target_modules) message.add_target_modules(module);
  message.set_quantization(absl::StrCat(FrozenFormatName(lora.quantization)));
}

absl::Status Read(const proto::LoraSpec& message, LoraSpec& lora) {
  lora.r = message.r();
  lora.lora_alpha = message.lora_alpha();
  lora.target_modules.assign(message.target_modules().begin(), message.target_modules().end());
  ASSIGN_OR_RETURN(lora.quantization,
                   Named("lora.quantization", ParseFrozenFormat(message.quantization())));
  return absl::OkStatus();
}

void Fill(const PerPrecision& rates, proto::PerPrecision& message) {
  message.set_fp32(rates.fp32);
  message.set_bf16(rates.bf16);
  message.set_fp8(rates.fp8);
}

PerPrecision Read(const proto::PerPrecision& message) {
  return {message.fp32(), message.bf16(), message.fp8()};
}

void Fill(const LinkProfile& link, proto::LinkProfile& message) {
  message.set_latency_s(link.latency_s);
  message.set_bytes_per_s(link.bytes_per_s);
  message.set_switch_reduces(link.switch_reduces);
}

LinkProfile Read(const proto::LinkProfile& message) {
  return {message.latency_s(), message.bytes_per_s(), message.switch_reduces()};
}

void Fill(const DeviceProfile& device, proto::DeviceProfile& message) {
  message.set_name(device.name);
  message.set_backend(absl::StrCat(BackendName(device.backend)));
  message.set_memory_bytes(device.memory_bytes);
  message.set_library_bytes(device.library_bytes);
  message.set_compute_units(device.compute_units);
  Fill(device.peak_flops_per_s, *message.mutable_peak_flops_per_s());
  message.set_peak_memory_bytes_per_s(device.peak_memory_bytes_per_s);
  Fill(device.matmul_efficiency, *message.mutable_matmul_efficiency());
  message.set_attention_efficiency(device.attention_efficiency);
  message.set_streaming_efficiency(device.streaming_efficiency);
  message.set_op_overhead_s(device.op_overhead_s);
  for (const MatmulPoint& point : device.matmuls) {
    proto::MatmulPoint& matmul = *message.add_matmuls();
    matmul.set_m(point.m);
    matmul.set_n(point.n);
    matmul.set_k(point.k);
    matmul.set_precision(absl::StrCat(PrecisionName(point.precision)));
    matmul.set_flops_per_s(point.flops_per_s);
  }
}

absl::Status Read(const proto::DeviceProfile& message, DeviceProfile& device) {
  if (!message.has_peak_flops_per_s()) return Missing("cluster.device.peak_flops_per_s");
  if (!message.has_matmul_efficiency()) return Missing("cluster.device.matmul_efficiency");
  device.name = message.name();
  ASSIGN_OR_RETURN(device.backend,
                   Named("cluster.device.backend", ParseBackend(message.backend())));
  device.memory_bytes = message.memory_bytes();
  device.library_bytes = message.library_bytes();
  device.compute_units = message.compute_units();
  device.peak_flops_per_s = Read(message.peak_flops_per_s());
  device.peak_memory_bytes_per_s = message.peak_memory_bytes_per_s();
  device.matmul_efficiency = Read(message.matmul_efficiency());
  device.attention_efficiency = message.attention_efficiency();
  device.streaming_efficiency = message.streaming_efficiency();
  device.op_overhead_s = message.op_overhead_s();
  for (const proto::MatmulPoint& matmul : message.matmuls()) {
    MatmulPoint point{matmul.m(), matmul.n(), matmul.k(), Precision::kFp32, matmul.flops_per_s()};
    ASSIGN_OR_RETURN(point.precision,
                     Named("cluster.device.matmuls.precision", ParsePrecision(matmul.precision())));
    device.matmuls.push_back(point);
  }
  return absl::OkStatus();
}

void Fill(const Cluster& cluster, proto::Cluster& message) {
  message.set_name(cluster.name);
  message.set_nodes(cluster.nodes);
  message.set_slots_per_node(cluster.slots_per_node);
  message.set_cores_per_node(cluster.cores_per_node);
  message.set_nics_per_node(cluster.nics_per_node);
  message.set_host_memory_bytes(cluster.host_memory_bytes);
  Fill(cluster.device, *message.mutable_device());
  Fill(cluster.intra_node, *message.mutable_intra_node());
  Fill(cluster.inter_node, *message.mutable_inter_node());
  message.mutable_storage()->set_node_bytes_per_s(cluster.storage.node_bytes_per_s);
  message.mutable_storage()->set_total_bytes_per_s(cluster.storage.total_bytes_per_s);
  message.mutable_failures()->set_device_mtbf_hours(cluster.failures.device_mtbf_hours);
  message.mutable_failures()->set_restart_s(cluster.failures.restart_s);
  message.set_price_per_device_hour(cluster.price_per_device_hour);
  for (const CollectivePoint& point : cluster.collectives) {
    proto::CollectivePoint& collective = *message.add_collectives();
    collective.set_collective(absl::StrCat(CollectiveName(point.collective)));
    collective.set_ranks(point.ranks);
    collective.set_bytes(point.bytes);
    collective.set_seconds(point.seconds);
  }
}

absl::Status Read(const proto::Cluster& message, Cluster& cluster) {
  if (!message.has_device()) return Missing("cluster.device");
  if (!message.has_intra_node()) return Missing("cluster.intra_node");
  if (!message.has_inter_node()) return Missing("cluster.inter_node");
  cluster.name = message.name();
  cluster.nodes = message.nodes();
  cluster.slots_per_node = message.slots_per_node();
  cluster.cores_per_node = message.cores_per_node();
  cluster.nics_per_node = message.nics_per_node();
  cluster.host_memory_bytes = message.host_memory_bytes();
  RETURN_IF_ERROR(Read(message.device(), cluster.device));
  cluster.intra_node = Read(message.intra_node());
  cluster.inter_node = Read(message.inter_node());
  cluster.storage = {message.storage().node_bytes_per_s(), message.storage().total_bytes_per_s()};
  cluster.failures = {message.failures().device_mtbf_hours(), message.failures().restart_s()};
  cluster.price_per_device_hour = message.price_per_device_hour();
  for (const proto::CollectivePoint& collective : message.collectives()) {
    CollectivePoint point{Collective::kAllReduce, collective.ranks(), collective.bytes(),
                          collective.seconds()};
    ASSIGN_OR_RETURN(point.collective, Named("cluster.collectives.collective",
                                             ParseCollective(collective.collective())));
    cluster.collectives.push_back(point);
  }
  return absl::OkStatus();
}

absl::Status CheckPresence(const proto::JobSpec& message) {
  if (!message.has_model()) return Missing("model");
  if (!message.has_data()) return Missing("data");
  if (!message.has_training()) return Missing("training");
  if (!message.has_optimizer()) return Missing("optimizer");
  if (!message.has_lr_scheduler()) return Missing("lr_scheduler");
  if (!message.has_parallelism()) return Missing("parallelism");
  if (!message.has_activation_checkpointing()) return Missing("activation_checkpointing");
  if (!message.has_offload()) return Missing("offload");
  if (!message.has_checkpoint()) return Missing("checkpoint");
  if (!message.has_fp16()) return Missing("fp16");
  if (!message.has_fault_tolerance()) return Missing("fault_tolerance");
  if (!message.has_comm()) return Missing("comm");
  if (!message.has_validation()) return Missing("validation");
  if (!message.has_cluster()) return Missing("cluster");
  return absl::OkStatus();
}

}  // namespace

proto::JobSpec ToProto(const JobSpec& job) {
  proto::JobSpec message;
  message.set_name(job.name);
  message.set_output_dir(job.output_dir);
  message.set_init_from(job.init_from);
  Fill(job.model, *message.mutable_model());
  Fill(job.data, *message.mutable_data());
  Fill(job.training, *message.mutable_training());
  Fill(job.optimizer, *message.mutable_optimizer());
  Fill(job.lr_scheduler, *message.mutable_lr_scheduler());
  Fill(job.parallelism, *message.mutable_parallelism());
  Fill(job.activation_checkpointing, *message.mutable_activation_checkpointing());
  proto::OffloadSpec& offload = *message.mutable_offload();
  if (job.offload.optimizer) offload.set_optimizer(*job.offload.optimizer);
  if (job.lora) Fill(*job.lora, *message.mutable_lora());
  message.mutable_checkpoint()->set_folder(job.checkpoint.folder);
  message.mutable_checkpoint()->set_interval(job.checkpoint.interval);
  message.mutable_checkpoint()->set_keep_latest_k(job.checkpoint.keep_latest_k);
  message.mutable_checkpoint()->set_resume(absl::StrCat(ResumeText(job.checkpoint.resume)));
  Fill(job.fp16, *message.mutable_fp16());
  message.mutable_fault_tolerance()->set_max_restarts(job.fault_tolerance.max_restarts);
  message.mutable_fault_tolerance()->set_heartbeat_timeout_seconds(
      job.fault_tolerance.heartbeat_timeout_seconds);
  message.mutable_comm()->set_init_timeout_seconds(job.comm.init_timeout_seconds);
  message.mutable_comm()->set_train_timeout_seconds(job.comm.train_timeout_seconds);
  message.mutable_validation()->set_interval(job.validation.interval);
  message.mutable_validation()->set_steps(job.validation.steps);
  message.set_log_freq(job.log_freq);
  message.set_profiler_freq(job.profiler_freq);
  message.set_deterministic(job.deterministic);
  Fill(job.cluster, *message.mutable_cluster());
  message.set_threads_per_worker(job.threads_per_worker);
  for (const auto& [key, value] : job.env) (*message.mutable_env())[key] = value;
  return message;
}

absl::StatusOr<JobSpec> FromProto(const proto::JobSpec& message) {
  RETURN_IF_ERROR(CheckPresence(message));
  JobSpec job;
  job.name = message.name();
  job.output_dir = message.output_dir();
  job.init_from = message.init_from();
  RETURN_IF_ERROR(Read(message.model(), job.model));
  RETURN_IF_ERROR(Read(message.data(), job.data));
  RETURN_IF_ERROR(Read(message.training(), job.training));
  RETURN_IF_ERROR(Read(message.optimizer(), job.optimizer));
  RETURN_IF_ERROR(Read(message.lr_scheduler(), job.lr_scheduler));
  RETURN_IF_ERROR(Read(message.parallelism(), job.parallelism));
  RETURN_IF_ERROR(Read(message.activation_checkpointing(), job.activation_checkpointing));
  if (message.offload().has_optimizer()) job.offload.optimizer = message.offload().optimizer();
  if (message.has_lora()) {
    RETURN_IF_ERROR(Read(message.lora(), job.lora.emplace()));
  }
  job.checkpoint.folder = message.checkpoint().folder();
  job.checkpoint.interval = message.checkpoint().interval();
  job.checkpoint.keep_latest_k = message.checkpoint().keep_latest_k();
  ASSIGN_OR_RETURN(job.checkpoint.resume,
                   Named("checkpoint.resume", ParseResume(message.checkpoint().resume())));
  job.fp16 = Read(message.fp16());
  job.fault_tolerance.max_restarts = message.fault_tolerance().max_restarts();
  job.fault_tolerance.heartbeat_timeout_seconds =
      message.fault_tolerance().heartbeat_timeout_seconds();
  job.comm.init_timeout_seconds = message.comm().init_timeout_seconds();
  job.comm.train_timeout_seconds = message.comm().train_timeout_seconds();
  job.validation.interval = message.validation().interval();
  job.validation.steps = message.validation().steps();
  job.log_freq = message.log_freq();
  job.profiler_freq = message.profiler_freq();
  job.deterministic = message.deterministic();
  RETURN_IF_ERROR(Read(message.cluster(), job.cluster));
  job.threads_per_worker = message.threads_per_worker();
  for (const auto& [key, value] : message.env()) job.env[key] = value;
  return job;
}

proto::RunIdentity ToProto(const RunIdentity& run) {
  proto::RunIdentity message;
  message.set_id(run.id);
  for (const auto& [key, value] : run.mathematics) (*message.mutable_mathematics())[key] = value;
  for (const std::string& change : run.accepted) message.add_accepted(change);
  return message;
}

RunIdentity FromProto(const proto::RunIdentity& message) {
  return {message.id(),
          {message.mathematics().begin(), message.mathematics().end()},
          {message.accepted().begin(), message.accepted().end()}};
}

proto::Layout ToProto(const Layout& layout) {
  proto::Layout message;
  message.set_dp(layout.dp);
  message.set_pp(layout.pp);
  message.set_cp(layout.cp);
  message.set_tp(layout.tp);
  message.set_zero_stage(layout.zero_stage);
  message.set_schedule(absl::StrCat(ScheduleName(layout.schedule)));
  message.set_micro_batch_size(layout.micro_batch_size);
  message.set_num_microbatches(layout.num_microbatches);
  message.set_recompute(absl::StrCat(RecomputeName(layout.recompute)));
  message.set_virtual_stages(layout.virtual_stages);
  message.set_ep(layout.ep);
  message.set_zero_group(layout.zero_group);
  message.set_sequence_parallel(layout.sequence_parallel);
  message.set_offload_optimizer(layout.offload_optimizer);
  message.set_head_chunks(layout.head_chunks);
  for (const int64_t blocks : layout.stage_blocks) message.add_stage_blocks(blocks);
  for (const Recompute recompute : layout.stage_recompute) {
    message.add_stage_recompute(absl::StrCat(RecomputeName(recompute)));
  }
  return message;
}

absl::StatusOr<Layout> FromProto(const proto::Layout& message) {
  Layout layout;
  layout.dp = message.dp();
  layout.pp = message.pp();
  layout.cp = message.cp();
  layout.tp = message.tp();
  layout.zero_stage = message.zero_stage();
  ASSIGN_OR_RETURN(layout.schedule, Named("layout.schedule", ParseSchedule(message.schedule())));
  layout.micro_batch_size = message.micro_batch_size();
  layout.num_microbatches = message.num_microbatches();
  ASSIGN_OR_RETURN(layout.recompute,
                   Named("layout.recompute", ParseRecompute(message.recompute())));
  layout.virtual_stages = message.virtual_stages();
  layout.ep = message.ep();
  layout.zero_group = message.zero_group();
  layout.sequence_parallel = message.sequence_parallel();
  layout.offload_optimizer = message.offload_optimizer();
  layout.head_chunks = message.head_chunks();
  layout.stage_blocks.assign(message.stage_blocks().begin(), message.stage_blocks().end());
  for (const std::string& name : message.stage_recompute()) {
    ASSIGN_OR_RETURN(const Recompute recompute,
                     Named("layout.stage_recompute", ParseRecompute(name)));
    layout.stage_recompute.push_back(recompute);
  }
  if (layout.virtual_stages < 1 || layout.ep < 1 || layout.head_chunks < 1) {
    return Missing("layout.virtual_stages, ep or head_chunks");
  }
  if (layout.dp < 1 || layout.pp < 1 || layout.cp < 1 || layout.tp < 1) {
    return absl::InvalidArgumentError(absl::StrCat("layout: dp ", layout.dp, ", pp ", layout.pp,
                                                   ", cp ", layout.cp, ", tp ", layout.tp,
                                                   ": each degree has to be at least 1"));
  }
  return layout;
}

}  // namespace weft
