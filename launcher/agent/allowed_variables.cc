#include "launcher/agent/allowed_variables.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace weft {
namespace {

// Left out on purpose, for each names a file, a folder or a library: NCCL_DEBUG_FILE, NCCL_TOPO_*,
// NCCL_GRAPH_*, NCCL_CONF_FILE, NCCL_*_PLUGIN, NCCL_NET (it names a plugin's file, too),
// DNNL_JIT_*, CUDA_CACHE_PATH, CUDA_INJECTION64_PATH, CUBLAS_LOGDEST_DBG, CUDNN_LOGDEST_DBG,
// OMPI_MCA_*, PMIX_*.
constexpr absl::string_view kAllowed[] = {
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "DNNL_MAX_CPU_ISA",
    "DNNL_VERBOSE",
    "MALLOC_ARENA_MAX",
    "NCCL_ALGO",
    "NCCL_BUFFSIZE",
    "NCCL_COLLNET_ENABLE",
    "NCCL_CROSS_NIC",
    "NCCL_CUMEM_ENABLE",
    "NCCL_DEBUG",
    "NCCL_DEBUG_SUBSYS",
    "NCCL_IB_*",
    "NCCL_IGNORE_CPU_AFFINITY",
    "NCCL_LAUNCH_MODE",
    "NCCL_MAX_CTAS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_CTAS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_NET_GDR_READ",
    "NCCL_NSOCKS_PERTHREAD",
    "NCCL_NTHREADS",
    "NCCL_NVLS_ENABLE",
    "NCCL_P2P_*",
    "NCCL_PROTO",
    "NCCL_PXN_DISABLE",
    "NCCL_SHM_DISABLE",
    "NCCL_SOCKET_FAMILY",
    "NCCL_SOCKET_IFNAME",
    "NCCL_SOCKET_NTHREADS",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_PLACES",
    "OMP_PROC_BIND",
    "OMP_SCHEDULE",
    "OMP_WAIT_POLICY",
    "ONEDNN_MAX_CPU_ISA",
    "ONEDNN_VERBOSE",
    "OPENBLAS_CORETYPE",
};

bool Stands(absl::string_view entry, absl::string_view name) {
  return absl::ConsumeSuffix(&entry, "*") ? absl::StartsWith(name, entry) : entry == name;
}

}  // namespace

absl::Span<const absl::string_view> AllowedVariables() {
  return kAllowed;
}

absl::Status CheckVariables(const std::map<std::string, std::string>& env,
                            absl::Span<const std::string> more) {
  std::vector<std::string> refused;
  for (const auto& [name, value] : env) {
    const auto stands = [&](absl::string_view entry) { return Stands(entry, name); };
    if (std::any_of(std::begin(kAllowed), std::end(kAllowed), stands)) continue;
    if (std::any_of(more.begin(), more.end(), stands)) continue;
    refused.push_back(name);
  }
  if (refused.empty()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "cluster.env: ", absl::StrJoin(refused, ", "),
      ": may not be set for ranks of another user than the submitter (docs/service.md lists what "
      "may); leave it out, or ask for `weft agent --standing --allow-env=",
      refused.front(), "` on the hosts"));
}

}  // namespace weft
