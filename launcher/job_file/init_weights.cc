#include "launcher/job_file/init_weights.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/manifest.h"
#include "checkpoint/verify.h"
#include "checkpoint/weights_reader.h"
#include "launcher/job_file/hub_cache.h"
#include "launcher/job_file/model_config.h"
#include "launcher/job_file/run_paths.h"
#include "launcher/job_file/yaml_tree.h"
#include "plan/keys/model_keys.h"
#include "plan/keys/rope_keys.h"
#include "plan/keys/span_keys.h"
#include "plan/keys/value_reader.h"
#include "plan/keys/value_text.h"
#include "plan/spec/layout_rules.h"

namespace weft {
namespace {

constexpr char kKey[] = "model.init_from";

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// Returns why a folder holds no weights, for people; empty if it may hold some.
std::string WhyNoWeights(const std::string& folder) {
  if (!Exists(folder)) return absl::StrCat("no such folder: ", folder);
  for (const std::string& checkpoints : {folder, folder + "/checkpoint"}) {
    const absl::StatusOr<std::vector<int64_t>> steps = CommittedSteps(checkpoints);
    if (!steps.ok() || steps->empty()) continue;
    return absl::StrCat(
        folder, " holds checkpoints; name one of them: ", StepFolder(checkpoints, steps->front()));
  }
  return "";
}

// Says whether `inner` is `outer` or lies in it, links followed.
bool LiesIn(const std::string& inner, const std::string& outer) {
  std::error_code error;
  const std::string in = std::filesystem::weakly_canonical(inner, error).string();
  const std::string out = std::filesystem::weakly_canonical(outer, error).string();
  return in == out || absl::StartsWith(in, out + "/");
}

absl::StatusOr<ModelShape> ModelOfWeights(const std::string& folder) {
  return IsStepFolder(folder) ? ModelOfStepFolder(folder) : ModelOfDirectory(folder);
}

// Says whether a run goes on from a checkpoint of its own. One that is damaged counts: the workers
// say so.
bool HasSaved(const JobSpec& job) {
  if (job.checkpoint.resume == ResumeMode::kNone) return false;
  const absl::StatusOr<std::vector<int64_t>> steps = CommittedSteps(CheckpointFolder(job));
  return steps.ok() && !steps->empty();
}

// Holds the job's model against what the weights were trained as.
class Comparison {
 public:
  Comparison(const JobSpec& job, const ModelShape& own, const Value& root, Issues* issues,
             std::vector<std::string>* notes)
      : model_(job.model),
        own_(own),
        folder_(job.init_from),
        values_(root, "", issues),
        notes_(notes) {}

  void Run() {
    if (!ComputeAlike(model_, own_)) {
      values_.Wrong(kKey, absl::StrCat(folder_, " holds a ", ModelTypeOf(own_),
                                       " model, the job's is a ", ModelTypeOf(model_)));
      return;
    }
    // Other heads cut the same matrices otherwise: nothing that was learned would be left.
    MustBe(keys_.num_heads, model_.num_heads, own_.num_heads);
    if (!keys_.head_dim.empty()) {
      MustBe(keys_.num_kv_heads, model_.num_kv_heads, own_.num_kv_heads);
      MustBe(keys_.head_dim, model_.head_dim, own_.head_dim);
    }
    if (model_.tied_embeddings && !own_.tied_embeddings) {
      values_.Wrong(Key(keys_.tied_embeddings),
                    absl::StrCat("found true, but ", folder_, " has a head of its own; use false"));
    }
    MayBe(keys_.norm_eps, NumberText(model_.norm_eps), NumberText(own_.norm_eps));
    if (model_.learned_positions) return;
    MayBe(keys_.rope_theta, NumberText(model_.rope_theta), NumberText(own_.rope_theta));
    MayBe(keys_.rope_scaling, LineText(RopeScalingValue(model_.rope_scaling)),
          LineText(RopeScalingValue(own_.rope_scaling)));
    for (const auto& [name, member] :
         {std::pair{keys_.rotary_share, &ModelShape::rotary_share},
          std::pair{keys_.sliding_rope_theta, &ModelShape::sliding_rope_theta},
          std::pair{keys_.query_scalar, &ModelShape::query_scalar},
          std::pair{keys_.attention_cap, &ModelShape::attention_cap},
          std::pair{keys_.logit_cap, &ModelShape::logit_cap}}) {
      MayBe(name, NumberText(model_.*member), NumberText(own_.*member));
    }
    const ModelType& type = TypeOf(model_.architecture);
    MayBe(keys_.window, absl::StrCat(model_.window), absl::StrCat(own_.window));
    if (model_.window > 0 && own_.window > 0) {
      MayBe(keys_.spans, LineText(SpansValue(model_, type)), LineText(SpansValue(own_, type)));
    }
    MayBe(keys_.turns, LineText(TurnsValue(model_, type)), LineText(TurnsValue(own_, type)));
  }

