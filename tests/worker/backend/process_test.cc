// The cpu backend as workers use it: real processes under mpirun, loaded at run time.
#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/launcher/job_file_for_test.h"
#include "tests/places.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

struct Output {
  int exit_code = -1;
  std::string text;  // stdout and stderr
};

// `timeout` bounds the run; mpirun takes its ranks with it, and they have a parent-death signal.
Output RunRanks(int world, const std::string& name) {
  const JobFolder folder;
  const std::string command =
      "timeout -k 2 100 mpirun --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 "
      "-n " +
      std::to_string(world) + " " + BinaryPath("/bin/weft_mpi_ranks ") + name + " " +
      folder.path() + "/through 2>&1";
  Output output;
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return output;
  char buffer[4096];
  while (std::fgets(buffer, sizeof(buffer), pipe) != nullptr) output.text += buffer;
  const int status = pclose(pipe);
  output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

TEST(CpuBackendUnderMpirun, RunsCollectivesAcrossProcesses) {
  const Output output = RunRanks(3, "collectives");
  EXPECT_EQ(output.exit_code, 0) << output.text;
  for (const char* rank : {"rank 0: ", "rank 1: ", "rank 2: "}) {
    EXPECT_THAT(output.text, HasSubstr(std::string(rank) + "collectives agree\n"));
  }
}

TEST(CpuBackendUnderMpirun, NamesTheRankThatDidNotCome) {
  EXPECT_THAT(RunRanks(2, "timeout").text,
              HasSubstr("rank 0: barrier of group 0 (call 1 of rank 0): not heard from rank 1 for "
                        "300 ms"));
}

TEST(CpuBackendUnderMpirun, StopsWaitingWhenItIsInterrupted) {
  EXPECT_THAT(RunRanks(2, "interrupt").text, HasSubstr("rank 0: soon: barrier interrupted: lease "
                                                       "lost"));
}

}  // namespace
}  // namespace weft
