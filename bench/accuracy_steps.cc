#include "bench/accuracy_steps.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/hardware.h"
#include "plan/errors.h"
#include "plan/estimate/prediction_error.h"
#include "plan/spec/layout_rules.h"

namespace weft {
namespace {

struct SourceEngine {
  absl::string_view source;  // a row's source has to contain it
  absl::string_view engine;
};
constexpr SourceEngine kEngines[] = {
    {"vTrain", "megatron-deepspeed"},
    {"bigscience", "megatron-deepspeed"},
    {"PTD-P", "megatron-lm"},
    {"recompute paper", "megatron-lm"},
    {"dgxc", "megatron"},
    {"Megatron", "megatron"},
    {"NeMo", "megatron"},
    {"SimuMax", "megatron"},
    {"nanotron", "pytorch-eager"},
    {"llm-foundry", "pytorch-fsdp"},
    {"torchtitan", "pytorch-fsdp"},
    {"stas00", "pytorch-eager"},
    {"InternEvo", "pytorch-eager"},
};

// Sources whose nodes are joined by RoCE (InternEvo) or EFA (nanotron's study), not by InfiniBand.
bool IsOnEthernet(absl::string_view source) {
  return absl::StrContains(source, "InternEvo") || absl::StrContains(source, "nanotron");
}

TimeHabits HabitsOf(const TimeConstants& constants, absl::string_view engine) {
  if (engine == "megatron") return constants.megatron;
  if (engine == "megatron-lm") return MegatronLmHabits(constants);
  if (engine == "megatron-deepspeed") return constants.megatron_deepspeed;
  if (engine == "pytorch-fsdp") return constants.pytorch_fsdp;
  if (engine == "pytorch-eager") return constants.pytorch_eager;
  return constants.weft;
}

double KendallTau(const std::vector<const StepPrediction*>& group) {
  double agree = 0, differ = 0, tied_measured = 0, tied_predicted = 0;
  for (size_t i = 0; i < group.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const double measured = *group[i]->run->step_s - *group[j]->run->step_s;
      const double predicted = group[i]->time.total_s() - group[j]->time.total_s();
      if (measured == 0 || predicted == 0) {
        tied_measured += measured == 0 && predicted != 0 ? 1 : 0;
        tied_predicted += predicted == 0 && measured != 0 ? 1 : 0;
      } else {
        (measured * predicted > 0 ? agree : differ) += 1;
      }
    }
  }
  const double pairs =
      std::sqrt((agree + differ + tied_measured) * (agree + differ + tied_predicted));
  return pairs > 0 ? (agree - differ) / pairs : 1;
}

using Groups =
    std::map<std::tuple<std::string, std::string, std::string, int, int64_t, int64_t, int>,
             std::vector<const StepPrediction*>>;

Groups GroupsOf(const std::vector<StepPrediction>& predictions) {
  Groups groups;
  for (const StepPrediction& prediction : predictions) {
    const MeasuredRun& run = *prediction.run;
    groups[{run.source, run.model, run.hardware, run.gpus, run.batch.global_batch_size,
            run.batch.seq_len, static_cast<int>(run.precision)}]
        .push_back(&prediction);
  }
  return groups;
}

std::vector<StepPrediction> Where(const std::vector<StepPrediction>& predictions,
                                  const std::string& source, const std::string& tier) {
  std::vector<StepPrediction> chosen;
  for (const StepPrediction& prediction : predictions) {
    if (!source.empty() && prediction.run->source != source) continue;
    if (!tier.empty() && prediction.run->tier != tier) continue;
    chosen.push_back(prediction);
  }
  return chosen;
}

ErrorSummary ErrorsOf(const std::vector<StepPrediction>& predictions) {
  std::vector<double> errors;
  errors.reserve(predictions.size());
  for (const StepPrediction& prediction : predictions) errors.push_back(prediction.error());
  return Summarize(std::move(errors));
}

// Every (source, tier) that has rows, sources in order of their names, all tiers of one first.
struct Part {
  std::string source, tier;
  ErrorSummary errors;
  ChoiceSummary choices;
};
std::vector<Part> PartsOf(const StepAccuracy& accuracy) {
  std::map<std::string, std::map<std::string, int>> tiers;
  for (const StepPrediction& prediction : accuracy.predictions) {
    ++tiers[prediction.run->source][prediction.run->tier];
  }
  std::vector<Part> parts;
  const auto add = [&](const std::string& source, const std::string& tier) {
    const std::vector<StepPrediction> rows = Where(accuracy.predictions, source, tier);
    parts.push_back({source, tier, ErrorsOf(rows), Choices(rows)});
  };
  for (const auto& [source, counts] : tiers) {
    add(source, "");
    if (counts.size() < 2) continue;
    for (const auto& [tier, count] : counts) add(source, tier);
  }
  return parts;
}

std::string JsonText(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) quoted += c;
  }
  return quoted + "\"";
}

