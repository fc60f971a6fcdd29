#include "data/whole_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace weft {
namespace {

using testing::HasSubstr;

class WholeFile : public testing::Test {
 protected:
  WholeFile() : folder_(testing::TempDir() + "/whole-XXXXXX") {
    if (mkdtemp(folder_.data()) == nullptr) std::abort();
  }
  ~WholeFile() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string Refusal(const std::string& path, int64_t most_bytes) const {
    const absl::Status status = ReadWholeFile(path, most_bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path;
    return std::string(status.message());
  }

  std::string folder_;
};

TEST_F(WholeFile, IsReadToTheLastByteThatIsAllowed) {
  const std::string text = std::string("with\0NUL", 8) + std::string(200'000, 'x');
  std::ofstream(Path("file")) << text;
  const auto read = ReadWholeFile(Path("file"), std::ssize(text));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, text);
  EXPECT_EQ(Refusal(Path("file"), std::ssize(text) - 1),
            Path("file") + ": holds 200008 bytes, at most 200007 are read of such a file");
}

// Files of /proc say that they hold nothing.
TEST_F(WholeFile, ThatDoesNotStateItsSizeHasALimitToo) {
  ASSERT_TRUE(ReadWholeFile("/proc/self/maps", 1 << 20).ok());
  EXPECT_THAT(Refusal("/proc/self/maps", 10), HasSubstr("holds more than 10 bytes"));
}

TEST_F(WholeFile, IsNoFolderNoDeviceAndNothing) {
  EXPECT_THAT(Refusal(folder_, 10), HasSubstr("is a folder; name a file"));
  EXPECT_THAT(Refusal("/dev/zero", 10), HasSubstr("is a device or a socket; name a file"));
  EXPECT_THAT(Refusal(Path("none"), 10), HasSubstr("cannot be read: No such file or directory"));
  std::filesystem::create_symlink(Path("loop"), Path("loop"));
  EXPECT_THAT(Refusal(Path("loop"), 10), HasSubstr("cannot be read: "));
}

TEST_F(WholeFile, IsWrittenAnewOrOverWhatIsThere) {
  for (const std::string& text :
       {std::string(3'000'000, 'x'), std::string("short"), std::string()}) {
    ASSERT_EQ(WriteWholeFile(Path("file"), text), absl::OkStatus());
    const auto read = ReadWholeFile(Path("file"), 1 << 22);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, text);
  }
}

// A pipe would wait for its reader, and as root /dev/null could be renamed over.
TEST_F(WholeFile, IsWrittenToNothingElse) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  const std::pair<std::string, std::string> cases[] = {
      {Path("pipe"), "is a device, pipe or socket; name a file"},
      {"/dev/null", "is a device, pipe or socket; name a file"},
      {folder_, "is a folder; name a file"},
      {Path("none/file"), "cannot be written: No such file or directory"},
      {"", "cannot be written: No such file or directory"},
  };
  for (const auto& [path, says] : cases) {
    for (const absl::Status& status : {CheckOutputFile(path), WriteWholeFile(path, "x")}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path;
      EXPECT_THAT(std::string(status.message()), HasSubstr(path + ": " + says));
    }
  }
  EXPECT_EQ(CheckOutputFile(Path("new")), absl::OkStatus());
  EXPECT_FALSE(std::filesystem::exists(Path("new")));
}

TEST_F(WholeFile, OfAStreamEndsWhenItIsAskedTo) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "abc", 3), 3);
  std::atomic<bool> stop{true};
  EXPECT_EQ(ReadWholeStream(ends[0], "stdin", 10, stop).status().code(),
            absl::StatusCode::kCancelled);
  stop = false;
  close(ends[1]);
  const auto read = ReadWholeStream(ends[0], "stdin", 10, stop);
  close(ends[0]);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, "abc");
}

}  // namespace
}  // namespace weft
