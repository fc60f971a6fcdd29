#include "bench/accuracy_memory.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/accuracy_steps.h"
#include "bench/hardware.h"
#include "plan/block/flops.h"
#include "plan/errors.h"
#include "plan/spec/layout_rules.h"
#include "plan/spec/layout_text.h"

namespace weft {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

// Recordings of one configuration whose peaks differ by more than this are no measurement of it.
constexpr double kMostPeakSpread = 1.02;

bool Notes(const MeasuredRun& run, absl::string_view words) {
  return absl::StrContains(run.notes, words);
}

// "peak spread x1.22" in the notes; 1 if there is none.
double PeakSpread(const MeasuredRun& run) {
  constexpr absl::string_view kWords = "peak spread x";
  const size_t at = run.notes.find(std::string{kWords});
  if (at == std::string::npos) return 1;
  std::string digits = run.notes.substr(at + kWords.size(), 5);
  digits = digits.substr(0, digits.find(';'));
  double spread = 1;
  return absl::SimpleAtod(digits, &spread) ? spread : 1;
}

// Returns why the row says nothing about the model's terms; empty: it does.
std::string ReasonToLeaveOut(const MeasuredRun& run) {
  if (run.counted == "formula") return "a closed form, not a measurement";
  if (PeakSpread(run) > kMostPeakSpread) {
    return "recordings of one configuration differ by more than 2 % at the peak";
  }
  for (const std::string& column : run.assumed) {
    if (column == "recompute") return "recompute is not stated";
  }
  if (Notes(run, "ZeRO-3") && run.layout.zero_stage != 3) {
    return "its notes say ZeRO-3, its columns do not";
  }
  if (Notes(run, "deferred embedding wgrad")) {
    return "keeps every microbatch's head gradient until the end of the step";
  }
  if (Notes(run, "Float8") || Notes(run, "TP overlap") || run.precision == Precision::kFp8) {
    return "8-bit products: what is cached in 8 bits is not stated";
  }
  return "";
}

// Megatron's switches, as its functional tests and SimuMax's runs name them, and its device:
// torch's cuBLAS workspace is 32 MiB on Hopper and with deterministic kernels
// (CUBLAS_WORKSPACE_CONFIG=:4096:8), 8.1 MiB on Ampere (its default :4096:2:16:8); Transformer
// Engine adds 32 MiB on Hopper, 4 MiB on Ampere, unless layers are Megatron's own.
MemoryHabits MegatronHabits(const MeasuredRun& run, MemoryHabits habits) {
  const bool ampere = absl::StartsWith(run.hardware, "A100");
  const bool own_layers = Notes(run, "unfused local");
  // On Ampere attention is FlashAttention-2's, which wants the batch outside the sequence; on
  // Hopper and later cuDNN's, which takes Megatron's order.
  habits.keeps_two_attention_outputs = ampere && !own_layers;
  habits.keeps_score_buffer = own_layers;
  const double blas_mib = ampere && !Notes(run, "; deterministic kernels") ? 8.125 : 32;
  const double engine_mib = own_layers ? 0 : ampere ? 4 : 32;
  habits.workspace_bytes = (2 * blas_mib + engine_mib) * 1024 * 1024;
  habits.grouped_workspace_bytes = 4 * engine_mib * 1024 * 1024;
  const bool functional_test = absl::StrContains(run.source, "functional_tests");
  const bool in_place = !Notes(run, "no fused wgrad accumulation");
  habits.accumulates_in_place = in_place;
  habits.keeps_placeholder_gradients = in_place;
  habits.loader_mask = functional_test && !Notes(run, "no_create_attention_mask");
  return habits;
}

MemoryHabits HabitsOf(const MeasuredRun& run, const EngineProfile& engine) {
  MemoryHabits habits =
      engine.name == "megatron" ? MegatronHabits(run, engine.memory) : engine.memory;
  habits.fused_attention = run.flash_attention;
  habits.dropout = Notes(run, "dropout 0.1");
  habits.fused_loss = Notes(run, "fused cross-entropy") || Notes(run, "fused loss");
  if (run.counted == "torch_reserved") habits.allocator_slack = 1.05;
  if (Notes(run, "Liger") || Notes(run, "torch.compile")) {  // kernels are fused
    habits.unfused_ffn_bytes = 0;
    habits.fused_loss = true;
  }
  return habits;
}

// nanotron cuts the network where the running sum of its layers' matrix products passes each
// stage's share, the head's included: early stages hold more blocks. A stage of ours holds at least
// one, so those that would hold none take it from the last of the fullest.
std::vector<int64_t> NanotronBlocks(const MeasuredRun& run) {
  const double block = BlockForwardFlopsPerToken(run.shape, 0, /*seq_len=*/0);
  const double share =
      (block * static_cast<double>(run.shape.num_blocks) + HeadForwardFlopsPerToken(run.shape)) /
      run.layout.pp;
  std::vector<int64_t> blocks(static_cast<size_t>(run.layout.pp), 0);
  size_t stage = 0;
  for (int64_t i = 1; i <= run.shape.num_blocks; ++i) {
    ++blocks[stage];
    const bool is_over = block * static_cast<double>(i) > share * static_cast<double>(stage + 1);
    if (is_over && stage + 1 < blocks.size()) ++stage;
  }
  for (int64_t& count : blocks) {
    if (count > 0) continue;
    --*std::max_element(blocks.rbegin(), blocks.rend());
    count = 1;
  }
  return blocks;
}

int64_t StageOf(const MeasuredRun& run) {
  if (run.rank_or_stage == "first") return 0;
  return run.rank_or_stage == "last" ? run.layout.pp - 1 : -1;
}

std::optional<double> Error(int64_t predicted, const std::optional<int64_t>& measured) {
  if (!measured) return std::nullopt;
  return static_cast<double>(predicted) / static_cast<double>(*measured) - 1;
}

std::vector<double> Errors(const std::vector<const MemoryPrediction*>& predictions, bool peak) {
  std::vector<double> errors;
  for (const MemoryPrediction* prediction : predictions) {
    const std::optional<double> error =
        peak ? prediction->peak_error() : prediction->resting_error();
    if (error) errors.push_back(*error);
  }
  return errors;
}

// Groups holds predictions by source, engine first.
using Groups = std::map<std::pair<std::string, std::string>, std::vector<const MemoryPrediction*>>;

Groups BySource(const MemoryAccuracy& accuracy) {
  Groups groups;
  for (const MemoryPrediction& prediction : accuracy.predictions) {
    groups[{prediction.engine, prediction.run->source}].push_back(&prediction);
    groups[{prediction.engine, "all sources"}].push_back(&prediction);
  }
  return groups;
}

std::map<std::pair<std::string, std::string>, int> Reasons(const MemoryAccuracy& accuracy) {
  std::map<std::pair<std::string, std::string>, int> reasons;
  for (const LeftOutRow& row : accuracy.left_out) ++reasons[{row.source, row.reason}];
  return reasons;
}

void AppendRow(const MemoryPrediction& prediction, std::string& text) {
  const MeasuredRun& run = *prediction.run;
  absl::StrAppend(&text, run.id, " ", run.hardware, " ", run.model, " ", LayoutText(run.layout));
  if (prediction.resting_error()) {
    absl::StrAppendFormat(&text, " | rest %.3f of %.3f GiB, %+.2f %%",
                          static_cast<double>(prediction.resting_bytes) / kGiB,
                          static_cast<double>(*run.allocated_bytes) / kGiB,
                          100 * *prediction.resting_error());
  }
  if (prediction.peak_error()) {
    absl::StrAppendFormat(&text, " | peak %.3f of %.3f GiB, %+.2f %%",
                          static_cast<double>(prediction.peak.total_bytes()) / kGiB,
                          static_cast<double>(*run.peak_bytes) / kGiB,
                          100 * *prediction.peak_error());
  }
  text += " |";
  for (size_t i = 0; i < kMemoryTerms; ++i) {
    const auto term = static_cast<MemoryTerm>(i);
    if (prediction.peak.of(term) == 0) continue;
    absl::StrAppendFormat(&text, " %s %.3f", WordOf(term),
                          static_cast<double>(prediction.peak.of(term)) / kGiB);
  }
  text += "\n";
}

void AppendSummary(absl::string_view what, const ErrorSummary& errors, std::string& text) {
  if (errors.count == 0) return;
  absl::StrAppendFormat(&text,
                        "    %-8s %4d rows: mean %6.2f %%  median %6.2f %%  p90 %6.2f %%  "
                        "max %6.2f %%  bias %+6.2f %%\n",
                        what, errors.count, 100 * errors.mape, 100 * errors.median,
                        100 * errors.p90, 100 * errors.max, 100 * errors.bias);
}

std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) quoted += c;
  }
  return quoted + "\"";
}

