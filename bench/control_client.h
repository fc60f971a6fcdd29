// The parts of control_bench share this: submissions of a small job, a client of weft.v1 that waits
// until weftd serves, and quantiles of what was measured.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/weft/v1/control.grpc.pb.h"

namespace weft {

struct ControlBenchOptions {
  std::string weftd;
  std::string folder;  // on the disk that is to be measured
  double seconds = 10;
  int in_flight = 64;
  int queued = 0;  // jobs that wait all the while
  int watchers = 200;
  int jobs = 50;
  int steps_per_s = 20;  // of each job
  int64_t records = 1000000;
  bool all_records = false;  // no snapshot stands for old ones
};

// Another connection for each, as different callers have.
absl::StatusOr<std::unique_ptr<v1::Control::Stub>> ConnectControl(const std::string& target);
// Asks until it answers, at most `limit_s`; returns the seconds that it took.
absl::StatusOr<double> WaitForControl(const std::string& target, double limit_s);

// A job of one rank on one host, with its run in `run_folder`.
v1::SubmitRequest SmallSubmission(const std::string& request_id, const std::string& run_folder);

double SecondsSince(std::chrono::steady_clock::time_point start);
// The share `rank` of the values is no larger: 0.99 is p99. REQUIRES: there is one.
double ValueAtShare(std::vector<double> values, double rank);

}  // namespace weft
