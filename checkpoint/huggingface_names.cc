#include "checkpoint/huggingface_names.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "plan/block/tensors.h"
#include "plan/errors.h"

namespace weft {
namespace {

// A layer of a block, or of what lies around the blocks; ".weight" and ".bias" follow the names.
struct LayerName {
  absl::string_view theirs;
  absl::string_view ours;   // several, separated by spaces, are one below the other
  bool transposed = false;  // its matrix
  bool by_head = false;     // each head's part of all of ours, then the next one's
};

struct Names {
  absl::string_view block;  // before a block's number
  absl::Span<const LayerName> before, layers, behind;
};

constexpr LayerName kGpt2Before[] = {{"transformer.wte", "embed.tokens"},
                                     {"transformer.wpe", "embed.positions"}};
constexpr LayerName kGpt2Layers[] = {{"ln_1", "norm1"},
                                     {"attn.c_attn", "attn.q attn.k attn.v", true},
                                     {"attn.c_proj", "attn.o", true},
                                     {"ln_2", "norm2"},
                                     {"mlp.c_fc", "mlp.up", true},
                                     {"mlp.c_proj", "mlp.down", true}};
constexpr LayerName kGpt2Behind[] = {{"transformer.ln_f", "final_norm"}, {"lm_head", "head"}};

constexpr LayerName kLlamaBefore[] = {{"model.embed_tokens", "embed.tokens"}};
constexpr LayerName kLlamaLayers[] = {
    {"input_layernorm", "norm1"},        {"self_attn.q_proj", "attn.q"},
    {"self_attn.k_proj", "attn.k"},      {"self_attn.v_proj", "attn.v"},
    {"self_attn.o_proj", "attn.o"},      {"self_attn.q_norm", "attn.q_norm"},
    {"self_attn.k_norm", "attn.k_norm"}, {"post_attention_layernorm", "norm2"},
    {"mlp.gate_proj", "mlp.gate"},       {"mlp.up_proj", "mlp.up"},
    {"mlp.down_proj", "mlp.down"}};
// Fused layers are one tensor.
constexpr LayerName kPhi3Layers[] = {{"input_layernorm", "norm1"},
                                     {"self_attn.qkv_proj", "attn.q attn.k attn.v"},
                                     {"self_attn.o_proj", "attn.o"},
                                     {"post_attention_layernorm", "norm2"},
                                     {"mlp.gate_up_proj", "mlp.gate mlp.up"},
                                     {"mlp.down_proj", "mlp.down"}};
constexpr LayerName kGemma3Layers[] = {{"input_layernorm", "norm1"},
                                       {"self_attn.q_proj", "attn.q"},
                                       {"self_attn.k_proj", "attn.k"},
                                       {"self_attn.v_proj", "attn.v"},
                                       {"self_attn.o_proj", "attn.o"},
                                       {"self_attn.q_norm", "attn.q_norm"},
                                       {"self_attn.k_norm", "attn.k_norm"},
                                       {"post_attention_layernorm", "post_norm1"},
                                       {"pre_feedforward_layernorm", "norm2"},
                                       {"mlp.gate_proj", "mlp.gate"},
                                       {"mlp.up_proj", "mlp.up"},
                                       {"mlp.down_proj", "mlp.down"},
                                       {"post_feedforward_layernorm", "post_norm2"}};
constexpr LayerName kGlm4Layers[] = {
    {"input_layernorm", "norm1"},          {"self_attn.q_proj", "attn.q"},
    {"self_attn.k_proj", "attn.k"},        {"self_attn.v_proj", "attn.v"},
    {"self_attn.o_proj", "attn.o"},        {"post_self_attn_layernorm", "post_norm1"},
    {"post_attention_layernorm", "norm2"}, {"mlp.gate_up_proj", "mlp.gate mlp.up"},
    {"mlp.down_proj", "mlp.down"},         {"post_mlp_layernorm", "post_norm2"}};
constexpr LayerName kOlmo2Layers[] = {{"self_attn.q_proj", "attn.q"},
                                      {"self_attn.k_proj", "attn.k"},
                                      {"self_attn.v_proj", "attn.v"},
                                      {"self_attn.o_proj", "attn.o"},
                                      {"self_attn.q_norm", "attn.q_norm"},
                                      {"self_attn.k_norm", "attn.k_norm"},
                                      {"post_attention_layernorm", "post_norm1"},
                                      {"mlp.gate_proj", "mlp.gate"},
                                      {"mlp.up_proj", "mlp.up"},
                                      {"mlp.down_proj", "mlp.down"},
                                      {"post_feedforward_layernorm", "post_norm2"}};
constexpr LayerName kGptNeoxBefore[] = {{"gpt_neox.embed_in", "embed.tokens"}};
constexpr LayerName kGptNeoxLayers[] = {
    {"input_layernorm", "norm1"},
    {.theirs = "attention.query_key_value", .ours = "attn.q attn.k attn.v", .by_head = true},
    {"attention.dense", "attn.o"},
    {"post_attention_layernorm", "norm2"},
    {"mlp.dense_h_to_4h", "mlp.up"},
    {"mlp.dense_4h_to_h", "mlp.down"}};
constexpr LayerName kGptNeoxBehind[] = {{"gpt_neox.final_layer_norm", "final_norm"},
                                        {"embed_out", "head"}};
constexpr LayerName kStarcoder2Layers[] = {
    {"input_layernorm", "norm1"},   {"self_attn.q_proj", "attn.q"},
    {"self_attn.k_proj", "attn.k"}, {"self_attn.v_proj", "attn.v"},
    {"self_attn.o_proj", "attn.o"}, {"post_attention_layernorm", "norm2"},
    {"mlp.c_fc", "mlp.up"},         {"mlp.c_proj", "mlp.down"}};
constexpr LayerName kLlamaBehind[] = {{"model.norm", "final_norm"}, {"lm_head", "head"}};

Names NamesOf(const ModelShape& model) {
  const Architecture architecture = ArchitectureOf(model);
  if (architecture == Architecture::kGpt2) {
    return {"transformer.h.", kGpt2Before, kGpt2Layers, kGpt2Behind};
  }
  if (architecture == Architecture::kGptNeox) {
    return {"gpt_neox.layers.", kGptNeoxBefore, kGptNeoxLayers, kGptNeoxBehind};
  }
  absl::Span<const LayerName> layers = kLlamaLayers;
  if (architecture == Architecture::kPhi3) layers = kPhi3Layers;
  if (architecture == Architecture::kStarcoder2) layers = kStarcoder2Layers;
  if (architecture == Architecture::kGemma2 || architecture == Architecture::kGemma3) {
    layers = kGemma3Layers;  // a gemma2's but for the norms of heads
  }
  if (architecture == Architecture::kOlmo2 || architecture == Architecture::kOlmo3) {
    layers = kOlmo2Layers;
  }
  // A glm's are those of a glm4, which has more norms.
  if (architecture == Architecture::kGlm || architecture == Architecture::kGlm4) {
    layers = kGlm4Layers;
  }
  return {"model.layers.", kLlamaBefore, layers, kLlamaBehind};
}

class Listing {
 public:
  explicit Listing(const ModelShape& model) : head_dim_(model.head_dim) {
    for (TensorSpec& tensor : Tensors(model)) left_.insert(std::move(tensor.name));
  }

