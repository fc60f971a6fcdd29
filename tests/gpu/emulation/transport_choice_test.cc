#include "worker/backend/cuda/transport_choice.h"

#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr int kFailedPreconditionCode = static_cast<int>(absl::StatusCode::kFailedPrecondition);

// "h1:a h1:b": ranks by host and device; a host with ! has no NCCL.
std::vector<DeviceFacts> Ranks(const std::string& text) {
  std::vector<DeviceFacts> ranks;
  for (size_t at = 0; at < text.size(); at += 5) {
    DeviceFacts& facts = ranks.emplace_back();
    std::snprintf(facts.host, sizeof(facts.host), "%s", text.substr(at, 2).c_str());
    std::snprintf(facts.device, sizeof(facts.device), "%s", text.substr(at + 3, 1).c_str());
    if (text[at] == '!') std::snprintf(facts.nccl_problem, sizeof(facts.nccl_problem), "none");
  }
  return ranks;
}

struct ChoiceCase {
  TransportKind asked;
  const char* ranks;
  TransportKind kind;
  const char* why;
};

TEST(TransportChoice, FollowsTheDevicesThatRanksHold) {
  constexpr auto kAuto = TransportKind::kAuto;
  constexpr auto kNccl = TransportKind::kNccl;
  constexpr auto kLocal = TransportKind::kLocal;
  const ChoiceCase cases[] = {
      {kAuto, "h1:a", kLocal, "one rank"},
      {kAuto, "!1:a", kLocal, "one rank"},
      {kAuto, "h1:a h1:b", kNccl, "2 ranks hold a device each, on 1 host"},
      {kAuto, "h1:a h2:a h1:b", kNccl, "3 ranks hold a device each, on 2 hosts"},
      {kAuto, "h1:a h1:b h1:a", kLocal, "ranks 0 and 2 share a device"},
      {kAuto, "!1:a !1:a", kLocal, "ranks 0 and 1 share a device"},
      {kLocal, "h1:a h1:b", kLocal, "asked for"},
      {kNccl, "h1:a h1:a", kNccl, "asked for"},
      {kNccl, "h1:a", kNccl, "asked for"},
  };
  for (const ChoiceCase& c : cases) {
    const TransportChoice choice = ChooseTransport(c.asked, Ranks(c.ranks));
    EXPECT_TRUE(choice.status.ok()) << c.ranks << ": " << choice.status.text;
    EXPECT_EQ(choice.kind, c.kind) << c.ranks;
    EXPECT_EQ(std::string(choice.why), c.why) << c.ranks;
  }
}

TEST(TransportChoice, NamesWhoMakesItImpossible) {
  const struct {
    TransportKind asked;
    const char* ranks;
    const char* text;
  } cases[] = {
      {TransportKind::kAuto, "h1:a !2:a", "rank 1: none"},
      {TransportKind::kNccl, "!1:a", "rank 0: none"},
      {TransportKind::kAuto, "h1:a h2:a h2:a", "ranks 1 and 2 share a device, but mapped memory"},
      {TransportKind::kLocal, "h1:a h2:a", "mapped memory is asked for, but mapped memory ends at"},
  };
  for (const auto& c : cases) {
    const TransportChoice choice = ChooseTransport(c.asked, Ranks(c.ranks));
    EXPECT_EQ(choice.status.code, kFailedPreconditionCode) << c.ranks;
    EXPECT_THAT(choice.status.text, HasSubstr(c.text));
  }
}

}  // namespace
}  // namespace weft
