#include "launcher/hosts/ssh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Ssh, RunsTheCommandInPlaceOfTheRemoteShell) {
  EXPECT_THAT(SshArgv({.name = "h2", .user = "ada"}, " -p 2222  -i /home/ada/key ",
                      {"/opt/we ft/weft", "agent", "--name=h2"}),
              ElementsAre("ssh", "-T", "-o", "BatchMode=yes", "-p", "2222", "-i", "/home/ada/key",
                          "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=15", "-o",
                          "ServerAliveCountMax=3", "-o", "ControlPath=none", "ada@h2", "--",
                          "exec '/opt/we ft/weft' agent --name=h2"));
}

// A real shell reads back what was meant.
TEST(Ssh, QuotesWordsForAShell) {
  for (const std::string word : {"plain", "", "two words", "it's", "$HOME", "`id`", "a\"b", "*",
                                 "a;b", "a\\b", "~", "-x", "a\nb", "(1)"}) {
    FILE* pipe = popen(("printf '[%s]' " + ShellWord(word)).c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    std::string read;
    for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) read.push_back(static_cast<char>(c));
    pclose(pipe);
    EXPECT_EQ(read, "[" + word + "]");
  }
}

TEST(Ssh, TellsItsComplaintsInWeftsWords) {
  struct Case {
    int exit_code;
    const char* words;
    absl::StatusCode code;
    const char* said;
  };
  const std::string program = "/opt/weft/weft";
  for (const Case& each :
       {Case{255, "ada@h2: Permission denied (publickey,password).\r\n",
             absl::StatusCode::kPermissionDenied, "authorized_keys"},
        Case{255, "No ED25519 host key is known for h2\nHost key verification failed.\r\n",
             absl::StatusCode::kPermissionDenied, "connect once by `ssh h2`"},
        Case{255,
             "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
             absl::StatusCode::kPermissionDenied, "ssh-keygen -R h2"},
        Case{255, "ssh: Could not resolve hostname h2: Name or service not known",
             absl::StatusCode::kInvalidArgument, "no host of that name"},
        Case{255, "ssh: connect to host h2 port 22: Connection refused",
             absl::StatusCode::kUnavailable, "no sshd listens there"},
        Case{255, "ssh: connect to host h2 port 22: No route to host",
             absl::StatusCode::kUnavailable, "is it up"},
        Case{255, "something new", absl::StatusCode::kUnavailable, "ssh ended: something new"},
        Case{255, "", absl::StatusCode::kUnavailable, "said nothing"},
        Case{127, "sh: 1: exec: /opt/weft/weft: not found", absl::StatusCode::kInvalidArgument,
             "cluster.remote_path"},
        Case{126, "sh: 1: exec: /opt/weft/weft: Permission denied",
             absl::StatusCode::kPermissionDenied, "cannot be executed"},
        Case{2, "INFO x\nweft: host h2: run folder /runs/a: is another folder there",
             absl::StatusCode::kInvalidArgument, "host h2: run folder"},
        Case{75, "weft: the coordinator is busy", absl::StatusCode::kUnavailable,
             "host h2: the coordinator is busy"},
        Case{9, "", absl::StatusCode::kUnavailable, "ended with 9"}}) {
    const absl::Status status = SshFailure("h2", program, each.exit_code, each.words);
    EXPECT_EQ(status.code(), each.code) << each.words;
    EXPECT_THAT(std::string(status.message()), HasSubstr(each.said));
    EXPECT_THAT(std::string(status.message()), ::testing::StartsWith("host h2: "));
  }
}

}  // namespace
}  // namespace weft
