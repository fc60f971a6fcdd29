#include "launcher/job_yaml.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "data/sampling.h"
#include "launcher/cluster_yaml.h"
#include "launcher/data_files.h"
#include "launcher/job_keys.h"
#include "launcher/model_config.h"
#include "launcher/yaml_values.h"

namespace weft {
namespace {

constexpr int64_t kMaxFileBytes = 1 << 20;

// Absolute, of a path that is relative to `folder`; one spelling of each, so without a slash at the
// end (`output_dir: .`): a run's id is made of it.
std::string Absolute(const std::string& path, const std::string& folder) {
  std::filesystem::path result(path);
  if (result.is_relative()) result = std::filesystem::path(folder) / result;
  std::string text = result.lexically_normal().string();
  if (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

std::string FolderOf(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return absolute.parent_path().lexically_normal().string();
}

// Puts the value of each --set into the tree, under weft's own name of the key.
void ApplySets(const std::vector<std::string>& sets, YamlNode* root, Issues* issues,
               std::vector<std::string>* notes) {
  int order = 0;
  for (const std::string& set : sets) {
    const Place place{absl::StrCat("--set ", set), ++order, 0};
    const size_t equals = set.find('=');
    if (equals == std::string::npos || equals == 0) {
      issues->Add(place, "", "expected key=value, for example --set training.steps=100");
      continue;
    }
    const std::string given = set.substr(0, equals);
    const std::string key = CanonicalKey(given);
    if (key != given) notes->push_back(absl::StrCat(place.Text(), ": read as ", key));
    std::optional<YamlNode> value = ParseYamlValue(set.substr(equals + 1), place, issues);
    if (!value) continue;
    YamlNode* map = root;
    const std::vector<std::string> parts = absl::StrSplit(key, '.');
    for (size_t i = 0; i + 1 < parts.size() && map != nullptr; ++i) {
      YamlNode* next = map->Find(parts[i]);
      if (next == nullptr) {
        map->entries.push_back({parts[i], YamlNode::Map(place)});
        next = &map->entries.back().node;
      }
      if (next->is_null()) next->kind = YamlNode::Kind::kMap;
      map = next->is_map() ? next : nullptr;
    }
    if (map == nullptr) {
      issues->Add(place, given, "a part of this key is no section in the job file");
      continue;
    }
    map->Remove(parts.back());
    map->entries.push_back({parts.back(), *std::move(value)});
  }
}

class JobReader {
 public:
  JobReader(const YamlNode& root, const std::string& folder, const JobFileOptions& options,
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
    ReadRunning();
    return std::move(job_);
  }

 private:
  // `parse` yields a value or says what is wrong; `refused`: known words that are not built yet.
  template <typename T>
  void ReadName(absl::string_view key, absl::StatusOr<T> (*parse)(absl::string_view),
                absl::string_view allowed, absl::string_view refused, T* field) {
    const std::optional<std::string> text = values_.Text(key);
    if (!text) return;
    const absl::StatusOr<T> parsed = parse(*text);
    if (parsed.ok()) {
      *field = *parsed;
      return;
    }
    const std::vector<std::string> known = absl::StrSplit(refused, ' ', absl::SkipEmpty());
    const bool not_yet = std::find(known.begin(), known.end(), *text) != known.end();
    values_.Wrong(key, not_yet ? absl::StrCat(*text, " is not supported yet; use ", allowed)
                               : absl::StrCat("found ", *text, "; expected ", allowed));
  }

  void ReadNaming() {
    if (!values_.Has("job.name")) values_.Wrong("job.name", "missing; it names the run's folder");
    values_.Read("job.name", &job_.name);
    job_.output_dir = Absolute(values_.Text("job.output_dir").value_or("outputs"), folder_);
  }

  void ReadModelSection() {
    const YamlNode* model = root_.Find("model");
    if (model == nullptr || !model->is_map()) {
      values_.Wrong("model", "missing; give config.json keys (model_type, n_layer, ...) or path");
      return;
    }
    const std::optional<std::string> path = values_.Text("model.path");
    if (!path) {
      job_.model = ReadModel(*model, nullptr, issues_, notes_);
      return;
    }
    const YamlNode config =
        ReadConfigJson(Absolute(*path, folder_), values_.PlaceOf("model.path"), issues_);
    if (config.is_map()) job_.model = ReadModel(*model, &config, issues_, notes_);
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

  void ReadParallelism() {
    ParallelismSpec& parallelism = job_.parallelism;
    values_.ReadOrAuto("parallelism.dp", &parallelism.dp);
    if (parallelism.dp == -1) parallelism.dp.reset();  // torchtitan's "whatever is left"
    values_.ReadOrAuto("parallelism.tp", &parallelism.tp);
    values_.ReadOrAuto("parallelism.pp", &parallelism.pp);
    if (!values_.Has("parallelism.pp_schedule") || values_.IsAuto("parallelism.pp_schedule"))
      return;
    ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;
    ReadName("parallelism.pp_schedule", &ParseSchedule, "auto, 1f1b or gpipe",
             "interleaved_1f1b zb_h1", &schedule);
    parallelism.pp_schedule = schedule;
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
    ReadName("optimizer.name", &ParseOptimizer, "adamw or sgd", "adam adafactor lion muon",
             &optimizer.name);
    values_.Read("optimizer.lr", &optimizer.lr);
    values_.Read("optimizer.eps", &optimizer.eps);
    values_.Read("optimizer.weight_decay", &optimizer.weight_decay);
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

  void ReadRunning() {
    CheckpointSpec& checkpoint = job_.checkpoint;
    values_.Read("checkpoint.folder", &checkpoint.folder);
    const YamlNode* interval = values_.Node("checkpoint.interval");
    if (interval != nullptr && interval->is_scalar() && !interval->scalar.empty() &&
        !ParseNumber(interval->scalar) &&
        ParseNumber(interval->scalar.substr(0, interval->scalar.size() - 1))) {
      values_.Wrong("checkpoint.interval",
                    absl::StrCat("a duration (", interval->scalar,
                                 ") is not supported yet; use a number of steps"));
    } else {
      values_.Read("checkpoint.interval", &checkpoint.interval);
    }
    values_.Read("checkpoint.keep_latest_k", &checkpoint.keep_latest_k);
    const std::string resume = values_.Text("checkpoint.resume").value_or("auto");
    checkpoint.resume = resume == "none" ? ResumeMode::kNone : ResumeMode::kAuto;
    if (resume != "none" && resume != "auto") {
      values_.Wrong("checkpoint.resume",
                    absl::StrCat(resume, " is not supported yet; use auto or none"));
    }
    values_.Read("fault_tolerance.max_restarts", &job_.fault_tolerance.max_restarts);
    values_.Read("fault_tolerance.heartbeat_timeout_seconds",
                 &job_.fault_tolerance.heartbeat_timeout_seconds);
    values_.Read("comm.init_timeout_seconds", &job_.comm.init_timeout_seconds);
    values_.Read("comm.train_timeout_seconds", &job_.comm.train_timeout_seconds);
    values_.Read("validation.interval", &job_.validation.interval);
    values_.Read("validation.steps", &job_.validation.steps);
    values_.Read("metrics.log_freq", &job_.log_freq);
    const bool deterministic = values_.Flag("deterministic").value_or(false);
    if (deterministic && job_.cluster.device.backend == BackendKind::kCuda) {
      values_.Wrong("deterministic", "true is not supported yet on GPUs; use false");
    }
  }

  const YamlNode& root_;
  YamlValues values_;
  std::string folder_;
  const JobFileOptions& options_;
  Issues* issues_;
  std::vector<std::string>* notes_;
  JobSpec job_;
};

// The data as the workers will open it: headers, sizes, windows. Held out or not, each is looked
// at.
void CheckData(const JobSpec& job, const YamlNode& root, Issues* issues) {
  const YamlValues values(root, "", issues);
  const auto check = [&](bool train, absl::string_view key) {
    const absl::Status status = Dataset::Open(job, train).status();
    if (status.ok()) return true;
    // Some messages name their key themselves.
    absl::string_view message = status.message();
    for (const absl::string_view own : {"data.train", "data.valid", "data.split"}) {
      if (absl::ConsumePrefix(&message, absl::StrCat(own, ": "))) key = own;
    }
    values.Wrong(key, message);
    return false;
  };
  if (!check(true, "data.train")) return;
  if (!job.data.valid.empty() || job.data.split > 0) {
    check(false, job.data.valid.empty() ? "data.split" : "data.valid");
  }
}

// Rules that the values break, but not those that follow from an issue already found.
void AddBrokenRules(const JobSpec& job, const YamlNode& root, Issues* issues) {
  const std::vector<Issue> found = issues->all();
  const YamlValues values(root, "", issues);
  for (const SpecIssue& issue : Validate(job)) {
    const std::string section = issue.key.substr(0, issue.key.find('.'));
    const bool follows = std::any_of(found.begin(), found.end(), [&](const Issue& before) {
      const bool whole_section = section == "model" || section == "cluster" || section == "data";
      return before.key == issue.key || before.key == section ||
             (whole_section && absl::StartsWith(before.key, section + ".")) ||
             (section == "cluster" && before.place.source != root.place.source);
    });
    if (!follows) values.Wrong(issue.key, issue.message);
  }
}

}  // namespace

std::string JobFile::Locate(absl::string_view message) const {
  const size_t colon = message.find(": ");
  if (colon == absl::string_view::npos) return absl::StrCat(message);
  const absl::string_view key = message.substr(0, colon);
  const std::vector<std::string> sections = JobSections();
  const std::string section(key.substr(0, key.find('.')));
  if (absl::StrContains(key, ' ') ||
      std::find(sections.begin(), sections.end(), section) == sections.end()) {
    return absl::StrCat(path, ": ", message);
  }
  Issues none;
  return absl::StrCat(YamlValues(tree, "", &none).PlaceOf(key).Text(), ": ", message);
}

std::vector<std::string> ClusterFolders(const std::string& job_folder) {
  std::vector<std::string> folders;
  folders.push_back(Absolute("../clusters", job_folder));
  folders.emplace_back(WEFT_CONFIGS_DIR "/clusters");
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) folders.push_back(Absolute("../share/weft/clusters", self.parent_path().string()));
  return folders;
}

absl::StatusOr<JobFile> ReadJobText(const std::string& text, const std::string& path,
                                    const JobFileOptions& options) {
  Issues issues;
  JobFile file;
  file.path = path;
  const Place top{path, 0, 1};
  std::optional<YamlNode> tree = ParseYaml(text, path, 0, &issues);
  if (!tree) return absl::InvalidArgumentError(issues.Text());
  if (tree->is_null()) {
    issues.Add(top, "", "is empty; a job file needs at least job, model, data and training");
    return absl::InvalidArgumentError(issues.Text());
  }
  if (!tree->is_map()) {
    issues.Add(top, "",
               absl::StrCat("not a job file: found ", tree->Found(),
                            "; expected sections (job, model, data, training, ...)"));
    return absl::InvalidArgumentError(issues.Text());
  }
  tree->place = top;
  RenameAliases(&*tree, &issues, &file.notes);
  ApplySets(options.sets, &*tree, &issues, &file.notes);
  CheckKnownKeys(*tree, &issues);
  CheckBuiltKeys(*tree, &issues);
  file.job = JobReader(*tree, FolderOf(path), options, &issues, &file.notes).Read();
  AddBrokenRules(file.job, *tree, &issues);
  if (issues.empty() && options.check_files) CheckData(file.job, *tree, &issues);
  if (!issues.empty()) return absl::InvalidArgumentError(issues.Text());
  file.tree = *std::move(tree);
  return file;
}

absl::StatusOr<JobFile> ReadJobFile(const std::string& path, const JobFileOptions& options) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": cannot read the job file: ", std::strerror(errno)));
  }
  if (S_ISDIR(status.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is a folder; name the job file, for example ", path, "/job.yaml"));
  }
  if (!S_ISREG(status.st_mode) && !S_ISFIFO(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a file; name a job file"));
  }
  if (status.st_size > kMaxFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", status.st_size, " bytes is too large for a job file; at most ", kMaxFileBytes));
  }
  std::ifstream stream(path, std::ios::binary);
  std::stringstream text;
  if (stream) text << stream.rdbuf();
  if (!stream || stream.bad()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": cannot read the job file: ", std::strerror(errno)));
  }
  return ReadJobText(text.str(), path, options);
}

}  // namespace weft
