// TinyRun: a run folder of its own under /tmp, a small job on real text (the GNU GPL, which every
// Debian holds), and the `weft` binary of this build to run it. Each test makes one; at its end
// everything the run has started must be gone, which ExpectNothingLeft checks.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/end_to_end/child.h"
#include "tests/end_to_end/step_metrics.h"

namespace weft {

class TinyRun {
 public:
  // 4 workers (dp=2 x pp=2), 60 steps, a checkpoint every 10.
  static constexpr int kSteps = 60;
  // For --set: the run ends only once it is told to, however long that takes.
  static constexpr char kEndless[] = "training.steps=1000000";
  static constexpr int kInterval = 10;

  TinyRun();
  ~TinyRun();  // kills what is left, by pid, and removes the folder
  TinyRun(const TinyRun&) = delete;
  TinyRun& operator=(const TinyRun&) = delete;

  // Starts `weft <arguments...>`; its descendants carry a cookie of this run in the environment.
  std::unique_ptr<Child> Weft(const std::vector<std::string>& arguments);
  // `weft run <job> <more...>`.
  std::unique_ptr<Child> Run(const std::vector<std::string>& more = {});
  // The same where `folder` is mounted on `on`, too, for this run alone: in a mount namespace.
  std::unique_ptr<Child> RunWhereMounted(const std::string& folder, const std::string& on,
                                         const std::vector<std::string>& more = {});
  // The same as the last words of another command: {"/usr/bin/env", "NAME=value"}.
  std::unique_ptr<Child> RunUnder(std::vector<std::string> command,
                                  const std::vector<std::string>& more = {});
  // Runs it to its end within `timeout_s`; the test fails if it takes longer.
  struct Outcome {
    int exit_code = -1;
    std::string out;
    std::string err;
  };
  Outcome RunToEnd(const std::vector<std::string>& more = {}, double timeout_s = 240);
  static Outcome Finish(Child& child, double timeout_s);

  // Waits until the metrics show `step`; fails the test after `timeout_s`.
  void WaitForStep(int64_t step, double timeout_s = kPatienceS) const;
  std::vector<StepMetrics> Metrics() const { return MetricsOf(run_folder_); }
  // Last line of each step: step -> loss_hex.
  std::map<int64_t, std::string> Curve() const { return CurveOf(run_folder_); }
  int64_t LastStep() const;
  // Names of committed checkpoints: "step-10".
  std::set<std::string> Checkpoints() const;

  // Processes of this run whose program is named so ("weftd"); all if it is empty.
  std::vector<Found> Processes(const std::string& program = "") const;
  // No process, socket, shared-memory segment or temporary file of this run is left after at most
  // `timeout_s`.
  void ExpectNothingLeft(double timeout_s = kLeavesWithinS) const;

  const std::string& job_path() const { return job_path_; }
  const std::string& run_folder() const { return run_folder_; }

 private:
  std::unique_ptr<Child> Start(const std::vector<std::string>& command);
  std::set<std::string> LeftFiles() const;
  std::set<std::string> SharedFiles() const;

  std::string folder_;  // /tmp/weft-e2e-XXXXXX
  std::string job_path_;
  std::string run_folder_;
  int started_ = 0;
};

// loss_hex of every step of the same job when nothing disturbs it; trained once in this process.
const std::map<int64_t, std::string>& UndisturbedCurve();

}  // namespace weft
