#include "worker/model/token_cut.h"

#include "plan/errors.h"

namespace weft {

TokenCut::TokenCut(int64_t rows, int64_t cols, Arena& arena, Device& device, RankGroups& groups)
    : device_(device), groups_(groups), part_rows_(rows / groups.layout().sequence_ranks()) {
  if (part_rows_ < rows) gathered_ = arena.Get("work/gathered", rows, cols);
}

View TokenCut::OwnRows(View whole) const {
  return whole.RowRange(groups_.at().tp * part_rows_, part_rows_);
}

absl::StatusOr<View> TokenCut::Gather(View part) {
  if (!is_cut()) return part;
  device_.Copy(OwnRows(gathered_), part);
  RETURN_IF_ERROR(groups_.AllGatherOverTensor(gathered_));
  return gathered_;
}

View TokenCut::Partial(View part) const {
  return is_cut() ? gathered_ : part;
}

absl::Status TokenCut::Sum(View part) {
  if (!is_cut()) return groups_.SumOverTensor(part);
  RETURN_IF_ERROR(groups_.ReduceScatterOverTensor(gathered_));
  device_.Copy(part, OwnRows(gathered_));
  return absl::OkStatus();
}

absl::StatusOr<View> TokenCut::SumOwn(View whole) {
  if (!is_cut()) {
    RETURN_IF_ERROR(groups_.SumOverTensor(whole));
    return whole;
  }
  RETURN_IF_ERROR(groups_.ReduceScatterOverTensor(whole));
  return OwnRows(whole);
}

absl::Status TokenCut::StartGather(View part) {
  if (!is_cut()) return absl::OkStatus();
  device_.Copy(OwnRows(gathered_), part);
  return groups_.StartAllGatherOverTensor(gathered_);
}

absl::StatusOr<View> TokenCut::EndGather(View part) {
  if (!is_cut()) return part;
  RETURN_IF_ERROR(groups_.AwaitTensor());
  return gathered_;
}

absl::Status TokenCut::StartSumOwn(View whole) {
  return is_cut() ? groups_.StartReduceScatterOverTensor(whole) : groups_.StartSumOverTensor(whole);
}

absl::StatusOr<View> TokenCut::EndSumOwn(View whole) {
  RETURN_IF_ERROR(groups_.AwaitTensor());
  return is_cut() ? OwnRows(whole) : whole;
}

}  // namespace weft
