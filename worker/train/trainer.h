// Trainer: one rank's training. A reader starts here: Create builds everything a rank needs from
// the job and the layout (with the planner's own pure functions), Run runs steps until the end or
// an agreed stop. The trainer knows the backend only as Device and Comm, and the coordinator only
// as RunHooks. Used by one thread.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/checkpoint.h"
#include "plan/schedule/schedule.h"
#include "plan/shards/shard.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/layout.h"
#include "process/progress_page.h"
#include "worker/backend/comm.h"
#include "worker/backend/device.h"
#include "worker/train/step_report.h"

namespace weft {

class Adafactor;
class Arena;
class Batches;
class Janitor;
class MetricsFile;
class Parameters;
class RankGroups;
class Stage;
class StateSwapper;
class UpdateGuard;
class Zero;

// An Assignment is what one rank is told to do: Train of agent.proto, as values.
struct Assignment {
  JobSpec job;
  Layout layout;
  int64_t generation = 1;
  std::string run_folder;       // absolute
  std::string load_checkpoint;  // absolute step folder; empty: initial weights
  RunIdentity run = {};         // for manifests
};

struct RunResult {
  int64_t step = 0;      // last step done
  bool stopped = false;  // before training.steps
};

// Tells the saves of a generation apart: a step may be tried again.
struct SaveId {
  int64_t number = 0;  // counted from 1, by every rank alike
  int64_t step = 0;
};

// How a save ended, the same for all ranks.
struct SaveEnd {
  bool committed = false;
  std::string reason;  // unless committed
};

// How the trainer talks to the world. Every hook may be empty (tests), but those of a save only on
// a single rank.
struct RunHooks {
  // Says by what this rank computes, as far as bits depend on it ("device", "libraries"). Rank 0's
  // goes into checkpoints.
  std::map<std::string, std::string> computes_by;
  // Ranks of this host, this one too, that are bound to the CPUs that it may run on; 0: none is.
  int cpu_sharers = 0;
  // Polled once per step; one rank's true stops all ranks at that step's end.
  std::function<bool()> stop_requested;
  // The same for a checkpoint: all ranks save at that step's end, and go on.
  std::function<bool()> save_requested;
  // The same where the coordinator is away for longer than a lease: a save that comes due waits for
  // the first step at whose end nobody misses it.
  std::function<bool()> coordinator_is_away;
  std::function<void(int64_t after_step, int64_t allocated_bytes, int64_t planned_bytes)> ready;
  // Waits until every rank is ready, however slowly one loads: no collective, and so no deadline of
  // one, runs meanwhile.
  std::function<absl::Status()> begin;
  std::function<void(const StepReport&)> step_done;
  // Reports this rank's durable shard, or why it has none. On rank 0: waits until every rank has
  // reported; then all shards, by rank, once the coordinator has granted the commit, or {} if some
  // rank has none. Elsewhere: returns {}.
  std::function<absl::StatusOr<std::vector<ShardRecord>>(const SaveId&,
                                                         const absl::StatusOr<ShardRecord>&)>
      exchange_shards;
  // Rank 0: the step folder, or why the commit failed.
  std::function<void(const SaveId&, const absl::StatusOr<std::string>& folder)> committed;
  // Waits until the save is over for all ranks, however slow one is: no collective, and so no
  // deadline of one, runs meanwhile.
  std::function<absl::StatusOr<SaveEnd>(const SaveId&)> save_over;
  // Says, for the log, what went wrong and was survived; called from any thread.
  std::function<void(const std::string& text)> warn = {};
  // Instead of sleeping, between tries of a last save.
  std::function<void(std::chrono::milliseconds)> rest = {};
  // Why Create or Run is about to fail, before anything is freed: that may wait for a device which
  // waits for peers that do not come. `loading`: the checkpoint could not be read. Need not return.
  std::function<void(const absl::Status& why, bool loading)> failed = {};
  // The rank's page, which outlives the trainer. Null: nobody looks.
  ProgressWriter* progress = nullptr;
  // For tests: this rank leaves out the reduction over all ranks in this step. 0: in none.
  int64_t skips_reduction_in_step = 0;
};

enum class ShardKind { kWeight, kGradient };

class Trainer final {
 public:
  // Collective. Builds groups, allocates the arena, loads the checkpoint or makes initial weights.
  // `device` and `comm` outlive the trainer.
  // InvalidArgument for what cannot be trained; FailedPrecondition if the memory is not there, or
  // if the checkpoint belongs to other data, seed or batches; DataLoss if it is damaged.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const Assignment& assignment, int rank,
                                                         Device& device, Comm& comm,
                                                         RunHooks hooks);
  ~Trainer();

