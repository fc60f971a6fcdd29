// This program measures what starting and losing ranks costs here, in wall time as people see it:
// - one step: from the command to its end, for a job of one step on 4 ranks;
// - a death: kill -9 of one of the 4 ranks in the middle of training; until the coordinator's
//   event that names it, and until the next step of the next generation is in metrics.jsonl.
// Two builds take turns where two folders are given, so that both see the same minutes; each figure
// is a median with its range, then the medians of the pairs' ratios.
//
// build/release/bench/fault_bench [--bin FOLDER [--bin FOLDER]] [--rounds N] [--text FILE].
// Runs weft in a folder of its own, which it removes.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>
#include <sstream>
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

using Clock = std::chrono::steady_clock;

constexpr int kRanks = 4;
constexpr int kKillAtStep = 15;
constexpr int kSteps = 30;
constexpr std::chrono::seconds kLimit{60};
constexpr std::chrono::microseconds kLookEvery{500};

struct Options {
  std::vector<std::string> bins;
  std::string text = "/usr/share/common-licenses/GPL-3";
  std::string folder;
  int rounds = 10;
};

enum class Figure { kOneStep, kNoticed, kNextStep };
constexpr const char* kNames[] = {"one step, command to end", "kill -9 to noticed",
                                  "kill -9 to the next step"};

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::string TextOf(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

void WriteJob(const Options& options, const std::string& name, int steps) {
  std::ofstream(absl::StrCat(options.folder, "/", name, ".yaml")) << absl::StrCat(
      "job: {name: ", name, ", output_dir: ", options.folder, "}\n",
      "model: {model_type: gpt2, vocab_size: 256, n_positions: 64, n_embd: 64, n_layer: 4, ",
      "n_head: 4}\n", "data: {format: bytes, train: [{path: ", options.text, "}]}\n",
      "training: {seq_len: 64, global_batch_size: 16, steps: ", steps,
      ", seed: 42}\n"
      "lr_scheduler: {type: constant}\n",
      "optimizer: {name: adamw, lr: 1.0e-3}\n", "parallelism: {dp: 2, pp: 2, tp: 1}\n",
      "checkpoint: {interval: 10}\n", "cluster: {profile: cpu, slots: ", kRanks, "}\n");
}

// `weft run` of a job of the folder; ended with this object if it has not ended by itself.
class WeftRun {
 public:
  WeftRun(const Options& options, const std::string& bin, const std::string& name)
      : folder_(absl::StrCat(options.folder, "/", name)) {
    const std::string weft = bin + "/weft";
    const std::string job = folder_ + ".yaml";
    const std::string log = folder_ + ".log";
    const std::string state = options.folder + "/state";
    pid_ = fork();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("XDG_STATE_HOME", state.c_str(), 1);
    const bool redirected = std::freopen(log.c_str(), "w", stdout) != nullptr &&
                            dup2(STDOUT_FILENO, STDERR_FILENO) >= 0;
    if (redirected) execl(weft.c_str(), weft.c_str(), "run", job.c_str(), nullptr);
    _exit(127);
  }
  ~WeftRun() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  WeftRun(const WeftRun&) = delete;
  WeftRun& operator=(const WeftRun&) = delete;

  const std::string& folder() const { return folder_; }

  absl::Status Finish() {
    int status = 0;
    if (waitpid(pid_, &status, 0) != pid_) return absl::InternalError("weft cannot be waited for");
    pid_ = -1;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("weft run failed: ", TextOf(folder_ + ".log")));
  }

 private:
  std::string folder_;
  pid_t pid_ = -1;
};

// Looks until `found` gives something.
template <typename Found>
auto Await(const char* what, const Found& found)
    -> absl::StatusOr<typename std::invoke_result_t<const Found&>::value_type> {
  const Clock::time_point start = Clock::now();
  while (Clock::now() - start < kLimit) {
    if (auto value = found()) return *value;
    std::this_thread::sleep_for(kLookEvery);
  }
  return absl::DeadlineExceededError(absl::StrCat(what, " did not come within 60 s"));
}

