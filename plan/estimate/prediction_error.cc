#include "plan/estimate/prediction_error.h"

#include <algorithm>
#include <array>

namespace weft {
namespace {

// Printed by `fit_constants FILE.csv --start middle --cross all --folds 10` (bench/README.md) from
// published step times: tiers A and B of vTrain, bigscience, dgxc, Megatron-Bridge, Megatron-LM,
// SimuMax, InternEvo, llm-foundry, torchtitan and, up to 16 GPUs, nanotron. Each row is predicted
// by constants that were fitted without its model shape.
constexpr std::array<ErrorRow, 12> kRows = {{
    {"megatron", 1, 8, 24, 0.819, 0.945, 1.081},
    {"megatron", 9, 64, 30, 0.947, 0.980, 1.036},
    {"megatron", 65, 512, 36, 0.919, 0.971, 1.024},
    {"megatron", 513, kNoEnd, 20, 0.903, 0.970, 1.007},
    {"megatron-deepspeed", 1, 8, 1443, 0.916, 1.001, 1.097},
    {"megatron-deepspeed", 9, kNoEnd, 124, 0.860, 0.946, 1.013},
    {"pytorch-fsdp", 1, 8, 132, 0.939, 1.001, 1.070},
    {"pytorch-fsdp", 9, 64, 36, 0.955, 1.018, 1.087},
    {"pytorch-fsdp", 65, kNoEnd, 20, 0.902, 1.010, 1.052},
    {"pytorch-eager", 1, 8, 57, 0.908, 0.982, 1.169},
    {"pytorch-eager", 9, 64, 111, 0.905, 1.003, 1.178},
    {"pytorch-eager", 65, kNoEnd, 30, 0.859, 0.930, 1.008},
}};

}  // namespace

absl::Span<const ErrorRow> ErrorRows() {
  return kRows;
}

Words WordsOf(ErrorSource) {
  static constexpr absl::string_view kWords[] = {"none", "engine", "others", "recorded"};
  return kWords;
}

double Quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

ErrorBar PublishedErrorBar(absl::string_view engine, int gpus) {
  const bool measured = std::any_of(kRows.begin(), kRows.end(),
                                    [&](const ErrorRow& row) { return row.engine == engine; });
  ErrorBar bar;
  for (const ErrorRow& row : kRows) {
    if (measured && row.engine != engine) continue;
    if (gpus < row.from_gpus || gpus > row.to_gpus) continue;
    const bool first = !bar.known();
    bar.source = measured ? ErrorSource::kEngine : ErrorSource::kOthers;
    bar.p10 = first ? row.p10 : std::min(bar.p10, row.p10);
    bar.p90 = first ? row.p90 : std::max(bar.p90, row.p90);
    // None of several engines is the median.
    bar.median = first ? row.median : 1;
    bar.runs += row.rows;
    if (measured) bar.engine = row.engine;
    bar.from_gpus = first ? row.from_gpus : std::min(bar.from_gpus, row.from_gpus);
    bar.to_gpus = first ? row.to_gpus : std::max(bar.to_gpus, row.to_gpus);
  }
  return bar;
}

ErrorBar WidenedForExperts(ErrorBar bar) {
  if (!bar.known()) return bar;
  bar.of_another_kind = true;
  bar.p10 = std::min(bar.p10, 1 / kExpertsTookLonger);
  return bar;
}

ErrorBar RecordedErrorBar(std::vector<double> ratios) {
  ErrorBar bar;
  if (ratios.empty()) return bar;
  bar.source = ErrorSource::kRecorded;
  bar.runs = static_cast<int>(ratios.size());
  bar.p10 = Quantile(ratios, 0.1);
  bar.median = Quantile(ratios, 0.5);
  bar.p90 = Quantile(ratios, 0.9);
  if (bar.runs < kFewRuns) {
    const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
    bar.p90 = std::max(*most, 1 / *least);
    bar.p10 = 1 / bar.p90;
  }
  return bar;
}

}  // namespace weft
