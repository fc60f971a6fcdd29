// Fits the constants of the time model (plan/engine/constants.h) to published step times, and
// cross-validates them: what ships is what is fitted. Usage:
//   fit_constants STEPS.csv [--rounds N] [--sources PART,...] [--only PREFIX,...] [--load FILE]
//                 [--start shipped|middle] [--dump FILE] [--cross all|PART,...]
//                 [--leave shape|source|family] [--folds N]
// --only: constants that start so are fitted; -NAME keeps one. --load: "name = value" lines to
// start from, as this program prints them. --start middle: each constant starts in the middle of
// its range, which knows of no measurement. --dump: terms of every row. --cross: refits without
// each model shape of these sources in turn, on all other rows that are fitted, from the same
// start, and prints the errors of what was left out, also by engine and number of GPUs: the error
// bars of plans, with --cross all. --leave: whole sources are left out in turn, or all runs that an
// engine profile has of a model family. --folds: shapes are dealt out to so many folds, each left
// out at once, which is as many refits. A coordinate search: no derivatives, and it ends after
// `rounds`.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "bench/accuracy_steps.h"
#include "bench/fit_parameters.h"
#include "bench/residuals.h"

namespace weft {
namespace {

struct Row {
  const MeasuredRun* run;
  double weight;
};

// Rows of tiers A and B, so weighted that a source counts as the cube root of its rows, nearly.
std::vector<Row> RowsToFit(const std::vector<StepPrediction>& predictions,
                           const std::function<bool(const MeasuredRun&)>& taken) {
  std::map<std::string, int> counts;
  std::vector<Row> rows;
  for (const StepPrediction& prediction : predictions) {
    const MeasuredRun& run = *prediction.run;
    if (!taken(run)) continue;
    ++counts[run.source];
    rows.push_back({&run, run.tier == "A" ? 1.0 : 0.3});
  }
  for (Row& row : rows) row.weight /= std::pow(static_cast<double>(counts[row.run->source]), 0.65);
  return rows;
}

// Says whether a constant may change what is predicted for a run: an engine's do for its own alone,
// and for those that MegatronLmHabits makes of them.
bool Concerns(const std::string& constant, const MeasuredRun& run) {
  const std::string engine =
      absl::StrReplaceAll(EngineOf(run.source), {{"-", "_"}});  // as constants name it
  const absl::string_view owner = absl::string_view(constant).substr(0, constant.find('.'));
  const bool is_engine = absl::StrContains(owner, "megatron") || absl::StartsWith(owner, "pytorch");
  const bool is_made = engine == "megatron_lm" && absl::StartsWith(owner, "megatron");
  return !is_engine || owner == engine || is_made;
}

// Returns the loss of a row, without its weight; 0 where nothing can be predicted.
double RowLoss(const TimeConstants& constants, const Row& row) {
  const absl::StatusOr<Question> question = QuestionOf(constants, *row.run);
  if (!question.ok()) return 0;
  const double error =
      std::log(EstimateStep(*question, row.run->layout).total_s() / *row.run->step_s);
  // Between absolute and squared: large errors count for more, strays not for everything.
  return std::sqrt(error * error + 0.0004) + error * error;
}

// The losses of rows, of which a trial makes again only those that its constant concerns.
class Losses {
 public:
  Losses(const TimeConstants& constants, const std::vector<Row>& rows)
      : constants_(constants), rows_(rows) {
    for (const Row& row : rows_) of_rows_.push_back(RowLoss(constants_, row));
  }

  double mean() const { return Mean(of_rows_); }
  // Says whether the mean falls with the constant's new value: then that is kept.
  bool Take(const std::string& constant) {
    std::vector<double> tried = of_rows_;
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (Concerns(constant, *rows_[i].run)) tried[i] = RowLoss(constants_, rows_[i]);
    }
    if (Mean(tried) >= mean() - 1e-7) return false;
    of_rows_ = std::move(tried);
    return true;
  }

 private:
  double Mean(const std::vector<double>& of_rows) const {
    double sum = 0, weights = 0;
    for (size_t i = 0; i < rows_.size(); ++i) {
      sum += rows_[i].weight * of_rows[i];
      weights += rows_[i].weight;
    }
    return sum / weights;
  }

