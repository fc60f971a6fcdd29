// DeviceMemory: the few large blocks of a device's memory that a worker asks for (its arena), each
// aligned to 4 KiB. Not the fixed ones that operations work in. Used by one thread.
#pragma once
#include <cstdint>
#include <map>

#include "worker/backend/device.h"

namespace weft {

class DeviceMemory {
 public:
  DeviceMemory() = default;
  ~DeviceMemory() { FreeAll(); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // FailedPrecondition if there is not enough, with what is free.
  BackendStatus Allocate(int64_t bytes, void** data);
  // Nothing if Allocate has not returned it. May wait for the device.
  BackendStatus Free(void* data);
  void FreeAll();

  // Counts what is in use of the whole device, by whomever.
  static BackendStatus UsedBytes(int64_t* bytes);

 private:
  std::map<void*, void*> blocks_;  // what Allocate returned -> what cudaMalloc did
};

}  // namespace weft
