#include "worker/backend/cuda/comm/nccl_library.h"

#include <cstdlib>
#include <cstring>

#include "worker/backend/cuda/runtime/entry_points.h"
#include "worker/backend/failure.h"

namespace weft {
namespace {

constexpr int kOldestVersion = 21800;
constexpr int kFirstWithOrder = 22600;

struct Loaded {
  NcclLibrary library;
  BackendStatus status;
};

// NCCL reads its environment once: what it said when the library was loaded counts.
bool IsAskedToKeepOrder(int version) {
  const char* const asked = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  return version >= kFirstWithOrder && asked != nullptr && std::strcmp(asked, "1") == 0;
}

Loaded Load() {
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
  nccl.keeps_order = IsAskedToKeepOrder(nccl.version);
  if (entries.missing() != nullptr || nccl.version < kOldestVersion) {
    loaded.status = Failure(kFailedPrecondition, "NCCL %s is too old%s%s; install 2.18 or newer",
                            NcclVersionText(nccl.version).c_str(),
                            entries.missing() == nullptr ? "" : ", it lacks ",
                            entries.missing() == nullptr ? "" : entries.missing());
  }
  return loaded;
}

// Calls that run beside compute leave it most of the device: so many blocks of threads of an H100's
// 132 multiprocessors, where NCCL takes up to 32 by itself. NCCL's documentation of ncclConfig_t,
// maxCTAs; the number is of the range, 8 to 16, that practice begins at, and not measured here.
constexpr int kMostCtasBeside = 16;

}  // namespace

std::string NcclVersionText(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

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

ncclConfig_t NcclConfigOf(GroupUse use, bool blocks) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocks ? 1 : 0;
  config.splitShare = 1;  // that of a world says whether what is split from it shares
  if (use != GroupUse::kBlocking) config.maxCTAs = kMostCtasBeside;
  return config;
}

}  // namespace weft
