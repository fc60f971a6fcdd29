#include "worker/backend/loader.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "worker/backend/library_environment.h"

namespace weft {
namespace {

absl::StatusOr<std::filesystem::path> ExecutableFolder() {
  std::error_code error;
  const std::filesystem::path executable = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("/proc/self/exe cannot be read: ", error.message(), "; mount /proc"));
  }
  return executable.parent_path();
}

}  // namespace

absl::StatusOr<const BackendApi*> LoadBackend(BackendKind kind, const std::string& folder) {
  std::filesystem::path path = folder;
  if (folder.empty()) {
    absl::StatusOr<std::filesystem::path> own = ExecutableFolder();
    if (!own.ok()) return own.status();
    path = *own;
  }
  path /= absl::StrCat("libweft_", WordOf(kind), ".so");
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat("backend ", WordOf(kind), ": ", path.string(),
                                            " does not exist; it is installed beside weft-worker, "
                                            "if it was built"));
  }
  if (kind == BackendKind::kCpu) SettleLibraryEnvironment();
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("backend ", WordOf(kind), " does not load: ", dlerror(), "; ldd ",
                     path.string(), " shows which libraries it needs"));
  }
  const auto entry = reinterpret_cast<BackendEntry>(dlsym(library, "weft_backend"));
  if (entry == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("backend ", WordOf(kind), ": ", path.string(),
                                                      " is not a weft backend: ", dlerror()));
  }
  const BackendApi* const api = entry(kBackendAbiVersion);
  if (api == nullptr || api->abi_version != kBackendAbiVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "backend ", WordOf(kind), ": ", path.string(), " is of another version; ABI ",
        kBackendAbiVersion, " is needed, install weft-worker and its backends together"));
  }
  return api;
}

absl::Status ToStatus(const BackendStatus& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.code), status.text);
}

}  // namespace weft