std::string SummaryJson(const ErrorSummary& errors) {
  return absl::StrFormat(
      "{\"count\":%d,\"mean\":%.6g,\"median\":%.6g,\"p90\":%.6g,\"max\":%.6g,\"bias\":%.6g}",
      errors.count, errors.mape, errors.median, errors.p90, errors.max, errors.bias);
}

}  // namespace

std::optional<double> MemoryPrediction::peak_error() const {
  return Error(peak.total_bytes(), run->peak_bytes);
}

std::optional<double> MemoryPrediction::resting_error() const {
  return Error(resting_bytes, run->allocated_bytes);
}

absl::StatusOr<MemoryQuestion> MemoryQuestionOf(const MeasuredRun& run) {
  const std::string reason = ReasonToLeaveOut(run);
  if (!reason.empty()) return absl::InvalidArgumentError(reason);
  MemoryQuestion asked;
  asked.layout = run.layout;
  Question& question = asked.question;
  ASSIGN_OR_RETURN(question.cluster, ClusterOf(FittedTimeConstants(), run.hardware, run.gpus,
                                               run.gpus_per_node, run.inter_node_bytes_per_s));
  // torch's count holds no driver context; the profile whose runs nvidia-smi saw has its own.
  question.cluster.device.library_bytes = 0;
  if (Notes(run, "optimizer instances 2")) {
    asked.layout.zero_hpz_partition_size = asked.layout.data_group() / 2;
    if (!asked.layout.has_zero_groups()) asked.layout.zero_stage = 0;  // each rank is an instance
  }
  if (Notes(run, "optimizer state and step on the CPU")) {
    asked.layout.offload_optimizer = OffloadDevice::kCpu;
  }
  if (Notes(run, "fused loss over chunks")) {
    const int64_t tokens = asked.layout.micro_batch_size * run.batch.seq_len / asked.layout.cp;
    const int64_t chunks = run.shape.vocab_size / run.shape.hidden_size;
    asked.layout.head_chunk_tokens = (tokens + chunks - 1) / chunks;
  }
  if (absl::StrContains(run.source, "nanotron") && run.layout.pp > 1 &&
      run.layout.pp <= run.shape.num_blocks) {
    asked.layout.layers_per_stage = NanotronBlocks(run);
  }
  RETURN_IF_ERROR(CheckLayout(run.shape, question.cluster, run.batch, asked.layout));
  question.model = run.shape;
  question.batch = run.batch;
  question.numerics.precision = run.precision;
  ASSIGN_OR_RETURN(question.engine, EngineProfileNamed(EngineOf(run.source)));
  question.engine.memory = HabitsOf(run, question.engine);
  return asked;
}

