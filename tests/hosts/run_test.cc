// One job on three hosts, with the real binaries, ssh, mpirun and links: the losses are those of
// one host, whatever is killed, and nothing is left anywhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "tests/hosts/host_bed.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

const char kBin[] = WEFT_BINARY_DIR "/bin";
constexpr int kSteps = 60;

struct Step {
  int64_t step = 0;
  int64_t generation = 0;
  std::string loss_hex;
};

class HostsRun : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = HostBed::Missing();
    if (!missing.empty()) GTEST_SKIP() << missing;
    bed_ = std::make_unique<HostBed>(3);
  }
  void TearDown() override {
    if (bed_ == nullptr) return;
    run_.reset();
    bed_->ExpectNothingLeft();
  }

  std::string folder() const { return bed_->shared() + "/tiny"; }

  static constexpr char kFixed[] =
      "dp: 3, pp: 2, tp: 1, zero_stage: 1, pp_schedule: 1f1b";  // on any number of hosts
  // Whatever `parallelism` leaves open is planned for the hosts that there are.
  std::string WriteJob(const std::string& parallelism, const std::string& cluster,
                       const std::string& more = "") {
    const std::string path = bed_->shared() + "/job.yaml";
    std::ofstream(path)
        << "job: {name: tiny, output_dir: " << bed_->shared() << "}\n"
        << "model: {model_type: gpt2, vocab_size: 256, n_positions: 64, n_embd: 64, n_layer: 4, "
           "n_head: 4}\n"
        << "data: {format: bytes, train: [{path: /usr/share/common-licenses/GPL-3}]}\n"
        << "training: {seq_len: 64, global_batch_size: 12, micro_batch_size: 2, steps: " << kSteps
        << ", seed: 42}\n"
        << "optimizer: {name: adamw, lr: 1.0e-3}\nlr_scheduler: {type: constant}\n"
        << "parallelism: {" << parallelism << "}\n"
        << "checkpoint: {interval: 10, keep_latest_k: 3}\n"
        << more << "cluster: {profile: cpu, " << cluster << "}\n";
    return path;
  }
  std::string OnThreeHosts() const {
    return absl::StrCat("network: ", HostBed::kNetwork, ", ssh_options: \"", bed_->ssh_options(),
                        "\"");
  }
  void Start(const std::string& job, const std::vector<std::string>& options) {
    std::vector<std::string> command = {std::string(kBin) + "/weft", "run", job};
    command.insert(command.end(), options.begin(), options.end());
    run_ = bed_->Start(1, command);
  }
  std::vector<Step> Steps() const {
    std::vector<Step> steps;
    std::istringstream lines(ReadText(folder() + "/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, false);
      if (json.is_discarded() || !json.contains("loss_hex")) continue;
      steps.push_back({json.value("step", int64_t{0}), json.value("generation", int64_t{0}),
                       json.value("loss_hex", std::string())});
    }
    return steps;
  }
  // By step; every generation that did it has to agree.
  std::map<int64_t, std::string> Curve() const {
    std::map<int64_t, std::string> curve;
    for (const Step& step : Steps()) {
      const auto [place, is_new] = curve.try_emplace(step.step, step.loss_hex);
      EXPECT_EQ(place->second, step.loss_hex) << "step " << step.step << ", done again";
    }
    return curve;
  }
  bool WaitForStep(int64_t step, int64_t generation = 1, double timeout_s = 60) {
    return Eventually(timeout_s, [&] {
      const std::vector<Step> steps = Steps();
      return !steps.empty() && steps.back().step >= step && steps.back().generation >= generation;
    });
  }
  void ExpectEnd(int code = 0) {
    const std::optional<Ended> ended = run_->Wait(90);
    ASSERT_TRUE(ended.has_value()) << run_->Stdout() << run_->Stderr();
    EXPECT_EQ(ended->exit_code, code) << run_->Stdout() << run_->Stderr();
  }
  // The same layout on host 1 alone.
  std::map<int64_t, std::string> CurveOfOneHost() {
    Start(WriteJob(kFixed, "slots: 6"), {});
    ExpectEnd();
    const std::map<int64_t, std::string> curve = Curve();
    EXPECT_EQ(curve.size(), static_cast<size_t>(kSteps));
    std::filesystem::remove_all(folder());
    return curve;
  }

  std::unique_ptr<HostBed> bed_;
  std::unique_ptr<Child> run_;
};

TEST_F(HostsRun, GivesTheVeryLossesOfOneHost) {
  const std::map<int64_t, std::string> alone = CurveOfOneHost();
  Start(WriteJob(kFixed, OnThreeHosts()), {"--hosts", "h1:2,h2:2,h3:2"});
  ExpectEnd();
  EXPECT_EQ(Curve(), alone);
}

TEST_F(HostsRun, GoesOnWhateverIsKilled) {
  const std::map<int64_t, std::string> alone = CurveOfOneHost();
  struct Case {
    int host;
    const char* pattern;  // of pgrep -f
    const char* said;
  };
  for (const Case& each :
       {Case{2, "weft-worker --generation", "killed by signal 9"},
        Case{3, "weft-shim ", "killed by signal 9"}, Case{2, "orted", "h2"},
        Case{1, "mpirun", "mpirun was killed by signal 9"}, Case{3, "weft agent", "h3"}}) {
    SCOPED_TRACE(each.pattern);
    Start(WriteJob(kFixed, OnThreeHosts()), {"--hosts", "h1:2,h2:2,h3:2"});
    ASSERT_TRUE(WaitForStep(23)) << run_->Stdout() << run_->Stderr();
    const auto killed = bed_->Run(
        each.host, absl::StrCat("kill -9 $(pgrep -f '", each.pattern, "' | head -1) && echo done"));
    EXPECT_THAT(killed.out, HasSubstr("done")) << killed.err;
    ExpectEnd();
    EXPECT_THAT(run_->Stdout() + run_->Stderr(), HasSubstr(each.said));
    EXPECT_EQ(Curve(), alone);
    EXPECT_GE(Steps().back().generation, 2);
    bed_->ExpectNothingLeft();
    std::filesystem::remove_all(folder());
  }
}

// The others go on once the lease of the host behind the cut link is over, and it has none left of
// its own by then.
TEST_F(HostsRun, GoesOnOnTwoHostsWhenALinkIsCut) {
  Start(WriteJob("pp: 2, tp: 1", absl::StrCat("nodes: \"2:3\", ", OnThreeHosts()),
                 "fault_tolerance: {heartbeat_timeout_seconds: 4}\n"),
        {"--hosts", "h1:2,h2:2,h3:2"});
  ASSERT_TRUE(WaitForStep(13)) << run_->Stdout() << run_->Stderr();
  bed_->CutLink(3);
  const auto cut = std::chrono::steady_clock::now();
  EXPECT_TRUE(WaitForStep(13, 2, 30)) << run_->Stdout() << run_->Stderr();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - cut;
  std::printf("training again on two hosts %.2f s after the cut, lease 4 s\n", took.count());
  EXPECT_THAT(ReadText(folder() + "/logs/weftd.log"), HasSubstr("planned for 2 of 3 hosts"));
  bed_->RestoreLink(3);
  ExpectEnd();
}

}  // namespace
}  // namespace weft
