// HuggingFaceTensors says what Hugging Face directories call a model's tensors, and how they hold
// them: from a table for each spelling, of a block's layers and of what lies around the blocks.
// The list of tensors follows from the model's operations (plan/block/tensors). Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "plan/spec/model.h"

namespace weft {

// A tensor of the directory and what of weft's it is made of.
struct HuggingFaceTensor {
  std::string name;                // "transformer.h.0.attn.c_attn.weight"
  std::vector<std::string> parts;  // stacked along their first dim: {q, k, v}
  // So many rows of each part follow each other, then as many of the next: a head's query, key and
  // value; 0: all of a part's rows do.
  int64_t rows_at_once = 0;
  bool transposed = false;  // then turned over: GPT-2's Conv1D holds [in, out]
};

// Every tensor of the model's directory. REQUIRES: CheckModel holds, no experts.
std::vector<HuggingFaceTensor> HuggingFaceTensors(const ModelShape& model);

}  // namespace weft
