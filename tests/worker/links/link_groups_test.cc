#include "worker/links/link_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(SpreadOf, CountsNodesAndTheirRanks) {
  EXPECT_EQ(*SpreadOf({7, 7, 3, 3, 5, 5}), (RanksOnNodes{.nodes = 3, .per_node = 2}));
  EXPECT_EQ(*SpreadOf({7, 3}), (RanksOnNodes{.nodes = 2, .per_node = 1}));
  EXPECT_EQ(*SpreadOf({7, 7, 7}), (RanksOnNodes{.nodes = 1, .per_node = 3}));
}

TEST(SpreadOf, RefusesNodesThatDifferOrTakeTurns) {
  EXPECT_THAT(SpreadOf({7, 7, 3}).status().message(), HasSubstr("these have 2, 1"));
  EXPECT_THAT(SpreadOf({7, 3, 7, 3}).status().message(), HasSubstr("these have 1, 1, 1, 1"));
  EXPECT_TRUE(absl::IsFailedPrecondition(SpreadOf({}).status()));
}

TEST(GroupsToMeasure, AreOfNeighboursOfWholeNodesAndOfOneRankOfEach) {
  EXPECT_THAT(GroupsToMeasure({.nodes = 1, .per_node = 6}),
              ElementsAre(LinkGroups{.ranks = 2}, LinkGroups{.ranks = 6}));
  EXPECT_THAT(GroupsToMeasure({.nodes = 2, .per_node = 4}),
              ElementsAre(LinkGroups{.ranks = 2}, LinkGroups{.ranks = 4},
                          LinkGroups{.ranks = 2, .nodes = 2, .stride = 4},
                          LinkGroups{.ranks = 8, .nodes = 2}));
  EXPECT_THAT(GroupsToMeasure({.nodes = 4, .per_node = 1}),
              ElementsAre(LinkGroups{.ranks = 2, .nodes = 2}, LinkGroups{.ranks = 4, .nodes = 4}));
  EXPECT_THAT(GroupsToMeasure({.nodes = 1, .per_node = 1}), IsEmpty());
}

TEST(MembersOf, MakesGroupsThatAreTheWorldAndLieOnAsManyNodesAsTheySay) {
  for (const RanksOnNodes spread : {RanksOnNodes{1, 8}, {4, 2}, {3, 3}, {8, 1}, {6, 4}, {2, 5}}) {
    const int world = spread.nodes * spread.per_node;
    for (const LinkGroups& groups : GroupsToMeasure(spread)) {
      for (int rank = 0; rank < world; ++rank) {
        const std::vector<int> members = MembersOf(groups, rank);
        ASSERT_EQ(members.size(), groups.ranks);
        EXPECT_TRUE(std::is_sorted(members.begin(), members.end()));
        EXPECT_EQ(std::count(members.begin(), members.end(), rank), 1);
        std::set<int> nodes;
        for (const int member : members) {
          ASSERT_LT(member, world);
          EXPECT_EQ(MembersOf(groups, member), members);
          nodes.insert(member / spread.per_node);
        }
        EXPECT_EQ(nodes.size(), groups.nodes);
      }
    }
  }
}

TEST(Peers, ExchangeInsideTheirNodeAndWithTheSameSlotOfAnother) {
  const RanksOnNodes spread{.nodes = 3, .per_node = 3};
  std::vector<int> inside, across;
  for (int rank = 0; rank < 9; ++rank) {
    inside.push_back(PeerInside(spread, rank));
    across.push_back(PeerAcross(spread, rank));
  }
  EXPECT_THAT(inside, ElementsAre(1, 0, -1, 4, 3, -1, 7, 6, -1));
  EXPECT_THAT(across, ElementsAre(3, 4, 5, 0, 1, 2, -1, -1, -1));
}

}  // namespace
}  // namespace weft
