// The tensors of a model, from the lists of its blocks' operations (plan/block/block_ops), and what
// is counted over them. Everything else that needs to know a tensor (initial weights, shards,
// memory, checkpoints, the trainer, the independent reference under tests/reference) asks here, so
// a tensor's name, dims and split are stated once. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/spec/model.h"

namespace weft {

// Every tensor that is trained, each once, in network order: embedding, blocks 0..L-1, final norm,
// head. A tied model has no `head.weight`. REQUIRES: CheckModel(model).ok().
std::vector<TensorSpec> Tensors(const ModelShape& model);

// Number of trained parameters: the sum of Tensors(model)[i].elements().
int64_t ParameterCount(const ModelShape& model);

// Counts the trained parameters that one token passes: all but those of the experts that it is not
// sent to (top-k).
int64_t ActiveParameterCount(const ModelShape& model);

}  // namespace weft
