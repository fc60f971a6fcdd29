#include "plan/keys/job_rules.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "plan/block/tensors.h"
#include "plan/keys/job_keys.h"
#include "plan/keys/value_text.h"
#include "plan/spec/failure_domains.h"
#include "plan/spec/fp8.h"
#include "plan/spec/layout_rules.h"
#include "plan/spec/layout_spec.h"
#include "plan/spec/learning_rate.h"
#include "plan/spec/subnet.h"

namespace weft {
namespace {

using SpecIssues = std::vector<SpecIssue>;

constexpr int64_t kByteValues = 256;
constexpr double kMaxTokens = 0x1p62;  // of a run; counters are int64_t

void Add(SpecIssues& issues, absl::string_view key, std::string message) {
  issues.push_back({std::string{key}, std::move(message)});
}

void CheckInteger(SpecIssues& issues, absl::string_view key, int64_t value, int64_t least,
                  int64_t most) {
  if (value >= least && value <= most) return;
  Add(issues, key, absl::StrCat(value, " is out of range; use ", least, " to ", most));
}

// Adds the numbers that the table of keys does not allow.
void CheckLimits(JobSpec job, SpecIssues& issues) {
  for (const JobKey& key : JobKeys()) {
    if (key.field == nullptr) continue;
    for (const std::string& number : OutOfLimits(key.field(job), key.limits)) {
      Add(issues, key.key, absl::StrCat(number, " is out of range; use ", key.limits.Text()));
    }
  }
}

// Adds an issue for each of `keys` that differs from its default though nothing uses it. `why`
// stands behind the value found, `cure` behind the default, unless the value is wrong anyway: "0.9
// <why>; use 0, or <cure>".
void CheckUnused(JobSpec job, absl::Span<const absl::string_view> keys, absl::string_view why,
                 absl::string_view cure, SpecIssues& issues) {
  JobSpec plain;
  for (const absl::string_view name : keys) {
    const bool is_wrong = std::any_of(issues.begin(), issues.end(),
                                      [&](const SpecIssue& issue) { return issue.key == name; });
    if (is_wrong) continue;
    const JobKey& key = *FindJobKey(name);
    const std::string found = LineText(PrintField(key.field(job)));
    const std::string unused = LineText(PrintField(key.field(plain)));
    if (found == unused) continue;
    Add(issues, name, absl::StrCat(found, " ", why, "; use ", unused, ", or ", cure));
  }
}

void CheckNaming(const JobSpec& job, SpecIssues& issues) {
  bool sound = !job.name.empty() && job.name.size() <= 100 && job.name.front() != '.' &&
               job.name.front() != '-';
  for (const char c : job.name) {
    sound = sound && (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' ||
                      c == '-');
  }
  if (!sound) {
    Add(issues, "job.name",
        absl::StrCat("\"", job.name,
                     "\" cannot name a folder; use 1 to 100 letters, digits, dots, underscores "
                     "and dashes, a letter or digit first"));
  }
  if (job.output_dir.empty() || job.output_dir.front() != '/') {
    Add(issues, "job.output_dir",
        absl::StrCat("\"", job.output_dir, "\" is not an absolute path; use one, e.g. /tmp/weft"));
  }
}

void CheckSources(SpecIssues& issues, absl::string_view key,
                  const std::vector<DataSource>& sources) {
  for (const DataSource& source : sources) {
    if (!source.path.empty() && source.path.front() == '/') continue;
    Add(issues, key, absl::StrCat("\"", source.path, "\" is not an absolute path; use one"));
  }
}

// How wide an id is in a file that does not say so itself.
void CheckDtype(const JobSpec& job, SpecIssues& issues) {
  const DataSpec& data = job.data;
  if (data.format == TokenFormat::kBytes && data.dtype) {
    Add(issues, "data.dtype",
        absl::StrCat(WordOf(*data.dtype), " with data.format bytes, whose ids are bytes; ",
                     "leave it out, or use data.format nanogpt"));
  }
  if (data.format == TokenFormat::kNanogpt && !data.dtype && job.model.vocab_size > kMost16BitIds) {
    Add(issues, "data.dtype",
        absl::StrCat("missing: 16 bits, as nanogpt files have them, cannot hold the ids of ",
                     "model.vocab_size ", job.model.vocab_size, "; say how wide an id is in these ",
                     "files: uint32, or uint16 if all of them are below ", kMost16BitIds));
  }
}

void CheckData(const JobSpec& job, SpecIssues& issues) {
  if (job.data.train.empty()) {
    Add(issues, "data.train", "is empty; name at least one file of tokens");
  }
  CheckSources(issues, "data.train", job.data.train);
  CheckSources(issues, "data.valid", job.data.valid);
  if (job.data.split > 0 && !job.data.valid.empty()) {
    Add(issues, "data.split",
        absl::StrCat(job.data.split,
                     " holds out a part of data.train, but data.valid is given too; "
                     "use one of them"));
  }
  if (job.data.format == TokenFormat::kBytes && job.model.vocab_size >= 1 &&
      job.model.vocab_size < kByteValues) {
    Add(issues, "model.vocab_size",
        absl::StrCat(job.model.vocab_size, " cannot hold every byte of data.format bytes; use ",
                     kByteValues, " or more"));
  }
  CheckDtype(job, issues);
}

void CheckDocuments(const JobSpec& job, SpecIssues& issues) {
  const DataSpec& data = job.data;
  const std::pair<absl::string_view, std::optional<int64_t>> marks[] = {
      {"data.bos_token_id", data.bos_token_id}, {"data.eos_token_id", data.eos_token_id}};
  for (const auto& [key, id] : marks) {
    if (!id || job.model.vocab_size < 1) continue;
    CheckInteger(issues, key, *id, 0, job.model.vocab_size - 1);
  }
  if (data.reset_attention_mask && !data.bos_token_id && !data.eos_token_id) {
    Add(issues, "data.reset_attention_mask",
        "true, but nothing says where documents start; give data.bos_token_id or "
        "data.eos_token_id, e.g. 50256 for GPT-2's <|endoftext|>");
  }
  if (data.reset_position_ids && !data.reset_attention_mask) {
    Add(issues, "data.reset_position_ids",
        "true without data.reset_attention_mask; use true for both");
  }
}

void CheckTraining(const JobSpec& job, SpecIssues& issues) {
  const TrainingSpec& training = job.training;
  const double tokens = static_cast<double>(training.steps) *
                        static_cast<double>(training.global_batch_size) *
                        static_cast<double>(training.seq_len);
  if (tokens > kMaxTokens) {
    Add(issues, "training.steps",
        absl::StrCat(training.steps, " makes ", tokens, " tokens in all; use fewer steps"));
  }
  if (training.mixed_precision != Precision::kFp16) {
    constexpr absl::string_view kScaling[] = {"fp16.loss_scale", "fp16.initial_scale_power",
                                              "fp16.loss_scale_window", "fp16.hysteresis",
                                              "fp16.min_loss_scale"};
    CheckUnused(job, kScaling,
                absl::StrCat("with training.mixed_precision ", WordOf(training.mixed_precision),
                             ", whose loss is not scaled"),
                "mixed_precision fp16", issues);
  }
  if (training.mixed_precision != Precision::kFp8) {
    constexpr absl::string_view kAccumulation[] = {"training.fp8_fast_accumulation"};
    CheckUnused(job, kAccumulation,
                absl::StrCat("with training.mixed_precision ", WordOf(training.mixed_precision),
                             ", which has no products of 8 bits"),
                "mixed_precision fp8", issues);
  }
}

// Keys that only one optimizer has.
void CheckOptimizer(const JobSpec& job, SpecIssues& issues) {
  const OptimizerSpec& optimizer = job.optimizer;
  const std::string why =
      absl::StrCat("with optimizer.name ", WordOf(optimizer.name), ", which has none of that kind");
  if (optimizer.name != OptimizerKind::kAdafactor) {
    constexpr absl::string_view kUnused[] = {"optimizer.decay_rate", "optimizer.clip_threshold",
                                             "optimizer.scale_parameter"};
    CheckUnused(job, kUnused, why, "optimizer.name adafactor", issues);
  }
  if (optimizer.name != OptimizerKind::kSgd) {
    constexpr absl::string_view kUnused[] = {"optimizer.momentum"};
    CheckUnused(job, kUnused, why, "optimizer.name sgd", issues);
  }
  if (optimizer.dampening != 0 && optimizer.momentum == 0) {
    Add(issues, "optimizer.dampening",
        absl::StrCat(optimizer.dampening, " without optimizer.momentum; use 0"));
  }
  if (optimizer.nesterov && (optimizer.momentum == 0 || optimizer.dampening != 0)) {
    Add(issues, "optimizer.nesterov",
        absl::StrCat("true with optimizer.momentum ", optimizer.momentum, " and dampening ",
                     optimizer.dampening, "; it needs a momentum and no dampening"));
  }
}

void CheckLrScheduler(const JobSpec& job, SpecIssues& issues) {
  const LrSchedulerSpec& scheduler = job.lr_scheduler;
  const int64_t steps = job.training.steps;
  if (steps >= 1 && scheduler.warmup_steps > steps) {
    Add(issues, "lr_scheduler.warmup_steps",
        absl::StrCat(scheduler.warmup_steps, " is more than training.steps ", steps,
                     "; use at most ", steps));
  }
  if (scheduler.decay_steps > 0 && scheduler.decay_steps < scheduler.warmup_steps) {
    Add(issues, "lr_scheduler.decay_steps",
        absl::StrCat(scheduler.decay_steps, " is less than lr_scheduler.warmup_steps ",
                     scheduler.warmup_steps, "; use 0 (until training.steps), or ",
                     scheduler.warmup_steps, " or more"));
  }
  const double lr = job.optimizer.lr;
  const std::pair<absl::string_view, double> lows[] = {
      {"lr_scheduler.warmup_min_lr", scheduler.warmup_min_lr},
      {"lr_scheduler.min_lr", scheduler.min_lr}};
  for (const auto& [key, low] : lows) {
    if (!(lr > 0 && low > lr)) continue;
    Add(issues, key, absl::StrCat(low, " is more than optimizer.lr ", lr, "; use at most ", lr));
  }
  if (scheduler.warmup_steps == 0) {
    constexpr absl::string_view kUnused[] = {"lr_scheduler.warmup_min_lr"};
    CheckUnused(job, kUnused, "has no use with lr_scheduler.warmup_steps 0",
                "lr_scheduler.warmup_steps 1 or more", issues);
  }
}

// LeastLayout on this job's cluster and model: what is broken then is broken for every value that
// an `auto` may take.
Layout LeastLayout(const JobSpec& job) {
  Layout least = LeastLayout(job.layout);
  if (!job.layout.dp) least.dp = std::clamp(least.dp, 1, job.cluster.slots());
  if (!job.layout.dp || !job.layout.cp) least.zero_hpz_partition_size = 1;
  if (!job.layout.pp) {
    least.pp = static_cast<int>(std::min<int64_t>(least.pp, job.model.num_blocks));
  }
  return least;
}

// Returns why not even the fewest chunks that pp_schedule interleaved_1f1b may have can be had:
// what the job says is the cause, not the number of chunks that it leaves open.
SpecIssue InterleavedIssue(const JobSpec& job, const Layout& least) {
  const std::string given =
      job.layout.pp ? absl::StrCat("parallelism.pp ", *job.layout.pp, " and ") : "";
  return {
      "parallelism.pp_schedule",
      absl::StrCat("interleaved_1f1b with ", given, KeysOf(job.model.architecture).num_blocks, " ",
                   job.model.num_blocks,
                   "; it needs 2 or more stages of 2 or more chunks, each with a block; use ",
                   job.layout.pp && least.pp < 2 ? "parallelism.pp 2 or more, or " : "", "1f1b")};
}

void CheckParallelism(const JobSpec& job, SpecIssues& issues) {
  if (job.layout.recompute && !job.layout.recompute_per_stage.empty()) {
    Add(issues, "activation_checkpointing.per_stage",
        absl::StrCat("stands beside activation_checkpointing.mode ", WordOf(*job.layout.recompute),
                     "; keep one of the two"));
  }
  const Layout least = LeastLayout(job);
  for (SpecIssue& issue : DegreeIssues(job.model, job.cluster, least)) {
    const bool chosen = issue.key != "parallelism.virtual_stages" || job.layout.virtual_stages;
    issues.push_back(chosen ? std::move(issue) : InterleavedIssue(job, least));
  }
}

void CheckNumbers(const JobSpec& job, SpecIssues& issues) {
  const absl::Status offered = CheckPrecision(job.cluster.device, job.training.mixed_precision);
  if (!offered.ok()) {
    Add(issues, "training.mixed_precision", absl::StrCat(offered.message()));
  }
}

bool IsLoraModule(absl::string_view name) {
  constexpr absl::string_view kModules[] = {"q_proj",  "k_proj",    "v_proj", "o_proj", "gate_proj",
                                            "up_proj", "down_proj", "c_attn", "c_proj", "c_fc"};
  return std::find(std::begin(kModules), std::end(kModules), name) != std::end(kModules);
}

void CheckLora(const JobSpec& job, SpecIssues& issues) {
  if (!job.lora) return;
  CheckInteger(issues, "lora.r", job.lora->r, 1, std::max<int64_t>(1, job.model.hidden_size));
  // An alpha that is not given equals r; the fault is then r's.
  if (job.lora->lora_alpha == static_cast<double>(job.lora->r)) {
    std::erase_if(issues, [](const SpecIssue& issue) { return issue.key == "lora.lora_alpha"; });
  }
  if (job.model.is_latent()) {
    Add(issues, "lora.r",
        absl::StrCat(job.lora->r, " with a model of kv_lora_rank ", job.model.latent.kv_rank,
                     " is not supported yet; leave the section lora out"));
  }
  constexpr absl::string_view kTargets = "lora.target_modules";
  const std::vector<std::string>& modules = job.lora->target_modules;
  if (modules.empty()) Add(issues, kTargets, "is empty; use e.g. [q_proj, v_proj]");
  for (const std::string& module : modules) {
    if (IsLoraModule(module)) continue;
    Add(issues, kTargets,
        absl::StrCat("\"", module,
                     "\" is not a linear layer that takes adapters; use q_proj, k_proj, "
                     "v_proj, o_proj, gate_proj, up_proj and down_proj, or for gpt2 c_attn, c_proj "
                     "and c_fc"));
  }
}

void CheckBatch(const JobSpec& job, SpecIssues& issues) {
  // A dp that no layout can have is CheckParallelism's to report.
  std::optional<int64_t> dp = job.layout.dp;
  if (dp && (*dp < 1 || *dp > job.cluster.slots())) dp.reset();
  for (SpecIssue& issue : BatchIssues(job.model, job.batch(), dp, job.layout.micro_batch_size,
                                      job.layout.gradient_accumulation_steps)) {
    issues.push_back(std::move(issue));
  }
}

void CheckValidation(const JobSpec& job, SpecIssues& issues) {
  const ValidationSpec& validation = job.validation;
  if (validation.interval <= 0) return;
  if (validation.steps == 0) {
    Add(issues, "validation.steps",
        absl::StrCat("0 with validation.interval ", validation.interval,
                     "; use 1 or more global batches, or interval 0 (off)"));
  }
  if (job.data.valid.empty() && !(job.data.split > 0)) {
    Add(issues, "validation.interval",
        absl::StrCat(validation.interval,
                     " but nothing is held out; give data.valid or data.split, or use 0 (off)"));
  }
}

bool IsVariableName(absl::string_view name) {
  if (name.empty() || absl::ascii_isdigit(static_cast<unsigned char>(name.front()))) return false;
  for (const char c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_') return false;
  }
  return true;
}

void CheckHosts(const JobSpec& job, SpecIssues& issues) {
  const HostsSpec& hosts = job.hosts;
  if (hosts.least_nodes > job.cluster.nodes) {
    Add(issues, "cluster.nodes",
        absl::StrCat(hosts.least_nodes, ":", job.cluster.nodes,
                     " begins above its end; write MIN:MAX"));
  }
  if (!hosts.network.empty()) {
    const absl::StatusOr<Subnet> subnet = ParseSubnet(hosts.network);
    if (!subnet.ok()) Add(issues, "cluster.network", std::string(subnet.status().message()));
  }
  const absl::Status domains = CheckFailureDomains(hosts.failure_domains);
  if (!domains.ok()) Add(issues, "cluster.failure_domains", std::string(domains.message()));
  if (!hosts.remote_path.empty() && hosts.remote_path.front() != '/') {
    Add(issues, "cluster.remote_path",
        absl::StrCat(hosts.remote_path, " is not an absolute path; begin with /"));
  }
  const absl::string_view options = hosts.ssh_options;
  if (!options.empty() && options.front() != '-') {
    Add(issues, "cluster.ssh_options",
        absl::StrCat("\"", options, "\" does not begin with an option; write e.g. -p 2222"));
  }
}

bool IsPlainWord(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c)) && c != '"' && c != '\'';
  });
}

