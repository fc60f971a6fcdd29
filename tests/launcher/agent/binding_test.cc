#include "launcher/agent/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/launcher/job_file_for_test.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Cores of two CPUs each, as Linux counts them: the second CPUs of all cores come after the first.
std::vector<UsableCpu> Machine(int nodes, int cores_per_node) {
  std::vector<UsableCpu> cpus;
  const int cores = nodes * cores_per_node;
  for (int cpu = 0; cpu < 2 * cores; ++cpu) {
    cpus.push_back({cpu, cpu % cores, cpu % cores / cores_per_node});
  }
  return cpus;
}

std::vector<UsableCpu> OneNode(int count) {
  std::vector<UsableCpu> cpus;
  for (int cpu = 0; cpu < count; ++cpu) cpus.push_back({cpu, cpu, 0});
  return cpus;
}

TEST(BindRanks, GivesEachSlotWholeCoresOfOneNode) {
  const Binding binding = BindRanks({.slots = {0, 1, 2, 3}, .all_slots = 4, .cpus = Machine(2, 8)});
  EXPECT_THAT(binding.places, ElementsAre(RankPlace{0, {0, 1, 2, 3, 16, 17, 18, 19}, 0},
                                          RankPlace{1, {4, 5, 6, 7, 20, 21, 22, 23}, 0},
                                          RankPlace{2, {8, 9, 10, 11, 24, 25, 26, 27}, 1},
                                          RankPlace{3, {12, 13, 14, 15, 28, 29, 30, 31}, 1}));
  EXPECT_THAT(binding.words, HasSubstr("bound: slot 0 to CPUs 0-3,16-19, node 0; slot 1"));
}

// Another job may have the others.
TEST(BindRanks, LeavesTheCpusOfOtherSlotsAlone) {
  const Binding ours = BindRanks({.slots = {0, 2}, .all_slots = 4, .cpus = OneNode(8)});
  EXPECT_THAT(ours.places, ElementsAre(RankPlace{0, {0, 1}, -1}, RankPlace{2, {4, 5}, -1}));
  const Binding theirs = BindRanks({.slots = {1, 3}, .all_slots = 4, .cpus = OneNode(8)});
  EXPECT_THAT(theirs.places, ElementsAre(RankPlace{1, {2, 3}, -1}, RankPlace{3, {6, 7}, -1}));
}

TEST(BindRanks, KeepsToANodeWhereAShareLiesInTwo) {
  const Binding binding = BindRanks({.slots = {0, 1, 2}, .all_slots = 3, .cpus = Machine(2, 6)});
  EXPECT_THAT(binding.places[1], (RankPlace{1, {4, 5, 16, 17}, 0})) << "not all of its eight";
  EXPECT_THAT(binding.places[2].memory_node, 1);
}

// A worker has a thread that talks to its agent, and those of its libraries.
TEST(BindRanks, BindsToTheNodeWhereASlotHasNoCpuToSpare) {
  const Binding binding =
      BindRanks({.slots = {0, 7}, .all_slots = 8, .threads = 2, .cpus = Machine(2, 4)});
  EXPECT_THAT(binding.places, ElementsAre(RankPlace{0, {0, 1, 2, 3, 8, 9, 10, 11}, 0},
                                          RankPlace{7, {4, 5, 6, 7, 12, 13, 14, 15}, 1}));
  const Binding small = BindRanks({.slots = {0, 1}, .all_slots = 2, .cpus = OneNode(2)});
  EXPECT_THAT(small.places, ElementsAre(RankPlace{0}, RankPlace{1}));
  EXPECT_EQ(small.words, "not bound: no slot has CPUs of its own to spare");
}

TEST(BindRanks, BindsNobodyWhereThereIsMoreToComputeThanCpus) {
  const Binding binding = BindRanks({.slots = {0, 1, 2, 3}, .threads = 1, .cpus = OneNode(2)});
  EXPECT_THAT(binding.places, ElementsAre(RankPlace{0}, RankPlace{1}, RankPlace{2}, RankPlace{3}));
  EXPECT_EQ(binding.words, "not bound: 4 slots of 1 thread on 2 CPUs");
  EXPECT_EQ(
      BindRanks({.slots = {0, 1}, .threads = 4, .usable_cores = 6, .cpus = OneNode(64)}).words,
      "not bound: 2 slots of 4 threads on 6 CPUs")
      << "a control group's quota";
  EXPECT_THAT(BindRanks({.slots = {0}}).words, HasSubstr("the kernel does not say"));
}

TEST(BindRanks, PutsARankNearItsGpu) {
  const Binding binding = BindRanks(
      {.slots = {0, 3}, .all_slots = 4, .cpus = Machine(2, 8), .gpu_nodes = {1, 1, 0, 0}});
  EXPECT_THAT(binding.places, ElementsAre(RankPlace{0, {8, 9, 10, 11, 24, 25, 26, 27}, 1},
                                          RankPlace{3, {4, 5, 6, 7, 20, 21, 22, 23}, 0}));
  const Binding unknown = BindRanks({.slots = {0, 1}, .cpus = Machine(2, 8), .gpu_nodes = {-1, 1}});
  EXPECT_THAT(unknown.places[0], RankPlace{0});
  EXPECT_EQ(unknown.places[1].memory_node, 1);
  const Binding one_node = BindRanks({.slots = {0, 1}, .cpus = OneNode(8), .gpu_nodes = {-1, -1}});
  EXPECT_THAT(one_node.places,
              ElementsAre(RankPlace{0, {0, 1, 2, 3}, -1}, RankPlace{1, {4, 5, 6, 7}, -1}));
  const Binding elsewhere = BindRanks({.slots = {0}, .cpus = Machine(2, 8), .gpu_nodes = {5}});
  EXPECT_THAT(elsewhere.places, ElementsAre(RankPlace{0})) << "that node's CPUs are not ours";
}

// Every CPU that may be used belongs to one slot, and to no other.
TEST(BindRanks, SharesOutEveryCpuOnce) {
  for (int slots = 1; slots <= 12; ++slots) {
    std::vector<int> all(static_cast<size_t>(slots));
    for (int slot = 0; slot < slots; ++slot) all[static_cast<size_t>(slot)] = slot;
    const Binding binding = BindRanks({.slots = all, .all_slots = slots, .cpus = OneNode(24)});
    std::vector<int> given;
    for (const RankPlace& place : binding.places) {
      given.insert(given.end(), place.cpus.begin(), place.cpus.end());
    }
    EXPECT_EQ(given.size(), 24u) << slots;
    EXPECT_TRUE(std::is_sorted(given.begin(), given.end())) << slots;
  }
}

TEST(DescribeCpus, ReadsCoresAndNodes) {
  const JobFolder folder;
  const std::string root = folder.path();
  const auto write = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text << "\n";
  };
  write("/sys/devices/system/node/node0/cpulist", "0,2");
  write("/sys/devices/system/node/node1/cpulist", "1,3");
  for (int cpu = 0; cpu < 4; ++cpu) {
    write(absl::StrCat("/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"),
          cpu % 2 == 0 ? "0,2" : "1,3");
  }
  EXPECT_THAT(DescribeCpusBelow(root, {0, 2, 3}),
              ElementsAre(UsableCpu{0, 0, 0}, UsableCpu{2, 0, 0}, UsableCpu{3, 1, 1}));
  EXPECT_THAT(DescribeCpusBelow(root + "/none", {7}), ElementsAre(UsableCpu{7, 7, 0}));
  EXPECT_FALSE(UsableCpus().empty());
}

}  // namespace
}  // namespace weft
