// Trains what a ParityJob says, in processes of its own, and reads what is left as a Curve: ranks
// as threads of one process, which is cheap enough for every layout, or over MPI, a process each,
// as weft-worker's are. The device is libweft_cpu.so's in both.
#pragma once
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/parity/curve.h"
#include "tests/parity/parity_job.h"

namespace weft {

// Trains at most about a minute. Fails if a rank does, if the checkpoint it leaves does not verify,
// or if copies of a gradient on several ranks are not bit-identical (except on purpose: with a
// planted bug they may be anything), or if painted memory shows that the list of buffers is not
// exact.
absl::StatusOr<Curve> Train(const ParityJob& parity);

// Trains with the family's model of tests/reference.
absl::StatusOr<Curve> TrainInNumpy(const JobSpec& job);

// FailedPrecondition with the packages to install if NumPy or xxhash are missing.
absl::Status HasNumpy();

}  // namespace weft
