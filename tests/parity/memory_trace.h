// MemoryTrace: what one rank's process held while it trained, step by step. A rank writes it as
// memory/rank-<r>.json of its folder, the test reads it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

struct WeftAllocations;  // allocations.h

namespace weft {

struct MemoryTrace {
  struct Step {
    int64_t calls = 0;         // that took memory, during the step
    int64_t live_bytes = 0;    // of the heap, at its end
    int64_t peak_bytes = 0;    // of the heap, most at once during it
    int64_t mapped_bytes = 0;  // beside the heap, at its end
    int64_t rss_bytes = 0;     // resident set, at its end
  };
  int64_t base_rss_bytes = 0;  // with the backend open, before the trainer
  int64_t arena_bytes = 0;
  std::vector<Step> steps;
};

// Takes the readings. Allocates nothing after its construction.
class MemoryRecorder {
 public:
  // FailedPrecondition if libweft_allocations.so is not preloaded.
  static absl::StatusOr<MemoryRecorder> Create(int64_t steps);

  void StepDone();
  absl::Status Write(const std::string& folder, int rank, int64_t arena_bytes) const;

 private:
  MemoryRecorder() = default;

  void (*read_)(WeftAllocations*) = nullptr;
  int64_t calls_ = 0;
  MemoryTrace trace_;
};

// By rank.
absl::StatusOr<std::vector<MemoryTrace>> ReadMemoryTraces(const std::string& folder,
                                                          int world_size);

}  // namespace weft
