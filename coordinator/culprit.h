// Culprit tells which rank all others wait for, from the ranks' progress pages and the states of
// their processes. Pure: it knows no clock; how long something has not moved comes with what was
// seen. Who says first that it waited in vain is not the culprit: it is a rank that nobody holds
// up.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "process/progress_page.h"

namespace weft {

// A rank as its agent sees it.
struct RankSeen {
  int rank = 0;
  std::string host;
  PageView page;               // its rank is -1 if nobody has written it
  char state = '?';            // of its process, as /proc/PID/stat says it; '-': there is none
  std::string sleeps_in;       // /proc/PID/wchan; may be empty
  int64_t still_ms = 0;        // since its page has changed
  int64_t idle_ms = 0;         // the same, and since it has used a processor or read or written
  int64_t polls_still_ms = 0;  // since it was seen to poll in a collective
};

enum class Evidence {
  kNone,
  kStopped,          // its process is stopped
  kDeparted,         // it has not made the calls that its schedule has
  kUninterruptible,  // its process sleeps and cannot be woken
  kStandsStill,      // others wait for it and it waits for nobody
};

struct Culprit {
  int rank = -1;  // -1: nobody is to blame
  std::string host;
  RankPhase phase = RankPhase::kStart;
  int64_t step = 0;
  std::string collective;  // "all-reduce over tp (call 17)": its own, or that which waits for it
  std::string why;         // "its process is stopped (state T)"; if nobody is to blame, why not
  std::string waiting;     // "ranks 0 and 2 in all-reduce over tp (call 17)"; empty: nobody waits
  Evidence evidence = Evidence::kNone;
  int64_t age_ms = 0;  // how long that has been so
};

Culprit FindCulprit(absl::Span<const RankSeen> ranks);

// "rank 3", "ranks 0, 2 and 3", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 92 more".
std::string RanksText(absl::Span<const int> ranks);

}  // namespace weft
