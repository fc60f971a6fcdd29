#include "plan/search/plan.h"

#include <algorithm>

#include "plan/errors.h"

namespace weft {

const StageMemory& Plan::fullest() const {
  CHECK(!stages.empty());
  return *std::max_element(stages.begin(), stages.end(),
                           [](const StageMemory& a, const StageMemory& b) {
                             return a.layout_bytes() < b.layout_bytes();
                           });
}

int64_t Plan::peak_bytes() const {
  return stages.empty() ? 0 : fullest().layout_bytes();
}

double Plan::tokens_per_s(const BatchShape& batch) const {
  return static_cast<double>(batch.global_batch_size * batch.seq_len) / time.total_s();
}

}  // namespace weft
