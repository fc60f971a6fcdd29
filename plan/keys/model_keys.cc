#include "plan/keys/model_keys.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "plan/keys/config_json.h"
#include "plan/keys/key_field.h"
#include "plan/keys/rope_keys.h"
#include "plan/keys/span_keys.h"
#include "plan/keys/value_reader.h"
#include "plan/keys/value_text.h"
#include "plan/spec/nearest.h"

namespace weft {
namespace {

// A key of config.json: its spelling is the family's (KeysOf), empty where the family has no such
// key. `others`: what the other family, or another system, calls the same thing.
struct ModelKey {
  absl::string_view ModelKeys::*key;
  KeyField (*field)(ModelShape&);  // null: read and printed by functions of its own
  absl::string_view others = "";
  bool gpt2_needs = false;
  bool llama_needs = false;

  bool needed(ModelFamily family) const {
    return family == ModelFamily::kGpt2 ? gpt2_needs : llama_needs;
  }
};

#define WEFT_FIELD(member) \
  &ModelKeys::member, [](ModelShape& model) -> KeyField { return &model.member; }
#define WEFT_LATENT(member) \
  &ModelKeys::member, [](ModelShape& model) -> KeyField { return &model.latent.member; }
constexpr ModelKey kModelKeys[] = {
    {WEFT_FIELD(vocab_size), "", true, true},
    {WEFT_FIELD(max_positions), "max_position_embeddings n_positions", true, true},
    {WEFT_FIELD(hidden_size), "hidden_size n_embd d_model", true, true},
    {WEFT_FIELD(num_blocks), "num_hidden_layers n_layer num_layers n_layers", true, true},
    {WEFT_FIELD(num_heads), "num_attention_heads n_head n_heads", true, true},
    {WEFT_FIELD(ffn_size), "intermediate_size n_inner", false, true},
    {WEFT_FIELD(norm_eps), "norm_eps norm_epsilon rms_norm_eps layer_norm_eps"},
    {WEFT_FIELD(initializer_range)},
    {WEFT_FIELD(tied_embeddings)},
    {WEFT_FIELD(num_kv_heads)},
    {WEFT_FIELD(head_dim)},
    {WEFT_FIELD(rope_theta), "rope_theta rotary_emb_base"},
    {WEFT_FIELD(attention_bias)},
    {&ModelKeys::rope_scaling, nullptr},
    {WEFT_FIELD(num_experts), "num_experts n_routed_experts"},
    {WEFT_FIELD(experts_per_token), "moe_top_k"},
    {WEFT_FIELD(expert_ffn_size)},
    {WEFT_FIELD(num_dense_blocks)},
    {WEFT_FIELD(shared_ffn_size)},
    {WEFT_FIELD(shared_expert_gate)},
    {WEFT_FIELD(expert_imbalance)},
    {WEFT_LATENT(query_rank)},
    {WEFT_LATENT(kv_rank)},
    {WEFT_LATENT(nope_dim)},
    {WEFT_LATENT(rope_dim)},
    {WEFT_LATENT(value_dim)},
    {WEFT_FIELD(qk_norms), "qk_layernorm"},
    {WEFT_FIELD(layer_norms)},
    {WEFT_FIELD(plain_ffn)},
    {WEFT_FIELD(embedding_multiplier)},
    {WEFT_FIELD(residual_multiplier)},
    {WEFT_FIELD(attention_multiplier)},
    {WEFT_FIELD(logits_scaling)},
    {WEFT_FIELD(logit_scale)},
    {WEFT_FIELD(window)},
    {&ModelKeys::spans, nullptr},
    {&ModelKeys::turns, nullptr},
    {WEFT_FIELD(sliding_rope_theta)},
    {WEFT_FIELD(parallel_residual)},
    {WEFT_FIELD(rotary_share), "partial_rotary_factor rotary_pct"},
    {WEFT_FIELD(query_scalar)},
    {WEFT_FIELD(attention_cap)},
    {WEFT_FIELD(logit_cap)},
};
#undef WEFT_FIELD
#undef WEFT_LATENT
// The rows from this one on are written only where they say something.
constexpr absl::string_view ModelKeys::*kFirstOfFew = &ModelKeys::num_experts;

// Another way to write two keys of llama (WithRopeKeys).
constexpr absl::string_view kRopeParameters = "rope_parameters";

// DeepSeek's way to write how wide its shared experts are together (WithSharedKeys).
constexpr absl::string_view kSharedExperts = "n_shared_experts";

constexpr absl::string_view kDropouts[] = {
    "resid_pdrop",      "embd_pdrop",        "attn_pdrop",          "attention_dropout",
    "residual_dropout", "embedding_dropout", "router_jitter_noise", "hidden_dropout",
};

// Keys that change the mathematics, with the only values that can be carried out (the first one is
// what weft does). Dropout comes later: until then it is refused by name.
struct FixedKey {
  absl::string_view key;
  absl::string_view accepted;  // separated by spaces; null always passes
};
constexpr FixedKey kGpt2Fixed[] = {
    {"activation_function", "gelu_new"},
    {"resid_pdrop", "0"},
    {"embd_pdrop", "0"},
    {"attn_pdrop", "0"},
    {"scale_attn_weights", "true"},
    {"add_cross_attention", "false"},
    {"scale_attn_by_inverse_layer_idx", "false"},
};
constexpr FixedKey kLlamaFixed[] = {
    {"mlp_bias", "false"},
    {"attention_dropout", "0"},
    {"router_jitter_noise", "0"},
    {"moe_layer_freq", "1"},
    {"decoder_sparse_step", "1"},
    {"resid_pdrop", "0"},
    {"embd_pdrop", "0"},
    {"residual_dropout", "0"},
    {"embedding_dropout", "0"},
    {"hidden_dropout", "0"},
    {"use_bias", "true"},
    {"attention_out_bias", "false"},
    {"use_bidirectional_attention", "false"},
};
constexpr absl::string_view kOfFewTypes =
    "resid_pdrop embd_pdrop residual_dropout embedding_dropout hidden_dropout use_bias "
    "attention_out_bias "
    "use_bidirectional_attention";
// The activation is the type's own to say (plan/keys/model_types.h).
constexpr absl::string_view kActivation = "hidden_act";
constexpr absl::string_view kGemmasActivation = "hidden_activation";
constexpr absl::string_view kAttentionBias = "attention_bias";
// Blocks without experts here and there; those at the beginning are first_k_dense_replace.
constexpr absl::string_view kDenseBlocks = "mlp_only_layers";

absl::Span<const FixedKey> FixedOf(ModelFamily family) {
  if (family == ModelFamily::kGpt2) return kGpt2Fixed;
  return kLlamaFixed;
}

// Some architecture of the family stands for all of them.
ModelKeys KeysOf(ModelFamily family) {
  return KeysOf(family == ModelFamily::kGpt2 ? Architecture::kGpt2 : Architecture::kLlama);
}

// Keys of kLlamaFixed that only those types have that read them.
bool IsOfOtherTypes(const ModelType& type, absl::string_view key) {
  return HasWord(kOfFewTypes, key) && !HasWord(type.reads, key);
}

// The row of a key or of one of its other names; null if there is none.
const ModelKey* RowFor(const ModelType& type, absl::string_view name) {
  const ModelKeys keys = KeysOf(type.architecture);
  for (const ModelKey& row : kModelKeys) {
    const absl::string_view key = keys.*row.key;
    if (!key.empty() && (key == name || HasWord(row.others, name))) return &row;
  }
  return nullptr;
}

absl::string_view ActivationKeyOf(const ModelType& type) {
  return HasWord(type.reads, kGemmasActivation) ? kGemmasActivation : kActivation;
}

bool IsFixed(const ModelType& type, absl::string_view key) {
  if (IsOfOtherTypes(type, key)) return false;
  const ModelFamily family = type.family;
  const bool llama = family == ModelFamily::kLlama;
  if (llama && (key == ActivationKeyOf(type) || key == kDenseBlocks || HasWord(kSpanRules, key)))
    return true;
  for (const FixedKey& fixed : FixedOf(family)) {
    if (fixed.key == key) return true;
  }
  return false;
}

bool IsIgnored(const ModelType& type, absl::string_view key) {
  if (absl::StartsWith(key, "_")) return true;
  // transformers does not read it of types that have another key for it.
  if (key == kActivation && ActivationKeyOf(type) != kActivation) return true;
  return HasWord(KeysOfNoConsequence(), key) || HasWord(type.passed_over, key);
}

std::string UnknownKeyText(const ModelType& type, absl::string_view name, bool is_config) {
  if (is_config) {  // others are passed over (plan/keys/config_json.h)
    return absl::StrCat("unknown key of a ", type.name(), " model, which its own code (auto_map) ",
                        "may read; if it does not, take auto_map out of a copy of the file");
  }
  return absl::StrCat("unknown key of a ", WordOf(type.family), " model; ",
                      Suggestion(name, ModelKeyList(type.family),
                                 "weft keys --schema and docs/job_yaml.md have all"));
}

// Adds the keys of `from` to `merged` under the family's own names.
void Merge(const ModelType& type, const Value& from, bool is_config, Value* merged, Issues* issues,
           std::vector<std::string>* notes) {
  for (const auto& [name, found] : from.entries) {
    const Value node = SameInOurWords(type, name, found);
    if (name == "model_type" || (!is_config && (name == "path" || name == "init_from"))) continue;
    const ModelKey* row = RowFor(type, name);
    if (row == nullptr && !IsFixed(type, name)) {
      if (IsIgnored(type, name)) continue;
      issues->Add(node.place, absl::StrCat("model.", name), UnknownKeyText(type, name, is_config));
      continue;
    }
    const std::string key(row != nullptr ? KeysOf(type.architecture).*row->key
                                         : absl::string_view(name));
    if (key != name) {
      notes->push_back(
          absl::StrCat(node.place.Text(), ": model.", name, " is read as model.", key));
    }
    const Value* before = merged->Find(key);
    const bool here_too = before != nullptr && before->place.source == node.place.source;
    // transformers writes some keys under two names.
    if (here_too && (node.is_null() || (is_config && SameValue(*before, node)))) continue;
    if (here_too && before->place.line > 0 && !before->is_null()) {
      issues->Add(node.place, absl::StrCat("model.", name),
                  absl::StrCat("is another name of ", key, ", which stands on line ",
                               before->place.line, "; keep one of the two"));
      continue;
    }
    if (before != nullptr && before->is_null()) {
      merged->Remove(key);
    } else if (before != nullptr) {
      notes->push_back(absl::StrCat(node.place.Text(), ": model.", key, ": ", node.Found(),
                                    " replaces ", before->Found(), " of ", before->place.Text()));
      merged->Remove(key);
    }
    merged->entries.push_back({key, node});
  }
}

bool IsDropout(absl::string_view key) {
  return std::find(std::begin(kDropouts), std::end(kDropouts), key) != std::end(kDropouts);
}

// To set a key to another value is no cure for weights that were trained with this one.
std::string OtherModelText(const Value& found, absl::string_view accepted) {
  return absl::StrCat(found.Found(),
                      " is not supported yet, and these weights were trained with it; ",
                      "use weights of a model with ", accepted);
}

void CheckFixed(ModelFamily family, const Value& model, const ModelUse& use, Issues* issues,
                std::vector<std::string>* notes) {
  for (const FixedKey& fixed : FixedOf(family)) {
    const Value* node = model.Find(fixed.key);
    if (node == nullptr || node->is_null()) continue;
    const bool plain = node->is_scalar() && !node->quoted;
    const double number = plain ? ParseNumber(node->scalar).value_or(-1) : -1;
    if (fixed.accepted == "0" && number == 0) continue;
    if (node->is_scalar() && HasWord(fixed.accepted, node->word())) continue;
    const std::string key = absl::StrCat("model.", fixed.key);
    const std::string other = absl::StrCat("--set ", key, "=", fixed.accepted);
    if (!use.refuse_dropouts && IsDropout(fixed.key) && number > 0 && number < 1) {
      notes->push_back(absl::StrCat(key, ": ", node->scalar, " is planned as 0; weft run does not ",
                                    "train with dropout yet, and wants ", other));
      continue;
    }
    const bool other_model = use.is_pretrained && !IsDropout(fixed.key);
    issues->Add(node->place, key,
                other_model ? OtherModelText(*node, fixed.accepted)
                            : absl::StrCat(node->Found(), " is not supported ", "yet; use ",
                                           fixed.accepted, ": ", other));
  }
}

// Refuses what some types of llama have and no price knows.
void CheckType(const ModelType& type, const Value& model, const ModelUse& use, Issues* issues) {
  if (type.family != ModelFamily::kLlama) return;
  const absl::string_view name = ActivationKeyOf(type);
  const Value* activation = model.Find(name);
  ModelShape typical;
  SetTypeDefaults(type, typical);
  const absl::string_view own = WordOf(typical.activation);
  if (activation != nullptr && !activation->is_null() && activation->scalar != own) {
    const std::string key = absl::StrCat("model.", name);
    issues->Add(activation->place, key,
                use.is_pretrained ? OtherModelText(*activation, own)
                                  : absl::StrCat(activation->Found(), " is not supported yet; use ",
                                                 own, ": --set ", key, "=", own));
  }
  const Value* bias = model.Find(kAttentionBias);
  if (AreBiasesAlwaysThere(type.architecture) && bias != nullptr && bias->word() == "false") {
    issues->Add(bias->place, absl::StrCat("model.", kAttentionBias),
                absl::StrCat("found false, but queries, keys and values of a ", type.name(),
                             " have biases; use true, or model_type llama"));
  }
  const Value* dense = model.Find(kDenseBlocks);
  if (dense != nullptr && !dense->items.empty()) {
    issues->Add(dense->place, absl::StrCat("model.", kDenseBlocks),
                "names blocks without experts, which is not supported yet; use an empty list, or "
                "first_k_dense_replace for those at the beginning");
  }
}

// transformers 5 writes rope_theta and rope_scaling as one map, rope_parameters: as two again.
Value WithRopeKeys(const ModelType& type, const Value& tree, Issues* issues) {
  Value plain = tree;
  const Value* rope = tree.Find(kRopeParameters);
  if (rope == nullptr) return plain;
  if (type.has_rope_by_span) {
    if (const auto parts = RopeBySpanOf(*rope, kRopeParameters, issues)) {
      const Value* const theta = parts->sliding_theta;
      if (theta != nullptr) plain.entries.push_back({"rope_local_base_freq", *theta});
      rope = parts->full;
    } else if (rope->is_map()) {
      issues->Add(rope->place, absl::StrCat("model.", kRopeParameters),
                  std::string(kOneMapForAllSpans));
    }
  }
  plain.Remove(kRopeParameters);
  if (!rope->is_map() && !rope->is_null()) {
    issues->Add(rope->place, absl::StrCat("model.", kRopeParameters),
                absl::StrCat("found ", rope->Found(),
                             ", expected a map with rope_theta and rope_type default or llama3"));
  }
  if (!rope->is_map()) return plain;
  Value scaling = *rope;
  for (const absl::string_view key : {"rope_theta", "partial_rotary_factor"}) {
    if (const Value* const value = rope->Find(key)) {
      plain.entries.push_back({std::string(key), *value});
      scaling.Remove(key);
    }
  }
  if (!scaling.entries.empty()) plain.entries.push_back({"rope_scaling", scaling});
  return plain;
}

// DeepSeek counts shared experts, each as wide as a routed one: as one width again.
Value WithSharedKeys(const Value& tree, Issues* issues) {
  Value plain = tree;
  const Value* const shared = tree.Find(kSharedExperts);
  if (shared == nullptr) return plain;
  plain.Remove(kSharedExperts);
  if (shared->is_null()) return plain;
  const auto whole = [](const Value* node) -> std::optional<int64_t> {
    return node != nullptr && node->is_scalar() ? ParseWholeNumber(node->scalar) : std::nullopt;
  };
  const std::optional<int64_t> count = whole(shared);
  const std::optional<int64_t> width = whole(tree.Find("moe_intermediate_size"));
  constexpr int64_t kMost = int64_t{1} << 30;
  if (!count || !width || *count < 0 || *count > kMost || *width < 0 || *width > kMost) {
    issues->Add(shared->place, absl::StrCat("model.", kSharedExperts),
                absl::StrCat("found ", shared->Found(),
                             "; expected a whole number beside moe_intermediate_size, or use "
                             "shared_expert_intermediate_size"));
    return plain;
  }
  if (*count == 0) return plain;
  plain.entries.push_back({"shared_expert_intermediate_size", Value::Whole(*count * *width)});
  plain.entries.back().node.place = shared->place;
  return plain;
}

void CheckNeeds(const ModelType& type, const ValueReader& values, const Place& section,
                Issues* issues) {
  const ModelKeys keys = KeysOf(type.architecture);
  const auto miss = [&](absl::string_view key, absl::string_view what) {
    issues->Add(section, absl::StrCat("model.", key),
                absl::StrCat("missing; a ", what, " model needs it"));
  };
  for (const ModelKey& row : kModelKeys) {
    const absl::string_view key = keys.*row.key;
    if (row.needed(type.family) && !values.Has(key)) miss(key, WordOf(type.family));
  }
  for (const absl::string_view key : absl::StrSplit(type.needs, ' ', absl::SkipEmpty())) {
    if (!values.Has(key)) miss(key, type.name());
  }
}

void ReadFields(const Value& tree, const Place& section, const ModelType& type, Issues* issues,
                ModelShape* model) {
  const ValueReader values(tree, "model", issues);
  const ModelKeys keys = KeysOf(type.architecture);
  SetTypeDefaults(type, *model);
  CheckNeeds(type, values, section, issues);
  for (const ModelKey& row : kModelKeys) {
    const absl::string_view key = keys.*row.key;
    if (row.field != nullptr && !key.empty()) ReadKey(values, key, row.field(*model), nullptr);
  }
  // Null is no cap, whatever the type has by default.
  const auto is_null = [&](absl::string_view key) {
    const Value* const node = tree.Find(key);
    return node != nullptr && node->is_null();
  };
  if (is_null(keys.attention_cap)) model->attention_cap = 0;
  if (is_null(keys.logit_cap)) model->logit_cap = 0;
  const auto given = [&](absl::string_view key) { return !key.empty() && values.Has(key); };
  if (!given(keys.ffn_size)) model->ffn_size = 4 * model->hidden_size;
  if (!given(keys.num_kv_heads)) model->num_kv_heads = model->num_heads;
  if (!given(keys.head_dim) && model->num_heads > 0) {
    model->head_dim = model->hidden_size / model->num_heads;
  }
  if (!model->learned_positions) {
    ReadRopeScaling(tree, type, issues, model);
    ReadSpans(tree, type, issues, model);
  }
  // Nemotron's, where a feed-forward without a gate is all that is said.
  ModelShape typical;
  SetTypeDefaults(type, typical);
  if (model->plain_ffn != typical.plain_ffn) {
    model->activation = model->plain_ffn ? Activation::kSquaredRelu : Activation::kSilu;
  }
  // A published head_dim of such a model is that of its part with positions.
  if (model->is_latent()) model->head_dim = model->latent.nope_dim + model->latent.rope_dim;
  // Experts are as wide as intermediate_size says (Jiang et al., arXiv:2401.04088, table 1).
  if (model->num_experts > 0 && !given(keys.expert_ffn_size)) {
    model->expert_ffn_size = model->ffn_size;
  }
}

// Why a model of another type cannot be had, and what comes nearest.
std::string OtherTypeText(const Value& type, const Value* config) {
  const std::string beyond = config == nullptr ? "" : UnknownMechanisms(*config);
  std::string text = absl::StrCat(type.scalar, " is not supported yet",
                                  beyond.empty() ? "" : absl::StrCat(": it has ", beyond));
  if (const ModelType* const meant = MisspelledModelType(type.scalar)) {
    return absl::StrCat("found ", type.scalar, ", which weft does not know; did you mean ",
                        meant->name(), "?");
  }
  if (type.scalar == "kimi_k2") {
    return absl::StrCat(text, "; its shape is that of a deepseek_v3: --set ",
                        "model.model_type=deepseek_v3 plans it");
  }
  return absl::StrCat(text, "; use ", ModelTypesText());
}

Value ValueOf(const ModelKey& row, ModelShape& model, const ModelType& type) {
  if (row.field != nullptr) return PrintField(row.field(model));
  if (row.key == &ModelKeys::spans) return SpansValue(model, type);
  if (row.key == &ModelKeys::turns) return TurnsValue(model, type);
  return RopeScalingValue(model.rope_scaling);
}

// Experts are named wherever there are any.
bool IsSaid(const ModelKey& row, ModelShape& model, ModelShape& plain, const ModelType& type) {
  if (row.field == nullptr) return !ValueOf(row, model, type).is_null();
  if (row.key == &ModelKeys::num_experts || row.key == &ModelKeys::experts_per_token) {
    return model.num_experts > 0;
  }
  return PrintField(row.field(model)).scalar != PrintField(row.field(plain)).scalar;
}

}  // namespace

absl::Span<const absl::string_view> DropoutKeys() {
  return kDropouts;
}

ModelShape ReadModel(const Value& job_model, const Value* config, const ModelUse& use,
                     Issues* issues, std::vector<std::string>* notes) {
  ModelShape model;
  const Value* type = job_model.Find("model_type");
  if (const Value* const text = config == nullptr ? nullptr : TextConfigOf(*config)) {
    notes->push_back(absl::StrCat(text->place.Text(), ": the text model of a ",
                                  config->Find("model_type")->scalar,
                                  " is read; its vision tower is left out"));
    config = text;
  }
  if (type == nullptr && config != nullptr) type = config->Find("model_type");
  if (type == nullptr || !type->is_scalar()) {
    issues->Add(job_model.place, "model.model_type",
                absl::StrCat("missing; use ", ModelTypesText()));
    return model;
  }
  const ModelType* const found = FindModelType(type->scalar);
  if (found == nullptr) {
    issues->Add(type->place, "model.model_type", OtherTypeText(*type, config));
    return model;
  }
  const ModelFamily family = found->family;
  model.tied_embeddings = family == ModelFamily::kGpt2;
  model.norm_eps = family == ModelFamily::kGpt2 ? 1e-5 : 1e-6;
  Value merged = Value::Map(job_model.place);
  const auto merge = [&](const Value& from, bool is_config) {
    const bool llama = family == ModelFamily::kLlama;
    Merge(*found, llama ? WithSharedKeys(WithRopeKeys(*found, from, issues), issues) : from,
          is_config, &merged, issues, notes);
  };
  if (config != nullptr) merge(OwnModelKeys(*config, *found, issues, notes), true);
  merge(job_model, false);
  CheckFixed(family, merged, use, issues, notes);
  CheckType(*found, merged, use, issues);
  ReadFields(merged, job_model.place, *found, issues, &model);
  model.architecture = ArchitectureOf(model);
  return model;
}

Value ModelTree(ModelShape model) {
  Value tree = Value::Map();
  const Architecture architecture = ArchitectureOf(model);
  tree.entries.push_back({"model_type", Value::Scalar(WordOf(architecture))});
  const ModelKeys keys = KeysOf(architecture);
  ModelShape plain;
  const ModelType& type = TypeOf(architecture);
  SetTypeDefaults(type, plain);
  plain.expert_ffn_size = model.num_experts > 0 ? model.ffn_size : 0;
  bool is_of_few = false;
  for (const ModelKey& row : kModelKeys) {
    const absl::string_view key = keys.*row.key;
    is_of_few = is_of_few || row.key == kFirstOfFew;
    if (key.empty() || (is_of_few && !IsSaid(row, model, plain, type))) continue;
    tree.entries.push_back({std::string(key), ValueOf(row, model, type)});
  }
  return tree;
}

namespace {

FieldForm FormOf(const ModelKey& row, ModelShape& model) {
  if (row.field != nullptr) return FormOf(row.field(model));
  if (row.key == &ModelKeys::rope_scaling) return {FieldForm::Kind::kMap};
  return {FieldForm::Kind::kList};
}

}  // namespace

std::vector<ModelKeyForm> ModelKeyForms() {
  std::map<std::string, ModelKeyForm> forms;
  const auto add = [&](absl::string_view name, ModelKeyForm form) {
    form.name = std::string(name);
    forms.try_emplace(form.name, std::move(form));
  };
  std::string types;
  for (const ModelType& type : ModelTypes()) {
    absl::StrAppend(&types, types.empty() ? "" : " ", type.name());
  }
  add("model_type", {.values = types});
  for (const ModelFamily family : {ModelFamily::kGpt2, ModelFamily::kLlama}) {
    ModelShape model;
    for (const ModelKey& row : kModelKeys) {
      const absl::string_view key = KeysOf(family).*row.key;
      if (key.empty()) continue;
      add(key, {.form = FormOf(row, model)});
    }
    for (const FixedKey& fixed : FixedOf(family)) {
      if (IsDropout(fixed.key)) add(fixed.key, {.form = FieldForm{FieldForm::Kind::kNumber}});
      add(fixed.key, {.values = std::string(fixed.accepted)});
    }
  }
  for (const ModelFamily family : {ModelFamily::kGpt2, ModelFamily::kLlama}) {
    for (const ModelKey& row : kModelKeys) {
      const std::string key(KeysOf(family).*row.key);
      if (key.empty()) continue;
      for (absl::string_view other : absl::StrSplit(row.others, ' ', absl::SkipEmpty())) {
        add(other, {.read_as = key, .form = forms.at(key).form});
      }
    }
  }
  add(kRopeParameters, {.form = FieldForm{FieldForm::Kind::kMap}});
  add(kSharedExperts, {.form = FieldForm{FieldForm::Kind::kWhole}});
  add(kDenseBlocks, {.form = FieldForm{FieldForm::Kind::kList}});
  add(kActivation, {.values = "silu gelu_new relu2 gelu"});
  add(kGemmasActivation, {.values = "gelu_new"});
  add("use_sliding_window", {.form = FieldForm{FieldForm::Kind::kFlag}});
  for (const absl::string_view rule : absl::StrSplit(kSpanRules, ' ')) {
    add(rule, {.form = FieldForm{FieldForm::Kind::kWhole}});
  }
  for (absl::string_view name : absl::StrSplit(KeysOfNoConsequence(), ' ', absl::SkipEmpty()))
    add(name, {});
  for (const ModelType& type : ModelTypes()) {
    for (absl::string_view name : absl::StrSplit(type.passed_over, ' ', absl::SkipEmpty())) {
      add(name, {});
    }
  }
  std::vector<ModelKeyForm> list;
  for (auto& [name, form] : forms) list.push_back(std::move(form));
  return list;
}

std::vector<std::string> ModelKeyList(ModelFamily family) {
  std::vector<std::string> names = {"model_type"};
  const ModelKeys keys = KeysOf(family);
  for (const ModelKey& row : kModelKeys) {
    if (!(keys.*row.key).empty()) names.emplace_back(keys.*row.key);
  }
  for (const FixedKey& fixed : FixedOf(family)) {
    if (!HasWord(kOfFewTypes, fixed.key) || family == ModelFamily::kGpt2)
      names.emplace_back(fixed.key);
  }
  if (family == ModelFamily::kLlama) {
    names.emplace_back(kRopeParameters);
    for (absl::string_view rule : absl::StrSplit(kSpanRules, ' ')) names.emplace_back(rule);
    names.emplace_back(kActivation);
    names.emplace_back(kDenseBlocks);
    names.emplace_back(kSharedExperts);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace weft
