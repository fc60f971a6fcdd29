#include "plan/search/head_chunks.h"

#include <algorithm>

namespace weft {
namespace {

// A layout whose head is tried in chunks of several sizes.
class Head {
 public:
  Head(Pricer& pricer, const Layout& layout)
      : pricer_(pricer), layout_(layout), seq_len_(pricer.question().batch.seq_len) {}

  int64_t tokens() const {  // of a microbatch
    return layout_.micro_batch_size * seq_len_ / layout_.cp;
  }

  // The fewest tokens of a chunk with which there are as many chunks.
  int64_t Even(int64_t chunk_tokens) {
    layout_.head_chunk_tokens = chunk_tokens;
    const int64_t chunks = layout_.head_chunks(seq_len_);
    return (tokens() + chunks - 1) / chunks;
  }

  bool Fits(int64_t chunk_tokens) {
    layout_.head_chunk_tokens = chunk_tokens;
    return pricer_.Fits(pricer_.StageOf(layout_, layout_.pp - 1));
  }

  // Most tokens of a chunk with which the last stage fits; 0: none do. REQUIRES: one piece does
  // not.
  int64_t MostTokens() {
    int64_t too_many = tokens();
    int64_t most = tokens() / 2;
    for (; most > 0 && !Fits(most); most /= 2) too_many = most;
    while (most > 0 && too_many - most > 1) {
      const int64_t middle = most + (too_many - most) / 2;
      Fits(middle) ? most = middle : too_many = middle;
    }
    return most;
  }

  double Seconds(int64_t chunk_tokens) {
    layout_.head_chunk_tokens = chunk_tokens;
    return pricer_.PartsOf(layout_, layout_.recompute).head.total_s();
  }

 private:
  Pricer& pricer_;
  Layout layout_;
  int64_t seq_len_;
};

}  // namespace

HeadChunks HeadChunksOf(const Space& space, Pricer& pricer, const Layout& layout) {
  HeadChunks found;
  if (!space.has_free_head()) return found;
  Head head(pricer, layout);
  if (head.Fits(0)) return found;
  constexpr int64_t kMany = 64;  // what they hold of the logits hardly matters any more
  found.for_shapes = head.Even(std::max<int64_t>(1, head.tokens() / kMany));
  if (!head.Fits(space.LeastHeadChunk())) return found;
  int64_t tokens = head.tokens() / 2;
  while (tokens > 1 && !head.Fits(tokens)) tokens /= 2;
  found.enough = head.Even(std::max<int64_t>(1, tokens));
  found.for_shapes = std::max(found.for_shapes, found.enough);
  return found;
}

Layout WithBestHead(const Space& space, Pricer& pricer, const Layout& layout) {
  Layout best = layout;
  if (!space.has_free_head()) return best;
  best.head_chunk_tokens = 0;
  Head head(pricer, layout);
  if (head.Fits(0)) return best;
  const int64_t most = head.MostTokens();
  best.head_chunk_tokens = head.Even(most);
  double best_s = head.Seconds(best.head_chunk_tokens);
  // A chunk fills tiles of so many rows.
  for (const int64_t tile : {512, 256, 128, 64}) {
    if (most < tile) continue;
    const int64_t tokens = head.Even(most / tile * tile);
    const double head_s = head.Seconds(tokens);
    if (head_s >= best_s) continue;
    best_s = head_s;
    best.head_chunk_tokens = tokens;
  }
  return best;
}

}  // namespace weft
