#include "launcher/machine/carried_mpi.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "launcher/machine/start.h"

namespace weft {
std::string CarriedMpi(const std::string& program_folder) {
  const std::filesystem::path bin = program_folder;
  // A distribution's own has its plugins elsewhere, or needs no help.
  const std::filesystem::path root = bin.parent_path();
  std::error_code error;
  const bool is_there = bin.filename() == "bin" && access((bin / "mpirun").c_str(), X_OK) == 0 &&
                        std::filesystem::exists(root / "share/weft/carried_mpi", error);
  return is_there ? root.string() : "";
}

void PreferCarriedMpi() {
  const std::string root = CarriedMpi(ProgramFolder());
  if (root.empty()) return;
  std::string path = absl::StrCat(root, "/bin");
  if (const char* const others = std::getenv("PATH")) absl::StrAppend(&path, ":", others);
  setenv("PATH", path.c_str(), 1);
  setenv("OPAL_PREFIX", root.c_str(), 1);
}

}  // namespace weft
