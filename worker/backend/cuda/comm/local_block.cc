#include "worker/backend/cuda/comm/local_block.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "worker/backend/failure.h"

namespace weft {

static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

BackendStatus LocalBlock::Open(const std::string& name, int world_size,
                               std::unique_ptr<LocalBlock>* block) {
  if (world_size > kMostLocalRanks) {
    return Failure(kInvalidArgument, "%d ranks share this host's devices; at most %d can",
                   world_size, kMostLocalRanks);
  }
  auto opened = std::unique_ptr<LocalBlock>(new LocalBlock(name, world_size));
  const auto ranks = static_cast<size_t>(world_size);
  opened->bytes_ = ranks * sizeof(LocalRank) + ranks * ranks * sizeof(LocalChannel);
  const int fd = shm_open(name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  // A block that is new is all zeros, which is the start of every field.
  const bool sized = fd >= 0 && ftruncate(fd, static_cast<off_t>(opened->bytes_)) == 0;
  if (sized) {
    opened->mapped_ = mmap(nullptr, opened->bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!sized || opened->mapped_ == MAP_FAILED) {
    opened->mapped_ = nullptr;
    return Failure(kUnavailable, "shared memory %s of %lld bytes: %s; /dev/shm may be full",
                   name.c_str(), static_cast<long long>(opened->bytes_), std::strerror(error));
  }
  opened->ranks_ = static_cast<LocalRank*>(opened->mapped_);
  opened->channels_ = reinterpret_cast<LocalChannel*>(opened->ranks_ + world_size);
  *block = std::move(opened);
  return {};
}

void LocalBlock::Unlink() {
  shm_unlink(name_.c_str());
}

LocalBlock::~LocalBlock() {
  if (mapped_ != nullptr) munmap(mapped_, bytes_);
}

}  // namespace weft
