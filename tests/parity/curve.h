// Curve: what a training run shows to the outside, and the one comparison by which the parity tests
// judge it, whoever produced it: a layout under mpirun or the NumPy model.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/parity/parity_job.h"

namespace weft {

struct Curve {
  std::vector<double> losses;                            // by step
  std::vector<double> grad_norms;                        // by step
  std::map<std::string, std::vector<double>> gradients;  // of step 1, whole tensors
  std::vector<std::string> loss_hex;                     // as metrics.jsonl has them
  std::vector<std::string> shard_hashes;  // of the last checkpoint, by rank; empty for NumPy
};

// Everything in `got` that is not as in `expected`, in words; empty: they agree. Losses within 1e-6
// and norms within 1e-5, relative; each gradient tensor within
// ||g - e|| <= 2e-6 max(||e||, 1e-3 ||E||), E all gradients: the key bias is zero in truth.
std::vector<std::string> Differences(const Curve& got, const Curve& expected);

// Trains under mpirun, one process per rank, at most about a minute. Fails if a rank does, if the
// checkpoint it leaves does not verify, or if copies of a gradient on several ranks are not
// bit-identical (except on purpose: with a planted bug they may be anything).
absl::StatusOr<Curve> TrainUnderMpi(const ParityJob& parity);

// Trains with the family's model of tests/reference.
absl::StatusOr<Curve> TrainInNumpy(const JobSpec& job);

// FailedPrecondition with the packages to install if NumPy or xxhash are missing.
absl::Status HasNumpy();

}  // namespace weft
