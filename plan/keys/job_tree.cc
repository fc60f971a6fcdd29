#include "plan/keys/job_tree.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "plan/keys/cluster_keys.h"
#include "plan/keys/key_names.h"
#include "plan/keys/model_keys.h"
#include "plan/keys/value_reader.h"
#include "plan/keys/value_text.h"

namespace weft {
namespace {

constexpr absl::string_view kProfile = "cluster.profile";

// PEFT's "all-linear": every linear layer of a block.
std::vector<std::string> AllLinear(Architecture architecture) {
  if (architecture == Architecture::kGpt2) return {"c_attn", "c_proj", "c_fc"};
  return {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
}

// Holds the rules that join several keys.
class JobReader {
 public:
  JobReader(const Value& tree, ModelShape model, Cluster cluster, Issues* issues,
            std::vector<std::string>* notes)
      : values_(tree, "", issues), notes_(notes) {
    job_.model = std::move(model);
    job_.cluster = std::move(cluster);
  }

  JobSpec Read() {
    StartLora();
    for (const JobKey& key : JobKeys()) {
      if (key.otherwise == "required" && !values_.Has(key.key)) {
        values_.Wrong(key.key, absl::StrCat("missing; ", MeaningText(key)));
      }
      if (key.field != nullptr && !IsAllLinear(key.key)) {
        ReadKey(values_, key.key, key.field(job_), notes_);
      }
    }
    if (job_.layout.dp == -1) job_.layout.dp.reset();  // torchtitan's "what is left"
    SettleGlobalBatch();
    SettleSteps();
    FinishLora();
    CheckSlots();
    return std::move(job_);
  }

 private:
  bool IsAllLinear(absl::string_view key) const {
    const Value* const modules = values_.Node(key);
    return key == "lora.target_modules" && modules != nullptr && modules->is_scalar() &&
           modules->scalar == "all-linear";
  }

  void StartLora() {
    const Value* section = values_.Node("lora");
    if (section == nullptr || !section->is_map() || section->entries.empty()) return;
    job_.lora.emplace();
    const bool is_gpt2 = job_.model.architecture == Architecture::kGpt2;
    if (IsAllLinear("lora.target_modules")) {
      job_.lora->target_modules = AllLinear(job_.model.architecture);
    } else if (is_gpt2) {
      job_.lora->target_modules = {"c_attn"};
    }
  }

  void FinishLora() {
    if (!job_.lora) return;
    if (!values_.Has("lora.lora_alpha")) job_.lora->lora_alpha = static_cast<double>(job_.lora->r);
    constexpr char kKey[] = "lora.double_quantization";  // of the scales of nf4 values
    if (!values_.Flag(kKey).value_or(false)) return;
    FrozenFormat& format = job_.lora->quantization;
    if (format == FrozenFormat::kNf4) {
      format = FrozenFormat::kNf4Double;
    } else if (format != FrozenFormat::kNf4Double) {
      values_.Wrong(kKey, absl::StrCat("true beside lora.quantization ", WordOf(format),
                                       ", which has no scales to quantise; use quantization nf4, "
                                       "or false"));
    }
  }

  // Any two of micro, global and accumulation fix the third: global = micro x accumulation x dp.
  void SettleGlobalBatch() {
    const LayoutSpec& asked = job_.layout;
    constexpr absl::string_view kKey = "training.global_batch_size";
    if (values_.Has(kKey)) return;
    if (!asked.micro_batch_size || !asked.gradient_accumulation_steps) {
      values_.Wrong(kKey,
                    "missing; give it, or both micro_batch_size and gradient_accumulation_steps");
    } else if (!asked.dp) {
      values_.Wrong(kKey,
                    "missing; with parallelism.dp auto it cannot follow from micro_batch_size x "
                    "gradient_accumulation_steps x dp; give it, or fix parallelism.dp");
    } else {
      // Bounded before they are multiplied; Validate judges what is too large.
      constexpr int64_t kMost = int64_t{1} << 20;
      job_.training.global_batch_size =
          std::clamp<int64_t>(*asked.micro_batch_size, 0, kMost) *
          std::clamp<int64_t>(*asked.gradient_accumulation_steps, 0, kMost) *
          std::clamp<int64_t>(*asked.dp, 0, kMost);
    }
  }

  void SettleSteps() {
    TrainingSpec& training = job_.training;
    const bool steps = values_.Has("training.steps");
    const bool tokens = values_.Has("training.tokens");
    if (!steps && !tokens) values_.Wrong("training.steps", "missing; give it, or training.tokens");
    if (steps && tokens) {
      values_.Wrong("training.tokens", absl::StrCat("stands beside training.steps of ",
                                                    values_.PlaceOf("training.steps").Text(),
                                                    "; keep one of the two"));
    }
    const std::optional<int64_t> wanted = values_.Whole("training.tokens");
    const int64_t batch = std::clamp<int64_t>(training.global_batch_size, 0, 1 << 24);
    const int64_t per_step = batch * std::clamp<int64_t>(training.seq_len, 0, 1 << 24);
    if (steps || !wanted || per_step <= 0) return;
    training.steps = *wanted / per_step + (*wanted % per_step > 0 ? 1 : 0);
    if (notes_ == nullptr) return;
    notes_->push_back(absl::StrCat(values_.PlaceOf("training.tokens").Text(),
                                   ": training.tokens: ", *wanted, " is ", training.steps,
                                   " steps of ", per_step, " tokens"));
  }

  void CheckSlots() {
    const absl::string_view slots = SlotsKey(job_.cluster.device.backend);
    for (const absl::string_view key : {"cluster.slots", "cluster.gpus_per_node"}) {
      if (key == slots || !values_.Has(key)) continue;
      values_.Wrong(key, absl::StrCat("the profile ", job_.cluster.name, " counts its workers in ",
                                      slots, "; use that key"));
    }
  }

  const ValueReader values_;
  std::vector<std::string>* notes_;
  JobSpec job_;
};

Value ProfileTree(Cluster cluster) {
  cluster.nodes = 1;
  cluster.slots_per_node = 1;
  return ClusterTree(std::move(cluster));
}

}  // namespace

JobSpec ReadJobKeys(const Value& tree, ModelShape model, Cluster cluster, Issues* issues,
                    std::vector<std::string>* notes) {
  return JobReader(tree, std::move(model), std::move(cluster), issues, notes).Read();
}

JobSpec ReadJobTree(const Value& tree, Issues* issues) {
  CheckKeys(tree, issues);
  const ValueReader values(tree, "", issues);
  ModelShape model;
  if (const Value* section = values.Node("model")) {
    std::vector<std::string> notes;
    model = ReadModel(*section, nullptr, {.refuse_dropouts = false}, issues, &notes);
  } else {
    values.Wrong("model", "missing");
  }
  Cluster cluster;
  const Value* profile = values.Node(kProfile);
  if (profile != nullptr && profile->is_map()) {
    cluster = ReadClusterMap(*profile, issues);
  } else {
    values.Wrong(kProfile, "missing; a job that travels has its profile inside");
  }
  return ReadJobKeys(tree, std::move(model), std::move(cluster), issues, nullptr);
}

Value JobTree(JobSpec job) {
  Value tree = Value::Map();
  tree.entries.push_back({"job", Value::Map()});
  tree.entries.push_back({"model", ModelTree(job.model)});
  for (const JobKey& key : JobKeys()) {
    if (key.key == kProfile) {
      tree.Put(kProfile, ClusterTree(job.cluster));
    } else if (key.kind == KeyKind::kNotBuilt && !key.otherwise.empty()) {
      tree.Put(key.key, Value::Scalar(key.otherwise.substr(0, key.otherwise.find(' '))));
    } else if (key.field != nullptr) {
      const KeyField field = key.field(job);
      const bool applies = !std::holds_alternative<std::monostate>(field);
      if (applies) tree.Put(key.key, PrintField(field));
    }
  }
  if (!job.lora) tree.Remove("lora");  // a key that is not built stands there all the same
  return tree;
}

std::vector<KeyText> KeyTexts(const JobSpec& job) {
  std::vector<KeyText> texts;
  for (const auto& [name, node] : ModelTree(job.model).entries) {
    texts.push_back({absl::StrCat("model.", name), KeyKind::kMathematics, LineText(node)});
  }
  JobSpec copy = job;
  for (const JobKey& key : JobKeys()) {
    if (key.key == kProfile) {
      texts.push_back(
          {std::string(kProfile), KeyKind::kExecution, LineText(ProfileTree(job.cluster))});
      continue;
    }
    const KeyField field = key.field != nullptr ? key.field(copy) : KeyField();
    if (std::holds_alternative<std::monostate>(field)) continue;
    texts.push_back({std::string(key.key), key.kind, LineText(PrintField(field))});
  }
  return texts;
}

}  // namespace weft
