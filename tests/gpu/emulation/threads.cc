#include "tests/gpu/emulation/threads.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "tests/gpu/emulation/fiber.h"
#include "worker/backend/cuda/kernels/copy_async.h"

namespace weft::emulation {
namespace {

constexpr int kWarp = 32;

struct Copy {
  char* to = nullptr;
  const char* from = nullptr;  // null: zeros
};

void Do(const Copy& copy) {
  constexpr size_t kBytes = 16;
  copy.from == nullptr ? std::memset(copy.to, 0, kBytes) : std::memcpy(copy.to, copy.from, kBytes);
}

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "emulated kernel, block (%u, %u, %u) thread (%u, %u, %u): %s\n",
               block_index.x, block_index.y, block_index.z, thread_index.x, thread_index.y,
               thread_index.z, what);
  std::abort();
}

// A passage is complete when all have come.
struct Barrier {
  int arrived = 0;
  int ended = 0;  // threads that will not come
  int64_t passages = 0;
};

struct Thread {
  Barrier* waits_at = nullptr;  // null: ready, or has ended
  int64_t waits_for = 0;        // passages of that barrier
  int64_t exchanges = 0;        // picks one of two slots: a fast lane overwrites no slow one's
  Fiber* fiber = nullptr;       // that it runs on
  Index3 index;
  bool ended = false;
};

// One host thread's emulated device. A warp runs until it has to wait for others, so that it is as
// far ahead of them as it can be; at each barrier the last to come runs ahead. A fiber runs one new
// thread of a warp after the other until one of them has to wait, so that a kernel without barriers
// costs a call per thread.
class Block {
 public:
  Order order = Order::kAscending;
  std::vector<char> shared;

  void Run(const std::function<void()>& body) {
    count_ = static_cast<int>(block_size.x * block_size.y * block_size.z);
    body_ = &body;
    threads_.assign(static_cast<size_t>(count_), {});
    warps_.assign(static_cast<size_t>((count_ + kWarp - 1) / kWarp), {});
    slots_.resize(threads_.size() * 2);
    if (copies_.size() < threads_.size()) copies_.resize(threads_.size());
    all_ = {};
    const int last = static_cast<int>(warps_.size()) - 1;
    while (all_.ended < count_) {
      bool moved = false;
      for (int place = 0; place <= last; ++place) {
        if (RunWarp(order == Order::kAscending ? place : last - place)) moved = true;
      }
      if (!moved) Die("no thread can go on: a barrier that not all of them reach");
    }
  }

  void WaitForBlock() { Wait(&all_, count_); }
  void WaitForWarp() { Wait(&WarpOf(current_).barrier, LanesOf(current_ / kWarp)); }

  uint64_t Exchange(uint64_t value, int lane) {
    const uint64_t* const slots = Bring(value);
    if (lane < 0 || lane >= LanesOf(current_ / kWarp))
      Die("an exchange with a lane that is not there");
    return slots[lane];
  }
  void ExchangeAll(uint64_t value, uint64_t (&all)[32]) {
    std::copy_n(Bring(value), LanesOf(current_ / kWarp), all);
  }
  uint32_t Ballot(bool value) {
    const uint64_t* const slots = Bring(value ? 1 : 0);
    uint32_t bits = 0;
    for (int lane = 0; lane < LanesOf(current_ / kWarp); ++lane) {
      if (slots[lane] != 0) bits |= uint32_t{1} << lane;
    }
    return bits;
  }
  int Lane() const { return current_ % kWarp; }

  void CopyAsync(const Copy& copy) {
    if (reinterpret_cast<uintptr_t>(copy.to) % 16 != 0 ||
        reinterpret_cast<uintptr_t>(copy.from) % 16 != 0) {
      Die("a copy that is not aligned to 16 bytes");
    }
    order == Order::kAscending ? Do(copy) : copies_[static_cast<size_t>(current_)].push_back(copy);
  }
  void WaitForCopies() {
    std::vector<Copy>& own = copies_[static_cast<size_t>(current_)];
    for (const Copy& copy : own) Do(copy);
    own.clear();
  }

 private:
  struct Warp {
    Barrier barrier;
    int started = 0;  // of its lanes
  };

  Thread& At(int index) { return threads_[static_cast<size_t>(index)]; }
  Warp& WarpOf(int index) { return warps_[static_cast<size_t>(index / kWarp)]; }
  int LanesOf(int warp) const { return std::min(kWarp, count_ - warp * kWarp); }
  int AtPlace(int warp, int place) const {
    return warp * kWarp + (order == Order::kAscending ? place : LanesOf(warp) - 1 - place);
  }

