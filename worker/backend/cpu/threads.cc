#include "worker/backend/cpu/threads.h"

#include <immintrin.h>

namespace weft {

Threads::Threads(int count) : count_(count) {
  Run(count, [](int) { _mm_setcsr(_mm_getcsr() | 0x8040); });  // FTZ, DAZ
}

// One piece per thread, so that the pool's threads are all reached. ThreadSanitizer does not see
// how libgomp waits, and would report every piece: there they run one after the other.
void Threads::RunPieces(int pieces, void (*call)(const void* work, int piece), const void* work) {
#if !defined(__SANITIZE_THREAD__)
#pragma omp parallel for schedule(static, 1) num_threads(pieces) if (pieces > 1)
#endif
  for (int piece = 0; piece < pieces; ++piece) call(work, piece);
}

}  // namespace weft
