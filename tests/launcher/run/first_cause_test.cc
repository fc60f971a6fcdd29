// The samples were written by Open MPI 4.1.4's mpirun with the arguments of launcher/machine/start.
#include "launcher/run/first_cause.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace weft {
namespace {

std::string Sample(const std::string& name) {
  std::ifstream stream(std::string(WEFT_SOURCE_DIR "/tests/launcher/run/mpirun_samples/") + name +
                       ".txt");
  EXPECT_TRUE(stream) << name;
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

int Exited(int code) {
  return code << 8;
}  // as wait(2) encodes it

TEST(ReadFirstCause, NamesRankHostAndSignalOrExitCode) {
  const struct {
    const char* sample;
    int wait_status;
    int rank, signal, exit_code;
    const char* message;
  } cases[] = {
      {"kill", Exited(137), 1, 9, 0, "rank 1 on vm: killed by signal 9 (Killed)"},
      {"segv", Exited(139), 1, 11, 0, "rank 1 on vm: killed by signal 11 (Segmentation fault)"},
      {"abrt", Exited(134), 1, 6, 0, "rank 1 on vm: killed by signal 6 (Aborted)"},
      {"exit1", Exited(1), 1, 0, 1, "rank 1 on here: exited with code 1"},
      {"exit75", Exited(75), 1, 0, 75, "rank 1 on here: exited with code 75"},
      {"exit0", Exited(1), 1, 0, 0, "rank 1 on vm: ended without finishing"},
      {"pre7", Exited(7), -1, 0, 7, "a worker on here: exited with code 7 while starting"},
      {"missing", Exited(132), -1, 0, 127,
       "mpirun could not execute /nonexistent/weft-worker on here"},
  };
  for (const auto& each : cases) {
    const FirstCause cause = ReadFirstCause(Sample(each.sample), each.wait_status, "here");
    EXPECT_EQ(cause.message, each.message) << each.sample;
    EXPECT_EQ(cause.rank, each.rank) << each.sample;
    EXPECT_EQ(cause.signal, each.signal) << each.sample;
    EXPECT_EQ(cause.exit_code, each.exit_code) << each.sample;
  }
}

TEST(ReadFirstCause, UnderstandsWeftRanks) {
  const FirstCause killed = ReadFirstCause("weft-ranks: rank 2 signal 9\n", Exited(137), "here");
  EXPECT_EQ(killed.message, "rank 2 on here: killed by signal 9 (Killed)");
  EXPECT_EQ(killed.rank, 2);
  const FirstCause ended = ReadFirstCause("weft-ranks: rank 0 exit 1\n", Exited(1), "here");
  EXPECT_EQ(ended.message, "rank 0 on here: exited with code 1");
}

TEST(ReadFirstCause, HintsAtWhatTheNumbersDoNotSay) {
  EXPECT_EQ(ReadFirstCause(Sample("kill"), Exited(137), "here").hint,
            "if nobody sent it, memory ran out");
  EXPECT_EQ(ReadFirstCause(Sample("exit75"), Exited(75), "here").hint, "it lost its coordinator");
  EXPECT_EQ(ReadFirstCause(Sample("segv"), Exited(139), "here").hint, "");
}

TEST(ReadFirstCause, SaysWhatItCanWhenMpirunItselfDied) {
  EXPECT_EQ(ReadFirstCause("", 9, "here").message, "mpirun on here: killed by signal 9 (Killed)");
  EXPECT_EQ(ReadFirstCause("-----\nThere are not enough slots\n", Exited(1), "here").message,
            "mpirun on here ended with code 1: There are not enough slots");
  EXPECT_EQ(ReadFirstCause("", Exited(3), "here").message,
            "mpirun on here ended with code 3: it said nothing");
}

TEST(ReadFirstCause, ReadsTheEndOfAnyAmountOfNoise) {
  const std::string noise(1 << 20, 'x');
  EXPECT_EQ(ReadFirstCause(noise + "\n" + Sample("kill"), Exited(137), "here").rank, 1);
}

TEST(LastLines, KeepsTheEnd) {
  EXPECT_EQ(LastLines("a\nb\n\nc\n", 2, 100), "b\nc");
  EXPECT_EQ(LastLines("abcdef", 5, 3), "def");
  EXPECT_EQ(LastLines("", 5, 3), "");
}

}  // namespace
}  // namespace weft