// Left-out rows by (source, reason).
std::map<std::pair<std::string, std::string>, int> Reasons(const StepAccuracy& accuracy) {
  std::map<std::pair<std::string, std::string>, int> reasons;
  for (const LeftOutRow& row : accuracy.left_out) ++reasons[{row.source, row.reason}];
  return reasons;
}

}  // namespace

absl::string_view EngineOf(absl::string_view source) {
  for (const SourceEngine& known : kEngines) {
    if (absl::StrContains(absl::AsciiStrToLower(source), absl::AsciiStrToLower(known.source)))
      return known.engine;
  }
  return "megatron";
}

absl::StatusOr<Question> QuestionOf(const TimeConstants& constants, const MeasuredRun& run) {
  Question question;
  ASSIGN_OR_RETURN(question.cluster, ClusterOf(constants, run.hardware, run.gpus, run.gpus_per_node,
                                               run.inter_node_bytes_per_s));
  if (IsOnEthernet(run.source)) {
    question.cluster.inter_node.latency_s = constants.ethernet_latency_s;
  }
  RETURN_IF_ERROR(CheckModel(run.shape));
  RETURN_IF_ERROR(CheckPrecision(question.cluster.device, run.precision));
  RETURN_IF_ERROR(CheckLayout(run.shape, question.cluster, run.batch, run.layout));
  question.model = run.shape;
  question.batch = run.batch;
  question.numerics.precision = run.precision;
  question.engine.name = std::string(EngineOf(run.source));
  question.engine.time = HabitsOf(constants, question.engine.name);
  question.engine.time.matmul = constants.matmul;
  question.engine.time.fused_attention = run.flash_attention;
  return question;
}

ErrorSummary Summarize(std::vector<double> errors) {
  ErrorSummary summary;
  if (errors.empty()) return summary;
  summary.count = static_cast<int>(errors.size());
  for (double& error : errors) {
    summary.bias += error / summary.count;
    error = std::abs(error);
    summary.mape += error / summary.count;
  }
  summary.median = Quantile(errors, 0.5);
  summary.p90 = Quantile(errors, 0.9);
  summary.max = *std::max_element(errors.begin(), errors.end());
  return summary;
}

ChoiceSummary Choices(const std::vector<StepPrediction>& predictions) {
  ChoiceSummary summary;
  for (const auto& [key, group] : GroupsOf(predictions)) {
    if (std::ssize(group) < kFewestLayouts) continue;
    double best_s = *group.front()->run->step_s;
    const StepPrediction* chosen = group.front();
    for (const StepPrediction* prediction : group) {
      best_s = std::min(best_s, *prediction->run->step_s);
      if (prediction->time.total_s() < chosen->time.total_s()) chosen = prediction;
    }
    const double regret = *chosen->run->step_s / best_s - 1;
    ++summary.groups;
    summary.mean_regret += regret;
    summary.max_regret = std::max(summary.max_regret, regret);
    summary.mean_tau += KendallTau(group);
  }
  if (summary.groups == 0) return summary;
  summary.mean_regret /= summary.groups;
  summary.mean_tau /= summary.groups;
  return summary;
}

