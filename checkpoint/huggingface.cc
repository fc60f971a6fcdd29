#include "checkpoint/huggingface.h"

#include <filesystem>
#include <list>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/durable_file.h"
#include "checkpoint/safetensors.h"
#include "data/whole_file.h"
#include "nlohmann/json.hpp"
#include "plan/block/tensors.h"
#include "plan/errors.h"
#include "plan/spec/layout_rules.h"

namespace weft {
namespace {

using OrderedJson = nlohmann::ordered_json;

void AddGpt2Block(int64_t block, std::vector<HuggingFaceTensor>* tensors) {
  const std::string theirs = absl::StrCat("transformer.h.", block, ".");
  const std::string ours = absl::StrCat("blocks.", block, ".");
  for (const char* kind : {".weight", ".bias"}) {
    const bool is_matrix = kind == std::string(".weight");
    tensors->push_back({absl::StrCat(theirs, "ln_1", kind), {absl::StrCat(ours, "norm1", kind)}});
    tensors->push_back({absl::StrCat(theirs, "attn.c_attn", kind),
                        {absl::StrCat(ours, "attn.q", kind), absl::StrCat(ours, "attn.k", kind),
                         absl::StrCat(ours, "attn.v", kind)},
                        is_matrix});
    tensors->push_back({absl::StrCat(theirs, "attn.c_proj", kind),
                        {absl::StrCat(ours, "attn.o", kind)},
                        is_matrix});
    tensors->push_back({absl::StrCat(theirs, "ln_2", kind), {absl::StrCat(ours, "norm2", kind)}});
    tensors->push_back(
        {absl::StrCat(theirs, "mlp.c_fc", kind), {absl::StrCat(ours, "mlp.up", kind)}, is_matrix});
    tensors->push_back({absl::StrCat(theirs, "mlp.c_proj", kind),
                        {absl::StrCat(ours, "mlp.down", kind)},
                        is_matrix});
  }
}

void AddLlamaBlock(int64_t block, bool attention_bias, std::vector<HuggingFaceTensor>* tensors) {
  const std::string theirs = absl::StrCat("model.layers.", block, ".");
  const std::string ours = absl::StrCat("blocks.", block, ".");
  const auto add = [&](absl::string_view their_name, absl::string_view our_name) {
    tensors->push_back({absl::StrCat(theirs, their_name), {absl::StrCat(ours, our_name)}});
  };
  add("input_layernorm.weight", "norm1.weight");
  for (const char* part : {"q", "k", "v", "o"}) {
    const std::string their_part = absl::StrCat("self_attn.", part, "_proj");
    add(their_part + ".weight", absl::StrCat("attn.", part, ".weight"));
    if (attention_bias) add(their_part + ".bias", absl::StrCat("attn.", part, ".bias"));
  }
  add("post_attention_layernorm.weight", "norm2.weight");
  for (const char* part : {"gate", "up", "down"}) {
    add(absl::StrCat("mlp.", part, "_proj.weight"), absl::StrCat("mlp.", part, ".weight"));
  }
}

OrderedJson Gpt2Config(const ModelShape& model) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", model.vocab_size},
          {"n_positions", model.max_positions},
          {"n_embd", model.hidden_size},
          {"n_layer", model.num_blocks},
          {"n_head", model.num_heads},
          {"n_inner", model.ffn_size},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", model.norm_eps},
          {"resid_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"attn_pdrop", 0.0}};
}

OrderedJson LlamaConfig(const ModelShape& model) {
  OrderedJson config = {{"architectures", {"LlamaForCausalLM"}},
                        {"model_type", "llama"},
                        {"vocab_size", model.vocab_size},
                        {"max_position_embeddings", model.max_positions},
                        {"hidden_size", model.hidden_size},
                        {"num_hidden_layers", model.num_blocks},
                        {"num_attention_heads", model.num_heads},
                        {"num_key_value_heads", model.num_kv_heads},
                        {"head_dim", model.head_dim},
                        {"intermediate_size", model.ffn_size},
                        {"hidden_act", "silu"},
                        {"rms_norm_eps", model.norm_eps},
                        {"rope_theta", model.rope_theta},
                        {"rope_scaling", nullptr},
                        {"attention_bias", model.attention_bias},
                        {"attention_dropout", 0.0},
                        {"mlp_bias", false}};
  const RopeScaling& scaling = model.rope_scaling;
  if (scaling.factor != 1) {
    config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", scaling.factor},
                              {"low_freq_factor", scaling.low_freq_factor},
                              {"high_freq_factor", scaling.high_freq_factor},
                              {"original_max_position_embeddings", scaling.original_max_positions}};
  }
  return config;
}

// The parts one below the other, and their common dims.
struct Stacked {
  std::vector<int64_t> dims;
  std::vector<float> values;
};

absl::StatusOr<Stacked> Stack(const HuggingFaceTensor& tensor,
                              const std::map<std::string, TensorSpec>& specs,
                              const CheckpointReader& reader) {
  Stacked stacked;
  for (const std::string& part : tensor.parts) {
    const TensorSpec& spec = specs.at(part);
    const size_t before = stacked.values.size();
    stacked.values.resize(before + static_cast<size_t>(spec.elements()));
    const std::vector<int64_t> begin(spec.dims.size(), 0);
    RETURN_IF_ERROR(reader.Read(part, spec.dims, begin, spec.dims,
                                absl::MakeSpan(stacked.values).subspan(before)));
    if (stacked.dims.empty()) {
      stacked.dims = spec.dims;
    } else {
      stacked.dims[0] += spec.dims[0];
    }
  }
  return stacked;
}

Stacked TurnedOver(const Stacked& from) {
  Stacked to{{from.dims[1], from.dims[0]}, std::vector<float>(from.values.size())};
  const auto rows = static_cast<size_t>(from.dims[0]), cols = static_cast<size_t>(from.dims[1]);
  for (size_t row = 0; row < rows; ++row) {
    for (size_t col = 0; col < cols; ++col) {
      to.values[col * rows + row] = from.values[row * cols + col];
    }
  }
  return to;
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  ASSIGN_OR_RETURN(const auto file, DurableFile::Create(EntryOf(path), std::ssize(text)));
  RETURN_IF_ERROR(file->Append(text));
  return file->Close();
}

}  // namespace

