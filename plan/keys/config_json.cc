#include "plan/keys/config_json.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "plan/keys/rope_keys.h"

namespace weft {
namespace {

// Keys of every configuration that transformers has, which say nothing about how the model
// computes: of generating, of other heads, of its own bookkeeping.
constexpr absl::string_view kOfNoConsequence =
    "architectures attn_implementation auto_map bad_words_ids begin_suppress_tokens bos_token_id "
    "cache_implementation "
    "chunk_size_feed_forward cross_attention_hidden_size decoder_start_token_id "
    "diversity_penalty do_sample dtype early_stopping encoder_no_repeat_ngram_size eos_token_id "
    "experts_implementation exponential_decay_length_penalty finetuning_task forced_bos_token_id "
    "forced_eos_token_id gradient_checkpointing id2label is_decoder is_encoder_decoder label2id "
    "length_penalty "
    "max_length max_sequence_length min_length n_ctx name_or_path no_repeat_ngram_size "
    "num_beam_groups num_beams "
    "num_labels num_return_sequences output_attentions output_hidden_states output_past "
    "output_router_logits output_scores pad_token_id prefix pretraining_tp problem_type "
    "remove_invalid_values reorder_and_upcast_attn repetition_penalty return_dict "
    "return_dict_in_generate router_aux_loss_coef sep_token_id summary_activation "
    "summary_first_dropout summary_proj_to_labels summary_type summary_use_proj suppress_tokens "
    "task_specific_params temperature tf_legacy_loss tie_encoder_decoder tie_last_hidden_states "
    "tokenizer_class top_k top_p torch_dtype torchscript transformers_version typical_p "
    "unk_token_id use_bfloat16 use_cache use_return_dict";

// Keys of every configuration that would make another model of it.
struct ChangingKey {
  absl::string_view key;
  absl::string_view means;
};
constexpr ChangingKey kChanging[] = {
    {"quantization_config", "weights in a quantized format"},
    {"pruned_heads", "heads that are gone"},
    {"per_layer_config", "blocks that differ from each other"},
    {"is_encoder_decoder", "an encoder beside the decoder"},
    {"partial_rotary_factor", "rotary positions of a part of each head"},
};

// Keys that other values than numbers, maps and lists switch off.
constexpr absl::string_view kOffIfFalse =
    "sliding_window rope_scaling rope_parameters q_lora_rank head_dim n_inner num_key_value_heads "
    "attention_dropout resid_pdrop embd_pdrop attn_pdrop router_jitter_noise mlp_only_layers "
    "layer_types quantization_config pruned_heads per_layer_config n_shared_experts n_group "
    "topk_group is_encoder_decoder attn_logit_softcapping final_logit_softcapping";

constexpr absl::string_view kOriginalPositions = "original_max_position_embeddings";
constexpr absl::string_view kSlidingTheta = "rope_local_base_freq";
constexpr absl::string_view kTheta = "rope_theta";                   // in maps, if not beside them
constexpr absl::string_view kRotaryShare = "partial_rotary_factor";  // likewise
constexpr absl::string_view kRopeMaps[] = {"rope_scaling", "rope_parameters"};

bool IsFalse(const Value& value) {
  return value.is_scalar() && !value.quoted && value.scalar == "false";
}

std::optional<double> NumberIn(const Value* value) {
  if (value == nullptr || !value->is_scalar() || value->quoted) return std::nullopt;
  return ParseNumber(value->scalar);
}

bool IsEmpty(const Value& value) {
  return value.is_null() || (value.is_scalar() && value.scalar.empty()) ||
         (value.is_list() && value.items.empty()) || (value.is_map() && value.entries.empty());
}

// Nothing depends on a key that says this.
bool SaysNothing(const Value& value) {
  return IsEmpty(value) || IsFalse(value) || NumberIn(&value) == 0;
}

class Reading {
 public:
  Reading(const Value& config, const ModelType& type, Issues* issues,
          std::vector<std::string>* notes)
      : config_(config), type_(type), issues_(issues), notes_(notes) {
    const Value* const code = config.Find("auto_map");
    has_code_ = code != nullptr && !IsEmpty(*code);
  }

