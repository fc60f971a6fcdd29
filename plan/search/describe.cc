#include "plan/search/describe.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "plan/block/tensors.h"
#include "plan/estimate/goodput.h"
#include "plan/estimate/model_flops.h"
#include "plan/placement/placement.h"
#include "plan/search/pricer.h"
#include "plan/search/space.h"
#include "plan/spec/failure_domains.h"
#include "plan/spec/layout_text.h"

namespace weft {
namespace {

// Three digits that count, plain: "1.50", "12.0", "512".
std::string ThreeDigits(double value) {
  const double size = std::abs(value);
  if (size < 9.995) return absl::StrFormat("%.2f", value);
  if (size < 99.95) return absl::StrFormat("%.1f", value);
  return absl::StrFormat("%.0f", value);
}

std::string Plural(int64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

// A line or a row stands for one stage, or for neighbours that are alike.
struct StageRun {
  int first = 0;
  int last = 0;

  int count() const { return last - first + 1; }
};

// Pipelines of more stages than this show neighbours that are alike together.
constexpr size_t kMostStageLines = 8;

template <typename Alike>
std::vector<StageRun> StageRuns(size_t stages, const Alike& alike) {
  std::vector<StageRun> runs;
  for (int stage = 0; stage < static_cast<int>(stages); ++stage) {
    const bool joins = stages > kMostStageLines && stage > 0 && alike(stage - 1, stage);
    if (joins) {
      runs.back().last = stage;
    } else {
      runs.push_back({stage, stage});
    }
  }
  return runs;
}

std::string RangeText(int64_t begin, int64_t last) {
  return begin == last ? absl::StrCat(begin) : absl::StrCat(begin, "-", last);
}

// Lines of at most this many columns, if a table's first two columns allow it.
constexpr size_t kMostColumns = 100;

// Rows of cells as a table: the first column to the left, the others to the right. Columns that do
// not fit beside the others come below them, with the first column again.
std::string Table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  size_t end = 1;
  for (size_t begin = 1; begin < widths.size(); begin = end) {
    size_t columns = 2 + widths[0];
    for (end = begin; end < widths.size(); ++end) {
      columns += 2 + widths[end];
      if (end > begin && columns > kMostColumns) break;
    }
    for (const auto& row : rows) {
      absl::StrAppend(&text, "  ", row[0], std::string(widths[0] - row[0].size(), ' '));
      for (size_t i = begin; i < end; ++i) {
        absl::StrAppend(&text, "  ", std::string(widths[i] - row[i].size(), ' '), row[i]);
      }
      text += "\n";
    }
  }
  return text;
}

// "bf16"; "bf16, gradients reduced in bf16"; "bf16 with adapters (r 16) beside an nf4 base"
std::string PrecisionText(const JobSpec& job) {
  std::string precision(WordOf(job.training.mixed_precision));
  if (job.numerics().narrows_sums()) {
    absl::StrAppend(&precision, ", gradients reduced in ", WordOf(job.training.reduce_dtype));
  }
  if (!job.lora) return precision;
  const FrozenFormat frozen = job.lora->quantization;
  const absl::string_view base = frozen == FrozenFormat::kBf16 ? "bf16" : WordOf(frozen);
  return absl::StrCat(precision, " with adapters (r ", job.lora->r, ") beside a base in ", base);
}

std::string LayoutLines(const JobSpec& job, const Plan& plan) {
  const Layout& layout = plan.layout;
  std::string text = absl::StrCat(
      "\n", FoldedText(absl::StrCat("layout: ", LayoutText(layout)), 8), "\n  ",
      Plural(layout.world_size(), "worker"), " on ", Plural(job.cluster.slots(), "slot"),
      "; a step is ", Plural(layout.dp, "replica"), " x ", layout.gradient_accumulation_steps,
      layout.gradient_accumulation_steps == 1 ? " microbatch" : " microbatches", " x ",
      Plural(layout.micro_batch_size, "sequence"), " of ", Plural(job.training.seq_len, "token"),
      "\n");
  return text;
}

// "blocks 0-3", "blocks 0-1, 4-5": of all chunks of a stage.
std::string BlocksText(const Plan& plan, int stage) {
  int64_t num_blocks = 0;
  for (const StageMemory& each : plan.stages) num_blocks += each.num_blocks;
  std::vector<std::string> ranges;
  for (int chunk = 0; chunk < plan.layout.virtual_stages; ++chunk) {
    const BlockRange blocks = ChunkBlocks(plan.layout, num_blocks, stage, chunk);
    ranges.push_back(RangeText(blocks.begin, blocks.end - 1));
  }
  return absl::StrCat("blocks ", absl::StrJoin(ranges, ", "));
}

// Says what each rank does: a stage is a run of neighbouring ranks, in it a replica is, in it tp.
std::string RankLines(const Plan& plan) {
  const Layout& layout = plan.layout;
  const RankGrid grid = layout.grid();
  const int last_stage = layout.pp - 1;
  const auto stage_at = [&](int stage) { return plan.stages[static_cast<size_t>(stage)]; };
  const auto alike = [&](int before, int stage) {
    return before > 0 && stage < last_stage &&
           stage_at(before).num_blocks == stage_at(stage).num_blocks;
  };
  std::string text = "\nranks:\n";
  for (const StageRun& run : StageRuns(plan.stages.size(), alike)) {
    const int first = grid.RankOf({.dp = 0, .pp = run.first, .cp = 0, .tp = 0});
    const int last = grid.RankOf(
        {.dp = layout.dp - 1, .pp = run.last, .cp = layout.cp - 1, .tp = layout.tp - 1});
    std::vector<std::string> parts;
    if (run.first == 0) parts.push_back("embedding");
    parts.push_back(run.count() == 1
                        ? BlocksText(plan, run.first)
                        : absl::StrCat(Plural(stage_at(run.first).num_blocks, "block"), " each"));
    if (run.last == last_stage) parts.push_back("head and loss");
    const std::string line = absl::StrCat(
        "  stage", run.count() == 1 ? " " : "s ", RangeText(run.first, run.last), ": rank",
        first == last ? " " : "s ", RangeText(first, last), ": ", absl::StrJoin(parts, ", "));
    absl::StrAppend(&text, FoldedText(line, 4), "\n");
  }
  if (layout.tp > 1) {
    absl::StrAppend(&text, "  each ", layout.tp, " neighbouring ranks share every tensor (tp)\n");
  }
  if (layout.cp > 1) {
    absl::StrAppend(&text, "  ", layout.cp,
                    " ranks of a replica's stage share each sequence (cp)\n");
  }
  if (layout.dp > 1) {
    absl::StrAppend(&text, "  the ranks of a stage hold ", layout.dp, " replicas (dp)\n");
  }
  return text;
}

// Says which ranks share a node, where there are several.
// The nodes have names where cluster.failure_domains names them all.
std::string NodeLines(const JobSpec& job, const Layout& layout) {
  const Cluster& cluster = job.cluster;
  if (layout.world_size() <= cluster.slots_per_node) return "";
  std::vector<HostOffer> nodes;
  for (auto& [name, domain] : HostsNamedIn(job.hosts.failure_domains)) {
    nodes.push_back({std::move(name), cluster.slots_per_node, std::move(domain)});
  }
  if (std::ssize(nodes) < cluster.nodes) nodes.clear();
  for (int i = static_cast<int>(nodes.size()); i < cluster.nodes; ++i) {
    nodes.push_back({absl::StrCat("node ", i), cluster.slots_per_node});
  }
  const absl::StatusOr<Placement> placement = PlaceRanks(layout, nodes);
  if (!placement.ok()) return "";  // priced all the same: on more nodes than there are
  return absl::StrCat("\nnodes:\n", PlacementText(layout, nodes, *placement));
}

// Says what the table is worth: exact or estimated, and what stands outside of it.
std::string MemoryNotes(const Plan& plan) {
  const bool exact = std::all_of(plan.stages.begin(), plan.stages.end(),
                                 [](const StageMemory& stage) { return stage.memory.exact; });
  int64_t context_bytes = 0;
  for (const StageMemory& stage : plan.stages) {
    context_bytes = std::max(context_bytes, stage.memory.of(MemoryTerm::kContext));
  }
  std::string text =
      absl::StrCat(exact ? "  exact: the buffers that a worker allocates"
                         : "  an estimate by closed forms, with their guard",
                   "; beside it an allowance of ", BytesText(context_bytes), " for the context\n");
  if (plan.host_bytes() > 0) {
    absl::StrAppend(&text, "  on the host: ", BytesText(plan.host_bytes()),
                    " a rank, master weights and optimizer states\n");
  }
  return text;
}

std::string MemoryLines(const Plan& plan) {
  std::vector<MemoryTerm> terms;  // those that some stage has
  for (size_t i = 0; i < kMemoryTerms; ++i) {
    const auto term = static_cast<MemoryTerm>(i);
    const bool held = std::any_of(plan.stages.begin(), plan.stages.end(),
                                  [&](const auto& stage) { return stage.memory.of(term) != 0; });
    if (held && term != MemoryTerm::kContext) terms.push_back(term);
  }
  std::vector<std::vector<std::string>> rows = {{"stage"}};
  for (const MemoryTerm term : terms) rows[0].emplace_back(WordOf(term));
  rows[0].insert(rows[0].end(), {"total", "of usable"});
  std::vector<std::vector<std::string>> cells;  // by stage
  for (const StageMemory& stage : plan.stages) {
    std::vector<std::string>& row = cells.emplace_back();
    for (const MemoryTerm term : terms) row.push_back(BytesText(stage.memory.of(term)));
    const int64_t total = stage.layout_bytes();
    row.push_back(BytesText(total));
    row.push_back(absl::StrFormat(
        "%.1f %%", 100 * static_cast<double>(total) / static_cast<double>(plan.usable_bytes)));
  }
  const auto alike = [&](int before, int stage) {
    return cells[static_cast<size_t>(before)] == cells[static_cast<size_t>(stage)];
  };
  for (const StageRun& run : StageRuns(cells.size(), alike)) {
    std::vector<std::string>& row = rows.emplace_back(cells[static_cast<size_t>(run.first)]);
    row.insert(row.begin(), RangeText(run.first, run.last));
  }
  return absl::StrCat("\nmemory of each rank, of ", BytesText(plan.usable_bytes), " usable:\n",
                      Table(rows), MemoryNotes(plan));
}

// "201 TFLOP/s"
std::string FlopsText(double flops_per_s) {
  const std::pair<double, absl::string_view> units[] = {{1e12, " T"}, {1e9, " G"}, {1e6, " M"}};
  for (const auto& [unit, name] : units) {
    if (flops_per_s >= unit) return absl::StrCat(ThreeDigits(flops_per_s / unit), name, "FLOP/s");
  }
  return absl::StrFormat("%.0f FLOP/s", flops_per_s);
}

std::string UtilisationLine(const JobSpec& job, const Plan& plan) {
  const Precision precision = job.training.mixed_precision;
  const ModelFlopRate rate =
      ModelFlopRateOf(QuestionOf(job), plan.tokens_per_s(job.batch()), plan.layout.world_size());
  return absl::StrCat("  model FLOPs: ", FlopsText(rate.flops_per_s), " per ",
                      job.cluster.device.backend == BackendKind::kCuda ? "GPU" : "worker", ", ",
                      absl::StrFormat("%.1f %% of ", 100 * rate.utilisation()),
                      FlopsText(rate.peak_flops_per_s), " in ",
                      precision == Precision::kFp32 ? "fp32" : "bf16", " (MFU)\n");
}

std::string TimeLines(const JobSpec& job, const Plan& plan) {
  const double total_s = plan.time.total_s();
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < kTimeTerms; ++i) {
    const auto term = static_cast<TimeTerm>(i);
    const double seconds = plan.time.of(term);
    if (seconds == 0) continue;
    rows.push_back({absl::StrCat(WordOf(term)), SecondsText(seconds),
                    absl::StrFormat("%.1f %%", 100 * seconds / total_s)});
  }
  // Workers that share cores lend theirs while they wait.
  const bool lends = CoreSharing(job.cluster, plan.layout.world_size()) > 1;
  const std::string idle =
      plan.layout.pp == 1
          ? ""
          : absl::StrFormat(", %.1f %% of the %s idle in the schedule", 100 * plan.bubble_fraction,
                            lends ? "cores" : "pipeline");
  return absl::StrCat("\nstep time, predicted: ", SecondsText(total_s), ", ",
                      CountText(plan.tokens_per_s(job.batch())), " tokens/s", idle, "\n",
                      Table(rows), UtilisationLine(job, plan));
}

// Says what `deterministic: true` costs; empty where it is not asked, or on CPUs.
std::string DeterminismLines(const JobSpec& job, const Plan& plan) {
  if (!job.deterministic || job.cluster.device.backend == BackendKind::kCpu) return "";
  const double total_s = plan.time.total_s();
  const double price_s = DeterminismSeconds(QuestionOf(job), plan.layout, total_s);
  return absl::StrCat("  deterministic: ", SecondsText(price_s), " of it",
                      absl::StrFormat(" (%.1f %%)", 100 * price_s / total_s),
                      " for sums in rank order and attention's gradient in order; no memory\n");
}

// Says what a layout that the devices have room for lacks on the host.
std::string HostMisfitText(const Cluster& cluster, int64_t usable_bytes, const Rejection& misfit) {
  const bool same = cluster.device.backend == BackendKind::kCpu &&
                    misfit.memory_bytes + misfit.host_bytes > usable_bytes;
  const int64_t needed_bytes = same ? misfit.memory_bytes + misfit.host_bytes
                                    : NodeHostBytes(cluster, misfit.layout, misfit.host_bytes);
  const int64_t there_bytes = same ? usable_bytes : cluster.host_memory_bytes;
  const std::string excess =
      absl::StrCat(BytesText(needed_bytes - there_bytes), " above the ", BytesText(there_bytes));
  if (same) {
    return absl::StrCat("needs ", BytesText(needed_bytes), " on stage ", misfit.stage,
                        ", what it offloads included, ", excess, " of ", cluster.device.name,
                        ", whose memory is the host's: use offload.optimizer none");
  }
  return absl::StrCat(
      "needs ", BytesText(needed_bytes), " of each host's memory, ", excess,
      " of host_memory_bytes of ", cluster.name, ": offloaded optimizer states of ",
      Plural(std::min(misfit.layout.world_size(), cluster.slots_per_node), "worker"), ", ",
      BytesText(misfit.host_bytes), " each");
}

// "tensor_comm +37.9 ms, data_comm -36.4 ms, others -80.0 us": the terms that differ most, at most
// four, none below a twentieth of the largest; together the difference of the totals.
std::string DifferencesText(const TermSeconds& ours, const TermSeconds& theirs) {
  std::vector<std::pair<double, absl::string_view>> terms;  // seconds more, name
  for (size_t i = 0; i < kTimeTerms; ++i) {
    const auto term = static_cast<TimeTerm>(i);
    const double more_s = theirs.of(term) - ours.of(term);
    if (more_s != 0) terms.emplace_back(more_s, WordOf(term));
  }
  std::stable_sort(terms.begin(), terms.end(), [](const auto& a, const auto& b) {
    return std::abs(a.first) > std::abs(b.first);
  });
  double rest_s = theirs.total_s() - ours.total_s();
  std::vector<std::string> parts;
  for (const auto& [more_s, name] : terms) {
    if (parts.size() == 4 || std::abs(more_s) < std::abs(terms.front().first) / 20) break;
    parts.push_back(absl::StrCat(name, " ", SignedSecondsText(more_s)));
    rest_s -= more_s;
  }
  constexpr double kShown = 0.005;  // of the largest: less is lost in its third digit
  if (!terms.empty() && std::abs(rest_s) > kShown * std::abs(terms.front().first)) {
    parts.push_back(absl::StrCat("others ", SignedSecondsText(rest_s)));
  }
  return absl::StrJoin(parts, ", ");
}

std::string SlowerText(const Plan& plan, const Rejection& loser) {
  const double objective_s = plan.time.total_s() / plan.goodput;
  const double loser_s = loser.time.total_s() / loser.goodput;
  if (std::round(loser_s * 1e12) <= std::round(objective_s * 1e12)) {
    return "just as fast; of equals the first in order wins";
  }
  const bool later = loser.time.total_s() > plan.time.total_s();
  return absl::StrCat(
      SlowerShareText(loser_s / objective_s - 1), " slower: ",
      later ? DifferencesText(plan.time, loser.time) : "fewer of its steps are committed");
}

// "30.5 B parameters (3.35 B active), a checkpoint of 341 GiB"
std::string SizeText(const JobSpec& job) {
  std::string text =
      absl::StrCat(CountText(static_cast<double>(ParameterCount(job.model))), " parameters");
  if (job.model.num_experts > 0) {
    absl::StrAppend(&text, " (", CountText(static_cast<double>(ActiveParameterCount(job.model))),
                    " active)");
  }
  return absl::StrCat(text, ", a checkpoint of ", BytesText(CheckpointBytes(QuestionOf(job))));
}

}  // namespace

