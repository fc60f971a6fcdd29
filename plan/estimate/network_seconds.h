// One microbatch's passes through each part of the network, terms added up, and from them those of
// a stage. Pure values.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>

#include "plan/schedule/simulate.h"
#include "plan/spec/layout.h"

namespace weft {

struct NetworkSeconds {
  ActionSeconds embedding = {}, head = {};   // transfer_s is of no stage's passes: 0
  std::array<ActionSeconds, 3> blocks = {};  // by Recompute, of the modes that the layout takes
  // The model's first blocks, which are dense where the others have experts, and how much longer
  // one of them takes.
  int64_t dense_blocks = 0;
  std::array<ActionSeconds, 3> dense_more = {};

  // Sums `count` blocks of `stage`, `dense` of them dense, with the ends of the network where it
  // holds them.
  ActionSeconds Of(const Layout& layout, int stage, double count, int64_t dense, bool first,
                   bool last) const {
    const ActionSeconds& block = blocks[static_cast<size_t>(layout.recompute_of(stage))];
    ActionSeconds sum = {.forward_s = count * block.forward_s,
                         .backward_s = count * block.backward_s,
                         .transfer_s = 0,
                         .weight_gradient_s = count * block.weight_gradient_s};
    if (first) Add(embedding, sum);
    if (last) Add(head, sum);
    if (dense == 0) return sum;
    const ActionSeconds& more = dense_more[static_cast<size_t>(layout.recompute_of(stage))];
    const auto times = static_cast<double>(dense);
    sum.forward_s += times * more.forward_s;
    sum.backward_s += times * more.backward_s;
    sum.weight_gradient_s += times * more.weight_gradient_s;
    return sum;
  }

  // Sums all blocks of `stage`, with the ends that it holds.
  ActionSeconds OfStage(const Layout& layout, int64_t num_blocks, int stage) const {
    const int64_t dense =
        dense_blocks == 0 ? 0 : StageBlocksBefore(layout, num_blocks, stage, dense_blocks);
    return Of(layout, stage, static_cast<double>(StageBlockCount(layout, num_blocks, stage)), dense,
              stage == 0, stage == layout.pp - 1);
  }

  // Sums the blocks of a chunk of `stage`, with the ends that it holds.
  ActionSeconds OfChunk(const Layout& layout, int64_t num_blocks, int stage, int chunk) const {
    const BlockRange range = ChunkBlocks(layout, num_blocks, stage, chunk);
    const int64_t dense = std::max<int64_t>(0, std::min(range.end, dense_blocks) - range.begin);
    return Of(layout, stage, static_cast<double>(range.size()), dense, stage == 0 && chunk == 0,
              stage == layout.pp - 1 && chunk == layout.virtual_stages - 1);
  }

  static void Add(const ActionSeconds& part, ActionSeconds& sum) {
    sum.forward_s += part.forward_s;
    sum.backward_s += part.backward_s;
    sum.weight_gradient_s += part.weight_gradient_s;
  }
};

}  // namespace weft