// The last whole line of metrics.jsonl, as {generation, step}.
std::optional<std::pair<int, int>> LastStep(const WeftRun& run) {
  const std::string text = TextOf(run.folder() + "/metrics.jsonl");
  const size_t end = text.rfind('\n');
  if (end == std::string::npos || end == 0) return std::nullopt;
  const size_t before = text.rfind('\n', end - 1);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  const auto json =
      nlohmann::json::parse(text.substr(begin, end - begin), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  return std::pair<int, int>(json.at("generation"), json.at("step"));
}

std::optional<bool> HasLostRank(const WeftRun& run) {
  if (TextOf(run.folder() + "/events.jsonl").find("rank_lost") == std::string::npos) return {};
  return true;
}

absl::StatusOr<pid_t> PidOfRank(const WeftRun& run, int rank) {
  const std::string log =
      TextOf(absl::StrCat(run.folder(), "/logs/generation-1/rank-", rank, ".log"));
  static const auto* pid = new std::regex(", pid ([0-9]+)");
  std::smatch match;
  if (std::regex_search(log, match, *pid)) return std::stoi(match[1]);
  return absl::NotFoundError(absl::StrCat("the log of rank ", rank, " names no process"));
}

absl::StatusOr<double> MeasureOneStep(const Options& options, const std::string& bin,
                                      const std::string& name) {
  WriteJob(options, name, 1);
  const Clock::time_point start = Clock::now();
  WeftRun run(options, bin, name);
  RETURN_IF_ERROR(run.Finish());
  return MillisecondsSince(start);
}

struct Death {
  double noticed_ms = 0;
  double next_step_ms = 0;
};

absl::StatusOr<Death> MeasureDeath(const Options& options, const std::string& bin,
                                   const std::string& name, int rank) {
  WriteJob(options, name, kSteps);
  WeftRun run(options, bin, name);
  RETURN_IF_ERROR(Await("the step", [&]() -> std::optional<bool> {
                    const auto last = LastStep(run);
                    if (!last || last->second < kKillAtStep) return std::nullopt;
                    return true;
                  }).status());
  ASSIGN_OR_RETURN(const pid_t victim, PidOfRank(run, rank));
  const Clock::time_point start = Clock::now();
  if (kill(victim, SIGKILL) != 0) return absl::InternalError("the rank was gone already");
  Death death;
  RETURN_IF_ERROR(Await("the event", [&] { return HasLostRank(run); }).status());
  death.noticed_ms = MillisecondsSince(start);
  RETURN_IF_ERROR(Await("the next step", [&]() -> std::optional<bool> {
                    const auto last = LastStep(run);
                    if (!last || last->first < 2) return std::nullopt;
                    return true;
                  }).status());
  death.next_step_ms = MillisecondsSince(start);
  RETURN_IF_ERROR(run.Finish());
  return death;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// By figure, by folder: one value a round.
using Measured = std::vector<std::vector<std::vector<double>>>;

void Print(const Options& options, const Measured& measured) {
  for (size_t figure = 0; figure < measured.size(); ++figure) {
    for (size_t bin = 0; bin < options.bins.size(); ++bin) {
      const std::vector<double>& ms = measured[figure][bin];
      const auto [least, most] = std::minmax_element(ms.begin(), ms.end());
      std::printf("%-26s %6.0f ms (%.0f to %.0f) of %zu, %s\n", kNames[figure], Median(ms), *least,
                  *most, ms.size(), options.bins[bin].c_str());
    }
    if (options.bins.size() < 2) continue;
    std::vector<double> ratios;
    for (size_t round = 0; round < measured[figure][0].size(); ++round) {
      ratios.push_back(measured[figure][1][round] / measured[figure][0][round]);
    }
    std::printf("%-26s median ratio of the second to the first: %.3f\n", kNames[figure],
                Median(ratios));
  }
}

absl::Status Measure(const Options& options) {
  Measured measured(std::size(kNames), std::vector<std::vector<double>>(options.bins.size()));
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t turn = 0; turn < options.bins.size(); ++turn) {
      const size_t bin = round % 2 == 0 ? turn : options.bins.size() - 1 - turn;
      const auto add = [&](Figure figure, double ms) {
        measured[static_cast<size_t>(figure)][bin].push_back(ms);
      };
      ASSIGN_OR_RETURN(
          const double one_step,
          MeasureOneStep(options, options.bins[bin], absl::StrCat("one-", round, "-", bin)));
      ASSIGN_OR_RETURN(const Death death,
                       MeasureDeath(options, options.bins[bin],
                                    absl::StrCat("death-", round, "-", bin), round % kRanks));
      add(Figure::kOneStep, one_step);
      add(Figure::kNoticed, death.noticed_ms);
      add(Figure::kNextStep, death.next_step_ms);
    }
  }
  Print(options, measured);
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::Options options;
  CLI::App app("what starting and losing ranks costs");
  app.add_option("--bin", options.bins, "folders of weft, one or two; default: this build's")
      ->check(CLI::ExistingDirectory)
      ->expected(1, 2);
  app.add_option("--rounds", options.rounds, "runs of each kind and build")
      ->check(CLI::Range(1, 1000));
  app.add_option("--text", options.text, "what to train on")->check(CLI::ExistingFile);
  CLI11_PARSE(app, argc, argv);
  if (options.bins.empty()) {
    options.bins = {std::filesystem::canonical("/proc/self/exe").parent_path().parent_path() /
                    "bin"};
  }
  for (std::string& bin : options.bins) bin = std::filesystem::canonical(bin);
  char folder[] = "/tmp/weft-faults-XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  options.folder = folder;
  const absl::Status status = weft::Measure(options);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  if (status.ok()) return 0;
  std::fprintf(stderr, "fault_bench: %s\n", status.ToString().c_str());
  return 1;
}
