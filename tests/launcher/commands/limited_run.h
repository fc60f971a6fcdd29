// `weft` run on what somebody has handed to it by mistake or by malice: with memory and processor
// limited, so that no test takes the machine's, and with the answer that is expected.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/launcher/job_file_for_test.h"
#include "tests/launcher/run_weft.h"
#include "tests/places.h"

namespace weft {

// For an answer, whatever was asked: of a processor. Beside two busy loops and a test or two on
// each core that takes the clock up to a minute, after which `weft` waits for what does not come.
inline constexpr int kMostCpuSeconds = 10;
inline constexpr int kMostSeconds = 60;

// `weft` with 4 GB of address space. An end by a signal, as that for too much of a processor, is
// 128 and more; no answer in time is 124.
inline Ran RunLimited(const JobFolder& folder, const std::string& arguments,
                      const std::string& input = "/dev/null") {
  return RunWeft(folder,
                 absl::StrCat("--as=4000000000 --core=0 --cpu=", kMostCpuSeconds, " ",
                              BinaryPath("/bin/weft"), " ", arguments),
                 {.input = input, .program = "prlimit", .most_s = kMostSeconds});
}

struct HostileCase {
  std::string arguments;
  int exit_code;
  std::string says;
};

inline void ExpectAnswers(const JobFolder& folder, const std::vector<HostileCase>& cases) {
  for (const HostileCase& c : cases) {
    const Ran ran = RunLimited(folder, c.arguments);
    EXPECT_EQ(ran.exit_code, c.exit_code) << c.arguments << "\n" << ran.err;
    EXPECT_THAT(ran.err, testing::HasSubstr(c.says)) << c.arguments;
    EXPECT_LT(ran.err.size(), 40'000u) << c.arguments;
  }
}

}  // namespace weft
