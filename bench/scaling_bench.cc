// Scaling on one machine, one thread per worker, in two parts:
// - weak scaling: two workers of one run (dp=2), against two independent runs of one worker each at
//   the same time, which share the machine but nothing else. Pairs take turns, so that both see the
//   same minutes. Tokens per second by the median step, and the median ratio.
// - the pipeline: idle time of two stages (pp=2, 1f1b, 8 microbatches) in traces of their steps,
//   against a replay of the same passes through the schedule (pipeline_idle.h).
//
// build/release/bench/scaling_bench [--pairs N] [--steps N] [--pipeline-steps N] [--text FILE].
// Runs build/release/bin/weft in a folder of its own, which it removes.
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "bench/pipeline_idle.h"
#include "nlohmann/json.hpp"
#include "plan/errors.h"
#include "plan/schedule/schedule.h"
#include "plan/schedule/step_schedule.h"
#include "plan/spec/layout.h"
#include "plan/spec/model.h"

namespace weft {
namespace {

constexpr int64_t kSeqLen = 256;
constexpr int64_t kSequencesPerWorker = 16;  // enough work between two reductions
constexpr size_t kWarmupSteps = 1;

struct Options {
  std::string weft;
  std::string text = "/usr/share/common-licenses/GPL-3";
  std::string folder;
  int pairs = 5;
  int steps = 5;
  int pipeline_steps = 6;
};

constexpr int kStages = 2;
constexpr int kMicrobatches = 8;
constexpr int kBlocks = 6;

struct Shape {
  int dp = 1;
  int pp = 1;
  int64_t sequences = kSequencesPerWorker;  // of a step
  int steps = 1;
};

std::string JobText(const Options& options, const std::string& name, const Shape& shape) {
  const int workers = shape.dp * shape.pp;
  return absl::StrCat("job: {name: ", name, ", output_dir: ", options.folder, "}\n",
                      "model: {model_type: gpt2, vocab_size: 256, n_positions: ", kSeqLen,
                      ", n_embd: 384, n_layer: ", kBlocks, ", n_head: 6}\n",
                      "data: {format: bytes, train: [{path: ", options.text, "}]}\n",
                      "training: {seq_len: ", kSeqLen, ", global_batch_size: ", shape.sequences,
                      ", micro_batch_size: 4, steps: ", shape.steps, "}\n",
                      "optimizer: {name: adamw, lr: 1.0e-3}\n", "parallelism: {dp: ", shape.dp,
                      ", tp: 1, pp: ", shape.pp, ", pp_schedule: 1f1b, zero_stage: 0}\n",
                      "checkpoint: {interval: 0}\n",
                      "profiler: {enable: ", shape.pp > 1 ? "true" : "false", ", freq: 1}\n",
                      "cluster: {profile: cpu, slots: ", workers, ", threads_per_worker: 1}\n");
}

// Tokens per second of a run's median step, without the first.
absl::StatusOr<double> TokensPerSecond(const std::string& metrics) {
  std::ifstream file(metrics);
  std::vector<double> rates;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return absl::DataLossError(absl::StrCat(metrics, ": ", line));
    rates.push_back(json.at("tokens").get<double>() / json.at("step_s").get<double>());
  }
  if (rates.size() <= kWarmupSteps) {
    return absl::DataLossError(absl::StrCat(metrics, ": ", rates.size(), " steps"));
  }
  rates.erase(rates.begin(), rates.begin() + kWarmupSteps);
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() / 2];
}

absl::StatusOr<double> RunJob(const Options& options, const std::string& name, const Shape& shape) {
  const std::string path = absl::StrCat(options.folder, "/", name);
  std::ofstream(path + ".yaml") << JobText(options, name, shape);
  const std::string command =
      absl::StrCat("XDG_STATE_HOME=", options.folder, "/state ", options.weft, " run ", path,
                   ".yaml >", path, ".log 2>&1");
  const int status = std::system(command.c_str());
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    std::ifstream log(path + ".log");
    return absl::InternalError(
        absl::StrCat(command, ": ", std::string(std::istreambuf_iterator<char>(log), {})));
  }
  return TokensPerSecond(path + "/metrics.jsonl");
}

absl::StatusOr<double> RunTwoAlone(const Options& options, int pair) {
  const Shape shape = {.steps = options.steps};
  absl::StatusOr<double> first, second;
  std::thread other([&] { second = RunJob(options, absl::StrCat("alone-", pair, "-b"), shape); });
  first = RunJob(options, absl::StrCat("alone-", pair, "-a"), shape);
  other.join();
  RETURN_IF_ERROR(first.status());
  RETURN_IF_ERROR(second.status());
  return *first + *second;
}

