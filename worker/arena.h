// Arena: all device memory of one worker, as one allocation that the plan's list cuts into named
// buffers. Nothing else allocates on the device, so the planner's bytes are the worker's bytes.
// Used by the trainer's thread.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/memory.h"
#include "worker/backend/device.h"

namespace weft {

class Arena {
 public:
  // Allocates memory.total_bytes() and zeroes it. FailedPrecondition if the device has not as much.
  // `device` outlives the arena.
  static absl::StatusOr<std::unique_ptr<Arena>> Create(const RankMemory& memory, Device& device);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // The buffer of that name as [rows, cols], of the planned type. A name that the plan does not
  // list, or another number of elements, is our bug and ends the process.
  View Get(absl::string_view name, int64_t rows, int64_t cols);

  // All buffers of `kind` as one row, alignment gaps (always zero) included; empty if there is
  // none. Gradients are reduced and cleared this way. REQUIRES: they are neighbours in the list.
  View Whole(MemoryKind kind) const;

  // Internal, naming the first, if a listed buffer was never asked for: it would be planned for
  // nothing.
  absl::Status CheckAllUsed() const;

  int64_t bytes() const { return bytes_; }

 private:
  struct Buffer {
    MemoryKind kind = MemoryKind::kWeights;
    int64_t offset_bytes = 0;
    int64_t elements = 0;
    DType dtype = DType::kF32;
    int64_t end_bytes = 0;  // where the next one starts
    bool used = false;
  };

  explicit Arena(Device& device) : device_(device) {}

  Device& device_;
  char* block_ = nullptr;
  int64_t bytes_ = 0;
  std::map<std::string, Buffer, std::less<>> buffers_;
};

}  // namespace weft
