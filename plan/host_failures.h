// Hosts that fail jobs are left out for a while: the rule of a weftd that serves jobs, and of a run
// across its allocations.
#pragma once
#include <cstdint>

namespace weft {

// So many failures within that time leave a host out, for so long after the newest.
inline constexpr int kHostFailuresToLeaveOut = 3;
inline constexpr int64_t kHostFailuresWithinS = 3600;
inline constexpr int64_t kHostLeftOutS = 3600;

}  // namespace weft
