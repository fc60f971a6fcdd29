// Work on many arrays in few launches: a table of them travels in a kernel's parameters, and each
// is cut into chunks, which are spread over the blocks. Where a small array has a launch of its
// own, the launch takes longer than its work.
#pragma once
#include <algorithm>
#include <cstdint>

#include "worker/backend/cuda/kernels/launch.h"

namespace weft {

inline constexpr int kChunkThreads = 256;
// Elements of an array that a block takes at once: of floats two accesses of 16 bytes by each
// thread. Chunks of an array that starts at a multiple of 16 bytes do so too.
inline constexpr int64_t kChunk = 2048;

// Bytes of a kernel's parameters in all, and those left for what goes beside the table.
inline constexpr int kParameterBytes = 4096;
inline constexpr int kParameterRest = 128;

// Segment: a struct with the `count` of its elements.
template <typename Segment>
struct SegmentTable {
  static constexpr int kMost =
      (kParameterBytes - kParameterRest) / (static_cast<int>(sizeof(Segment)) + 4);
  Segment segments[kMost];
  int32_t first_chunk[kMost];  // of the table's
  int32_t size;
  int32_t chunks;
};

// Calls work(segment, first, count) for elements [first, first + count) of a segment: the table's
// chunk of that number.
template <typename Segment, typename Work>
__device__ __forceinline__ void WithChunk(const SegmentTable<Segment>& table, int64_t chunk,
                                          const Work& work) {
  int at = 0;  // the last that starts at the chunk or before it
  for (int step = 128; step > 0; step /= 2) {
    if (at + step < table.size && table.first_chunk[at + step] <= chunk) at += step;
  }
  const int64_t first = (chunk - table.first_chunk[at]) * kChunk;
  const int64_t rest = table.segments[at].count - first;
  work(table.segments[at], first, rest < kChunk ? rest : kChunk);
}

// Calls launch(table) for tables that hold the segments segment_of(0), ..., segment_of(count - 1)
// between them, in this order and without empty ones, up to the first that fails.
template <typename Segment, typename SegmentOf, typename LaunchTable>
cudaError_t ForEachTable(int64_t count, const SegmentOf& segment_of, const LaunchTable& launch) {
  static_assert(SegmentTable<Segment>::kMost < 256, "as WithChunk searches");
  constexpr int64_t kMostChunks = INT32_MAX / 2;
  SegmentTable<Segment> table = {};
  for (int64_t i = 0; i < count; ++i) {
    const Segment segment = segment_of(i);
    const int64_t chunks = (segment.count + kChunk - 1) / kChunk;
    if (chunks > kMostChunks) return cudaErrorInvalidValue;
    if (chunks == 0) continue;
    if (table.size == SegmentTable<Segment>::kMost || table.chunks + chunks > kMostChunks) {
      if (const cudaError_t code = launch(table); code != cudaSuccess) return code;
      table.size = 0;
      table.chunks = 0;
    }
    table.segments[table.size] = segment;
    table.first_chunk[table.size] = table.chunks;
    ++table.size;
    table.chunks += static_cast<int32_t>(chunks);
  }
  return table.size == 0 ? cudaSuccess : launch(table);
}

}  // namespace weft
