// The stand-in for cuDNN (fake_cudnn.cc, a libcudnn.so.9) offers this beside cuDNN's own entry
// points: faults on demand, and what it was asked to do. Found with dlsym, as it is loaded.
#pragma once
#include <cstdint>

extern "C" {
// Ways in which a graph may be other than it should: each as if whoever built it had made that
// mistake.
enum class WeftCudnnMistake {
  kNone,
  kSelectsWithoutMask,      // the mask hides nothing
  kComparesStrictly,        // nor does a query see its own key
  kDoublesValue,            // of the tensor, which is the host's
  kSwapsHeadsAndPositions,  // in the tensor's strides
  kPassesAnother,           // memory, of zeros, in the tensor's place
  kReducesFirst,            // a sum over heads is its first term
  kReshapesWithoutTurning,  // strides are those of the dims as they follow each other
};

struct WeftFakeCudnn {
  // From now on:
  bool refuses_handles = false;  // cudnnCreate fails
  bool refuses_plans = false;    // no plan can be compiled
  bool fails_runs = false;       // cudnnBackendExecute fails
  // More than usual that the plans want that are proposed first and second.
  int64_t more_workspace_bytes[2] = {0, 0};
  WeftCudnnMistake mistake = WeftCudnnMistake::kNone;
  int64_t mistaken_tensor = 0;  // by its id
  // So far, in this process:
  int64_t plans = 0;  // compiled
  int64_t runs = 0;
  int64_t descriptors = 0;  // that live
  int64_t handles = 0;
  // Runs that were left out: of documents that cannot be, or with results that overlap something.
  int64_t impossible_runs = 0;
};
// For the caller to read and to write.
WeftFakeCudnn* WeftFakeCudnnState();
}
