// StateSwapper: brings optimizer states and master weights that live in host memory
// (Layout::offload_optimizer) to the device for the update, stretch by stretch, and back again. Two
// places on the device take turns (StagingRoom of plan/memory/memory.h): while the optimizer works
// on one stretch, the last one leaves and the next one arrives.
//
// No bit depends on it: an optimizer's operations are element by element, or block by block of
// states in 8 bits, and stretches are of whole blocks. Without offloading there is one stretch, all
// that the rank owns where it is. Used by the trainer's thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "plan/memory/memory.h"
#include "worker/backend/device.h"
#include "worker/state/arena.h"
#include "worker/state/parameters.h"

namespace weft {

class StateSwapper {
 public:
  using Work = absl::FunctionRef<void(absl::Span<const OwnPiece> own)>;

  // Borrows parameters and device. `staging`: StagingOf of the rank's buckets.
  StateSwapper(const Parameters& parameters, const StagingRoom& staging, const Numerics& numerics,
               Arena& arena, Device& device);

  // Calls `update` with all that the rank owns, each element once, in one call or several: with
  // pieces or slices of them, whose views are all on the device. What it changes of master weights
  // and states is back where they live for whatever is queued after this.
  void ForEachStretch(Work update);

  // After a change of all master weights where they live: all weights = master, rounded.
  void RoundWeights();

 private:
  // A run of a bucket's own part, in one place.
  struct Stretch {
    struct Array {
      View host, staged;
    };
    std::vector<OwnPiece> own;  // views of what is offloaded are the place's
    std::vector<Array> arrays;  // the master weights, if these are offloaded, then the states
  };
  // A Place is the staging memory that one stretch is fetched into.
  struct Place {
    View master;
    std::vector<OptimizerState> states;
  };
  enum class Return { kYes, kNo };

  Stretch StretchOf(size_t bucket, int64_t first, int64_t count, const Place& place) const;
  // The first `arrays` of each stretch's arrays come, and go back if they are to.
  void Pass(size_t arrays, Return goes_back, Work work);
  void Fetch(const Stretch& stretch, size_t arrays);

  const Parameters& parameters_;
  Device& device_;
  const bool has_master_;           // weights are rounded copies
  const size_t places_;             // 0: nothing is offloaded
  std::vector<Stretch> stretches_;  // i lies in place i % places_
};

}  // namespace weft
