// Logs as they are told: which files, from where, in whole lines.
#include "process/run_logs.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace weft {
namespace {

class RunLogs : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/run-logs-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    std::filesystem::create_directories(folder_ + "/logs/generation-2");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/logs/" + name, std::ios::app) << text;
  }
  LogQuestion Ask() const { return {.run_folder = folder_, .generation = 2}; }

  std::string folder_;
};

TEST_F(RunLogs, AreThoseOfTheGenerationAndOfTheRanksThatWereAsked) {
  Write("generation-2/rank-0.log", "a\n");
  Write("generation-2/rank-10.log", "b\n");
  Write("weftd.log", "c\n");
  std::filesystem::create_directories(folder_ + "/logs/generation-1");
  Write("generation-1/rank-0.log", "old\n");
  LogQuestion question = Ask();
  std::vector<std::string> names;
  for (const LogFile& each : FindLogs(question)) names.push_back(each.name);
  EXPECT_EQ(names, (std::vector<std::string>{"weftd.log", "generation-2/rank-0.log",
                                             "generation-2/rank-10.log"}));
  question.ranks = {10};
  ASSERT_EQ(FindLogs(question).size(), 1u);
  EXPECT_EQ(FindLogs(question).front().rank, 10);
}

TEST_F(RunLogs, ComeInWholeLinesFromWhereTheyWereLeft) {
  Write("generation-2/rank-0.log", "one\ntw");
  std::vector<LogFile> files = FindLogs(Ask());
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(ReadLines(files[0], false), "one\n");
  EXPECT_EQ(ReadLines(files[0], false), "");
  Write("generation-2/rank-0.log", "o\nthree");
  EXPECT_EQ(ReadLines(files[0], false), "two\n");
  EXPECT_EQ(ReadLines(files[0], true), "three");
  EXPECT_EQ(ReadLines(files[0], true), "");
}

TEST_F(RunLogs, BeginWithTheLastLinesThatWereAsked) {
  std::string text;
  for (int i = 0; i < 50000; ++i) text += "line " + std::to_string(i) + "\n";
  Write("generation-2/rank-0.log", text);
  LogQuestion question = Ask();
  const auto tail = [&](int64_t lines) {
    question.tail_lines = lines;
    std::vector<LogFile> files = FindLogs(question);
    std::string all;
    for (std::string piece = ReadLines(files[0], true); !piece.empty();
         piece = ReadLines(files[0], true)) {
      all += piece;
    }
    return all;
  };
  EXPECT_EQ(tail(1), "line 49999\n");
  EXPECT_EQ(tail(2), "line 49998\nline 49999\n");
  EXPECT_EQ(tail(50000), text);
  EXPECT_EQ(tail(60000), text);
  const std::string most = tail(20000);
  EXPECT_EQ(most, text.substr(text.find("line 30000\n")));
  Write("generation-2/rank-0.log", "no end");
  EXPECT_EQ(tail(2), "line 49999\nno end");
}

TEST_F(RunLogs, LeaveOutLinksAndWhatIsNoFile) {
  Write("generation-2/rank-0.log", "a\n");
  std::filesystem::create_symlink("/etc/passwd", folder_ + "/logs/generation-2/rank-1.log");
  std::filesystem::create_directories(folder_ + "/logs/generation-2/rank-2.log");
  ASSERT_EQ(FindLogs(Ask()).size(), 1u);
  std::vector<LogFile> files = FindLogs(Ask());
  std::filesystem::remove(files[0].path);
  std::filesystem::create_symlink("/etc/passwd", files[0].path);
  EXPECT_EQ(ReadLines(files[0], true), "");
}

TEST_F(RunLogs, LeaveOutFilesThatNobodyWroteToSince) {
  Write("generation-2/rank-0.log", "a\n");
  LogQuestion question = Ask();
  question.since_unix_ms = int64_t{4000000000} * 1000;
  EXPECT_TRUE(FindLogs(question).empty());
  question.since_unix_ms = 1;
  EXPECT_EQ(FindLogs(question).size(), 1u);
}

}  // namespace
}  // namespace weft
