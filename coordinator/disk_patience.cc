#include "coordinator/disk_patience.h"

#include "absl/strings/str_cat.h"
#include "process/log.h"

namespace weft {
namespace {

constexpr size_t kMaxWaiting = 100000;  // facts; a save of 10,000 ranks has as many
constexpr int64_t kTryEveryMs = 500;

}  // namespace

absl::Status DiskPatience::Try(int64_t now_ms, size_t waiting,
                               const std::function<absl::Status()>& append, bool* written) {
  *written = false;
  if (!behind_.ok() && now_ms - tried_ms_ < kTryEveryMs) {
    return waiting > kMaxWaiting ? behind_ : absl::OkStatus();
  }
  tried_ms_ = now_ms;
  const absl::Status status = append();
  if (status.ok()) {
    *written = true;
    if (!behind_.ok()) LogInfo("there is room for the journal again");
    behind_ = absl::OkStatus();
    return absl::OkStatus();
  }
  if (!absl::IsResourceExhausted(status) || waiting > kMaxWaiting) return status;
  if (behind_.ok()) LogError(absl::StrCat(status.message(), "; ", meanwhile_));
  behind_ = status;
  return absl::OkStatus();
}

}  // namespace weft