// All of them become parts of a batch script: what could end a line there or begin another word is
// refused.
void CheckScheduler(const JobSpec& job, SpecIssues& issues) {
  const SchedulerSpec& scheduler = job.scheduler;
  const std::pair<absl::string_view, const std::string*> words[] = {
      {"cluster.partition", &scheduler.partition},
      {"cluster.account", &scheduler.account},
      {"cluster.qos", &scheduler.qos},
      {"cluster.constraint", &scheduler.constraint},
      {"cluster.exclude", &scheduler.exclude},
      {"cluster.reservation", &scheduler.reservation},
      {"cluster.dependency", &scheduler.dependency},
      {"cluster.time", &scheduler.time}};
  for (const auto& [key, word] : words) {
    if (!IsPlainWord(*word)) {
      Add(issues, key,
          absl::StrCat("\"", *word,
                       "\" is not one plain word; write it without "
                       "spaces and quotes"));
    }
  }
  const bool is_time = std::all_of(scheduler.time.begin(), scheduler.time.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == ':' || c == '-';
  });
  if (!is_time) {
    Add(issues, "cluster.time",
        absl::StrCat(scheduler.time, " is no time; write minutes, HH:MM:SS or D-HH:MM:SS"));
  }
  if (!scheduler.options.empty() && scheduler.options.front() != '-') {
    Add(issues, "cluster.sbatch_options",
        absl::StrCat("\"", scheduler.options,
                     "\" does not begin with an option; write e.g. --mail-type=END"));
  }
  for (const auto& [key, line] : {std::pair{"cluster.sbatch_options", &scheduler.options},
                                  std::pair{"cluster.container", &scheduler.container}}) {
    if (line->find('\n') != std::string::npos) Add(issues, key, "has several lines; write one");
  }
}

