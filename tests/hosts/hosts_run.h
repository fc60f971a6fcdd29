// HostsRun: one job on three hosts of a HostBed, started by `weft run` on host 1, with the real
// binaries, ssh, mpirun and links. After each test nothing is left on any host. The tests of a
// suite have one bed, and train the curve that losses are held against once.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/end_to_end/step_metrics.h"
#include "tests/hosts/host_bed.h"
#include "tests/hosts/kept_bed.h"

namespace weft {

// A line of events.jsonl.
struct RunEvent {
  int64_t unix_ms = 0;
  int64_t generation = 0;
  std::string event;
  std::string phase;
  std::string reason;
  int rank = -1;
  std::string host;
};

class HostsRun : public ::testing::Test {
 protected:
  static constexpr int kSteps = 60;
  static constexpr int kLeaseS = 4;
  // The layout that every test of equal bits has, on any number of hosts.
  static constexpr char kFixed[] = "dp: 3, pp: 2, tp: 1, zero_stage: 1, pp_schedule: 1f1b";
  static constexpr char kThreeHosts[] = "h1:2,h2:2,h3:2";
  // The hosts share this machine's cores with other tests, and preflight_test.cc is about the check
  // that finds one too slow.
  static constexpr char kUnchecked[] = "fault_tolerance: {preflight: false}\n";

  void SetUp() override;
  void TearDown() override;
  static void TearDownTestSuite();

  std::string folder() const { return bed_->shared() + "/tiny"; }

  // Whatever `parallelism` leaves open is planned for the hosts that there are.
  std::string WriteJob(const std::string& parallelism, const std::string& cluster,
                       const std::string& more = kUnchecked, int64_t steps = kSteps);
  // Words for `cluster`: ssh's own options come first.
  std::string OnThreeHosts(const std::string& ssh_options = "") const;
  // A lease of kLeaseS; hosts that come back are taken after a second. In place of kUnchecked.
  static std::string ShortTimes();
  void Start(const std::string& job, const std::vector<std::string>& options,
             const std::map<std::string, std::string>& env = {});
  void StartOnThreeHosts(const std::string& job) { Start(job, {"--hosts", kThreeHosts}); }
  // Seconds since Start. What a run takes for its first steps says how busy this machine is: bounds
  // of what else takes a start of ranks are held against it.
  double SinceStart() const { return NowSeconds() - started_s_; }

  // kill -9 of the first process there whose command line matches; fails the test if there is none.
  // Returns the rank that it was, or was to start; -1: none.
  int Kill(int host, const std::string& pattern);

  std::vector<StepMetrics> Steps() const { return MetricsOf(folder()); }
  std::vector<RunEvent> Events() const;
  std::string WeftdLog() const { return ReadText(folder() + "/logs/weftd.log"); }
  // Returns losses by step; every generation that did a step has to agree.
  std::map<int64_t, std::string> Curve() const { return CurveIn(folder()); }
  // The same of another run folder.
  static std::map<int64_t, std::string> CurveIn(const std::string& run_folder);
  // Waits for a step that is not earlier, of a generation that is not earlier.
  bool WaitForStep(int64_t step, int64_t generation = 1, double timeout_s = 180) const;
  int64_t LastGeneration() const;
  // Waits for the first step of a generation after `generation`. Returns the seconds from when the
  // coordinator had the proof that the one before is over, as its events and its log say: the last
  // end, or the last agent that came with nothing. -1: it never trained again.
  double SecondsToTrainAgain(int64_t generation, double timeout_s) const;
  // The run's words and logs, for a failure's text.
  std::string Words() const;
  void ExpectEnd(int code = 0);
  void StopAndExpectEnd();
  // The same layout on host 1 alone, trained once for each number of steps.
  std::map<int64_t, std::string> CurveOfOneHost(int64_t steps = kSteps);
  // No loss differs by more than 1e-5 of itself from the curve's.
  static void ExpectNear(const std::map<int64_t, std::string>& curve,
                         const std::vector<StepMetrics>& steps);
  void ExpectNear(const std::map<int64_t, std::string>& curve) const { ExpectNear(curve, Steps()); }

  HostBed* bed_ = nullptr;
  std::unique_ptr<Child> run_;

 private:
  double started_s_ = 0;
};

}  // namespace weft
