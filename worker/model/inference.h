// Inference: the whole model on one device, forward passes only. Evaluates held-out sequences, or
// reads one sequence on, keeping each block's keys and values so that a token is computed once. The
// operations and their order are the training engine's (worker/model/forward_step, embedding,
// head), but products that share an operand stay apart: what a run has validated is computed again
// to the bit where kernels sum an element alone, else within 1e-6 (docs/reproducibility.md). Used
// by one thread.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/weights_reader.h"
#include "plan/block/block_buffers.h"
#include "plan/block/block_ops.h"
#include "plan/memory/inference_memory.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/model.h"
#include "worker/backend/device.h"
#include "worker/model/forward_step.h"
#include "worker/state/arena.h"
#include "worker/state/parameters.h"

namespace weft {

class Inference {
 public:
  // Allocates PlanInferenceMemory(model, extents). Keeps documents apart as `data` says the model
  // was trained; no other part of it matters. InvalidArgument for a model that cannot be, or with
  // experts, or without so many positions; FailedPrecondition if the device has not the memory.
  // `device` outlives it. REQUIRES: extents.masks_documents == data.reset_attention_mask.
  static absl::StatusOr<std::unique_ptr<Inference>> Create(const ModelShape& model,
                                                           const InferenceExtents& extents,
                                                           const DataSpec& data, Device& device);

  // Fills the weights. Errors are WeightsReader::Read's. Calls `loaded` after each tensor.
  // REQUIRES: `reader` was opened for the same model.
  absl::Status Load(const WeightsReader& reader, const std::function<void()>& loaded);

  // Sum of the cross-entropy over a pass of whole sequences, ids and targets [B*T], at most as many
  // as the extents hold. REQUIRES: no cache.
  absl::StatusOr<double> LossSum(absl::Span<const int32_t> ids, absl::Span<const int32_t> targets);

  // Reads the sequence on by `ids` and returns the logits [V] that follow the last one; they stay
  // until the next call. REQUIRES: a cache with room for them; one id, or the sequence's first.
  absl::StatusOr<absl::Span<const float>> Append(absl::Span<const int32_t> ids);

  int64_t bytes() const { return arena_->bytes(); }

 private:
  struct KeysAndValues {
    View k, v;  // [S, K*E], or [N, K*E] without a cache
  };
  // Describes the tokens that pass through the blocks at once.
  struct Passing {
    int64_t rows = 0;          // tokens, of all sequences
    int64_t first = 0;         // position of the first of each sequence
    AttentionShape attention;  // over the keys there are up to the last
    std::vector<View> angles;  // of the positions [T, W], by ModelShape::rotations
    View first_visible;        // [N, 1] the first position each token sees; null: 0
    View first_in_window;      // [N, 1] the same in blocks that slide; null: none does
  };

  Inference(const ModelShape& model, const InferenceExtents& extents, const DataSpec& data,
            Device& device);

  absl::Status Allocate();
  void GetWeights();
  void GetWork();
  View Weight(const std::string& tensor) const;  // null if the model has none
  Linear GetLinear(const std::string& name) const;
  Norm GetNorm(const std::string& name) const;
  // A pass through all blocks: of `batch` sequences [B * S], the tokens from position `first` on;
  // those before it have passed. x() becomes the last block's output.
  void Forward(absl::Span<const int32_t> ids, int64_t batch, int64_t first);
  // The output of the last norm [rows, D], of which logits are made.
  void NormLast(View x, View norm_out);
  void CopyInTokens(absl::Span<const int32_t> ids, int64_t batch, int64_t first);
  // `views`: of each of BlockOps::values.
  void ForwardBlock(const std::vector<ForwardStep>& steps, const KeysAndValues& cache,
                    absl::Span<const View> views, const Passing& pass);
  // The rows that a pass works on, of each of BlockOps::values.
  std::vector<View> ViewsOf(const KeysAndValues& cache, const Passing& pass) const;
  View x() const { return buffers_.front(); }
  // The first rows of what the last norm saves.
  NormStatistics Statistics(int64_t rows) const;

  const ModelShape model_;
  const InferenceExtents extents_;
  const DataSpec data_;
  Device& device_;
  std::unique_ptr<Arena> arena_;
  std::map<std::string, View> weights_;
  const BlockLists lists_;
  const PassBuffers places_;
  std::vector<std::vector<ForwardStep>> blocks_;  // steps by block
  std::vector<KeysAndValues> caches_;             // of each block; one without a cache
  Norm final_norm_;
  View table_, positions_, head_;  // positions_: null for llama
  std::vector<View> buffers_;  // of places_; the first holds a block's input, and then its output
  View norm_out_;
  NormStatistics statistics_;
  std::vector<View> rotary_;  // by ModelShape::rotations
  View scores_, logits_, row_max_, row_sums_;
  View totals_;  // [1, 1]
  View ids_, position_ids_, first_visible_, first_in_window_,
      targets_;                     // [N, 1]; as StepTokens in worker/model/stage.h
  std::vector<int32_t> read_;       // the sequence that is read on, so far
  std::vector<float> host_logits_;  // [V]
};

}  // namespace weft