constexpr absl::string_view kPodFieldsOfWeft[] = {"containers",
                                                  "volumes",
                                                  "restartPolicy",
                                                  "subdomain",
                                                  "securityContext",
                                                  "enableServiceLinks",
                                                  "nodeSelector",
                                                  "priorityClassName",
                                                  "runtimeClassName",
                                                  "terminationGracePeriodSeconds",
                                                  "automountServiceAccountToken"};

// All of them become parts of a manifest.
void CheckPods(const JobSpec& job, SpecIssues& issues) {
  const PodsSpec& pods = job.scheduler.pods;
  const std::pair<absl::string_view, const std::string*> words[] = {
      {"cluster.image", &pods.image},
      {"cluster.namespace", &pods.name_space},
      {"cluster.volume", &pods.volume},
      {"cluster.volume_path", &pods.volume_path},
      {"cluster.queue", &pods.queue},
      {"cluster.priority_class", &pods.priority_class},
      {"cluster.runtime_class", &pods.runtime_class},
      {"cluster.gpu_resource", &pods.gpu_resource}};
  for (const auto& [key, word] : words) {
    if (IsPlainWord(*word)) continue;
    Add(issues, key,
        absl::StrCat("\"", *word, "\" is not one plain word; write it without spaces and quotes"));
  }
  for (const auto& [key, map] : {std::pair{"cluster.resources", &pods.resources},
                                 std::pair{"cluster.node_selector", &pods.node_selector}}) {
    for (const auto& [name, value] : *map) {
      if (IsPlainWord(name) && IsPlainWord(value) && !name.empty()) continue;
      Add(issues, key,
          absl::StrCat("\"", name, ": ", value,
                       "\" are not two plain words; write them without spaces and quotes"));
    }
  }
  for (const absl::string_view name : kPodFieldsOfWeft) {
    if (pods.pod.Find(name) == nullptr) continue;
    Add(issues, absl::StrCat("cluster.pod.", name),
        "is weft's own to say; docs/kubernetes.md names the keys for it");
  }
  if (job.scheduler.kind != Scheduler::kKubernetes) return;
  for (const auto& [key, word] : {words[0], words[2], words[3]}) {
    if (word->empty()) {
      Add(issues, key,
          "is not there, and cluster.scheduler kubernetes needs it; docs/kubernetes.md says what "
          "it is");
    }
  }
  if (!pods.volume_path.empty() && pods.volume_path.front() != '/') {
    Add(issues, "cluster.volume_path",
        absl::StrCat(pods.volume_path, " is not an absolute path; begin with /"));
  }
}

