// A libweft_cuda.so that needs no device: what workers load in tests of whole runs.
#include "tests/gpu/tested_api.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name that every backend exports.
extern "C" __attribute__((visibility("default"))) const weft::BackendApi* weft_backend(
    int abi_version) {
  return abi_version == weft::kBackendAbiVersion ? weft::TestedApi() : nullptr;
}
