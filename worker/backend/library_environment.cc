#include "worker/backend/library_environment.h"

#include <unistd.h>

#include <array>
#include <cstdlib>

#include "worker/backend/blas_kernels.h"

namespace weft {
namespace {

constexpr char kCoreType[] = "OPENBLAS_CORETYPE";

// The launcher sets the numbers of threads to what the job says; where threads are bound changes no
// number.
constexpr std::array<std::string_view, 3> kKept = {kCoreType, "OPENBLAS_NUM_THREADS",
                                                   "OPENBLAS_THREAD_TIMEOUT"};
// Fewer threads than work was cut for: OpenBLAS would cut products anew.
constexpr std::array<std::string_view, 5> kOfOpenMp = {
    "OMP_ADAPTIVE", "OMP_DYNAMIC", "OMP_MAX_ACTIVE_LEVELS", "OMP_NESTED", "OMP_THREAD_LIMIT"};
// They cut products elsewhere, take other kernels or precisions, or print to stdout.
constexpr std::array<std::string_view, 4> kPrefixes = {"OPENBLAS_", "GOTO_", "DNNL_", "ONEDNN_"};

template <typename List>
bool Has(const List& list, std::string_view variable) {
  for (const std::string_view each : list) {
    if (each == variable) return true;
  }
  return false;
}

}  // namespace

bool IsUnsetForLibraries(std::string_view variable) {
  if (Has(kOfOpenMp, variable)) return true;
  if (Has(kKept, variable)) return false;
  for (const std::string_view prefix : kPrefixes) {
    if (variable.starts_with(prefix)) return true;
  }
  return false;
}

std::vector<std::string> SettleLibraryEnvironment() {
  std::vector<std::string> found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (IsUnsetForLibraries(name)) found.emplace_back(name);
  }
  std::vector<std::string> notes;
  for (const std::string& name : found) {
    unsetenv(name.c_str());
    notes.push_back(name + " is ignored: it would change the order of sums, or print");
  }
  const char* const asked = std::getenv(kCoreType);
  const BlasChoice choice =
      ChooseBlasKernels(FeaturesOfThisProcessor(), asked == nullptr ? "" : asked);
  if (choice.kernels.empty()) {
    unsetenv(kCoreType);
  } else {
    setenv(kCoreType, choice.kernels.c_str(), /*overwrite=*/1);
  }
  if (!choice.note.empty()) notes.push_back(choice.note);
  return notes;
}

void AskForLaunchOrder() {
  constexpr int kKeepWhatIsSet = 0;
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", kKeepWhatIsSet);
}

}  // namespace weft
