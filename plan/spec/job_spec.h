// A JobSpec is the job as values: what was asked, after YAML and before planning. Field names are
// the keys of job.yaml (docs/job_yaml.md); an empty optional is `auto`. Only what weft can plan has
// a field here: other known keys are refused by name in launcher/job_file/job_yaml. RunIssues,
// which whoever starts a run asks, refuses what can be planned but not run yet.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/spec/cluster.h"
#include "plan/spec/layout.h"
#include "plan/spec/lora.h"
#include "plan/spec/model.h"
#include "plan/spec/numerics.h"
#include "plan/spec/optimizer.h"
#include "plan/spec/param_groups.h"
#include "plan/spec/precision.h"
#include "plan/spec/words.h"

namespace weft {

enum class TokenFormat { kBytes, kLlmc, kNanogpt, kMegatron };
enum class TokenDtype { kUint16, kUint32 };  // of an id in a file
enum class LrSchedule { kConstant, kLinear, kCosine };
enum class ResumeMode { kAuto, kNone };

struct DataSource {
  std::string path;  // absolute; globs already expanded and sorted
  friend bool operator==(const DataSource&, const DataSource&) = default;
};

// 16 bits hold so many ids.
inline constexpr int64_t kMost16BitIds = 65536;

struct DataSpec {
  std::vector<DataSource> train;
  std::vector<DataSource> valid;  // empty: `split` holds out a part of train, or no validation
  double split = 0;               // share of train's windows held out, [0, 1)
  TokenFormat format = TokenFormat::kBytes;
  // An id's type where a file has no header; auto: uint16, for a vocabulary up to kMost16BitIds.
  std::optional<TokenDtype> dtype = {};
  // Documents in a packed sample: one starts at each bos_token_id and after each eos_token_id.
  std::optional<int64_t> bos_token_id = {};
  std::optional<int64_t> eos_token_id = {};
  bool reset_attention_mask = false;  // tokens attend to their own document only
  bool reset_position_ids = false;    // positions count from the document's start
  friend bool operator==(const DataSpec&, const DataSpec&) = default;
};

struct TrainingSpec {
  int64_t seq_len = 0;
  int64_t global_batch_size = 0;
  int64_t steps = 0;
  double gradient_clipping = 1.0;  // 0: off
  double z_loss = 0;               // weight of the squared logarithm of the softmax's sum
  double label_smoothing = 0;      // share of a label that all ids of the vocabulary have alike
  uint64_t seed = 42;
  Precision mixed_precision = Precision::kFp32;
  ReduceDtype reduce_dtype = ReduceDtype::kFp32;  // of sums of gradients over the data group
  // Forward products of 8 bits may add up in what tensor cores have, of fewer bits than fp32.
  bool fp8_fast_accumulation = false;
  // Steps in a row whose loss or gradient norm is not finite, and whose update is therefore
  // skipped, before training ends. 1: the first one ends it.
  int64_t max_consecutive_skipped_steps = 5;
  friend bool operator==(const TrainingSpec&, const TrainingSpec&) = default;
};

// These keys need mixed_precision fp16; names and defaults are DeepSpeed's.
struct Fp16Spec {
  double loss_scale = 0;             // 0: dynamic
  int64_t initial_scale_power = 16;  // dynamic: of 2
  int64_t loss_scale_window = 1000;  // steps without overflow after which the scale doubles
  int64_t hysteresis = 2;            // overflows until it halves
  double min_loss_scale = 1;
  friend bool operator==(const Fp16Spec&, const Fp16Spec&) = default;
};

struct OptimizerSpec {
  OptimizerKind name = OptimizerKind::kAdamw;
  double lr = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;                  // of matrices that no group names
  std::vector<ParamGroup> param_groups = {};  // the first that names a tensor counts
  // These are sgd's alone; definitions are PyTorch's (Updates::SgdMomentum).
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  // These are adafactor's alone; definitions are those of Hugging Face's Adafactor
  // (worker/state/adafactor.h).
  double decay_rate = -0.8;      // the second moments' beta of step t is 1 - t^decay_rate
  double clip_threshold = 1;     // most that the root mean square of a tensor's update may be
  bool scale_parameter = false;  // lr counts for tensors of root mean square 1

