// In how many pieces the head makes its logits where that is free (Layout::head_chunks): as few as
// fit, as each piece is a product of its own and reads the head's weights again. Pure.
//
// More pieces never take less: a product of m rows takes no longer than several that share them
// (MatmulSeconds is subadditive in m, and so in the inner size of the weight gradient), and what
// they add is in passes that a schedule cannot hide. Where products were measured that holds but
// for what the nearest measured sizes make of it.
#pragma once
#include "plan/search/pricer.h"
#include "plan/search/space.h"
#include "plan/spec/layout.h"

namespace weft {

// All 0 where the last stage does not lack room, or its head is not free.
struct HeadPieces {
  int enough = 0;      // with which the last stage fits as it is, not twice the fewest; 0: none are
  int for_shapes = 0;  // with which a shape is sought: enough, or so many that more save little
};
// REQUIRES: the layout does not fit with its head in one piece.
HeadPieces HeadPiecesOf(const Space& space, Pricer& pricer, const Layout& layout);

// The layout, its head in the pieces that take the least of those with which its last stage fits.
// REQUIRES: it fits.
Layout WithBestHead(const Space& space, Pricer& pricer, const Layout& layout);

}  // namespace weft
