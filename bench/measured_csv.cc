#include "bench/measured_csv.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

// Cells of one line. A cell in quotes may hold commas, and "" for a quote; none holds a line break.
std::vector<std::string> Cells(absl::string_view line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += '"';
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else if (c != '\r') {
      cells.back() += c;
    }
  }
  return cells;
}

// One line by column. Remembers the first cell that is not what its column has to be.
class Row {
 public:
  Row(const std::map<std::string, size_t>& columns, std::vector<std::string> cells)
      : columns_(columns), cells_(std::move(cells)) {}

  std::string Text(const std::string& column) const {
    const auto found = columns_.find(column);
    return found == columns_.end() ? "" : cells_[found->second];
  }

  // A whole number of at least `least`.
  int64_t Count(const std::string& column, int64_t least = 1) {
    int64_t value = 0;
    const std::string text = Text(column);
    if (absl::SimpleAtoi(text, &value) && value >= least && value <= int64_t{1} << 40) return value;
    if (problem_.empty()) {
      problem_ = text.empty() ? absl::StrCat(column, " is not stated")
                              : absl::StrCat(column, " \"", text, "\" is not a count");
    }
    return least;
  }

  // `otherwise` where the cell is empty, remembered in `assumed` if given.
  int64_t CountOr(const std::string& column, int64_t otherwise,
                  std::vector<std::string>* assumed = nullptr) {
    if (!Text(column).empty()) return Count(column, 0);
    if (assumed) assumed->push_back(column);
    return otherwise;
  }

  std::optional<double> Number(const std::string& column) {
    double value = 0;
    const std::string text = Text(column);
    if (text.empty()) return std::nullopt;
    if (absl::SimpleAtod(text, &value) && std::isfinite(value) && value > 0) return value;
    if (problem_.empty()) problem_ = absl::StrCat(column, " \"", text, "\" is not a number");
    return std::nullopt;
  }

  std::optional<int64_t> Gibibytes(const std::string& column) {
    const std::optional<double> value = Number(column);
    if (!value) return std::nullopt;
    return std::llround(*value * kGiB);
  }

  void Refuse(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }
  const std::string& problem() const { return problem_; }

 private:
  const std::map<std::string, size_t>& columns_;
  std::vector<std::string> cells_;
  std::string problem_;
};

// A gated feed-forward, grouped heads or experts make it a llama: gpt2 has none in our words.
ModelShape ShapeOf(Row& row, std::vector<std::string>& assumed) {
  ModelShape shape;
  const bool gated = row.CountOr("gated", 0) != 0;
  const int64_t heads = row.Count("heads");
  const bool plain =
      !gated && (row.CountOr("kv_heads", heads) != heads || row.CountOr("experts", 0) > 0);
  SetArchitecture(gated   ? Architecture::kLlama
                  : plain ? Architecture::kNemotron
                          : Architecture::kGpt2,
                  shape);
  shape.vocab_size = row.Count("vocab");
  shape.hidden_size = row.Count("hidden");
  shape.num_blocks = row.Count("layers");
  shape.num_heads = heads;
  shape.num_kv_heads = row.CountOr("kv_heads", shape.num_heads);
  shape.head_dim = row.CountOr("head_dim", shape.hidden_size / shape.num_heads);
  shape.ffn_size = row.Count("ffn");
  shape.max_positions = row.Count("seq_len");
  shape.tied_embeddings = row.CountOr("tied", gated ? 0 : 1, &assumed) != 0;
  shape.num_experts = row.CountOr("experts", 0);
  shape.experts_per_token = row.CountOr("top_k", 0);
  shape.expert_ffn_size = row.CountOr("expert_ffn", 0);
  shape.shared_ffn_size = row.CountOr("shared_ffn", 0);
  shape.num_dense_blocks = row.CountOr("dense_layers", 0);
  shape.latent = {.query_rank = row.CountOr("q_lora", 0),
                  .kv_rank = row.CountOr("kv_lora", 0),
                  .nope_dim = row.CountOr("qk_nope", 0),
                  .rope_dim = row.CountOr("qk_rope", 0),
                  .value_dim = row.CountOr("v_head", 0)};
  if (shape.is_latent()) shape.head_dim = shape.latent.nope_dim + shape.latent.rope_dim;
  shape.qk_norms = row.Text("notes").find("qk_layernorm") != std::string::npos;
  return shape;
}