  const TimeConstants& constants_;
  const std::vector<Row>& rows_;
  std::vector<double> of_rows_;
};

double Fit(TimeConstants& constants, const std::vector<Row>& rows, int rounds,
           const std::vector<std::string>& only) {
  std::vector<FitParameter> parameters;
  for (const FitParameter& parameter : FitParameters(constants)) {
    const bool kept = std::any_of(only.begin(), only.end(), [&](const std::string& prefix) {
      return prefix == absl::StrCat("-", parameter.name);
    });
    const bool wanted =
        !kept && std::any_of(only.begin(), only.end(), [&](const std::string& prefix) {
          return absl::StartsWith(parameter.name, prefix);
        });
    if (wanted || only.empty()) parameters.push_back(parameter);
  }
  std::vector<double> steps(parameters.size(), 0.2);
  for (const FitParameter& parameter : parameters) {
    *parameter.value = std::clamp(*parameter.value, parameter.least, parameter.most);
  }
  Losses losses(constants, rows);
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const FitParameter& parameter = parameters[i];
      const double at = *parameter.value;
      const double scale = std::max(std::abs(at), 0.02 * parameter.most);
      bool better = false;
      for (const double sign : {1.0, -1.0}) {
        const double to = std::clamp(at + sign * steps[i] * scale, parameter.least, parameter.most);
        if (to == at) continue;
        *parameter.value = to;
        better = losses.Take(parameter.name);
        if (better) break;
        *parameter.value = at;
      }
      steps[i] = std::clamp(steps[i] * (better ? 1.5 : 0.5), 0.002, 0.5);
    }
  }
  return losses.mean();
}

// "name = value" lines, as this program prints them.
void Load(const std::string& path, TimeConstants& constants) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    for (const FitParameter& parameter : FitParameters(constants)) {
      const std::string start = absl::StrCat(parameter.name, " = ");
      double value = 0;
      if (absl::StartsWith(line, start) && absl::SimpleAtod(line.substr(start.size()), &value)) {
        *parameter.value = value;
      }
    }
  }
}

// One line a row: id, measured, predicted, every term.
void Dump(const std::string& path, const StepAccuracy& accuracy) {
  std::ofstream file(path);
  file << "id,measured,predicted";
  for (size_t i = 0; i < kTimeTerms; ++i) file << "," << WordOf(static_cast<TimeTerm>(i));
  file << "\n";
  for (const StepPrediction& prediction : accuracy.predictions) {
    file << prediction.run->id << "," << *prediction.run->step_s << ","
         << prediction.time.total_s();
    for (const double term_s : prediction.time.seconds) file << "," << term_s;
    file << "\n";
  }
}

struct Options {
  std::string steps, load, dump;
  std::string leave = "shape";
  int rounds = 30;
  int folds = 0;  // 0: one for each part
  bool middle = false;
  std::vector<std::string> only, sources, cross;  // cross: {"all"} or parts of sources
};

// False: an option or its value is none of the usage's.
bool ParseOptions(const std::vector<std::string>& arguments, Options& options) {
  if (arguments.size() < 2 || arguments.size() % 2 != 0) return false;
  options.steps = arguments[1];
  for (size_t i = 2; i < arguments.size(); i += 2) {
    const std::string& name = arguments[i];
    const std::string& value = arguments[i + 1];
    bool known = true;
    if (name == "--rounds") {
      known = absl::SimpleAtoi(value, &options.rounds) && options.rounds >= 0;
    } else if (name == "--folds") {
      known = absl::SimpleAtoi(value, &options.folds) && options.folds >= 2;
    } else if (name == "--only") {
      options.only = absl::StrSplit(value, ',');
    } else if (name == "--sources") {
      options.sources = absl::StrSplit(value, ',');
    } else if (name == "--load") {
      options.load = value;
    } else if (name == "--leave") {
      options.leave = value;
      known = value == "shape" || value == "source" || value == "family";
    } else if (name == "--dump") {
      options.dump = value;
    } else if (name == "--start") {
      options.middle = value == "middle";
      known = options.middle || value == "shipped";
    } else if (name == "--cross") {
      options.cross = absl::StrSplit(value, ',', absl::SkipEmpty());
      known = !options.cross.empty();
    } else {
      known = false;
    }
    if (!known) return false;
  }
  return true;
}

bool IsNamed(const std::vector<std::string>& parts, const std::string& source) {
  return std::any_of(parts.begin(), parts.end(), [&](const std::string& part) {
    return part == "all" || absl::StrContains(source, part);
  });
}

bool IsFitted(const Options& options, const MeasuredRun& run) {
  if (!IsFitRow(run)) return false;
  return options.sources.empty() || IsNamed(options.sources, run.source);
}

