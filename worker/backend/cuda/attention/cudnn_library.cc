#include "worker/backend/cuda/attention/cudnn_library.h"

#include <cuda_runtime.h>

#include "worker/backend/cuda/runtime/entry_points.h"
#include "worker/backend/failure.h"

namespace weft {
namespace {

// Before it, cuDNN has known faults in attention (9.10.0 and 9.10.1), or does not take minus
// infinity for what is masked (up to 9.9): so says its own frontend.
constexpr int kOldestVersion = 91002;

struct Loaded {
  CudnnLibrary library;
  BackendStatus status;
};

Loaded Load() {
  Loaded loaded;
  CudnnLibrary& cudnn = loaded.library;
  EntryPoints entries("libcudnn.so.9");
  if (!entries.is_open()) {
    loaded.status = Failure(kFailedPrecondition,
                            "cuDNN does not load: %.110s; install cuDNN 9 (or Python's "
                            "nvidia-cudnn) and name its folder in LD_LIBRARY_PATH",
                            dlerror());
    return loaded;
  }
  entries.Find("cudnnGetVersion", &cudnn.get_version);
  entries.Find("cudnnGetCudartVersion", &cudnn.get_cudart_version);
  entries.Find("cudnnCreate", &cudnn.create);
  entries.Find("cudnnDestroy", &cudnn.destroy);
  entries.Find("cudnnSetStream", &cudnn.set_stream);
  entries.Find("cudnnGetErrorString", &cudnn.get_error_string);
  entries.Find("cudnnGetLastErrorString", &cudnn.get_last_error_string);
  entries.Find("cudnnBackendCreateDescriptor", &cudnn.create_descriptor);
  entries.Find("cudnnBackendDestroyDescriptor", &cudnn.destroy_descriptor);
  entries.Find("cudnnBackendSetAttribute", &cudnn.set_attribute);
  entries.Find("cudnnBackendGetAttribute", &cudnn.get_attribute);
  entries.Find("cudnnBackendFinalize", &cudnn.finalize);
  entries.Find("cudnnBackendExecute", &cudnn.execute);
  if (cudnn.get_version != nullptr) cudnn.version = static_cast<int>(cudnn.get_version());
  if (entries.missing() != nullptr || cudnn.version < kOldestVersion) {
    loaded.status =
        Failure(kFailedPrecondition, "cuDNN %d.%d.%d does not serve%s%s; install 9.10.2 or newer",
                cudnn.version / 10000, cudnn.version / 100 % 100, cudnn.version % 100,
                entries.missing() == nullptr ? "" : ", it lacks ",
                entries.missing() == nullptr ? "" : entries.missing());
    return loaded;
  }
  int own_cuda_version = 0;
  cudaRuntimeGetVersion(&own_cuda_version);
  loaded.status =
      CheckCudnnCuda(cudnn.version, static_cast<int>(cudnn.get_cudart_version()), own_cuda_version);
  return loaded;
}

}  // namespace

BackendStatus CheckCudnnCuda(int version, int cuda_version, int own_cuda_version) {
  constexpr int kMajor = 1000;
  if (cuda_version / kMajor == own_cuda_version / kMajor) return {};
  return Failure(kFailedPrecondition,
                 "the cuDNN %d.%d.%d that loads is of CUDA %d, weft of CUDA %d; name the folder of "
                 "the other one first in LD_LIBRARY_PATH (Python: nvidia-cudnn-cu%d)",
                 version / 10000, version / 100 % 100, version % 100, cuda_version / kMajor,
                 own_cuda_version / kMajor, own_cuda_version / kMajor);
}

BackendStatus LoadCudnn(const CudnnLibrary** library) {
  static const Loaded loaded = Load();
  if (loaded.status.ok()) *library = &loaded.library;
  return loaded.status;
}

BackendStatus CudnnLibrary::ToStatus(cudnnStatus_t code, const char* what) const {
  if (code == CUDNN_STATUS_SUCCESS) return {};
  char words[160] = "";
  get_last_error_string(words, sizeof(words));
  return Failure(kInternal, "cuDNN: %s failed: %s%s%s", what, get_error_string(code),
                 words[0] == '\0' ? "" : ": ", words);
}

}  // namespace weft
