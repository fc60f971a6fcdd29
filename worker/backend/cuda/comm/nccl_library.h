// NCCL, loaded when a communicator needs it: a host with one GPU can do without it.
#pragma once
#include <nccl.h>

#include <string>

#include "worker/backend/comm.h"

namespace weft {

struct NcclLibrary {
  int version = 0;  // 22809: 2.28.9
  // Whether the kernels of all communicators begin in the order of the calls (worker/backend/
  // library_environment.h): the environment asks for it and the version knows it.
  bool keeps_order = false;
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&ncclCommSplit) comm_split = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclCommFinalize) comm_finalize = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;

  // The status of a call on `comm` (may be null): `code` by name, NCCL's own words, what to do.
  // OK for ncclSuccess and ncclInProgress.
  BackendStatus ToStatus(ncclResult_t code, const char* what, ncclComm_t comm) const;
};

// "2.28.9", for 22809.
std::string NcclVersionText(int version);

// Loads libnccl.so.2, once a process; it is never unloaded. FailedPrecondition if this host has
// none, or one older than 2.18 (the first with ncclCommSplit).
BackendStatus LoadNccl(const NcclLibrary** library);

// `blocks`: as a communicator that calls are made on does, on the thread of NcclWatch: one that
// does not starts a thread for each call. Those that others are split from do not, so that the
// making of one, which waits for all ranks, can be aborted by a handle that is there from its
// beginning.
ncclConfig_t NcclConfigOf(GroupUse use, bool blocks);

}  // namespace weft