  // Collective. From the step after the loaded checkpoint to training.steps, saving and validating
  // at their intervals, and at the end. A save that fails is tried again at the next interval; at
  // the end it is tried for a while. A step whose loss or norm is not finite changes nothing.
  // FailedPrecondition if UpdateGuard sees too many of them, if a validation loss is not finite, or
  // if the last step could not be saved.
  absl::StatusOr<RunResult> Run();

  // Visits the weights that this rank owns, and their gradients of the last step (summed over the
  // data group, not clipped), in boxes, row-major. For tests that assemble and compare them.
  void ForEachShard(const std::function<void(const TensorShard& shard, ShardKind kind,
                                             absl::Span<const float> values)>& visit) const;

  // Says by what this rank's device computes attention, for the log; may be empty.
  const std::string& attention() const { return attention_; }

  // Where the checkpoint that it goes on from was computed by something else, on rank 0 of a run
  // whose bits are promised to repeat; for the log.
  absl::Span<const std::string> differences() const { return differences_; }

  int64_t allocated_bytes() const;  // on the device
  int64_t host_bytes() const;       // allocated for what is offloaded
  int64_t planned_bytes() const { return planned_bytes_; }

 private:
  Trainer(const Assignment& assignment, Device& device, RunHooks hooks);

  absl::Status Prepare(int rank, Comm& comm);
  absl::Status OpenData();
  absl::Status Allocate(int rank);
  absl::Status LoadOrInitialize();

  absl::StatusOr<RunResult> RunSteps();
  absl::StatusOr<StepReport> Step(int64_t step);
  absl::Status Do(const Action& action, const StepReport& report);
  absl::Status ReduceParts();
  absl::Status ReduceNorm(int64_t step);
  absl::Status Update(const StepReport& report);
  absl::Status ReadTotals(StepReport& report);
  absl::StatusOr<double> Validate();
  absl::StatusOr<SaveEnd> Save(int64_t step);
  absl::StatusOr<SaveEnd> SaveAtLast(int64_t step, bool stopping);
  absl::StatusOr<std::string> Commit(int64_t step, std::vector<ShardRecord> shards);
  void Warn(const std::string& text) const;

  const JobSpec job_;
  const Layout layout_;
  const int64_t generation_;
  const std::string run_folder_;
  const std::string checkpoint_folder_;
  const std::string load_checkpoint_;
  const RunIdentity run_;
  Device& device_;
  const RunHooks hooks_;
  ProgressWriter unseen_;
  ProgressWriter& progress_;

  // A step adds these up on the device, [1, 1] each: the host reads them once, when the whole step
  // is queued.
  struct Totals {
    View all;      // [kStepTotals, 1]: those that follow
    View loss;     // sum of the cross-entropy over the step's tokens
    View squares;  // of the gradients' elements
    View wishes;   // kStopWish of each rank that asks for a stop, kSaveWish for a checkpoint
    View scale;    // Device::GradientScale
    View sums;     // all but the scale
  };

  std::unique_ptr<Arena> arena_;  // before the groups: goes after what they have under way
  std::unique_ptr<RankGroups> groups_;
  Totals totals_;
  std::unique_ptr<Batches> batches_;
  std::unique_ptr<Batches> valid_batches_;  // null: no validation
  std::unique_ptr<Parameters> parameters_;
  std::unique_ptr<StateSwapper> swapper_;
  std::unique_ptr<Zero> zero_;
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<Adafactor> adafactor_;  // null: another optimizer
  std::unique_ptr<UpdateGuard> guard_;
  std::unique_ptr<MetricsFile> metrics_;  // rank 0 only
  std::unique_ptr<Janitor> janitor_;      // rank 0 only
  std::vector<Action> schedule_;          // the very list the planner priced
  std::vector<Action> evaluation_;
  std::vector<std::string> texts_, evaluation_texts_;  // of their groups' first actions
  std::vector<int> weights_used_, weights_evaluated_;  // buckets, in the order of their passes
  int64_t planned_bytes_ = 0;
  std::string attention_;
  std::vector<std::string> differences_;
  int64_t after_step_ = 0;    // step of the loaded checkpoint
  int64_t saves_ = 0;         // tried in this generation
  bool put_off_ = false;      // a save came due while the coordinator was away
  int64_t unsaved_step_ = 0;  // the last one whose save was given up; 0: none was
  bool loading_ = false;
  double loss_scale_ = 1;  // of the last step's gradients
};

}  // namespace weft
