// The ranks of a training run on the CUDA backend, as threads of a test: what each has opened, and
// jobs small enough for the emulation, which computes a product in a plain loop.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/gpu/tested_api.h"
#include "tests/gpu/thread_relay.h"
#include "tests/worker/passing_backend.h"
#include "tests/worker/rank_threads.h"
#include "worker/state/groups.h"

namespace weft {

// Owns what the ranks of one run opened.
class OpenedRanks {
 public:
  // `options`: of each device, but for which one.
  OpenedRanks(int world, TransportKind transport, const DeviceOptions& options)
      : transport_(transport), options_(options), ranks_(static_cast<size_t>(world)) {
    static std::atomic<int> count = 0;
    name_ = absl::StrCat("/weft-layouts-", getpid(), "-", count++);
  }
  ~OpenedRanks() {
    for (const Rank& rank : ranks_) {
      if (rank.comm != nullptr) TestedApi()->close_comm(rank.comm);
      if (rank.device != nullptr) TestedApi()->close_device(rank.device);
    }
  }
  OpenedRanks(const OpenedRanks&) = delete;
  OpenedRanks& operator=(const OpenedRanks&) = delete;

  // Sets what RankGroups of the layout to come say. REQUIRES: no OpenComm has been called.
  void SetStarts(const Layout& layout) {
    starts_calls_ = RankGroups::StartsCalls(layout);
    starts_beside_ = RankGroups::StartsBeside(layout);
  }

  std::unique_ptr<Device> OpenDevice(int rank) {
    DeviceOptions options = options_;
    options.local_index = rank;
    options.share_devices = true;
    Device*& device = ranks_[static_cast<size_t>(rank)].device;
    const BackendStatus status = TestedApi()->open_device(&options, &device);
    if (!status.ok()) ADD_FAILURE() << status.text;
    return status.ok() ? std::make_unique<PassingDevice>(*device) : nullptr;
  }
  // REQUIRES: OpenDevice succeeded.
  Device& device(int rank) { return *ranks_[static_cast<size_t>(rank)].device; }
  std::unique_ptr<Comm> OpenComm(int rank) {
    Rank& own = ranks_[static_cast<size_t>(rank)];
    if (own.device == nullptr) return nullptr;
    ThreadRelay relay(notes_, rank);
    const CommOptions options = {.init_timeout_ms = 60000,
                                 .timeout_ms = 60000,
                                 .rank = rank,
                                 .world_size = static_cast<int>(ranks_.size()),
                                 .rendezvous = name_.c_str(),
                                 .device = own.device,
                                 .relay = &relay,
                                 .transport = transport_,
                                 .rank_order = options_.deterministic,
                                 .starts_calls = starts_calls_,
                                 .starts_beside = starts_beside_};
    const BackendStatus status = TestedApi()->open_comm(&options, &own.comm);
    if (!status.ok()) ADD_FAILURE() << status.text;
    return status.ok() ? std::make_unique<PassingComm>(*own.comm) : nullptr;
  }

 private:
  struct Rank {  // each is its thread's
    Device* device = nullptr;
    Comm* comm = nullptr;
  };
  const TransportKind transport_;
  const DeviceOptions options_;
  bool starts_calls_ = false;
  bool starts_beside_ = false;
  ThreadNotes notes_;
  std::string name_;
  std::vector<Rank> ranks_;
};

// Trains on devices of `ranks`. `asked`: on each rank's thread once a step, when it is asked for a
// stop.
inline TrainingOutcome TrainOn(OpenedRanks& ranks, const JobSpec& job, const Layout& layout,
                               const std::string& folder,
                               const std::function<void(int rank)>& asked = {}) {
  ranks.SetStarts(layout);
  RankThreads run;
  run.assignment = {.job = job, .layout = layout, .run_folder = folder, .load_checkpoint = ""};
  run.wrap_device = [&](int rank, Device&) { return ranks.OpenDevice(rank); };
  run.wrap_comm = [&](int rank, Comm&) { return ranks.OpenComm(rank); };
  run.timeout_ms = 60000;
  if (asked) {
    run.stop_requested = [&](int rank, int64_t /*step*/) {
      asked(rank);
      return false;
    };
  }
  return Train(run);
}

inline JobSpec TinyJob(const TestFolder& folder, Architecture architecture) {
  JobSpec job = SmallJob(folder.path());
  SetArchitecture(architecture, job.model);
  job.model.num_kv_heads = architecture == Architecture::kLlama ? 2 : 4;
  job.model.hidden_size = 32;
  job.model.head_dim = 8;
  job.model.ffn_size = 64;
  job.training.seq_len = 16;
  job.training.steps = 3;
  return job;
}

}  // namespace weft
