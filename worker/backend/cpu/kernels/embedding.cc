#include <algorithm>

#include "worker/backend/cpu/kernels/kernels.h"

namespace weft {

template <typename T>
void EmbedRows(const int32_t* ids, int64_t count, const T* table, int64_t table_rows,
               int64_t first_id, const T* positions, const int32_t* position_ids, T* out,
               int64_t cols) {
  for (int64_t i = 0; i < count; ++i) {
    T* const row = out + i * cols;
    const int64_t entry = ids[i] - first_id;
    if (entry >= 0 && entry < table_rows) {
      std::copy_n(table + entry * cols, cols, row);
    } else {
      std::fill_n(row, cols, T());
    }
    if (positions != nullptr) AddInto(positions + position_ids[i] * cols, row, cols);
  }
}

template <typename T>
void EmbedRowsGradient(const int32_t* ids, int64_t count, const T* dout, int64_t first_id,
                       const int32_t* position_ids, float* dtable, int64_t table_rows,
                       float* dpositions, int64_t cols) {
  for (int64_t i = 0; i < count; ++i) {
    const T* const row = dout + i * cols;
    const int64_t entry = ids[i] - first_id;
    if (entry >= 0 && entry < table_rows) AddInto(row, dtable + entry * cols, cols);
    if (dpositions != nullptr) AddInto(row, dpositions + position_ids[i] * cols, cols);
  }
}

#define WEFT_INSTANTIATE(T)                                                                      \
  template void EmbedRows<T>(const int32_t*, int64_t, const T*, int64_t, int64_t, const T*,      \
                             const int32_t*, T*, int64_t);                                       \
  template void EmbedRowsGradient<T>(const int32_t*, int64_t, const T*, int64_t, const int32_t*, \
                                     float*, int64_t, float*, int64_t);
WEFT_FOR_EACH_ELEMENT(WEFT_INSTANTIATE)
#undef WEFT_INSTANTIATE

}  // namespace weft
