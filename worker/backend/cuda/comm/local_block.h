// LocalBlock: a block of POSIX shared memory in which the ranks of one host meet: who is there,
// where each one's staging buffer lies, counters that barriers wait for, and channels that say how
// much of a message lies ready. No CUDA here; handles are bytes.
//
// Each field has one writer, or is an atomic.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "worker/backend/device.h"

namespace weft {

inline constexpr int kMostLocalRanks = 64;
inline constexpr int kMostLocalGroups = 256;
inline constexpr int kHostValues = 256;

// Written by the rank it belongs to.
struct LocalRank {
  std::atomic<int32_t> stage;  // 0: not there; see LocalComm
  int32_t pid;
  int32_t share_error;      // why there is no handle; 0: there is
  uint64_t process;         // tells it from those of other containers with that pid
  void* staging;            // as that process sees it
  char staging_handle[64];  // for other processes
  std::atomic<int64_t> arrivals[kMostLocalGroups];
  double values[kHostValues];  // of a host reduction
};

// One direction between two ranks. The sender writes a piece to its staging buffer and counts it as
// posted; the receiver copies it and counts it as taken.
struct LocalChannel {
  std::atomic<int64_t> posted;
  std::atomic<int64_t> taken;
  std::atomic<int64_t> message_bytes;  // of the message that the piece is a part of
  std::atomic<int64_t> piece_bytes;
  std::atomic<bool> refused;  // by the receiver: it expected another length
};

class LocalBlock {
 public:
  ~LocalBlock();
  LocalBlock(const LocalBlock&) = delete;
  LocalBlock& operator=(const LocalBlock&) = delete;

  // Makes or opens the block of that name; all of `world_size` ranks name the same.
  static BackendStatus Open(const std::string& name, int world_size,
                            std::unique_ptr<LocalBlock>* block);
  // Takes the name away; those who have it open keep it. By one rank, once all have it open.
  void Unlink();

  LocalRank& rank(int index) { return ranks_[index]; }
  LocalChannel& channel(int from, int to) { return channels_[from * world_size_ + to]; }

 private:
  LocalBlock(std::string name, int world_size) : name_(std::move(name)), world_size_(world_size) {}

  const std::string name_;
  const int world_size_;
  void* mapped_ = nullptr;
  size_t bytes_ = 0;
  LocalRank* ranks_ = nullptr;
  LocalChannel* channels_ = nullptr;
};

}  // namespace weft
