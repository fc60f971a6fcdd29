#include <gtest/gtest.h>

#include "tests/gpu/missing_device.h"
#include "tests/gpu/tested_api.h"
#include "worker/backend/loader.h"

namespace weft {

const BackendApi* TestedApi() {
  static const absl::StatusOr<const BackendApi*> loaded = LoadBackend(BackendKind::kCuda);
  if (!loaded.ok() || !MissingDevice(**loaded).empty()) return nullptr;
  int count = 0;
  const BackendStatus works = (*loaded)->device_count(&count);
  if (!works.ok()) ADD_FAILURE() << works.text;
  return works.ok() ? *loaded : nullptr;
}

}  // namespace weft
