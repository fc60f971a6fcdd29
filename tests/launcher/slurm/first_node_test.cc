#include "launcher/slurm/first_node.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace weft {
namespace {

std::optional<BatchJob> JobIn(const std::map<std::string, std::string>& variables) {
  return BatchJobOf([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(BatchJobOf, KnowsTheJobAndItsFirstNode) {
  std::map<std::string, std::string> variables = {
      {"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "h[2-4]"}, {"WEFT_SLURM_BATCH", "7"}};
  const std::optional<BatchJob> job = JobIn(variables);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->name, "7");
  EXPECT_EQ(job->first_node, "h2");
  variables["SLURM_ARRAY_JOB_ID"] = "5";
  variables["SLURM_ARRAY_TASK_ID"] = "2";
  EXPECT_EQ(JobIn(variables)->name, "5_2");
  variables.erase("WEFT_SLURM_BATCH");
  EXPECT_FALSE(JobIn(variables)) << "a requeue would run somebody else's script";
  EXPECT_FALSE(JobIn({}));
}

SlurmJob Now(const std::string& state, const std::string& nodes) {
  SlurmJob job;
  job.state = state;
  job.node_list = nodes;
  return job;
}

TEST(HasLostItsFirstNode, IsSaidOfAJobThatRunsOnWithoutItAlone) {
  const BatchJob job = {"7", "h2"};
  EXPECT_TRUE(HasLostItsFirstNode(job, Now("RUNNING", "h[3-4]")));
  EXPECT_FALSE(HasLostItsFirstNode(job, Now("RUNNING", "h[2-4]")));
  EXPECT_FALSE(HasLostItsFirstNode(job, Now("PENDING", "(null)")));
  EXPECT_FALSE(HasLostItsFirstNode(job, Now("COMPLETING", "h[3-4]")));
  EXPECT_FALSE(HasLostItsFirstNode(job, Now("RUNNING", "")));
}

}  // namespace
}  // namespace weft
