#include "plan/spec/layout.h"

#include <algorithm>

#include "plan/errors.h"

namespace weft {

BlockRange EvenSplit(int64_t extent, int parts, int part) {
  CHECK(parts >= 1 && part >= 0 && part < parts);
  const int64_t each = extent / parts;
  const int64_t remainder = extent % parts;
  const int64_t begin = part * each + std::min<int64_t>(part, remainder);
  return {begin, begin + each + (part < remainder ? 1 : 0)};
}

BlockRange ChunkBlocks(const Layout& layout, int64_t num_blocks, int stage, int chunk) {
  CHECK(chunk >= 0 && chunk < layout.virtual_stages);
  if (layout.layers_per_stage.empty()) {
    return EvenSplit(num_blocks, layout.pp * layout.virtual_stages, chunk * layout.pp + stage);
  }
  BlockRange range;
  for (int before = 0; before < stage; ++before) {
    range.begin += layout.layers_per_stage[static_cast<size_t>(before)];
  }
  range.end = range.begin + layout.layers_per_stage[static_cast<size_t>(stage)];
  return range;
}

int64_t StageBlocksBefore(const Layout& layout, int64_t num_blocks, int stage, int64_t end) {
  if (end == 0) return 0;
  if (!layout.layers_per_stage.empty()) {
    int64_t begin = 0;
    for (int before = 0; before < stage && begin < end; ++before) {
      begin += layout.layers_per_stage[static_cast<size_t>(before)];
    }
    if (begin >= end) return 0;
    return std::min(layout.layers_per_stage[static_cast<size_t>(stage)], end - begin);
  }
  // The parts begin as EvenSplit has them.
  const int64_t parts = int64_t{layout.pp} * layout.virtual_stages;
  if (stage >= end && num_blocks >= parts) return 0;
  const int64_t each = num_blocks / parts;
  const int64_t remainder = num_blocks % parts;
  int64_t count = 0;
  for (int64_t part = stage; part < parts; part += layout.pp) {
    const int64_t begin = part * each + std::min(part, remainder);
    if (begin >= end) break;
    count += std::min(each + (part < remainder ? 1 : 0), end - begin);
  }
  return count;
}

int64_t StageBlockCount(const Layout& layout, int64_t num_blocks, int stage) {
  CHECK(stage >= 0 && stage < layout.pp);
  if (!layout.layers_per_stage.empty()) return layout.layers_per_stage[static_cast<size_t>(stage)];
  return EvenBlockCounts(num_blocks, layout.pp, layout.virtual_stages).Of(stage);
}

int Layout::head_chunks(int64_t seq_len) const {
  if (head_chunk_tokens <= 0) return 1;
  const int64_t sequence = std::max<int64_t>(1, seq_len / cp);
  const int64_t tokens = micro_batch_size * sequence;
  const int64_t chunks = tokens / head_chunk_tokens + (tokens % head_chunk_tokens > 0 ? 1 : 0);
  return static_cast<int>(std::clamp<int64_t>(chunks, 1, sequence));
}

Words WordsOf(ScheduleKind) {
  static constexpr absl::string_view kWords[] = {"gpipe", "1f1b", "interleaved_1f1b", "zb_h1"};
  return kWords;
}

Words WordsOf(Recompute) {
  static constexpr absl::string_view kWords[] = {"none", "selective", "full"};
  return kWords;
}

Words WordsOf(OffloadDevice) {
  static constexpr absl::string_view kWords[] = {"none", "cpu"};
  return kWords;
}

}  // namespace weft
