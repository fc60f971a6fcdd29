// A Device that proves the list of buffers exact from outside: it paints the arena with NaNs before
// the run, and each workspace again between microbatches, and looks at the paint when it is freed.
// Memory on the host holds model states alone: it looks how far these reach.
// Borrowed by one trainer; used by its thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plan/memory/memory.h"
#include "tests/worker/passing_backend.h"

namespace weft {

class PaintingDevice final : public PassingDevice {
 public:
  // `memory`: what the watcher takes the list to be. `alignment_elements`: so many at the
  // end of model states may be nobody's, which ZeRO cuts into parts of whole units. `findings`, of
  // the caller, is filled when the arena is freed: "overrun: <buffer>" where a gap was written,
  // "not used to its end: <buffer>" where the last element never was. A workspace read that its own
  // microbatch has not written shows as NaNs in the run itself.
  PaintingDevice(RankMemory memory, int64_t alignment_elements, Device& inner,
                 std::vector<std::string>* findings);

  void* Allocate(int64_t bytes) override;
  void Free(void* data, int64_t bytes) override;
  void* AllocateHost(int64_t bytes) override;
  void FreeHost(void* data, int64_t bytes) override;
  void Zero(View x) override;
  void Embed(View ids, View table, int64_t first_id, View positions, View position_ids,
             View out) override;
  void EmbedGradient(View ids, View dout, int64_t first_id, View position_ids, View dtable,
                     View dpositions) override;

 private:
  struct Painted {
    BufferSpec spec;
    int64_t offset_bytes = 0;  // in its home's block
    bool used = false;
  };

  // Its block is there.
  bool IsThere(const Painted& buffer) const { return BaseOf(buffer) != nullptr; }
  unsigned char* BaseOf(const Painted& buffer) const {
    return buffer.spec.home == MemoryHome::kHost ? host_base_ : base_;
  }
  void Paint(bool all);
  void Repaint();
  void Look();

  const int64_t alignment_elements_;
  std::vector<Painted> buffers_;
  std::vector<std::string> overrun_;
  std::vector<std::string>* const findings_;
  unsigned char* base_ = nullptr;
  unsigned char* host_base_ = nullptr;
  bool is_painted_ = false;
};

}  // namespace weft
