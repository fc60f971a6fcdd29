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

absl::string_view BackendText(BackendKind backend) {
  return backend == BackendKind::kCpu ? "cpu" : "cuda";
}

absl::StatusOr<BackendKind> ParseBackend(absl::string_view name) {
  if (name == "cpu") return BackendKind::kCpu;
  if (name == "cuda") return BackendKind::kCuda;
  return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" is unknown; use cpu or cuda"));
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
  return absl::OkStatus();
}

void Fill(const DataSpec& data, proto::DataSpec& message) {
  for (const DataSource& source : data.train) message.add_train(source.path);
  for (const DataSource& source : data.valid) message.add_valid(source.path);
  message.set_split(data.split);
  message.set_format(absl::StrCat(TokenFormatName(data.format)));
}

absl::Status Read(const proto::DataSpec& message, DataSpec& data) {
  for (const std::string& path : message.train()) data.train.push_back({path});
  for (const std::string& path : message.valid()) data.valid.push_back({path});
  data.split = message.split();
  ASSIGN_OR_RETURN(data.format, Named("data.format", ParseTokenFormat(message.format())));
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
}

void Read(const proto::TrainingSpec& message, TrainingSpec& training) {
  training.seq_len = message.seq_len();
  training.global_batch_size = message.global_batch_size();
  if (message.has_micro_batch_size()) training.micro_batch_size = message.micro_batch_size();
  if (message.has_gradient_accumulation_steps()) {
    training.gradient_accumulation_steps = message.gradient_accumulation_steps();
  }
  training.steps = message.steps();
  training.gradient_clipping = message.gradient_clipping();
  training.seed = message.seed();
}

void Fill(const OptimizerSpec& optimizer, proto::OptimizerSpec& message) {
  message.set_name(absl::StrCat(OptimizerName(optimizer.name)));
  message.set_lr(optimizer.lr);
  message.set_beta1(optimizer.beta1);
  message.set_beta2(optimizer.beta2);
  message.set_eps(optimizer.eps);
  message.set_weight_decay(optimizer.weight_decay);
}

absl::Status Read(const proto::OptimizerSpec& message, OptimizerSpec& optimizer) {
  ASSIGN_OR_RETURN(optimizer.name, Named("optimizer.name", ParseOptimizer(message.name())));
  optimizer.lr = message.lr();
  optimizer.beta1 = message.beta1();
  optimizer.beta2 = message.beta2();
  optimizer.eps = message.eps();
  optimizer.weight_decay = message.weight_decay();
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
  message.set_cp(parallelism.cp);
  message.set_zero_stage(parallelism.zero_stage);
  if (parallelism.pp_schedule) {
    message.set_pp_schedule(absl::StrCat(ScheduleName(*parallelism.pp_schedule)));
  }
}

absl::Status Read(const proto::ParallelismSpec& message, ParallelismSpec& parallelism) {
  if (message.has_dp()) parallelism.dp = message.dp();
  if (message.has_tp()) parallelism.tp = message.tp();
  if (message.has_pp()) parallelism.pp = message.pp();
  parallelism.cp = message.cp();
  parallelism.zero_stage = message.zero_stage();
  if (message.has_pp_schedule()) {
    ASSIGN_OR_RETURN(parallelism.pp_schedule,
                     Named("parallelism.pp_schedule", ParseSchedule(message.pp_schedule())));
  }
  return absl::OkStatus();
}

void Fill(const Cluster& cluster, proto::Cluster& message) {
  message.set_name(cluster.name);
  message.set_nodes(cluster.nodes);
  message.set_slots_per_node(cluster.slots_per_node);
  message.set_cores_per_node(cluster.cores_per_node);
  proto::DeviceProfile& device = *message.mutable_device();
  device.set_name(cluster.device.name);
  device.set_backend(absl::StrCat(BackendText(cluster.device.backend)));
  device.set_memory_bytes(cluster.device.memory_bytes);
  device.set_library_bytes(cluster.device.library_bytes);
  device.set_matmul_flops_per_s(cluster.device.matmul_flops_per_s);
  device.set_memory_bytes_per_s(cluster.device.memory_bytes_per_s);
  device.set_op_overhead_s(cluster.device.op_overhead_s);
  message.mutable_intra_node()->set_latency_s(cluster.intra_node.latency_s);
  message.mutable_intra_node()->set_bytes_per_s(cluster.intra_node.bytes_per_s);
  message.mutable_inter_node()->set_latency_s(cluster.inter_node.latency_s);
  message.mutable_inter_node()->set_bytes_per_s(cluster.inter_node.bytes_per_s);
}

