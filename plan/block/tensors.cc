#include "plan/block/tensors.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "plan/block/block_ops.h"

namespace weft {
namespace {

// The dim that tp cuts, and on which multiples.
void SetSplit(const BlockParam& param, TensorSpec& tensor) {
  const bool by_out = param.out.cut != DimCut::kWhole;
  if (!by_out && (param.in.count == 0 || param.in.cut == DimCut::kWhole)) return;
  tensor.split_dim = by_out ? 0 : 1;
  tensor.split_unit = by_out ? param.out.unit : param.in.unit;
}

// `expert`: which one's, where the parameter is there for each.
TensorSpec TensorOf(const BlockParam& param, int64_t block, int64_t expert) {
  TensorSpec tensor;
  tensor.name = absl::StrCat("blocks.", block, ".", param.name);
  if (param.experts > 0) {
    tensor.name = absl::StrReplaceAll(tensor.name, {{"*", absl::StrCat(expert)}});
  }
  tensor.dims = {param.out.count};
  if (param.in.count > 0) tensor.dims.push_back(param.in.count);
  SetSplit(param, tensor);
  tensor.part = ModelPart::kBlock;
  tensor.block = block;
  tensor.initial = param.initial;
  tensor.initial_std = param.initial_std;
  tensor.sum = param.sum;
  return tensor;
}

// Parameters that are there for each expert follow each other expert by expert.
void AddBlock(const BlockOps& ops, int64_t block, std::vector<TensorSpec>& tensors) {
  for (auto param = ops.params.begin(); param != ops.params.end();) {
    const int64_t experts = param->experts;
    const auto end = std::find_if(param, ops.params.end(),
                                  [&](const BlockParam& next) { return next.experts != experts; });
    for (int64_t expert = 0; expert < std::max<int64_t>(1, experts); ++expert) {
      for (auto one = param; one != end; ++one) tensors.push_back(TensorOf(*one, block, expert));
    }
    param = end;
  }
}

// Rows are tokens or positions.
TensorSpec TableOf(const ModelShape& model, std::string name, int64_t rows, int split_dim,
                   ModelPart part) {
  TensorSpec table;
  table.name = std::move(name);
  table.dims = {rows, model.hidden_size};
  table.split_dim = split_dim;
  table.part = part;
  table.initial_std = model.initializer_range;
  return table;
}

std::vector<TensorSpec> EndsOf(const ModelShape& model) {
  std::vector<TensorSpec> tensors = {TableOf(model, std::string{kTokenEmbeddingName},
                                             model.vocab_size, /*split_dim=*/0,
                                             ModelPart::kEmbedding)};
  if (model.learned_positions) {
    tensors.push_back(TableOf(model, "embed.positions.weight", model.max_positions,
                              /*split_dim=*/-1, ModelPart::kEmbedding));
  }
  const auto add_norm = [&](absl::string_view name, InitialValue initial) {
    TensorSpec& norm = tensors.emplace_back();
    norm.name = std::string(name);
    norm.dims = {model.hidden_size};
    norm.part = ModelPart::kHead;
    norm.initial = initial;
    norm.sum = GradientSum::kOwnTokens;
  };
  add_norm("final_norm.weight", model.norm_offset == 1 ? InitialValue::kZero : InitialValue::kOne);
  if (model.has_norm_biases()) add_norm("final_norm.bias", InitialValue::kZero);
  if (!model.tied_embeddings) {
    tensors.push_back(
        TableOf(model, "head.weight", model.vocab_size, /*split_dim=*/0, ModelPart::kHead));
  }
  return tensors;
}

int64_t ParametersOf(const BlockOps& ops) {
  int64_t sum = 0;
  for (const BlockParam& param : ops.params) {
    sum += param.out.count * std::max<int64_t>(1, param.in.count) *
           std::max<int64_t>(1, param.experts);
  }
  return sum;
}

}  // namespace

std::vector<TensorSpec> Tensors(const ModelShape& model) {
  std::vector<TensorSpec> tensors = EndsOf(model);
  const auto after_embedding =
      std::find_if(tensors.begin(), tensors.end(),
                   [](const TensorSpec& tensor) { return tensor.part == ModelPart::kHead; });
  std::vector<TensorSpec> head(after_embedding, tensors.end());
  tensors.erase(after_embedding, tensors.end());
  BlockOps ops;
  for (int64_t block = 0; block < model.num_blocks; ++block) {
    const bool is_first_of_its_kind = block == 0 || block == model.num_dense_blocks;
    if (is_first_of_its_kind) ops = OpsOf(model, block);
    AddBlock(ops, block, tensors);
  }
  std::move(head.begin(), head.end(), std::back_inserter(tensors));
  return tensors;
}

int64_t ParameterCount(const ModelShape& model) {
  int64_t sum = 0;
  for (const TensorSpec& tensor : EndsOf(model)) sum += tensor.elements();
  // Blocks of a kind are alike: one of each is listed, however many there are.
  const int64_t dense = model.num_experts > 0 ? model.num_dense_blocks : 0;
  if (dense > 0) sum += dense * ParametersOf(OpsOf(model, 0));
  return sum + (model.num_blocks - dense) * ParametersOf(OpsOf(model, model.num_blocks - 1));
}

int64_t ActiveParameterCount(const ModelShape& model) {
  int64_t idle = 0;  // of a block with experts
  for (const BlockParam& param : OpsOf(model, model.num_blocks - 1).params) {
    if (param.experts == 0) continue;
    idle += (param.experts - model.experts_per_token) * param.out.count *
            std::max<int64_t>(1, param.in.count);
  }
  return ParameterCount(model) - (model.num_blocks - model.num_dense_blocks) * idle;
}

}  // namespace weft
