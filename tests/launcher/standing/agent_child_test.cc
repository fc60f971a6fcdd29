#include "launcher/standing/agent_child.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;

TEST(AgentArgv, SaysWhatTheOrderSaysAndWhatTheStandingAgentHasItself) {
  AgentChildOptions options{.program = "/bin/weft",
                            .coordinator = "unix:/s",
                            .host = "n1",
                            .order = {"job-17", 7, "run-a", "/runs/a", 4, {}}};
  EXPECT_THAT(AgentArgv(options),
              ElementsAre("/bin/weft", "agent", "--coordinator=unix:/s", "--job-id=job-17",
                          "--allocation=7", "--run-id=run-a", "--slots=4"));
  options.order.slots = {0, 2};
  options.name = "n1";
  options.domain = "rack1";
  options.bundle_file = "/b.pem";
  options.order.token = "a secret";
  options.order.is_of_another = true;
  options.allowed_env = {"UCX_*"};
  EXPECT_THAT(AgentArgv(options),
              ElementsAre("/bin/weft", "agent", "--coordinator=unix:/s", "--job-id=job-17",
                          "--allocation=7", "--run-id=run-a", "--slots=4", "--only-slots=0,2",
                          "--of-another", "--allow-env=UCX_*", "--name=n1", "--domain=rack1",
                          "--tls=/b.pem"));
  options = {.program = "/bin/weft", .coordinator = "unix:/s", .host = "n1", .order = {}};
  options.order = {"job-17", 7, "run-a", "/runs/a", 4, {}};
  options.order.ranks_user = "ann";
  options.order.ranks_uid = 1000;
  EXPECT_THAT(AgentArgv(options),
              ::testing::IsSupersetOf({"--ranks-user=ann", "--ranks-uid=1000"}));
}

class WordsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = "/tmp/weft-test-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }
  std::string Words(const std::string& text, int64_t from) const {
    std::ofstream(folder_ + "/words") << text;
    return LastWords(folder_ + "/words", from);
  }
  std::string folder_;
};

TEST_F(WordsTest, AreTheAgentsOwnAtMostFourKibibytesAndHarmless) {
  EXPECT_EQ(Words("of another\nown\n", 11), "own\n");
  EXPECT_EQ(Words("", 11), "");
  EXPECT_EQ(LastWords(folder_ + "/none", 0), "");
  EXPECT_EQ(Words("\x1b[2J\xff", 0), "\\x1b[2J\\xff");
  const std::string much = Words(std::string(10000, 'x') + "end", 0);
  EXPECT_EQ(much.size(), kMostLastWords);
  EXPECT_THAT(much, EndsWith("xend"));
  EXPECT_LE(Words(std::string(5000, '\x01'), 0).size(), kMostLastWords);
}

TEST_F(WordsTest, LieBesideTheLogsOfTheRunIfTheyCan) {
  AllocationOrder order{"job-1", 7, "run-a", folder_ + "/run", 1, {}};
  EXPECT_EQ(WordsFile(order, "n1/x", "/elsewhere"), folder_ + "/run/logs/agent-n1_x.log");
  order.run_folder = "/proc/no";
  EXPECT_EQ(WordsFile(order, "n1", "/elsewhere"), "/elsewhere/run-a.log");
  order.run_folder.clear();
  EXPECT_EQ(WordsFile(order, "n1", "/elsewhere"), "/elsewhere/run-a.log");
}

TEST_F(WordsTest, AreTakenAndTheEndIsSeenOfAChildThatTheKernelWatches) {
  std::ofstream(folder_ + "/agent") << "#!/bin/sh\necho last words >&2\nexit 3\n";
  std::filesystem::permissions(folder_ + "/agent", std::filesystem::perms::owner_all);
  const auto child = AgentChild::Start({.program = folder_ + "/agent",
                                        .coordinator = "unix:/s",
                                        .host = "n1",
                                        .order = {"job-1", 7, "run-a", "", 1, {}},
                                        .words = folder_ + "/words"});
  ASSERT_TRUE(child.ok()) << child.status();
  std::optional<ChildEnd> end;
  for (int i = 0; i < 3000 && !end; ++i) {
    usleep(10000);
    end = child->Ended();
  }
  ASSERT_TRUE(end);
  EXPECT_TRUE(end->is_known);
  EXPECT_EQ(end->exit_code, 3);
  EXPECT_EQ(LastWords(folder_ + "/words", 0), "last words\n");
}

}  // namespace
}  // namespace weft
