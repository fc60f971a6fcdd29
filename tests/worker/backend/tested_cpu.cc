#include "tests/worker/backend/tested_backend.h"
#include "worker/backend/cpu/device_cpu.h"

namespace weft {

std::vector<std::string> TestedBackends() {
  return {"cpu"};
}

std::unique_ptr<Device, void (*)(Device*)> OpenTested(const std::string& /*backend*/) {
  return {MakeCpuDevice({}).release(), [](Device* device) { delete device; }};
}

}  // namespace weft
