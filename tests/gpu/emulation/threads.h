// Threads of a GPU, on the CPU: runs a kernel's blocks one after the other, each thread of a block
// on a stack of its own, switched at barriers and warp exchanges. So kernels meet a compiler, an
// address checker and the tests of their operations where there is no device. It shows wrong
// indices, missing barriers (SetOrder) and exchanges by a part of a warp; it shows nothing of
// speed, memory ordering, or what nvcc makes of the code.
//
// One emulated device per host thread: ranks may be threads.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace weft::emulation {

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

// These are of the thread that runs now.
inline thread_local Index3 thread_index, block_index, block_size, grid_size;

// The warps of a block, and the lanes of a warp, take turns in this order. A warp runs on until it
// has to wait for others: a kernel that lacks a barrier lets it read what is not there yet, or
// overwrite what is still needed, and gives other results in another order.
enum class Order { kAscending, kDescending };
void SetOrder(Order order);

void RunGrid(Index3 grid, Index3 block, size_t shared_bytes, const std::function<void()>& thread);

// Kernels run so far by this host thread.
inline thread_local int64_t num_grids = 0;

// Dynamic shared memory of the running block; filled with 0xff (not-a-number) before each block.
void* SharedMemory();

void WaitForBlock();
// Every lane of the warp must come; the process ends with a message otherwise.
void WaitForWarp();
// Returns what lane `lane` of the warp brought to this exchange. Collective over the warp.
uint64_t Exchange(uint64_t value, int lane);
// Fills `all` with what each lane of the warp brought, by lane. Collective over the warp.
void ExchangeAll(uint64_t value, uint64_t (&all)[32]);
// Bit i: lane i brought a value that is not zero. Collective over the warp.
uint32_t Ballot(bool value);
int Lane();

// Lets the host nap while it waits for a stream.
void Nap();

// The device of this host thread (cudaSetDevice), from 1.
inline std::atomic<int> num_devices = 0;
inline thread_local int device = ++num_devices;

// Events read this clock: it stands still but for work that says how long it takes
// (fake_cublaslt.cc).
inline thread_local double clock_ms = 0;

// The device's properties say this: 10 * major + minor.
inline thread_local int compute_capability = 90;
inline thread_local int shared_bytes_of_a_block = 232448;  // at most

}  // namespace weft::emulation
