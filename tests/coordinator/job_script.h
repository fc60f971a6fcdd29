// Job histories as text: one fact per line in, phase, generation and duties out. For tests of the
// pure state machine.
#pragma once
#include <string>

#include "coordinator/job.h"

namespace weft {

// "submit r1", "plan" (dp=2), "launch 1", "register 1/0" (generation/rank), "ready 1/0",
// "shard 1/0 10" or "shard 1/0 10 3" (the generation's third save), "nosave 1/0 10" (it has none),
// "unloadable 1/0 DATA_LOSS", "committed 1/0 10", "finish 1/0 20", "stopped 1/0 7",
// "fault 1/0 INTERNAL boom", "suspect 1/0", "lost 1/0", "overdue 1", "ended 1 clean",
// "ended 1 rank 1 signal 9", "ended 1 exit 3" (rank unknown), "silent 1" (its host), "stop",
// "kill", "save_now", "restart", "refuse". Of hosts: "offer m1", "away m1", "leaves m1", "awaited
// 1", "more 1", "refuse3"; "submit3 r1" asks for three of them and goes on with two, "plan3" and
// "plan2" put a rank on each, "launch3 1" on m1 to m3, "register3 1/0" is of three ranks.
Event ParseFact(const std::string& line);

// "RUNNING g1 training | stop_training g1, commit g1 10"; " | " is left out without duties.
std::string JobText(const Job& job);

// Returns what Train, say, would need: a small job of 20 steps over dp=2, three restarts.
JobSpec SmallJob();
Layout TwoRanks();

}  // namespace weft
