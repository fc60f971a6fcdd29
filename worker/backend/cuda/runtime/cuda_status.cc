#include "worker/backend/cuda/runtime/cuda_status.h"

#include <cstdio>

#include "worker/backend/failure.h"

namespace weft {
namespace {

struct Cause {
  cudaError_t code;
  FailureCode failure;
  const char* advice;
};

// Lists the failures that a person can do something about. All but the memory are Unavailable: the
// job may go on elsewhere, or later.
constexpr Cause kCauses[] = {
    {cudaErrorNoDevice, kUnavailable,
     "this host has no CUDA device; use cluster.device.backend cpu"},
    {cudaErrorSystemDriverMismatch, kUnavailable,
     "the driver and its libraries are of different versions; reload the driver or reboot"},
    {cudaErrorSystemNotReady, kUnavailable,
     "the fabric manager or another service of the driver is not running; start it"},
    {cudaErrorDevicesUnavailable, kUnavailable,
     "the device is taken by another process (exclusive mode); nvidia-smi shows by which"},
    {cudaErrorNoKernelImageForDevice, kUnavailable,
     "this build has no code for the device's architecture; build weft with "
     "CMAKE_CUDA_ARCHITECTURES for it"},
    {cudaErrorMemoryAllocation, kFailedPrecondition,
     "the device has not enough free memory; nvidia-smi shows who holds it"},
    {cudaErrorECCUncorrectable, kUnavailable,
     "the device's memory has an uncorrectable error; take the device out of service"},
    {cudaErrorContained, kUnavailable,
     "the device's memory had an error that was contained; start the process anew"},
    {cudaErrorIllegalAddress, kInternal, "a kernel left its arrays; compute-sanitizer shows which"},
    {cudaErrorLaunchFailure, kUnavailable,
     "the device was lost or a kernel failed; dmesg shows an Xid with the cause"},
};

// Returns the version of the kernel module that is loaded; empty if there is none, or the host does
// not say.
std::string DriverVersion() {
  char version[32] = {};
  std::FILE* const file = std::fopen("/sys/module/nvidia/version", "re");
  if (file == nullptr) return {};
  const bool read = std::fscanf(file, "%31s", version) == 1;
  std::fclose(file);
  return read ? version : "";
}

BackendStatus DriverIsTooOld(const char* what) {
  int served = 0;
  int needed = 0;
  cudaDriverGetVersion(&served);
  cudaRuntimeGetVersion(&needed);
  return Failure(kUnavailable, "cuda: %s failed: %s", what,
                 DriverProblem(served, needed, DriverVersion()).c_str());
}

}  // namespace

std::string DriverProblem(int served, int needed, const std::string& driver) {
  // CUDA's release notes, "CUDA Toolkit and Minimum Required Driver Version".
  const char* const least = needed >= 13000 ? "580" : "525";
  const auto number = [](int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  };
  if (served == 0) {
    return std::string("this host has no NVIDIA driver; install ") + least + " or newer";
  }
  return "the NVIDIA driver" + (driver.empty() ? "" : " " + driver) + " serves CUDA up to " +
         number(served) + ", this build needs " + number(needed) + "; install driver " + least +
         " or newer";
}

BackendStatus FromCuda(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return {};
  if (code == cudaErrorInsufficientDriver || code == cudaErrorUnsupportedPtxVersion) {
    return DriverIsTooOld(what);
  }
  for (const Cause& cause : kCauses) {
    if (cause.code != code) continue;
    return Failure(cause.failure, "cuda: %s failed: %s", what, cause.advice);
  }
  return Failure(kUnavailable, "cuda: %s failed: %s (%d); nvidia-smi shows driver and devices",
                 what, cudaGetErrorString(code), static_cast<int>(code));
}

}  // namespace weft
