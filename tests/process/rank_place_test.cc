#include "process/rank_place.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

namespace weft {
namespace {

TEST(RankPlace, SurvivesItsText) {
  const std::vector<RankPlace> places = {
      {.slot = 0}, {.slot = 3, .cpus = {0, 1, 2, 8, 10, 11}, .memory_node = 1}};
  EXPECT_EQ(PlacesText(places), "0::-1;3:0-2,8,10-11:1");
  EXPECT_EQ(ParsePlaces(PlacesText(places)), places);
  EXPECT_EQ(ParsePlaces(""), std::vector<RankPlace>());
}

TEST(RankPlace, IsSharedByWhoIsBoundToTheSameCpus) {
  const std::vector<RankPlace> places = {{0, {0, 1}}, {2, {0, 1}}, {3, {2, 3}}, {4}};
  EXPECT_EQ(SharersOf(places, 2), 2);
  EXPECT_EQ(SharersOf(places, 3), 1);
  EXPECT_EQ(SharersOf(places, 4), 0) << "it runs anywhere";
  EXPECT_EQ(SharersOf(places, 1), 0) << "there is none";
}

TEST(RankPlace, IsReadFromNothingElse) {
  for (const char* text : {"0", "x::-1", "-1::-1", "0:3-:0", "0:a:0", "0:0-99999:0", "0::", "0::x",
                           "0::4096", "0:0:0:0"}) {
    EXPECT_FALSE(ParsePlaces(text)) << text;
  }
}

TEST(RankPlace, IsWhereAProcessThatTakesItRuns) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(static_cast<size_t>(last), &allowed)) --last;
  const PlaceTaker taker({.slot = 0, .cpus = {last}});
  const pid_t child = fork();
  if (child == 0) {
    cpu_set_t now;
    const bool took = taker.Take() == 0 && sched_getaffinity(0, sizeof(now), &now) == 0;
    _exit(took && CPU_COUNT(&now) == 1 && CPU_ISSET(static_cast<size_t>(last), &now) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace weft
