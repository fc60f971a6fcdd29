// Arena: all device memory of one worker, as one allocation that the plan's list cuts into named
// buffers, and one of host memory for those that live there. Nothing else allocates on the device,
// so the planner's bytes are the worker's bytes. Used by the trainer's thread.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/memory/memory.h"
#include "worker/backend/device.h"

namespace weft {

class Arena {
 public:
  // Allocates memory.total_bytes() on the device and memory.host_bytes() on the host, if any, and
  // zeroes them. FailedPrecondition if one of them has not as much. `device` outlives the arena.
  static absl::StatusOr<std::unique_ptr<Arena>> Create(const RankMemory& memory, Device& device);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // The buffer of that name as [rows, cols], of the planned type; in memory of
  // Device::AllocateHost where the plan puts it there. A name that the plan does not
  // list, or another number of elements, is our bug and ends the process.
  View Get(absl::string_view name, int64_t rows, int64_t cols);

  // All of the buffer of that name, in one row.
  View Row(absl::string_view name);

  // All buffers of `kind` on the device as one row, alignment gaps (always zero) included; empty if
  // there is none. Gradients are reduced and cleared this way. REQUIRES: they are neighbours in the
  // list.
  View Whole(MemoryKind kind) const;

  // Internal, naming the first, if a listed buffer was never asked for: it would be planned for
  // nothing.
  absl::Status CheckAllUsed() const;

  int64_t bytes() const { return device_.bytes; }  // on the device
  int64_t host_bytes() const { return host_.bytes; }

 private:
  struct Buffer {
    MemoryKind kind = MemoryKind::kWeights;
    MemoryHome home = MemoryHome::kDevice;
    int64_t offset_bytes = 0;  // in its home's block
    int64_t elements = 0;
    DType dtype = DType::kF32;
    int64_t end_bytes = 0;  // where the next one starts
    bool used = false;
  };

  struct Block {
    char* data = nullptr;
    int64_t bytes = 0;
  };

  explicit Arena(Device& backend) : backend_(backend) {}

  absl::Status Allocate();
  Block& BlockOf(MemoryHome home) { return home == MemoryHome::kHost ? host_ : device_; }

  Device& backend_;
  Block device_, host_;
  std::map<std::string, Buffer, std::less<>> buffers_;
};

}  // namespace weft
