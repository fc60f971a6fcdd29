#include "worker/batches.h"

#include <utility>

#include "plan/batch_order.h"
#include "plan/errors.h"

namespace weft {

Batches::Batches(Dataset dataset, int64_t seq_len, const RankGroups& groups)
    : dataset_(std::move(dataset)),
      layout_(groups.layout()),
      seq_len_(seq_len),
      dp_index_(groups.at().dp),
      needs_ids_(groups.is_first_stage()),
      needs_targets_(groups.is_last_stage()) {
  if (!needs_ids_ && !needs_targets_) return;
  const auto tokens =
      static_cast<size_t>(layout_.num_microbatches * layout_.micro_batch_size * seq_len_);
  ids_.resize(tokens);
  targets_.resize(tokens);
}

absl::Status Batches::Read(int64_t step) {
  if (ids_.empty()) return absl::OkStatus();
  const auto window = static_cast<size_t>(seq_len_);
  size_t next = 0;
  for (int64_t microbatch = 0; microbatch < layout_.num_microbatches; ++microbatch) {
    const int64_t first = FirstSample(layout_, step, dp_index_, microbatch);
    for (int64_t i = 0; i < layout_.micro_batch_size; ++i, next += window) {
      RETURN_IF_ERROR(dataset_.Sample(first + i, absl::MakeSpan(ids_).subspan(next, window),
                                      absl::MakeSpan(targets_).subspan(next, window)));
    }
  }
  return absl::OkStatus();
}

}  // namespace weft
