#include "tests/worker/rank_threads.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plan/errors.h"
#include "tests/worker/backend/thread_comm.h"
#include "worker/backend/cpu/device_cpu.h"
#include "worker/train/step_report.h"

namespace weft {
namespace {

// English-looking text, so that a loss has something to fall to.
void WriteText(const std::string& path, int64_t words, uint32_t seed) {
  static constexpr const char* kWords[] = {"the",    "thread", "runs",    "across",  "warp", "and",
                                           "makes",  "cloth",  "of",      "it",      "loom", "a",
                                           "weaver", "pulls",  "shuttle", "through", "night"};
  std::ofstream file(path);
  uint32_t state = seed;
  for (int64_t word = 0; word < words; ++word) {
    state = state * 1664525 + 1013904223;
    file << kWords[(state >> 16) % std::size(kWords)] << (word % 11 == 10 ? ".\n" : " ");
  }
}

// The coordinator's part of a save: rank 0 gets all records once all are durable, and all ranks
// learn how it ended.
class ShardTable {
 public:
  explicit ShardTable(int world) : world_(world) {}

  absl::StatusOr<std::vector<ShardRecord>> Exchange(int rank, const SaveId& save,
                                                    const absl::StatusOr<ShardRecord>& shard) {
    std::unique_lock lock(mutex_);
    Told& told = saves_[save.number];
    told.shards.emplace(rank, shard);
    changed_.notify_all();
    if (rank != 0) return std::vector<ShardRecord>();
    const bool all = changed_.wait_for(
        lock, kPatience, [&] { return static_cast<int>(told.shards.size()) == world_; });
    if (!all) return absl::DeadlineExceededError("not all shards came");
    std::vector<ShardRecord> records;
    for (const auto& [from, record] : told.shards) {
      if (!record.ok() && !told.end) {
        told.end = SaveEnd{false, std::string(record.status().message())};
      }
      if (record.ok()) records.push_back(*record);
    }
    changed_.notify_all();
    return told.end ? std::vector<ShardRecord>() : records;
  }

  void Committed(const SaveId& save, const absl::StatusOr<std::string>& folder) {
    const std::lock_guard lock(mutex_);
    saves_[save.number].end = SaveEnd{folder.ok(), std::string(folder.status().message())};
    changed_.notify_all();
  }

  absl::StatusOr<SaveEnd> Over(const SaveId& save) {
    std::unique_lock lock(mutex_);
    const Told& told = saves_[save.number];
    if (changed_.wait_for(lock, kPatience, [&] { return told.end.has_value(); })) return *told.end;
    return absl::DeadlineExceededError("the save is not over");
  }