  // Runs a warp as far as it gets while the other warps stand still; returns whether that was
  // anywhere.
  bool RunWarp(int warp) {
    const int lanes = LanesOf(warp);
    bool moved = false;
    int still = 0;  // lanes in turn that could not go on
    for (int place = 0; still < lanes; place = place + 1 == lanes ? 0 : place + 1) {
      ++still;
      Thread& thread = At(AtPlace(warp, place));
      if (place == warps_[static_cast<size_t>(warp)].started) {
        current_ = AtPlace(warp, place);
        TakeFiber().Resume();
      } else if (!thread.ended && thread.waits_at->passages >= thread.waits_for) {
        Enter(AtPlace(warp, place));
        thread.fiber->Resume();
      } else {
        continue;
      }
      still = 0;
      moved = true;
    }
    return moved;
  }

  void Enter(int index) {
    current_ = index;
    thread_index = At(index).index;
  }

  // One that starts with the current thread.
  Fiber& TakeFiber() {
    if (free_fibers_.empty()) {
      const size_t index = fibers_.size();
      fibers_.push_back(std::make_unique<Fiber>([this, index] {
        Fiber* const self = fibers_[index].get();
        while (true) {
          RunNewThreads(self);
          free_fibers_.push_back(self);
          self->Pause();
        }
      }));
      free_fibers_.push_back(fibers_.back().get());
    }
    Fiber* const fiber = free_fibers_.back();
    free_fibers_.pop_back();
    return *fiber;
  }

  // One after the other those of the current one's warp that have not started yet.
  void RunNewThreads(Fiber* fiber) {
    const int warp = current_ / kWarp;
    Warp& own = warps_[static_cast<size_t>(warp)];
    while (own.started < LanesOf(warp)) {
      const int index = AtPlace(warp, own.started++);
      const auto at = static_cast<unsigned>(index);
      At(index).index = {at % block_size.x, at / block_size.x % block_size.y,
                         at / block_size.x / block_size.y};
      Enter(index);
      At(index).fiber = fiber;
      (*body_)();
      At(index).ended = true;
      if (!copies_[static_cast<size_t>(index)].empty()) Die("ended while copies are under way");
      ++all_.ended;
      ++own.barrier.ended;
      if (all_.arrived > 0 || own.barrier.arrived > 0) Die("ended while others wait for it");
    }
  }

  uint64_t* Bring(uint64_t value) {
    const int index = current_;
    const size_t half = static_cast<size_t>(At(index).exchanges++ % 2) * threads_.size();
    slots_[half + static_cast<size_t>(index)] = value;
    WaitForWarp();
    return slots_.data() + half + static_cast<size_t>(index / kWarp * kWarp);
  }

  void Wait(Barrier* barrier, int expected) {
    if (barrier->ended > 0) Die("waits for threads that have ended");
    Thread& self = At(current_);
    self.waits_at = barrier;
    self.waits_for = barrier->passages + 1;
    if (++barrier->arrived == expected) {
      barrier->arrived = 0;
      ++barrier->passages;
    }
    self.fiber->Pause();
  }

  const std::function<void()>* body_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  Barrier all_;
  std::vector<uint64_t> slots_;
  std::vector<std::vector<Copy>> copies_;  // by thread: under way
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_fibers_;
  int count_ = 0;
  int current_ = 0;
};

thread_local Block block;

}  // namespace

void SetOrder(Order order) {
  block.order = order;
}

void RunGrid(Index3 grid, Index3 size, size_t shared_bytes, const std::function<void()>& thread) {
  ++num_grids;
  grid_size = grid;
  block_size = size;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        block_index = {x, y, z};
        block.shared.assign(shared_bytes, '\xff');
        block.Run(thread);
      }
    }
  }
}

void* SharedMemory() {
  return block.shared.data();
}
void WaitForBlock() {
  block.WaitForBlock();
}
void WaitForWarp() {
  block.WaitForWarp();
}
uint64_t Exchange(uint64_t value, int lane) {
  return block.Exchange(value, lane);
}
void ExchangeAll(uint64_t value, uint64_t (&all)[32]) {
  block.ExchangeAll(value, all);
}
uint32_t Ballot(bool value) {
  return block.Ballot(value);
}
int Lane() {
  return block.Lane();
}
void Nap() {
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace weft::emulation

namespace weft {

void CopyAsync16(void* to, const void* from, bool is_there) {
  const emulation::Copy copy = {static_cast<char*>(to),
                                is_there ? static_cast<const char*>(from) : nullptr};
  emulation::block.CopyAsync(copy);
}
void WaitForCopies() {
  emulation::block.WaitForCopies();
}

}  // namespace weft
