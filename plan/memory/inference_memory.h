// Every buffer of a worker that evaluates or generates: one process, the whole model, forward
// passes only. As with plan/memory/memory, the worker's arena carves exactly this list. Pure.
//
// Activations of one block suffice: nothing waits for a backward pass. What a generated token needs
// of those before it are their keys and values, block by block: the cache.
#pragma once
#include <cstdint>

#include "absl/status/status.h"
#include "plan/memory/memory.h"
#include "plan/spec/model.h"

namespace weft {

// InferenceExtents says how much passes at once. Letters: glossary.
struct InferenceExtents {
  int64_t batch = 1;             // B, sequences of a pass
  int64_t seq_len = 1;           // T, tokens of each that pass together
  int64_t cached_positions = 0;  // S; 0: nothing is kept from pass to pass (evaluation)
  bool masks_documents = false;  // tokens attend to their own document only
  int threads = 1;               // Numerics::threads

  int64_t rows() const { return batch * seq_len; }
  // Positions that a sequence may have, over all its passes.
  int64_t positions() const { return cached_positions > 0 ? cached_positions : seq_len; }
};

// One sequence that begins with `prompt` tokens, which pass together, and goes on for `max_tokens`,
// one by one, as far as the model has positions. The last token that is drawn takes none: nothing
// follows it.
InferenceExtents GenerationExtents(const ModelShape& model, int64_t prompt, int64_t max_tokens);

// Rows of logits that exist at once: all of the pass, or what 64 MiB hold. At least 1.
int64_t LogitRows(const ModelShape& model, const InferenceExtents& extents);

// InvalidArgument, naming it, for a model that cannot be or that the engine does not run yet.
absl::Status CheckInference(const ModelShape& model);

// Names and shapes are beside each entry. REQUIRES: CheckInference holds; batch 1 if positions are
// cached.
RankMemory PlanInferenceMemory(const ModelShape& model, const InferenceExtents& extents);

}  // namespace weft
