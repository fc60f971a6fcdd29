#include "process/folder_entry.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "process/line_file.h"
#include "process/run_files.h"
#include "process/run_lock.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uid_t kOther = 12345;
constexpr uid_t kThird = 12346;

// The folder `run` is another user's, the file `secret` beside it this one's alone.
class FolderEntryTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "not root, who alone may make a folder another user's";
    std::string name = testing::TempDir() + "/entries-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    top_ = name;
    run_ = top_ + "/run";
    secret_ = top_ + "/secret";
    std::filesystem::create_directories(run_ + "/logs");
    std::ofstream(secret_) << "stays";
    ASSERT_EQ(chmod(secret_.c_str(), 0600), 0);
    GiveAway(run_);
    GiveAway(run_ + "/logs");
  }
  void TearDown() override { std::filesystem::remove_all(top_); }

  static void GiveAway(const std::string& path, uid_t to = kOther) {
    ASSERT_EQ(lchown(path.c_str(), to, to), 0);
  }
  void Link(const std::string& to, const std::string& name) {
    std::filesystem::create_symlink(to, run_ + "/" + name);
    GiveAway(run_ + "/" + name);
  }
  std::string Secret() const {
    std::stringstream text;
    text << std::ifstream(secret_).rdbuf();
    return text.str();
  }
  // Returns why it is not opened; empty: it is.
  static std::string Refusal(const EntryPath& path, EntryUse use) {
    const OpenedEntry entry = OpenEntry(path, use);
    if (entry.ok()) close(entry.descriptor);
    return entry.why;
  }

  std::string top_, run_, secret_;
};

constexpr EntryUse kUses[] = {EntryUse::kRead, EntryUse::kShow,    EntryUse::kAppend,
                              EntryUse::kLock, EntryUse::kRewrite, EntryUse::kCreate};

TEST_F(FolderEntryTest, ALinkInTheRunFolderIsNotFollowed) {
  Link(secret_, "lock");
  Link(top_ + "/nowhere", "dangling");
  Link(top_, "elsewhere");
  for (const EntryUse use : kUses) {
    EXPECT_THAT(
        Refusal({run_, "lock"}, use),
        AllOf(HasSubstr("\"lock\" is a symbolic link of user 12345"), HasSubstr("remove it")));
    EXPECT_THAT(Refusal({run_, "elsewhere/secret"}, use),
                HasSubstr("\"elsewhere\" is a symbolic link"));
    EXPECT_NE(Refusal({run_, "dangling"}, use), "");
  }
  EXPECT_EQ(Secret(), "stays");
  EXPECT_FALSE(std::filesystem::exists(top_ + "/nowhere"));
  EXPECT_EQ(MakeEntryFolder({run_, "elsewhere/made"}).error, ELOOP);
  EXPECT_FALSE(std::filesystem::exists(top_ + "/made"));
  EXPECT_EQ(OpenEntry({run_, "logs/../../secret"}, EntryUse::kRead).error, EPERM);
}

TEST_F(FolderEntryTest, ALinkOnTheWayToTheRunFolderIsFollowed) {
  const std::string way = top_ + "/way";
  std::filesystem::create_directory_symlink(run_, way);
  EXPECT_EQ(Refusal({way, "lock"}, EntryUse::kLock), "");
  EXPECT_TRUE(std::filesystem::exists(run_ + "/lock"));
}

TEST_F(FolderEntryTest, ALinkInAFolderOfThisUserAloneIsItsOwn) {
  std::filesystem::create_symlink(secret_, top_ + "/own");
  EXPECT_EQ(Refusal({top_, "own"}, EntryUse::kAppend), "");
  EXPECT_NE(Refusal({top_, "own"}, EntryUse::kShow), "") << "others would be shown its target";
  ASSERT_EQ(chmod(top_.c_str(), 0770), 0);
  EXPECT_NE(Refusal({top_, "own"}, EntryUse::kAppend), "") << "the group may have put it there";
}

