#include "plan/mixed/fleet_part.h"

#include <algorithm>
#include <utility>

#include "plan/estimate/pass_cost.h"

namespace weft {
namespace {

Question OverNodes(Question question) {
  question.cluster.intra_node = question.cluster.inter_node;
  return question;
}

}  // namespace

FleetPart::FleetPart(Question question)
    : FleetPart(question, std::make_shared<MemoryTable>(question)) {}

FleetPart::FleetPart(Question question, std::shared_ptr<MemoryTable> memory)
    : question_(std::move(question)),
      across_(OverNodes(question_)),
      pricer_(question_, std::move(memory)),
      dues_(question_) {}

std::array<int64_t, 9> FleetPart::KeyOf(const Layout& layout) {
  return {layout.dp,
          layout.pp,
          layout.cp,
          layout.tp,
          layout.ep,
          layout.etp,
          layout.micro_batch_size,
          layout.sequence_parallel ? 1 : 0,
          layout.head_chunk_tokens};
}

const NetworkSeconds& FleetPart::NetworkWith(const Layout& layout, Recompute recompute) {
  Last& last = last_[static_cast<size_t>(recompute)];
  const std::array<int64_t, 9> key = KeyOf(layout);
  if (last.key == key) return last.network;
  Layout own = layout;
  own.recompute = recompute;
  own.recompute_per_stage.clear();
  last = {key, pricer_.LazyPassesOf(own, 0).network};
  return last.network;
}

ActionSeconds FleetPart::StageSeconds(const Layout& layout, int stage) {
  const NetworkSeconds& network = NetworkWith(layout, layout.recompute_of(stage));
  ActionSeconds seconds = network.OfStage(layout, question_.model.num_blocks, stage);
  if (!MovesInPasses(layout)) return seconds;
  NetworkSeconds::Add(dues_.Of(layout, stage).comm.PassWaits(layout, stage, seconds), seconds);
  return seconds;
}

double FleetPart::BlockSeconds(const Layout& layout, Recompute recompute) {
  const ActionSeconds& block =
      NetworkWith(layout, recompute).blocks[static_cast<size_t>(recompute)];
  return block.forward_s + block.backward_s;
}

double FleetPart::EndsSeconds(const Layout& layout, int stage) {
  const NetworkSeconds& network = NetworkWith(layout, layout.recompute_of(stage));
  ActionSeconds ends = {.forward_s = 0, .backward_s = 0, .transfer_s = 0, .weight_gradient_s = 0};
  if (stage == 0) NetworkSeconds::Add(network.embedding, ends);
  if (stage == layout.pp - 1) NetworkSeconds::Add(network.head, ends);
  return ends.forward_s + ends.backward_s;
}

double FleetPart::EndSeconds(const Layout& layout, int stage) {
  const NetworkSeconds& network = NetworkWith(layout, layout.recompute_of(stage));
  return StepEnd(layout, stage, network.OfStage(layout, question_.model.num_blocks, stage),
                 dues_.Of(layout, stage))
      .total_s();
}

double FleetPart::BorderSeconds(const Layout& layout, double forward_s) const {
  return WaitedBoundarySeconds(across_, layout, forward_s);
}

bool FleetPart::Fits(const Layout& layout, const MemoryEstimate& memory) const {
  const int64_t host_bytes = question_.cluster.host_memory_bytes;
  if (!pricer_.Fits(memory)) return false;
  return host_bytes == 0 ||
         NodeHostBytes(question_.cluster, layout, memory.host_bytes) <= host_bytes;
}

// Memory grows with the blocks by the same for each: states, and activations of what is in flight.
int64_t FleetPart::MostBlocks(Layout layout, int stage) {
  const int64_t most = question_.model.num_blocks - (layout.pp - 1);  // others hold one at least
  const auto memory_with = [&](int64_t blocks) {
    std::fill(layout.layers_per_stage.begin(), layout.layers_per_stage.end(), 1);
    layout.layers_per_stage[static_cast<size_t>(stage)] = blocks;
    if (layout.pp > 1) layout.layers_per_stage[stage == 0 ? 1 : 0] += most - blocks;
    return MemoryOf(layout, stage);
  };
  if (layout.pp == 1) return Fits(layout, memory_with(most)) ? most : 0;
  const MemoryEstimate one = memory_with(1);
  if (most < 1 || !Fits(layout, one)) return 0;
  if (most == 1) return 1;
  const int64_t each = std::max<int64_t>(1, memory_with(2).total_bytes() - one.total_bytes());
  const int64_t free_bytes = question_.cluster.device.memory_bytes - one.total_bytes();
  int64_t blocks = std::clamp<int64_t>(1 + free_bytes / each, 1, most);
  while (blocks > 1 && !Fits(layout, memory_with(blocks))) --blocks;
  return blocks;
}

}  // namespace weft
