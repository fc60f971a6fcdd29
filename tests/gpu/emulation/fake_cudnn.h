// What the stand-in for cuDNN (fake_cudnn.cc, a libcudnn.so.9) offers beside cuDNN's own entry
// points: faults on demand, and what it was asked to do. Found with dlsym, as it is loaded.
#pragma once
#include <cstdint>

extern "C" {
struct WeftFakeCudnn {
  // From now on:
  bool refuses_handles = false;  // cudnnCreate fails
  bool refuses_plans = false;    // no plan can be compiled
  bool fails_runs = false;       // cudnnBackendExecute fails
  // So far, in this process:
  int64_t plans = 0;  // compiled
  int64_t runs = 0;
  int64_t descriptors = 0;  // that live
  int64_t handles = 0;
};
// For the caller to read and to write.
WeftFakeCudnn* WeftFakeCudnnState();
}
