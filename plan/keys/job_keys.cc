#include "plan/keys/job_keys.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/keys/value_text.h"

namespace weft {
namespace {

using enum KeyKind;

constexpr double kMaxSteps = 2147483648.0;
constexpr double kMaxRanks = 1 << 20;
constexpr double kMostInt = 2147483647.0;

constexpr Limits Between(double least, double most) {
  return {.least = least, .most = most};
}
constexpr Limits kAny = {};
constexpr Limits kNegative = {.most = 0, .below_most = true, .allowed = "less than 0, e.g. -0.8"};
constexpr Limits kUpToLr = {.least = 0, .allowed = "0 to optimizer.lr"};
constexpr Limits kTwoOrMore = {
    .least = 2, .most = kMostInt, .allowed = "2 or more: the newest may turn out damaged"};
constexpr Limits kMeasureSeconds = {.least = 0, .most = 100, .allowed = "0 to 100 seconds"};
constexpr Limits kSeconds = {.least = 1, .most = 86400, .allowed = "1 to 86400 seconds"};
constexpr Limits kFileBytes = {
    .least = 1 << 16, .most = 1099511627776.0, .allowed = "65536 to 1099511627776 bytes"};
constexpr Limits kNotNegative = {.least = 0, .allowed = "0 (off) or more"};
constexpr Limits kShare = {
    .least = 0, .most = 1, .below_most = true, .allowed = "0 or more and less than 1"};
constexpr Limits MoreThan0(absl::string_view allowed) {
  return {.least = 0, .above_least = true, .allowed = allowed};
}

// The field of a section that a job may lack.
#define WEFT_FIELD(member) [](JobSpec& job) -> KeyField { return &job.member; }
#define WEFT_LORA(member) \
  [](JobSpec& job) -> KeyField { return job.lora ? KeyField(&job.lora->member) : KeyField(); }

// The workers of a node, under the key of the devices' kind.
KeyField Slots(JobSpec& job, BackendKind backend) {
  if (job.cluster.device.backend != backend) return {};
  return &job.cluster.slots_per_node;
}

constexpr JobKey kJobKeys[] = {
    {"job.name", kExecution, WEFT_FIELD(name),
     "names the run's folder; letters, digits, `.`, `_`, `-`", "required"},
    {"job.output_dir", kExecution, WEFT_FIELD(output_dir), "where run folders lie", "outputs"},
    {"model.path", kInput, nullptr,
     "a config.json, or a folder that holds one; keys beside it replace those in it", "-"},
    {"model.init_from", kSource, WEFT_FIELD(init_from),
     "weights to start from, at step 0 with new optimizer states", "-", kAny,
     "initial_load_path ExistingCheckpointInit.path pretrained_model_name_or_path "
     "model_name_or_path"},
    {"data.train", kSource, WEFT_FIELD(data.train),
     "a file, a glob, or a list of them; sampled in proportion to size", "required", kAny,
     "data_stages train_data_paths data-path"},
    {"data.tokenizer", kInput, nullptr, "of texts in data.train: a folder, or its file",
     "beside the model", kAny,
     "tokenizer tokenizer.path tokenizer.hf_assets_path tokenizer.tokenizer_name_or_path "
     "tokenizer.vocab_file tokenizer.tokenizer_name tokenizer_name_or_path vocab_file "
     "tokenizer_name hf_assets_path"},
    {"data.cache", kInput, nullptr, "folder for the tokens of texts", "~/.cache/weft/tokens"},
    {"data.valid", kSource, WEFT_FIELD(data.valid), "held-out files, as data.train lists its own",
     "-"},
    {"data.split", kMathematics, WEFT_FIELD(data.split),
     "share of data.train's windows held out instead", "", kShare},
    {"data.format", kMathematics, WEFT_FIELD(data.format),
     "{words}; `auto` looks at the first file and says which", "auto"},
    {"data.dtype", kMathematics, WEFT_FIELD(data.dtype),
     "{words}, of ids in files without a header; none: uint16, up to 65536 ids", "-"},
    {"data.bos_token_id", kMathematics,
     [](JobSpec& job) -> KeyField { return NumberOrNull{&job.data.bos_token_id}; },
     "documents of a packed sample start at this token (llm.c: 50256)", "-"},
    {"data.eos_token_id", kMathematics,
     [](JobSpec& job) -> KeyField { return NumberOrNull{&job.data.eos_token_id}; },
     "documents start after this token (nanoGPT, Megatron-LM: 50256)", "-", kAny,
     "eod_token_id eod_id"},
    {"data.reset_attention_mask", kMathematics, WEFT_FIELD(data.reset_attention_mask),
     "true: tokens attend to their own document only", "", kAny, "reset-attention-mask"},
    {"data.reset_position_ids", kMathematics, WEFT_FIELD(data.reset_position_ids),
     "true: learned positions count from the document's start", "", kAny, "reset-position-ids"},
    {"data.num_workers", kNotBuilt, nullptr, "processes that read ahead", "0", kAny, "num-workers"},
    {"training.seq_len", kMathematics, WEFT_FIELD(training.seq_len), "tokens per sequence",
     "required", kAny,
     "tokens.sequence_length sequence_length seq_length max_seq_len max_seq_length seq-length "
     "block_size"},
    {"training.micro_batch_size", kExecution, WEFT_FIELD(layout.micro_batch_size),
     "sequences per microbatch", "", kAny,
     "local_batch_size tokens.micro_batch_size train_micro_batch_size_per_gpu "
     "device_train_microbatch_size per_device_train_batch_size micro-batch-size"},
    {"training.global_batch_size", kMathematics, WEFT_FIELD(training.global_batch_size),
     "sequences per step", "required, or follows", kAny,
     "train_batch_size global_train_batch_size global-batch-size"},
    {"training.gradient_accumulation_steps", kExecution,
     WEFT_FIELD(layout.gradient_accumulation_steps), "microbatches per replica and step", "", kAny,
     "tokens.batch_accumulation_per_replica"},
    {"training.steps", kExecution, WEFT_FIELD(training.steps), "optimizer updates of the whole run",
     "required, or tokens", Between(1, kMaxSteps),
     "tokens.train_steps train_iters max_steps train-iters max_iters"},
    {"training.tokens", kInput, nullptr, "instead of steps; rounded up to whole steps", "-"},
    {"training.epochs", kInput, nullptr,
     "instead of steps: passes over data.train; rounded up to whole steps", "-", kAny,
     "num_train_epochs num_epochs"},
    {"training.gradient_clipping", kAdjustable, WEFT_FIELD(training.gradient_clipping),
     "gradients are scaled down to this global norm; 0: off", "", kNotNegative,
     "max_norm optimizer.clip_grad max_grad_norm clip-grad gradient_clip_val"},
    {"training.z_loss", kAdjustable, WEFT_FIELD(training.z_loss),
     "weight of a term log^2(Z) of the loss, Z the sum of a softmax of logits; 0: none", "",
     kNotNegative, "z_loss_weight z_loss_multiplier softmax_auxiliary_loss_multiplier"},
    {"training.label_smoothing", kAdjustable, WEFT_FIELD(training.label_smoothing),
     "share of each label that all ids have alike; 0: none", "", kShare, "label_smoothing_factor"},
    {"training.mixed_precision", kMathematics, WEFT_FIELD(training.mixed_precision), "{words}", "",
     kAny, "mixed_precision_param", true},
    {"training.reduce_dtype", kAdjustable, WEFT_FIELD(training.reduce_dtype),
     "{words}: of gradients on their way between data ranks", "", kAny,
     "mixed_precision_reduce communication_data_type"},
    {"training.fp8_fast_accumulation", kAdjustable, WEFT_FIELD(training.fp8_fast_accumulation),
     "GPUs may add up forward products of fp8 in fewer bits than fp32 has"},
    {"training.seed", kMathematics, WEFT_FIELD(training.seed), "initial weights and data order", "",
     kAny, "debug.seed general.seed"},
    {"training.max_consecutive_skipped_steps", kExecution,
     WEFT_FIELD(training.max_consecutive_skipped_steps),
     "steps in a row that may be skipped; 1: the first one ends it", "", Between(1, kMaxSteps)},
    {"training.head_chunk_tokens", kExecution, WEFT_FIELD(layout.head_chunk_tokens),
     "tokens of a microbatch whose logits exist at once; 0: all; auto: all that fit", "",
     Between(0, 1099511627776.0)},
    {"fp16.loss_scale", kExecution, WEFT_FIELD(fp16.loss_scale),
     "factor on the loss under mixed_precision fp16; 0: dynamic", "", kNotNegative},
    {"fp16.initial_scale_power", kExecution, WEFT_FIELD(fp16.initial_scale_power),
     "the dynamic scale starts at 2 to this power", "", Between(0, 32)},
    {"fp16.loss_scale_window", kExecution, WEFT_FIELD(fp16.loss_scale_window),
     "steps without an overflow after which the dynamic scale doubles", "", Between(1, kMaxSteps)},
    {"fp16.hysteresis", kExecution, WEFT_FIELD(fp16.hysteresis),
     "overflows until the dynamic scale halves", "", Between(1, kMaxSteps)},
    {"fp16.min_loss_scale", kExecution, WEFT_FIELD(fp16.min_loss_scale),
     "the dynamic scale goes no lower", "", MoreThan0("more than 0, e.g. 1")},
    {"optimizer.name", kMathematics, WEFT_FIELD(optimizer.name), "{words}", "", kAny, "type optim"},
    {"optimizer.lr", kAdjustable, WEFT_FIELD(optimizer.lr), "the learning rate at its highest", "",
     MoreThan0("more than 0, e.g. 0.0003"), "optimizer.params.lr learning_rate"},
    {"optimizer.betas", kAdjustable,
     [](JobSpec& job) -> KeyField {
       return NumberPair{&job.optimizer.beta1, &job.optimizer.beta2};
     },
     "decay of the moments; of adamw, adamw_8bit and lion", "", kShare, "optimizer.params.betas"},
    {"optimizer.eps", kAdjustable, WEFT_FIELD(optimizer.eps),
     "added to the root that an update is divided by, as AdamW's", "",
     MoreThan0("more than 0, e.g. 1e-08"), "optimizer.params.eps"},
    {"optimizer.weight_decay", kAdjustable, WEFT_FIELD(optimizer.weight_decay),
     "of matrices that no group of param_groups names", "", kNotNegative,
     "optimizer.params.weight_decay"},
    {"optimizer.param_groups", kAdjustable, WEFT_FIELD(optimizer.param_groups),
     "weight decay by tensor", "-"},
    {"optimizer.momentum", kMathematics, WEFT_FIELD(optimizer.momentum),
     "of sgd, as PyTorch defines it; 0: none", "", kShare, "optimizer.params.momentum"},
    {"optimizer.dampening", kMathematics, WEFT_FIELD(optimizer.dampening),
     "of sgd: the share of a gradient that does not enter the momentum", "", kShare},
    {"optimizer.nesterov", kMathematics, WEFT_FIELD(optimizer.nesterov),
     "of sgd: looks one step ahead; needs a momentum and no dampening"},
    {"optimizer.decay_rate", kMathematics, WEFT_FIELD(optimizer.decay_rate),
     "of adafactor: its second moments' beta at step t is 1 - t^decay_rate", "", kNegative,
     "beta2_decay"},
    {"optimizer.clip_threshold", kMathematics, WEFT_FIELD(optimizer.clip_threshold),
     "of adafactor: most that the root mean square of a tensor's update may be", "",
     MoreThan0("more than 0, e.g. 1")},
    {"optimizer.scale_parameter", kMathematics, WEFT_FIELD(optimizer.scale_parameter),
     "of adafactor: lr counts for tensors of root mean square 1"},
    {"optimizer.relative_step", kNotBuilt, nullptr, "of adafactor: lr_scheduler gives the rate",
     "false"},
    {"optimizer.warmup_init", kNotBuilt, nullptr, "of adafactor: lr_scheduler gives the rate",
     "false"},
    {"lr_scheduler.type", kAdjustable, WEFT_FIELD(lr_scheduler.type), "{words}", "", kAny,
     "lr_scheduler_type lr_decay_style decay_type"},
    {"lr_scheduler.warmup_steps", kAdjustable, WEFT_FIELD(lr_scheduler.warmup_steps),
     "steps in which the rate rises from warmup_min_lr", "", Between(0, kMaxSteps),
     "lr_warmup_steps warmup_iters"},
    {"lr_scheduler.warmup_min_lr", kAdjustable, WEFT_FIELD(lr_scheduler.warmup_min_lr),
     "the rate that the warmup begins with", "", kUpToLr, "lr_warmup_init lr-warmup-init"},
    {"lr_scheduler.decay_steps", kAdjustable, WEFT_FIELD(lr_scheduler.decay_steps),
     "the step at which the rate has fallen to min_lr", "until the last step",
     Between(0, kMaxSteps)},
    {"lr_scheduler.min_lr", kAdjustable, WEFT_FIELD(lr_scheduler.min_lr), "the rate at the end", "",
     kUpToLr, "min_decay_lr"},
    {"parallelism.dp", kExecution, WEFT_FIELD(layout.dp),
     "data parallel degree: replicas; -1 is auto", "", kAny,
     "data_parallel_shard_degree dp_shard_size"},
    {"parallelism.dp_replicate", kNotBuilt, nullptr, "zero_hpz_partition_size says the same", "1",
     kAny, "data_parallel_replicate_degree dp_replicate_size"},
    {"parallelism.tp", kExecution, WEFT_FIELD(layout.tp),
     "tensor parallel degree: ranks that share each matrix", "", kAny,
     "tensor_parallel_degree model_parallel_size tp_size autotp_size tensor-model-parallel-size "
     "tensor_model_parallel_size"},
    {"parallelism.pp", kExecution, WEFT_FIELD(layout.pp),
     "pipeline parallel degree: stages of blocks", "", kAny,
     "pipeline_parallel_degree pipe_parallel_size pp_size pipeline-model-parallel-size "
     "pipeline_model_parallel_size"},
    {"parallelism.cp", kExecution, WEFT_FIELD(layout.cp),
     "context parallel degree: ranks that share each sequence; 2 cp divides seq_len", "", kAny,
     "context_parallel_degree context_parallel_size cp_size sp_size context-parallel-size"},
    {"parallelism.ep", kExecution, WEFT_FIELD(layout.ep),
     "expert parallel degree; divides dp x cp x tp / etp", "", kAny,
     "expert_parallel_degree expert_parallel_size moe_world_size expert-model-parallel-size "
     "expert_model_parallel_size",
     true},
    {"parallelism.etp", kExecution, WEFT_FIELD(layout.etp),
     "tensor parallel degree of experts, which divides tp; 0: tp", "", kAny,
     "expert_tensor_parallel_size expert-tensor-parallel-size", true},
    {"parallelism.sequence_parallel", kExecution, WEFT_FIELD(layout.sequence_parallel),
     "norms and residuals cut over tp by tokens", "", kAny,
     "enable_sequence_parallel sequence-parallel"},
    {"parallelism.pp_schedule", kExecution, WEFT_FIELD(layout.pp_schedule), "{words}", "", kAny,
     "pipeline_parallel_schedule pp_engine"},
    {"parallelism.virtual_stages", kExecution, WEFT_FIELD(layout.virtual_stages),
     "chunks of blocks per stage, 2 or more for `interleaved_1f1b`", "", kAny,
     "virtual_pipeline_model_parallel_size"},
    {"parallelism.layers_per_stage", kExecution, WEFT_FIELD(layout.layers_per_stage),
     "blocks of each stage: `[3, 1]`, or as plans print it, `1,62x2,1`; or `even`"},
    {"parallelism.zero_stage", kExecution, WEFT_FIELD(layout.zero_stage),
     "0 to 3: what each rank of a data group keeps a part of", "", kAny,
     "optimizer.zero_stage zero_optimization.stage"},
    {"parallelism.zero_hpz_partition_size", kExecution, WEFT_FIELD(layout.zero_hpz_partition_size),
     "ranks that a ZeRO shard is spread over; 1: the whole data group", "", Between(1, kMaxRanks)},
    {"activation_checkpointing.mode", kExecution, WEFT_FIELD(layout.recompute),
     "what backward computes again: {words}", "", kAny, "activation_checkpoint.mode"},
    {"activation_checkpointing.per_stage", kExecution, WEFT_FIELD(layout.recompute_per_stage),
     "instead of `mode`, one a stage: `[full, none]` or `full,none`", "-"},
    {"offload.optimizer", kExecution, WEFT_FIELD(layout.offload_optimizer),
     "`cpu`: optimizer states and master weights in host memory; `none`", "", kAny,
     "offload_optimizer.device"},
    {"offload.params", kNotBuilt, nullptr, "weights in host memory", "none", kAny,
     "offload_param.device"},
    {"checkpoint.folder", kExecution, WEFT_FIELD(checkpoint.folder),
     "in the run folder unless absolute", "", kAny, "checkpoints_path save save_folder"},
    {"checkpoint.interval", kExecution, WEFT_FIELD(checkpoint.interval),
     "steps between saves; 0: at the end and on a stop, whatever it risks", "",
     Between(0, kMaxSteps),
     "checkpoint_interval checkpoint_factor save_interval save_steps save-interval"},
    {"checkpoint.keep_latest_k", kExecution, WEFT_FIELD(checkpoint.keep_latest_k),
     "at least 2 are kept", "", kTwoOrMore,
     "keep_last_n_checkpoints save_num_checkpoints_to_keep save_total_limit"},
    {"checkpoint.resume", kExecution, WEFT_FIELD(checkpoint.resume), "{words}", "", kAny,
     "resume_checkpoint_path autoresume resume_from_checkpoint"},
    {"checkpoint.async", kNotBuilt, nullptr, "saves beside training", "false", kAny, "async_save"},
    {"checkpoint.export_hf", kNotBuilt, nullptr, "a Hugging Face directory too", "never"},
    {"checkpoint.export_dtype", kNotBuilt, nullptr, "number format of that directory"},
    {"fault_tolerance.max_restarts", kExecution, WEFT_FIELD(fault_tolerance.max_restarts),
     "generations after a failure", "", Between(0, 1000000)},
    {"fault_tolerance.heartbeat_timeout_seconds", kExecution,
     WEFT_FIELD(fault_tolerance.heartbeat_timeout_seconds),
     "the lease: silence after which a worker is lost", "", kSeconds},
    {"fault_tolerance.steady_seconds", kExecution, WEFT_FIELD(fault_tolerance.steady_seconds),
     "hosts that came back have to stay so long before the job takes them", "", kSeconds},
    {"fault_tolerance.preflight", kExecution, WEFT_FIELD(fault_tolerance.preflight),
     "hosts are checked before a job starts there; false: version and run folder alone"},
    {"fault_tolerance.on_preempt", kNotBuilt, nullptr, "what a notice of the end does", "save"},
    {"fault_tolerance.skip_loss_zscore", kNotBuilt, nullptr, "skips steps of a strange loss", "0"},
    {"comm.init_timeout_seconds", kExecution, WEFT_FIELD(comm.init_timeout_seconds),
     "longest wait for all ranks to register, and in the first collective call", "", kSeconds},
    {"comm.train_timeout_seconds", kExecution, WEFT_FIELD(comm.train_timeout_seconds),
     "longest wait in any later collective call", "", kSeconds, "dist_timeout ddp_timeout"},
    {"comm.measure_seconds", kExecution, WEFT_FIELD(comm.measure_seconds),
     "a new run measures the links among its ranks for about so long, into links.json; 0: not", "",
     kMeasureSeconds},
    {"validation.interval", kExecution, WEFT_FIELD(validation.interval),
     "steps between evaluations, and one after the last step; 0: none", "", Between(0, kMaxSteps),
     "validation.freq val_check_interval eval_interval eval_steps"},
    {"validation.steps", kExecution, WEFT_FIELD(validation.steps), "global batches per evaluation",
     "", Between(0, kMaxSteps), "eval_iters"},
    {"metrics.log_freq", kExecution, WEFT_FIELD(log_freq), "steps between plain progress lines", "",
     Between(1, kMaxSteps),
     "iteration_step_info_interval log_interval console_log_interval logging_steps "
     "steps_per_print"},
    {"metrics.tensorboard", kNotBuilt, nullptr, "an event file beside metrics.jsonl", "false"},
    {"metrics.wandb", kNotBuilt, nullptr, "a run at Weights & Biases", "false"},
    {"metrics.max_file_bytes", kExecution,
     [](JobSpec& job) -> KeyField { return NumberOrNull{&job.max_metrics_bytes}; },
     "at this size metrics.jsonl becomes metrics.jsonl.1, the only older one; none: never", "-",
     kFileBytes},
    {"logs.max_file_bytes", kExecution, WEFT_FIELD(max_log_bytes),
     "at this size rank-0.log becomes rank-0.log.1, the only older one; so each rank's", "",
     kFileBytes},
    {"profiler.enable", kExecution, WEFT_FIELD(profiler.enable),
     "true: some steps are traced, for Perfetto", "", kAny, "profiling.enable_profiling"},
    {"profiler.freq", kExecution, WEFT_FIELD(profiler.freq),
     "every so many steps each rank writes what it did when", "", Between(1, kMaxSteps),
     "profiling.profile_freq"},
    {"profiler.memory_snapshot", kNotBuilt, nullptr, "the arena's history", "false"},
    {"lora.r", kMathematics, WEFT_LORA(r), "rank of adapters beside a frozen base", "-", kAny,
     "rank", true},
    {"lora.lora_alpha", kMathematics, WEFT_LORA(lora_alpha), "scale of the adapters, as PEFT's",
     "r", MoreThan0("more than 0, e.g. 16"), "alpha", true},
    {"lora.lora_dropout", kNotBuilt, nullptr, "dropout before the adapters", "0 0.0"},
    {"lora.target_modules", kMathematics, WEFT_LORA(target_modules),
     "PEFT's module names, or `all-linear`; gpt2: [c_attn]", "[q_proj, v_proj]", kAny, "", true},
    {"lora.quantization", kMathematics, WEFT_LORA(quantization),
     "of the frozen base: `none` (bf16), `int8`, `nf4` or `nf4_double`", "none", kAny, "", true},
    {"lora.double_quantization", kInput, nullptr, "with `nf4`: makes it `nf4_double`", "false",
     kAny, "bnb_4bit_use_double_quant", true},
    {"cluster.scheduler", kExecution, WEFT_FIELD(scheduler.kind), "who grants machines: {words}"},
    {"cluster.profile", kInput, nullptr,
     "a name in configs/clusters, a path, or a map with the keys of such a file", "cpu"},
    {"cluster.nodes", kExecution,
     [](JobSpec& job) -> KeyField {
       return NumberRange{&job.hosts.least_nodes, &job.cluster.nodes};
     },
     "how many machines of the profile there are; MIN:MAX: the job goes on with MIN of MAX",
     "the profile's", kAny, "num_nodes nnodes"},
    {"cluster.slots", kExecution,
     [](JobSpec& job) -> KeyField { return Slots(job, BackendKind::kCpu); },
     "workers of a node, on CPUs", "the profile's"},
    {"cluster.gpus_per_node", kExecution,
     [](JobSpec& job) -> KeyField { return Slots(job, BackendKind::kCuda); },
     "workers of a node, on GPUs", "the profile's", kAny, "num_gpus"},
    {"cluster.threads_per_worker", kExecution, WEFT_FIELD(threads_per_worker),
     "BLAS threads of a CPU worker", "", Between(1, 1024)},
    {"cluster.bind", kExecution, WEFT_FIELD(bind),
     "each worker keeps to CPUs and memory near its device or slot", ""},
    {"cluster.network", kExecution, WEFT_FIELD(hosts.network),
     "the subnet by which hosts reach each other, e.g. 10.78.0.0/24", "any"},
    {"cluster.spares", kExecution, WEFT_FIELD(hosts.spares),
     "hosts beside those of the plan that stand by", "", Between(0, 100000)},
    {"cluster.failure_domains", kExecution, WEFT_FIELD(hosts.failure_domains),
     "hosts that fail together, by the name of what they share: {rack1: \"n[1-8],gpu*\"}"},
    {"cluster.ssh_options", kExecution, WEFT_FIELD(hosts.ssh_options),
     "words for ssh beside ssh_config's, e.g. -p 2222", "-", kAny, "ssh_args"},
    {"cluster.remote_path", kExecution, WEFT_FIELD(hosts.remote_path),
     "folder of weft's programs on other hosts", "this weft's"},
    {"cluster.partition", kExecution, WEFT_FIELD(scheduler.partition), "Slurm's partition", "-"},
    {"cluster.account", kExecution, WEFT_FIELD(scheduler.account), "Slurm's account", "-"},
    {"cluster.qos", kExecution, WEFT_FIELD(scheduler.qos), "Slurm's quality of service", "-"},
    {"cluster.constraint", kExecution, WEFT_FIELD(scheduler.constraint),
     "features that Slurm's nodes have to have, e.g. a100&ib", "-"},
    {"cluster.exclude", kExecution, WEFT_FIELD(scheduler.exclude),
     "Slurm's nodes that are not wanted, e.g. n[07,12-14]", "-"},
    {"cluster.reservation", kExecution, WEFT_FIELD(scheduler.reservation), "Slurm's reservation",
     "-"},
    {"cluster.time", kExecution, WEFT_FIELD(scheduler.time),
     "the scheduler's time limit: minutes, HH:MM:SS or D-HH:MM:SS", "the partition's"},
    {"cluster.dependency", kExecution, WEFT_FIELD(scheduler.dependency),
     "Slurm's jobs that come first, e.g. afterok:1234", "-"},
    {"cluster.sbatch_options", kExecution, WEFT_FIELD(scheduler.options),
     "more words for sbatch, e.g. --mail-type=END --exclusive", "-"},
    {"cluster.setup", kExecution, WEFT_FIELD(scheduler.setup),
     "lines of the batch script before weft, e.g. module load gcc", "-"},
    {"cluster.container", kExecution, WEFT_FIELD(scheduler.container),
     "words before each agent's command, e.g. apptainer exec a.sif", "-"},
    {"cluster.image", kExecution, WEFT_FIELD(scheduler.pods.image),
     "the pods' image, with weft in it", "-"},
    {"cluster.namespace", kExecution, WEFT_FIELD(scheduler.pods.name_space), "of the pods",
     "kubectl's"},
    {"cluster.volume", kExecution, WEFT_FIELD(scheduler.pods.volume),
     "a PersistentVolumeClaim that all pods mount", "-"},
    {"cluster.volume_path", kExecution, WEFT_FIELD(scheduler.pods.volume_path),
     "where they mount it; job.output_dir and the data are in there", "-"},
    {"cluster.queue", kExecution, WEFT_FIELD(scheduler.pods.queue), "Kueue's LocalQueue", "-"},
    {"cluster.priority_class", kExecution, WEFT_FIELD(scheduler.pods.priority_class), "of the pods",
     "-"},
    {"cluster.runtime_class", kExecution, WEFT_FIELD(scheduler.pods.runtime_class),
     "of the pods, e.g. nvidia", "-"},
    {"cluster.gpu_resource", kExecution, WEFT_FIELD(scheduler.pods.gpu_resource),
     "what a GPU is called among a node's resources"},
    {"cluster.resources", kExecution, WEFT_FIELD(scheduler.pods.resources),
     "of a pod beside those of the plan, e.g. {rdma/ib: \"1\"}"},
    {"cluster.node_selector", kExecution, WEFT_FIELD(scheduler.pods.node_selector),
     "labels that nodes have to have"},
    {"cluster.jobset", kExecution, WEFT_FIELD(scheduler.pods.jobset),
     "pods come as a JobSet in place of a Job"},
    {"cluster.pod", kExecution, WEFT_FIELD(scheduler.pods.pod),
     "more of Kubernetes' fields, as they are, e.g. {imagePullSecrets: [{name: lab}]}"},
    {"cluster.env", kExecution, WEFT_FIELD(env), "added to each worker's environment"},
    {"deterministic", kExecution, WEFT_FIELD(deterministic),
     "GPUs: the same job on such devices gives the same bits, restarts included", "", kAny,
     "debug.deterministic"},
    {"resolved", kInput, nullptr, "weft's record in a resolved.yaml; reading it changes nothing",
     "-"},
};

#undef WEFT_FIELD
#undef WEFT_LORA

}  // namespace

absl::string_view JobKey::name() const {
  const size_t dot = key.rfind('.');
  return dot == absl::string_view::npos ? key : key.substr(dot + 1);
}

absl::Span<const JobKey> JobKeys() {
  return kJobKeys;
}

const JobKey* FindJobKey(absl::string_view dotted) {
  static const auto* const keys = [] {
    auto* const made = new std::map<absl::string_view, const JobKey*>();
    for (const JobKey& key : kJobKeys) made->emplace(key.key, &key);
    return made;
  }();
  const auto found = keys->find(dotted);
  return found == keys->end() ? nullptr : found->second;
}

std::string MeaningText(const JobKey& key) {
  constexpr absl::string_view kWords = "{words}";
  const size_t at = key.meaning.find(kWords);
  if (at == absl::string_view::npos) return std::string(key.meaning);
  JobSpec plain;
  const Words words = FormOf(key.field(plain)).words;
  std::string list;
  for (size_t i = 0; i < words.size(); ++i) {
    absl::StrAppend(&list, i == 0 ? "" : i + 1 < words.size() ? ", " : " or ", "`", words[i], "`");
  }
  return absl::StrCat(key.meaning.substr(0, at), list, key.meaning.substr(at + kWords.size()));
}

std::string DefaultText(const JobKey& key) {
  if (key.field == nullptr || !key.otherwise.empty()) return std::string(key.otherwise);
  JobSpec plain;
  return LineText(PrintField(key.field(plain)));
}

const std::vector<std::string>& JobSections() {
  static const auto* const sections = [] {
    auto* const made = new std::vector<std::string>();
    for (const JobKey& key : kJobKeys) {
      if (made->empty() || made->back() != key.section()) made->emplace_back(key.section());
    }
    return made;
  }();
  return *sections;
}

}  // namespace weft
