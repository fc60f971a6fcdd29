// Which of several ways to compute the same is taken: the fastest, by a few runs of each, or the
// first that can run at all.
#pragma once
#include <functional>

namespace weft {

// Runs a way so many times, one after the other: milliseconds for all, below 0 if it cannot run.
using TimeRuns = std::function<float(int way, int runs)>;

// Of ways [0, count), of which the ones before are preferred: another is taken only if it is
// clearly faster. At most 62 runs of each, and about 3 ms beyond five runs. -1: none can run.
int FastestWay(int count, const TimeRuns& time_runs);

// Whatever they take. At most one run of each. -1: none can run.
int FirstWay(int count, const TimeRuns& time_runs);

}  // namespace weft