std::string BytesText(int64_t bytes) {
  const std::pair<int64_t, absl::string_view> units[] = {{int64_t{1} << 40, " TiB"},
                                                         {int64_t{1} << 30, " GiB"},
                                                         {int64_t{1} << 20, " MiB"},
                                                         {int64_t{1} << 10, " KiB"}};
  for (const auto& [unit, name] : units) {
    if (std::abs(bytes) < unit) continue;
    return absl::StrCat(ThreeDigits(static_cast<double>(bytes) / static_cast<double>(unit)), name);
  }
  return absl::StrCat(bytes, " B");
}

std::string SecondsText(double seconds) {
  const double size = std::abs(seconds);
  if (size == 0) return "0 s";
  if (size >= 0.9995) return absl::StrCat(ThreeDigits(seconds), " s");
  if (size >= 0.9995e-3) return absl::StrCat(ThreeDigits(seconds * 1e3), " ms");
  return absl::StrCat(ThreeDigits(seconds * 1e6), " us");
}

std::string LongTimeText(double seconds) {
  if (seconds < 120) return SecondsText(seconds);
  if (seconds < 7200) return absl::StrFormat("%.1f min", seconds / 60);
  if (seconds < 2 * 86400) return absl::StrFormat("%.1f h", seconds / 3600);
  return absl::StrFormat("%.*f days", seconds < 1000 * 86400 ? 1 : 0, seconds / 86400);
}