absl::Status CompareWithTwoAlone(const Options& options) {
  const Shape both = {.dp = 2, .sequences = 2 * kSequencesPerWorker, .steps = options.steps};
  std::vector<double> ratios;
  std::printf("pair   dp=2 tokens/s   two alone   ratio\n");
  for (int pair = 0; pair < options.pairs; ++pair) {
    ASSIGN_OR_RETURN(const double together, RunJob(options, absl::StrCat("together-", pair), both));
    ASSIGN_OR_RETURN(const double alone, RunTwoAlone(options, pair));
    ratios.push_back(together / alone);
    std::printf("%4d   %13.0f   %9.0f   %5.3f\n", pair + 1, together, alone, ratios.back());
    std::fflush(stdout);
  }
  std::sort(ratios.begin(), ratios.end());
  std::printf("median ratio %.3f (%.3f to %.3f) of %d pairs\n", ratios[ratios.size() / 2],
              ratios.front(), ratios.back(), options.pairs);
  return absl::OkStatus();
}

// One line a step, without the first; then the worst stage of the median step.
absl::Status CompareWithReplay(const Options& options) {
  const Shape shape = {
      .pp = kStages, .sequences = 4 * kMicrobatches, .steps = options.pipeline_steps};
  RETURN_IF_ERROR(RunJob(options, "pipeline", shape).status());
  ModelShape model;
  model.num_blocks = kBlocks;
  model.num_heads = 6;
  model.num_kv_heads = 6;
  model.tied_embeddings = true;
  Layout layout = {.pp = kStages,
                   .pp_schedule = ScheduleKind::kOneForwardOneBackward,
                   .micro_batch_size = 4,
                   .gradient_accumulation_steps = kMicrobatches};
  std::vector<std::vector<Action>> schedules;
  for (int stage = 0; stage < kStages; ++stage) {
    schedules.push_back(StepSchedule(model, layout, stage));
  }
  std::printf("pipeline: idle share of the step, measured and replayed, of stage 0 and stage 1\n");
  std::vector<double> misses;
  for (int step = 2; step <= options.pipeline_steps; ++step) {
    std::vector<std::string> traces;
    for (int stage = 0; stage < kStages; ++stage) {
      traces.push_back(absl::StrCat(options.folder, "/pipeline/trace/step-", step, "/rank-",
                                    layout.grid().RankOf({.pp = stage}), ".json"));
    }
    ASSIGN_OR_RETURN(const PipelineIdle idle, FindPipelineIdle(traces, schedules));
    double miss = 0;
    std::printf("step %d (%.3f s, a transfer %.2f ms):", step, idle.step_s, 1e3 * idle.transfer_s);
    for (size_t stage = 0; stage < kStages; ++stage) {
      const double measured = idle.measured_idle_s[stage] / idle.step_s;
      const double replayed = idle.replayed_idle_s[stage] / idle.step_s;
      miss = std::max(miss, std::abs(measured - replayed));
      std::printf("  %.2f %% and %.2f %%", 100 * measured, 100 * replayed);
    }
    std::printf("\n");
    misses.push_back(miss);
  }
  std::sort(misses.begin(), misses.end());
  std::printf("median difference %.2f %% of a step (%.2f to %.2f) of %d steps\n",
              100 * misses[misses.size() / 2], 100 * misses.front(), 100 * misses.back(),
              static_cast<int>(misses.size()));
  return absl::OkStatus();
}

absl::Status Run(const Options& options) {
  if (options.pairs > 0) RETURN_IF_ERROR(CompareWithTwoAlone(options));
  if (options.pipeline_steps > 1) RETURN_IF_ERROR(CompareWithReplay(options));
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::Options options;
  CLI::App app("two workers on one machine: weak scaling and a pipeline's idle time");
  app.add_option("--pairs", options.pairs, "runs of each kind; 0: none")
      ->check(CLI::Range(0, 1000));
  app.add_option("--steps", options.steps, "of each run")->check(CLI::Range(2, 10000));
  app.add_option("--pipeline-steps", options.pipeline_steps, "of the pipeline; 0: not run")
      ->check(CLI::Range(0, 1000));
  app.add_option("--text", options.text, "what to train on")->check(CLI::ExistingFile);
  CLI11_PARSE(app, argc, argv);
  options.weft =
      std::filesystem::canonical("/proc/self/exe").parent_path().parent_path() / "bin/weft";
  char folder[] = "/tmp/weft-scaling-XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  options.folder = folder;
  const absl::Status status = weft::Run(options);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  if (status.ok()) return 0;
  std::fprintf(stderr, "scaling_bench: %s\n", status.ToString().c_str());
  return 1;
}
