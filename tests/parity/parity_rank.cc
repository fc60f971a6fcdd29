// This program is one rank of a parity run, started by mpirun, or all of them as threads, as
// job.json says: the worker's trainer on the backend as weft-worker loads it, without a
// coordinator. Usage: weft_parity_rank FOLDER, which holds job.json. Leaves there metrics.jsonl
// (rank 0), gradients/rank-<r>.safetensors (every tensor of every rank after step 1) and
// checkpoint/step-<N>.
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/checkpoint.h"
#include "plan/errors.h"
#include "plan/memory/memory.h"
#include "plan/shards/buckets.h"
#include "plan/spec/layout.h"
#include "plan/spec/layout_text.h"
#include "tests/parity/memory_trace.h"
#include "tests/parity/parity_job.h"
#include "tests/parity/planted.h"
#include "tests/worker/backend/thread_comm.h"
#include "tests/worker/painting_device.h"
#include "worker/backend/loader.h"
#include "worker/train/step_report.h"
#include "worker/train/trainer.h"

namespace weft {
namespace {

constexpr unsigned kMostSeconds = 150;
constexpr int64_t kCallMs = 20000;  // the longest that a collective may take

absl::Status SaveGradients(const Trainer& trainer, const std::string& folder, int rank) {
  std::vector<std::vector<float>> values;
  std::vector<TensorShard> shards;
  trainer.ForEachShard([&](const TensorShard& shard, ShardKind kind, absl::Span<const float> all) {
    if (kind != ShardKind::kGradient) return;
    shards.push_back(shard);
    values.emplace_back(all.begin(), all.end());
  });
  std::vector<BoxToSave> boxes;
  for (size_t i = 0; i < shards.size(); ++i) {
    const TensorShard& shard = shards[i];
    boxes.push_back({shard.tensor.name, shard.tensor.dims, shard.begin, shard.end, values[i]});
  }
  return WriteShard(folder, rank, boxes).status();
}

// The coordinator's part of a save: records go through files, a barrier says that all are there.
absl::StatusOr<std::vector<ShardRecord>> ExchangeShards(const std::string& folder,
                                                        const ShardRecord& shard, Comm& comm,
                                                        int world) {
  const auto path = [&](int rank) { return absl::StrCat(folder, "/record-", rank); };
  std::ofstream(path(comm.rank())) << shard.file << " " << shard.bytes << " " << shard.xxh3;
  RETURN_IF_ERROR(ToStatus(comm.Barrier(world)));
  std::vector<ShardRecord> records;
  for (int rank = 0; rank < comm.world_size() && comm.rank() == 0; ++rank) {
    ShardRecord record;
    std::ifstream(path(rank)) >> record.file >> record.bytes >> record.xxh3;
    records.push_back(record);
  }
  return records;
}

absl::Status Train(const ParityJob& parity, const std::string& folder, Device& device, Comm& comm) {
  std::vector<int> ranks(static_cast<size_t>(comm.world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  int world = -1;
  RETURN_IF_ERROR(
      ToStatus(comm.NewGroup(GroupUse::kBlocking, ranks.data(), comm.world_size(), &world)));
  const Trainer* at_work = nullptr;
  absl::Status saved;
  std::optional<MemoryRecorder> recorder;
  if (parity.counts_allocations) {
    ASSIGN_OR_RETURN(recorder, MemoryRecorder::Create(parity.job.training.steps));
  }
  RunHooks hooks;
  hooks.step_done = [&](const StepReport& report) {
    if (recorder.has_value()) recorder->StepDone();
    if (report.step == 1) saved = SaveGradients(*at_work, folder + "/gradients", comm.rank());
  };
  hooks.exchange_shards =
      [&](const SaveId&,
          const absl::StatusOr<ShardRecord>& shard) -> absl::StatusOr<std::vector<ShardRecord>> {
    RETURN_IF_ERROR(shard.status());
    return ExchangeShards(folder, *shard, comm, world);
  };
  hooks.save_over = [](const SaveId&) { return SaveEnd{.committed = true, .reason = ""}; };
  const Assignment assignment{
      .job = parity.job, .layout = parity.layout, .run_folder = folder, .load_checkpoint = ""};
  ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer,
                   Trainer::Create(assignment, comm.rank(), device, comm, std::move(hooks)));
  at_work = trainer.get();
  RETURN_IF_ERROR(trainer->Run().status());
  if (recorder.has_value()) {
    RETURN_IF_ERROR(
        recorder->Write(folder, comm.rank(), trainer->allocated_bytes() + trainer->host_bytes()));
  }
  return saved;
}

// Trains as Train does, on painted memory.
absl::Status TrainPainted(const ParityJob& parity, const std::string& folder, Device& device,
                          Comm& comm) {
  std::vector<std::string> findings;
  PaintingDevice painting(
      PlanRankMemory(parity.job.model, parity.job.batch(), parity.layout, comm.rank(),
                     parity.job.numerics()),
      ShardingOf(parity.layout).parts * BucketUnit(parity.job.numerics().optimizer), device,
      &findings);
  RETURN_IF_ERROR(Train(parity, folder, painting, comm));
  if (findings.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("rank ", comm.rank(), " of ", LayoutText(parity.layout),
                                          ": ", absl::StrJoin(findings, "; ")));
}

// Trains one rank as the job wants it: plain, behind planted bugs, or on painted memory.
absl::Status TrainRank(const ParityJob& parity, const std::string& folder, Device& device,
                       Comm& comm) {
  if (parity.wrapped || parity.bug != PlantedBug::kNone) {
    const PlantedBackend planted = Plant(parity, device, comm);
    return Train(parity, folder, *planted.device, *planted.comm);
  }
  if (parity.painted) return TrainPainted(parity, folder, device, comm);
  return Train(parity, folder, device, comm);
}

absl::StatusOr<Device*> OpenDevice(const ParityJob& parity, const BackendApi& api) {
  Device* device = nullptr;
  const DeviceOptions options{.threads = parity.job.threads_per_worker};
  RETURN_IF_ERROR(ToStatus(api.open_device(&options, &device)));
  return device;
}

absl::Status RunProcess(const ParityJob& parity, const std::string& folder, const BackendApi& api) {
  ASSIGN_OR_RETURN(Device* const device, OpenDevice(parity, api));
  Comm* comm = nullptr;
  const CommOptions options{.init_timeout_ms = 30000, .timeout_ms = kCallMs};
  RETURN_IF_ERROR(ToStatus(api.open_comm(&options, &comm)));
  RETURN_IF_ERROR(TrainRank(parity, folder, *device, *comm));
  api.close_comm(comm);
  api.close_device(device);
  return absl::OkStatus();
}

// The first rank that fails has failed by itself: it interrupts the others.
absl::Status RunThreads(const ParityJob& parity, const std::string& folder, const BackendApi& api) {
  const int world = parity.layout.world_size();
  const auto comms = MakeThreadComms(world, {.comm = {.timeout_ms = kCallMs}});
  std::mutex mutex;
  absl::Status first;  // guarded by mutex
  const auto run = [&](int rank) -> absl::Status {
    ASSIGN_OR_RETURN(Device* const device, OpenDevice(parity, api));
    const absl::Status status =
        TrainRank(parity, folder, *device, *comms[static_cast<size_t>(rank)]);
    api.close_device(device);
    return status;
  };
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      const absl::Status status = run(rank);
      if (status.ok()) return;
      {
        const std::lock_guard lock(mutex);
        first.Update(status);
      }
      for (const auto& comm : comms) comm->Interrupt("another rank has failed");
    });
  }
  threads.clear();  // joins
  return first;
}

absl::Status Run(const std::string& folder) {
  ASSIGN_OR_RETURN(const ParityJob parity, ReadParityJob(folder + "/job.json"));
  ASSIGN_OR_RETURN(const BackendApi* const api, LoadBackend(BackendKind::kCpu));
  if (parity.ranks == Ranks::kThreads) return RunThreads(parity, folder, *api);
  return RunProcess(parity, folder, *api);
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(weft::kMostSeconds);
  if (argc != 2) return 2;
  const absl::Status status = weft::Run(argv[1]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "weft_parity_rank: %s\n", status.ToString().c_str());
  return 1;
}
