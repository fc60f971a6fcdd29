#include "launcher/agent/launch_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

proto::Launch LaunchOn(const std::vector<std::vector<int>>& ranks) {
  proto::Launch launch;
  for (const std::vector<int>& each : ranks) {
    proto::HostRanks& host = *launch.add_hosts();
    host.set_host("h" + std::to_string(launch.hosts_size()));
    host.set_machine("machine " + host.host());
    host.add_addresses("10.0.0." + std::to_string(launch.hosts_size()));
    for (const int rank : each) host.add_ranks(rank);
    launch.set_world_size(launch.world_size() + static_cast<int>(each.size()));
  }
  return launch;
}

TEST(LaunchShare, IsEverythingWhereNoHostsAreNamed) {
  proto::Launch launch;
  launch.set_world_size(4);
  EXPECT_EQ(ShareOf(launch, "any", true)->kind, GroupKind::kMpirun);
  EXPECT_EQ(ShareOf(launch, "any", false)->kind, GroupKind::kForked);
  EXPECT_EQ(ShareOf(LaunchOn({{0, 1}}), "machine h1", true)->kind, GroupKind::kMpirun);
}

TEST(LaunchShare, IsFoundByTheMachine) {
  const proto::Launch launch = LaunchOn({{0, 3}, {1}, {2, 4}});
  const auto third = ShareOf(launch, "machine h3", true);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(third->kind, GroupKind::kGuest);
  EXPECT_EQ(third->own_host, 2u);
  EXPECT_THAT(third->hosts[2].ranks, ElementsAre(2, 4));
  EXPECT_THAT(third->first_addresses, ElementsAre("10.0.0.1"));
  EXPECT_EQ(ShareOf(launch, "machine h1", true)->kind, GroupKind::kMpirun);
  EXPECT_EQ(ShareOf(launch, "machine h2", false)->kind, GroupKind::kForked);
}

TEST(LaunchShare, NeedsTheOthersOnTheFirstHostAlone) {
  proto::Launch launch = LaunchOn({{0, 3}, {2, 4}});  // a third host has rank 1
  launch.set_world_size(5);
  const auto own = ShareOf(launch, "machine h2", true);
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->kind, GroupKind::kGuest);
  EXPECT_THAT(own->hosts[own->own_host].ranks, ElementsAre(2, 4));
  EXPECT_TRUE(absl::IsInvalidArgument(ShareOf(launch, "machine h1", true).status()));
  launch.set_world_size(4);
  EXPECT_TRUE(absl::IsInvalidArgument(ShareOf(launch, "machine h2", true).status()));
}

TEST(LaunchShare, IsRefusedUnlessEachRankHasOneHost) {
  EXPECT_THAT(ShareOf(LaunchOn({{0}, {1}}), "machine h9", true).status().message(),
              HasSubstr("none of the 2 hosts is this one"));
  for (const auto& ranks : std::vector<std::vector<std::vector<int>>>{
           {{0}, {0}}, {{0}, {2}}, {{1, 0}, {2}}, {{0, 1}, {}}, {{-1}, {0}}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ShareOf(LaunchOn(ranks), "machine h1", true).status()));
  }
}

}  // namespace
}  // namespace weft
