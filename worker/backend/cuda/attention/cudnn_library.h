// cuDNN, loaded when a device opens: a host without it computes attention by weft's own kernels.
#pragma once
#include <cudnn.h>

#include "worker/backend/device.h"

namespace weft {

struct CudnnLibrary {
  int version = 0;  // 91900: 9.19.0
  decltype(&cudnnGetVersion) get_version = nullptr;
  decltype(&cudnnGetCudartVersion) get_cudart_version = nullptr;
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnGetErrorString) get_error_string = nullptr;
  decltype(&cudnnGetLastErrorString) get_last_error_string = nullptr;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&cudnnBackendSetAttribute) set_attribute = nullptr;
  decltype(&cudnnBackendGetAttribute) get_attribute = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;

  // The status of a call that returned `code`: its name and cuDNN's own words. OK for success.
  BackendStatus ToStatus(cudnnStatus_t code, const char* what) const;
};

// FailedPrecondition where cuDNN `version` is of CUDA `cuda_version` (13000: 13.0) and this process
// of another major version: libcudnn.so.9 is the name of both, and a host may have the other first.
BackendStatus CheckCudnnCuda(int version, int cuda_version, int own_cuda_version);

// Loads libcudnn.so.9, once a process; it is never unloaded. FailedPrecondition if this host has
// none that loads, or one older than 9.10.2, or of another CUDA.
BackendStatus LoadCudnn(const CudnnLibrary** library);

}  // namespace weft