  Value Run() {
    own_ = Value::Map(config_.place);
    for (const auto& [name, node] : config_.entries) Take(name, node);
    if (type_.family == ModelFamily::kLlama) TakeRope();
    constexpr absl::string_view kUse = "use_sliding_window";
    const Value* const used = config_.Find(kUse);
    if (HasWord(type_.reads, kUse) && (used == nullptr || SaysNothing(*used))) {
      own_.Remove(kUse);
      Keep(kUse, Value::Scalar("false", config_.place));
    }
    // transformers assumes these where a file is silent.
    for (absl::string_view each : absl::StrSplit(type_.defaults, ' ', absl::SkipEmpty())) {
      const std::pair<absl::string_view, absl::string_view> pair = absl::StrSplit(each, '=');
      const bool is_stated = config_.Find(pair.first) != nullptr || own_.Find(pair.first);
      if (!is_stated) Keep(pair.first, Value::Scalar(pair.second, config_.place));
    }
    return std::move(own_);
  }

 private:
  void Keep(absl::string_view name, Value node) {
    own_.entries.push_back({std::string(name), std::move(node)});
  }

  void Refuse(const Value& node, absl::string_view name, absl::string_view message) {
    issues_->Add(node.place, absl::StrCat("model.", name), message);
  }

  void NotePassedOver(const Value& node, absl::string_view name) {
    if (SaysNothing(node)) return;
    notes_->push_back(absl::StrCat(node.place.Text(), ": ", name, ": ", node.Found(),
                                   " is passed over: transformers does not read it of a ",
                                   type_.name(), " model"));
  }

  void Take(const std::string& name, const Value& node) {
    if (name == "auto_map" || absl::StartsWith(name, "_")) return;
    if (HasWord(type_.passed_over, name)) return;
    if (type_.family == ModelFamily::kLlama &&
        (name == theta_key_ ||
         std::find(std::begin(kRopeMaps), std::end(kRopeMaps), name) != std::end(kRopeMaps))) {
      return;  // TakeRope does
    }
    const bool is_off = IsFalse(node) && HasWord(kOffIfFalse, name);
    for (const ChangingKey& changing : kChanging) {
      if (changing.key == name && !HasWord(type_.reads, name))
        return is_off ? void() : TakeChanging(changing, node);
    }
    if (HasWord(kOfNoConsequence, name)) return;
    if (name == kOriginalPositions) return;  // TakeRope does
    const bool is_read = name == "model_type" || HasWord(type_.reads, name);
    if (!is_read && !has_code_) return NotePassedOver(node, name);
    if (!is_read && SaysNothing(node)) return;
    Keep(name, is_off || IsEmpty(node) ? NothingAt(node.place) : SameInOurWords(type_, name, node));
  }

  static Value NothingAt(const Place& place) {
    Value nothing;
    nothing.place = place;
    return nothing;
  }

  void TakeChanging(const ChangingKey& changing, const Value& node) {
    if (SaysNothing(node)) return;
    if (changing.key == "partial_rotary_factor" && NumberIn(&node) == 1) return;
    const Value* const method = node.Find("quant_method");
    const std::string which =
        method != nullptr && method->is_scalar() ? absl::StrCat(" (", method->scalar, ")") : "";
    Refuse(node, changing.key,
           absl::StrCat("found ", node.Found(), which, ", which means ", changing.means,
                        ": that is not supported yet; use a model without"));
  }

