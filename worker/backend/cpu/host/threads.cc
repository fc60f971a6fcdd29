#include "worker/backend/cpu/host/threads.h"

#include <immintrin.h>

#include <algorithm>

namespace weft {

Threads::Threads(int count) : count_(count) {
  Run(count, [](int) { _mm_setcsr(_mm_getcsr() | 0x8040); });  // FTZ, DAZ
}

// One piece per thread, so that the pool's threads are all reached. ThreadSanitizer does not see
// how libgomp waits, and would report every piece: there they run one after the other.
void Threads::RunPieces(int pieces, void (*call)(const void* work, int piece),
                        const void* work) const {
  [[maybe_unused]] const int region = std::min(count_, std::max(pieces, 2));
#if !defined(__SANITIZE_THREAD__)
#pragma omp parallel for schedule(static, 1) num_threads(region) if (region > 1)
#endif
  for (int piece = 0; piece < pieces; ++piece) call(work, piece);
}

}  // namespace weft
