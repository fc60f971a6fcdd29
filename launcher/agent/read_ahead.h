// A spare host reads a checkpoint before it is needed, so that its pages are in memory when its
// ranks load it.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace weft {

// Reads the files of `folder` (absolute), at idle priority of this thread's disk and processor
// time, as long as `goes_on` says so, and no more than half of the memory that is free. Returns how
// many bytes it has read.
int64_t ReadAhead(const std::string& folder, const std::function<bool()>& goes_on);

}  // namespace weft