  OptimizerStates states() const {
    return name == OptimizerKind::kSgd && momentum > 0 ? OptimizerStates::kMomentum
                                                       : StatesOf(name);
  }
  friend bool operator==(const OptimizerSpec&, const OptimizerSpec&) = default;
};

struct LrSchedulerSpec {
  LrSchedule type = LrSchedule::kCosine;
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;  // 0: until training.steps
  double min_lr = 0;
  double warmup_min_lr = 0;  // where the warmup begins, before the first step
  friend bool operator==(const LrSchedulerSpec&, const LrSchedulerSpec&) = default;
};

struct CheckpointSpec {
  std::string folder = "checkpoint";  // inside the run folder unless absolute
  // Steps; 0: only at the end and on a stop. Nothing (auto): what wastes least, once there is a
  // plan.
  std::optional<int64_t> interval = {};
  int keep_latest_k = 3;  // >= 2
  ResumeMode resume = ResumeMode::kAuto;
  friend bool operator==(const CheckpointSpec&, const CheckpointSpec&) = default;
};

struct FaultToleranceSpec {
  int max_restarts = 3;
  double heartbeat_timeout_seconds = 8;  // the lease
  double steady_seconds = 60;            // hosts that came back stay so long before they are taken
  bool preflight = true;                 // hosts are checked before their first generation
  friend bool operator==(const FaultToleranceSpec&, const FaultToleranceSpec&) = default;
};

struct CommSpec {
  double init_timeout_seconds = 300;
  double train_timeout_seconds = 100;
  double measure_seconds = 0;  // links are measured so long before the first step; 0: not
  friend bool operator==(const CommSpec&, const CommSpec&) = default;
};

struct ValidationSpec {
  int64_t interval = 0;  // steps; 0: off
  int64_t steps = 0;     // global batches per evaluation
  friend bool operator==(const ValidationSpec&, const ValidationSpec&) = default;
};

struct ProfilerSpec {
  bool enable = false;
  int64_t freq = 100;  // steps from one that is traced to the next

