// Caught is the net below weftd's doors and threads. weft itself throws nothing, but what it calls
// may: an allocation, a folder that cannot be read on, a look-up of something that a peer has made
// up. An exception that leaves a thread ends the process, and with it every job; so whoever begins
// work on somebody's word ends that work alone. Any thread.
#pragma once
#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace weft {

// Calls `run`. Internal, after an error in the log, if it throws. `what`: that is begun, as
// "job-17: a round".
absl::Status Caught(absl::string_view what, const std::function<void()>& run);

}  // namespace weft