// A scheduler that is not meant is told nothing.
void CheckSchedulersKeys(const JobSpec& job, SpecIssues& issues) {
  constexpr absl::string_view kOfSlurm[] = {
      "cluster.partition", "cluster.account",     "cluster.qos",        "cluster.constraint",
      "cluster.exclude",   "cluster.reservation", "cluster.dependency", "cluster.sbatch_options",
      "cluster.setup",     "cluster.container"};
  constexpr absl::string_view kOfPods[] = {
      "cluster.image",         "cluster.namespace",    "cluster.volume",
      "cluster.volume_path",   "cluster.queue",        "cluster.priority_class",
      "cluster.runtime_class", "cluster.gpu_resource", "cluster.resources",
      "cluster.node_selector", "cluster.jobset",       "cluster.pod"};
  constexpr absl::string_view kOfBoth[] = {"cluster.time"};
  const Scheduler kind = job.scheduler.kind;
  const std::string why =
      absl::StrCat("with cluster.scheduler ", WordOf(kind), ", which is told nothing of it");
  if (kind != Scheduler::kSlurm) {
    CheckUnused(job, kOfSlurm, why, "cluster.scheduler slurm", issues);
  }
  if (kind != Scheduler::kKubernetes) {
    CheckUnused(job, kOfPods, why, "cluster.scheduler kubernetes", issues);
  }
  if (kind == Scheduler::kNone) {
    CheckUnused(job, kOfBoth, why, "cluster.scheduler slurm or kubernetes", issues);
  }
}

