// flux exec is asked for one host at a time, and what it says becomes a sentence.
#include "launcher/batch/flux_exec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/hosts/ssh.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const BatchHosts kJob = {
    .system = "Flux", .job_id = "f2e7", .hosts = {"a", "b"}, .flux_ranks = {0, 4}};

TEST(FluxStarter, AsksForTheBrokerOfTheHost) {
  EXPECT_THAT(FluxStarter(kJob).argv({.name = "b"}, {"/w/weft", "agent"}),
              ElementsAre("flux", "exec", "--rank=4", "/w/weft", "agent"));
}

TEST(FluxExecFailure, SaysWhatToDo) {
  const absl::Status missing = FluxExecFailure(
      "b", "/w/weft", 127, "flux-exec: rank 4: error launching process: No such file or directory");
  EXPECT_EQ(missing.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("host b: /w/weft is not there; install"));
  const absl::Status lost =
      FluxExecFailure("b", "/w/weft", 68, "flux-exec: rank 4: No route to host");
  EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable);
  const absl::Status agent =
      FluxExecFailure("b", "/w/weft", 2, "weft: another version\nflux-exec: rank 4: Exit 2\n");
  EXPECT_EQ(agent, CommandFailure("b", "/w/weft", 2, "weft: another version"));
}

}  // namespace
}  // namespace weft
