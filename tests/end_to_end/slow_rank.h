// SlowDownUntil makes a rank slow on any machine, however busy it is: slow beside its peers.
#pragma once
#include <functional>

#include "tests/end_to_end/child.h"

namespace weft {

// Stops the rank once in each of its steps, where its progress page says that it computes, for
// twice as long as it has gone on since the last stop, 60 ms to 5 s: so its peers, who compute for
// at most that long, wait for it. Others on the machine prolong their work as they prolong the step
// by which stops are measured. Ends once `is_told`, which is asked every half second, or
// after `timeout_s`.
void SlowDownUntil(const Found& rank, double timeout_s, const std::function<bool()>& is_told);

}  // namespace weft
