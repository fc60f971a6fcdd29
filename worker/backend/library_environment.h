// This file decides what the environment may say to the libraries of the backends. OpenBLAS,
// OpenMP and oneDNN read variables of a user's shell that were set for other programs; some of them
// change the order of sums, and so the bits of a loss, or print to stdout. weft's numbers depend on
// the job, the layout, the processor and the kernels it names (docs/reproducibility.md), so those
// variables are unset.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Whether `variable` is unset before the libraries load. OPENBLAS_CORETYPE is not:
// ChooseBlasKernels.
bool IsUnsetForLibraries(std::string_view variable);

// Unsets those variables and settles OPENBLAS_CORETYPE. Returns sentences for people, one for each
// variable that is not taken, or costs speed. To be called by the only thread, before a backend is
// loaded (LoadBackend does so as well); a second call has nothing left to say of the former.
std::vector<std::string> SettleLibraryEnvironment();

// Asks NCCL (of 2.26 on) to begin kernels in the order of the calls, unless the environment says
// otherwise (NCCL_LAUNCH_ORDER_IMPLICIT). To be called while there is one thread: NCCL's and gRPC's
// read the environment, which is no place to write to then (setenv(3)).
//
// Communicators of two uses run side by side, and NCCL has them deadlock where devices begin their
// kernels in different orders and have no room for both. In that order a kernel begins when those
// of earlier calls have begun, and still runs beside them (with CUDA before 12.3, which is too old
// for weft, they would end first). Ranks make their calls in an order in which each could end
// before the next (comm.h: a backend may run at once what is started), so waiting in it ends. One
// thread at a time is inside NCCL until a call is launched (NcclWatch), so NCCL_LAUNCH_RACE_FATAL
// finds nothing.
void AskForLaunchOrder();

}  // namespace weft
