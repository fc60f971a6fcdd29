#include "plan/memory/attention_scratch.h"

#include <algorithm>

namespace weft {
namespace {

// Tiles are cut as in worker/backend/device.h.
constexpr int64_t kTileRows = 128;
constexpr int64_t kTileKeys = 256;

}  // namespace

int64_t AttentionScratchFloats(const AttentionSizes& call, int threads) {
  const int64_t tiles = 2 * std::min(call.run_len, kTileRows) * std::min(call.seen_len, kTileKeys);
  const int64_t copies = (4 * call.query_len + 6 * call.key_len) * call.head_dim;
  const int64_t at_once = std::clamp<int64_t>(threads, 1, std::max<int64_t>(call.kv_heads, 1));
  return at_once * (tiles + (call.widens ? copies : 0));
}

}  // namespace weft
