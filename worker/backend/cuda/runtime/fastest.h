// FastestWay finds which of several ways to compute the same is fastest, by a few runs of each.
#pragma once
#include <functional>

namespace weft {

// Runs a way so many times, one after the other: milliseconds for all, below 0 if it cannot run.
using TimeRuns = std::function<float(int way, int runs)>;

struct Fastest {
  int way = -1;  // -1: none can run
  float ms = 0;  // of one run
};

// Returns the fastest of the ways [0, count), of which the ones before are preferred: another is
// taken only if it is clearly faster. The first that can run does so for 20 ms (255 runs at most)
// before anything counts, for an idle device's clocks are low. Then all take turns, so that what
// disturbs the device for a while disturbs them alike: three runs each, the first of which loads
// its code, and of those that are not hopeless three times some runs that take about 1 ms together
// (1 to 20). After a second the ways that have not had a turn are left out, and the turns end.
Fastest FastestWay(int count, const TimeRuns& time_runs);

}  // namespace weft
