// Why the tests of a device are skipped here.
#pragma once
#include <string>

#include "worker/backend/backend.h"

namespace weft {

// Without a device or a driver: that. Empty where there is a device, and where one does not work
// for another cause, as under a driver that is too old: what needs it then fails by that cause.
inline std::string MissingDevice(const BackendApi& api) {
  int count = 0;
  const BackendStatus counted = api.device_count(&count);
  if (counted.ok()) return count > 0 ? "" : "no CUDA device here";
  const std::string text = counted.text;
  return text.find("this host has no NVIDIA driver") != std::string::npos ? text : "";
}

}  // namespace weft
