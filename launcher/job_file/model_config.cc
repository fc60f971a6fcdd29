#include "launcher/job_file/model_config.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "data/whole_file.h"
#include "launcher/job_file/yaml_values.h"
#include "plan/spec/nearest.h"

namespace weft {
namespace {

// A number of ModelShape and its Hugging Face key. `others`: what the other family, or another
// system, calls the same thing.
struct Field {
  absl::string_view field;  // of ModelShape
  absl::string_view key;
  absl::string_view others;
  bool required = false;
};

constexpr Field kGpt2Fields[] = {
    {"vocab_size", "vocab_size", "", true},
    {"max_positions", "n_positions", "max_position_embeddings", true},
    {"hidden_size", "n_embd", "hidden_size d_model", true},
    {"num_blocks", "n_layer", "num_hidden_layers num_layers n_layers", true},
    {"num_heads", "n_head", "num_attention_heads n_heads", true},
    {"ffn_size", "n_inner", "intermediate_size"},
    {"norm_eps", "layer_norm_epsilon", ""},
    {"initializer_range", "initializer_range", ""},
    {"tied_embeddings", "tie_word_embeddings", ""},
};
constexpr Field kLlamaFields[] = {
    {"vocab_size", "vocab_size", "", true},
    {"max_positions", "max_position_embeddings", "n_positions", true},
    {"hidden_size", "hidden_size", "n_embd d_model", true},
    {"num_blocks", "num_hidden_layers", "n_layer num_layers n_layers", true},
    {"num_heads", "num_attention_heads", "n_head n_heads", true},
    {"num_kv_heads", "num_key_value_heads", ""},
    {"head_dim", "head_dim", ""},
    {"ffn_size", "intermediate_size", "n_inner", true},
    {"norm_eps", "rms_norm_eps", ""},
    {"initializer_range", "initializer_range", ""},
    {"rope_theta", "rope_theta", ""},
    {"tied_embeddings", "tie_word_embeddings", ""},
    {"attention_bias", "attention_bias", ""},
    {"rope_scaling", "rope_scaling", ""},
    {"num_experts", "num_local_experts", "num_experts"},
    {"experts_per_token", "num_experts_per_tok", "moe_top_k"},
};

// Another way to write two keys of llama (WithRopeKeys).
constexpr absl::string_view kRopeParameters = "rope_parameters";

// Mistral's: a token sees so many, itself among them. CheckWindow.
constexpr absl::string_view kWindow = "sliding_window";

// These keys set what only training does by chance. Without training they mean nothing.
constexpr absl::string_view kDropouts[] = {
    "resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout", "router_jitter_noise",
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
    {"hidden_act", "silu"},
    {"mlp_bias", "false"},
    {"attention_dropout", "0"},
    {"router_jitter_noise", "0"},
};

// Published config.json files have these keys; they say nothing about how the model computes. They
// are names that transformers writes, of generating, of other heads and of its own bookkeeping.
constexpr absl::string_view kIgnored =
    "architectures attn_implementation auto_map bad_words_ids begin_suppress_tokens bos_token_id "
    "chunk_size_feed_forward cross_attention_hidden_size decoder_start_token_id "
    "diversity_penalty do_sample dtype early_stopping encoder_no_repeat_ngram_size eos_token_id "
    "exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id "
    "gradient_checkpointing id2label is_decoder is_encoder_decoder label2id length_penalty "
    "max_length max_sequence_length min_length n_ctx no_repeat_ngram_size num_beam_groups "
    "num_beams num_return_sequences output_attentions output_hidden_states output_past "
    "output_router_logits output_scores pad_token_id prefix pretraining_tp problem_type "
    "remove_invalid_values reorder_and_upcast_attn repetition_penalty return_dict "
    "return_dict_in_generate router_aux_loss_coef sep_token_id summary_activation "
    "summary_first_dropout summary_proj_to_labels summary_type summary_use_proj suppress_tokens "
    "task_specific_params temperature tie_encoder_decoder tokenizer_class top_k top_p torch_dtype "
    "torchscript transformers_version typical_p unk_token_id use_bfloat16 use_cache "
    "use_return_dict";

absl::Span<const Field> FieldsOf(ModelFamily family) {
  if (family == ModelFamily::kGpt2) return kGpt2Fields;
  return kLlamaFields;
}

absl::Span<const FixedKey> FixedOf(ModelFamily family) {
  if (family == ModelFamily::kGpt2) return kGpt2Fixed;
  return kLlamaFixed;
}

bool Lists(absl::string_view words, absl::string_view word) {
  for (absl::string_view each : absl::StrSplit(words, ' ', absl::SkipEmpty())) {
    if (each == word) return true;
  }
  return false;
}

// `type` is a model_type; mixtral and mistral are llama's mathematics with and without experts.
absl::StatusOr<ModelFamily> FamilyOf(absl::string_view type) {
  if (type == "mixtral" || type == "mistral") return ModelFamily::kLlama;
  return ParseFamily(type);
}

// weft's field for a key or one of its other names; null if there is none.
const Field* FieldFor(ModelFamily family, absl::string_view key) {
  for (const Field& field : FieldsOf(family)) {
    if (field.key == key || Lists(field.others, key)) return &field;
  }
  return nullptr;
}

bool IsFixed(ModelFamily family, absl::string_view key) {
  if (family == ModelFamily::kLlama && key == kWindow) return true;
  for (const FixedKey& fixed : FixedOf(family)) {
    if (fixed.key == key) return true;
  }
  return false;
}

bool IsIgnored(ModelFamily family, absl::string_view key, bool is_config) {
  if (absl::StartsWith(key, "_")) return true;
  if (Lists(kIgnored, key)) return true;
  // A llama config may carry gpt2's dropouts and the other way round: no meaning there.
  return is_config && family != ModelFamily::kGpt2 && IsFixed(ModelFamily::kGpt2, key);
}

// Adds the keys of `from` to `merged` under the family's own names.
void Merge(ModelFamily family, const YamlNode& from, bool is_config, YamlNode* merged,
           Issues* issues, std::vector<std::string>* notes) {
  for (const auto& [name, node] : from.entries) {
    if (name == "model_type" || (!is_config && (name == "path" || name == "init_from"))) continue;
    const Field* field = FieldFor(family, name);
    if (field == nullptr && !IsFixed(family, name)) {
      if (IsIgnored(family, name, is_config)) continue;
      const std::optional<std::string> nearest = Nearest(name, ModelKeyList(family));
      issues->Add(node.place, absl::StrCat("model.", name),
                  absl::StrCat("unknown key of a ", FamilyName(family), " model; ",
                               nearest ? absl::StrCat("did you mean ", *nearest, "?")
                                       : absl::StrCat("known are ",
                                                      absl::StrJoin(ModelKeyList(family), ", "))));
      continue;
    }
    const std::string key(field != nullptr ? field->key : absl::string_view(name));
    if (key != name) {
      notes->push_back(
          absl::StrCat(node.place.Text(), ": model.", name, " is read as model.", key));
    }
    const YamlNode* before = merged->Find(key);
    if (before != nullptr && before->place.source == node.place.source && before->place.line > 0) {
      issues->Add(node.place, absl::StrCat("model.", name),
                  absl::StrCat("is another name of ", key, ", which stands on line ",
                               before->place.line, "; keep one of the two"));
      continue;
    }
    if (before != nullptr) {
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

void CheckFixed(ModelFamily family, const YamlNode& model, const ModelUse& use, Issues* issues,
                std::vector<std::string>* notes) {
  for (const FixedKey& fixed : FixedOf(family)) {
    const YamlNode* node = model.Find(fixed.key);
    if (node == nullptr || node->is_null()) continue;
    const bool plain = node->is_scalar() && !node->quoted;
    const double number = plain ? ParseNumber(node->scalar).value_or(-1) : -1;
    if (fixed.accepted == "0" && number == 0) continue;
    if (node->is_scalar() && Lists(fixed.accepted, node->scalar)) continue;
    const std::string key = absl::StrCat("model.", fixed.key);
    const std::string other = absl::StrCat("--set ", key, "=", fixed.accepted);
    if (!use.refuse_dropouts && IsDropout(fixed.key) && number > 0 && number < 1) {
      notes->push_back(absl::StrCat(key, ": ", node->scalar, " is planned as 0; weft run does not ",
                                    "train with dropout yet, and wants ", other));
      continue;
    }
    const bool other_model = use.is_pretrained && !IsDropout(fixed.key);
    issues->Add(node->place, key,
                other_model
                    ? absl::StrCat(node->Found(), " is not supported yet, and these weights were ",
                                   "trained with it; use weights of a model with ", fixed.accepted)
                    : absl::StrCat(node->Found(), " is not supported yet; use ", fixed.accepted,
                                   ": ", other));
  }
}

// A window that is as wide as a sequence is long hides nothing.
void CheckWindow(const YamlNode& model, const ModelUse& use, Issues* issues) {
  const YamlNode* node = model.Find(kWindow);
  if (node == nullptr || node->is_null()) return;
  const std::string key = absl::StrCat("model.", kWindow);
  const std::optional<int64_t> window =
      node->is_scalar() && !node->quoted ? ParseWholeNumber(node->scalar) : std::nullopt;
  if (!window || *window < 1) {
    issues->Add(
        node->place, key,
        absl::StrCat("found ", node->Found(), "; expected null or a whole number, 1 or more"));
  } else if (use.seq_len && *window < *use.seq_len) {
    issues->Add(node->place, key,
                absl::StrCat(*window, " is shorter than training.seq_len ", *use.seq_len,
                             ", and attention within a window is not supported yet; use a "
                             "training.seq_len of at most ",
                             *window));
  }
}

// Keys of rope_scaling beside the numbers of its kind.
constexpr absl::string_view kRopeKinds = "rope_type type";
constexpr absl::string_view kLlama3Rope =
    "factor low_freq_factor high_freq_factor original_max_position_embeddings";

void ReadRopeScaling(const YamlNode& model_tree, Issues* issues, ModelShape* model) {
  const YamlNode* tree = model_tree.Find("rope_scaling");
  if (tree == nullptr || tree->is_null()) return;
  constexpr absl::string_view kKey = "model.rope_scaling";
  const YamlNode* type = tree->Find("rope_type");
  if (type == nullptr) type = tree->Find("type");
  const bool scales = type != nullptr && type->scalar == "llama3";
  if (!scales && (type == nullptr || type->scalar != "default")) {
    issues->Add(tree->place, kKey,
                absl::StrCat(type == nullptr ? tree->Found() : type->scalar,
                             " is not supported yet; use null or a map with rope_type llama3"));
    return;
  }
  for (const auto& [name, node] : tree->entries) {
    if (Lists(kRopeKinds, name) || (scales && Lists(kLlama3Rope, name))) continue;
    issues->Add(node.place, absl::StrCat(kKey, ".", name),
                absl::StrCat("unknown key of rope_type ", type->scalar,
                             scales ? absl::StrCat("; known are ", kLlama3Rope)
                                    : std::string("; it takes none")));
  }
  if (!scales) return;
  const YamlValues values(*tree, kKey, issues);
  values.Read("factor", &model->rope_scaling.factor);
  values.Read("low_freq_factor", &model->rope_scaling.low_freq_factor);
  values.Read("high_freq_factor", &model->rope_scaling.high_freq_factor);
  values.Read("original_max_position_embeddings", &model->rope_scaling.original_max_positions);
}

// transformers 5 writes rope_theta and rope_scaling as one map, rope_parameters: as two again.
YamlNode WithRopeKeys(const YamlNode& tree, Issues* issues) {
  YamlNode plain = tree;
  const YamlNode* const rope = tree.Find(kRopeParameters);
  if (rope == nullptr) return plain;
  plain.Remove(kRopeParameters);
  if (!rope->is_map() && !rope->is_null()) {
    issues->Add(rope->place, absl::StrCat("model.", kRopeParameters),
                absl::StrCat("found ", rope->Found(),
                             ", expected a map with rope_theta and rope_type default or llama3"));
  }
  if (!rope->is_map()) return plain;
  YamlNode scaling = *rope;
  if (const YamlNode* theta = rope->Find("rope_theta")) {
    plain.entries.push_back({"rope_theta", *theta});
    scaling.Remove("rope_theta");
  }
  if (!scaling.entries.empty()) plain.entries.push_back({"rope_scaling", scaling});
  return plain;
}

// Experts are as wide as intermediate_size says (Jiang et al., arXiv:2401.04088, table 1).
void ReadExperts(const YamlValues& values, bool mixtral, ModelShape* model) {
  if (mixtral) {
    model->num_experts = 8;
    model->experts_per_token = 2;
  }
  values.Read("num_local_experts", &model->num_experts);
  values.Read("num_experts_per_tok", &model->experts_per_token);
  if (model->num_experts > 0) model->expert_ffn_size = model->ffn_size;
}

void ReadFields(const YamlNode& tree, const Place& section, bool mixtral, Issues* issues,
                ModelShape* model) {
  const YamlValues values(tree, "model", issues);
  const auto key = [&](absl::string_view field) { return ModelKeyOf(model->family, field); };
  for (const Field& field : FieldsOf(model->family)) {
    if (field.required && !values.Has(field.key)) {
      issues->Add(section, absl::StrCat("model.", field.key),
                  absl::StrCat("missing; a ", FamilyName(model->family), " model needs it"));
    }
  }
  values.Read(key("vocab_size"), &model->vocab_size);
  values.Read(key("max_positions"), &model->max_positions);
  values.Read(key("hidden_size"), &model->hidden_size);
  values.Read(key("num_blocks"), &model->num_blocks);
  values.Read(key("num_heads"), &model->num_heads);
  values.Read(key("norm_eps"), &model->norm_eps);
  values.Read(key("initializer_range"), &model->initializer_range);
  model->tied_embeddings = values.Flag(key("tied_embeddings")).value_or(model->tied_embeddings);
  model->ffn_size = 4 * model->hidden_size;
  values.Read(key("ffn_size"), &model->ffn_size);
  model->num_kv_heads = model->num_heads;
  model->head_dim = model->num_heads > 0 ? model->hidden_size / model->num_heads : 0;
  if (model->family == ModelFamily::kLlama) {
    values.Read(key("num_kv_heads"), &model->num_kv_heads);
    values.Read(key("head_dim"), &model->head_dim);
    values.Read(key("rope_theta"), &model->rope_theta);
    model->attention_bias = values.Flag("attention_bias").value_or(false);
    ReadRopeScaling(tree, issues, model);
    ReadExperts(values, mixtral, model);
  }
}

}  // namespace

ModelShape ReadModel(const YamlNode& job_model, const YamlNode* config, const ModelUse& use,
                     Issues* issues, std::vector<std::string>* notes) {
  ModelShape model;
  const YamlNode* type = job_model.Find("model_type");
  if (type == nullptr && config != nullptr) type = config->Find("model_type");
  if (type == nullptr || !type->is_scalar()) {
    issues->Add(job_model.place, "model.model_type", "missing; use gpt2, llama or mixtral");
    return model;
  }
  const absl::StatusOr<ModelFamily> family = FamilyOf(type->scalar);
  if (!family.ok()) {
    issues->Add(type->place, "model.model_type",
                absl::StrCat(type->scalar, " is not supported yet; use gpt2, llama or mixtral"));
    return model;
  }
  model.family = *family;
  model.tied_embeddings = *family == ModelFamily::kGpt2;
  model.norm_eps = *family == ModelFamily::kGpt2 ? 1e-5 : 1e-6;
  YamlNode merged = YamlNode::Map(job_model.place);
  const auto merge = [&](const YamlNode& from, bool is_config) {
    const bool rotates = *family == ModelFamily::kLlama;
    Merge(*family, rotates ? WithRopeKeys(from, issues) : from, is_config, &merged, issues, notes);
  };
  if (config != nullptr) merge(*config, true);
  merge(job_model, false);
  CheckFixed(*family, merged, use, issues, notes);
  if (*family == ModelFamily::kLlama) CheckWindow(merged, use, issues);
  ReadFields(merged, job_model.place, type->scalar == "mixtral", issues, &model);
  return model;
}

std::string RopeScalingText(const RopeScaling& scaling) {
  if (scaling.factor == 1) return "null";
  return absl::StrCat("{rope_type: llama3, factor: ", NumberText(scaling.factor),
                      ", low_freq_factor: ", NumberText(scaling.low_freq_factor),
                      ", high_freq_factor: ", NumberText(scaling.high_freq_factor),
                      ", original_max_position_embeddings: ", scaling.original_max_positions, "}");
}

YamlNode ReadConfigJson(const std::string& path, const Place& place, Issues* issues) {
  std::error_code error;
  std::string file = path;
  if (std::filesystem::is_directory(path, error)) {
    file = (std::filesystem::path(path) / "config.json").string();
  }
  const absl::StatusOr<std::string> text = ReadWholeFile(file, kMostSpecBytes);
  if (!text.ok()) {
    issues->Add(place, "model.path",
                absl::StrCat(text.status().message(),
                             "; expected a config.json or a folder that holds one"));
    return {};
  }
  // YAML reads any JSON and keeps line numbers; JSON's own parser is the judge of what is JSON.
  try {
    const nlohmann::json json = nlohmann::json::parse(*text);
    if (!json.is_object()) {
      issues->Add({file, 0, 1}, "model.path", "not a config.json: expected one object { ... }");
      return {};
    }
  } catch (const nlohmann::json::parse_error& failure) {
    const std::string before = text->substr(0, failure.byte);
    const int line = 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n'));
    issues->Add({file, 0, line}, "model.path", "not valid JSON here; expected a config.json");
    return {};
  } catch (const nlohmann::json::out_of_range&) {
    issues->Add({file, 0, 1}, "model.path",
                "holds a number beyond 1.8e308; expected a config.json");
    return {};
  }
  return ParseYaml(*text, file, place.order, issues).value_or(YamlNode{});
}

absl::StatusOr<ModelShape> ModelOfDirectory(const std::string& folder) {
  Issues issues;
  YamlNode config = ReadConfigJson(folder, Place{folder}, &issues);
  for (const absl::string_view key : kDropouts) config.Remove(key);
  std::vector<std::string> notes;
  ModelShape model;
  const ModelUse use = {.is_pretrained = true};
  if (config.is_map()) {
    model = ReadModel(YamlNode::Map(Place{folder}), &config, use, &issues, &notes);
  }
  if (!issues.empty()) return absl::InvalidArgumentError(issues.Text());
  const absl::Status valid = CheckModel(model);
  if (!valid.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(folder, "/config.json: ", valid.message()));
  }
  const YamlNode* const window = config.Find(kWindow);
  if (window == nullptr || model.family != ModelFamily::kLlama) return model;
  model.max_positions =
      std::min(model.max_positions, ParseWholeNumber(window->scalar).value_or(model.max_positions));
  return model;
}

std::string ModelKeyOf(ModelFamily family, absl::string_view field) {
  for (const Field& each : FieldsOf(family)) {
    if (each.field == field) return absl::StrCat(each.key);
  }
  return absl::StrCat(field);
}

std::vector<std::string> ModelKeyList(ModelFamily family) {
  std::vector<std::string> keys = {"model_type"};
  for (const Field& field : FieldsOf(family)) keys.emplace_back(field.key);
  for (const FixedKey& fixed : FixedOf(family)) keys.emplace_back(fixed.key);
  if (family == ModelFamily::kLlama) {
    keys.emplace_back(kRopeParameters);
    keys.emplace_back(kWindow);
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

}  // namespace weft