MemoryPrediction PredictMemory(const MeasuredRun& run, const MemoryQuestion& asked) {
  MemoryPrediction prediction;
  prediction.run = &run;
  prediction.engine = asked.question.engine.name;
  const int64_t only = StageOf(run);
  for (int stage = 0; stage < asked.layout.pp; ++stage) {
    if (only >= 0 && stage != only) continue;
    const MemoryEstimate peak = ClosedFormStageMemory(asked.question, asked.layout, stage);
    if (peak.total_bytes() < prediction.peak.total_bytes()) continue;
    prediction.peak = peak;
    prediction.guard_bytes = GuardBytes(asked.question, peak);
    prediction.resting_bytes = BytesBetweenSteps(asked.question, asked.layout, stage);
  }
  return prediction;
}

MemoryAccuracy PredictMemory(const MeasuredTable& table) {
  MemoryAccuracy accuracy;
  accuracy.left_out = table.left_out;
  for (const MeasuredRun& run : table.runs) {
    const absl::StatusOr<MemoryQuestion> asked = MemoryQuestionOf(run);
    if (asked.ok()) {
      accuracy.predictions.push_back(PredictMemory(run, *asked));
    } else {
      accuracy.left_out.push_back({run.id, run.source, std::string{asked.status().message()}});
    }
  }
  return accuracy;
}

bool Fits(const MemoryPrediction& prediction, int64_t memory_bytes) {
  return prediction.peak.total_bytes() + prediction.guard_bytes <= memory_bytes;
}