StepAccuracy PredictSteps(const TimeConstants& constants, const MeasuredTable& table) {
  StepAccuracy accuracy;
  accuracy.left_out = table.left_out;
  for (const MeasuredRun& run : table.runs) {
    if (!run.step_s) {
      accuracy.left_out.push_back({run.id, run.source, "step_time_s is not stated"});
      continue;
    }
    const absl::StatusOr<Question> question = QuestionOf(constants, run);
    if (!question.ok()) {
      accuracy.left_out.push_back({run.id, run.source, std::string(question.status().message())});
      continue;
    }
    const absl::StatusOr<TermSeconds> step = ReplayStep(*question, run.layout);
    if (!step.ok()) {
      accuracy.left_out.push_back({run.id, run.source, std::string(step.status().message())});
      continue;
    }
    accuracy.predictions.push_back({&run, *step});
  }
  return accuracy;
}

std::string StepAccuracyText(const StepAccuracy& accuracy) {
  std::string text = absl::StrFormat(
      "step time, predicted / measured - 1, in %%; choice: groups of >= %d layouts\n"
      "%-44s %-4s %5s %6s %6s %6s %6s %6s | %6s %6s %6s %5s\n",
      kFewestLayouts, "source", "tier", "rows", "MAPE", "median", "p90", "max", "bias", "groups",
      "regret", "max", "tau");
  for (const Part& part : PartsOf(accuracy)) {
    const ErrorSummary& errors = part.errors;
    absl::StrAppendFormat(&text, "%-44s %-4s %5d %6.1f %6.1f %6.1f %6.1f %+6.1f |",
                          part.source.substr(0, 44), part.tier.empty() ? "all" : part.tier,
                          errors.count, 100 * errors.mape, 100 * errors.median, 100 * errors.p90,
                          100 * errors.max, 100 * errors.bias);
    if (part.choices.groups > 0) {
      absl::StrAppendFormat(&text, " %6d %6.1f %6.1f %5.2f", part.choices.groups,
                            100 * part.choices.mean_regret, 100 * part.choices.max_regret,
                            part.choices.mean_tau);
    }
    text += "\n";
  }
  text += "engine profile of each source:\n";
  std::string last;
  for (const Part& part : PartsOf(accuracy)) {
    if (part.source == last) continue;
    last = part.source;
    absl::StrAppend(&text, "  ", part.source, ": ", EngineOf(part.source), "\n");
  }
  if (!accuracy.left_out.empty()) text += "left out:\n";
  for (const auto& [key, count] : Reasons(accuracy)) {
    absl::StrAppend(&text, "  ", count, " of ", key.first, ": ", key.second, "\n");
  }
  return text;
}

std::string StepAccuracyJson(const StepAccuracy& accuracy) {
  std::string json = "{\"sources\":[";
  const char* comma = "";
  for (const Part& part : PartsOf(accuracy)) {
    const ErrorSummary& errors = part.errors;
    absl::StrAppend(&json, comma, "{\"source\":", JsonText(part.source),
                    ",\"tier\":", JsonText(part.tier.empty() ? "all" : part.tier),
                    ",\"engine\":", JsonText(EngineOf(part.source)));
    absl::StrAppendFormat(
        &json,
        ",\"count\":%d,\"mape\":%.6g,\"median\":%.6g,\"p90\":%.6g,\"max\":%.6g,\"bias\":%.6g",
        errors.count, errors.mape, errors.median, errors.p90, errors.max, errors.bias);
    absl::StrAppendFormat(&json,
                          ",\"groups\":%d,\"mean_regret\":%.6g,\"max_regret\":%.6g,\"mean_tau\":"
                          "%.6g}",
                          part.choices.groups, part.choices.mean_regret, part.choices.max_regret,
                          part.choices.mean_tau);
    comma = ",";
  }
  json += "],\"left_out\":[";
  comma = "";
  for (const LeftOutRow& row : accuracy.left_out) {
    absl::StrAppend(&json, comma, "{\"id\":", JsonText(row.id),
                    ",\"source\":", JsonText(row.source), ",\"reason\":", JsonText(row.reason),
                    "}");
    comma = ",";
  }
  return json + "]}";
}

}  // namespace weft
