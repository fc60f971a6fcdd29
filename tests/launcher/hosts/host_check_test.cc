#include "launcher/hosts/host_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "process/authority.h"
#include "process/folder_token.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class HostCheck : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/weft-hosts-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    expected_ = {.version = "v1", .run_folder = folder_, .network = "10.78.0.0/24"};
    expected_.token = NewToken();
    ASSERT_EQ(WriteToken(folder_, expected_.token), absl::OkStatus());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Refusal() const {
    const absl::Status status = CheckHost("h2", expected_, "v1", {"fd00::1", "10.78.0.12"}, now_s_);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), ::testing::StartsWith("host h2: "));
    return std::string(status.message());
  }

  std::string folder_;
  HandOver expected_;
  int64_t now_s_ = 1795860000;
};

TEST_F(HostCheck, PassesAHostThatSharesTheFolderAndTheNetwork) {
  EXPECT_EQ(CheckHost("h2", expected_, "v1", {"fd00::1", "10.78.0.12"}, now_s_), absl::OkStatus());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1) << "the token";
  RemoveToken(folder_, expected_.token);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  expected_.run_folder.clear();
  EXPECT_EQ(CheckHost("h2", expected_, "v1", {"10.78.0.12"}, now_s_), absl::OkStatus());
}

// An agent whose clock was two days behind dialed until somebody lost patience.
TEST_F(HostCheck, NamesAClockByWhichItsCertificateDoesNotHold) {
  const auto authority = Authority::Create(folder_ + "/ca", now_s_);
  ASSERT_TRUE(authority.ok()) << authority.status();
  expected_.bundle = authority->Issue(BundleRole::kAgent, {"h2"}, now_s_).value();
  EXPECT_EQ(CheckHost("h2", expected_, "v1", {"10.78.0.12"}, now_s_ - 3600), absl::OkStatus());
  now_s_ -= 2 * 86400;
  EXPECT_THAT(Refusal(),
              AllOf(HasSubstr("its clock says "), HasSubstr("compare the hosts' clocks")));
}

TEST_F(HostCheck, NamesAnotherVersion) {
  expected_.version = "v2";
  EXPECT_THAT(Refusal(), HasSubstr("weft is v1 there but v2 here"));
}

// The path exists there, but it is not the launcher's folder.
TEST_F(HostCheck, NamesAFolderOfTheSameNameThatIsAnotherOne) {
  RemoveToken(folder_, expected_.token);
  EXPECT_THAT(Refusal(), HasSubstr("is another folder there than here"));
  const std::string other = NewToken();
  EXPECT_NE(other, expected_.token);
  ASSERT_EQ(WriteToken(folder_, other), absl::OkStatus());
  EXPECT_THAT(Refusal(), HasSubstr("is another folder there than here"));
  expected_.token.clear();
  EXPECT_THAT(Refusal(), HasSubstr("is another folder there than here"));
}

TEST_F(HostCheck, NamesAFolderThatIsNotThere) {
  expected_.run_folder = folder_ + "/none";
  EXPECT_THAT(Refusal(), HasSubstr("No such file or directory there"));
}

TEST_F(HostCheck, NamesAFolderThatCannotBeWritten) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  chmod(folder_.c_str(), 0500);
  EXPECT_THAT(Refusal(), HasSubstr("cannot be written from there"));
  chmod(folder_.c_str(), 0700);
}

TEST_F(HostCheck, NamesTheAddressesThatAreNotInTheNetwork) {
  expected_.network = "10.79.0.0/24";
  EXPECT_THAT(Refusal(), HasSubstr("fd00::1, 10.78.0.12"));
}

}  // namespace
}  // namespace weft