absl::Status Read(const proto::Cluster& message, Cluster& cluster) {
  if (!message.has_device()) return Missing("cluster.device");
  if (!message.has_intra_node()) return Missing("cluster.intra_node");
  if (!message.has_inter_node()) return Missing("cluster.inter_node");
  cluster.name = message.name();
  cluster.nodes = message.nodes();
  cluster.slots_per_node = message.slots_per_node();
  cluster.cores_per_node = message.cores_per_node();
  const proto::DeviceProfile& device = message.device();
  cluster.device.name = device.name();
  ASSIGN_OR_RETURN(cluster.device.backend,
                   Named("cluster.device.backend", ParseBackend(device.backend())));
  cluster.device.memory_bytes = device.memory_bytes();
  cluster.device.library_bytes = device.library_bytes();
  cluster.device.matmul_flops_per_s = device.matmul_flops_per_s();
  cluster.device.memory_bytes_per_s = device.memory_bytes_per_s();
  cluster.device.op_overhead_s = device.op_overhead_s();
  cluster.intra_node = {message.intra_node().latency_s(), message.intra_node().bytes_per_s()};
  cluster.inter_node = {message.inter_node().latency_s(), message.inter_node().bytes_per_s()};
  return absl::OkStatus();
}

absl::Status CheckPresence(const proto::JobSpec& message) {
  if (!message.has_model()) return Missing("model");
  if (!message.has_data()) return Missing("data");
  if (!message.has_training()) return Missing("training");
  if (!message.has_optimizer()) return Missing("optimizer");
  if (!message.has_lr_scheduler()) return Missing("lr_scheduler");
  if (!message.has_parallelism()) return Missing("parallelism");
  if (!message.has_checkpoint()) return Missing("checkpoint");
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
  Fill(job.model, *message.mutable_model());
  Fill(job.data, *message.mutable_data());
  Fill(job.training, *message.mutable_training());
  Fill(job.optimizer, *message.mutable_optimizer());
  Fill(job.lr_scheduler, *message.mutable_lr_scheduler());
  Fill(job.parallelism, *message.mutable_parallelism());
  message.mutable_checkpoint()->set_folder(job.checkpoint.folder);
  message.mutable_checkpoint()->set_interval(job.checkpoint.interval);
  message.mutable_checkpoint()->set_keep_latest_k(job.checkpoint.keep_latest_k);
  message.mutable_checkpoint()->set_resume(absl::StrCat(ResumeText(job.checkpoint.resume)));
  message.mutable_fault_tolerance()->set_max_restarts(job.fault_tolerance.max_restarts);
  message.mutable_fault_tolerance()->set_heartbeat_timeout_seconds(
      job.fault_tolerance.heartbeat_timeout_seconds);
  message.mutable_comm()->set_init_timeout_seconds(job.comm.init_timeout_seconds);
  message.mutable_comm()->set_train_timeout_seconds(job.comm.train_timeout_seconds);
  message.mutable_validation()->set_interval(job.validation.interval);
  message.mutable_validation()->set_steps(job.validation.steps);
  message.set_log_freq(job.log_freq);
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
  RETURN_IF_ERROR(Read(message.model(), job.model));
  RETURN_IF_ERROR(Read(message.data(), job.data));
  Read(message.training(), job.training);
  RETURN_IF_ERROR(Read(message.optimizer(), job.optimizer));
  RETURN_IF_ERROR(Read(message.lr_scheduler(), job.lr_scheduler));
  RETURN_IF_ERROR(Read(message.parallelism(), job.parallelism));
  job.checkpoint.folder = message.checkpoint().folder();
  job.checkpoint.interval = message.checkpoint().interval();
  job.checkpoint.keep_latest_k = message.checkpoint().keep_latest_k();
  ASSIGN_OR_RETURN(job.checkpoint.resume,
                   Named("checkpoint.resume", ParseResume(message.checkpoint().resume())));
  job.fault_tolerance.max_restarts = message.fault_tolerance().max_restarts();
  job.fault_tolerance.heartbeat_timeout_seconds =
      message.fault_tolerance().heartbeat_timeout_seconds();
  job.comm.init_timeout_seconds = message.comm().init_timeout_seconds();
  job.comm.train_timeout_seconds = message.comm().train_timeout_seconds();
  job.validation.interval = message.validation().interval();
  job.validation.steps = message.validation().steps();
  job.log_freq = message.log_freq();
  RETURN_IF_ERROR(Read(message.cluster(), job.cluster));
  job.threads_per_worker = message.threads_per_worker();
  for (const auto& [key, value] : message.env()) job.env[key] = value;
  return job;
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
  message.set_recompute("none");  // the only value of Recompute
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
  if (message.recompute() != "none") {
    return absl::InvalidArgumentError(absl::StrCat("layout.recompute: \"", message.recompute(),
                                                   "\" is not supported yet; use none"));
  }
  if (layout.dp < 1 || layout.pp < 1 || layout.cp < 1 || layout.tp < 1) {
    return absl::InvalidArgumentError(absl::StrCat("layout: dp ", layout.dp, ", pp ", layout.pp,
                                                   ", cp ", layout.cp, ", tp ", layout.tp,
                                                   ": each degree has to be at least 1"));
  }
  return layout;
}

}  // namespace weft
