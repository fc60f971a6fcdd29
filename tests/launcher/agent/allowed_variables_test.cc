// The list holds what a job may set for ranks that run as another user than its submitter.
#include "launcher/agent/allowed_variables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/places.h"

namespace weft {
namespace {

// By each of these a library or a program opens a file, loads code, or writes somewhere.
constexpr const char* kHarmful[] = {"LD_PRELOAD",
                                    "LD_LIBRARY_PATH",
                                    "LD_AUDIT",
                                    "PATH",
                                    "HOME",
                                    "TMPDIR",
                                    "GCONV_PATH",
                                    "LOCPATH",
                                    "OMPI_MCA_mca_base_param_files",
                                    "PMIX_MCA_mca_base_component_path",
                                    "PRTE_MCA_x",
                                    "OPAL_PREFIX",
                                    "NCCL_NET_PLUGIN",
                                    "NCCL_TUNER_PLUGIN",
                                    "NCCL_PROFILER_PLUGIN",
                                    "NCCL_NET",
                                    "NCCL_CONF_FILE",
                                    "NCCL_TOPO_FILE",
                                    "NCCL_TOPO_DUMP_FILE",
                                    "NCCL_GRAPH_FILE",
                                    "NCCL_GRAPH_DUMP_FILE",
                                    "NCCL_DEBUG_FILE",
                                    "CUDA_INJECTION64_PATH",
                                    "CUDA_CACHE_PATH",
                                    "CUBLAS_LOGDEST_DBG",
                                    "CUDNN_LOGDEST_DBG",
                                    "DNNL_JIT_DUMP",
                                    "DNNL_JIT_PROFILE",
                                    "BASH_ENV",
                                    "PYTHONPATH",
                                    "GLIBC_TUNABLES",
                                    "OPENSSL_CONF",
                                    "WEFT_FAILPOINT"};

TEST(AllowedVariables, AreNoneThatNamesAFileOrLoadsCode) {
  for (const char* name : kHarmful) {
    const absl::Status status = CheckVariables({{name, "x"}}, {});
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << name;
    EXPECT_TRUE(absl::StrContains(status.message(), name)) << status;
  }
}

TEST(AllowedVariables, TuneLibraries) {
  EXPECT_TRUE(CheckVariables({}, {}).ok());
  EXPECT_TRUE(CheckVariables({{"NCCL_DEBUG", "INFO"}, {"NCCL_IB_HCA", "mlx5"}}, {}).ok());
  EXPECT_FALSE(CheckVariables({{"NCCL_DEBUG", "INFO"}, {"NCCL_DEBUGX", "1"}}, {}).ok());
}

TEST(AllowedVariables, AreMoreWhereTheOperatorSaysSo) {
  const std::vector<std::string> more = {"HF_TOKEN", "UCX_*"};
  EXPECT_TRUE(CheckVariables({{"HF_TOKEN", "x"}, {"UCX_TLS", "rc"}}, more).ok());
  EXPECT_EQ(CheckVariables({{"HF_TOKENS", "x"}, {"UC", "rc"}}, more).message(),
            "cluster.env: HF_TOKENS, UC: may not be set for ranks of another user than the "
            "submitter (docs/service.md lists what may); leave it out, or ask for `weft agent "
            "--standing --allow-env=HF_TOKENS` on the hosts");
}

TEST(AllowedVariables, AreThoseOfThePage) {
  std::ostringstream page;
  page << std::ifstream(SourcePath("/docs/service.md")).rdbuf();
  for (const absl::string_view name : AllowedVariables()) {
    EXPECT_TRUE(absl::StrContains(page.str(), absl::StrCat("`", name, "`"))) << name;
  }
}

}  // namespace
}  // namespace weft
