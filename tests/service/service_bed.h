// ServiceBed: a weftd that serves many jobs and one standing agent, as real processes in a folder
// under /tmp, and a client of weft.v1. Each test makes one; at its end nothing of it is left.
#pragma once
#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/weft/v1/control.grpc.pb.h"
#include "tests/end_to_end/child.h"
#include "tests/end_to_end/step_metrics.h"
#include "tests/end_to_end/tiny_model.h"
#include "tests/places.h"

namespace weft {

class ServiceBed : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  void StartWeftd();
  void StartHost(int slots);
  void StopWeftd() { EndWeftd(SIGTERM); }
  void EndWeftd(int signal);
  const std::string& WeftdPath() const { return weftd_path_; }
  // weftds that are started from now on are this program.
  void UseWeftd(const std::string& path) { weftd_path_ = path; }
  // Asks the weftd that answers.
  std::string WeftdVersion();
  // Runs it to its end; returns what it has written.
  std::string Run(const std::vector<std::string>& words);
  // kill -9, and another one on the same state.
  void KillWeftd();
  // The ranks and agents that run are found by their command's first words: "weft-worker ".
  std::vector<Found> Processes(const std::string& program) const;
  // Signals the standing agent alone, waits for its end, and starts another one.
  void RestartHost(int signal, int slots);
  // The first part of it.
  void EndHost(int signal);
  // The folder is there, and nothing has been started in it yet.
  virtual void PrepareFolder() {}
  // The command lines that StartWeftd and StartHost start.
  virtual std::vector<std::string> WeftdWords() const;
  virtual std::vector<std::string> HostWords(int slots) const;
  // Ranks are told of their pace by this (tiny_model.h).
  virtual const char* Pace() const { return kPace; }

  // A tiny GPT-2 on real text on one host of so many slots, in a run folder of its own.
  v1::SubmitRequest Job(const std::string& name, int slots, int64_t steps, int priority = 0);
  // The same as the text of a job file.
  std::string JobFileText(const std::string& name, int slots, int64_t steps) const;
  // Each wish has an id of its own.
  std::string Submit(const v1::SubmitRequest& request);
  v1::Job Get(const std::string& job);
  absl::Status Stop(const std::string& job, v1::StopRequest::Level level);
  absl::Status Checkpoint(const std::string& job);
  absl::Status Pause(const std::string& job);
  absl::Status Resume(const std::string& job);
  v1::Host Host();
  std::string NewId() { return "wish-" + std::to_string(++wishes_); }
  v1::Control::Stub& control() { return *control_; }

  // Asks until the job is so; fails the test after `timeout_s`.
  v1::Job WaitFor(const std::string& job, const std::function<bool(const v1::Job&)>& is_so,
                  double timeout_s = 180);
  v1::Job WaitForPhase(const std::string& job, const std::string& phase, double timeout_s = 180);
  v1::Job WaitForStep(const std::string& job, int64_t step, double timeout_s = 180);
  // Last loss of each step in the run folder's metrics, as bits.
  std::map<int64_t, std::string> Curve(const std::string& name) const {
    return CurveOf(folder_ + "/" + name);
  }
  // The same of a job that nothing is done to, for so many steps; trained by the first test of the
  // process that asks. REQUIRES: a host of so many slots, of which none is used.
  std::map<int64_t, std::string> UndisturbedCurve(int slots, int64_t steps);
  // All events of a job from `after_revision` until it is over.
  std::vector<v1::Event> Events(const std::string& job, int64_t after_revision = 0);

  // All that Logs tells, by file.
  std::map<std::string, std::string> Logs(const v1::LogsRequest& request);

  const std::string& folder() const { return folder_; }
  std::string socket() const { return folder_ + "/weftd.sock"; }
  std::string Words() const;

 private:
  void Connect();
  std::unique_ptr<Child> Start(const std::string& name, std::vector<std::string> arguments);

  std::string folder_;
  std::string weftd_path_ = BinaryPath("/bin/weftd");
  int started_ = 0;
  int wishes_ = 0;
  std::unique_ptr<Child> weftd_;
  std::unique_ptr<Child> host_;
  std::unique_ptr<v1::Control::Stub> control_;
};

}  // namespace weft
