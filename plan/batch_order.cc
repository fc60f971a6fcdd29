#include "plan/batch_order.h"

#include "plan/errors.h"

namespace weft {

int64_t FirstSample(const Layout& layout, int64_t step, int dp_index, int64_t microbatch) {
  CHECK(step >= 1 && dp_index >= 0 && dp_index < layout.dp);
  CHECK(microbatch >= 0 && microbatch < layout.num_microbatches);
  const int64_t per_replica = layout.micro_batch_size * layout.num_microbatches;
  const int64_t step_start = (step - 1) * per_replica * layout.dp;
  return step_start + dp_index * per_replica + microbatch * layout.micro_batch_size;
}

}  // namespace weft
