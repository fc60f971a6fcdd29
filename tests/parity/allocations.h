// This file counts what a process has allocated, libraries included: its counters are those of
// libweft_allocations.so, which is preloaded under the ranks of a parity run and takes the place of
// malloc, mmap and their kin.
#pragma once
#include <cstdint>

extern "C" {

struct WeftAllocations {
  int64_t calls;         // that took memory, since the start
  int64_t live_bytes;    // of the heap, held now
  int64_t peak_bytes;    // most held at once since the last WeftReadAllocations
  int64_t mapped_bytes;  // by mmap less munmap; not what malloc itself maps
};

// Any thread. Lowers the peak to what is held now.
using WeftReadAllocationsFunction = void(WeftAllocations* counters);
WeftReadAllocationsFunction WeftReadAllocations;
}

// Its name for dlsym: the symbol is there only where the library is preloaded.
inline constexpr char kReadAllocations[] = "WeftReadAllocations";
