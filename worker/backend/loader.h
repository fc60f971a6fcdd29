// Loader: finds a backend's shared object, opens it and checks that it speaks this ABI.
#pragma once
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plan/spec/cluster.h"
#include "worker/backend/backend.h"

namespace weft {

// Opens libweft_cpu.so or libweft_cuda.so in `folder`; empty: where this executable lies. NotFound
// if there is no such file, FailedPrecondition if it does not load (a library it needs is missing)
// or is of another version. It is never unloaded: MPI and CUDA do not survive that.
absl::StatusOr<const BackendApi*> LoadBackend(BackendKind kind, const std::string& folder = "");

absl::Status ToStatus(const BackendStatus& status);

}  // namespace weft
