// Weak scaling on one machine: two workers of one run (dp=2), against two independent runs of one
// worker each at the same time, which share the machine but nothing else. Pairs take turns, so that
// both see the same minutes. One thread per worker.
//
// build/release/bench/scaling_bench [--pairs N] [--steps N] [--text FILE]: tokens per second of
// each pair, by the median step, and the median ratio. Runs build/release/bin/weft in a folder of
// its own, which it removes.
#include <sys/wait.h>

#include <algorithm>
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
#include "nlohmann/json.hpp"
#include "plan/errors.h"

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
  int steps = 6;
};

std::string JobText(const Options& options, const std::string& name, int workers) {
  return absl::StrCat("job: {name: ", name, ", output_dir: ", options.folder, "}\n",
                      "model: {model_type: gpt2, vocab_size: 256, n_positions: ", kSeqLen,
                      ", n_embd: 384, n_layer: 6, n_head: 6}\n",
                      "data: {format: bytes, train: [{path: ", options.text, "}]}\n",
                      "training: {seq_len: ", kSeqLen,
                      ", global_batch_size: ", kSequencesPerWorker * workers,
                      ", micro_batch_size: 4, steps: ", options.steps, "}\n",
                      "optimizer: {name: adamw, lr: 1.0e-3}\n", "parallelism: {dp: ", workers,
                      ", tp: 1, pp: 1, zero_stage: 0}\n", "checkpoint: {interval: 0}\n",
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

absl::StatusOr<double> RunJob(const Options& options, const std::string& name, int workers) {
  const std::string path = absl::StrCat(options.folder, "/", name);
  std::ofstream(path + ".yaml") << JobText(options, name, workers);
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
  absl::StatusOr<double> first, second;
  std::thread other(
      [&] { second = RunJob(options, absl::StrCat("alone-", pair, "-b"), /*workers=*/1); });
  first = RunJob(options, absl::StrCat("alone-", pair, "-a"), /*workers=*/1);
  other.join();
  RETURN_IF_ERROR(first.status());
  RETURN_IF_ERROR(second.status());
  return *first + *second;
}

absl::Status Run(const Options& options) {
  std::vector<double> ratios;
  std::printf("pair   dp=2 tokens/s   two alone   ratio\n");
  for (int pair = 0; pair < options.pairs; ++pair) {
    ASSIGN_OR_RETURN(const double together,
                     RunJob(options, absl::StrCat("together-", pair), /*workers=*/2));
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

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::Options options;
  CLI::App app("weak scaling of two workers on one machine");
  app.add_option("--pairs", options.pairs, "runs of each kind")->check(CLI::Range(1, 1000));
  app.add_option("--steps", options.steps, "of each run")->check(CLI::Range(2, 10000));
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
