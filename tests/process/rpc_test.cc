#include "process/rpc.h"

#include <gtest/gtest.h>

#include <string>

namespace weft {
namespace {

TEST(Rpc, EveryStatusCodeSurvivesTheWire) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    EXPECT_EQ(FromGrpc(ToGrpc(status)), status) << status;
    EXPECT_EQ(static_cast<int>(ToGrpc(status).error_code()), code);
  }
  EXPECT_TRUE(FromGrpc(ToGrpc(absl::OkStatus())).ok());
}

TEST(Rpc, UnixTargetRefusesWhatNoSocketCanBe) {
  EXPECT_EQ(UnixTarget("/run/weftd.sock").value(), "unix:/run/weftd.sock");
  EXPECT_EQ(UnixTarget("weftd.sock").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(UnixTarget("/" + std::string(106, 'a')).ok());
  const absl::Status longer = UnixTarget("/" + std::string(107, 'a')).status();
  EXPECT_EQ(longer.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(longer.message().find("108 bytes"), absl::string_view::npos) << longer;
}

TEST(Rpc, NeverSpeaksPlainTcp) {
  EXPECT_EQ(OpenChannel("localhost:1234").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weft
