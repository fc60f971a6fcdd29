#include "plan/estimate/collective.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace weft {
namespace {

// Eight workers a node, 100 B/s inside, 10 B/s of network each, no latency.
Machine Nodes(bool gpu = false) {
  Machine machine;
  machine.gpu = gpu;
  machine.slots_per_node = 8;
  machine.intra_node.bytes_per_s = 100;
  machine.inter_node.bytes_per_s = 10;
  return machine;
}

TEST(PricedGroup, HoldsAsManyRanksOfANodeAsItsStrideLeaves) {
  struct Case {
    int ranks, stride, world;
    double per_node;
  };
  const Case cases[] = {
      {8, 1, 8, 8},    {16, 1, 16, 8},   {4, 2, 64, 4}, {16, 2, 64, 4},
      {16, 8, 128, 1}, {16, 32, 512, 1}, {2, 8, 64, 1},
  };
  for (const Case& c : cases) {
    const PricedGroup group = GroupOf(Nodes(), c.ranks, c.stride, c.world);
    EXPECT_EQ(group.ranks, c.ranks);
    EXPECT_EQ(group.per_node, c.per_node) << c.ranks << " ranks, stride " << c.stride;
  }
}

TEST(Collective, OfOneRankIsFree) {
  const PricedGroup alone;
  EXPECT_EQ(AllReduceSeconds(Nodes(), alone, 1e9), 0);
  EXPECT_EQ(AllGatherSeconds(Nodes(), alone, 1e9), 0);
  EXPECT_EQ(AllToAllSeconds(Nodes(), alone, 1e9), 0);
}

TEST(Collective, RingMovesItsShareOverTheLinkInside) {
  const PricedGroup group = {.ranks = 4, .per_node = 4};
  EXPECT_DOUBLE_EQ(AllReduceSeconds(Nodes(), group, 1000), 2 * 0.75 * 1000 / 100);
  EXPECT_DOUBLE_EQ(AllGatherSeconds(Nodes(), group, 1000), 0.75 * 1000 / 100);
  EXPECT_DOUBLE_EQ(ReduceScatterSeconds(Nodes(), group, 1000), 0.75 * 1000 / 100);
}

// A ring of a gather passes each node once; the tree of an all-reduce goes by their logarithm.
TEST(Collective, RingsOfGathersWaitAtEachNodeAndTreesDoNot) {
  Machine machine = Nodes(/*gpu=*/true);
  machine.inter_node.latency_s = 1000;
  const PricedGroup group = {.ranks = 512, .per_node = 8};
  EXPECT_NEAR(AllGatherSeconds(machine, group, 1), 64 * 1000, 1);
  EXPECT_NEAR(ReduceScatterSeconds(machine, group, 1), 64 * 1000, 1);
  EXPECT_NEAR(AllReduceSeconds(machine, group, 1), 2 * 6 * 1000, 1);
}

// Two groups of four ranks a node: each ring has four of the node's eight NICs.
TEST(Collective, GroupsOfANodeShareItsNetwork) {
  const PricedGroup group = GroupOf(Nodes(), 16, 2, 64);
  EXPECT_DOUBLE_EQ(AllGatherSeconds(Nodes(), group, 1600), 15.0 / 16 * 1600 / 40);
  const PricedGroup lonely = GroupOf(Nodes(), 16, 8, 128);
  EXPECT_DOUBLE_EQ(AllGatherSeconds(Nodes(), lonely, 1600), 15.0 / 16 * 1600 / 10);
}

// The bytes of a ring, which a switch does not shorten, and sums of their own.
TEST(Collective, SumsInRankOrderWhereAsked) {
  Machine machine = Nodes(true);
  machine.intra_node.switch_reduces = true;
  machine.memory_bytes_per_s = 500;
  const PricedGroup group = {.ranks = 4, .per_node = 4};
  const double usual_s = AllReduceSeconds(machine, group, 1000);
  machine.adds_in_rank_order = true;
  const double reduce_s = 0.75 * 1000 / 100 + 1.25 * 1000 / 500;
  EXPECT_DOUBLE_EQ(ReduceScatterSeconds(machine, group, 1000), reduce_s);
  EXPECT_DOUBLE_EQ(AllReduceSeconds(machine, group, 1000), reduce_s + 0.75 * 1000 / 100);
  EXPECT_GT(AllReduceSeconds(machine, group, 1000), usual_s);
  EXPECT_EQ(AllReduceSeconds(machine, PricedGroup{}, 1000), 0);
}

// A device's libraries choose among algorithms: never slower than the ring.
TEST(Collective, DevicesTakeTheBestAlgorithm) {
  Machine machine = Nodes(/*gpu=*/true);
  machine.inter_node.latency_s = 1;
  const PricedGroup group = GroupOf(machine, 512, 1, 512);
  for (const double bytes : {1.0, 1e3, 1e6}) {
    Machine rings_only = machine;
    rings_only.gpu = false;
    EXPECT_LE(AllReduceSeconds(machine, group, bytes), AllReduceSeconds(rings_only, group, bytes));
  }
  // A tree's depth is the logarithm of what a ring has to walk: 64 nodes.
  EXPECT_LT(AllReduceSeconds(machine, group, 1), 13);
}

TEST(Collective, SwitchesThatAddUpSaveASecondTrip) {
  Machine machine = Nodes(/*gpu=*/true);
  const PricedGroup group = {.ranks = 8, .per_node = 8};
  const double ring_s = AllReduceSeconds(machine, group, 1e6);
  machine.intra_node.switch_reduces = true;
  EXPECT_LT(AllReduceSeconds(machine, group, 1e6), 0.7 * ring_s);
  EXPECT_EQ(AllGatherSeconds(machine, group, 1e6), 0.875 * 1e6 / 100);
}

TEST(Collective, AllToAllIsBoundByTheSlowerOfItsLinks) {
  const PricedGroup inside = {.ranks = 4, .per_node = 4};
  EXPECT_DOUBLE_EQ(AllToAllSeconds(Nodes(), inside, 400), 300.0 / 100);
  const PricedGroup across = GroupOf(Nodes(), 16, 1, 16);
  EXPECT_DOUBLE_EQ(AllToAllSeconds(Nodes(), across, 1600), 800.0 / 10);
}

TEST(Send, LeavesTheNodeWhenItsChainDoes) {
  EXPECT_DOUBLE_EQ(SendSeconds(Nodes(), 8, 8, 100), 1);
  EXPECT_DOUBLE_EQ(SendSeconds(Nodes(), 4, 64, 100), 1);
  EXPECT_DOUBLE_EQ(SendSeconds(Nodes(), 16, 64, 100), 10);
}

// Slower than the link of 100 B/s makes believe, the more so the smaller the message.
std::vector<CollectivePoint> Points() {
  return {{Collective::kAllReduce, 4, 10000, 300}, {Collective::kAllReduce, 4, 100, 6},
          {Collective::kAllReduce, 2, 100, 3},     {Collective::kAllGather, 4, 1000, 20},
          {Collective::kSendReceive, 2, 100, 5},   {Collective::kSendReceive, 2, 10000, 200}};
}

TEST(MeasuredCollective, TakesWhatItTookWhereItWasMeasured) {
  const std::vector<CollectivePoint> points = Points();
  Machine machine = Nodes();
  machine.collectives = &points;
  const auto inside = [](double ranks) { return PricedGroup{.ranks = ranks, .per_node = ranks}; };
  EXPECT_DOUBLE_EQ(AllReduceSeconds(machine, inside(4), 100), 6);
  EXPECT_DOUBLE_EQ(AllReduceSeconds(machine, inside(4), 10000), 300);
  EXPECT_DOUBLE_EQ(AllReduceSeconds(machine, inside(2), 100), 3);
  EXPECT_DOUBLE_EQ(AllGatherSeconds(machine, inside(4), 1000), 20);
  EXPECT_DOUBLE_EQ(SendSeconds(machine, 8, 8, 100), 5);
  // Not measured: the link's.
  EXPECT_EQ(ReduceScatterSeconds(machine, inside(4), 1000),
            ReduceScatterSeconds(Nodes(), inside(4), 1000));
}

TEST(MeasuredCollective, GrowsWithBytesBetweenPointsAndBeyondThem) {
  const std::vector<CollectivePoint> points = Points();
  Machine machine = Nodes();
  machine.collectives = &points;
  const PricedGroup group = {.ranks = 4, .per_node = 4};
  // Halfway between 100 and 10,000 bytes, halfway between 6 and 300 seconds.
  EXPECT_NEAR(AllReduceSeconds(machine, group, 1000), std::sqrt(6.0 * 300), 1e-9);
  EXPECT_NEAR(AllReduceSeconds(machine, group, 100000), 3000, 1e-9);
  EXPECT_NEAR(AllReduceSeconds(machine, group, 50), 3, 1e-9);
  double last_s = 0;
  for (double bytes = 1; bytes < 1e7; bytes *= 1.3) {
    const double seconds = AllReduceSeconds(machine, group, bytes);
    EXPECT_GT(seconds, last_s) << bytes;
    last_s = seconds;
  }
}

// Eight ranks were not measured: four were, and the ring says how much longer eight take.
TEST(MeasuredCollective, ScalesTheNearestNumberOfRanksByTheModel) {
  const std::vector<CollectivePoint> points = Points();
  Machine machine = Nodes();
  machine.collectives = &points;
  const PricedGroup eight = {.ranks = 8, .per_node = 8};
  EXPECT_DOUBLE_EQ(AllReduceSeconds(machine, eight, 100), 6 * (7.0 / 8) / (3.0 / 4));
  // Across nodes nothing was measured.
  const PricedGroup across = {.ranks = 16, .per_node = 8};
  EXPECT_EQ(AllReduceSeconds(machine, across, 100), AllReduceSeconds(Nodes(), across, 100));
}

// Two nodes were fast, eight slow: a group is priced by the nodes that it spans itself.
TEST(Collective, AcrossNodesGoesByTheMeasuredSpanNearestToItsOwn) {
  Machine machine = Nodes(/*gpu=*/true);
  const std::vector<CollectivePoint> points = {
      {Collective::kAllReduce, 16, 1000, 50, 2},
      {Collective::kAllReduce, 64, 1000, 400, 8},
      {Collective::kAllReduce, 8, 1000, 1, 1},
      {Collective::kAllGather, 64, 1000, 300, 8},
  };
  const PricedGroup two = {.ranks = 16, .per_node = 8};
  const PricedGroup eight = {.ranks = 64, .per_node = 8};
  const double modelled_s = AllReduceSeconds(machine, eight, 2000);
  const double modelled_half_s = AllReduceSeconds(machine, eight, 1000);
  machine.collectives = &points;
  EXPECT_DOUBLE_EQ(AllReduceSeconds(machine, two, 1000), 50);
  EXPECT_DOUBLE_EQ(AllReduceSeconds(machine, eight, 1000), 400);
  // Beyond what was measured, by the model's growth.
  EXPECT_DOUBLE_EQ(AllReduceSeconds(machine, eight, 2000), 400 * modelled_s / modelled_half_s);
  // Another number of ranks on as many nodes.
  const PricedGroup thin = {.ranks = 8, .per_node = 1};
  EXPECT_GT(AllReduceSeconds(machine, thin, 1000), 400);
  // Groups inside a node go by what was measured inside one, and the other way round.
  const PricedGroup inside = {.ranks = 8, .per_node = 8};
  EXPECT_DOUBLE_EQ(AllReduceSeconds(machine, inside, 1000), 1);
  EXPECT_DOUBLE_EQ(AllGatherSeconds(machine, inside, 800), 7 / 8.0 * 800 / 100);
  EXPECT_DOUBLE_EQ(AllGatherSeconds(machine, eight, 1000), 300);
}

}  // namespace
}  // namespace weft
