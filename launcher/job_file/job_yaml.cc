#include "launcher/job_file/job_yaml.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "data/sampling.h"
#include "data/whole_file.h"
#include "launcher/job_file/init_weights.h"
#include "launcher/job_file/job_reader.h"
#include "launcher/job_file/run_paths.h"
#include "launcher/job_file/yaml_tree.h"
#include "plan/errors.h"
#include "plan/explain/explain.h"
#include "plan/keys/job_keys.h"
#include "plan/keys/job_rules.h"
#include "plan/keys/key_names.h"
#include "plan/keys/value_reader.h"
#include "plan/spec/learning_rate.h"

namespace weft {
namespace {

constexpr int64_t kMostGuessedSlots = 4096;  // of a host

std::string FolderOf(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return absolute.parent_path().lexically_normal().string();
}

// Puts the value of each --set into the tree, under weft's own name of the key.
void ApplySets(const std::vector<std::string>& sets, Value* root, Issues* issues,
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
    std::optional<Value> value = ParseYamlValue(set.substr(equals + 1), place, issues);
    if (!value) continue;
    if (!root->Put(key, *std::move(value))) {
      issues->Add(place, given, "a part of this key is not a section of the job file");
    }
  }
}

// Puts what --cluster and --nodes say in place of the whole of the job's own cluster, whose counts
// belong to it. A --set may then change the rest, but say nothing twice.
void ReplaceCluster(const JobFileOptions& options, Value* root, Issues* issues) {
  if (!options.cluster && !options.nodes) return;
  const Place place{options.cluster ? absl::StrCat("--cluster ", *options.cluster)
                                    : absl::StrCat("--nodes ", *options.nodes),
                    static_cast<int>(options.sets.size()) + 1, 0};
  for (const std::string& set : options.sets) {
    const std::string key = CanonicalKey(set.substr(0, set.find('=')));
    const bool twice = key == "cluster" || (key == "cluster.nodes" && options.nodes) ||
                       (key == "cluster.profile" && options.cluster);
    if (twice) issues->Add(place, key, absl::StrCat("--set ", set, " says it too; keep one"));
  }
  Value* cluster = root->Find("cluster");
  if (cluster == nullptr || !cluster->is_map()) {
    root->Remove("cluster");
    root->entries.push_back({"cluster", Value::Map(place)});
    cluster = &root->entries.back().node;
  }
  const auto put = [&](absl::string_view key, const std::string& value) {
    cluster->Remove(key);
    cluster->entries.push_back({std::string(key), Value::Scalar(value, place)});
  };
  if (options.cluster && options.cluster->empty()) {
    issues->Add(place, "", "is empty; name a profile of configs/clusters, or a file");
  } else if (options.cluster) {
    for (const char* key : {"nodes", "slots", "gpus_per_node"}) cluster->Remove(key);
    const std::string& given = *options.cluster;
    const bool is_path = absl::StrContains(given, '/') || absl::EndsWith(given, ".yaml");
    std::error_code error;
    put("profile", is_path ? std::filesystem::absolute(given, error).string() : given);
  }
  if (options.nodes) put("nodes", absl::StrCat(*options.nodes));
}

// Spares are named, too, but the job is not planned for them.
void TakeNamedHosts(const JobFileOptions& options, const Value& root, JobFile* file) {
  JobSpec* const job = &file->job;
  if (options.named_hosts > 0 && root.FindPath("cluster.nodes") == nullptr) {
    job->cluster.nodes = std::max(1, options.named_hosts - job->hosts.spares);
  }
  const std::string slots_key(SlotsKey(job->cluster.device.backend));
  if (options.named_hosts == 0) return;
  if (root.FindPath(slots_key) != nullptr) {
    int& said = job->cluster.slots_per_node;
    if (options.named_slots == 0 || options.named_slots >= said) return;
    file->notes.push_back(absl::StrCat(slots_key, ": ", options.named_slots, " in place of ", said,
                                       "; one of the named hosts has no more"));
    said = options.named_slots;
    return;
  }
  file->slots_as_offered = options.unsaid_slots;
  if (options.named_slots > 0) {
    job->cluster.slots_per_node = options.named_slots;
  } else if (const LayoutSpec& asked = job->layout; asked.dp && asked.tp && asked.pp) {
    // A layout that is fixed needs so many; whether agents have them turns out when they come.
    const int64_t ranks = int64_t{*asked.dp} * *asked.tp * *asked.pp * asked.cp.value_or(1);
    const int64_t each = (ranks + job->cluster.nodes - 1) / job->cluster.nodes;
    int& guess = job->cluster.slots_per_node;
    guess = std::max(guess, static_cast<int>(std::min(each, kMostGuessedSlots)));
  }
}

// A validation that reads sequences of the held-out data more than once counts them more than once.
void NoteRepeats(const JobSpec& job, int64_t held_out, std::vector<std::string>* notes) {
  const int64_t batch = job.training.global_batch_size;
  if (job.validation.interval == 0 || job.validation.steps <= held_out / batch) return;
  notes->push_back(absl::StrCat(
      "validation.steps: ", job.validation.steps, " batches of training.global_batch_size ", batch,
      " are more than the ", held_out, " held-out sequences; reading begins anew where they end",
      held_out < batch ? ""
                       : absl::StrCat(", steps: ", held_out / batch, " would read each once")));
}

// Who names what parts documents may take it for what keeps them apart.
void NoteCrossedDocuments(const DataSpec& data, std::vector<std::string>* notes) {
  const bool has_marks = data.bos_token_id || data.eos_token_id;
  if (!has_marks || data.reset_attention_mask) return;
  notes->push_back(absl::StrCat(
      data.eos_token_id ? "data.eos_token_id" : "data.bos_token_id",
      ": stands between documents, and attention crosses it; data.reset_attention_mask true keeps "
      "each document to itself"));
}

// Steps at the end whose learning rate is 0 change nothing.
void NoteStepsWithoutRate(const JobSpec& job, std::vector<std::string>* notes) {
  const int64_t steps = job.training.steps;
  const std::optional<int64_t> first = FirstStepWithoutRate(job.lr_scheduler, steps);
  if (!first) return;
  const std::string which = *first == steps ? absl::StrCat("step ", steps, ", the last, is")
                                            : absl::StrCat("steps ", *first, " to ", steps, " is");
  notes->push_back(absl::StrCat("lr_scheduler.min_lr: the learning rate of ", which,
                                " 0, which changes nothing; ", "lr_scheduler.decay_steps ",
                                steps + 1, " or a min_lr above 0 trains to the end"));
}

// The data as the workers will open it: headers, sizes, windows. Held out or not, each is looked
// at.
void CheckData(const JobSpec& job, const Value& root, Issues* issues,
               std::vector<std::string>* notes) {
  const ValueReader values(root, "", issues);
  const auto open = [&](bool train, absl::string_view key) -> std::optional<Dataset> {
    absl::StatusOr<Dataset> data = Dataset::Open(job, train);
    if (data.ok()) return *std::move(data);
    // Some messages name their key themselves.
    absl::string_view message = data.status().message();
    for (const absl::string_view own : {"data.train", "data.valid", "data.split"}) {
      if (absl::ConsumePrefix(&message, absl::StrCat(own, ": "))) key = own;
    }
    values.Wrong(key, message);
    return std::nullopt;
  };
  if (!open(true, "data.train")) return;
  if (job.data.valid.empty() && job.data.split == 0) return;
  const auto held_out = open(false, job.data.valid.empty() ? "data.split" : "data.valid");
  if (held_out) NoteRepeats(job, held_out->windows(), notes);
}

// Rules that the values break, but not those that follow from an issue already found.
void AddBrokenRules(const std::vector<SpecIssue>& broken, const Value& root, Issues* issues) {
  const std::vector<Issue> found = issues->all();
  const ValueReader values(root, "", issues);
  for (const SpecIssue& issue : broken) {
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

std::string JobFile::SettleInterval(const Plan& plan) {
  if (job.checkpoint.interval) return "";
  job.checkpoint.interval = BillOf(job, plan).best_interval_steps;
  return absl::StrCat("checkpoint.interval: auto: ", SavesText(job, plan));
}

std::string JobFile::Locate(absl::string_view message) const {
  const size_t colon = message.find(": ");
  if (colon == absl::string_view::npos) return absl::StrCat(message);
  const absl::string_view key = message.substr(0, colon);
  const std::vector<std::string>& sections = JobSections();
  const std::string section(key.substr(0, key.find('.')));
  if (absl::StrContains(key, ' ') ||
      std::find(sections.begin(), sections.end(), section) == sections.end()) {
    return absl::StrCat(path, ": ", message);
  }
  Issues none;
  return absl::StrCat(ValueReader(tree, "", &none).PlaceOf(key).Text(), ": ", message);
}

absl::StatusOr<JobFile> ReadJobText(const std::string& text, const std::string& path,
                                    const JobFileOptions& options) {
  Issues issues;
  JobFile file;
  file.path = path;
  const Place top{path, 0, 1};
  std::optional<Value> tree = ParseYaml(text, path, 0, &issues);
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
  ReplaceCluster(options, &*tree, &issues);
  ApplySets(options.sets, &*tree, &issues, &file.notes);
  CheckKeys(*tree, &issues);
  ReadJobResult read =
      ReadJob(*tree, FolderOf(path),
              {options.check_files, options.to_run, options.on_tokens, options.token_threads},
              &issues, &file.notes);
  file.job = std::move(read.job);
  file.has_tokens = read.has_tokens;
  file.has_steps = read.has_steps;
  TakeNamedHosts(options, *tree, &file);
  AddBrokenRules(Validate(file.job), *tree, &issues);
  if (options.to_run && CheckModel(file.job.model).ok()) {
    AddBrokenRules(RunIssues(file.job), *tree, &issues);
  }
  if (issues.empty() && options.check_files) {
    if (read.has_tokens) CheckData(file.job, *tree, &issues, &file.notes);
    CheckInitWeights(file.job, options.fresh, *tree, &issues, &file.notes);
  }
  if (!issues.empty()) return absl::InvalidArgumentError(issues.Text());
  if (options.to_run && tree->Find("resolved") == nullptr) {
    NoteStepsWithoutRate(file.job, &file.notes);
    NoteCrossedDocuments(file.job.data, &file.notes);
  }
  file.tree = *std::move(tree);
  return file;
}

absl::StatusOr<JobFile> ReadJobFile(const std::string& path, const JobFileOptions& options) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is a folder; name the job file, for example ", path, "/job.yaml"));
  }
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMostSpecBytes));
  return ReadJobText(text, path, options);
}

}  // namespace weft