std::vector<HuggingFaceTensor> HuggingFaceTensors(const ModelShape& model) {
  CHECK(model.num_experts == 0);
  const bool is_gpt2 = model.family == ModelFamily::kGpt2;
  std::vector<HuggingFaceTensor> tensors;
  const std::string embedding(kTokenEmbeddingName);
  tensors.push_back(
      {is_gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight", {embedding}});
  if (is_gpt2) tensors.push_back({"transformer.wpe.weight", {"embed.positions.weight"}});
  for (int64_t block = 0; block < model.num_blocks; ++block) {
    if (is_gpt2) {
      AddGpt2Block(block, &tensors);
    } else {
      AddLlamaBlock(block, model.attention_bias, &tensors);
    }
  }
  const std::string norm = is_gpt2 ? "transformer.ln_f" : "model.norm";
  tensors.push_back({norm + ".weight", {"final_norm.weight"}});
  if (is_gpt2) tensors.push_back({norm + ".bias", {"final_norm.bias"}});
  if (!model.tied_embeddings) tensors.push_back({"lm_head.weight", {"head.weight"}});
  return tensors;
}

std::string HuggingFaceConfig(const ModelShape& model) {
  OrderedJson config = model.family == ModelFamily::kGpt2 ? Gpt2Config(model) : LlamaConfig(model);
  config["initializer_range"] = model.initializer_range;
  config["tie_word_embeddings"] = model.tied_embeddings;
  // Whoever has a tokenizer knows them; the defaults of a family may lie outside the vocabulary.
  config["bos_token_id"] = nullptr;
  config["eos_token_id"] = nullptr;
  config["torch_dtype"] = "float32";
  return config.dump(2) + "\n";
}

absl::Status ExportHuggingFace(const CheckpointReader& reader, const ModelShape& model,
                               const std::string& folder, const HuggingFaceForm& form) {
  RETURN_IF_ERROR(CheckModel(model));
  if (model.num_experts > 0) {
    return absl::InvalidArgumentError("a model with experts cannot be exported yet");
  }
  RETURN_IF_ERROR(FirstIssue(EngineIssues(model)));
  std::error_code error;
  const bool exists = std::filesystem::exists(folder, error);
  if (exists && (!std::filesystem::is_directory(folder, error) ||
                 !std::filesystem::is_empty(folder, error))) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, ": is there already, expected a new or empty folder"));
  }
  std::map<std::string, TensorSpec> specs;
  for (TensorSpec& spec : Tensors(model)) specs[spec.name] = std::move(spec);
  std::list<std::vector<float>> values;  // the tensors borrow from it until they are written
  std::vector<TensorToWrite> tensors;
  for (const HuggingFaceTensor& tensor : HuggingFaceTensors(model)) {
    ASSIGN_OR_RETURN(Stacked stacked, Stack(tensor, specs, reader));
    if (tensor.transposed) stacked = TurnedOver(stacked);
    values.push_back(std::move(stacked.values));
    tensors.push_back({tensor.name, std::move(stacked.dims), values.back(), form.dtype});
  }
  RETURN_IF_ERROR(MakeFolders(folder));
  RETURN_IF_ERROR(WriteSafetensors(folder + "/model.safetensors", tensors, {}).status());
  for (const std::string& path : form.besides) {
    ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMostIndexBytes));
    const std::string name = std::filesystem::path(path).filename().string();
    RETURN_IF_ERROR(WriteText(absl::StrCat(folder, "/", name), text));
  }
  // Last: a directory without it is none.
  RETURN_IF_ERROR(WriteText(folder + "/config.json",
                            form.config.empty() ? HuggingFaceConfig(model) : form.config));
  return SyncFolder(folder);
}

}  // namespace weft