  // rope_theta stands beside the maps, or in one of them.
  void TakeRope() {
    const Value* theta = SaidOrNull(theta_key_);
    const Value* scaling = nullptr;
    Value kept;
    for (const absl::string_view name : kRopeMaps) {
      const Value* map = SaidOrNull(name);
      if (map == nullptr) continue;
      if (type_.has_rope_by_span) map = OfFullBlocks(name, map);
      if (!map->is_map()) {
        Refuse(*map, name,
               absl::StrCat("found ", map->Found(),
                            ", expected a map with rope_theta and rope_type default or llama3"));
        continue;
      }
      theta = TheOne(theta_key_, theta, map->Find(kTheta));
      if (type_.is_only_planned()) continue;  // no plan depends on the rest
      const Value read = ReadRopeMap(name, *map);
      if (scaling != nullptr && !SameValue(kept, read)) {
        Refuse(*map, name,
               absl::StrCat("says something else than rope_scaling on line ", scaling->place.line,
                            "; keep one of the two"));
        continue;
      }
      scaling = map;
      kept = read;
    }
    if (sliding_theta_ != nullptr) Keep(kSlidingTheta, *sliding_theta_);
    if (rotary_share_ != nullptr) Keep(share_key_, *rotary_share_);
    if (theta != nullptr) Keep(theta_key_, *theta);
    if (!kept.is_null()) Keep("rope_scaling", kept);
  }

  // Returns the map of blocks that see all, where there is a map for each span.
  const Value* OfFullBlocks(absl::string_view name, const Value* map) {
    const std::optional<RopeBySpan> parts = RopeBySpanOf(*map, name, issues_);
    if (!parts && name == "rope_parameters" && map->is_map()) {
      Refuse(*map, name, std::string(kOneMapForAllSpans));
    }
    if (!parts) return map;
    sliding_theta_ = TheOne(kSlidingTheta, SaidOrNull(kSlidingTheta), parts->sliding_theta);
    own_.Remove(kSlidingTheta);
    return parts->full;
  }

  const Value* SaidOrNull(absl::string_view name) const {
    const Value* const value = config_.Find(name);
    return value == nullptr || IsEmpty(*value) || IsFalse(*value) ? nullptr : value;
  }

  const Value* TheOne(absl::string_view name, const Value* one, const Value* other) {
    if (other == nullptr || IsEmpty(*other)) return one;
    if (one == nullptr || SameValue(*one, *other)) return other;
    Refuse(*other, name,
           absl::StrCat("found ", other->Found(), ", but ", one->Found(), " on line ",
                        one->place.line, "; keep one of the two"));
    return one;
  }

  // The scaling that a map says, in the keys of its kind alone; null: none.
  Value ReadRopeMap(absl::string_view name, const Value& map) {
    const Value* type = map.Find("rope_type");
    if (type == nullptr) type = map.Find("type");
    const std::string kind = type == nullptr || type->is_null() ? "default" : type->scalar;
    const std::optional<double> factor = NumberIn(map.Find("factor"));
    const bool by_layer = std::any_of(map.entries.begin(), map.entries.end(),
                                      [](const ValueEntry& entry) { return entry.node.is_map(); });
    // Dynamic positions change nothing up to max_position_embeddings, which no sequence exceeds.
    const bool is_none =
        kind == "default" || kind == "dynamic" || (kind == "linear" && factor.value_or(1) == 1);
    const absl::StatusOr<RopeKind> read_as = ParseWord<RopeKind>(kind, "a rope_type");
    if (by_layer || (!is_none && !read_as.ok())) {
      Refuse(map, name,
             absl::StrCat(by_layer ? "a map by kind of block" : kind,
                          " is not supported yet; use null or a map with rope_type ",
                          Alternatives(WordsOf(RopeKind()))));
      return {};
    }
    const absl::string_view keys = is_none ? "" : RopeKeysOf(*read_as);
    const Value* const part = map.Find(kRotaryShare);
    if (part != nullptr && HasWord(type_.reads, share_key_)) {
      // Beside the map it may stand once more.
      const Value* const before = rotary_share_ != nullptr ? rotary_share_ : SaidOrNull(share_key_);
      rotary_share_ = TheOne(share_key_, before, part);
      own_.Remove(share_key_);
    } else if (part != nullptr) {
      TakeChanging({"partial_rotary_factor", "rotary positions of a part of each head"}, *part);
    }
    Value read = Value::Map(map.place);
    if (!is_none) read.entries.push_back({"rope_type", Value::Scalar(kind, map.place)});
    for (const auto& [key, node] : map.entries) {
      const bool is_named = key == "rope_type" || key == "type" || key == kTheta ||
                            key == kRotaryShare || (is_none && key == "factor");
      if (is_named || node.is_null()) continue;
      if (HasWord(keys, key)) {
        read.entries.push_back({key, node});
      } else {
        NotePassedOver(node, absl::StrCat(name, ".", key));
      }
    }
    if (kind == "dynamic") {
      notes_->push_back(absl::StrCat(map.place.Text(), ": ", name,
                                     ": dynamic changes nothing up to ",
                                     "max_position_embeddings, which no sequence exceeds"));
    }
    if (is_none) return {};
    if (HasWord(keys, kOriginalPositions)) AddOriginalPositions(*read_as, name, &read);
    std::sort(read.entries.begin(), read.entries.end(),
              [](const ValueEntry& a, const ValueEntry& b) { return a.name < b.name; });
    return read;
  }