std::string SignedSecondsText(double seconds) {
  return absl::StrCat(seconds > 0 ? "+" : "", SecondsText(seconds));
}

std::string CountText(double count) {
  const std::pair<double, absl::string_view> units[] = {
      {1e12, " T"}, {1e9, " B"}, {1e6, " M"}, {1e3, " k"}};
  for (const auto& [unit, name] : units) {
    if (count >= unit) return absl::StrCat(ThreeDigits(count / unit), name);
  }
  return absl::StrFormat("%.0f", count);
}

std::string SlowerShareText(double share) {
  const double percent = 100 * share;
  if (percent < 0.05) return "less than 0.1 %";
  return percent < 9.95 ? absl::StrFormat("%.1f %%", percent) : absl::StrFormat("%.0f %%", percent);
}

std::string FoldedText(absl::string_view text, int indent) {
  const std::string margin(static_cast<size_t>(indent), ' ');
  std::string folded;
  std::string line;
  while (line.size() + text.size() > kMostColumns) {
    const size_t room = kMostColumns - line.size();
    size_t space = text.rfind(' ', room);
    const size_t first = text.find_first_not_of(' ');  // not before the first word
    if (space == absl::string_view::npos || space < first) space = text.find(' ', first);
    if (space == absl::string_view::npos) break;
    absl::StrAppend(&folded, line, text.substr(0, space), "\n");
    text.remove_prefix(space + 1);
    line = margin;
  }
  return absl::StrCat(folded, line, text);
}

