// A rank puts into a checkpoint, and takes out of it, the boxes of the parameters that it owns and
// of their optimizer state. The files are checkpoint/'s, the protocol of a save is the trainer's.
#pragma once
#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/checkpoint.h"
#include "plan/spec/job_spec.h"
#include "worker/backend/device.h"
#include "worker/state/parameters.h"
#include "worker/train/batches.h"

namespace weft {

// Returns what has to be the same when a run is resumed, beyond the shapes of the tensors: seed,
// optimizer, batch, how files are read, and the fingerprint of each data file ("data.train[0]" ->
// "path size:hash").
std::map<std::string, std::string> RunFacts(const JobSpec& job, const Batches& batches);

// Returns what a reader of the checkpoint alone needs beside RunFacts, and a resume does not
// compare: how validation ran. `valid`: its data, null if there was none.
std::map<std::string, std::string> ReaderFacts(const JobSpec& job, const Layout& layout,
                                               const Batches* valid);

// Returns the keys that the run cannot change, with the launcher's values ("job.optimizer.lr" ->
// "0.001"), with which it compares the next job of the run; and where they were changed all the
// same.
std::map<std::string, std::string> MathematicsFacts(const RunIdentity& run);

// Returns by what the checkpoint's steps were computed ("libraries" -> "OpenBLAS 0.3.21 (SkylakeX),
// ..."), which a resume compares only to say so.
std::map<std::string, std::string> ComputationFacts(
    const std::map<std::string, std::string>& computes_by);
// Returns a line for the log for each of these that `manifest` states otherwise; what it does not
// state is no difference.
std::vector<std::string> OtherComputation(const Manifest& manifest,
                                          const std::map<std::string, std::string>& computes_by);

// FailedPrecondition naming the first fact of `facts` that `manifest` states otherwise, or does not
// state. A data file may have moved: its size and hash count, its path does not.
absl::Status CheckFacts(const Manifest& manifest, const std::map<std::string, std::string>& facts);

// Verifies the checkpoint and fills what this rank owns of master weights and optimizer states,
// whatever layout wrote them; weights that are rounded copies are the caller's. Returns its
// manifest. DataLoss if damaged.
absl::StatusOr<Manifest> LoadCheckpoint(const std::string& step_folder,
                                        const Parameters& parameters, Device& device);

// Fills what this rank owns of master weights with initial values (worker/state/initial_weights.h),
// by this process's share of the processors that it may use, of which this host has `local_ranks`.
void DrawInitialWeights(uint64_t seed, int local_ranks, const Parameters& parameters,
                        Device& device);

// The same from model.init_from: a step folder of any run of the same model, which is verified, or
// a Hugging Face directory. DataLoss if damaged; InvalidArgument or DataLoss naming the first
// tensor if it is of another model.
absl::Status LoadWeights(const std::string& folder, const ModelShape& model,
                         const Parameters& parameters, Device& device);

// One of `count` ranks that own the same.
struct Replica {
  int index = 0;
  int count = 1;
};

// OwnShard is what this rank writes into a checkpoint. Of replicas that hold the same box one
// writes it: primary boxes are dealt to whoever has the least so far.
class OwnShard {
 public:
  // Copies it to the host. Fails as the device does, which is no fault of the disk.
  static absl::StatusOr<OwnShard> Copy(const Replica& replica, const Parameters& parameters,
                                       Device& device);
  // Durably; fails as the disk does.
  absl::StatusOr<ShardRecord> Write(const std::string& stage_folder, int rank,
                                    const std::string& run_folder) const {
    return WriteShard(stage_folder, rank, boxes_, run_folder);
  }

 private:
  std::list<std::vector<float>> host_;  // what the boxes borrow
  std::vector<BoxToSave> boxes_;
};

}  // namespace weft
