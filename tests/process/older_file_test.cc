// A file becomes its older one, and both are read as one.
#include "process/older_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace weft {
namespace {

class OlderFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/older-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    std::filesystem::create_directory(folder_ + "/logs");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  EntryPath Log() const { return {folder_, "logs/a.log"}; }
  void Append(const std::string& text) { std::ofstream(Log().text(), std::ios::app) << text; }
  std::string older() const { return OlderFileOf(Log().text()); }
  static std::string ContentOf(const std::string& path) {
    std::ifstream stream(path);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  std::string folder_;
};

TEST_F(OlderFile, IsOneAndTheLastOne) {
  for (const char* text : {"first", "second", "third"}) {
    Append(text);
    const OpenedEntry begun = BeginNewFile(Log());
    ASSERT_TRUE(begun.ok()) << begun.why;
    EXPECT_EQ(write(begun.descriptor, "new ", 4), 4);
    close(begun.descriptor);
  }
  EXPECT_EQ(ContentOf(older()), "new third");
  EXPECT_EQ(ContentOf(Log().text()), "new ");
  const std::filesystem::directory_iterator files(folder_ + "/logs");
  EXPECT_EQ(std::distance(begin(files), end(files)), 2);
}

TEST_F(OlderFile, IsLeftAsItIsWhereNoNewOneCanBeBegun) {
  Append("text");
  std::filesystem::create_directories(older() + "/in-the-way");
  EXPECT_FALSE(BeginNewFile(Log()).ok());
  EXPECT_EQ(ContentOf(Log().text()), "text");
  EXPECT_FALSE(BeginNewFile({folder_, "nowhere/a.log"}).ok());
}

TEST_F(OlderFile, ComesBeforeTheEndOfAFileThatHasLittle) {
  EXPECT_EQ(ReadEnd(Log(), 5), "");
  Append("abcdef");
  EXPECT_EQ(ReadEnd(Log(), 5), "bcdef");
  close(BeginNewFile(Log()).descriptor);
  EXPECT_EQ(ReadEnd(Log(), 5), "bcdef");
  Append("gh");
  EXPECT_EQ(ReadEnd(Log(), 5), "defgh");
  EXPECT_EQ(ReadEnd(Log(), 50), "abcdefgh");
  std::filesystem::rename(Log().text(), older());  // amid the writer's two renames
  EXPECT_EQ(ReadEnd(Log(), 5), "gh");
}

TEST_F(OlderFile, HasTheNameOfTheNewestInItsOwn) {
  std::string newest = "kept";
  EXPECT_FALSE(IsOlderFile("rank-0.log", &newest));
  EXPECT_FALSE(IsOlderFile(".1", &newest));
  EXPECT_EQ(newest, "kept");
  EXPECT_TRUE(IsOlderFile("rank-0.log.1", &newest));
  EXPECT_EQ(newest, "rank-0.log");
}

}  // namespace
}  // namespace weft
