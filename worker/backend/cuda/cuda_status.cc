#include "worker/backend/cuda/cuda_status.h"

#include "worker/backend/failure.h"

namespace weft {
namespace {

struct Cause {
  cudaError_t code;
  FailureCode failure;
  const char* advice;
};

// What a person can do something about. All but the memory are Unavailable: the job may go on
// elsewhere, or later.
constexpr Cause kCauses[] = {
    {cudaErrorNoDevice, kUnavailable,
     "this host has no CUDA device; use cluster.device.backend cpu"},
    {cudaErrorInsufficientDriver, kUnavailable,
     "the NVIDIA driver is missing or older than this CUDA; install a newer one"},
    {cudaErrorUnsupportedPtxVersion, kUnavailable,
     "the NVIDIA driver is older than this CUDA; install a newer one"},
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

}  // namespace

BackendStatus FromCuda(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return {};
  for (const Cause& cause : kCauses) {
    if (cause.code != code) continue;
    return Failure(cause.failure, "cuda: %s failed: %s", what, cause.advice);
  }
  return Failure(kUnavailable, "cuda: %s failed: %s (%d); nvidia-smi shows driver and devices",
                 what, cudaGetErrorString(code), static_cast<int>(code));
}

}  // namespace weft