  // A file may say beside the map how many positions there were. Else Llama 3.1's are today's; by
  // yarn's rule today's would be stretched once more.
  void AddOriginalPositions(RopeKind kind, absl::string_view map, Value* scaling) {
    const Value* const beside = SaidOrNull(kOriginalPositions);
    const Value* const inside = scaling->Find(kOriginalPositions);
    if (beside != nullptr) TheOne(kOriginalPositions, inside, beside);
    const Value* const today = config_.Find("max_position_embeddings");
    const Value* const original = inside != nullptr ? inside : beside;
    if (kind == RopeKind::kYarn && original == nullptr) {
      return Refuse(*scaling, map,
                    absl::StrCat("does not say ", kOriginalPositions,
                                 ", by which yarn tells slow turns from fast ones; add it"));
    }
    const Value* const stated = original != nullptr ? original : today;
    if (inside == nullptr && stated != nullptr) {
      scaling->entries.push_back({std::string(kOriginalPositions), *stated});
    }
    // How far it is stretched, where the map leaves that out.
    const std::optional<double> longest = NumberIn(today), first = NumberIn(original);
    if (kind == RopeKind::kYarn && scaling->Find("factor") == nullptr && longest && first &&
        *first > 0) {
      scaling->entries.push_back({"factor", Value::Number(*longest / *first)});
    }
  }

