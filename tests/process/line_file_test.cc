#include "process/line_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace weft {
namespace {

std::string TextOf(const std::string& path) {
  std::ifstream stream(path);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

class LineFileTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove(path_); }
  void TearDown() override { std::filesystem::remove(path_); }
  const std::string path_ = std::filesystem::path(testing::TempDir()) / "lines.jsonl";
};

TEST_F(LineFileTest, KeepsLinesThatThereIsNoRoomForAndSaysSoOnce) {
  const auto lines = LineFile::Open(path_);
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_TRUE((*lines)->Append("first").ok());
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit full = before;
  full.rlim_cur = 9;  // amid the second line
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  EXPECT_EQ((*lines)->Append("second").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE((*lines)->Append("third").ok()) << "it says nothing new";
  EXPECT_FALSE((*lines)->Flush().ok());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE((*lines)->Append("fourth").ok());
  EXPECT_EQ(TextOf(path_), "first\nsecond\nthird\nfourth\n");
}

TEST_F(LineFileTest, EndsHalfALineThatACrashHasLeft) {
  std::ofstream(path_) << "{\"whole\":1}\n{\"hal";
  const auto lines = LineFile::Open(path_);
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_TRUE((*lines)->Append("{}").ok());
  EXPECT_EQ(TextOf(path_), "{\"whole\":1}\n{\"hal\n{}\n");
}

TEST_F(LineFileTest, ThatCannotBeOpenedIsNamed) {
  const auto lines = LineFile::Open("/proc/nowhere/lines.jsonl");
  ASSERT_FALSE(lines.ok());
  EXPECT_NE(lines.status().message().find("/proc/nowhere/lines.jsonl"), absl::string_view::npos);
}

}  // namespace
}  // namespace weft
