// How an engine spends time beyond the work itself: launches, overlap, fusion. Pure values.
#pragma once

namespace weft {

struct TimeHabits {};

}  // namespace weft