 private:
  static constexpr std::chrono::seconds kPatience{60};
  struct Told {
    std::map<int, absl::StatusOr<ShardRecord>> shards;  // by rank
    std::optional<SaveEnd> end;
  };
  const int world_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, Told> saves_;  // by number; guarded by mutex_
};

// Copies a shard's box into the whole tensor.
void Assemble(const TensorShard& shard, absl::Span<const float> values,
              std::map<std::string, std::vector<float>>& tensors) {
  std::vector<float>& whole = tensors[shard.tensor.name];
  whole.resize(static_cast<size_t>(shard.tensor.elements()));
  const bool is_matrix = shard.tensor.is_matrix();
  const int64_t rows = is_matrix ? shard.end[0] - shard.begin[0] : 1;
  const int64_t cols = shard.end.back() - shard.begin.back();
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t global_row = is_matrix ? shard.begin[0] + row : 0;
    for (int64_t col = 0; col < cols; ++col) {
      whole[static_cast<size_t>(global_row * shard.tensor.dims.back() + shard.begin.back() + col)] =
          values[static_cast<size_t>(row * cols + col)];
    }
  }
}

absl::Status TrainRank(const RankThreads& run, int rank, Comm& comm, ShardTable& table,
                       std::mutex& mutex, TrainingOutcome& outcome) {
  const auto index = static_cast<size_t>(rank);
  const std::unique_ptr<Device> cpu =
      MakeCpuDevice({.threads = run.assignment.job.threads_per_worker});
  std::unique_ptr<Device> device_wrapper;
  std::unique_ptr<Comm> comm_wrapper;
  if (run.wrap_device) device_wrapper = run.wrap_device(rank, *cpu);
  if (run.wrap_comm) comm_wrapper = run.wrap_comm(rank, comm);
  int64_t step = 0;
  RunHooks hooks;
  hooks.computes_by = run.computes_by;
  hooks.ready = [&](int64_t after_step, int64_t allocated_bytes, int64_t planned_bytes) {
    step = after_step + 1;
    outcome.allocated_bytes[index] = allocated_bytes;
    outcome.planned_bytes[index] = planned_bytes;
  };
  hooks.step_done = [&](const StepReport& report) {
    step = report.step + 1;
    outcome.reports[index].push_back(report);
  };
  if (run.stop_requested) {
    hooks.stop_requested = [&] { return run.stop_requested(rank, step); };
  }
  if (run.begin) hooks.begin = [&] { return run.begin(rank); };
  if (run.failed) hooks.failed = [&](const absl::Status& why, bool) { run.failed(rank, why); };
  hooks.exchange_shards = [&](const SaveId& save, const absl::StatusOr<ShardRecord>& shard) {
    if (run.shard_written) run.shard_written(rank, save);
    return table.Exchange(rank, save, shard);
  };
  hooks.committed = [&](const SaveId& save, const absl::StatusOr<std::string>& folder) {
    if (folder.ok()) outcome.committed.push_back(*folder);
    table.Committed(save, folder);
  };
  hooks.save_over = [&](const SaveId& save) {
    if (run.awaits_save_over) run.awaits_save_over(rank, save);
    absl::StatusOr<SaveEnd> end = table.Over(save);
    if (run.save_over) run.save_over(rank, save);
    return end;
  };
  hooks.warn = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    outcome.warnings.push_back(absl::StrCat("rank ", rank, ": ", text));
  };
  hooks.rest = [](std::chrono::milliseconds) {};
  ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer,
                   Trainer::Create(run.assignment, rank, device_wrapper ? *device_wrapper : *cpu,
                                   comm_wrapper ? *comm_wrapper : comm, std::move(hooks)));
  outcome.differences[index].assign(trainer->differences().begin(), trainer->differences().end());
  outcome.attention[index] = trainer->attention();
  ASSIGN_OR_RETURN(outcome.results[index], trainer->Run());
  const std::lock_guard lock(mutex);
  trainer->ForEachShard(
      [&](const TensorShard& shard, ShardKind kind, absl::Span<const float> values) {
        if (!shard.primary) return;
        Assemble(shard, values, kind == ShardKind::kWeight ? outcome.weights : outcome.gradients);
      });
  return absl::OkStatus();
}

double Norm(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return std::sqrt(sum);
}

}  // namespace

TestFolder::TestFolder() {
  static std::atomic<int> count = 0;
  path_ = absl::StrCat(testing::TempDir(), "weft-worker-test-", getpid(), "-", count++);
  std::filesystem::create_directories(path_);
}

TestFolder::~TestFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TestFolder::Make(const std::string& name) const {
  std::string folder = absl::StrCat(path_, "/", name);
  std::filesystem::create_directories(folder);
  return folder;
}

JobSpec SmallJob(const std::string& folder) {
  JobSpec job;
  job.name = "run";
  job.output_dir = folder;
  job.model = {.vocab_size = 256,
               .hidden_size = 64,
               .num_blocks = 4,
               .num_heads = 4,
               .num_kv_heads = 4,
               .head_dim = 16,
               .ffn_size = 256,
               .max_positions = 48};
  SetArchitecture(Architecture::kGpt2, job.model);
  WriteText(folder + "/train.txt", 4000, 1);
  WriteText(folder + "/valid.txt", 1000, 2);
  job.data.train = {{folder + "/train.txt"}};
  job.data.valid = {{folder + "/valid.txt"}};
  job.training.seq_len = 32;
  job.training.global_batch_size = 8;
  job.training.steps = 20;
  job.training.seed = 1234;
  job.optimizer.lr = 1e-3;
  job.lr_scheduler.type = LrSchedule::kConstant;
  job.lr_scheduler.warmup_steps = 1;
  job.cluster.name = "test";
  job.cluster.slots_per_node = 16;
  job.cluster.device = {.name = "cpu",
                        .memory_bytes = int64_t{1} << 30,
                        .peak_flops_per_s = {.fp32 = 1e9},
                        .peak_memory_bytes_per_s = 1e9};
  job.cluster.intra_node = {.latency_s = 1e-6, .bytes_per_s = 1e9};
  job.cluster.inter_node = job.cluster.intra_node;
  return job;
}

