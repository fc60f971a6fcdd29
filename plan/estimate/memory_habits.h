// What an engine keeps in memory, and at which width. Sources:
// docs/estimates.md. Pure values.
#pragma once

namespace weft {

struct MemoryHabits {};

}  // namespace weft
