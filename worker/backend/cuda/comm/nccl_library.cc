#include "worker/backend/cuda/comm/nccl_library.h"

#include <cstdlib>

#include "worker/backend/cuda/runtime/entry_points.h"
#include "worker/backend/failure.h"

namespace weft {
namespace {

constexpr int kOldestVersion = 21800;

struct Loaded {
  NcclLibrary library;
  BackendStatus status;
};

// Communicators of two uses run side by side here, and NCCL has them deadlock where devices begin
// their kernels in different orders and have no room for both. It keeps the order in which the host
// made the calls, from 2.26 on, if it is told so before its first use: a kernel then begins when
// those of earlier calls have begun, and still runs beside them (with CUDA before 12.3, which is
// too old for weft, they would end first). Ranks make their calls in an order in which each could
// end before the next (comm.h: a backend may run at once what is started), so waiting in it ends.
// One thread at a time is inside NCCL until a call is launched (NcclWatch), so
// NCCL_LAUNCH_RACE_FATAL finds nothing.
void AskForLaunchOrder() {
  constexpr int kKeepWhatIsSet = 0;
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", kKeepWhatIsSet);  // NOLINT(concurrency-mt-unsafe)
}

Loaded Load() {
  AskForLaunchOrder();
  Loaded loaded;
  NcclLibrary& nccl = loaded.library;
  EntryPoints entries("libnccl.so.2");
  if (!entries.is_open()) {
    loaded.status = Failure(kFailedPrecondition,
                            "NCCL does not load: %.110s; install NCCL 2.18 or newer (with CUDA, or "
                            "Python's nvidia-nccl) and name its folder in LD_LIBRARY_PATH",
                            dlerror());
    return loaded;
  }
  entries.Find("ncclGetVersion", &nccl.get_version);
  entries.Find("ncclGetUniqueId", &nccl.get_unique_id);
  entries.Find("ncclCommInitRankConfig", &nccl.comm_init_rank_config);
  entries.Find("ncclCommSplit", &nccl.comm_split);
  entries.Find("ncclCommGetAsyncError", &nccl.comm_get_async_error);
  entries.Find("ncclCommFinalize", &nccl.comm_finalize);
  entries.Find("ncclCommDestroy", &nccl.comm_destroy);
  entries.Find("ncclCommAbort", &nccl.comm_abort);
  entries.Find("ncclGetLastError", &nccl.get_last_error);
  entries.Find("ncclGetErrorString", &nccl.get_error_string);
  entries.Find("ncclAllReduce", &nccl.all_reduce);
  entries.Find("ncclReduceScatter", &nccl.reduce_scatter);
  entries.Find("ncclAllGather", &nccl.all_gather);
  entries.Find("ncclSend", &nccl.send);
  entries.Find("ncclRecv", &nccl.recv);
  entries.Find("ncclGroupStart", &nccl.group_start);
  entries.Find("ncclGroupEnd", &nccl.group_end);
  if (nccl.get_version != nullptr) nccl.get_version(&nccl.version);
  if (entries.missing() != nullptr || nccl.version < kOldestVersion) {
    loaded.status =
        Failure(kFailedPrecondition, "NCCL %d.%d.%d is too old%s%s; install 2.18 or newer",
                nccl.version / 10000, nccl.version / 100 % 100, nccl.version % 100,
                entries.missing() == nullptr ? "" : ", it lacks ",
                entries.missing() == nullptr ? "" : entries.missing());
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
