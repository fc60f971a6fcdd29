// SlowDownUntil makes a rank slow on any machine, however busy it is: slow beside its peers.
#pragma once
#include <functional>

#include "tests/end_to_end/child.h"

namespace weft {

// Lets the process work for half a millisecond of a processor at a time, less than a step of any
// job here takes, and then stops it for four times as long as that took, 60 to 300 ms: on a busy
// machine its peers have their work prolonged by others, and it is slow only if it waits longer
// than they do. Ends once `is_told`, which is asked every half second, or after `timeout_s`.
void SlowDownUntil(const Found& rank, double timeout_s, const std::function<bool()>& is_told);

}  // namespace weft
