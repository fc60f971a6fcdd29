#include "launcher/slurm/srun.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

std::string Line(const SrunWords& words, const std::string& host) {
  return absl::StrJoin(SrunArgv(words, {.name = host}, {"/opt/weft", "agent"}), " ");
}

TEST(Srun, StartsOneAgentBesideWhateverRuns) {
  EXPECT_EQ(Line({.job_id = "7", .cpus = {4, 2}, .hosts = {"h1", "h2"}}, "h2"),
            "srun --jobid=7 --nodelist=h2 --nodes=1 --ntasks=1 --ntasks-per-node=1 "
            "--cpus-per-task=2 --mem=0 --overlap --no-kill --kill-on-bad-exit=0 --mpi=none "
            "--cpu-bind=none --export=ALL --quiet --job-name=weft-agent /opt/weft "
            "agent");
}

TEST(Srun, PutsAContainerBeforeTheAgent) {
  EXPECT_THAT(Line({.job_id = "7", .container = "apptainer exec a.sif"}, "h1"),
              HasSubstr("--job-name=weft-agent apptainer exec a.sif /opt/weft agent"));
  EXPECT_THAT(Line({.job_id = "7", .container = "--container-image=a"}, "h1"),
              HasSubstr("--job-name=weft-agent --container-image=a /opt/weft agent"));
}

TEST(Srun, IsUnderstood) {
  const auto failure = [](const char* words, int code) {
    return SrunFailure("h2", "/opt/weft", code, words);
  };
  const absl::Status gone = failure(
      "slurmstepd: error: execve(): /opt/weft: No such file or directory\nsrun: error: h2: task 0: "
      "Exited with exit code 2",
      2);
  EXPECT_EQ(gone.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(gone.message(),
            "host h2: weft is not there; install it at the same path on each node, or name its "
            "folder by cluster.remote_path");
  EXPECT_EQ(failure("weft: host h2: run folder /a: is another folder there\nsrun: error: h2: task "
                    "0: Exited with exit code 2",
                    2)
                .message(),
            "host h2: run folder /a: is another folder there");
  EXPECT_EQ(failure("srun: error: fetch_config: DNS SRV lookup failed\n"
                    "srun: fatal: Could not establish a configuration source",
                    1)
                .message(),
            "host h2: srun finds no slurm.conf where weft runs; set SLURM_CONF, in a container "
            "mount its folder");
  // It may have been one: whoever knows that makes a loss of it.
  const absl::Status taken = failure(
      "srun: error: Unable to create step for job 5: Requested node configuration is not available",
      1);
  EXPECT_EQ(taken.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(taken.message()), HasSubstr("look at cluster.sbatch_options"));
  EXPECT_EQ(failure("srun: cluster configuration lacks support for cpu binding", 0),
            absl::OkStatus());
  EXPECT_EQ(failure("srun: error: Node failure on h2", 0).code(), absl::StatusCode::kUnavailable);
  const absl::Status killed = failure("srun: error: h2: task 0: Killed", 137);
  EXPECT_EQ(killed.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(killed.message(), "host h2: srun ended with 137: srun: error: h2: task 0: Killed");
}

}  // namespace
}  // namespace weft
