#include "launcher/job_file/job_reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/job_file/cluster_yaml.h"
#include "launcher/job_file/data_files.h"
#include "launcher/job_file/init_weights.h"
#include "launcher/job_file/model_config.h"
#include "launcher/job_file/run_paths.h"
#include "launcher/job_file/text_data.h"
#include "plan/keys/job_tree.h"
#include "plan/keys/model_keys.h"
#include "plan/keys/value_reader.h"

namespace weft {
namespace {

// Settles what only this machine knows: files, folders, profiles.
class JobReader {
 public:
  JobReader(const Value& root, const std::string& folder, const ReadJobOptions& options,
            Issues* issues, std::vector<std::string>* notes)
      : root_(root),
        values_(root, "", issues),
        folder_(folder),
        options_(options),
        issues_(issues),
        notes_(notes) {}

  ReadJobResult Read() {
    Value settled = root_;
    const auto put_path = [&](absl::string_view key, const std::string& path) {
      Value value = Value::Text(AbsolutePath(path, folder_));
      value.place = values_.PlaceOf(key);
      settled.Put(key, std::move(value));
    };
    put_path("job.output_dir", values_.Text("job.output_dir").value_or("outputs"));
    if (const auto from = ModelPathAt(values_, "model.init_from", folder_)) {
      put_path("model.init_from", *from);
    }
    ReadModelSection();
    const bool has_tokens = SettleData(&settled);
    const bool counts_epochs = PutStepsOfEpochs(values_, &settled);
    ReadJobResult result{ReadJobKeys(settled, std::move(model_), ReadProfile(), issues_, notes_),
                         has_tokens};
    if (counts_epochs && issues_->empty()) {
      result.has_steps =
          SettleEpochs(values_, has_tokens && options_.check_files, &result.job, notes_);
    }
    return result;
  }

 private:
  bool SettleData(Value* settled) {
    const Value* given = root_.Find("data");
    const std::string tokenizer = TokenizerOf(values_, folder_);
    Value data = SettledData(given != nullptr && given->is_map() ? *given : Value::Map(root_.place),
                             {.job_folder = folder_,
                              .check_files = options_.check_files,
                              .has_tokenizer = !tokenizer.empty()},
                             issues_, notes_);
    const TextDataOptions texts = {.job_folder = folder_,
                                   .tokenizer = tokenizer,
                                   .vocab_size = model_.vocab_size,
                                   .check_files = options_.check_files,
                                   .may_work = options_.on_tokens != nullptr,
                                   .on_tokens = options_.on_tokens,
                                   .threads = options_.token_threads};
    const bool has_tokens = TokeniseData(texts, values_, &data, issues_, notes_);
    settled->Put("data", std::move(data));
    return has_tokens;
  }

  void ReadModelSection() {
    const Value* model = root_.Find("model");
    if (model == nullptr || !model->is_map()) {
      values_.Wrong("model", "missing; give config.json keys (model_type, n_layer, ...) or path");
      return;
    }
    const std::optional<std::string> from = ModelPathAt(values_, "model.init_from", folder_);
    const ModelUse use = {.refuse_dropouts = options_.to_run, .is_pretrained = from.has_value()};
    const std::optional<std::string> path = ModelPathAt(values_, "model.path", folder_);
    // Keys of its own make do without the folder, which a run that goes on may have no more.
    const bool needs_from = !path && from && model->Find("model_type") == nullptr;
    if (path ? !CheckModelAt(values_, "model.path", folder_)
             : needs_from && !CheckModelAt(values_, "model.init_from", folder_)) {
      return;
    }
    if (path) {
      const Value config = ReadConfigJson(*path, values_.PlaceOf("model.path"), issues_);
      if (config.is_map()) model_ = ReadModel(*model, &config, use, issues_, notes_);
    } else if (needs_from) {
      const Place place = values_.PlaceOf("model.init_from");
      const Value config = ReadConfigOfWeights(*from, place, issues_);
      if (config.is_map()) model_ = ReadModel(*model, &config, use, issues_, notes_);
    } else {
      model_ = ReadModel(*model, nullptr, use, issues_, notes_);
    }
  }

  Cluster ReadProfile() {
    Value profile = Value::Scalar("cpu", values_.PlaceOf("cluster.profile"));
    if (const Value* given = values_.Node("cluster.profile")) profile = *given;
    return ReadCluster(profile, ClusterFolders(folder_), folder_, issues_);
  }

  const Value& root_;
  ValueReader values_;
  std::string folder_;
  const ReadJobOptions options_;
  Issues* issues_;
  std::vector<std::string>* notes_;
  ModelShape model_;
};

}  // namespace

ReadJobResult ReadJob(const Value& root, const std::string& folder, const ReadJobOptions& options,
                      Issues* issues, std::vector<std::string>* notes) {
  return JobReader(root, folder, options, issues, notes).Read();
}

}  // namespace weft
