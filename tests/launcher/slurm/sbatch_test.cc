#include "launcher/slurm/sbatch.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Sbatch, PrintsANumber) {
  EXPECT_EQ(JobIdIn("12\n"), "12");
  EXPECT_EQ(JobIdIn("12;weft\n"), "12");
  EXPECT_EQ(JobIdIn("Submitted batch job 12"), "");
  EXPECT_EQ(JobIdIn(""), "");
}

// The words are those of Slurm 22.05.
TEST(Sbatch, IsUnderstood) {
  SchedulerSpec site;
  site.partition = "fast";
  site.account = "lab";
  site.time = "9-0";
  const std::pair<const char*, const char*> cases[] = {
      {"sbatch: error: invalid partition specified: fast\nsbatch: error: Batch job submission "
       "failed: Invalid partition name specified",
       "cluster.partition: fast is no partition of this cluster; `sinfo -s` lists them"},
      {"sbatch: error: Batch job submission failed: Invalid account or account/partition "
       "combination specified",
       "cluster.account: lab is no account that you may use in that partition; `sacctmgr show "
       "assoc user=$USER` lists them"},
      {"sbatch: error: Batch job submission failed: Invalid qos specification",
       "cluster.qos: the site's default is no quality of service of yours; `sacctmgr show qos` "
       "lists them"},
      {"sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or "
       "exceeds some limit)",
       "cluster.time: 9-0 is more than the partition allows, or has to be said; `sinfo -s` shows "
       "its limit"},
      {"sbatch: error: Batch job submission failed: Node count specification invalid",
       "cluster.nodes is more than the partition has; `sinfo -s` shows how many"},
      {"sbatch: unrecognized option '--colour'\nTry \"sbatch --help\" for more information",
       "cluster.sbatch_options: the site's default has an option that sbatch does not know; "
       "sbatch --help lists them"},
      {"sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect "
       "failure)",
       "slurmctld does not answer; try again once `scontrol ping` says UP"},
      {"sbatch: fatal: Could not establish a configuration source",
       "Slurm's programs find no slurm.conf on this host; submit from a login node of the cluster, "
       "or set SLURM_CONF"},
      {"sbatch: error: something new",
       "sbatch does not take the job: sbatch: error: something new"},
  };
  for (const auto& [words, message] : cases) {
    EXPECT_EQ(SbatchFailure(words, site).message(), message);
  }
  EXPECT_EQ(SbatchFailure(cases[0].first, site).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SbatchFailure(cases[6].first, site).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace weft