void CheckRunning(const JobSpec& job, SpecIssues& issues) {
  CheckHosts(job, issues);
  CheckScheduler(job, issues);
  CheckPods(job, issues);
  CheckSchedulersKeys(job, issues);
  if (job.checkpoint.folder.empty()) {
    Add(issues, "checkpoint.folder", "is empty; use a folder's name, e.g. checkpoint");
  }
  for (const auto& [name, value] : job.env) {
    if (!IsVariableName(name)) {
      Add(issues, "cluster.env",
          absl::StrCat("\"", name,
                       "\" cannot name a variable; use letters, digits and underscores"));
    } else if (absl::StartsWith(name, "WEFT_")) {
      Add(issues, "cluster.env", absl::StrCat(name, " is weft's own to set; remove it"));
    }
  }
}

}  // namespace

std::vector<SpecIssue> OffloadIssues(const JobSpec& job) {
  const Numerics numerics = job.numerics();
  SpecIssues issues;
  if (numerics.optimizer == OptimizerStates::kFactored) {
    Add(issues, "offload.optimizer",
        absl::StrCat("cpu with optimizer.name ", WordOf(job.optimizer.name),
                     ", whose update needs whole tensors at once; use none"));
  } else if (numerics.optimizer == OptimizerStates::kNone && !numerics.has_master_weights()) {
    Add(issues, "offload.optimizer",
        absl::StrCat("cpu with optimizer.name ", WordOf(job.optimizer.name),
                     " without momentum in fp32, which keeps nothing to offload; use none"));
  }
  return issues;
}

