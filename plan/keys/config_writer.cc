#include "plan/keys/config_writer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "plan/keys/model_keys.h"
#include "plan/keys/model_types.h"
#include "plan/keys/rope_keys.h"

namespace weft {
namespace {

// Returns "30" as "30.0": transformers takes numbers with a point alone of some keys.
Value WithPoint(Value number) {
  if (number.scalar.find_first_not_of("0123456789") == std::string::npos) number.scalar += ".0";
  return number;
}
Value CapValue(double cap) {
  return cap > 0 ? WithPoint(Value::Number(cap)) : Value();
}

// A silent file may mean a window. transformers masks gemmas' sliding blocks even where they have
// none: by as many keys as there are.
Value NoWindowValue(const ModelShape& model) {
  const ModelType& type = TypeOf(ArchitectureOf(model));
  const bool needs_one = type.slides == SlidingBlocks::kAllButEvery;
  return needs_one ? Value::Whole(model.max_positions) : Value();
}

// Keys of what weft does in one way only, with the value that means it; and of what a model's own
// list of keys leaves out where it is as the type has it.
struct StatedKey {
  absl::string_view key;
  Value (*value)(const ModelShape&);
};
const StatedKey kStatedKeys[] = {
    {"attention_dropout", [](const ModelShape&) { return Value::Number(0); }},
    {"resid_pdrop", [](const ModelShape&) { return Value::Number(0); }},
    {"embd_pdrop", [](const ModelShape&) { return Value::Number(0); }},
    {"attn_pdrop", [](const ModelShape&) { return Value::Number(0); }},
    {"residual_dropout", [](const ModelShape&) { return Value::Number(0); }},
    {"embedding_dropout", [](const ModelShape&) { return Value::Number(0); }},
    {"hidden_dropout", [](const ModelShape&) { return Value::Number(0); }},
    {"mlp_bias", [](const ModelShape&) { return Value::Flag(false); }},
    {"use_bias", [](const ModelShape&) { return Value::Flag(true); }},
    {"attention_out_bias", [](const ModelShape&) { return Value::Flag(false); }},
    {"use_bidirectional_attention", [](const ModelShape&) { return Value::Flag(false); }},
    {"attn_logit_softcapping",
     [](const ModelShape& model) { return CapValue(model.attention_cap); }},
    {"final_logit_softcapping", [](const ModelShape& model) { return CapValue(model.logit_cap); }},
    {"partial_rotary_factor",
     [](const ModelShape& model) { return WithPoint(Value::Number(model.rotary_share)); }},
    {"rotary_pct",
     [](const ModelShape& model) { return WithPoint(Value::Number(model.rotary_share)); }},
    {"use_parallel_residual",
     [](const ModelShape& model) { return Value::Flag(model.parallel_residual); }},
    {"logit_scale",
     [](const ModelShape& model) { return WithPoint(Value::Number(model.logit_scale)); }},
    {"query_pre_attn_scalar",
     [](const ModelShape& model) { return Value::Number(model.query_scalar); }},
    {"rope_local_base_freq",
     [](const ModelShape& model) { return Value::Number(model.sliding_rope_theta); }},
    {"use_sliding_window", [](const ModelShape& model) { return Value::Flag(model.window > 0); }},
    {"sliding_window", NoWindowValue},
};

std::optional<Value> StatedValue(const ModelShape& model, absl::string_view key) {
  if (key == "hidden_act" || key == "hidden_activation" || key == "activation_function") {
    const bool is_tanh_form = key != "activation_function" && model.activation == Activation::kGelu;
    return Value::Text(is_tanh_form ? "gelu_pytorch_tanh" : WordOf(model.activation));
  }
  for (const StatedKey& row : kStatedKeys) {
    if (row.key == key) return row.value(model);
  }
  return std::nullopt;
}

// Sliding blocks turn by a base of their own, for which the type has no key: all is said by kind of
// block then.
void SayRopeByKindOfBlock(const ModelShape& model, Value& config) {
  Value full = Value::Map(), sliding = Value::Map();
  const Value scaling = RopeScalingValue(model.rope_scaling);
  const Value plain = Value::Scalar("default");
  full.entries =
      scaling.is_null() ? std::vector<ValueEntry>{{"rope_type", plain}} : scaling.entries;
  full.entries.push_back({"rope_theta", Value::Number(model.rope_theta)});
  sliding.entries = {{"rope_type", plain}, {"rope_theta", Value::Number(model.sliding_rope_theta)}};
  config.Remove("rope_theta");
  config.Remove("rope_scaling");
  Value by_kind = Value::Map();
  by_kind.entries = {{std::string(WordOf(AttentionSpan::kFull)), std::move(full)},
                     {std::string(WordOf(AttentionSpan::kSliding)), std::move(sliding)}};
  config.entries.push_back({"rope_parameters", std::move(by_kind)});
}

}  // namespace

Value ConfigTree(const ModelShape& model) {
  const ModelType& type = TypeOf(ArchitectureOf(model));
  Value config = Value::Map();
  const auto add = [&](absl::string_view key, Value value) {
    config.entries.push_back({std::string(key), std::move(value)});
  };
  add("architectures", Value::List({Value::Text(type.class_name)}));
  const std::vector<absl::string_view> reads = absl::StrSplit(type.reads, ' ', absl::SkipEmpty());
  const auto is_read = [&](absl::string_view key) {
    return key == "model_type" || key == "rope_theta" || key == "rope_scaling" ||
           std::find(reads.begin(), reads.end(), key) != reads.end();
  };
  for (ValueEntry& entry : ModelTree(model).entries) {
    if (!is_read(entry.name)) continue;
    // Caps, a factor and no window have spellings of their own, below.
    const bool is_own = absl::EndsWith(entry.name, "_softcapping") || entry.name == "logit_scale" ||
                        (entry.name == "sliding_window" && model.window == 0);
    if (!is_own) add(entry.name, std::move(entry.node));
  }
  for (const absl::string_view key : reads) {
    if (config.Find(key) != nullptr) continue;
    if (std::optional<Value> value = StatedValue(model, key)) add(key, *std::move(value));
  }
  ModelShape typical;
  SetTypeDefaults(type, typical);
  if (type.has_rope_by_span && !is_read("rope_local_base_freq") &&
      model.sliding_rope_theta != typical.sliding_rope_theta) {
    SayRopeByKindOfBlock(model, config);
  }
  return config;
}

}  // namespace weft
