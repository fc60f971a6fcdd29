#include <algorithm>

#include "worker/backend/cpu/kernels.h"

namespace weft {

void EmbedRows(const int32_t* ids, int64_t count, const float* table, int64_t table_rows,
               int64_t first_id, const float* positions, int64_t seq_len, float* out,
               int64_t cols) {
  for (int64_t i = 0; i < count; ++i) {
    float* const row = out + i * cols;
    const int64_t entry = ids[i] - first_id;
    if (entry >= 0 && entry < table_rows) {
      std::copy_n(table + entry * cols, cols, row);
    } else {
      std::fill_n(row, cols, 0.0F);
    }
    if (positions != nullptr) AddInto(positions + i % seq_len * cols, row, cols);
  }
}

void EmbedRowsGradient(const int32_t* ids, int64_t count, const float* dout, int64_t first_id,
                       int64_t seq_len, float* dtable, int64_t table_rows, float* dpositions,
                       int64_t cols) {
  for (int64_t i = 0; i < count; ++i) {
    const float* const row = dout + i * cols;
    const int64_t entry = ids[i] - first_id;
    if (entry >= 0 && entry < table_rows) AddInto(row, dtable + entry * cols, cols);
    if (dpositions != nullptr) AddInto(row, dpositions + i % seq_len * cols, cols);
  }
}

}  // namespace weft
