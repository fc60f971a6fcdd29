// The lease of an agent in numbers: how often it asks, when it asks out of turn, and which part of
// it its ranks get. Pure; the simulator's agents go by the same numbers.
#pragma once
#include <algorithm>
#include <cstdint>

namespace weft {

inline constexpr int64_t kLongestHeartbeatMs = 1000;
inline constexpr int64_t kHeartbeatsPerLease = 8;  // for short leases

// An agent asks for its next lease every so often.
inline int64_t HeartbeatMs(int64_t lease_ms) {
  return std::clamp<int64_t>(lease_ms / kHeartbeatsPerLease, 1, kLongestHeartbeatMs);
}

// An answer that was long in coming leaves so little that the agent asks again at once: what is
// launched meanwhile would end with the lease. An agent that a busy coordinator lets in late gets
// one that counts from its Hello.
inline bool IsShort(int64_t left_ms, int64_t lease_ms) {
  return left_ms < lease_ms / 2;
}

// Ranks stop themselves after this part of it, before the lease is over for anybody else.
inline int64_t RanksShareMs(int64_t lease_ms) {
  return lease_ms * 8 / 10;
}

}  // namespace weft
