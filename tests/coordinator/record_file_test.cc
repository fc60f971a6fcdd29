#include "coordinator/record_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kCure[] = "move it away";

class RecordFileTest : public ::testing::Test {
 protected:
  RecordFileTest() {
    char pattern[] = "/tmp/weft-records-XXXXXX";
    folder_ = mkdtemp(pattern);
    path_ = folder_ + "/journal.db";
  }
  ~RecordFileTest() override { std::filesystem::remove_all(folder_); }

  // A body is upgraded by saying so, and one that says "bad" cannot be.
  static RecordFile::Format FormatOf(int version) {
    const auto upgrade = [version](int from,
                                   absl::string_view body) -> absl::StatusOr<std::string> {
      if (body == "bad") return absl::DataLossError("it says bad");
      return absl::StrCat(body, " ", from, "->", version);
    };
    return {.version = version, .upgrade_record = upgrade, .upgrade_snapshot = upgrade};
  }

  void Write(int version, const std::vector<std::string>& bodies) {
    const auto file = RecordFile::Open(path_, FormatOf(version), kCure);
    ASSERT_TRUE(file.ok()) << file.status();
    std::vector<RecordFile::Record> records;
    for (const std::string& body : bodies) {
      records.push_back({static_cast<int64_t>(records.size()) + 1, body});
    }
    ASSERT_TRUE((*file)->Append(records).ok());
  }

  static std::vector<std::string> ReadAll(RecordFile& file) {
    std::vector<std::string> bodies;
    const auto read = [&](int64_t revision, absl::string_view body) {
      bodies.push_back(absl::StrCat(revision, ": ", body));
      return absl::OkStatus();
    };
    const absl::Status status = file.Replay(read, read);
    EXPECT_TRUE(status.ok()) << status;
    return bodies;
  }

  std::string folder_;
  std::string path_;
};

TEST_F(RecordFileTest, UpgradesAnOlderFormatOnce) {
  Write(1, {"a", "b", "c"});
  {
    const auto file = RecordFile::Open(path_, FormatOf(1), kCure);
    ASSERT_TRUE((*file)->Shorten({2, "a and b"}).ok());
  }
  for (int open = 0; open < 2; ++open) {
    const auto file = RecordFile::Open(path_, FormatOf(3), kCure);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->moved_aside(), "");
    EXPECT_THAT(ReadAll(**file), ElementsAre("2: a and b 1->3", "3: c 1->3"));
  }
}

TEST_F(RecordFileTest, GoesOnWithRecordsAfterAnUpgrade) {
  Write(1, {"a"});
  {
    const auto file = RecordFile::Open(path_, FormatOf(2), kCure);
    ASSERT_TRUE((*file)->Append({{2, "new"}}).ok());
  }
  const auto file = RecordFile::Open(path_, FormatOf(2), kCure);
  EXPECT_THAT(ReadAll(**file), ElementsAre("1: a 1->2", "2: new"));
}

TEST_F(RecordFileTest, IsAsItWasWhereAnUpgradeFails) {
  Write(1, {"a", "bad"});
  const auto upgraded = RecordFile::Open(path_, FormatOf(2), kCure);
  EXPECT_TRUE(absl::IsDataLoss(upgraded.status())) << upgraded.status();
  EXPECT_THAT(std::string(upgraded.status().message()), HasSubstr("it says bad"));
  const auto file = RecordFile::Open(path_, FormatOf(1), kCure);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(ReadAll(**file), ElementsAre("1: a", "2: bad"));
}

TEST_F(RecordFileTest, OfANewerFormatIsRefusedAndKept) {
  Write(3, {"a"});
  const auto older = RecordFile::Open(path_, FormatOf(2), kCure);
  EXPECT_TRUE(absl::IsFailedPrecondition(older.status())) << older.status();
  EXPECT_THAT(std::string(older.status().message()),
              HasSubstr("has format 3, of a newer weft; this one reads 2 at most"));
  const auto file = RecordFile::Open(path_, FormatOf(3), kCure);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(ReadAll(**file), ElementsAre("1: a"));
}

TEST_F(RecordFileTest, IsOnlyLookedAtByWhoOpensItToRead) {
  EXPECT_FALSE(RecordFile::OpenToRead(path_, FormatOf(1), kCure).ok());
  EXPECT_FALSE(std::filesystem::exists(path_)) << "nothing is made";
  Write(2, {"a", "b"});
  {
    const auto file = RecordFile::OpenToRead(path_, FormatOf(2), kCure);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_THAT(ReadAll(**file), ElementsAre("1: a", "2: b"));
    EXPECT_TRUE(absl::IsUnavailable(RecordFile::Open(path_, FormatOf(2), kCure).status()))
        << "it is held";
  }
  const std::pair<RecordFile::Format, const char*> others[] = {
      {FormatOf(3), "has format 2, this weft's is 3; a weftd that is started there would upgrade"},
      {FormatOf(1), "would refuse it"},
      {{.version = 3}, "would move it aside"}};
  for (const auto& [format, says] : others) {
    const absl::Status status = RecordFile::OpenToRead(path_, format, kCure).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  }
  const auto file = RecordFile::Open(path_, FormatOf(2), kCure);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(ReadAll(**file), ElementsAre("1: a", "2: b")) << "nothing has changed";
}

// Who can do without what it says.
TEST_F(RecordFileTest, OfAnotherFormatIsMovedAsideWhereNobodyNeedsIt) {
  Write(3, {"a"});
  const auto file = RecordFile::Open(path_, {.version = 2}, kCure);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->moved_aside(), path_ + ".format-3");
  EXPECT_TRUE(ReadAll(**file).empty());
}

}  // namespace
}  // namespace weft
