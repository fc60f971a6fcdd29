// Runs a whole training job with its ranks as threads of this process: real trainers, the CPU
// device, thread_comm instead of MPI, and a stand-in for the coordinator's part of a save.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/train/step_report.h"
#include "worker/train/trainer.h"

namespace weft {

// A folder of its own for a test, removed at its end.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string Make(const std::string& name) const;  // a new folder in it

 private:
  std::string path_;
};

// A GPT-2 small enough for a test: D 64, 4 blocks, 4 heads, bytes as tokens, T 32, batch of 8.
// Trains on text in `folder`, which it writes; output_dir is `folder`.
JobSpec SmallJob(const std::string& folder);

// The same as a Llama, with heads of 24 that are not D / H and a head of its own.
JobSpec SmallLlamaJob(const std::string& folder, int64_t kv_heads = 2);

// Tables of layouts name schedules so.
inline constexpr ScheduleKind kGpipe = ScheduleKind::kGpipe;
inline constexpr ScheduleKind k1f1b = ScheduleKind::kOneForwardOneBackward;
inline constexpr ScheduleKind kInterleaved = ScheduleKind::kInterleaved;
inline constexpr ScheduleKind kZeroBubble = ScheduleKind::kZeroBubbleH1;

Layout MakeLayout(int dp, int tp, int pp, ScheduleKind schedule, int64_t micro_batch_size,
                  const JobSpec& job);

// ZeRO 1 over 2 data ranks with tp 2 and pp 2, ZeRO 2 over 3, ZeRO 3 over 4 in groups of 2: three
// ways to cut an optimizer's states, 3 of whose ranks divide no size of SmallJob's.
std::vector<Layout> ZeroLayouts(const JobSpec& job);

struct RankThreads {
  Assignment assignment;
  // Each may be empty. Asked at rank's step in progress:
  std::function<bool(int rank, int64_t step)> stop_requested;
  // A test's own Device or Comm around the real one, for planted bugs.
  std::function<std::unique_ptr<Comm>(int rank, Comm& inner)> wrap_comm;
  std::function<std::unique_ptr<Device>(int rank, Device& inner)> wrap_device;
  std::function<void(int rank, const absl::Status& why)> failed = {};
  std::function<absl::Status(int rank)> begin = {};
  // Around a save: this rank has written its shard, or could not; from here it waits for the end;
  // it is over for this rank.
  std::function<void(int rank, const SaveId&)> shard_written = {};
  std::function<void(int rank, const SaveId&)> awaits_save_over = {};
  std::function<void(int rank, const SaveId&)> save_over = {};
  int64_t timeout_ms = 60000;  // of one collective: it only ends a test that has failed
  std::map<std::string, std::string> computes_by = {};
};

struct TrainingOutcome {
  std::vector<absl::Status> statuses;            // by rank
  std::vector<RunResult> results;                // by rank
  std::vector<std::vector<StepReport>> reports;  // by rank, by step
  std::vector<int64_t> allocated_bytes, planned_bytes;
  std::vector<std::string> committed;                 // step folders, in order
  std::vector<std::string> warnings;                  // "rank 1: step 10 is not saved: ..."
  std::vector<std::vector<std::string>> differences;  // by rank: Trainer::differences
  std::vector<std::string> attention;                 // by rank: Trainer::attention
  // Assembled from primary shards of all data ranks; gradients are of the last step.
  std::map<std::string, std::vector<float>> weights, gradients;

  absl::Status status() const;  // the first failure by rank, or OK
  std::vector<double> losses() const;
  std::vector<double> grad_norms() const;
};

TrainingOutcome Train(const RankThreads& run);
// The plain case: no wrappers, nobody stops it.
TrainingOutcome TrainWith(const JobSpec& job, const Layout& layout, const std::string& run_folder,
                          const std::string& load_checkpoint = "");

// Largest |a - b| / |b|; infinity if the lengths differ.
double RelativeDifference(const std::vector<double>& a, const std::vector<double>& b);

// Worst tensor of ||a - b|| / max(||b||, 1e-3 ||B||), B all gradients: one that is zero in truth
// (the key bias) is judged against all of them. Infinity if the tensors differ.
double GradientDifference(const TrainingOutcome& a, const TrainingOutcome& b);

// Step, loss, norm and learning rate of each report, all bits of them; time is no part of it.
std::vector<std::string> Bits(const std::vector<StepReport>& reports);

}  // namespace weft
