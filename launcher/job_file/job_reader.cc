#include "launcher/job_file/job_reader.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/job_file/cluster_yaml.h"
#include "launcher/job_file/data_files.h"
#include "launcher/job_file/init_weights.h"
#include "launcher/job_file/model_config.h"
#include "launcher/job_file/yaml_values.h"
#include "plan/spec/nearest.h"

namespace weft {
namespace {

// Returns where bare names of cluster profiles are looked for, best first.
std::vector<std::string> ClusterFolders(const std::string& job_folder) {
  std::vector<std::string> folders;
  folders.push_back(AbsolutePath("../clusters", job_folder));
  folders.emplace_back(WEFT_CONFIGS_DIR "/clusters");
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error)
    folders.push_back(AbsolutePath("../share/weft/clusters", self.parent_path().string()));
  return folders;
}

// PEFT's "all-linear": every linear layer of a block.
std::vector<std::string> AllLinear(ModelFamily family) {
  if (family == ModelFamily::kGpt2) return {"c_attn", "c_proj", "c_fc"};
  return {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
}

// weft's word for what other systems call a value, in lower case; `word` itself if it is none of
// theirs. No word means two things.
absl::string_view WordFor(absl::string_view word) {
  constexpr std::pair<absl::string_view, absl::string_view> kWords[] = {
      {"bfloat16", "bf16"},
      {"float16", "fp16"},
      {"float32", "fp32"},
      {"float8", "fp8"},
      {"interleaved1f1b", "interleaved_1f1b"},
      {"adamw_torch", "adamw"},
      {"adamw_torch_fused", "adamw"},
      {"adamw_bnb_8bit", "adamw_8bit"},
      {"adamw8bit", "adamw_8bit"},
  };
  for (const auto& [theirs, ours] : kWords) {
    if (word == theirs) return ours;
  }
  return word;
}

// Schedules that other systems have and weft does not.
constexpr absl::string_view kOtherSchedules =
    "zbvzerobubble zb_v interleavedzerobubble loopedbfs dualpipev dualpipe";

class JobReader {
 public:
  JobReader(const YamlNode& root, const std::string& folder, const ReadJobOptions& options,
            Issues* issues, std::vector<std::string>* notes)
      : root_(root),
        values_(root, "", issues),
        folder_(folder),
        options_(options),
        issues_(issues),
        notes_(notes) {}

  JobSpec Read() {
    ReadNaming();
    ReadModelSection();
    const YamlNode* data = root_.Find("data");
    const YamlNode none = YamlNode::Map(root_.place);
    job_.data =
        ReadData(data != nullptr && data->is_map() ? *data : none,
                 {.job_folder = folder_, .check_files = options_.check_files}, issues_, notes_);
    ReadClusterSection();
    ReadParallelism();
    ReadTraining();
    ReadOptimizer();
    ReadLora();
    ReadRunning();
    return std::move(job_);
  }

 private:
  // `parse` yields a value or says what is wrong; `refused`: known words that are not built yet.
  // However it is spelled: capitals do not count, and other systems' words are read as weft's.
  template <typename T>
  void ReadName(absl::string_view key, absl::StatusOr<T> (*parse)(absl::string_view),
                absl::string_view allowed, absl::string_view refused, T* field) {
    const std::optional<std::string> text = values_.Text(key);
    if (!text) return;
    const std::string lower = absl::AsciiStrToLower(*text);
    const absl::string_view word = WordFor(lower);
    const absl::StatusOr<T> parsed = parse(word);
    if (parsed.ok()) {
      *field = *parsed;
      if (word != lower) {
        notes_->push_back(absl::StrCat(values_.PlaceOf(key).Text(), ": ", key, ": ", *text,
                                       " is read as ", word));
      }
      return;
    }
    const std::vector<std::string> known = absl::StrSplit(refused, ' ', absl::SkipEmpty());
    const bool not_yet = std::find(known.begin(), known.end(), lower) != known.end();
    values_.Wrong(key, not_yet ? absl::StrCat(*text, " is not supported yet; use ", allowed)
                               : absl::StrCat("found ", *text, "; expected ", allowed));
  }

  void ReadNaming() {
    if (!values_.Has("job.name")) values_.Wrong("job.name", "missing; it names the run's folder");
    values_.Read("job.name", &job_.name);
    job_.output_dir = AbsolutePath(values_.Text("job.output_dir").value_or("outputs"), folder_);
  }

  void ReadModelSection() {
    const YamlNode* model = root_.Find("model");
    if (model == nullptr || !model->is_map()) {
      values_.Wrong("model", "missing; give config.json keys (model_type, n_layer, ...) or path");
      return;
    }
    if (const auto from = values_.Text("model.init_from")) {
      job_.init_from = AbsolutePath(*from, folder_);
    }
    if (MisspellsModelType()) return;
    const ModelUse use = {.refuse_dropouts = options_.to_run,
                          .is_pretrained = !job_.init_from.empty(),
                          .seq_len = SequenceLength()};
    const std::optional<std::string> path = values_.Text("model.path");
    if (path) {
      const YamlNode config =
          ReadConfigJson(AbsolutePath(*path, folder_), values_.PlaceOf("model.path"), issues_);
      if (config.is_map()) job_.model = ReadModel(*model, &config, use, issues_, notes_);
    } else if (!job_.init_from.empty() && model->Find("model_type") == nullptr) {
      const Place place = values_.PlaceOf("model.init_from");
      const YamlNode config = ReadConfigOfWeights(job_.init_from, place, issues_);
      if (config.is_map()) job_.model = ReadModel(*model, &config, use, issues_, notes_);
    } else {
      job_.model = ReadModel(*model, nullptr, use, issues_, notes_);
    }
  }

  // A wrong value gives nothing: it is refused when it is read.
  std::optional<int64_t> SequenceLength() const {
    const YamlNode* const given = values_.Node("training.seq_len");
    return given == nullptr ? std::nullopt : ParseWholeNumber(given->scalar);
  }

  // A model_type close to one that there is; what is no slip of the pen is ReadModel's to judge.
  bool MisspellsModelType() {
    const std::vector<std::string> types = {"gpt2", "llama", "mistral", "mixtral"};
    const YamlNode* type = values_.Node("model.model_type");
    if (type == nullptr || !type->is_scalar()) return false;
    const std::optional<std::string> nearest = Nearest(type->scalar, types);
    if (!nearest || std::find(types.begin(), types.end(), type->scalar) != types.end())
      return false;
    values_.Wrong("model.model_type",
                  absl::StrCat("found ", type->scalar, ", which weft does not know; did you mean ",
                               *nearest, "?"));
    return true;
  }

  void ReadClusterSection() {
    YamlNode profile = YamlNode::Scalar("cpu", values_.PlaceOf("cluster.profile"));
    if (const YamlNode* given = values_.Node("cluster.profile")) profile = *given;
    job_.cluster = ReadCluster(profile, ClusterFolders(folder_), folder_, issues_);
    values_.Read("cluster.nodes", &job_.cluster.nodes);
    const absl::string_view slots = SlotsKey(job_.cluster.device.backend);
    for (const absl::string_view key : {"cluster.slots", "cluster.gpus_per_node"}) {
      if (key != slots && values_.Has(key)) {
        values_.Wrong(key, absl::StrCat("the profile ", job_.cluster.name,
                                        " counts its workers in ", slots, "; use that key"));
      }
    }
    values_.Read(slots, &job_.cluster.slots_per_node);
    values_.Read("cluster.threads_per_worker", &job_.threads_per_worker);
    const YamlNode* env = values_.Node("cluster.env");
    if (env == nullptr) return;
    if (!env->is_map()) {
      values_.Wrong("cluster.env", absl::StrCat("found ", env->Found(), "; expected a map"));
      return;
    }
    for (const auto& [name, value] : env->entries) {
      if (value.is_scalar()) {
        job_.env[name] = value.scalar;
      } else {
        issues_->Add(value.place, absl::StrCat("cluster.env.", name),
                     absl::StrCat("found ", value.Found(), "; expected a text"));
      }
    }
  }

  template <typename T>
  void ReadNameOrAuto(absl::string_view key, absl::StatusOr<T> (*parse)(absl::string_view),
                      absl::string_view allowed, absl::string_view refused,
                      std::optional<T>* field) {
    if (!values_.Has(key) || values_.IsAuto(key)) return;
    T value = {};
    ReadName(key, parse, allowed, refused, &value);
    *field = value;
  }

  void ReadParallelism() {
    ParallelismSpec& parallelism = job_.parallelism;
    values_.ReadOrAuto("parallelism.dp", &parallelism.dp);
    if (parallelism.dp == -1) parallelism.dp.reset();  // torchtitan's "whatever is left"
    values_.ReadOrAuto("parallelism.tp", &parallelism.tp);
    values_.ReadOrAuto("parallelism.pp", &parallelism.pp);
    values_.ReadOrAuto("parallelism.cp", &parallelism.cp);
    values_.ReadOrAuto("parallelism.ep", &parallelism.ep);
    values_.ReadOrAuto("parallelism.zero_stage", &parallelism.zero_stage);
    values_.ReadOrAuto("parallelism.zero_hpz_partition_size", &parallelism.zero_group);
    if (parallelism.zero_group == 1) parallelism.zero_group = 0;  // DeepSpeed's word for "off"
    if (!values_.IsAuto("parallelism.sequence_parallel")) {
      parallelism.sequence_parallel = values_.Flag("parallelism.sequence_parallel");
    }
    ReadNameOrAuto("parallelism.pp_schedule", &ParseSchedule,
                   "auto, 1f1b, gpipe, interleaved_1f1b or zb_h1", kOtherSchedules,
                   &parallelism.pp_schedule);
    values_.ReadOrAuto("parallelism.virtual_stages", &parallelism.virtual_stages);
    ReadLayersPerStage();
    ReadRecompute();
    const std::string offload = Choice("offload.optimizer");
    if (offload == "cpu" || offload == "none") {
      job_.offload.optimizer = offload == "cpu";
    } else if (offload != "auto") {
      values_.Wrong("offload.optimizer",
                    absl::StrCat("found ", offload, "; expected auto, none or cpu"));
    }
  }

  // A list of numbers, `even`, or `auto`.
  void ReadLayersPerStage() {
    constexpr absl::string_view kKey = "parallelism.layers_per_stage";
    const YamlNode* node = values_.Node(kKey);
    if (node == nullptr || values_.IsAuto(kKey)) return;
    std::vector<int64_t> layers;
    bool sound = node->is_list() ? !node->items.empty() : node->scalar == "even";
    for (const YamlNode& item : node->items) {
      const std::optional<int64_t> number =
          item.is_scalar() && !item.quoted ? ParseWholeNumber(item.scalar) : std::nullopt;
      sound = sound && number.has_value();
      layers.push_back(number.value_or(0));
    }
    if (!sound) {
      values_.Wrong(kKey, absl::StrCat("found ", node->Found(),
                                       "; expected auto, even or a list of numbers, one a stage"));
      return;
    }
    job_.parallelism.layers_per_stage = std::move(layers);
  }

  void ReadRecompute() {
    ActivationCheckpointingSpec& checkpointing = job_.activation_checkpointing;
    constexpr absl::string_view kAllowed = "auto, none, selective or full";
    ReadNameOrAuto("activation_checkpointing.mode", &ParseRecompute, kAllowed, "",
                   &checkpointing.mode);
    constexpr absl::string_view kList = "activation_checkpointing.per_stage";
    const YamlNode* list = values_.Node(kList);
    if (list == nullptr || values_.IsAuto(kList)) return;
    bool sound = list->is_list() && !list->items.empty();
    for (const YamlNode& item : list->items) {
      const absl::StatusOr<Recompute> recompute = ParseRecompute(item.scalar);
      sound = sound && recompute.ok();
      if (recompute.ok()) checkpointing.per_stage.push_back(*recompute);
    }
    if (sound) return;
    checkpointing.per_stage.clear();
    values_.Wrong(kList, absl::StrCat("found ", list->Found(),
                                      "; expected a list of none, selective or full, one a stage"));
  }

  // The key quantises the scales of nf4 values.
  void ReadDoubleQuantization(FrozenFormat& format) {
    constexpr char kKey[] = "lora.double_quantization";
    if (!values_.Flag(kKey).value_or(false)) return;
    if (format == FrozenFormat::kNf4) {
      format = FrozenFormat::kNf4Double;
    } else if (format != FrozenFormat::kNf4Double) {
      values_.Wrong(kKey, absl::StrCat("true beside lora.quantization ", FrozenFormatName(format),
                                       ", which has no scales to quantise; use quantization nf4, "
                                       "or false"));
    }
  }

  void ReadLora() {
    const YamlNode* section = values_.Node("lora");
    if (section == nullptr || !section->is_map() || section->entries.empty()) return;
    LoraSpec lora;
    values_.Read("lora.r", &lora.r);
    lora.lora_alpha = static_cast<double>(lora.r);
    values_.Read("lora.lora_alpha", &lora.lora_alpha);
    if (values_.Has("lora.quantization")) {
      ReadName("lora.quantization", &ParseFrozenFormat, "none (bf16), int8 or nf4", "",
               &lora.quantization);
    }
    ReadDoubleQuantization(lora.quantization);
    if (const YamlNode* modules = values_.Node("lora.target_modules")) {
      lora.target_modules.clear();
      for (const YamlNode& module : modules->items) {
        std::vector<std::string>& targets = lora.target_modules;
        if (std::find(targets.begin(), targets.end(), module.scalar) == targets.end()) {
          targets.push_back(module.scalar);
        }
      }
      if (modules->is_scalar() && modules->scalar == "all-linear") {
        lora.target_modules = AllLinear(job_.model.family);
      } else if (!modules->is_list()) {
        values_.Wrong("lora.target_modules",
                      absl::StrCat("found ", modules->Found(),
                                   "; expected all-linear or a list such as [q_proj, v_proj]"));
      }
    } else if (job_.model.family == ModelFamily::kGpt2) {
      lora.target_modules = {"c_attn"};
    }
    job_.lora = std::move(lora);
  }

  void ReadTraining() {
    TrainingSpec& training = job_.training;
    if (!values_.Has("training.seq_len")) values_.Wrong("training.seq_len", "missing");
    values_.Read("training.seq_len", &training.seq_len);
    values_.ReadOrAuto("training.micro_batch_size", &training.micro_batch_size);
    values_.ReadOrAuto("training.gradient_accumulation_steps",
                       &training.gradient_accumulation_steps);
    ReadGlobalBatch();
    ReadSteps();
    values_.Read("training.gradient_clipping", &training.gradient_clipping);
    ReadName("training.mixed_precision", &ParsePrecision, "fp32, bf16, fp16 or fp8", "",
             &training.mixed_precision);
    values_.Read("training.max_consecutive_skipped_steps", &training.max_consecutive_skipped_steps);
    values_.ReadOrAuto("training.head_chunk_tokens", &training.head_chunk_tokens);
    if (const std::optional<int64_t> seed = values_.Whole("training.seed")) {
      if (*seed < 0)
        values_.Wrong("training.seed", absl::StrCat(*seed, " is negative; use 0 or more"));
      training.seed = static_cast<uint64_t>(*seed);
    }
  }

  // Any two of micro, global and accumulation fix the third: global = micro x accumulation x dp.
  void ReadGlobalBatch() {
    TrainingSpec& training = job_.training;
    constexpr absl::string_view kKey = "training.global_batch_size";
    if (values_.IsAuto(kKey)) {
      values_.Wrong(kKey, "auto is not possible: it is mathematics, not execution; give a number");
    } else if (values_.Has(kKey)) {
      values_.Read(kKey, &training.global_batch_size);
    } else if (!training.micro_batch_size || !training.gradient_accumulation_steps) {
      values_.Wrong(kKey,
                    "missing; give it, or both micro_batch_size and gradient_accumulation_steps");
    } else if (!job_.parallelism.dp) {
      values_.Wrong(kKey,
                    "missing; with parallelism.dp auto it cannot follow from micro_batch_size x "
                    "gradient_accumulation_steps x dp; give it, or fix parallelism.dp");
    } else {
      // Bounded before they are multiplied; Validate judges what is too large.
      constexpr int64_t kMost = int64_t{1} << 20;
      training.global_batch_size =
          std::clamp<int64_t>(*training.micro_batch_size, 0, kMost) *
          std::clamp<int64_t>(*training.gradient_accumulation_steps, 0, kMost) *
          std::clamp<int64_t>(*job_.parallelism.dp, 0, kMost);
    }
  }

  void ReadSteps() {
    TrainingSpec& training = job_.training;
    const bool steps = values_.Has("training.steps");
    const bool tokens = values_.Has("training.tokens");
    if (!steps && !tokens) values_.Wrong("training.steps", "missing; give it, or training.tokens");
    if (steps && tokens) {
      values_.Wrong("training.tokens", absl::StrCat("stands beside training.steps of ",
                                                    values_.PlaceOf("training.steps").Text(),
                                                    "; keep one of the two"));
    }
    values_.Read("training.steps", &training.steps);
    const std::optional<int64_t> wanted = values_.Whole("training.tokens");
    const int64_t batch = std::clamp<int64_t>(training.global_batch_size, 0, 1 << 24);
    const int64_t per_step = batch * std::clamp<int64_t>(training.seq_len, 0, 1 << 24);
    if (steps || !wanted || per_step <= 0) return;
    training.steps = *wanted / per_step + (*wanted % per_step > 0 ? 1 : 0);
    notes_->push_back(absl::StrCat(values_.PlaceOf("training.tokens").Text(),
                                   ": training.tokens: ", *wanted, " is ", training.steps,
                                   " steps of ", per_step, " tokens"));
  }

  void ReadOptimizer() {
    OptimizerSpec& optimizer = job_.optimizer;
    ReadName("optimizer.name", &ParseOptimizer, "adamw, sgd, adamw_8bit, lion or adafactor",
             "adam muon", &optimizer.name);
    values_.Read("optimizer.lr", &optimizer.lr);
    values_.Read("optimizer.eps", &optimizer.eps);
    values_.Read("optimizer.weight_decay", &optimizer.weight_decay);
    values_.Read("optimizer.momentum", &optimizer.momentum);
    values_.Read("optimizer.dampening", &optimizer.dampening);
    optimizer.nesterov = values_.Flag("optimizer.nesterov").value_or(false);
    values_.Read("optimizer.decay_rate", &optimizer.decay_rate);
    values_.Read("optimizer.clip_threshold", &optimizer.clip_threshold);
    optimizer.scale_parameter = values_.Flag("optimizer.scale_parameter").value_or(false);
    ReadParamGroups();
    if (const YamlNode* betas = values_.Node("optimizer.betas")) {
      const bool two = betas->is_list() && betas->items.size() == 2 &&
                       betas->items[0].is_scalar() && betas->items[1].is_scalar();
      const std::optional<double> first = two ? ParseNumber(betas->items[0].scalar) : std::nullopt;
      const std::optional<double> second = two ? ParseNumber(betas->items[1].scalar) : std::nullopt;
      if (first && second) {
        optimizer.beta1 = *first;
        optimizer.beta2 = *second;
      } else {
        values_.Wrong("optimizer.betas", absl::StrCat("found ", betas->Found(),
                                                      "; expected two numbers: [0.9, 0.95]"));
      }
    }
    ReadName("lr_scheduler.type", &ParseLrSchedule, "constant, linear or cosine", "wsd",
             &job_.lr_scheduler.type);
    values_.Read("lr_scheduler.warmup_steps", &job_.lr_scheduler.warmup_steps);
    values_.Read("lr_scheduler.decay_steps", &job_.lr_scheduler.decay_steps);
    values_.Read("lr_scheduler.min_lr", &job_.lr_scheduler.min_lr);
  }

  // A list of {params: [patterns], weight_decay: number}.
  void ReadParamGroups() {
    constexpr absl::string_view kKey = "optimizer.param_groups";
    constexpr absl::string_view kForm =
        "expected a list of groups: [{params: [\"*.bias\"], weight_decay: 0}]";
    const YamlNode* list = values_.Node(kKey);
    if (list == nullptr) return;
    if (!list->is_list()) {
      values_.Wrong(kKey, absl::StrCat("found ", list->Found(), "; ", kForm));
      return;
    }
    for (const YamlNode& item : list->items) {
      const YamlNode* params = item.Find("params");
      const YamlNode* decay = item.Find("weight_decay");
      const std::optional<double> number =
          decay != nullptr && decay->is_scalar() ? ParseNumber(decay->scalar) : std::nullopt;
      if (item.entries.size() != 2 || params == nullptr || !params->is_list() || !number) {
        issues_->Add(item.place, std::string(kKey),
                     absl::StrCat("found ", item.Found(), "; ", kForm));
        continue;
      }
      ParamGroup group;
      group.weight_decay = *number;
      for (const YamlNode& pattern : params->items) group.params.push_back(pattern.scalar);
      job_.optimizer.param_groups.push_back(std::move(group));
    }
  }

  // A word, "auto" if it is not given.
  std::string Choice(absl::string_view key) const {
    return values_.IsAuto(key) ? "auto" : values_.Text(key).value_or("auto");
  }

  void ReadRunning() {
    CheckpointSpec& checkpoint = job_.checkpoint;
    values_.Read("checkpoint.folder", &checkpoint.folder);
    const YamlNode* interval = values_.Node("checkpoint.interval");
    if (interval != nullptr && interval->is_scalar() && !interval->scalar.empty() &&
        !ParseNumber(interval->scalar) &&
        ParseNumber(interval->scalar.substr(0, interval->scalar.size() - 1))) {
      values_.Wrong("checkpoint.interval",
                    absl::StrCat("a duration (", interval->scalar,
                                 ") is not supported yet; use a number of steps, or auto"));
    } else {
      std::optional<int64_t> steps;
      values_.ReadOrAuto("checkpoint.interval", &steps);
      checkpoint.interval = steps.value_or(0);  // auto: until JobFile::SettleInterval
    }
    values_.Read("checkpoint.keep_latest_k", &checkpoint.keep_latest_k);
    const std::string resume = Choice("checkpoint.resume");
    checkpoint.resume = resume == "none" ? ResumeMode::kNone : ResumeMode::kAuto;
    if (resume != "none" && resume != "auto") {
      values_.Wrong("checkpoint.resume",
                    absl::StrCat(resume, " is not supported yet; use auto or none"));
    }
    values_.Read("fault_tolerance.max_restarts", &job_.fault_tolerance.max_restarts);
    values_.Read("fault_tolerance.heartbeat_timeout_seconds",
                 &job_.fault_tolerance.heartbeat_timeout_seconds);
    values_.Read("fp16.loss_scale", &job_.fp16.loss_scale);
    values_.Read("fp16.initial_scale_power", &job_.fp16.initial_scale_power);
    values_.Read("fp16.loss_scale_window", &job_.fp16.loss_scale_window);
    values_.Read("fp16.hysteresis", &job_.fp16.hysteresis);
    values_.Read("fp16.min_loss_scale", &job_.fp16.min_loss_scale);
    values_.Read("comm.init_timeout_seconds", &job_.comm.init_timeout_seconds);
    values_.Read("comm.train_timeout_seconds", &job_.comm.train_timeout_seconds);
    values_.Read("validation.interval", &job_.validation.interval);
    values_.Read("validation.steps", &job_.validation.steps);
    values_.Read("metrics.log_freq", &job_.log_freq);
    int64_t profiler_freq = 100;
    values_.Read("profiler.freq", &profiler_freq);
    if (values_.Flag("profiler.enable").value_or(false)) {
      if (profiler_freq < 1) {
        values_.Wrong("profiler.freq",
                      absl::StrCat(profiler_freq, " is not an interval; use 1 or more"));
      }
      job_.profiler_freq = profiler_freq;
    }
    job_.deterministic = values_.Flag("deterministic").value_or(false);
  }

  const YamlNode& root_;
  YamlValues values_;
  std::string folder_;
  const ReadJobOptions options_;
  Issues* issues_;
  std::vector<std::string>* notes_;
  JobSpec job_;
};

}  // namespace

JobSpec ReadJob(const YamlNode& root, const std::string& folder, const ReadJobOptions& options,
                Issues* issues, std::vector<std::string>* notes) {
  return JobReader(root, folder, options, issues, notes).Read();
}

}  // namespace weft
