#include "plan/search/head_pieces.h"

#include <algorithm>
#include <cstdint>

namespace weft {
namespace {

// A layout's numbers of pieces by the tokens of a piece, as training.head_chunk_tokens counts them:
// there are no others.
class Pieces {
 public:
  Pieces(Pricer& pricer, const Layout& layout)
      : pricer_(pricer),
        layout_(layout),
        tokens_(layout.micro_batch_size * pricer.question().batch.seq_len / layout.cp) {}

  int64_t tokens() const { return tokens_; }  // of a microbatch
  int Of(int64_t piece_tokens) const {
    return HeadChunks(piece_tokens, pricer_.question().batch, layout_);
  }

  bool Fit(int pieces) {
    layout_.head_chunks = pieces;
    return pricer_.Fits(pricer_.StageOf(layout_, layout_.pp - 1));
  }

  // Most tokens of a piece with which the last stage fits; 0: none do. REQUIRES: one piece does
  // not.
  int64_t MostTokens() {
    int64_t too_many = tokens_;
    int64_t most = tokens_ / 2;
    for (; most > 0 && !Fit(Of(most)); most /= 2) too_many = most;
    while (most > 0 && too_many - most > 1) {
      const int64_t middle = most + (too_many - most) / 2;
      Fit(Of(middle)) ? most = middle : too_many = middle;
    }
    return most;
  }

  double HeadSeconds(int pieces) {
    layout_.head_chunks = pieces;
    return pricer_.PartsOf(layout_, layout_.recompute).head.total_s();
  }

 private:
  Pricer& pricer_;
  Layout layout_;
  int64_t tokens_;
};

}  // namespace

HeadPieces HeadPiecesOf(const Space& space, Pricer& pricer, const Layout& layout) {
  HeadPieces found;
  if (!space.has_free_head()) return found;
  Pieces pieces(pricer, layout);
  if (pieces.Fit(1)) return found;
  constexpr int64_t kMany = 64;  // what they hold of the logits hardly matters any more
  found.for_shapes = pieces.Of(std::max<int64_t>(1, pieces.tokens() / kMany));
  if (!pieces.Fit(space.MostHeadPieces(layout))) return found;
  int64_t tokens = pieces.tokens() / 2;
  while (tokens > 1 && !pieces.Fit(pieces.Of(tokens))) tokens /= 2;
  found.enough = pieces.Of(std::max<int64_t>(1, tokens));
  found.for_shapes = std::min(found.for_shapes, found.enough);
  return found;
}

Layout WithBestHead(const Space& space, Pricer& pricer, const Layout& layout) {
  Layout best = layout;
  if (!space.has_free_head()) return best;
  best.head_chunks = 1;
  Pieces pieces(pricer, layout);
  if (pieces.Fit(1)) return best;
  const int64_t most = pieces.MostTokens();
  best.head_chunks = pieces.Of(most);
  double best_s = pieces.HeadSeconds(best.head_chunks);
  // A piece fills tiles of so many rows.
  for (const int64_t tile : {512, 256, 128, 64}) {
    const int count = most >= tile ? pieces.Of(most / tile * tile) : best.head_chunks;
    const double head_s = pieces.HeadSeconds(count);
    if (head_s >= best_s) continue;
    best_s = head_s;
    best.head_chunks = count;
  }
  return best;
}

}  // namespace weft