  void Add(absl::string_view their_prefix, absl::string_view our_prefix,
           absl::Span<const LayerName> layers) {
    for (const LayerName& layer : layers) {
      for (const absl::string_view kind : {".weight", ".bias"}) {
        HuggingFaceTensor tensor;
        tensor.name = absl::StrCat(their_prefix, layer.theirs, kind);
        tensor.transposed = layer.transposed && kind == ".weight";
        tensor.rows_at_once = layer.by_head ? head_dim_ : 0;
        for (absl::string_view part : absl::StrSplit(layer.ours, ' ')) {
          std::string name = absl::StrCat(our_prefix, part, kind);
          if (left_.erase(name) > 0) tensor.parts.push_back(std::move(name));
        }
        if (!tensor.parts.empty()) tensors_.push_back(std::move(tensor));
      }
    }
  }

  std::vector<HuggingFaceTensor> Take() {
    CHECK(left_.empty());  // each tensor has a name outside
    return std::move(tensors_);
  }

 private:
  const int64_t head_dim_;
  std::set<std::string> left_;  // tensors of the model that are not named yet
  std::vector<HuggingFaceTensor> tensors_;
};

}  // namespace

std::vector<HuggingFaceTensor> HuggingFaceTensors(const ModelShape& model) {
  CHECK(model.num_experts == 0);
  const Names names = NamesOf(model);
  Listing listing(model);
  listing.Add("", "", names.before);
  for (int64_t block = 0; block < model.num_blocks; ++block) {
    listing.Add(absl::StrCat(names.block, block, "."), absl::StrCat("blocks.", block, "."),
                names.layers);
  }
  listing.Add("", "", names.behind);
  return listing.Take();
}

}  // namespace weft
