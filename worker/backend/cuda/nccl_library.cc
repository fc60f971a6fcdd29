#include "worker/backend/cuda/nccl_library.h"

#include <dlfcn.h>

#include "worker/backend/failure.h"

namespace weft {
namespace {

constexpr int kOldestVersion = 21800;

struct Loaded {
  NcclLibrary library;
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
  NcclLibrary& nccl = loaded.library;
  // RTLD_LAZY: half of its 200 MB are kernels that a job does not use.
  void* const handle = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    loaded.status = Failure(kFailedPrecondition,
                            "NCCL does not load: %.110s; install NCCL 2.18 or newer (with CUDA, or "
                            "Python's nvidia-nccl) and name its folder in LD_LIBRARY_PATH",
                            dlerror());
    return loaded;
  }
  const char* missing = nullptr;
  Find(handle, "ncclGetVersion", &nccl.get_version, &missing);
  Find(handle, "ncclGetUniqueId", &nccl.get_unique_id, &missing);
  Find(handle, "ncclCommInitRankConfig", &nccl.comm_init_rank_config, &missing);
  Find(handle, "ncclCommSplit", &nccl.comm_split, &missing);
  Find(handle, "ncclCommGetAsyncError", &nccl.comm_get_async_error, &missing);
  Find(handle, "ncclCommFinalize", &nccl.comm_finalize, &missing);
  Find(handle, "ncclCommDestroy", &nccl.comm_destroy, &missing);
  Find(handle, "ncclCommAbort", &nccl.comm_abort, &missing);
  Find(handle, "ncclGetLastError", &nccl.get_last_error, &missing);
  Find(handle, "ncclGetErrorString", &nccl.get_error_string, &missing);
  Find(handle, "ncclAllReduce", &nccl.all_reduce, &missing);
  Find(handle, "ncclReduceScatter", &nccl.reduce_scatter, &missing);
  Find(handle, "ncclAllGather", &nccl.all_gather, &missing);
  Find(handle, "ncclSend", &nccl.send, &missing);
  Find(handle, "ncclRecv", &nccl.recv, &missing);
  Find(handle, "ncclGroupStart", &nccl.group_start, &missing);
  Find(handle, "ncclGroupEnd", &nccl.group_end, &missing);
  if (nccl.get_version != nullptr) nccl.get_version(&nccl.version);
  if (missing != nullptr || nccl.version < kOldestVersion) {
    loaded.status =
        Failure(kFailedPrecondition, "NCCL %d.%d.%d is too old%s%s; install 2.18 or newer",
                nccl.version / 10000, nccl.version / 100 % 100, nccl.version % 100,
                missing == nullptr ? "" : ", it lacks ", missing == nullptr ? "" : missing);
  }
  return loaded;
}

}  // namespace

BackendStatus LoadNccl(const NcclLibrary** library) {
  static const Loaded loaded = Load();
  if (loaded.status.ok()) *library = &loaded.library;
  return loaded.status;
}

BackendStatus NcclLibrary::ToStatus(ncclResult_t code, const char* what, ncclComm_t comm) const {
  if (code == ncclSuccess || code == ncclInProgress) return {};
  const struct {
    ncclResult_t code;
    FailureCode failure;
    const char* advice;
  } causes[] = {
      {ncclUnhandledCudaError, kUnavailable, "the device or its driver failed"},
      {ncclSystemError, kUnavailable, "the network or a peer's process failed"},
      {ncclRemoteError, kUnavailable, "a peer has left or its link broke; its log may say why"},
      {ncclInvalidUsage, kFailedPrecondition, "ranks that share a device show like this"},
      {ncclInvalidArgument, kInternal, "NCCL_DEBUG=WARN says which argument"},
  };
  FailureCode failure = kInternal;
  const char* advice = "NCCL_DEBUG=WARN says more";
  for (const auto& cause : causes) {
    if (cause.code != code) continue;
    failure = cause.failure;
    advice = cause.advice;
  }
  const char* const words = get_last_error(comm);
  return Failure(failure, "NCCL: %s failed: %s (%.80s); %s", what, get_error_string(code),
                 words == nullptr || words[0] == '\0' ? "no details" : words, advice);
}

}  // namespace weft
