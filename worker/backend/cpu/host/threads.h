// Threads: cuts the loops of an operation into pieces that run at once, on the threads of OpenMP
// that OpenBLAS and oneDNN use as well (a pool of our own would spin against theirs).
//
// No bit of a result depends on how many threads there are: a piece writes what no other piece
// reads or writes, and sums are cut by their length alone. Used by one thread.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>

namespace weft {

class Threads {
 public:
  // Also flushes denormals (FTZ, DAZ) on each of them. REQUIRES: count >= 1.
  explicit Threads(int count);

  int count() const { return count_; }

  // Calls work(first, size) for pieces that together are [0, total), at most one per thread. Each
  // but the last is a multiple of `unit`: where a loop's vectors begin does not depend on the cut.
  // `cost`: about how many elements one of `total` stands for. Little work is done at once.
  template <typename Work>
  void ForEach(int64_t total, int64_t unit, int64_t cost, const Work& work) const {
    const int64_t units = (total + unit - 1) / unit;
    const int64_t pieces = std::min<int64_t>({count_, units, total * cost / kLeastElements});
    if (pieces <= 1) {
      if (total > 0) work(int64_t{0}, total);
      return;
    }
    Run(static_cast<int>(pieces), [&](int piece) {
      const int64_t first = units * piece / pieces * unit;
      const int64_t end = std::min(total, units * (piece + 1) / pieces * unit);
      work(first, end - first);
    });
  }

  // The sum of sum(first, size) over pieces that together are [0, total), which `total` alone cuts.
  template <typename Work>
  double Sum(int64_t total, const Work& sum) const {
    constexpr int64_t kMostPieces = 64;
    constexpr int64_t kLeast = 16384;
    const int64_t size = std::max(kLeast, (total + kMostPieces - 1) / kMostPieces);
    const int64_t pieces = (total + size - 1) / size;
    double sums[kMostPieces];
    ForEach(pieces, 1, size, [&](int64_t first, int64_t count) {
      for (int64_t piece = first; piece < first + count; ++piece) {
        sums[piece] = sum(piece * size, std::min(size, total - piece * size));
      }
    });
    return std::accumulate(sums, sums + pieces, 0.0);
  }

  // Calls work(piece) for each of [0, pieces) at once; a single one, too, where there are several
  // threads, inside a region of more than one: a library that would use them all for itself stays
  // on the thread that calls it. REQUIRES: pieces <= count().
  template <typename Work>
  void Run(int pieces, const Work& work) const {
    RunPieces(
        pieces, [](const void* any, int piece) { (*static_cast<const Work*>(any))(piece); }, &work);
  }

 private:
  static constexpr int64_t kLeastElements = 8192;  // below it waking a thread costs more

  void RunPieces(int pieces, void (*call)(const void* work, int piece), const void* work) const;

  const int count_;
};

}  // namespace weft
