#include "worker/train/batches.h"

#include <utility>

#include "data/documents.h"
#include "plan/errors.h"
#include "plan/shards/batch_order.h"

namespace weft {

Batches::Batches(Dataset dataset, const JobSpec& job, const RankGroups& groups)
    : dataset_(std::move(dataset)),
      layout_(groups.layout()),
      data_(job.data),
      seq_len_(job.training.seq_len),
      dp_index_(groups.at().dp),
      held_positions_(PositionsOf(layout_, seq_len_, groups.at().cp)),
      needs_ids_(groups.is_first_stage()),
      needs_targets_(groups.is_last_stage()),
      needs_positions_(groups.is_first_stage() && job.model.learned_positions),
      needs_first_visible_(job.data.reset_attention_mask),
      window_(job.model.slides_over(seq_len_) ? job.model.window : 0) {
  const auto window = static_cast<size_t>(seq_len_);
  for (auto* of_window : {&window_ids_, &window_targets_, &window_starts_}) {
    of_window->resize(window);
  }
  const size_t tokens =
      static_cast<size_t>(layout_.gradient_accumulation_steps * layout_.micro_batch_size) *
      held_positions_.size();
  if (needs_ids_) ids_.reserve(tokens);
  if (needs_targets_) targets_.reserve(tokens);
  if (needs_positions_) positions_.reserve(tokens);
  if (needs_first_visible_) first_visible_.reserve(tokens);
  if (window_ > 0) first_in_window_.reserve(tokens);
}

absl::Status Batches::Read(int64_t step) {
  if (!reads_samples() && window_ == 0) return absl::OkStatus();
  if (held_step_ == step) return absl::OkStatus();
  held_step_ = 0;
  for (auto* of_step : {&ids_, &targets_, &positions_, &first_visible_, &first_in_window_}) {
    of_step->clear();
  }
  for (int64_t microbatch = 0; microbatch < layout_.gradient_accumulation_steps; ++microbatch) {
    const int64_t first = FirstSample(layout_, step, dp_index_, microbatch);
    for (int64_t i = 0; i < layout_.micro_batch_size; ++i) {
      if (reads_samples()) RETURN_IF_ERROR(ReadSample(first + i));
      AppendHeldPositions();
    }
  }
  held_step_ = step;
  return absl::OkStatus();
}

absl::Status Batches::ReadSample(int64_t index) {
  RETURN_IF_ERROR(
      dataset_.Sample(index, absl::MakeSpan(window_ids_), absl::MakeSpan(window_targets_)));
  FindDocumentStarts(window_ids_, data_.bos_token_id, data_.eos_token_id,
                     absl::MakeSpan(window_starts_));
  return absl::OkStatus();
}

void Batches::ReadAhead(int64_t step) {
  Read(step).IgnoreError();
}

void Batches::AppendHeldPositions() {
  for (const int64_t position : held_positions_) {
    const auto at = static_cast<size_t>(position);
    const int64_t first_position = data_.reset_position_ids ? window_starts_[at] : 0;
    if (needs_ids_) ids_.push_back(window_ids_[at]);
    if (needs_targets_) targets_.push_back(window_targets_[at]);
    if (needs_positions_) positions_.push_back(static_cast<int32_t>(position - first_position));
    if (needs_first_visible_) first_visible_.push_back(window_starts_[at]);
    if (window_ > 0) {
      const int32_t start = needs_first_visible_ ? window_starts_[at] : 0;
      first_in_window_.push_back(FirstInWindow(position, start, window_));
    }
  }
}

}  // namespace weft