JobSpec SmallLlamaJob(const std::string& folder, int64_t kv_heads) {
  JobSpec job = SmallJob(folder);
  SetArchitecture(Architecture::kLlama, job.model);
  job.model.num_kv_heads = kv_heads;
  job.model.head_dim = 24;
  job.model.ffn_size = 176;
  job.model.tied_embeddings = false;
  return job;
}

Layout MakeLayout(int dp, int tp, int pp, ScheduleKind schedule, int64_t micro_batch_size,
                  const JobSpec& job) {
  return {.dp = dp,
          .pp = pp,
          .tp = tp,
          .pp_schedule = schedule,
          .micro_batch_size = micro_batch_size,
          .gradient_accumulation_steps = job.training.global_batch_size / dp / micro_batch_size};
}

std::vector<Layout> ZeroLayouts(const JobSpec& job) {
  std::vector<Layout> layouts = {MakeLayout(2, 2, 2, k1f1b, 2, job),
                                 MakeLayout(3, 1, 1, k1f1b, 2, job),
                                 MakeLayout(4, 1, 1, k1f1b, 1, job)};
  layouts[0].zero_stage = 1;
  layouts[1].zero_stage = 2;
  layouts[2].zero_stage = 3;
  layouts[2].zero_hpz_partition_size = 2;
  return layouts;
}

absl::Status TrainingOutcome::status() const {
  for (const absl::Status& each : statuses) {
    if (!each.ok()) return each;
  }
  return absl::OkStatus();
}

std::vector<double> TrainingOutcome::losses() const {
  std::vector<double> values;
  for (const StepReport& report : reports.front()) values.push_back(report.loss);
  return values;
}

std::vector<double> TrainingOutcome::grad_norms() const {
  std::vector<double> values;
  for (const StepReport& report : reports.front()) values.push_back(report.grad_norm);
  return values;
}

TrainingOutcome Train(const RankThreads& run) {
  const int world = run.assignment.layout.world_size();
  const auto size = static_cast<size_t>(world);
  const auto comms = MakeThreadComms(world, {.comm = {.timeout_ms = run.timeout_ms}});
  TrainingOutcome outcome;
  outcome.statuses.resize(size);
  outcome.results.resize(size);
  outcome.reports.resize(size);
  outcome.allocated_bytes.resize(size);
  outcome.differences.resize(size);
  outcome.attention.resize(size);
  outcome.planned_bytes.resize(size);
  ShardTable table(world);
  std::mutex mutex;  // guards outcome.weights, outcome.gradients
  std::vector<std::jthread> threads;
  threads.reserve(size);
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      const auto index = static_cast<size_t>(rank);
      outcome.statuses[index] = TrainRank(run, rank, *comms[index], table, mutex, outcome);
      if (outcome.statuses[index].ok()) return;
      for (const auto& comm : comms) comm->Interrupt("a rank of the test has failed");
    });
  }
  threads.clear();  // joins
  return outcome;
}

TrainingOutcome TrainWith(const JobSpec& job, const Layout& layout, const std::string& run_folder,
                          const std::string& load_checkpoint) {
  RankThreads run;
  run.assignment = {.job = job,
                    .layout = layout,
                    .run_folder = run_folder,
                    .load_checkpoint = load_checkpoint,
                    .run = {"00000000000000aa", {}}};
  return Train(run);
}

double RelativeDifference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(a[i] - b[i]) / std::abs(b[i]));
  }
  return worst;
}

double GradientDifference(const TrainingOutcome& a, const TrainingOutcome& b) {
  double all = 0;
  for (const auto& [name, values] : b.gradients) all = std::hypot(all, Norm(values));
  double worst = a.gradients.size() == b.gradients.size() && all > 0
                     ? 0
                     : std::numeric_limits<double>::infinity();
  for (const auto& [name, values] : b.gradients) {
    std::vector<float> difference = a.gradients.at(name);
    for (size_t i = 0; i < values.size(); ++i) difference[i] -= values[i];
    worst = std::max(worst, Norm(difference) / std::max(Norm(values), 1e-3 * all));
  }
  return worst;
}

std::vector<std::string> Bits(const std::vector<StepReport>& reports) {
  std::vector<std::string> lines;
  lines.reserve(reports.size());
  for (const StepReport& report : reports) {
    lines.push_back(
        absl::StrFormat("%d %a %a %a", report.step, report.loss, report.grad_norm, report.lr));
  }
  return lines;
}

}  // namespace weft
