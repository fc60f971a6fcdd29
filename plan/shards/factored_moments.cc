#include "plan/shards/factored_moments.h"

#include "absl/strings/str_cat.h"

namespace weft {

FactoredMoments FactoredMomentsOf(const TensorSpec& tensor) {
  return {.rows = tensor.is_matrix() ? tensor.dims.front() : 0, .cols = tensor.dims.back()};
}

std::string RowMomentsName(const TensorSpec& matrix) {
  return absl::StrCat("optimizer.exp_avg_sq_row.", matrix.name);
}

std::string ColumnMomentsName(const TensorSpec& tensor) {
  return absl::StrCat("optimizer.exp_avg_sq", tensor.is_matrix() ? "_col." : ".", tensor.name);
}

FactoredTotals& FactoredTotals::operator+=(const FactoredTotals& more) {
  tensors += more.tensors;
  elements += more.elements;
  return *this;
}

FactoredTotals FactoredTotalsOf(const Bucket& bucket) {
  FactoredTotals totals;
  for (const TensorShard& shard : bucket.shards) {
    totals += {.tensors = 1, .elements = FactoredMomentsOf(shard.tensor).elements()};
  }
  return totals;
}

}  // namespace weft
