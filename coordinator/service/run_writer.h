// RunWriter writes the files of the runs of placed jobs (process/run_files.h) as `weft run` does
// for its own, on a thread of its own: a disk that hangs keeps neither a job nor the fleet from
// going on. It watches each job's Driver from where the folder's events.jsonl ends. Thread-safe.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "coordinator/driver.h"
#include "coordinator/task_queue.h"
#include "proto/driver.pb.h"

namespace weft {

class RunWriter final {
 public:
  struct Run {
    std::string job_id;
    int64_t allocation = 0;
    proto::SubmitJobRequest request;  // as the Driver was told
    std::string version;              // of this build
    std::optional<uid_t> reader;      // the submitter, where that is another user of this host
    std::shared_ptr<Driver> driver;
    std::function<void(const std::string& what)> warn;  // what cannot be written
    // The Driver has told all, and it is written as far as it can be. FailedPrecondition: the job
    // is said to be completed, and its last checkpoint is not there.
    std::function<void(const absl::Status& end)> done;
  };

  RunWriter();
  ~RunWriter();
  // Writes what has come and ends the thread. REQUIRES: all Drivers are closed.
  void Close();
  // `warn` and `done` are called on the writer's thread.
  void Begin(Run run);

 private:
  struct Writing;
  void Loop();
  void Watch(const std::shared_ptr<Writing>& writing, int64_t after_revision);
  static void Take(Writing& writing, const proto::JobEvent& event);

  TaskQueue queue_;
  std::set<std::shared_ptr<Writing>> writing_;  // of the thread
  std::thread thread_;
};

}  // namespace weft
