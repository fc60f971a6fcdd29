#include "plan/search/pricer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "plan/schedule/schedule.h"
#include "plan/search/space.h"

namespace weft {

MemoryTerm Peak::largest() const {
  MemoryEstimate own = memory;
  own[MemoryTerm::kContext] = 0;
  own[MemoryTerm::kGuard] = 0;
  return own.largest();
}

int64_t NodeHostBytes(const Cluster& cluster, const Layout& layout, int64_t host_bytes) {
  const int64_t workers = std::min(layout.world_size(), cluster.slots_per_node);
  return workers * std::min(host_bytes, std::numeric_limits<int64_t>::max() / workers);
}

Pricer::Pricer(const Question& question, std::shared_ptr<MemoryTable> memory)
    : question_(question),
      table_(std::move(memory)),
      dues_(question),
      checkpoint_bytes_(CheckpointBytes(question)) {}

// The waste delta / tau + tau / 2M is least at tau = sqrt(2 delta M).
const Pricer::Faults& Pricer::FaultsOf(int world_size) {
  const auto [found, is_new] = faults_.try_emplace(world_size);
  Faults& faults = found->second;
  if (!is_new) return faults;
  faults.costs = FaultCostsOf(question_.cluster, checkpoint_bytes_, world_size);
  const double best_s = std::sqrt(2 * faults.costs.save_s * faults.costs.between_stops_s);
  const Waste least{.saving = best_s > 0 ? faults.costs.save_s / best_s : 0,
                    .lost_steps = best_s / 2 / faults.costs.between_stops_s,
                    .restarts = faults.costs.restart_s / faults.costs.between_stops_s};
  faults.most_goodput = GoodputOf(least);
  return faults;
}

double Pricer::Goodput(const Layout& layout, double step_s) {
  return BestGoodput(FaultsOf(layout.world_size()).costs, step_s);
}

double Pricer::MostGoodput(int world_size) {
  return FaultsOf(world_size).most_goodput;
}

Pricer::PassKey::PassKey(const Layout& layout, int slots_per_node)
    : properties(layout), within(std::min(layout.world_size(), slots_per_node + 1)) {}

Pricer::Entry& Pricer::EntryOf(const Layout& layout) {
  const PassKey key(layout, question_.cluster.slots_per_node);
  const auto microbatch = static_cast<uint64_t>(layout.micro_batch_size);
  Last& last = last_[static_cast<size_t>(std::countr_zero(microbatch)) % last_.size()];
  if (last.key != nullptr && *last.key == key) return *last.entry;
  const auto found = entries_.try_emplace(key).first;
  last = {&found->first, &found->second};
  return *last.entry;
}

absl::Span<const int64_t> Pricer::ZeroWidths(int64_t data_group) {
  const auto [found, is_new] = zero_widths_.try_emplace(data_group);
  std::vector<int64_t>& widths = found->second;
  if (!is_new) return widths;
  widths = DivisorsOf(data_group);
  std::reverse(widths.begin(), widths.end());
  if (widths.size() > 1) widths.pop_back();
  return widths;
}

NetworkPasses& Pricer::NetworkPassesOf(const Layout& layout) {
  std::unique_ptr<NetworkPasses>& network = WayOf(layout).network;
  if (network == nullptr) network = std::make_unique<NetworkPasses>();
  return *network;
}

StepPasses Pricer::PassesOf(const Layout& layout) {
  return EstimatePasses(question_, layout, NetworkPassesOf(layout), dues_);
}

StepPasses Pricer::PassesWithoutWaits(Layout layout) {
  layout.zero_stage = 0;
  return PassesOf(layout);
}

LazyPasses Pricer::LazyPassesOf(const Layout& layout, double least_s) {
  return {.least_s = least_s, .network = NetworkOf(question_, layout, NetworkPassesOf(layout))};
}

const BlockCompute& Pricer::ComputeOf(const Layout& layout) {
  const int64_t common = std::gcd(layout.micro_batch_size, static_cast<int64_t>(layout.cp));
  const auto [found, is_new] =
      computes_.try_emplace({layout.micro_batch_size / common, layout.cp / common, layout.tp,
                             layout.ep, layout.expert_tp()});
  if (is_new) found->second = BlockComputeOf(question_, layout);
  return found->second;
}

const PassSeconds& Pricer::BlockOf(Entry& entry, const Layout& layout, Recompute recompute) {
  std::optional<PassSeconds>& block = WayOf(entry, layout).block[static_cast<size_t>(recompute)];
  if (!block) {
    if (entry.compute == nullptr) entry.compute = &ComputeOf(layout);
    block = SumOf(BlockPass(question_, layout, recompute, *entry.compute));
  }
  return *block;
}

const PassSeconds& Pricer::BlockOf(const Layout& layout, Recompute recompute) {
  return BlockOf(EntryOf(layout), layout, recompute);
}

const PassSeconds& Pricer::LeastBlockOf(const Layout& layout, Recompute recompute,
                                        absl::Span<const bool> ways) {
  Entry& entry = EntryOf(layout);
  if (ways.size() == 1) return BlockOf(entry, layout, recompute);
  if (entry.least_block && entry.least_recompute == recompute) return *entry.least_block;
  Layout other = layout;
  other.sequence_parallel = !layout.sequence_parallel;
  const PassSeconds& a = BlockOf(entry, layout, recompute);
  const PassSeconds& b = BlockOf(entry, other, recompute);
  entry.least_recompute = recompute;
  // Weight gradients are the same products whichever way.
  entry.least_block = PassSeconds{std::min(a.forward_s, b.forward_s),
                                  std::min(a.backward_s, b.backward_s), a.weight_gradient_s};
  return *entry.least_block;
}

PartPasses Pricer::PartsOf(const Layout& layout, Recompute recompute) {
  Entry& entry = EntryOf(layout);
  Way& way = WayOf(entry, layout);
  if (!way.embedding) way.embedding = SumOf(EmbeddingPass(question_, layout));
  const PassSeconds& block = BlockOf(entry, layout, recompute);
  if (!way.head) way.head = SumOf(HeadPass(question_, layout));
  if (layout.pp > 1 && !way.transfer_s) way.transfer_s = BoundarySeconds(question_, layout);
  return {
      .block = block,
      .embedding = question_.model.num_dense_blocks == 0
                       ? *way.embedding
                       : WithDenseBlocks(*way.embedding, block, layout, recompute),
      .head = *way.head,
      // No bound counts transfers that a chunk's pass may hide.
      .transfer_s = layout.pp > 1 && !ChunksHideTransfers(question_, layout) ? *way.transfer_s : 0};
}

// Dense blocks count as what they take less, at the first stage's embedding. They lie there, or,
// where they are more than it holds, at the stages after it: none but the first is thought faster
// than it is while they end before the last two.
PassSeconds Pricer::WithDenseBlocks(const PassSeconds& embedding, const PassSeconds& block,
                                    const Layout& layout, Recompute recompute) {
  const PassSeconds dense = SumOf(NetworkPassesOf(layout).DenseBlock(question_, layout, recompute));
  const auto count = static_cast<double>(question_.model.num_dense_blocks);
  const auto less = [&](double of_dense, double of_block) {
    return count * std::min(0.0, of_dense - of_block);
  };
  const double weight_s = less(dense.weight_gradient_s, block.weight_gradient_s);
  const double input_s =
      less(dense.backward_s - dense.weight_gradient_s, block.backward_s - block.weight_gradient_s);
  return {embedding.forward_s + less(dense.forward_s, block.forward_s),
          embedding.backward_s + input_s + weight_s, embedding.weight_gradient_s + weight_s};
}

Pipeline Pricer::PipelineOf(const Layout& layout, Recompute recompute) {
  const PartPasses parts = PartsOf(layout, recompute);
  Pipeline pipeline = {.stages = layout.pp,
                       .num_blocks = question_.model.num_blocks,
                       .dense_blocks = question_.model.num_dense_blocks,
                       .microbatches = layout.gradient_accumulation_steps,
                       .block = parts.block,
                       .embedding = parts.embedding,
                       .head = parts.head,
                       .transfer_s = parts.transfer_s,
                       .balanced = std::nullopt,
                       .uneven = !layout.layers_per_stage.empty() ||
                                 !layout.recompute_per_stage.empty() || HasDenseBlocksLate(layout),
                       .shares_cores = CoreSharing(question_.cluster, layout.world_size()) > 1};
  if (!pipeline.uneven) pipeline.balanced = BetterSplit(pipeline);
  return pipeline;
}

// Whether dense blocks may reach the last two stages (the last of two): bounds know only the mean
// then. Splits that are not even are allowed a first stage of half its size.
bool Pricer::HasDenseBlocksLate(const Layout& layout) const {
  const ModelShape& model = question_.model;
  return layout.pp > 1 &&
         2 * model.num_dense_blocks * layout.pp > model.num_blocks * std::max(1, layout.pp - 2);
}

double Pricer::SpreadOf(const Layout& layout) const {
  return 1 + question_.engine.time.straggler_sigma *
                 std::sqrt(2 * std::log(static_cast<double>(layout.world_size())));
}

Pipeline Pricer::WithWaits(const Pipeline& pipeline, const Layout& layout,
                           const NetworkSeconds& network) {
  const auto waits_of = [&](int stage) {
    const ActionSeconds passes = network.OfStage(layout, question_.model.num_blocks, stage);
    const ActionSeconds waits = dues_.Of(layout, stage).comm.PassWaits(layout, stage, passes);
    return PassSeconds{waits.forward_s, waits.backward_s, waits.weight_gradient_s};
  };
  Pipeline waiting = pipeline;
  waiting.first_waits = waits_of(0);
  if (layout.pp > 1) waiting.last_waits = waits_of(layout.pp - 1);
  return waiting;
}

// Inner neighbours that are alike differ in passes in flight alone: their bytes only fall from
// stage to stage, or, where weight gradients are put off, only rise or only fall. So the first of
// them stands for all, or the first and the last.
template <typename Visit>
void Pricer::EachUnlikeStage(const Layout& layout, const Visit& visit) {
  const int last = layout.pp - 1;
  const int64_t blocks = question_.model.num_blocks;
  const auto dense = [&](int stage) {
    return StageBlocksBefore(layout, blocks, stage, question_.model.num_dense_blocks);
  };
  const bool puts_off = SplitsBackward(layout);
  // An even split's first stages hold a block more than the others, as many as there are left over.
  const auto larger = static_cast<int>(blocks % layout.pp);
  const auto holds_as_many = [&](int a, int b) {
    const std::vector<int64_t>& split = layout.layers_per_stage;
    if (split.empty()) return !puts_off || (a < larger) == (b < larger);
    return split[static_cast<size_t>(a)] == split[static_cast<size_t>(b)];
  };
  const auto are_alike = [&](int a, int b) {
    return a > 0 && b < last && holds_as_many(a, b) &&
           layout.recompute_of(a) == layout.recompute_of(b) && dense(a) == dense(b);
  };
  // An even split has no other inner stages that are unlike once no dense block is left.
  const auto next_unlike = [&](int stage) {
    if (!puts_off) return last;
    if (stage < larger) return std::min(larger, last) - 1;
    return stage == larger || stage == last ? stage : last - 1;
  };
  const bool even = layout.layers_per_stage.empty() && layout.recompute_per_stage.empty();
  for (int stage = 0; stage < layout.pp; ++stage) {
    if (even && stage > 1 && dense(stage - 1) == 0) stage = std::max(stage, next_unlike(stage));
    const bool is_covered =
        are_alike(stage - 1, stage) && (!puts_off || are_alike(stage, stage + 1));
    if (!is_covered && !visit(stage)) return;
  }
}

Peak Pricer::PeakOf(const Layout& layout) {
  return *PeakUpTo(layout, std::numeric_limits<int64_t>::max());
}

std::optional<Peak> Pricer::PeakUpTo(const Layout& layout, int64_t most_bytes) {
  const bool has_own_memory = question_.cluster.device.backend != BackendKind::kCpu;
  bool is_more = false;
  Peak peak;
  EachUnlikeStage(layout, [&](int stage) {
    const MemoryEstimate memory = StageOf(layout, stage);
    is_more = has_own_memory && memory.total_bytes() > most_bytes;
    if (is_more) return false;
    peak.host_bytes = std::max(peak.host_bytes, memory.host_bytes);
    if (stage == 0 || DeviceBytes(memory) > DeviceBytes(peak.memory)) {
      peak.stage = stage;
      peak.memory = memory;
    }
    return true;
  });
  if (is_more) return std::nullopt;
  return peak;
}

bool Pricer::FitsEverywhere(const Layout& layout) {
  bool fits = true;
  EachUnlikeStage(layout, [&](int stage) { return fits = Fits(StageOf(layout, stage)); });
  return fits;
}

bool Pricer::IsProven(const Layout& layout) {
  int64_t host_bytes = 0;
  for (int stage = 0; stage < layout.pp; ++stage) {
    const MemoryEstimate memory = StageOf(layout, stage);
    if (!Fits(memory)) return false;
    host_bytes = std::max(host_bytes, memory.host_bytes);
  }
  return HostFits(layout, host_bytes);
}

}  // namespace weft
