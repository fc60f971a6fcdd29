#include "tests/hosts/hosts_run.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/end_to_end/lacking.h"
#include "tests/end_to_end/tiny_model.h"
#include "tests/places.h"

namespace weft {
namespace {

constexpr double kNear = 1e-5;

int64_t UnixMs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

}  // namespace

void HostsRun::SetUp() {
  END_FOR_WANT_OF(HostBed::Missing());
  bed_ = KeptBed<HostBed, int>::OfProcess().Take(3);
}

void HostsRun::TearDown() {
  if (bed_ == nullptr) return;
  run_.reset();
  bed_->ExpectNothingLeft();
  KeptBed<HostBed, int>::OfProcess().GiveBack();
}

void HostsRun::TearDownTestSuite() {
  KeptBed<HostBed, int>::OfProcess().TakeDown();
}

std::string HostsRun::WriteJob(const std::string& parallelism, const std::string& cluster,
                               const std::string& more, int64_t steps) {
  const std::string path = bed_->shared() + "/job.yaml";
  std::ofstream(path) << "job: {name: tiny, output_dir: " << bed_->shared() << "}\n"
                      << kTinyModel << "training: {seq_len: " << kTinySeqLen
                      << ", global_batch_size: 24, micro_batch_size: 2, steps: " << steps
                      << ", seed: 42}\n"
                      << "optimizer: {name: adamw, lr: 1.0e-3}\nlr_scheduler: {type: constant}\n"
                      << "parallelism: {" << parallelism << "}\n"
                      << "checkpoint: {interval: 10, keep_latest_k: 3}\n"
                      << more << "cluster: {profile: cpu, " << cluster << "}\n";
  return path;
}

std::string HostsRun::OnThreeHosts(const std::string& ssh_options) const {
  return absl::StrCat("network: ", HostBed::kNetwork, ", ssh_options: \"", bed_->ssh_options(), " ",
                      ssh_options, "\"");
}

std::string HostsRun::ShortTimes() {
  return absl::StrCat("fault_tolerance: {heartbeat_timeout_seconds: ", kLeaseS,
                      ", steady_seconds: 1, max_restarts: 10, preflight: false}\n");
}

void HostsRun::Start(const std::string& job, const std::vector<std::string>& options,
                     const std::map<std::string, std::string>& env) {
  std::vector<std::string> command = {BinaryPath("/bin/weft"), "run", job};
  command.insert(command.end(), options.begin(), options.end());
  started_s_ = NowSeconds();
  run_ = bed_->Start(1, command, env);
}

int HostsRun::Kill(int host, const std::string& pattern) {
  const auto killed =
      bed_->Run(host, absl::StrCat("p=$(pgrep -f -- '", pattern,
                                   "' | head -1); tr '\\0' '\\n' < /proc/$p/environ | sed -n "
                                   "'s/^OMPI_COMM_WORLD_RANK=//p'; kill -9 $p && echo done"));
  EXPECT_THAT(killed.out, ::testing::HasSubstr("done")) << pattern << ": " << killed.err;
  return killed.out.find("done") > 0 ? std::atoi(killed.out.c_str()) : -1;
}

std::vector<RunEvent> HostsRun::Events() const {
  std::vector<RunEvent> events;
  std::istringstream lines(ReadText(folder() + "/events.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) continue;
    events.push_back({json.value("unix_ms", int64_t{0}), json.value("generation", int64_t{0}),
                      json.value("event", std::string()), json.value("phase", std::string()),
                      json.value("reason", std::string()), json.value("rank", -1),
                      json.value("host", std::string())});
  }
  return events;
}

std::map<int64_t, std::string> HostsRun::CurveIn(const std::string& run_folder) {
  std::map<int64_t, std::string> curve;
  for (const StepMetrics& step : MetricsOf(run_folder)) {
    const auto [place, is_new] = curve.try_emplace(step.step, step.loss_hex);
    EXPECT_EQ(place->second, step.loss_hex) << "step " << step.step << ", done again";
  }
  return curve;
}

int64_t HostsRun::LastGeneration() const {
  const std::vector<StepMetrics> steps = Steps();
  return steps.empty() ? 0 : steps.back().generation;
}

bool HostsRun::WaitForStep(int64_t step, int64_t generation, double timeout_s) const {
  return Eventually(timeout_s, [&] {
    const std::vector<StepMetrics> steps = Steps();
    return !steps.empty() && steps.back().step >= step && steps.back().generation >= generation;
  });
}

double HostsRun::SecondsToTrainAgain(int64_t generation, double timeout_s) const {
  if (!WaitForStep(0, generation + 1, timeout_s)) return -1;
  const int64_t trains_ms = UnixMs();
  const int64_t next = LastGeneration();
  int64_t proven_ms = 0;
  int64_t starts_ms = 0;
  for (const RunEvent& event : Events()) {
    if (event.phase == "RECOVERING" && event.generation < next) proven_ms = event.unix_ms;
    if (event.phase == "STARTING" && event.generation == next) starts_ms = event.unix_ms;
  }
  std::istringstream log(WeftdLog());
  for (std::string line; std::getline(log, line);) {
    absl::Time when;
    if (line.find(" INFO agent on ") == std::string::npos ||
        !absl::ParseTime(absl::RFC3339_full, line.substr(0, line.find(' ')), &when, nullptr)) {
      continue;
    }
    const int64_t came_ms = absl::ToUnixMillis(when);
    if (came_ms <= starts_ms) proven_ms = std::max(proven_ms, came_ms);
  }
  return static_cast<double>(trains_ms - proven_ms) / 1000;
}

std::string HostsRun::Words() const {
  return absl::StrCat(run_->Stdout(), run_->Stderr(), "\n-- weftd.log\n", WeftdLog(),
                      "\n-- agent-h2.log\n", ReadText(folder() + "/logs/agent-h2.log"),
                      "\n-- agent-h3.log\n", ReadText(folder() + "/logs/agent-h3.log"));
}

void HostsRun::ExpectEnd(int code) {
  const std::optional<Ended> ended = run_->Wait(240);
  ASSERT_TRUE(ended.has_value()) << Words();
  EXPECT_EQ(ended->exit_code, code) << Words();
}

void HostsRun::StopAndExpectEnd() {
  const auto stopped = bed_->Run(1, BinaryPath("/bin/weft") + " stop " + folder());
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  ExpectEnd();
}

std::map<int64_t, std::string> HostsRun::CurveOfOneHost(int64_t steps) {
  static auto* const trained = new std::map<int64_t, std::map<int64_t, std::string>>;
  std::map<int64_t, std::string>& curve = (*trained)[steps];
  if (static_cast<int64_t>(curve.size()) == steps) return curve;
  Start(WriteJob(kFixed, "slots: 6", kUnchecked, steps), {}, {{kPauseVariable, kNoPace}});
  ExpectEnd();
  curve = Curve();
  EXPECT_EQ(curve.size(), static_cast<size_t>(steps));
  std::filesystem::remove_all(folder());
  return curve;
}

void HostsRun::ExpectNear(const std::map<int64_t, std::string>& curve,
                          const std::vector<StepMetrics>& steps) {
  for (const StepMetrics& step : steps) {
    const auto found = curve.find(step.step);
    if (found == curve.end()) continue;
    const double expected = std::strtod(found->second.c_str(), nullptr);
    EXPECT_LE(std::abs(step.loss - expected), kNear * expected)
        << "step " << step.step << ", generation " << step.generation;
  }
}

}  // namespace weft
