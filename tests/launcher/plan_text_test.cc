// What `weft plan` prints, whole: what people read before they rent machines. From the files that
// we ship, by the real executable; for clusters of profiles, not for the machine that tests.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/golden/golden.h"
#include "tests/launcher/job_file_for_test.h"

namespace weft {
namespace {

struct Printed {
  int exit_code = -1;
  std::string out;
  std::string err;
};

// `weft plan` in the source tree, with no ledger of runs.
Printed Plan(const std::string& arguments) {
  JobFolder folder;
  const std::string command =
      absl::StrCat("cd " WEFT_SOURCE_DIR " && XDG_STATE_HOME=", folder.path(),
                   " timeout 60 " WEFT_BINARY_DIR "/bin/weft plan ", arguments,
                   " --without-data 2>", folder.path(), "/err.txt </dev/null");
  Printed printed;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return printed;
  std::array<char, 4096> buffer;
  for (size_t got; (got = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    printed.out.append(buffer.data(), got);
  }
  const int status = pclose(pipe);
  printed.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  std::ifstream err(folder.path() + "/err.txt");
  printed.err.assign(std::istreambuf_iterator<char>(err), {});
  return printed;
}

struct Case {
  const char* golden;
  const char* arguments;
  int exit_code;
};

const Case kCases[] = {
    {"weft_plan_gpt2_124m.txt",
     "configs/jobs/gpt2-124m.yaml --cluster a100-40gx8 --nodes 1 --explain 6", 0},
    {"weft_plan_llama3_8b.txt",
     "configs/jobs/llama3-8b.yaml --cluster h100x8 --nodes 4 --explain 8", 0},
    {"weft_plan_llama3_8b_why.txt",
     "configs/jobs/llama3-8b.yaml --cluster h100x8 --nodes 4 --why tp=8,pp=2", 0},
    {"weft_plan_llama3_8b_layout.txt",
     "configs/jobs/llama3-8b.yaml --cluster h100x8 --nodes 4 --layout "
     "tp=2,pp=4,dp=4,micro_batch_size=1 --engine megatron",
     0},
    {"weft_plan_nothing_fits.txt",
     "configs/jobs/llama3-8b.yaml --cluster rtx4090x8 --nodes 1 --set parallelism.pp=1 --set "
     "parallelism.tp=1 "
     "--set parallelism.zero_stage=0 --set offload.optimizer=none",
     3},
};

TEST(WeftPlan, PrintsWhatItAlwaysDid) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.arguments);
    const Printed printed = Plan(c.arguments);
    EXPECT_EQ(printed.exit_code, c.exit_code) << printed.err;
    ExpectGolden(c.golden, printed.err.empty()
                               ? printed.out
                               : absl::StrCat(printed.out, "stderr:\n", printed.err));
  }
}

}  // namespace
}  // namespace weft