std::vector<SpecIssue> Validate(const JobSpec& job) {
  SpecIssues issues;
  CheckLimits(job, issues);
  CheckNaming(job, issues);
  const SpecIssues model_issues = ModelIssues(job.model);
  const SpecIssues cluster_issues = ClusterIssues(job.cluster);
  issues.insert(issues.end(), model_issues.begin(), model_issues.end());
  CheckData(job, issues);
  CheckDocuments(job, issues);
  CheckTraining(job, issues);
  CheckOptimizer(job, issues);
  CheckLrScheduler(job, issues);
  if (job.layout.offload_optimizer == OffloadDevice::kCpu) {
    for (SpecIssue& issue : OffloadIssues(job)) issues.push_back(std::move(issue));
  }
  if (model_issues.empty() && !job.optimizer.param_groups.empty()) {
    for (SpecIssue& issue : ParamGroupIssues(Tensors(job.model), job.optimizer.param_groups)) {
      issues.push_back(std::move(issue));
    }
  }
  if (model_issues.empty()) CheckBatch(job, issues);
  if (model_issues.empty() && cluster_issues.empty()) CheckParallelism(job, issues);
  if (cluster_issues.empty()) CheckNumbers(job, issues);
  if (model_issues.empty()) CheckLora(job, issues);
  CheckValidation(job, issues);
  CheckRunning(job, issues);
  issues.insert(issues.end(), cluster_issues.begin(), cluster_issues.end());
  return issues;
}

