#include "launcher/machine/open_mpi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(OpenMpi, LeavesAPersonsSettingsAndTakesThoseOfAnotherMpirun) {
  EXPECT_THAT(VariablesOfMpirun({"PATH=/bin", "OMPI_COMM_WORLD_RANK=0", "OMPI_MCA_btl=self,tcp",
                                 "OMPI_MCA_ess_base_jobid=1", "OMPI_MCA_oob_tcp_if_include=ib0",
                                 "OMPI_MCA_orte_ess_num_procs=4", "OMPI_MCA_pmix_base_verbose=1",
                                 "OMPI_MCA_pml=ucx", "PMIX_RANK=0", "PMI_RANK=0",
                                 "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_COMMAND=weft",
                                 "HYDI_CONTROL_FD=7", "WEFT_RUN=x"}),
              ElementsAre("OMPI_COMM_WORLD_RANK", "OMPI_MCA_ess_base_jobid",
                          "OMPI_MCA_orte_ess_num_procs", "OMPI_MCA_pmix_base_verbose", "PMIX_RANK",
                          "PMI_RANK", "OMPI_COMMAND", "HYDI_CONTROL_FD"));
}

TEST(OpenMpi, IsKnownByWhatMpirunSaysOfItself) {
  const auto judged = [](const std::string& path, const absl::StatusOr<ProgramAnswer>& answer) {
    const auto found = JudgeMpirun(path, answer);
    return found.ok() ? *found : std::string(found.status().message());
  };
  const std::string path = "/opt/bin/mpirun";
  EXPECT_EQ(judged(path, ProgramAnswer{0, "mpirun (Open MPI) 4.1.4\n\nReport bugs\n", ""}),
            "Open MPI 4.1.4");
  EXPECT_THAT(judged(path, ProgramAnswer{0, "HYDRA build details:\n    Version: 4.0.2\n", ""}),
              HasSubstr("/opt/bin/mpirun is MPICH's (it says: HYDRA build details:); the cpu"));
  EXPECT_THAT(judged(path, ProgramAnswer{0, "Intel(R) MPI Library for Linux\n", ""}),
              HasSubstr("/opt/bin/mpirun (it says: Intel(R) MPI Library for Linux); the cpu"));
  EXPECT_THAT(judged(path, ProgramAnswer{0, "mpirun (Open MPI) 5.0.3\n", ""}),
              HasSubstr("/opt/bin/mpirun is Open MPI 5.0.3's; the cpu backend's"));
  EXPECT_THAT(judged(path, ProgramAnswer{127, "", "libopen-rte.so.40: cannot open\n"}),
              HasSubstr("--version fails with exit code 127: libopen-rte.so.40: cannot open"));
  EXPECT_THAT(judged("", ProgramAnswer()), HasSubstr("no mpirun in PATH; the cpu backend's"));
  EXPECT_THAT(judged(path, absl::InternalError("cannot run mpirun")),
              HasSubstr("cannot run mpirun; the cpu backend's"));
  const absl::Status late = absl::DeadlineExceededError("mpirun has not answered after 10 s");
  EXPECT_TRUE(JudgeMpirun(path, late).ok()) << "nothing is known against it";
}

TEST(OpenMpi, FindsThisHostsLoopback) {
  EXPECT_EQ(CheckLoopback(), absl::OkStatus());
}

}  // namespace
}  // namespace weft