// Returns a name that those runs share which are left out together: a model shape of one source,
// all of a source, or all of an engine profile's runs of one model family.
std::string PartOf(const Options& options, const MeasuredRun& run) {
  if (options.leave == "source") return run.source;
  if (options.leave == "family") {
    return absl::StrCat(EngineOf(run.source), " ", run.model.substr(0, run.model.find(' ')));
  }
  return absl::StrCat(run.source, " ", run.model);
}

// Each part, or each fold of them, left out at a time, always from `start`.
StepAccuracy CrossValidate(const Options& options, const TimeConstants& start,
                           const StepAccuracy& all, const std::vector<Row>& rows) {
  std::map<std::string, int> fold_of;  // in order of their names: parts of a source are dealt out
  for (const Row& row : rows) {
    if (IsNamed(options.cross, row.run->source)) fold_of[PartOf(options, *row.run)] = 0;
  }
  int parts = 0;
  const int folds = options.folds > 0 ? options.folds : static_cast<int>(fold_of.size());
  for (auto& [part, fold] : fold_of) fold = parts++ % folds;
  StepAccuracy unseen;
  for (int fold = 0; fold < folds; ++fold) {
    const auto is_left_out = [&](const MeasuredRun& run) {
      const auto found = fold_of.find(PartOf(options, run));
      return found != fold_of.end() && found->second == fold;
    };
    const std::vector<Row> others = RowsToFit(all.predictions, [&](const MeasuredRun& run) {
      return IsFitted(options, run) && !is_left_out(run);
    });
    if (others.empty()) continue;
    TimeConstants fitted = start;
    Fit(fitted, others, options.rounds, options.only);
    for (const Row& row : rows) {
      if (!is_left_out(*row.run)) continue;
      const absl::StatusOr<Question> question = QuestionOf(fitted, *row.run);
      if (!question.ok()) continue;
      const absl::StatusOr<TermSeconds> step = ReplayStep(*question, row.run->layout);
      if (step.ok()) unseen.predictions.push_back({row.run, *step});
    }
  }
  return unseen;
}

int Run(const Options& options) {
  const absl::StatusOr<MeasuredTable> table = ReadMeasured(options.steps);
  if (!table.ok()) {
    std::fprintf(stderr, "fit_constants: %s\n", std::string(table.status().message()).c_str());
    return 2;
  }
  TimeConstants start = FittedTimeConstants();
  if (options.middle) {
    for (const FitParameter& parameter : FitParameters(start)) {
      *parameter.value = (parameter.least + parameter.most) / 2;
    }
  }
  if (!options.load.empty()) Load(options.load, start);
  const StepAccuracy all = PredictSteps(start, *table);
  const std::vector<Row> rows =
      RowsToFit(all.predictions, [&](const MeasuredRun& run) { return IsFitted(options, run); });
  TimeConstants constants = start;
  const double before = Losses(constants, rows).mean();
  const double after = Fit(constants, rows, options.rounds, options.only);
  std::printf("%zu rows: loss %.5f -> %.5f\n", rows.size(), before, after);
  for (const FitParameter& parameter : FitParameters(constants)) {
    std::printf("%s = %.5g\n", parameter.name.c_str(), *parameter.value);
  }
  const StepAccuracy fitted = PredictSteps(constants, *table);
  std::printf("%s", StepAccuracyText(fitted).c_str());
  if (!options.dump.empty()) Dump(options.dump, fitted);
  if (options.cross.empty()) return 0;
  const StepAccuracy unseen = CrossValidate(options, start, all, rows);
  std::printf("cross-validation, each %s left out in turn:\n%s", options.leave.c_str(),
              StepAccuracyText(unseen).c_str());
  std::printf("%s", ErrorRowsText("predicted / measured of what was left out "
                                  "(plan/estimate/prediction_error.cc):",
                                  ErrorRowsOf(unseen.predictions))
                        .c_str());
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::Options options;
  if (!weft::ParseOptions({argv, argv + argc}, options)) {
    std::fprintf(stderr,
                 "usage: fit_constants STEPS.csv [--rounds N] [--sources PART,...] "
                 "[--only PREFIX,...] [--load FILE] [--start shipped|middle] [--dump FILE] "
                 "[--cross all|PART,...] [--leave shape|source|family] [--folds N]\n");
    return 2;
  }
  return weft::Run(options);
}
