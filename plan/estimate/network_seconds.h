// One microbatch's passes through each part of the network, terms added up, and from them those of
// a stage. Pure values.
#pragma once
#include <array>
#include <cstddef>

#include "plan/schedule/simulate.h"
#include "plan/spec/layout.h"

namespace weft {

struct NetworkSeconds {
  ActionSeconds embedding = {}, head = {};   // transfer_s is of no stage's passes: 0
  std::array<ActionSeconds, 3> blocks = {};  // by Recompute, of the modes that the layout takes

  // Sums `count` blocks of `stage`, with the ends of the network where it holds them.
  ActionSeconds Of(const Layout& layout, int stage, double count, bool first, bool last) const {
    const ActionSeconds& block = blocks[static_cast<size_t>(layout.recompute_of(stage))];
    ActionSeconds sum = {.forward_s = count * block.forward_s,
                         .backward_s = count * block.backward_s,
                         .transfer_s = 0,
                         .weight_gradient_s = count * block.weight_gradient_s};
    if (first) Add(embedding, sum);
    if (last) Add(head, sum);
    return sum;
  }

  // Sums all blocks of `stage`, with the ends that it holds.
  ActionSeconds OfStage(const Layout& layout, int64_t num_blocks, int stage) const {
    return Of(layout, stage, static_cast<double>(StageBlockCount(layout, num_blocks, stage)),
              stage == 0, stage == layout.pp - 1);
  }

  static void Add(const ActionSeconds& part, ActionSeconds& sum) {
    sum.forward_s += part.forward_s;
    sum.backward_s += part.backward_s;
    sum.weight_gradient_s += part.weight_gradient_s;
  }
};

}  // namespace weft
