// A fleet in one thread and in virtual time: the real coordinator (driver, journal, leases) and the
// real minds of agents, against simulated processes, links and disks that are slow, lossy, frozen,
// cut or dead, in an order that a seed decides. After every event the promises of a run are
// checked.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace weft {

// Each is planted in one place of the simulated world; kNone: all is as it should be.
enum class PlantedBug {
  kNone,
  kAgentProlongsAnEndedLease,  // and the rank's own watch is late
  kAgentDoublesTheLease,
  kAgentVouchesForWhatItDidNotEnd,  // a new agent leaves its predecessor's ranks alone
  kAgentSaysGoneTooEarly,           // before its ranks are dead
  kAgentRepeatsNothing,             // of what was lost with a stream
  kRankIgnoresItsLease,
  kRankIgnoresAnAbort,  // and its agent's KILL
  kRankPublishesWithoutAGrant,
  kRankLoadsAnotherCheckpoint,
  kJournalForgets,  // everything, at a restart
  // These are put around the driver, whose words are changed on their way in or out.
  kCoordinatorTakesAnyonesProof,  // of a share's end, whichever machine says it
  kCoordinatorEndsLeasesEarly,    // 3 s before they end on the host
  kCoordinatorGrantsTooEarly,     // a commit, before all shards are there
  kCoordinatorLaunchesBesides,    // takes the order to stop for the end, and loses it
};

struct SimOptions {
  uint32_t seed = 1;
  int hosts = 3;
  int least_hosts = 2;
  std::optional<int> dp = {};  // of the layout; none: as the planner finds best
  int64_t step_ms = 40;        // long ones give hosts time to come back and be taken
  bool faults = true;
  PlantedBug bug = PlantedBug::kNone;
  bool tells = false;  // what happens, on stderr
};

struct SimResult {
  std::vector<std::string> broken;  // promises, with the time at which they were; empty: none
  std::string end;                  // "COMPLETED"
  int64_t generations = 0;
  std::map<std::string, int> faults;  // how many of each kind
  int shrinks = 0;                    // generations that were launched on fewer hosts
  int growths = 0;                    // or on more than the one before
  int64_t virtual_ms = 0;
};

// Runs one schedule to the job's end, or to a time by which it has to have ended.
SimResult Simulate(const SimOptions& options);

}  // namespace weft