 private:
  static std::string Key(absl::string_view name) { return absl::StrCat("model.", name); }

  bool StatesRuleOfSpans() const {
    for (const absl::string_view rule : absl::StrSplit(kSpanRules, ' ')) {
      if (values_.Mentions(Key(rule))) return true;
    }
    return false;
  }

  bool IsInRopeParameters(absl::string_view name) const {
    return name == keys_.rope_theta || name == keys_.rope_scaling || name == keys_.rotary_share ||
           name == keys_.sliding_rope_theta;
  }

  void MustBe(absl::string_view name, int64_t found, int64_t wanted) {
    if (found == wanted) return;
    values_.Wrong(Key(name), absl::StrCat("found ", found, ", but ", folder_, " was trained with ",
                                          wanted, "; use ", wanted));
  }

  void MayBe(absl::string_view name, const std::string& found, const std::string& wanted) {
    if (found == wanted) return;
    const std::string key = Key(name);
    const bool is_span = name == keys_.window || name == keys_.spans || name == keys_.turns;
    const bool is_written = values_.Mentions(key) || values_.Has("model.path") ||
                            (IsInRopeParameters(name) && values_.Has("model.rope_parameters")) ||
                            (is_span && StatesRuleOfSpans());
    const std::string what = absl::StrCat(folder_, " was trained with ", wanted);
    if (is_written) {
      notes_->push_back(absl::StrCat(key, ": ", found, ", though ", what));
    } else {
      values_.Wrong(key, absl::StrCat("not stated and so ", found, ", but ", what,
                                      "; state the one or the other"));
    }
  }

  const ModelShape& model_;
  const ModelShape& own_;
  const ModelKeys keys_ = KeysOf(model_.architecture);
  const std::string& folder_;
  const ValueReader values_;
  std::vector<std::string>* const notes_;
};

}  // namespace

Value ReadConfigOfWeights(const std::string& folder, const Place& place, Issues* issues) {
  if (!IsStepFolder(folder)) {
    if (Exists(folder + "/config.json")) return ReadConfigJson(folder, place, issues);
    const std::string why = WhyNoWeights(folder);
    issues->Add(place, kKey,
                !why.empty()
                    ? why
                    : absl::StrCat(folder, " holds neither config.json nor ", kManifestFile,
                                   "; name a Hugging Face directory or a step-N folder "
                                   "of a run"));
    return {};
  }
  const absl::StatusOr<ModelShape> model = ModelOfStepFolder(folder);
  if (!model.ok()) {
    issues->Add(place, kKey, model.status().message());
    return {};
  }
  return ParseYaml(HuggingFaceConfig(*model), absl::StrCat(folder, "/", kManifestFile), place.order,
                   issues)
      .value_or(Value{});
}

void CheckInitWeights(const JobSpec& job, bool fresh, const Value& root, Issues* issues,
                      std::vector<std::string>* notes) {
  if (job.init_from.empty() || (!fresh && HasSaved(job))) return;
  const ValueReader values(root, "", issues);
  if (fresh && (LiesIn(job.init_from, PathsOf(job).folder) ||
                LiesIn(job.init_from, CheckpointFolder(job)))) {
    values.Wrong(kKey, absl::StrCat(job.init_from,
                                    " lies in the run's own folder, which --fresh moves aside; "
                                    "give the new run another job.name"));
    return;
  }
  if (job.model.num_experts > 0) {  // what is only planned needs no weights
    notes->push_back(absl::StrCat(kKey, ": weights of mixtures of experts are not read yet"));
    return;
  }
  if (const std::vector<SpecIssue> planned = EngineIssues(job.model); !planned.empty()) {
    notes->push_back(absl::StrCat(kKey, ": weights of a model_type ", ModelTypeOf(job.model),
                                  " are not read yet"));
    return;
  }
  const absl::Status opened = WeightsReader::Open(job.init_from, job.model).status();
  if (!opened.ok()) {
    const absl::Status local =
        LocalModel(job.init_from, values.Text(kKey).value_or(job.init_from)).status();
    if (!local.ok()) return values.Wrong(kKey, local.message());
    const std::string why = IsStepFolder(job.init_from) ? "" : WhyNoWeights(job.init_from);
    values.Wrong(kKey, why.empty() ? opened.message() : absl::string_view(why));
    return;
  }
  if (!IsStepFolder(job.init_from) && !Exists(job.init_from + "/config.json")) {
    notes->push_back(absl::StrCat(kKey, ": ", job.init_from,
                                  " holds no config.json: whether its weights were trained as the "
                                  "model computes is not known"));
    return;
  }
  const absl::StatusOr<ModelShape> own = ModelOfWeights(job.init_from);
  if (own.ok()) {
    Comparison(job, *own, root, issues, notes).Run();
  } else {
    notes->push_back(
        absl::StrCat(kKey, ": cannot be compared with the model: ", own.status().message()));
  }
}

}  // namespace weft