FitCounts CountFits(const std::vector<const MemoryPrediction*>& predictions) {
  FitCounts counts;
  for (const MemoryPrediction* each : predictions) {
    const MemoryPrediction& prediction = *each;
    if (!prediction.run->peak_bytes) continue;
    for (const int64_t size : {16, 24, 40, 48, 80, 96, 141, 192}) {
      const auto memory_bytes = static_cast<int64_t>(static_cast<double>(size) * kGiB);
      const bool said = Fits(prediction, memory_bytes);
      const bool fits = *prediction.run->peak_bytes <= memory_bytes;
      ++counts.cases;
      counts.false_fits += said && !fits ? 1 : 0;
      counts.false_misfits += !said && fits ? 1 : 0;
    }
  }
  return counts;
}

OutOfMemoryCounts CountOutOfMemory(const MemoryAccuracy& unsuccessful) {
  OutOfMemoryCounts counts;
  for (const MemoryPrediction& prediction : unsuccessful.predictions) {
    const absl::StatusOr<MemoryQuestion> asked = MemoryQuestionOf(*prediction.run);
    if (!asked.ok()) continue;
    const int64_t memory_bytes = asked->question.cluster.device.memory_bytes;
    ++counts.runs;
    counts.said_to_fit += Fits(prediction, memory_bytes) ? 1 : 0;
    counts.with_room_to_spare += Fits(prediction, memory_bytes - memory_bytes / 5) ? 1 : 0;
  }
  return counts;
}

std::string MemoryAccuracyText(const MemoryAccuracy& accuracy, bool each_row) {
  std::string text;
  if (each_row) {
    for (const MemoryPrediction& prediction : accuracy.predictions) AppendRow(prediction, text);
  }
  text += "memory, predicted over measured:\n";
  for (const auto& [key, group] : BySource(accuracy)) {
    absl::StrAppend(&text, "  ", key.second, " (profile ", key.first, ")\n");
    AppendSummary("at rest", Summarize(Errors(group, /*peak=*/false)), text);
    AppendSummary("peak", Summarize(Errors(group, /*peak=*/true)), text);
    const FitCounts fits = CountFits(group);
    absl::StrAppend(&text, "    held against devices of 16 to 192 GiB: ", fits.cases, " cases, ",
                    fits.false_fits, " false fits, ", fits.false_misfits, " false misfits\n");
  }
  if (!accuracy.left_out.empty()) text += "left out:\n";
  for (const auto& [key, count] : Reasons(accuracy)) {
    absl::StrAppend(&text, "  ", count, " of ", key.first, ": ", key.second, "\n");
  }
  return text;
}

std::string OutOfMemoryText(const MemoryAccuracy& successful, const MemoryAccuracy& unsuccessful) {
  const OutOfMemoryCounts without = CountOutOfMemory(unsuccessful);
  MemoryAccuracy same_sources;
  for (const MemoryPrediction& prediction : successful.predictions) {
    for (const MemoryPrediction& other : unsuccessful.predictions) {
      if (other.run->source != prediction.run->source) continue;
      same_sources.predictions.push_back(prediction);
      break;
    }
  }
  const OutOfMemoryCounts with = CountOutOfMemory(same_sources);
  return absl::StrFormat(
      "layouts of the sources of --oom, by what is said and what was recorded:\n"
      "                    a success   no success\n"
      "  said to fit      %10d %12d (%d with over 20 %% to spare)\n"
      "  said not to fit  %10d %12d\n",
      with.said_to_fit, without.said_to_fit, without.with_room_to_spare,
      with.runs - with.said_to_fit, without.runs - without.said_to_fit);
}

std::string MemoryAccuracyJson(const MemoryAccuracy& accuracy) {
  std::string json = "{\"sources\":[";
  const char* comma = "";
  for (const auto& [key, group] : BySource(accuracy)) {
    absl::StrAppend(&json, comma, "{\"source\":", Quoted(key.second),
                    ",\"engine\":", Quoted(key.first),
                    ",\"at_rest\":", SummaryJson(Summarize(Errors(group, /*peak=*/false))),
                    ",\"peak\":", SummaryJson(Summarize(Errors(group, /*peak=*/true))));
    const FitCounts fits = CountFits(group);
    absl::StrAppend(&json, ",\"fit_cases\":", fits.cases, ",\"false_fits\":", fits.false_fits,
                    ",\"false_misfits\":", fits.false_misfits, "}");
    comma = ",";
  }
  json += "],\"left_out\":[";
  comma = "";
  for (const LeftOutRow& row : accuracy.left_out) {
    absl::StrAppend(&json, comma, "{\"id\":", Quoted(row.id), ",\"source\":", Quoted(row.source),
                    ",\"reason\":", Quoted(row.reason), "}");
    comma = ",";
  }
  return json + "]}";
}

}  // namespace weft
