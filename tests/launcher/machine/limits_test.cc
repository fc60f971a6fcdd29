#include "launcher/machine/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "launcher/machine/machine.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr RunNeeds kFourRanks = {
    .ranks = 4, .rank_bytes = 100 * kMiB, .checkpoint_bytes = 400 * kMiB};

TEST(Limits, AreNamedWithTheirValueWhereTheyAreTooLow) {
  EXPECT_EQ(JudgeAddressSpace({}, kFourRanks), absl::OkStatus());
  EXPECT_EQ(JudgeTasksAndFiles({}, kFourRanks), absl::OkStatus());
  EXPECT_EQ(JudgeAddressSpace({.address_bytes = 2048 * kMiB}, kFourRanks), absl::OkStatus());
  const absl::Status mapped = JudgeAddressSpace({.address_bytes = 900 * kMiB}, kFourRanks);
  EXPECT_EQ(mapped.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(mapped.message()),
              HasSubstr("memory: ulimit -v lets a process map 900 MiB, but a rank of this plan "
                        "maps 1.10 GiB at least"));
  const absl::Status tasks =
      JudgeTasksAndFiles({.tasks_left = 30, .tasks_limit = "ulimit -u is 50"}, kFourRanks);
  EXPECT_EQ(tasks.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(tasks.message(),
            "ulimit -u is 50, which leaves 30 processes and threads, but a run of 4 ranks needs 88 "
            "at least; raise it");
  const absl::Status files = JudgeTasksAndFiles({.file_bytes = 50 * kMiB}, kFourRanks);
  EXPECT_EQ(files.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(files.message()),
              HasSubstr("ulimit -f lets a file have 50.0 MiB, but records and a rank's part of a "
                        "checkpoint need 100 MiB"));
}

TEST(Limits, CountTheThreadsOfAUser) {
  EXPECT_GE(TasksOfUser(getuid()), 1);
  EXPECT_EQ(TasksOfUser(4294967294U), 0);
}

}  // namespace
}  // namespace weft