std::vector<SpecIssue> RunIssues(const JobSpec& job) {
  SpecIssues issues;
  const bool is_fp8 = job.training.mixed_precision == Precision::kFp8;
  if (is_fp8 && job.model.hidden_size % kFp8SizeUnit != 0) {
    Add(issues, "training.mixed_precision",
        absl::StrCat("fp8 would be in no product, as hidden_size ", job.model.hidden_size,
                     " is not a multiple of ", kFp8SizeUnit, "; use bf16"));
  }
  if (job.lora) {
    Add(issues, "lora.r",
        absl::StrCat(job.lora->r, " is not supported yet; leave the section lora out"));
  }
  if (FirstStepWithoutRate(job.lr_scheduler, job.training.steps) == 1) {
    Add(issues, "lr_scheduler.min_lr",
        absl::StrCat("0, which ", WordOf(job.lr_scheduler.type),
                     " falls to by step 1: the learning ",
                     "rate is 0 in every step, and nothing would be trained; use more than 0, a ",
                     "lr_scheduler.decay_steps of 2 or more, or lr_scheduler.type constant"));
  }
  Layout least = LeastLayout(job);
  if (!job.layout.pp) least.gradient_accumulation_steps = least.pp;  // some pp divides them
  for (SpecIssue& issue : EngineIssues(job.model, least)) {
    issues.push_back(std::move(issue));
  }
  return issues;
}

}  // namespace weft
