#include "launcher/slurm/topology.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

// Written in the form of topology/tree of Slurm 22.05.
constexpr char kTree[] =
    "SwitchName=s0 Level=1 LinkSpeed=1 Nodes=h[1-4] Switches=s[1-2]\n"
    "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=h[1,3]\n"
    "SwitchName=s2 Level=0 LinkSpeed=1 Nodes=h2,h4\n";
// Written in the form of topology/block; no Slurm that has it was asked.
constexpr char kBlocks[] =
    "BlockName=b1 BlockIndex=0 Nodes=h[1-2] BlockSize=2\n"
    "BlockName=b2 BlockIndex=1 Nodes=h[3-4] BlockSize=2\n"
    "AggregatedBlock=b[1-2] BlockIndex=2 Nodes=h[1-4] BlockSize=4\n";

std::vector<ListedHost> Hosts(const std::vector<std::string>& names) {
  std::vector<ListedHost> hosts;
  for (const std::string& name : names) hosts.push_back({.name = name});
  return hosts;
}

TEST(Topology, MakesDomainsOfLeafSwitchesAndBlocks) {
  struct Case {
    const char* text;
    std::vector<std::string> hosts;
    const char* told;
  };
  for (const Case& each : {
           Case{kTree, {"h1", "h2", "h3", "h4"}, "h1, h3 on s1; h2, h4 on s2"},
           Case{kTree, {"h4", "h3"}, "h4 on s2; h3 on s1"},
           Case{kBlocks, {"h1", "h2", "h3"}, "h1, h2 on b1; h3 on b2"},
       }) {
    std::vector<ListedHost> hosts = Hosts(each.hosts);
    EXPECT_TRUE(SetTopology(each.text, &hosts));
    EXPECT_EQ(TopologyText(hosts), each.told);
  }
}

TEST(Topology, SaysNothingWhereItPartsNothing) {
  struct Case {
    const char* name;
    const char* text;
    std::vector<std::string> hosts;
  };
  for (const Case& each : {
           Case{"one leaf", kTree, {"h1", "h3"}},
           Case{"a node that it does not know", kTree, {"h1", "h2", "x"}},
           Case{"no topology", "No topology information available\n", {"h1", "h2"}},
           Case{"no list", "SwitchName=s1 Level=0 Nodes=h[1-\n", {"h1", "h2"}},
       }) {
    std::vector<ListedHost> hosts = Hosts(each.hosts);
    EXPECT_FALSE(SetTopology(each.text, &hosts)) << each.name;
    EXPECT_EQ(hosts, Hosts(each.hosts)) << each.name;
  }
  std::vector<ListedHost> named = Hosts({"h1", "h2"});
  named[1].domain = "rack1";
  EXPECT_FALSE(SetTopology(kTree, &named));
  EXPECT_EQ(named[0].domain, "");
}

// Slurm 22.05's topology/tree has given h1 the first.
TEST(Topology, IsReadFromATasksOwnVariables) {
  struct Case {
    const char* address;
    const char* pattern;
    const char* leaf;
  };
  for (const Case& each : {
           Case{"s0.s1.h1", "switch.switch.node", "s1"},
           Case{"s1.h1", "switch.node", "s1"},
           Case{"b1.h1", "block.node", "b1"},
           Case{"h1", "node", ""},
           Case{"s0.s1.h1.lab", "switch.switch.node", ""},
           Case{"s0.s1", "switch.switch", ""},
           Case{"", "", ""},
           Case{"..", "..node", ""},
       }) {
    EXPECT_EQ(LeafOfAddress(each.address, each.pattern), each.leaf) << each.address;
  }
}

}  // namespace
}  // namespace weft
