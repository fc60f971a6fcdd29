#include "plan/spec/layout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
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
  if (layout.stage_blocks.empty()) {
    return EvenSplit(num_blocks, layout.pp * layout.virtual_stages, chunk * layout.pp + stage);
  }
  BlockRange range;
  for (int before = 0; before < stage; ++before) {
    range.begin += layout.stage_blocks[static_cast<size_t>(before)];
  }
  range.end = range.begin + layout.stage_blocks[static_cast<size_t>(stage)];
  return range;
}

int64_t StageBlockCount(const Layout& layout, int64_t num_blocks, int stage) {
  CHECK(stage >= 0 && stage < layout.pp);
  if (!layout.stage_blocks.empty()) return layout.stage_blocks[static_cast<size_t>(stage)];
  return EvenBlockCounts(num_blocks, layout.pp, layout.virtual_stages).Of(stage);
}

namespace {

// "8,9,9,6"; of long lists neighbours that are alike together: "1,62x2,1".
std::string BlocksPerStageText(absl::Span<const int64_t> blocks) {
  constexpr size_t kShort = 8;
  if (blocks.size() <= kShort) return absl::StrJoin(blocks, ",");
  std::vector<std::string> runs;
  for (size_t begin = 0, end = 0; begin < blocks.size(); begin = end) {
    while (end < blocks.size() && blocks[end] == blocks[begin]) ++end;
    runs.push_back(end - begin == 1 ? absl::StrCat(blocks[begin])
                                    : absl::StrCat(end - begin, "x", blocks[begin]));
  }
  return absl::StrJoin(runs, ",");
}

}  // namespace

std::string LayoutText(const Layout& layout) {
  std::string text = absl::StrCat("dp=", layout.dp, " tp=", layout.tp, " pp=", layout.pp);
  const auto add = [&](auto... parts) { absl::StrAppend(&text, " ", parts...); };
  if (layout.cp != 1) add("cp=", layout.cp);
  if (layout.ep != 1) add("ep=", layout.ep);
  if (layout.zero_stage != 0) add("zero_stage=", layout.zero_stage);
  if (layout.zero_group != 0) add("zero_group=", layout.zero_group);
  add(ScheduleName(layout.schedule));
  if (layout.virtual_stages != 1) add("virtual_stages=", layout.virtual_stages);
  add("micro_batch=", layout.micro_batch_size);
  add("microbatches=", layout.num_microbatches);
  if (!layout.stage_recompute.empty()) {
    std::vector<absl::string_view> names;
    for (const Recompute recompute : layout.stage_recompute)
      names.push_back(RecomputeName(recompute));
    add("recompute=", absl::StrJoin(names, ","));
  } else if (layout.recompute != Recompute::kNone) {
    add("recompute=", RecomputeName(layout.recompute));
  }
  if (layout.sequence_parallel) add("sequence_parallel");
  if (layout.offload_optimizer) add("offload_optimizer");
  if (layout.head_chunks != 1) add("head_chunks=", layout.head_chunks);
  if (!layout.stage_blocks.empty()) add("layers=", BlocksPerStageText(layout.stage_blocks));
  return text;
}

Words WordsOf(ScheduleKind) {
  static constexpr absl::string_view kWords[] = {"gpipe", "1f1b", "interleaved_1f1b", "zb_h1"};
  return kWords;
}

absl::string_view ScheduleName(ScheduleKind kind) {
  return WordOf(kind);
}

absl::StatusOr<ScheduleKind> ParseSchedule(absl::string_view name) {
  return ParseWord<ScheduleKind>(name, "a schedule that weft knows");
}

Words WordsOf(Recompute) {
  static constexpr absl::string_view kWords[] = {"none", "selective", "full"};
  return kWords;
}

absl::string_view RecomputeName(Recompute recompute) {
  return WordOf(recompute);
}

absl::StatusOr<Recompute> ParseRecompute(absl::string_view name) {
  return ParseWord<Recompute>(name, "a recompute mode");
}

}  // namespace weft
