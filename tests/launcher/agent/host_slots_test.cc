#include "launcher/agent/host_slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(HostSlots, AreThoseThatAPersonHasKept) {
  EXPECT_THAT(UsedSlots({.all = 4}, 8), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(UsedSlots({.all = 4, .only = {2, 0}}, 8), ElementsAre(0, 2));
  EXPECT_THAT(UsedSlots({.only = {5, 7}}, 8), ElementsAre(5, 7));
  EXPECT_THAT(UsedSlots({.all = 4, .without = {1}}, 8), ElementsAre(0, 2, 3));
  EXPECT_THAT(UsedSlots({.without = {0, 3}}, 4), ElementsAre(1, 2)) << "as many as devices";
  EXPECT_THAT(UsedSlots({}, 8), IsEmpty()) << "as many as the job says";
}

TEST(HostSlots, AreGivenToRanksInOrder) {
  EXPECT_THAT(SlotsOfRanks({}, 3).value(), ElementsAre(0, 1, 2));
  EXPECT_THAT(SlotsOfRanks({0, 2, 5}, 2).value(), ElementsAre(0, 2));
  EXPECT_EQ(
      SlotsOfRanks({0, 2}, 3).status(),
      absl::ResourceExhaustedError("3 ranks are to run here, on slots 0, 2, which are fewer"));
}

TEST(HostSlots, AreGpusWhereThereAreAny) {
  EXPECT_TRUE(CheckGpuSlots({0, 3}, 4).ok());
  EXPECT_TRUE(CheckGpuSlots({0, 3}, 0).ok()) << "nobody knows how many there are";
  EXPECT_EQ(CheckGpuSlots({0, 4}, 4),
            absl::InvalidArgumentError("slot 4 is none of this host's 4 GPUs; use 0 to 3 in "
                                       "--include and --exclude"));
}

TEST(HostSlots, AreSaidWithTheirRanks) {
  EXPECT_EQ(SlotsText({2, 5}, {0, 3}), "ranks 2, 5 on slots 0, 3");
  EXPECT_EQ(SlotsText({4}, {1}), "rank 4 on slot 1");
}

}  // namespace
}  // namespace weft
