// The device that the stub of the driver (driver.cc, a libcuda.so.1) speaks of. Found with dlsym:
// it is loaded by path, before any library that looks for a driver.
#pragma once

struct StubDevice {
  const char* name = "NVIDIA H200";
  int capability = 90;  // 10 * major + minor
  int multiprocessors = 132;
  int shared_bytes = 232448;  // of a block that asks for more
};

extern "C" {
void WeftStubDevice(const StubDevice* described);
}
