// Turns what is asked of a layout into layouts and back, by the table of layout_properties.h. Pure.
#pragma once
#include "plan/spec/layout.h"

namespace weft {

// Asks for `layout` and nothing else. Its recompute is asked for once: of all stages or per stage.
LayoutSpec SpecOf(const Layout& layout);

// Returns what is asked, with Layout's defaults for the rest; virtual stages need the interleaved
// schedule.
Layout LayoutOf(const LayoutSpec& spec);

// The layout that breaks the fewest rules with what is asked: degrees that are not stand as 1, or
// as what another value makes of them.
Layout LeastLayout(const LayoutSpec& spec);

// Says whether LayoutOf is the only layout that keeps `spec`.
bool IsComplete(const LayoutSpec& spec);

// `spec` with all that `more` asks in the place of its own: for "why not tp=4?".
LayoutSpec Override(LayoutSpec spec, const LayoutSpec& more);

}  // namespace weft
