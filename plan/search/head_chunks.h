// The tokens whose logits the head makes at once, where that is free (Layout::head_chunk_tokens):
// as many as fit, as each chunk is a product of its own and reads the head's weights again. Pure.
//
// More chunks never take less: a product of m rows takes no longer than several that share them
// (MatmulSeconds is subadditive in m, and so in the inner size of the weight gradient), and what
// they add is in passes that a schedule cannot hide. Where products were measured that holds but
// for what the nearest measured sizes make of it.
#pragma once
#include <cstdint>

#include "plan/search/pricer.h"
#include "plan/search/space.h"
#include "plan/spec/layout.h"

namespace weft {

// Tokens of a chunk; all 0 where the last stage does not lack room, or its head is not free.
struct HeadChunks {
  int64_t enough = 0;      // the last stage fits as it is, not half of the most; 0: with none
  int64_t for_shapes = 0;  // with which a shape is sought: enough, or so few that fewer save little
};
// REQUIRES: the layout does not fit with its head in one piece.
HeadChunks HeadChunksOf(const Space& space, Pricer& pricer, const Layout& layout);

// The layout, its head in the chunks that take the least of those with which its last stage fits.
// REQUIRES: it fits.
Layout WithBestHead(const Space& space, Pricer& pricer, const Layout& layout);

}  // namespace weft
