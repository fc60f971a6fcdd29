// Libraries that loader_test.cc must refuse, one per definition (CMakeLists.txt).
#include "worker/backend/backend.h"

#ifdef WEFT_FAKE_WRONG_ABI
extern "C" const weft::BackendApi* weft_backend(int /*abi_version*/) {
  static const weft::BackendApi kApi = {.abi_version = weft::kBackendAbiVersion + 1};
  return &kApi;
}
#endif

#ifdef WEFT_FAKE_ABSENT
int WeftAbsent() {
  return 1;
}
#endif

#ifdef WEFT_FAKE_MISSING_LIBRARY
int WeftAbsent();
extern "C" int weft_backend_needs() {
  return WeftAbsent();
}
#endif
