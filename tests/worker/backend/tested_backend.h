// The backend whose operations a test binary tests. The tests of operations are written once; each
// binary that runs them brings its own definition of these two.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "worker/backend/device.h"

namespace weft {

// "cpu", "cuda": the parameters of the suites, as names of their tests.
std::vector<std::string> TestedBackends();

// Null if it needs a device that is not here; the test is then skipped. One that is here and does
// not open is a failure.
std::unique_ptr<Device, void (*)(Device*)> OpenTested(const std::string& backend);

}  // namespace weft
