#include "launcher/slurm/allocation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace weft {
namespace {

using ::testing::ElementsAre;

auto Found(const std::map<std::string, std::string>& env) {
  return AllocationOf([&](const char* name) {
    const auto found = env.find(name);
    return found == env.end() ? nullptr : found->second.c_str();
  });
}

TEST(Allocation, IsFoundInTheVariables) {
  const auto found = Found({{"SLURM_JOB_ID", "7"},
                            {"SLURM_JOB_NODELIST", "h[1-2],x"},
                            {"SLURM_JOB_CPUS_PER_NODE", "4(x2),2"},
                            {"SLURM_RESTART_COUNT", "3"},
                            {"WEFT_SLURM_BATCH", "7"}});
  ASSERT_TRUE(found.ok() && *found) << found.status();
  EXPECT_EQ((*found)->job_id, "7");
  EXPECT_THAT((*found)->hosts, ElementsAre("h1", "h2", "x"));
  EXPECT_THAT((*found)->cpus, ElementsAre(4, 4, 2));
  EXPECT_EQ((*found)->restarts, 3);
  EXPECT_TRUE((*found)->is_batch);
}

TEST(Allocation, OfSallocIsNoBatchJob) {
  const auto found =
      Found({{"SLURM_JOB_ID", "8"}, {"SLURM_JOB_NODELIST", "h1"}, {"WEFT_SLURM_BATCH", "7"}});
  ASSERT_TRUE(found.ok() && *found);
  EXPECT_FALSE((*found)->is_batch);
  EXPECT_EQ((*found)->restarts, 0);
}

// The first task's own number is that of the whole array.
TEST(Allocation, OfATaskIsNamedByItsArray) {
  auto found = Found({{"SLURM_JOB_ID", "8"}, {"SLURM_JOB_NODELIST", "h1"}});
  ASSERT_TRUE(found.ok() && *found);
  EXPECT_EQ((*found)->name(), "8");
  found = Found({{"SLURM_JOB_ID", "8"},
                 {"SLURM_JOB_NODELIST", "h1"},
                 {"SLURM_ARRAY_JOB_ID", "8"},
                 {"SLURM_ARRAY_TASK_ID", "0"}});
  ASSERT_TRUE(found.ok() && *found);
  EXPECT_EQ((*found)->job_id, "8");
  EXPECT_EQ((*found)->name(), "8_0");
}

TEST(Allocation, IsNoneOutsideOfSlurm) {
  EXPECT_FALSE(Found({})->has_value());
  EXPECT_FALSE(Found({{"SLURM_JOB_ID", "7"}})->has_value());
}

TEST(Allocation, IsRefusedWhereItsNumbersDoNotFit) {
  EXPECT_FALSE(Found({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "h[1"}}).ok());
  EXPECT_FALSE(Found({{"SLURM_JOB_ID", "7"},
                      {"SLURM_JOB_NODELIST", "h[1-2]"},
                      {"SLURM_JOB_CPUS_PER_NODE", "4"}})
                   .ok());
}

TEST(Allocation, IsRefusedWhereTheJobIsAHeterogeneousOne) {
  const std::map<std::string, std::string> env = {{"SLURM_JOB_ID", "8"},
                                                  {"SLURM_JOB_NODELIST", "h1"}};
  std::map<std::string, std::string> one = env, two = env;
  one["SLURM_HET_SIZE"] = "1";
  two["SLURM_HET_SIZE"] = "2";
  EXPECT_TRUE(Found(one).ok());
  EXPECT_EQ(Found(two).status().message(),
            "SLURM_HET_SIZE: job 8 is a heterogeneous one of 2 components, but weft trains in one "
            "alone; ask for all nodes in one component, without `:` and hetjob, or name the hosts "
            "by --hosts");
}

TEST(Allocation, KnowsTheVariablesOfATask) {
  for (const char* name : {"SLURM_PROCID", "PMI_RANK", "PMIX_RANK", "SLURMD_NODENAME"}) {
    EXPECT_TRUE(IsOfATask(name)) << name;
  }
  for (const char* name : {"PATH", "WEFT_RUN", "MY_SLURM_"}) EXPECT_FALSE(IsOfATask(name)) << name;
}

}  // namespace
}  // namespace weft