TEST_F(FolderEntryTest, AFileOfThisUserWithAnotherNameElsewhereIsNotTouched) {
  std::filesystem::create_hard_link(secret_, run_ + "/events.jsonl");
  for (const EntryUse use : {EntryUse::kShow, EntryUse::kAppend, EntryUse::kRewrite}) {
    EXPECT_THAT(Refusal({run_, "events.jsonl"}, use), HasSubstr("another name elsewhere"));
  }
  EXPECT_EQ(Secret(), "stays");
}

TEST_F(FolderEntryTest, WhatIsNoFileOrAThirdUsersIsRefusedByName) {
  ASSERT_EQ(mkfifo((run_ + "/pipe").c_str(), 0666), 0);
  std::filesystem::create_directory(run_ + "/folder");
  std::ofstream(run_ + "/thirds") << "text";
  GiveAway(run_ + "/thirds", kThird);
  EXPECT_THAT(Refusal({run_, "pipe"}, EntryUse::kAppend), HasSubstr("is a pipe"));
  EXPECT_THAT(Refusal({run_, "pipe"}, EntryUse::kRead), HasSubstr("is a pipe"));
  EXPECT_THAT(Refusal({run_, "folder"}, EntryUse::kRead), HasSubstr("is a folder"));
  EXPECT_THAT(
      Refusal({run_, "thirds"}, EntryUse::kAppend),
      HasSubstr("belongs to user 12346, and has to be user 0's or the folder's, user 12345"));
  EXPECT_EQ(Refusal({run_, "thirds"}, EntryUse::kRead), "");
}

TEST_F(FolderEntryTest, FoldersAreNeverWiderThan0755AndATighterUmaskStays) {
  const auto made_under = [&](mode_t mask, const std::string& name) {
    const mode_t before = umask(mask);
    EXPECT_EQ(MakeFolder(top_ + "/" + name + "/inner"), 0);
    const OpenedEntry logs = MakeEntryFolder({top_ + "/" + name, "logs/generation-1"});
    umask(before);
    EXPECT_TRUE(logs.ok()) << logs.why;
    close(logs.descriptor);
    mode_t widest = 0;
    for (const char* each : {"", "/inner", "/logs", "/logs/generation-1"}) {
      struct stat found = {};
      EXPECT_EQ(stat((top_ + "/" + name + each).c_str(), &found), 0);
      widest |= found.st_mode & 0777;
    }
    return widest;
  };
  EXPECT_EQ(made_under(0, "wide"), 0755);
  EXPECT_EQ(made_under(077, "tight"), 0700);
  EXPECT_EQ(MakeFolder(secret_ + "/x"), ENOTDIR);
}

TEST_F(FolderEntryTest, NoFileOfARunOverwritesWhatALinkLeadsTo) {
  Link(secret_, "lock");
  Link(secret_, "events.jsonl");
  Link(secret_, "resolved.yaml");
  Link(secret_, "resolved.yaml.part");
  EXPECT_THAT(std::string(RunLock::Take(run_).status().message()),
              HasSubstr("\"lock\" is a symbolic link of user 12345"));
  EXPECT_FALSE(IsRunning(run_));
  EXPECT_FALSE(LineFile::Open(run_ + "/events.jsonl").ok());
  EXPECT_TRUE(WriteWhole(run_ + "/resolved.yaml", "text").ok()) << "it takes the link's place";
  EXPECT_FALSE(std::filesystem::is_symlink(run_ + "/resolved.yaml"));
  EXPECT_EQ(Secret(), "stays");
}

TEST(EntryPaths, SayWhatLiesBelowTheRunFolder) {
  const auto parts = [](const EntryPath& path) { return path.folder + " " + path.name; };
  EXPECT_EQ(parts(EntryOf("/runs/a/lock")), "/runs/a lock");
  EXPECT_EQ(parts(EntryOf("/runs/a/x/y", "/runs/a")), "/runs/a x/y");
  EXPECT_EQ(parts(EntryOf("/runs/ab/y", "/runs/a")), "/runs/ab y") << "it is another folder";
  EXPECT_EQ(parts(LogEntryOf("/logs/a/logs/generation-1/rank-0.log")),
            "/logs/a logs/generation-1/rank-0.log");
  EXPECT_EQ(parts(LogEntryOf("/tmp/words.log")), "/tmp words.log");
  EXPECT_EQ(parts(EntryOf("words")), ". words");
}

}  // namespace
}  // namespace weft
