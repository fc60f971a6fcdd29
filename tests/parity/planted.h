// A Device and a Comm that pass every call on to the real ones, but for one bug each. They prove
// that the parity comparison bites: without a bug they must change nothing, with one it must fail.
#pragma once
#include <memory>

#include "tests/parity/parity_job.h"
#include "worker/backend/comm.h"
#include "worker/backend/device.h"

namespace weft {

struct PlantedBackend {
  std::unique_ptr<Device> device;
  std::unique_ptr<Comm> comm;
};

// Borrows `device` and `comm`, which outlive the result.
PlantedBackend Plant(const ParityJob& parity, Device& device, Comm& comm);

}  // namespace weft
