// A failpoint does what its variable asks for, once, and refuses what it cannot do.
#include "process/failpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>

namespace weft {
namespace {

// In a process of its own, as each reads its variables once. Comes to two places, twice.
[[noreturn]] void PassWith(const char* variable, const std::string& value) {
  setenv(variable, value.c_str(), 1);
  for (int round = 0; round < 2; ++round) {
    Failpoint("rank.prepare");
    Failpoint("step.begin");
  }
  _exit(0);
}

TEST(FailpointDeathTest, EndsTheProcessThatRemovesTheTokenAndNoOther) {
  const std::string token = testing::TempDir() + "/failpoint-token-" + std::to_string(getpid());
  std::ofstream(token) << "x";
  const std::string asked = "step.begin:2:" + token;
  EXPECT_EXIT(PassWith(kFailpointVariable, asked), testing::KilledBySignal(SIGKILL), "");
  EXPECT_NE(access(token.c_str(), F_OK), 0);
  EXPECT_EXIT(PassWith(kFailpointVariable, asked), testing::ExitedWithCode(0), "");
}

TEST(FailpointDeathTest, PausesEachTime) {
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EXIT(PassWith(kPauseVariable, "step.begin:20"), testing::ExitedWithCode(0), "");
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(40));
}

TEST(FailpointDeathTest, IsRefusedWhereItCannotBeMeant) {
  for (const char* value : {"step.begun:1:token", "step.begin", "step.begin:1", "step.begin:1:",
                            "step.begin:0:token", "step.begin:x:token", ":1:token"}) {
    EXPECT_EXIT(PassWith(kFailpointVariable, value), testing::ExitedWithCode(2),
                "weft: WEFT_FAILPOINT=.* is no NAME:COUNT:TOKEN with a name of .*\nname one of "
                "file.create ")
        << value;
  }
  for (const char* value : {"step.begin:20:token", "step.begin:", "step.begin:-1", "steps:20"}) {
    EXPECT_EXIT(PassWith(kPauseVariable, value), testing::ExitedWithCode(2), "is no NAME:MS")
        << value;
  }
  EXPECT_EXIT(PassWith(kFailpointVariable, ""), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace weft
