#include "plan/spec/grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr Axis kAxes[] = {Axis::kData, Axis::kPipeline, Axis::kContext, Axis::kTensor};

std::vector<RankGrid> SmallGrids() {
  std::vector<RankGrid> grids;
  for (int dp = 1; dp <= 4; ++dp) {
    for (int pp = 1; pp <= 4; ++pp) {
      for (int cp = 1; cp <= 2; ++cp) {
        for (int tp = 1; tp <= 4; ++tp) grids.push_back(RankGrid(dp, pp, cp, tp));
      }
    }
  }
  return grids;
}

std::string GridText(const RankGrid& grid) {
  return absl::StrCat("dp=", grid.Degree(Axis::kData), " pp=", grid.Degree(Axis::kPipeline),
                      " cp=", grid.Degree(Axis::kContext), " tp=", grid.Degree(Axis::kTensor));
}

TEST(RankGrid, PutsTensorRanksNextToEachOtherAndStagesFarthestApart) {
  const RankGrid grid(/*dp=*/2, /*pp=*/3, /*cp=*/2, /*tp=*/4);
  EXPECT_EQ(grid.world_size(), 48);
  EXPECT_EQ(grid.CoordinatesOf(0), (GridCoordinates{}));
  EXPECT_EQ(grid.CoordinatesOf(1), (GridCoordinates{.tp = 1}));
  EXPECT_EQ(grid.CoordinatesOf(4), (GridCoordinates{.cp = 1}));
  EXPECT_EQ(grid.CoordinatesOf(8), (GridCoordinates{.dp = 1}));
  EXPECT_EQ(grid.CoordinatesOf(16), (GridCoordinates{.pp = 1}));
  EXPECT_EQ(grid.CoordinatesOf(47), (GridCoordinates{.dp = 1, .pp = 2, .cp = 1, .tp = 3}));
}

TEST(RankGrid, RankAndCoordinatesAreInverse) {
  for (const RankGrid& grid : SmallGrids()) {
    SCOPED_TRACE(GridText(grid));
    for (int rank = 0; rank < grid.world_size(); ++rank) {
      EXPECT_EQ(grid.RankOf(grid.CoordinatesOf(rank)), rank);
    }
  }
}

TEST(RankGrid, GroupsOfAnAxisPartitionTheRanks) {
  for (const RankGrid& grid : SmallGrids()) {
    for (const Axis axis : kAxes) {
      SCOPED_TRACE(absl::StrCat(GridText(grid), " axis ", WordOf(axis)));
      std::set<std::vector<int>> groups;
      size_t members = 0;
      for (int rank = 0; rank < grid.world_size(); ++rank) {
        const std::vector<int> group = grid.GroupOf(axis, rank);
        EXPECT_EQ(std::ssize(group), grid.Degree(axis));
        EXPECT_TRUE(std::is_sorted(group.begin(), group.end()));
        EXPECT_EQ(std::count(group.begin(), group.end(), rank), 1);
        if (groups.insert(group).second) members += group.size();
      }
      // Every rank is in a group of its own choice; no overlap iff sizes add up to the world.
      EXPECT_EQ(static_cast<int>(members), grid.world_size());
    }
  }
}

TEST(RankGrid, AGroupDiffersAlongItsAxisOnly) {
  const RankGrid grid(2, 3, 1, 2);
  EXPECT_EQ(grid.GroupOf(Axis::kTensor, 5), (std::vector<int>{4, 5}));
  EXPECT_EQ(grid.GroupOf(Axis::kData, 5), (std::vector<int>{5, 7}));
  EXPECT_EQ(grid.GroupOf(Axis::kPipeline, 5), (std::vector<int>{1, 5, 9}));
  EXPECT_EQ(grid.GroupOf(Axis::kContext, 5), (std::vector<int>{5}));
}

TEST(RankGrid, TheEmbeddingGroupIsTheFirstAndTheLastStage) {
  const RankGrid grid(2, 3, 1, 2);
  for (const int rank : {1, 5, 9}) {
    EXPECT_EQ(grid.EmbeddingGroupOf(rank), (std::vector<int>{1, 9})) << rank;
  }
  EXPECT_EQ(RankGrid(2, 1, 1, 2).EmbeddingGroupOf(3), (std::vector<int>{3}));
}

TEST(RankGrid, AReplicaGroupHoldsOneDataIndexAndPartitionsTheRanks) {
  for (const RankGrid& grid : SmallGrids()) {
    SCOPED_TRACE(GridText(grid));
    std::set<std::vector<int>> groups;
    for (int rank = 0; rank < grid.world_size(); ++rank) {
      const std::vector<int> group = grid.ReplicaGroupOf(rank);
      EXPECT_TRUE(std::is_sorted(group.begin(), group.end()));
      EXPECT_EQ(std::count(group.begin(), group.end(), rank), 1);
      EXPECT_EQ(std::ssize(group), grid.Degree(Axis::kPipeline) * grid.Degree(Axis::kTensor));
      groups.insert(group);
    }
    EXPECT_EQ(std::ssize(groups), grid.Degree(Axis::kData) * grid.Degree(Axis::kContext));
  }
}

TEST(RankGrid, ADataGroupHoldsTheSameShardsAndPartitionsTheRanks) {
  for (const RankGrid& grid : SmallGrids()) {
    SCOPED_TRACE(GridText(grid));
    std::set<std::vector<int>> groups;
    for (int rank = 0; rank < grid.world_size(); ++rank) {
      const std::vector<int> group = grid.DataGroupOf(rank);
      EXPECT_TRUE(std::is_sorted(group.begin(), group.end()));
      EXPECT_EQ(group[static_cast<size_t>(grid.DataIndexOf(rank))], rank);
      for (const int other : group) {
        EXPECT_EQ(grid.CoordinatesOf(other).pp, grid.CoordinatesOf(rank).pp);
        EXPECT_EQ(grid.CoordinatesOf(other).tp, grid.CoordinatesOf(rank).tp);
      }
      EXPECT_EQ(std::ssize(group), grid.Degree(Axis::kData) * grid.Degree(Axis::kContext));
      groups.insert(group);
    }
    EXPECT_EQ(std::ssize(groups), grid.Degree(Axis::kPipeline) * grid.Degree(Axis::kTensor));
  }
}

TEST(AxisName, IsTheKeyOfJobYaml) {
  EXPECT_EQ(WordOf(Axis::kData), "dp");
  EXPECT_EQ(WordOf(Axis::kPipeline), "pp");
  EXPECT_EQ(WordOf(Axis::kContext), "cp");
  EXPECT_EQ(WordOf(Axis::kTensor), "tp");
}

}  // namespace
}  // namespace weft
