#include "worker/backend/cuda/cudnn_library.h"

#include <dlfcn.h>

#include "worker/backend/failure.h"

namespace weft {
namespace {

constexpr int kOldestVersion = 90000;

struct Loaded {
  CudnnLibrary library;
  BackendStatus status;
};

// Finds one entry point; remembers the first that is missing.
template <typename Function>
void Find(void* handle, const char* name, Function* function, const char** missing) {
  *function = reinterpret_cast<Function>(dlsym(handle, name));
  if (*function == nullptr && *missing == nullptr) *missing = name;
}

Loaded Load() {
  Loaded loaded;
  CudnnLibrary& cudnn = loaded.library;
  void* const handle = dlopen("libcudnn.so.9", RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    loaded.status = Failure(kFailedPrecondition,
                            "cuDNN does not load: %.110s; install cuDNN 9 (or Python's "
                            "nvidia-cudnn) and name its folder in LD_LIBRARY_PATH",
                            dlerror());
    return loaded;
  }
  const char* missing = nullptr;
  Find(handle, "cudnnGetVersion", &cudnn.get_version, &missing);
  Find(handle, "cudnnCreate", &cudnn.create, &missing);
  Find(handle, "cudnnDestroy", &cudnn.destroy, &missing);
  Find(handle, "cudnnSetStream", &cudnn.set_stream, &missing);
  Find(handle, "cudnnGetErrorString", &cudnn.get_error_string, &missing);
  Find(handle, "cudnnGetLastErrorString", &cudnn.get_last_error_string, &missing);
  Find(handle, "cudnnBackendCreateDescriptor", &cudnn.create_descriptor, &missing);
  Find(handle, "cudnnBackendDestroyDescriptor", &cudnn.destroy_descriptor, &missing);
  Find(handle, "cudnnBackendSetAttribute", &cudnn.set_attribute, &missing);
  Find(handle, "cudnnBackendGetAttribute", &cudnn.get_attribute, &missing);
  Find(handle, "cudnnBackendFinalize", &cudnn.finalize, &missing);
  Find(handle, "cudnnBackendExecute", &cudnn.execute, &missing);
  if (cudnn.get_version != nullptr) cudnn.version = static_cast<int>(cudnn.get_version());
  if (missing != nullptr || cudnn.version < kOldestVersion) {
    loaded.status =
        Failure(kFailedPrecondition, "cuDNN %d.%d.%d does not serve%s%s; install 9.0 or newer",
                cudnn.version / 10000, cudnn.version / 100 % 100, cudnn.version % 100,
                missing == nullptr ? "" : ", it lacks ", missing == nullptr ? "" : missing);
  }
  return loaded;
}

}  // namespace

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
