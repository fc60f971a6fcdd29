#include "worker/process/process_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weft {
namespace {

using Variables = std::map<std::string, std::string>;

absl::StatusOr<ProcessRank> Find(const Variables& variables) {
  return FindProcessRank([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

TEST(ProcessRank, IsWhatTheProcessManagerSays) {
  struct Case {
    Variables variables;
    ProcessRank expected;
  };
  for (const Case& c : std::vector<Case>{
           {{{"OMPI_COMM_WORLD_RANK", "3"},
             {"OMPI_COMM_WORLD_SIZE", "4"},
             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}},
            {3, 4, 1}},
           {{{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "2"}}, {5, 8, 2}},
           // mpirun inside a Slurm allocation: its own ranks, not the step's.
           {{{"OMPI_COMM_WORLD_RANK", "1"},
             {"OMPI_COMM_WORLD_SIZE", "2"},
             {"SLURM_PROCID", "0"},
             {"SLURM_NTASKS", "1"}},
            {1, 2, 0}},
           {{{"WEFT_RANK", "0"}, {"WEFT_WORLD_SIZE", "2"}, {"PMIX_RANK", "1"}}, {0, 2, 0}},
           {{{"PMIX_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}, {1, 2, 0}},
           {{{"WEFT_RANK", "0"}}, {0, 1, 0}}}) {
    const absl::StatusOr<ProcessRank> found = Find(c.variables);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->rank, c.expected.rank);
    EXPECT_EQ(found->world_size, c.expected.world_size);
    EXPECT_EQ(found->local_rank, c.expected.local_rank);
  }
}

TEST(ProcessRank, IsRefusedWhenNobodySaysItOrWhatIsSaidCannotBe) {
  EXPECT_EQ(Find({}).status().code(), absl::StatusCode::kFailedPrecondition);
  for (const Variables& variables :
       std::vector<Variables>{{{"WEFT_RANK", "one"}},
                              {{"WEFT_RANK", "-1"}},
                              {{"WEFT_RANK", ""}},
                              {{"WEFT_RANK", "2"}, {"WEFT_WORLD_SIZE", "2"}},
                              {{"WEFT_RANK", "0"}, {"WEFT_WORLD_SIZE", "0"}},
                              {{"WEFT_RANK", "0"}, {"WEFT_LOCAL_RANK", "x"}}}) {
    EXPECT_EQ(Find(variables).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace weft
