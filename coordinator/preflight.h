// Preflight: hosts are checked before a job's first generation on them, and again when another
// agent is there or the host was lost. A bad host is left out and named, with the cure, where the
// rest is enough; where it is not, the job fails with all reasons at once, or waits, if it has run
// before. Facts become state here as in hosts.h. Pure.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "coordinator/job_state.h"

namespace weft {

bool Record(const HostChecked& fact, Job& job);

// Hosts that are there and not checked as they are now, by machine. None without preflight, nor
// before there is a plan to check them for.
std::vector<std::string> HostsToCheck(const Job& job);
// Hosts that are there and have failed their check, which may be mended by now, by machine. None
// once the job is over; a host with ranks of a live generation is left alone.
std::vector<std::string> HostsToCheckAgain(const Job& job);
// Whether the hosts that are there are all that anybody has named.
bool AllHaveCome(const Job& job);

using HostFindings = std::map<std::string, std::vector<HostFinding>>;  // by machine
struct Fitness {
  std::vector<std::string> fit = {};  // machines
  HostFindings unfit = {};            // and why
  HostFindings slow = {};             // of the fit ones
  int unchecked = 0;
};
// Who may take part. A host is unfit if one of its checks says so; else if its product runs at less
// than kLeastRate of its siblings' median; else, of two hosts that do not reach each other, the one
// with more such pairs, the one that does not train at the moment, the one that is named last.
// Without preflight all are fit.
Fitness FitnessOf(const Job& job);

// Whether some of those that are there have not been checked at all, which is told at once:
// thousands of hosts answer one by one, and all facts but the last are judged by this alone. False:
// they may have been.
bool LackChecks(const Job& job);

// Whether a launch has to wait for the checks of hosts. A generation after the first does not, if
// enough others are fit.
bool WaitsForChecks(const Job& job, const Fitness& fitness);
// Hosts that are fit, or may turn out so.
int HostsInHand(const Job& job);

// Ends the job, or says what it waits for, once everybody is checked and too few are fit: it waits
// if it has run before, or if those who have not answered would be enough. Says whether it has
// changed anything.
bool SettleFitness(Job& job);

// "; host h3 is left out: shared memory: ...; host h2 is slow: ...", or empty.
std::string LeftOutText(const Job& job);

inline constexpr char kNoAnswer[] = "answer";  // the finding of a check that nothing came of
// Two hardware threads of one core run at half while both compute: whoever shares the machine may
// bring a host to 0.5 at that moment, which is no reason to do without it.
inline constexpr double kLeastRate = 0.4;
inline constexpr double kUsualRate = 0.8;  // below it there is a warning

}  // namespace weft
