#include "process/authority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <ctime>
#include <filesystem>
#include <set>
#include <string>

#include "process/tls_bundle.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kNowS = 1800000000;
constexpr int64_t kDayS = 86400;

class AuthorityFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/weft-authority-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    root_ = folder;
    const auto authority = Authority::Create(path(), kNowS);
    ASSERT_TRUE(authority.ok()) << authority.status();
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::string path() const { return root_ + "/ca"; }
  Authority Opened() const { return Authority::Open(path()).value(); }
  static CertificateFacts FactsOf(const std::string& bundle) {
    return DescribeCertificate(ParseBundle(bundle, "of the test").value().certificate).value();
  }
  static int ModeOf(const std::string& path) {
    struct stat entry = {};
    return stat(path.c_str(), &entry) == 0 ? static_cast<int>(entry.st_mode & 0777) : -1;
  }

  std::string root_;
};

TEST_F(AuthorityFolder, IsThisUsersAlone) {
  EXPECT_EQ(ModeOf(path()), 0700);
  for (const char* file : {"/ca.key", "/ca.crt", "/issued", "/revoked"}) {
    EXPECT_EQ(ModeOf(path() + file), 0600) << file;
  }
  ASSERT_EQ(chmod((path() + "/ca.key").c_str(), 0640), 0);
  EXPECT_EQ(Authority::Open(path()).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(AuthorityFolder, IsMadeOnce) {
  EXPECT_EQ(Authority::Create(path(), kNowS).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Authority::Open(root_ + "/other").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(AuthorityFolder, IssuesBundlesForNinetyDays) {
  const CertificateFacts agent = FactsOf(Opened().Issue(BundleRole::kAgent, {"h2"}, kNowS).value());
  EXPECT_EQ(agent.name, "h2");
  EXPECT_THAT(agent.names, ElementsAre("h2"));
  EXPECT_EQ(agent.begins_s, kNowS - kClockSkewS) << "the clock may be set back by a day";
  EXPECT_EQ(agent.ends_s, kNowS + 90 * kDayS);
  const CertificateFacts server =
      FactsOf(Opened().Issue(BundleRole::kServer, {"10.78.0.11", "h1"}, kNowS).value());
  EXPECT_EQ(server.name, "weftd");
  EXPECT_THAT(server.names, ElementsAre("10.78.0.11", "h1", "weftd"));
}

TEST_F(AuthorityFolder, GivesEachCertificateASerialOfItsOwn) {
  std::set<std::string> serials;
  for (int i = 0; i < 20; ++i) {
    serials.insert(FactsOf(Opened().Issue(BundleRole::kAgent, {"h2"}, kNowS).value()).serial);
  }
  EXPECT_EQ(serials.size(), 20u);
}

TEST_F(AuthorityFolder, RefusesNamesThatAreNone) {
  for (const char* name : {"", "a b", "h2,DNS:weftd", "-x", "a/b", "a\nb"}) {
    EXPECT_EQ(Opened().Issue(BundleRole::kAgent, {name}, kNowS).status().code(),
              absl::StatusCode::kInvalidArgument)
        << name;
  }
  EXPECT_FALSE(Opened().Issue(BundleRole::kAgent, {}, kNowS).ok());
  EXPECT_FALSE(Opened().Issue(BundleRole::kAgent, {"h2", "h3"}, kNowS).ok());
  EXPECT_FALSE(Opened().Issue(BundleRole::kAgent, {std::string(65, 'h')}, kNowS).ok());
}

TEST_F(AuthorityFolder, RevokesEveryCertificateOfAName) {
  const CertificateFacts old = FactsOf(Opened().Issue(BundleRole::kAgent, {"h2"}, kNowS).value());
  const CertificateFacts renewed =
      FactsOf(Opened().Issue(BundleRole::kAgent, {"h2"}, kNowS).value());
  const CertificateFacts other =
      FactsOf(Opened().Issue(BundleRole::kAgent, {"h22"}, kNowS).value());
  const std::string list = Opened().revoked_file();
  EXPECT_TRUE(CheckNotRevoked(old, list).ok());
  EXPECT_EQ(Opened().Revoke("h2").value(), 2);
  EXPECT_EQ(CheckNotRevoked(old, list).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(CheckNotRevoked(renewed, list).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(CheckNotRevoked(other, list).ok());
  EXPECT_THAT(std::string(Opened().Revoke("h3").status().message()), HasSubstr("\"h3\""));
}

}  // namespace
}  // namespace weft
