#include "tests/gpu/tested_api.h"
#include "worker/backend/loader.h"

namespace weft {

const BackendApi* TestedApi() {
  static const BackendApi* const api = [] {
    const absl::StatusOr<const BackendApi*> loaded = LoadBackend(BackendKind::kCuda);
    int count = 0;
    const bool has_device = loaded.ok() && (*loaded)->device_count(&count).ok() && count > 0;
    return has_device ? *loaded : nullptr;
  }();
  return api;
}

}  // namespace weft
