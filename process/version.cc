#include "process/version.h"

#include <google/protobuf/stubs/common.h>
#include <grpcpp/version_info.h>
#include <sqlite3.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "process/build_version.h"  // generated: kBuildVersion, kBuildCommit

namespace weft {
namespace {

absl::string_view InstructionSet() {
  if (__builtin_cpu_supports("avx512f")) return "avx512";
  if (__builtin_cpu_supports("avx2")) return "avx2";
  return "x86-64";
}

}  // namespace

std::string Version() {
  return absl::StrCat(kBuildVersion, " (", kBuildCommit, ", protobuf ",
                      GOOGLE_PROTOBUF_VERSION / 1000000, ".", GOOGLE_PROTOBUF_VERSION / 1000 % 1000,
                      ".", GOOGLE_PROTOBUF_VERSION % 1000, ", grpc ", GRPC_CPP_VERSION_STRING, ")");
}

std::string VersionText() {
  return absl::StrCat("weft ", Version(), ", sqlite ", SQLITE_VERSION, ", ", InstructionSet());
}

}  // namespace weft