std::string MisfitText(const Cluster& cluster, int64_t usable_bytes, const Rejection& misfit) {
  if (misfit.memory_bytes <= usable_bytes) return HostMisfitText(cluster, usable_bytes, misfit);
  const std::string guard =
      misfit.guard_bytes == 0
          ? ""
          : absl::StrCat(" (with a guard of ", BytesText(misfit.guard_bytes), ")");
  return absl::StrCat("needs ", BytesText(misfit.memory_bytes), guard, " on stage ", misfit.stage,
                      ", ", BytesText(misfit.memory_bytes - usable_bytes), " above the ",
                      BytesText(usable_bytes), " of ", cluster.device.name, ": ",
                      WordOf(misfit.largest), " ", BytesText(misfit.largest_bytes),
                      " is the largest part");
}

std::string MisfitText(const Cluster& cluster, const Plan& plan) {
  const StageMemory& fullest = plan.fullest();
  MemoryEstimate own = fullest.memory;
  own[MemoryTerm::kContext] = 0;
  own[MemoryTerm::kGuard] = 0;
  return MisfitText(cluster, plan.usable_bytes,
                    {.layout = plan.layout,
                     .memory_bytes = fullest.layout_bytes(),
                     .guard_bytes = fullest.memory.of(MemoryTerm::kGuard),
                     .stage = fullest.stage,
                     .host_bytes = plan.host_bytes(),
                     .largest = own.largest(),
                     .largest_bytes = own.of(own.largest())});
}

