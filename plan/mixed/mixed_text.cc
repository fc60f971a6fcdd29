#include "plan/mixed/mixed_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "plan/search/describe.h"
#include "plan/spec/layout_text.h"

namespace weft {
namespace {

const Cluster& PartOf(absl::Span<const Cluster> parts, const PartUse& use) {
  return parts[static_cast<size_t>(use.part)];
}

double TokensPerS(const JobSpec& job, double objective_s) {
  const BatchShape batch = job.batch();
  return static_cast<double>(batch.global_batch_size) * static_cast<double>(batch.seq_len) /
         objective_s;
}

std::string HeadLine(const MixedAnswer& answer, absl::Span<const Cluster> parts) {
  int devices = 0;
  for (const Cluster& part : parts) devices += part.slots();
  const char* const way =
      answer.plan.way == MixedWay::kStages
          ? "one pipeline through the parts, blocks as devices are fast and hold"
          : "replicas on each part, microbatches as devices are fast";
  return absl::StrFormat("%d devices of %d kinds: %s\n", devices, parts.size(), way);
}

// The table of parts says the rest.
std::string OwnText(Layout layout) {
  layout.layers_per_stage.clear();
  layout.recompute_per_stage.clear();
  return LayoutText(layout);
}

// Where a part alone would be faster: the others hold it up.
std::string AdviceLine(const MixedAnswer& answer, absl::Span<const Cluster> parts) {
  double best_s = answer.plan.objective_s();
  std::string advice;
  for (size_t part = 0; part < answer.alone.size(); ++part) {
    const double alone_s = answer.alone[part].objective_s;
    if (alone_s == 0 || alone_s >= best_s) continue;
    best_s = alone_s;
    advice = absl::StrCat("beware: ", parts[part].name, " alone is ",
                          SlowerShareText(answer.plan.objective_s() / best_s - 1),
                          " faster than all parts together; plan for it alone\n");
  }
  return advice;
}

constexpr char kUseFormat[] = "  %-12s %10s %8s %8s %12s %9s %15s %5s  %s";

std::string UsesText(const MixedPlan& plan, absl::Span<const Cluster> parts) {
  constexpr double kGib = 1 << 30;
  std::string text = absl::StrFormat(kUseFormat, "part", "devices", "stages", "replicas",
                                     "microbatches", "recompute", "memory", "busy", "blocks");
  for (const PartUse& use : plan.uses) {
    const Cluster& part = PartOf(parts, use);
    const bool is_whole = use.devices == part.slots();
    const std::string line = absl::StrFormat(
        kUseFormat, part.name,
        is_whole ? absl::StrCat(use.devices) : absl::StrCat(use.devices, " of ", part.slots()),
        StagesText(use), absl::StrCat(use.replicas), absl::StrCat(use.microbatches),
        std::string(WordOf(use.recompute)),
        absl::StrFormat("%.1f of %.0f GiB", static_cast<double>(use.fullest.total_bytes()) / kGib,
                        static_cast<double>(part.device.memory_bytes) / kGib),
        absl::StrFormat("%.0f %%", 100 * use.busy_share), BlocksText(use));
    absl::StrAppend(&text, "\n", FoldedText(line, 4));
  }
  return text + "\n";
}

std::string LoserLine(const MixedPlan& plan, const MixedLoser& loser) {
  if (loser.plan.step_s == 0) {
    return absl::StrCat("  ", loser.of, ": nothing fits: ", loser.why, "\n");
  }
  const double share = loser.plan.objective_s() / plan.objective_s() - 1;
  std::vector<std::string> busy;
  for (const PartUse& use : loser.plan.uses) {
    busy.push_back(absl::StrFormat("%.0f %%", 100 * use.busy_share));
  }
  return absl::StrCat("  ", loser.of, ": ", SlowerShareText(share), " slower, parts busy ",
                      absl::StrJoin(busy, ", "), ": ", OwnText(loser.plan.layout), "\n");
}

std::string AloneLine(const JobSpec& job, const MixedPlan& plan, const Cluster& part,
                      const PartAlone& alone) {
  if (alone.objective_s == 0) return absl::StrCat("  ", part.name, " alone: ", alone.why, "\n");
  const double share = alone.objective_s / plan.objective_s() - 1;
  const std::string text = share >= 0
                               ? absl::StrCat(SlowerShareText(share), " slower")
                               : absl::StrCat(SlowerShareText(1 / (1 + share) - 1), " FASTER");
  return absl::StrCat("  ", part.name, " alone: ", text, ", ",
                      CountText(TokensPerS(job, alone.objective_s)),
                      " tokens/s: ", LayoutText(alone.layout), "\n");
}

std::string Folded(const std::string& lines) {
  std::string text;
  size_t begin = 0;
  while (begin < lines.size()) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    absl::StrAppend(&text, FoldedText(lines.substr(begin, end - begin), 4), "\n");
    begin = end + 1;
  }
  return text;
}

}  // namespace

std::string StagesText(const PartUse& use) {
  const int last = use.first_stage + use.stages - 1;
  return last == use.first_stage ? absl::StrCat(last) : absl::StrCat(use.first_stage, " to ", last);
}

std::string BlocksText(const PartUse& use) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < use.blocks.size();) {
    size_t end = i;
    while (end < use.blocks.size() && use.blocks[end] == use.blocks[i]) ++end;
    runs.push_back(end - i == 1 ? absl::StrCat(use.blocks[i])
                                : absl::StrCat(end - i, "x", use.blocks[i]));
    i = end;
  }
  return absl::StrJoin(runs, ", ");
}

std::string MixedText(const JobSpec& job, absl::Span<const Cluster> parts,
                      const MixedAnswer& answer) {
  const MixedPlan& plan = answer.plan;
  std::string text = absl::StrCat(AdviceLine(answer, parts), HeadLine(answer, parts),
                                  FoldedText(absl::StrCat("  ", OwnText(plan.layout)), 4), "\n",
                                  UsesText(plan, parts));
  absl::StrAppendFormat(&text,
                        "step %s, %s tokens/s, goodput %.1f %%; the busiest stage waits %.1f "
                        "%% of the step\n",
                        SecondsText(plan.step_s), CountText(TokensPerS(job, plan.objective_s())),
                        100 * plan.goodput, 100 * plan.idle_share);
  absl::StrAppend(&text, "\nbeaten, of ", answer.priced, " layouts that were priced:\n");
  std::string beaten;
  for (const MixedLoser& loser : answer.losers) absl::StrAppend(&beaten, LoserLine(plan, loser));
  for (size_t part = 0; part < parts.size(); ++part) {
    absl::StrAppend(&beaten, AloneLine(job, plan, parts[part], answer.alone[part]));
  }
  return absl::StrCat(text, Folded(beaten));
}

}  // namespace weft
