// This file decides what the environment may say to the libraries of the CPU backend. OpenBLAS,
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

}  // namespace weft
