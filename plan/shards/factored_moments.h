// Factored second moments (Adafactor: Shazeer & Stern, arXiv:1804.04235, 3): of a matrix a number
// for each row and each column instead of one for each element; of a vector one for each element.
//
// They are of the whole tensor, and every rank that holds any part of it keeps all of them: next to
// the tensor they are nothing, and sums over its parts are then the only thing that a layout has a
// hand in. So no axis and no stage of ZeRO cuts them. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "plan/shards/buckets.h"
#include "plan/spec/model.h"

namespace weft {

// One run in memory: rows, then columns.
struct FactoredMoments {
  int64_t rows = 0;  // 0: a vector, whose elements are columns
  int64_t cols = 0;

  int64_t elements() const { return rows + cols; }
};
FactoredMoments FactoredMomentsOf(const TensorSpec& tensor);

// Return the names in checkpoints: "optimizer.exp_avg_sq_row.<matrix>",
// "optimizer.exp_avg_sq_col.<matrix>" and "optimizer.exp_avg_sq.<vector>", as Hugging Face's
// Adafactor names its own.
std::string RowMomentsName(const TensorSpec& matrix);
std::string ColumnMomentsName(const TensorSpec& tensor);

// FactoredTotals adds up what is factored on a rank.
struct FactoredTotals {
  int64_t tensors = 0;
  int64_t elements = 0;  // FactoredMoments::elements

  FactoredTotals& operator+=(const FactoredTotals& more);
};
FactoredTotals FactoredTotalsOf(const Bucket& bucket);

}  // namespace weft
