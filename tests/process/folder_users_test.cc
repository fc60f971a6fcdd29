#include "process/folder_users.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>
#include <string>

namespace weft {
namespace {

constexpr uid_t kReader = 12345, kWriter = 12346, kStranger = 12347;

// Root plays them all: what a list says holds for the file system's user of this thread alone.
class FolderUsersTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "not root, who alone may play other users";
    std::string name = testing::TempDir() + "/users-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    top_ = name;
    ASSERT_EQ(chmod(top_.c_str(), 0755), 0);
    mask_ = umask(077);
  }
  void TearDown() override {
    if (geteuid() != 0) return;
    umask(mask_);
    std::filesystem::remove_all(top_);
  }
  // Whether that user may do so (R_OK, W_OK).
  static bool May(uid_t user, const std::string& path, int how) {
    EXPECT_EQ(seteuid(user), 0);
    const bool may = faccessat(AT_FDCWD, path.c_str(), how, AT_EACCESS) == 0;
    EXPECT_EQ(seteuid(0), 0);
    return may;
  }
  static void MakeFileAs(uid_t user, const std::string& path) {
    EXPECT_EQ(seteuid(user), 0);
    const int file = open(path.c_str(), O_WRONLY | O_CREAT, 0644);
    EXPECT_EQ(seteuid(0), 0);
    ASSERT_GE(file, 0) << path;
    close(file);
  }

  std::string top_;
  mode_t mask_ = 0;
};

TEST_F(FolderUsersTest, ReadersReadAndWritersWriteUnderAnyUmask) {
  const std::string run = top_ + "/of/one/run";
  ASSERT_EQ(MakeFolderFor({.readers = {kReader}}, run), 0);
  EXPECT_EQ(MakeFolderFor({.readers = {}, .writers = {kWriter}}, run), EEXIST);
  ASSERT_EQ(LetIn({.writers = {kWriter}}, {run, "."}), 0);
  EXPECT_TRUE(May(kReader, run, R_OK | X_OK));
  EXPECT_FALSE(May(kReader, run, W_OK));
  EXPECT_TRUE(May(kWriter, run, W_OK)) << "it has to pass through folders made for the reader";
  EXPECT_FALSE(May(kWriter, top_ + "/of", W_OK));
  EXPECT_FALSE(May(kStranger, run, X_OK));
  const FolderUsers users = UsersOf(run);
  EXPECT_EQ(users.readers, std::set<uid_t>{kReader});
  EXPECT_EQ(users.writers, std::set<uid_t>{kWriter});
  EXPECT_TRUE(UsersOf(top_ + "/of").empty()) << "who passes through has no part in it";
}

TEST_F(FolderUsersTest, WhatAWriterMakesIsForAllOfThem) {
  const std::string run = top_ + "/run";
  ASSERT_EQ(MakeFolderFor({.readers = {kReader}, .writers = {kWriter}}, run), 0);
  ASSERT_EQ(seteuid(kWriter), 0);
  const OpenedEntry made = MakeEntryFolder({run, "logs/generation-1"});
  ASSERT_EQ(seteuid(0), 0);
  ASSERT_TRUE(made.ok()) << made.why;
  close(made.descriptor);
  const std::string log = run + "/logs/generation-1/rank-0.log";
  MakeFileAs(kWriter, log);
  EXPECT_TRUE(May(kReader, log, R_OK));
  EXPECT_FALSE(May(kReader, log, W_OK));
  EXPECT_FALSE(May(kStranger, log, R_OK));
  const FolderUsers users = UsersOf(run + "/logs/generation-1");
  EXPECT_EQ(users.writers.count(geteuid()), 1u) << "whoever owns the run folder removes it, too";
  EXPECT_EQ(users.writers.count(kWriter), 1u);
}

// As on NFS 4: a file system of memory that keeps no lists.
TEST_F(FolderUsersTest, WhereNoListIsKeptTheWritersGroupIsLetIn) {
  const passwd* const writer = getpwnam("daemon");
  ASSERT_NE(writer, nullptr);
  ASSERT_EQ(mount("none", top_.c_str(), "ramfs", 0, "mode=0755"), 0);
  const std::string run = top_ + "/of/run";
  EXPECT_EQ(MakeFolderFor({.readers = {}, .writers = {writer->pw_uid}}, run), 0);
  struct stat made = {};
  EXPECT_EQ(stat(run.c_str(), &made), 0);
  EXPECT_EQ(made.st_gid, writer->pw_gid);
  EXPECT_EQ(made.st_mode & 07777, 0770u);
  EXPECT_EQ(stat((top_ + "/of").c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 07777, 0710u);
  EXPECT_TRUE(IsMadeForOthers(run));
  EXPECT_EQ(LetIn({.writers = {kWriter}}, {run, "."}), EOPNOTSUPP) << "nobody knows its group";
  EXPECT_EQ(umount2(top_.c_str(), MNT_DETACH), 0);
}

TEST_F(FolderUsersTest, AFolderOfAnotherUserIsNotGivenAway) {
  const std::string theirs = top_ + "/theirs";
  ASSERT_EQ(mkdir(theirs.c_str(), 0777), 0);
  ASSERT_EQ(chown(theirs.c_str(), kReader, kReader), 0);
  EXPECT_EQ(LetIn({.writers = {kWriter}}, {theirs, "."}), EPERM);
}

TEST_F(FolderUsersTest, AFileIsReadByThoseWhoAreNamed) {
  const std::string path = top_ + "/secret";
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  LetRead({}, file);
  EXPECT_FALSE(May(kReader, path, R_OK));
  LetRead({kReader}, file);
  close(file);
  EXPECT_TRUE(May(kReader, path, R_OK));
  EXPECT_FALSE(May(kStranger, path, R_OK));
}

}  // namespace
}  // namespace weft