Layout LayoutOf(Row& row, std::vector<std::string>& assumed) {
  Layout layout;
  const auto degree = [&](const std::string& column) {
    return static_cast<int>(std::min<int64_t>(row.Count(column), 1 << 20));
  };
  layout.dp = degree("dp");
  layout.tp = degree("tp");
  layout.pp = degree("pp");
  layout.virtual_stages = degree("vpp");
  layout.cp = static_cast<int>(row.CountOr("cp", 1));
  layout.ep = static_cast<int>(row.CountOr("ep", 1));
  layout.etp = static_cast<int>(row.CountOr("etp", 0));
  layout.zero_stage = static_cast<int>(row.CountOr("zero_stage", 0, &assumed));
  layout.zero_hpz_partition_size = static_cast<int>(row.CountOr("zero_group", 1));
  layout.sequence_parallel = row.CountOr("sequence_parallel", 0, &assumed) != 0;
  if (layout.virtual_stages > 1) layout.pp_schedule = ScheduleKind::kInterleaved;
  layout.micro_batch_size = row.Count("micro_batch");
  const int64_t replicas = layout.dp * layout.micro_batch_size;
  const int64_t global_batch = row.Count("global_batch");
  if (global_batch % replicas != 0) {
    row.Refuse(
        absl::StrCat("global_batch ", global_batch, " is not a multiple of dp x micro_batch"));
  }
  layout.gradient_accumulation_steps = global_batch / replicas;
  const std::string recompute = row.Text("recompute");
  if (recompute.empty()) {
    assumed.emplace_back("recompute");
  } else if (const absl::StatusOr<Recompute> parsed =
                 ParseWord<Recompute>(recompute, "a recompute mode");
             parsed.ok()) {
    layout.recompute = *parsed;
  } else {
    row.Refuse(absl::StrCat("recompute \"", recompute, "\" is not one of ours"));
  }
  return layout;
}

MeasuredRun RunOf(Row& row) {
  MeasuredRun run;
  run.id = row.Text("id");
  run.source = row.Text("source");
  run.notes = row.Text("notes");
  run.hardware = row.Text("hardware");
  run.shape = ShapeOf(row, run.assumed);
  run.model =
      absl::StrCat(row.Text("model_family"), " ", run.shape.num_blocks, "x", run.shape.hidden_size);
  run.layout = LayoutOf(row, run.assumed);
  run.batch = {row.Count("global_batch"), row.Count("seq_len")};
  if (const absl::StatusOr<Precision> parsed = ParsePrecision(row.Text("precision")); parsed.ok()) {
    run.precision = *parsed;
  } else {
    row.Refuse(absl::StrCat("precision \"", row.Text("precision"), "\" is not one of ours"));
  }
  run.flash_attention = row.CountOr("flash", 1, &run.assumed) != 0;
  run.gpus = static_cast<int>(row.Count("gpus"));
  run.gpus_per_node = static_cast<int>(row.CountOr("gpus_per_node", 8, &run.assumed));
  if (const std::optional<double> rate = row.Number("inter_node_GBps_per_gpu")) {
    run.inter_node_bytes_per_s = *rate * 1e9;
  }
  run.step_s = row.Number("step_time_s");
  run.tier = row.Text("tier");
  run.allocated_bytes = row.Gibibytes("allocated_GiB");
  run.peak_bytes = row.Gibibytes("peak_GiB");
  if (!run.peak_bytes) run.peak_bytes = row.Gibibytes("peak_mem_GiB");
  run.rank_or_stage = row.Text("rank_or_stage");
  run.counted = row.Text("what_is_counted");
  if (row.problem().empty() && run.layout.world_size() != run.gpus) {
    row.Refuse(
        absl::StrCat("gpus ", run.gpus, " is not dp x tp x pp x cp = ", run.layout.world_size()));
  }
  return run;
}

absl::StatusOr<std::map<std::string, size_t>> Columns(absl::string_view header,
                                                      absl::string_view name) {
  std::map<std::string, size_t> columns;
  const std::vector<std::string> cells = Cells(header);
  for (size_t i = 0; i < cells.size(); ++i) columns[cells[i]] = i;
  for (const char* needed :
       {"id", "source", "hardware", "gpus", "layers", "hidden", "heads", "ffn", "vocab", "seq_len",
        "global_batch", "micro_batch", "dp", "tp", "pp", "vpp", "recompute", "precision"}) {
    if (columns.count(needed) > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, ":1: has no column \"", needed, "\"; see bench/README.md for them"));
  }
  return columns;
}

}  // namespace

absl::StatusOr<MeasuredTable> ParseMeasured(absl::string_view text, absl::string_view name) {
  MeasuredTable table;
  std::istringstream lines{std::string{text}};
  std::string line;
  std::getline(lines, line);
  std::map<std::string, size_t> columns;
  ASSIGN_OR_RETURN(columns, Columns(line, name));
  for (int number = 2; std::getline(lines, line); ++number) {
    if (line.empty()) continue;
    std::vector<std::string> cells = Cells(line);
    if (cells.size() < columns.size()) {
      return absl::InvalidArgumentError(absl::StrCat(name, ":", number, ": has ", cells.size(),
                                                     " cells, not the header's ", columns.size()));
    }
    Row row(columns, std::move(cells));
    MeasuredRun run = RunOf(row);
    if (row.problem().empty()) {
      table.runs.push_back(std::move(run));
    } else {
      table.left_out.push_back({run.id, run.source, row.problem()});
    }
  }
  return table;
}

absl::StatusOr<MeasuredTable> ReadMeasured(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  std::ostringstream text;
  text << file.rdbuf();
  return ParseMeasured(text.str(), path);
}

}  // namespace weft
