// Groups of processes without mpirun.
#include "launcher/ranks/rank_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

struct Ran {
  int code = 0;
  std::string said;
  Clock::duration took = {};
};

Ran RunShells(int world_size, const std::string& script, std::sig_atomic_t stop = 0) {
  const volatile std::sig_atomic_t stop_now = stop;
  testing::internal::CaptureStdout();
  const Clock::time_point start = Clock::now();
  Ran ran;
  ran.code = RunRankGroup(world_size, {"/bin/sh", "-c", script}, &stop_now);
  ran.took = Clock::now() - start;
  ran.said = testing::internal::GetCapturedStdout();
  return ran;
}

TEST(RankGroup, TellsEachProcessItsRank) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("weft-ranks-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const Ran ran = RunShells(
      3, "echo $WEFT_LOCAL_RANK of $WEFT_WORLD_SIZE > " + folder.string() + "/$WEFT_RANK");
  EXPECT_EQ(ran.code, 0) << ran.said;
  for (const char* rank : {"0", "1", "2"}) {
    std::string line;
    std::getline(std::ifstream(folder / rank), line);
    EXPECT_EQ(line, std::string(rank) + " of 3");
  }
  std::filesystem::remove_all(folder);
}

TEST(RankGroup, EndsWithTheFirstThatFailsAndNamesIt) {
  const struct {
    const char* script;
    int code;
    const char* said;
  } cases[] = {
      {"[ $WEFT_RANK = 1 ] && exit 3; exec sleep 30", 3, "weft-ranks: rank 1 exit 3\n"},
      {"[ $WEFT_RANK = 2 ] && kill -9 $$; exec sleep 30", 137, "weft-ranks: rank 2 signal 9\n"},
  };
  for (const auto& each : cases) {
    const Ran ran = RunShells(3, each.script);
    EXPECT_EQ(ran.code, each.code);
    EXPECT_EQ(ran.said, each.said);
    EXPECT_LT(ran.took, std::chrono::seconds(10));
  }
}

TEST(RankGroup, IsKilledWhenItShallStop) {
  const Ran ran = RunShells(2, "exec sleep 30", /*stop=*/1);
  EXPECT_EQ(ran.code, 128 + SIGTERM);
  EXPECT_EQ(ran.said, "");
  EXPECT_LT(ran.took, std::chrono::seconds(10));
}

TEST(RankGroup, SaysThatAProgramIsMissing) {
  const volatile std::sig_atomic_t stop = 0;
  EXPECT_EQ(RunRankGroup(1, {"/nonexistent/weft-worker"}, &stop), 127);
}

}  // namespace
}  // namespace weft
