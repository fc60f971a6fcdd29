#include "coordinator/caught.h"

#include <exception>

#include "absl/strings/str_cat.h"
#include "process/log.h"

namespace weft {

absl::Status Caught(absl::string_view what, const std::function<void()>& run) {
  try {
    run();
    return absl::OkStatus();
  } catch (const std::exception& thrown) {
    const absl::Status status = absl::InternalError(absl::StrCat(
        what, " failed unexpectedly (", thrown.what(), "); this is a bug of weft: report it"));
    LogError(status.message());
    return status;
  }
}

}  // namespace weft