  bool Traces(int64_t step) const { return enable && step % freq == 0; }
  friend bool operator==(const ProfilerSpec&, const ProfilerSpec&) = default;
};

// A RunIdentity says which run a checkpoint belongs to.
struct RunIdentity {
  std::string id;  // 16 hex digits, made once for a run; empty: none (tests)
  // Values of the job file's keys that a run cannot change: model, data, optimizer...
  std::map<std::string, std::string> mathematics;
  // Lists the changes that were accepted all the same, oldest first:
  // "after step 60: optimizer.lr: 0.001 -> 0.0005".
  std::vector<std::string> accepted = {};
  friend bool operator==(const RunIdentity&, const RunIdentity&) = default;
};

// How the job's hosts are found, reached and replaced.
struct HostsSpec {
  // MIN of cluster.nodes MIN:MAX: with so few the job goes on when hosts are lost; 0: with all
  // alone.
  int least_nodes = 0;
  std::string network;      // the subnet that hosts reach each other by; empty: any
  std::string ssh_options;  // words for ssh, beside ssh_config's
  std::string remote_path;  // folder of weft's programs on other hosts; empty: as here
  int spares = 0;           // hosts beside those of the plan that stand by
  // Each is what fails together, by name: rack1: "n[1-8],login1" (plan/spec/failure_domains.h).
  std::map<std::string, std::string> failure_domains = {};
  friend bool operator==(const HostsSpec&, const HostsSpec&) = default;
};

// Who grants machines to the job: nobody, a scheduler of batch jobs, or one of pods.
enum class Scheduler { kNone, kSlurm, kKubernetes };

// PassedOn is a part of a job file that others read: a map of whatever they know.
struct PassedOn {
  enum class Kind { kNothing, kWord, kText, kList, kMap };
  Kind kind = Kind::kNothing;
  std::string text;                // of kText, and of kWord: a number, or true
  std::vector<std::string> names;  // of kMap, one of each part
  std::vector<PassedOn> parts;
  const PassedOn* Find(absl::string_view name) const;  // null: it is not there
  friend bool operator==(const PassedOn&, const PassedOn&) = default;
};

// PodsSpec says what Kubernetes is told beside the job's size; empty: nothing.
struct PodsSpec {
  std::string image;        // of the container, with weft in it
  std::string name_space;   // empty: the one that kubectl is set to
  std::string volume;       // a PersistentVolumeClaim that all pods mount
  std::string volume_path;  // where
  std::string queue;        // Kueue's LocalQueue
  std::string priority_class;
  std::string runtime_class;
  std::string gpu_resource = "nvidia.com/gpu";
  std::map<std::string, std::string> resources;      // of a pod, beside those of the plan
  std::map<std::string, std::string> node_selector;  // labels of nodes
  bool jobset = false;                               // a JobSet in place of a Job
  PassedOn pod = {};                                 // more fields of Kubernetes'
  friend bool operator==(const PodsSpec&, const PodsSpec&) = default;
};

// SchedulerSpec says what a site's scheduler is told beside the job's size; empty: nothing.
struct SchedulerSpec {
  Scheduler kind = Scheduler::kNone;
  std::string partition;
  std::string account;
  std::string qos;
  std::string constraint;  // features of nodes
  std::string exclude;     // nodes
  std::string reservation;
  std::string time;  // the limit, in the scheduler's own spelling
  std::string dependency;
  std::string options;    // words for sbatch, beside those
  std::string setup;      // lines of the batch script that come before weft
  std::string container;  // words that come before an agent's command; of srun where they are --x
  PodsSpec pods;
  friend bool operator==(const SchedulerSpec&, const SchedulerSpec&) = default;
};

struct JobSpec {
  std::string name;
  std::string output_dir;  // absolute; the run folder is output_dir/name
  ModelShape model;
  // model.init_from, absolute: a Hugging Face directory or a checkpoint's step folder with the
  // weights that training starts from. Empty: initial weights.
  std::string init_from;
  DataSpec data;
  TrainingSpec training;
  Fp16Spec fp16;
  OptimizerSpec optimizer;
  LrSchedulerSpec lr_scheduler;
  LayoutSpec layout;  // of sections parallelism, training, activation_checkpointing and offload
  CheckpointSpec checkpoint;
  FaultToleranceSpec fault_tolerance;
  CommSpec comm;
  ValidationSpec validation;
  std::optional<LoraSpec> lora;  // nullopt: everything is trained
  int64_t log_freq = 10;         // metrics.log_freq: plain progress lines, steps
  // Bytes at which a file becomes its older one (process/older_file.h): metrics.max_file_bytes,
  // none means never; logs.max_file_bytes, of each rank's log.
  std::optional<int64_t> max_metrics_bytes;
  int64_t max_log_bytes = int64_t{64} << 20;
  ProfilerSpec profiler;
  Cluster cluster;  // cluster.profile resolved, slots and nodes applied
  HostsSpec hosts;
  SchedulerSpec scheduler;
  int threads_per_worker = 1;
  bool bind = true;  // workers to CPUs and memory near their device or slot
  // On GPUs only ways that give the same bits again are taken; CPUs have no others.
  bool deterministic = false;
  std::map<std::string, std::string> env;  // cluster.env, added to each worker's environment

  BatchShape batch() const {
    return {training.global_batch_size, training.seq_len, data.reset_attention_mask};
  }
  Numerics numerics() const {
    return {.precision = training.mixed_precision,
            .optimizer = optimizer.states(),
            .reduce_dtype = training.reduce_dtype,
            .cudnn_attention = cluster.device.backend == BackendKind::kCuda && !deterministic,
            .threads = cluster.device.backend == BackendKind::kCpu ? threads_per_worker : 1};
  }
  friend bool operator==(const JobSpec&, const JobSpec&) = default;
};

Words WordsOf(TokenFormat);
Words WordsOf(TokenDtype);
Words WordsOf(LrSchedule);
Words WordsOf(ResumeMode);
Words WordsOf(Scheduler);
absl::StatusOr<TokenFormat> ParseTokenFormat(absl::string_view name);
absl::StatusOr<TokenDtype> ParseTokenDtype(absl::string_view name);

}  // namespace weft