std::string RejectionText(const JobSpec& job, const Plan& plan, const Rejection& rejection) {
  switch (rejection.cause) {
    case RejectionCause::kBrokenRule:
      return rejection.rule;
    case RejectionCause::kDoesNotFit:
      return MisfitText(job.cluster, plan.usable_bytes, rejection);
    case RejectionCause::kSlower:
      return SlowerText(plan, rejection);
  }
  return "";
}

std::string HeadText(const JobSpec& job) {
  const Cluster& cluster = job.cluster;
  const std::string head =
      absl::StrCat("plan of ", job.name, ": ", ModelTypeOf(job.model), ", ", SizeText(job), ", ",
                   PrecisionText(job), ", on ", cluster.name, " (", Plural(cluster.nodes, "node"),
                   " x ", Plural(cluster.slots_per_node, "slot"), ", ", cluster.device.name, ")");
  return absl::StrCat(FoldedText(head, 4), "\n");
}

std::string TablesText(const JobSpec& job, const Plan& plan) {
  return absl::StrCat(LayoutLines(job, plan), RankLines(plan), NodeLines(job, plan.layout),
                      MemoryLines(plan), TimeLines(job, plan), DeterminismLines(job, plan));
}

std::string LosersText(const JobSpec& job, const Plan& plan, int max_rejections) {
  if (plan.rejections.empty()) return "";
  const auto shown =
      std::min(plan.rejections.size(), static_cast<size_t>(std::max(max_rejections, 0)));
  std::string text = absl::StrCat("\n", Plural(plan.counts.points, "layout"), " looked at, ",
                                  plan.counts.evaluated, " of them priced");
  if (shown == 0) return absl::StrCat(text, "\n");
  absl::StrAppend(&text, "; the nearest losers:\n");
  for (size_t i = 0; i < shown; ++i) {
    const Rejection& rejection = plan.rejections[i];
    absl::StrAppend(&text, FoldedText(absl::StrCat("  ", LayoutText(rejection.layout)), 6), "\n",
                    FoldedText(absl::StrCat("    ", RejectionText(job, plan, rejection)), 6), "\n");
  }
  return text;
}

}  // namespace weft
