#include "process/tls_bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "process/rpc.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

TEST(TlsBundle, NamesThePartThatIsMissing) {
  const std::string key = "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n";
  const std::string certificate = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
  struct Case {
    std::string text;
    std::string said;
  };
  for (const Case& each :
       {Case{"", "no private key"}, Case{certificate, "no private key"},
        Case{key, "no certificate"}, Case{key + certificate, "no authority"},
        Case{key + key, "more than"}, Case{key + certificate + certificate, "damaged"},
        Case{key + certificate + certificate + certificate, "more than"}}) {
    const absl::StatusOr<TlsBundle> bundle = ParseBundle(each.text, "h2.pem");
    EXPECT_EQ(bundle.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(bundle.status().message()), HasSubstr(each.said));
    EXPECT_THAT(std::string(bundle.status().message()), HasSubstr("bundle h2.pem"));
  }
}

TEST(TlsBundle, IsReadFromAFileOfThisUserAlone) {
  char folder[] = "/tmp/weft-bundle-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/h2.pem";
  EXPECT_EQ(ReadBundle(path).status().code(), absl::StatusCode::kNotFound);
  std::ofstream(path) << "no bundle\n";
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  EXPECT_EQ(ReadBundle(path).status().code(), absl::StatusCode::kPermissionDenied);
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(ReadBundle(path).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadBundle(folder).status().code(), absl::StatusCode::kInvalidArgument);
  unlink(path.c_str());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);  // to which nobody writes
  EXPECT_EQ(ReadBundle(path).status().code(), absl::StatusCode::kInvalidArgument);
  unlink(path.c_str());
  rmdir(folder);
}

TEST(TlsBundle, LetsNobodyInWhereTheListOfRevokedCannotBeRead) {
  const CertificateFacts facts{.serial = "0a", .name = "h2"};
  EXPECT_TRUE(CheckNotRevoked(facts, "").ok());
  EXPECT_EQ(CheckNotRevoked(facts, "/tmp/weft-no-such-folder/revoked").code(),
            absl::StatusCode::kPermissionDenied);
}

TEST(TlsBundle, HoldsFromItsFirstSecondToItsLast) {
  const CertificateFacts facts{.serial = "0a", .name = "h2", .begins_s = 1000, .ends_s = 2000};
  EXPECT_TRUE(CheckTime(facts, 1000).ok());
  EXPECT_TRUE(CheckTime(facts, 2000).ok());
  EXPECT_THAT(std::string(CheckTime(facts, 999).message()), HasSubstr("clocks"));
  EXPECT_THAT(std::string(CheckTime(facts, 2001).message()), HasSubstr("issue another"));
}

TEST(NetworkAddress, IsAHostAndAPort) {
  struct Case {
    const char* text;
    const char* host;
    int port;
  };
  for (const Case& each : {Case{"h1:7800", "h1", 7800}, Case{"10.0.0.1:0", "10.0.0.1", 0},
                           Case{"[fd00::1]:65535", "fd00::1", 65535}}) {
    const absl::StatusOr<NetworkAddress> address = ParseAddress(each.text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->host, each.host);
    EXPECT_EQ(address->port, each.port);
    EXPECT_EQ(AddressText(*address), each.text);
  }
  for (const char* text : {"", "h1", ":1", "h1:", "h1:x", "h1:65536", "h1:-1", "fd00::1:1", "a/b:1",
                           "unix:/x", "h 1:2"}) {
    EXPECT_EQ(ParseAddress(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace weft
