// Thousands of schedules of a simulated fleet, each from a seed: the promises hold in all of them,
// and each planted bug breaks one in some.
#include "tests/coordinator/fleet_sim.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_join.h"

namespace weft {
namespace {

constexpr uint32_t kSchedules = 10000;
constexpr uint32_t kSchedulesPerBug = 3000;

SimOptions ScheduleOf(uint32_t seed) {
  SimOptions options;
  options.seed = seed;
  options.hosts = 1 + static_cast<int>(seed % 4);
  options.least_hosts = std::max(1, options.hosts - static_cast<int>(seed / 4 % 3));
  options.faults = seed % 10 != 0;
  return options;
}

// WEFT_SIM_SEED=17 plays that schedule alone, and tells it.
TEST(Fleet, KeepsItsPromisesInEverySchedule) {
  const char* only = std::getenv("WEFT_SIM_SEED");
  const auto first = static_cast<uint32_t>(only != nullptr ? std::atoi(only) : 1);
  const uint32_t last = only != nullptr ? first : kSchedules;
  int64_t faults = 0;
  int64_t generations = 0;
  std::map<std::string, int> ends;
  for (uint32_t seed = first; seed <= last; ++seed) {
    SimOptions options = ScheduleOf(seed);
    options.tells = only != nullptr;
    const SimResult result = Simulate(options);
    ASSERT_TRUE(result.broken.empty())
        << "WEFT_SIM_SEED=" << seed << ": " << absl::StrJoin(result.broken, "; ");
    faults += result.faults;
    generations += result.generations;
  }
  if (only != nullptr) return;
  EXPECT_GT(faults, 2 * static_cast<int64_t>(kSchedules)) << "nothing happens to them";
  EXPECT_GT(generations, 2 * static_cast<int64_t>(kSchedules)) << "and nothing comes of it";
}

TEST(Fleet, EachPlantedBugIsFound) {
  const std::map<PlantedBug, std::string> bugs = {
      {PlantedBug::kAgentProlongsAnEndedLease, "an agent prolongs an ended lease"},
      {PlantedBug::kAgentDoublesTheLease, "an agent doubles the lease"},
      {PlantedBug::kAgentVouchesForWhatItDidNotEnd, "an agent vouches for what it did not end"},
      {PlantedBug::kAgentSaysGoneTooEarly, "an agent says gone too early"},
      {PlantedBug::kAgentRepeatsNothing, "an agent repeats nothing"},
      {PlantedBug::kRankIgnoresItsLease, "a rank ignores its lease"},
      {PlantedBug::kRankIgnoresAnAbort, "a rank ignores an abort"},
      {PlantedBug::kRankPublishesWithoutAGrant, "a rank publishes without a grant"},
      {PlantedBug::kRankLoadsAnotherCheckpoint, "a rank loads another checkpoint"},
      {PlantedBug::kJournalForgets, "the journal forgets"}};
  for (const auto& [bug, name] : bugs) {
    uint32_t found = 0;
    std::string what;
    for (uint32_t seed = 1; seed <= kSchedulesPerBug && found == 0; ++seed) {
      SimOptions options = ScheduleOf(seed);
      options.bug = bug;
      const SimResult result = Simulate(options);
      if (result.broken.empty()) continue;
      found = seed;
      what = result.broken.front();
    }
    EXPECT_GT(found, 0u) << name << " is not found";
    std::printf("%s: seed %u, %s\n", name.c_str(), found, what.c_str());
  }
}

}  // namespace
}  // namespace weft