  const Value& config_;
  const ModelType& type_;
  Issues* const issues_;
  std::vector<std::string>* const notes_;
  // Keys of the base, and of the share of a head that turns, beside maps of rotary positions.
  const absl::string_view theta_key_ = KeysOf(type_.architecture).rope_theta;
  const absl::string_view share_key_ = KeysOf(type_.architecture).rotary_share;
  bool has_code_ = false;
  const Value* sliding_theta_ = nullptr;  // in a map of rotary positions
  const Value* rotary_share_ = nullptr;   // likewise
  Value own_;
};

// A mechanism of models that weft does not know, by the key that asks for it.
struct Mechanism {
  absl::string_view keys;  // any of them, separated by spaces
  absl::string_view what;
};
constexpr Mechanism kMechanisms[] = {
    {"vision_config visual_config", "a vision tower"},
    {"audio_config", "an audio tower"},
    {"block_configs", "blocks that differ from each other"},
    {"hybrid_override_pattern layers_block_type mamba_num_heads ssm_state_size mamba_d_state",
     "state-space blocks"},
    {"linear_num_value_heads linear_key_head_dim linear_attn_config", "linear attention"},
    {"index_topk sparse_attention_config", "sparse attention, chosen by an indexer"},
    {"compress_ratios", "compressed attention"},
    {"hc_mult", "hyper-connections"},
    {"attention_chunk_size", "attention in chunks"},
    {"hybrid_layer_pattern", "attention within a window in some blocks"},
    {"add_swa_attention_sink_bias add_full_attention_sink_bias", "attention sinks"},
    {"swiglu_limit", "a clamped SwiGLU"},
    {"attention_k_eq_v", "keys that are values"},
    {"use_routing_bias use_moe_router_bias", "a router that a bias balances"},
    {"qkv_bias", "biases of queries, keys and values alone"},
    {"num_nextn_predict_layers num_mtp_modules", "blocks that predict further tokens"},
};

// Mechanisms that no key of a type's files asks for.
constexpr std::pair<absl::string_view, absl::string_view> kOfTypes[] = {
    {"gpt_oss", "attention sinks"},
    {"mimo", "biases of queries, keys and values alone"},
};

bool HasWindows(const Value& config) {
  const Value* const types = config.Find("layer_types");
  if (types == nullptr) return false;
  return std::any_of(types->items.begin(), types->items.end(),
                     [](const Value& item) { return item.scalar == "sliding_attention"; });
}

void AddMechanisms(const Value& config, std::vector<std::string>* found) {
  for (const Mechanism& mechanism : kMechanisms) {
    for (absl::string_view key : absl::StrSplit(mechanism.keys, ' ', absl::SkipEmpty())) {
      const Value* const value = config.Find(key);
      if (value == nullptr || SaysNothing(*value)) continue;
      found->push_back(absl::StrCat(mechanism.what, " (", key, ")"));
      break;
    }
  }
  if (HasWindows(config)) {
    found->push_back("attention within a window in some blocks (layer_types)");
  }
}

}  // namespace

Value OwnModelKeys(const Value& config, const ModelType& type, Issues* issues,
                   std::vector<std::string>* notes) {
  return Reading(config, type, issues, notes).Run();
}

const Value* TextConfigOf(const Value& config) {
  const Value* const type = config.Find("model_type");
  const Value* const text = config.Find("text_config");
  if (type == nullptr || text == nullptr || !text->is_map()) return nullptr;
  const Value* const inner = text->Find("model_type");
  const ModelType* const of_text = inner == nullptr ? nullptr : FindModelType(inner->scalar);
  const bool is_known = of_text != nullptr && !of_text->wrapper.empty();
  return is_known && type->scalar == of_text->wrapper ? text : nullptr;
}

Value SameInOurWords(const ModelType& type, absl::string_view name, const Value& node) {
  Value same = node;
  if (!HasWord("hidden_act hidden_activation activation_function", name)) return same;
  if (node.scalar == "swish" && name == "hidden_act") same.scalar = "silu";
  if (node.scalar == "gelu_pytorch_tanh") same.scalar = "gelu_new";
  // transformers takes the tanh form for a gemma's, whichever of the two its file names.
  if (node.scalar == "gelu" && type.architecture == Architecture::kGemma) same.scalar = "gelu_new";
  return same;
}

absl::string_view KeysOfNoConsequence() {
  return kOfNoConsequence;
}

std::string UnknownMechanisms(const Value& config) {
  std::vector<std::string> found;
  const Value* const type = config.Find("model_type");
  for (const auto& [name, what] : kOfTypes) {
    if (type != nullptr && type->scalar == name) found.emplace_back(what);
  }
  AddMechanisms(config, &found);
  for (const absl::string_view part : {"text_config", "llm_config"}) {
    if (const Value* const text = config.Find(part)) AddMechanisms(*text, &found);
  }
  return absl::StrJoin(found, ", ");
}

bool SameValue(const Value& a, const Value& b) {
  if (a.is_scalar() && b.is_scalar()) {
    const std::optional<double> first = NumberIn(&a), second = NumberIn(&b);
    return first && second ? *first == *second : a.scalar == b.scalar;
  }
  if (a.kind != b.kind || a.items.size() != b.items.size() ||
      a.entries.size() != b.entries.size()) {
    return false;
  }
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!SameValue(a.items[i], b.items[i])) return false;
  }
  for (const auto& [name, node] : a.entries) {
    const Value* const other = b.Find(name);
    if (other == nullptr || !SameValue(node, *other)) return false;
  }
  return true;
}

}  // namespace weft
