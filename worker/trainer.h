// Trainer: one rank's training. A reader starts here: Create builds everything a rank needs from
// the job and the layout (with the planner's own pure functions), Run runs steps until the end or
// an agreed stop. The trainer knows the backend only as Device and Comm, and the coordinator only
// as RunHooks. Used by one thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/checkpoint.h"
#include "plan/job_spec.h"
#include "plan/layout.h"
#include "worker/backend/comm.h"
#include "worker/backend/device.h"

namespace weft {

// What one rank is told to do: Train of agent.proto, as values.
struct Assignment {
  JobSpec job;
  Layout layout;
  int64_t generation = 1;
  std::string run_folder;       // absolute
  std::string load_checkpoint;  // absolute step folder; empty: initial weights
};

// Loss and norm are the same on every rank.
struct StepReport {
  int64_t step = 0;
  double loss = 0;  // mean over the counted tokens of the global batch
  double grad_norm = 0;
  double lr = 0;
  int64_t tokens = 0;
  double step_s = 0;
  std::optional<double> valid_loss;
  bool stopping = false;  // all ranks agreed to save and stop after this step
};

struct RunResult {
  int64_t step = 0;      // last step done
  bool stopped = false;  // before training.steps
};

// How the trainer talks to the world. Every hook may be empty (tests).
struct RunHooks {
  // Polled once per step; one rank's true stops all ranks at that step's end.
  std::function<bool()> stop_requested;
  std::function<void(int64_t after_step, int64_t allocated_bytes, int64_t planned_bytes)> ready;
  std::function<void(const StepReport&)> step_done;
  // Reports this rank's durable shard. On rank 0: waits until all shards of `step` are durable and
  // the coordinator has granted the commit, and returns them all, by rank. Elsewhere: returns {}.
  std::function<absl::StatusOr<std::vector<ShardRecord>>(int64_t step, const ShardRecord&)>
      exchange_shards;
  std::function<void(int64_t step, const std::string& folder)> committed;  // rank 0
};

class Trainer {
 public:
  // Collective. Builds groups, allocates the arena, loads the checkpoint or makes initial weights.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const Assignment& assignment, int rank,
                                                         Device& device, Comm& comm,
                                                         RunHooks hooks);
  virtual ~Trainer() = default;

  // Collective. From the step after the loaded checkpoint to training.steps, saving and validating
  // at their intervals, and at the end.
  virtual absl::StatusOr<RunResult> Run() = 0;
};

}  // namespace weft
