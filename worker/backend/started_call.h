// A call that is started (Comm::Start, StartBeside), as both backends see it: whether it may be,
// and the blocking call that it stands for. Header only, as failure.h is.
#pragma once
#include "worker/backend/comm.h"
#include "worker/backend/failure.h"

namespace weft {

// Checks a call that is started by what groups of `use` are for, in a group made for `made_for`.
inline BackendStatus CheckStarted(const CollectiveCall& call, GroupUse use, GroupUse made_for) {
  const bool is_beside = use == GroupUse::kBeside;
  const char* const name = is_beside ? "start beside" : "start";
  if (made_for != use) {
    return Failure(
        kInvalidArgument, "%s: group %d was made for %s", name, call.group,
        made_for == GroupUse::kBlocking ? "blocking calls alone" : "other started calls");
  }
  const bool is_sum = call.op == ReduceOp::kSum && call.data.dtype != DType::kF64;
  if (!is_beside || call.kind == CollectiveKind::kAllGather || is_sum) return {};
  return Failure(kInvalidArgument, "%s: only gathers and sums of f32, bf16 and f16 are", name);
}

// The blocking call that `call` is, in its stead.
inline BackendStatus MakeBlocking(Comm& comm, const CollectiveCall& call) {
  switch (call.kind) {
    case CollectiveKind::kAllReduce:
      return comm.AllReduce(call.group, call.op, call.data);
    case CollectiveKind::kReduceScatter:
      return comm.ReduceScatter(call.group, call.op, call.data);
    case CollectiveKind::kAllGather:
      return comm.AllGather(call.group, call.data);
  }
  return Failure(kInvalidArgument, "start: %d is not a kind of collective",
                 static_cast<int>(call.kind));
}

}  // namespace weft
