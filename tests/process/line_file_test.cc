#include "process/line_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "process/run_files.h"

namespace weft {
namespace {

std::string TextOf(const std::string& path) {
  std::ifstream stream(path);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

// A folder of its own: tests of this file run at the same time, each in a process.
class LineFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/lines-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = folder_ + "/lines.jsonl";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
  std::string path_;
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
  EXPECT_NE((*lines)->trouble(), "");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE((*lines)->Append("fourth").ok());
  EXPECT_EQ((*lines)->trouble(), "");
  EXPECT_EQ(TextOf(path_), "first\nsecond\nthird\nfourth\n");
}

TEST_F(LineFileTest, EndsHalfALineThatACrashHasLeft) {
  std::ofstream(path_) << "{\"whole\":1}\n{\"hal";
  const auto lines = LineFile::Open(path_);
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_TRUE((*lines)->Append("{}").ok());
  EXPECT_EQ(TextOf(path_), "{\"whole\":1}\n{\"hal\n{}\n");
}

TEST_F(LineFileTest, BecomesTheOlderOneBeforeALineThatItHasNoRoomFor) {
  {
    const auto lines = LineFile::Open(path_, 12);
    ASSERT_TRUE(lines.ok()) << lines.status();
    for (const char* line : {"one", "two", "3", "four"}) EXPECT_TRUE((*lines)->Append(line).ok());
    EXPECT_EQ(TextOf(path_ + ".1"), "one\ntwo\n3\n");
    EXPECT_EQ(TextOf(path_), "four\n");
  }
  const auto lines = LineFile::Open(path_, 12);  // of the next generation
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_TRUE((*lines)->Append("longer than all").ok());
  EXPECT_EQ(TextOf(path_ + ".1"), "four\n");
  EXPECT_EQ(TextOf(path_), "longer than all\n");
}

TEST_F(LineFileTest, GrowsOnWhereNoNewFileCanBeBegun) {
  const auto lines = LineFile::Open(path_, 4);
  ASSERT_TRUE(lines.ok()) << lines.status();
  std::filesystem::create_directories(path_ + ".1/in-the-way");
  for (const char* line : {"one", "two"}) EXPECT_TRUE((*lines)->Append(line).ok());
  EXPECT_EQ(TextOf(path_), "one\ntwo\n");
  std::filesystem::remove_all(path_ + ".1");
  EXPECT_TRUE((*lines)->Append("three").ok());
  EXPECT_EQ(TextOf(path_ + ".1"), "one\ntwo\n");
  EXPECT_EQ(TextOf(path_), "three\n");
}

TEST_F(LineFileTest, KeepsALineInOneFileThoughThereWasNoRoomForAllOfIt) {
  const auto lines = LineFile::Open(path_, 9);
  ASSERT_TRUE(lines.ok()) << lines.status();
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit full = before;
  full.rlim_cur = 3;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  EXPECT_FALSE((*lines)->Append("first").ok());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE((*lines)->Append("second").ok());
  EXPECT_TRUE((*lines)->Append("third").ok());
  EXPECT_EQ(TextOf(path_ + ".1"), "first\nsecond\n");
  EXPECT_EQ(TextOf(path_), "third\n");
}

TEST_F(LineFileTest, ThatCannotBeOpenedIsNamed) {
  const auto lines = LineFile::Open("/proc/nowhere/lines.jsonl");
  ASSERT_FALSE(lines.ok());
  EXPECT_NE(lines.status().message().find("/proc/nowhere/lines.jsonl"), absl::string_view::npos);
}

// Root alone may make a folder another user's.
TEST_F(LineFileTest, OfAnotherUserIsNoLinkAndNoPipeThatHoldsItUp) {
  if (geteuid() != 0) GTEST_SKIP() << "not root";
  const std::string folder = folder_ + "/of-another-user";
  std::filesystem::create_directory(folder);
  const std::string target = folder_ + "/target.jsonl";
  std::ofstream(target) << "{}\n";
  std::filesystem::create_symlink(target, folder + "/lines.jsonl");
  EXPECT_TRUE(LineFile::Open(folder + "/lines.jsonl").ok()) << "in a folder of one's own";
  ASSERT_EQ(chown(folder.c_str(), 12345, 12345), 0);
  EXPECT_FALSE(LineFile::Open(folder + "/lines.jsonl").ok());
  EXPECT_TRUE(LineFile::Open(folder + "/others.jsonl").ok());
  ASSERT_EQ(mkfifo((folder + "/pipe.jsonl").c_str(), 0600), 0);
  EXPECT_FALSE(LineFile::Open(folder + "/pipe.jsonl").ok()) << "nobody reads it";
}

TEST_F(LineFileTest, ThatIsWholeIsWrittenBesideALinkInItsWay) {
  const std::string& folder = folder_;
  std::ofstream(folder + "/target") << "stays";
  std::filesystem::create_symlink(folder + "/target", folder + "/resolved.yaml.part");
  EXPECT_TRUE(WriteWhole(folder + "/resolved.yaml", "text").ok());
  EXPECT_EQ(TextOf(folder + "/target"), "stays");
  EXPECT_EQ(TextOf(folder + "/resolved.yaml"), "text");
}

}  // namespace
}  // namespace weft
