// Logs as they are told: which files, from where, in whole lines.
#include "process/run_logs.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "process/older_file.h"

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
  EntryPath Log() const { return {folder_, "logs/generation-2/rank-0.log"}; }
  void BeginAnew() {
    const OpenedEntry begun = BeginNewFile(Log());
    ASSERT_TRUE(begun.ok()) << begun.why;
    close(begun.descriptor);
  }
  // All that is told of a log by now.
  static std::string Rest(LogFile& file, bool to_end) {
    std::string all;
    for (std::string piece = ReadLines(file, to_end); !piece.empty();
         piece = ReadLines(file, to_end)) {
      all += piece;
    }
    return all;
  }

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

TEST_F(RunLogs, AndTheirOlderFilesAreOneText) {
  Write("generation-2/rank-0.log", "one\ntwo\nthree\n");
  BeginAnew();
  Write("generation-2/rank-0.log", "four\nfive\n");
  LogQuestion question = Ask();
  const auto told = [&] {
    std::vector<LogFile> files = FindLogs(question);
    EXPECT_EQ(files.size(), 1u);
    return files.empty() ? "" : Rest(files[0], true);
  };
  EXPECT_EQ(told(), "one\ntwo\nthree\nfour\nfive\n");
  question.ranks = {0};
  EXPECT_EQ(told(), "one\ntwo\nthree\nfour\nfive\n");
  const std::vector<std::pair<int64_t, std::string>> tails = {{1, "five\n"},
                                                              {2, "four\nfive\n"},
                                                              {3, "three\nfour\nfive\n"},
                                                              {5, "one\ntwo\nthree\nfour\nfive\n"},
                                                              {9, "one\ntwo\nthree\nfour\nfive\n"}};
  for (const auto& [lines, text] : tails) {
    question.tail_lines = lines;
    EXPECT_EQ(told(), text) << lines;
  }
  // Amid the two renames of a writer.
  std::filesystem::rename(Log().text(), OlderFileOf(Log().text()));
  EXPECT_EQ(told(), "four\nfive\n");
}

TEST_F(RunLogs, GoOnWithTheOlderFileUntilTwoLooksFindNoMore) {
  Write("generation-2/rank-0.log", "one\n");
  std::vector<LogFile> files = FindLogs(Ask());
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(Rest(files[0], false), "one\n");
  BeginAnew();
  Write("generation-2/rank-0.log", "lf\nthree\n");
  EXPECT_EQ(Rest(files[0], false), "");
  Write("generation-2/rank-0.log.1", "two\nha");  // by whoever was amid a line
  EXPECT_EQ(Rest(files[0], false), "two\n");
  EXPECT_EQ(Rest(files[0], false), "half\nthree\n");
  BeginAnew();
  Write("generation-2/rank-0.log", "four\n");
  EXPECT_EQ(Rest(files[0], true), "four\n");
  // Whoever is slow finds what is left, once. No other file gets the number of one that is open.
  const std::ifstream open(Log().text());
  for (const char* line : {"five\n", "six\n", "seven\n"}) {
    BeginAnew();
    Write("generation-2/rank-0.log", line);
  }
  EXPECT_EQ(Rest(files[0], true), "six\nseven\n");
  EXPECT_EQ(Rest(files[0], true), "");
}

TEST_F(RunLogs, TellEachLineOnceWhileTheirWriterBeginsNewFiles) {
  constexpr int kLines = 20000;
  Write("generation-2/rank-0.log", "");
  std::atomic<int> taken{0};  // by the reader, who has begun with the newest file before another
  std::atomic<bool> is_over{false};
  std::thread writer([&] {
    OpenedEntry log = OpenEntry(Log(), EntryUse::kAppend);
    int in_older = -1;
    for (int line = 0; line < kLines; ++line) {
      if (line % 1000 == 999) {
        while (taken <= in_older) std::this_thread::yield();
        const OpenedEntry begun = BeginNewFile(Log());
        dup2(begun.descriptor, log.descriptor);
        close(begun.descriptor);
        in_older = line;
      }
      const std::string text = "line " + std::to_string(line) + "\n";
      if (write(log.descriptor, text.data(), text.size()) < 0) break;
    }
    close(log.descriptor);
    is_over = true;
  });
  std::vector<LogFile> files = FindLogs(Ask());
  std::string told;
  for (bool last = false; !last;) {
    last = is_over;
    const std::string piece = Rest(files.at(0), last);
    told += piece;
    taken += static_cast<int>(std::count(piece.begin(), piece.end(), '\n'));
  }
  writer.join();
  std::string written;
  for (int line = 0; line < kLines; ++line) written += "line " + std::to_string(line) + "\n";
  EXPECT_EQ(told.size(), written.size());
  EXPECT_TRUE(told == written);
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
