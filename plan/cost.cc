#include "plan/cost.h"

#include <algorithm>

#include "plan/errors.h"
#include "plan/shard.h"

namespace weft {
namespace {

constexpr double kElementBytes = 4;  // fp32

// What one pass (forward or backward) of one microbatch asks of one rank.
struct Work {
  double flops = 0;
  double streamed_elements = 0;  // read or written by memory-bound operations
  double operations = 0;         // started by the host
  double wide_all_reduces = 0;   // over tp, of [N, D]
  double thin_all_reduces = 0;   // over tp, of [N, 1]

  Work& operator+=(const Work& other) {
    flops += other.flops;
    streamed_elements += other.streamed_elements;
    operations += other.operations;
    wide_all_reduces += other.wide_all_reduces;
    thin_all_reduces += other.thin_all_reduces;
    return *this;
  }
};

Work operator*(double factor, const Work& work) {
  return {factor * work.flops, factor * work.streamed_elements, factor * work.operations,
          factor * work.wide_all_reduces, factor * work.thin_all_reduces};
}

// Work that the network's parts cost one tp rank (index 0: it takes any remainder), for one
// microbatch of N = B * T tokens.
struct PartWork {
  Work embedding_forward, embedding_backward;
  Work block_forward, block_backward;
  Work head;  // both passes: logits become their gradient within the forward action
};

// Elements that the memory-bound operations of a block's forward pass read and write, per token.
double BlockStreamedElements(const ModelShape& model, int64_t seq_len, int tp) {
  const bool gpt2 = model.family == ModelFamily::kGpt2;
  const auto width = static_cast<double>(model.hidden_size);
  const double heads = static_cast<double>(model.num_heads) / tp;
  const double qkv =
      static_cast<double>((model.num_heads + 2 * model.num_kv_heads) * model.head_dim) / tp;
  const double ffn = static_cast<double>(model.ffn_size) / tp;
  const double norms = 2 * 2 * width;      // read x, write y
  const double residuals = 2 * 3 * width;  // read both, write the sum
  const double biases = gpt2 ? 2 * (qkv + ffn + 2 * width) : 0;
  const double activation = gpt2 ? 2 * ffn : 3 * ffn;  // SwiGLU reads gate and up
  // Scores of the causal half: written, read for the maximum, exponentiated, read for the sum.
  const double scores = 4 * heads * static_cast<double>(seq_len) / 2;
  return norms + residuals + biases + activation + scores;
}

PartWork WorkOf(const ModelShape& model, const BatchShape& batch, const Layout& layout) {
  const auto tokens = static_cast<double>(layout.micro_batch_size * batch.seq_len);
  const auto width = static_cast<double>(model.hidden_size);
  const auto vocab = static_cast<double>(SplitRange(model.vocab_size, 1, layout.tp, 0).size());
  const double vocab_share = vocab / static_cast<double>(model.vocab_size);
  PartWork work;
  // Gather, add positions, write; vocabulary-parallel, so the rows are summed over tp.
  work.embedding_forward = {
      .streamed_elements = 3 * tokens * width, .operations = 1, .wide_all_reduces = 1};
  work.embedding_backward = {.streamed_elements = 3 * tokens * width, .operations = 1};
  // Two all-reduces of [N, D] per pass (Shoeybi et al., arXiv:1909.08053, section 3). Operations:
  // 6 linear layers with bias, 2 norms, attention, activation, 2 residual sums; backward each
  // linear layer has three (input, weight and bias gradient).
  work.block_forward = {
      .flops = tokens * BlockForwardFlopsPerToken(model, batch.seq_len) / layout.tp,
      .streamed_elements = tokens * BlockStreamedElements(model, batch.seq_len, layout.tp),
      .operations = 18,
      .wide_all_reduces = 2};
  work.block_backward = 2 * work.block_forward;
  work.block_backward.operations = 24;
  work.block_backward.wide_all_reduces = 2;
  // Norm and its gradient; logits read for maximum and sum, read and written for the gradient.
  // Maximum, sum and target logit are reduced over tp, then the gradient of the head's input.
  work.head = {.flops = 3 * tokens * HeadForwardFlopsPerToken(model) * vocab_share,
               .streamed_elements = tokens * (6 * width + 4 * vocab),
               .operations = 9,
               .wide_all_reduces = 1,
               .thin_all_reduces = 3};
  return work;
}

// The link that the ranks of a group use: groups are made of neighbouring ranks that lie within
// aligned runs of `span` ranks, and nodes hold runs of slots_per_node ranks.
const LinkProfile& LinkOf(const Cluster& cluster, int world_size, int span) {
  const bool one_node = world_size <= cluster.slots_per_node;
  return one_node || cluster.slots_per_node % span == 0 ? cluster.intra_node : cluster.inter_node;
}

// Ring all-reduce of `bytes` over n ranks: 2(n-1) rounds of bytes/n (Patarasuk & Yuan, 2009).
double AllReduceSeconds(const LinkProfile& link, int ranks, double bytes) {
  const double rounds = 2.0 * (ranks - 1);
  return rounds * (link.latency_s + bytes / ranks / link.bytes_per_s);
}

struct PassSeconds {
  double compute_s = 0;
  double overhead_s = 0;
  double tensor_comm_s = 0;
  double total_s() const { return compute_s + overhead_s + tensor_comm_s; }
};

struct StageSeconds {
  PassSeconds forward;
  PassSeconds backward;
  double cycle_s() const { return forward.total_s() + backward.total_s(); }
};

// Everything that is asked about one layout on one cluster.
struct Question {
  const ModelShape& model;
  const Cluster& cluster;
  const BatchShape& batch;
  const Layout& layout;
  double sharing = 1;  // by how much workers that are all busy slow each other

  const LinkProfile& Link(int span) const { return LinkOf(cluster, layout.world_size(), span); }
  // One [N, D] of activations, what crosses a stage's border.
  double boundary_bytes() const {
    return kElementBytes *
           static_cast<double>(layout.micro_batch_size * batch.seq_len * model.hidden_size);
  }
};

PassSeconds SecondsOf(const Question& asked, const Work& work) {
  const DeviceProfile& device = asked.cluster.device;
  const LinkProfile& link = asked.Link(asked.layout.tp);
  const double wide_bytes = asked.boundary_bytes();
  const double thin_bytes = wide_bytes / static_cast<double>(asked.model.hidden_size);
  const int tp = asked.layout.tp;
  PassSeconds seconds;
  seconds.compute_s = work.flops / device.MatmulFlopsPerS(Precision::kFp32) +
                      kElementBytes * work.streamed_elements / device.StreamBytesPerS();
  seconds.compute_s *= asked.sharing;
  seconds.overhead_s = asked.sharing * work.operations * device.op_overhead_s;
  seconds.tensor_comm_s = work.wide_all_reduces * AllReduceSeconds(link, tp, wide_bytes) +
                          work.thin_all_reduces * AllReduceSeconds(link, tp, thin_bytes);
  return seconds;
}

std::vector<StageSeconds> SecondsOfStages(const Question& asked) {
  const PartWork part = WorkOf(asked.model, asked.batch, asked.layout);
  const int stages = asked.layout.pp;
  std::vector<StageSeconds> seconds;
  for (int stage = 0; stage < stages; ++stage) {
    const auto blocks =
        static_cast<double>(StageBlockCount(asked.layout, asked.model.num_blocks, stage));
    Work forward = blocks * part.block_forward;
    Work backward = blocks * part.block_backward;
    if (stage == 0) {
      forward += part.embedding_forward;
      backward += part.embedding_backward;
    }
    if (stage == stages - 1) forward += part.head;
    seconds.push_back({SecondsOf(asked, forward), SecondsOf(asked, backward)});
  }
  return seconds;
}

double TransferSeconds(const Question& asked) {
  if (asked.layout.pp == 1) return 0;
  const LinkProfile& link = asked.Link(asked.layout.world_size());
  return link.latency_s + asked.boundary_bytes() / link.bytes_per_s;
}

std::vector<ActionSeconds> ActionsOf(const std::vector<StageSeconds>& stages, double transfer_s) {
  std::vector<ActionSeconds> seconds;
  seconds.reserve(stages.size());
  for (const StageSeconds& stage : stages) {
    seconds.push_back({.forward_s = stage.forward.total_s(),
                       .backward_s = stage.backward.total_s(),
                       .transfer_s = transfer_s});
  }
  return seconds;
}

// Parameters that tp index 0 of each stage holds.
struct StageParameters {
  double all = 0;
  double tied_copy = 0;  // of them, those that first and last stage both hold
};

std::vector<StageParameters> ParametersOfStages(const ModelShape& model, const Layout& layout) {
  ModelShape one_block = model;  // all blocks are alike
  one_block.num_blocks = 1;
  double embedding = 0, block = 0, head = 0, tokens = 0;
  for (const TensorShard& shard : ShardsOf(one_block, Layout{.tp = layout.tp}, /*rank=*/0)) {
    const auto elements = static_cast<double>(shard.elements());
    if (shard.tensor.part == ModelPart::kEmbedding) embedding += elements;
    if (shard.tensor.part == ModelPart::kBlock) block += elements;
    if (shard.tensor.part == ModelPart::kHead) head += elements;
    if (shard.tensor.name == kTokenEmbeddingName) tokens = elements;
  }
  const bool copied = model.tied_embeddings && layout.pp > 1;
  std::vector<StageParameters> parameters;
  for (int stage = 0; stage < layout.pp; ++stage) {
    const bool first = stage == 0;
    const bool last = stage == layout.pp - 1;
    StageParameters own;
    own.all = block * static_cast<double>(StageBlockCount(layout, model.num_blocks, stage));
    if (first) own.all += embedding;
    if (last) own.all += head;
    if (copied && last) own.all += tokens;
    if (copied && (first || last)) own.tied_copy = tokens;
    parameters.push_back(own);
  }
  return parameters;
}

// Reductions after the last backward pass, of the stage that has most of them; then the norm, loss
// and stop flag: three doubles over all ranks.
double DataCommSeconds(const Question& asked, const std::vector<StageParameters>& parameters) {
  const Layout& layout = asked.layout;
  const LinkProfile& world_link = asked.Link(layout.world_size());
  const LinkProfile& data_link = asked.Link(layout.tp * layout.cp * layout.dp);
  double slowest_s = 0;
  for (const StageParameters& own : parameters) {
    const double tied_s = AllReduceSeconds(world_link, 2, kElementBytes * own.tied_copy);
    const double data_s = AllReduceSeconds(data_link, layout.dp, kElementBytes * own.all);
    slowest_s = std::max(slowest_s, (own.tied_copy > 0 ? tied_s : 0) + data_s);
  }
  return slowest_s + AllReduceSeconds(world_link, layout.world_size(), 3 * sizeof(double));
}

// Bytes moved per fp32 parameter: zeroing its gradient writes 4, the norm reads 4; the update reads
// gradient, parameter and states and writes parameter and states: 12 + 8 per state, so AdamW moves
// 28, and 36 in all.
double OptimizerSeconds(const Question& asked, const std::vector<StageParameters>& parameters,
                        int optimizer_states) {
  double most = 0;
  for (const StageParameters& own : parameters) most = std::max(most, own.all);
  const double bytes_each = 4 + 4 + 12 + 8.0 * optimizer_states;
  return asked.sharing * most * bytes_each / asked.cluster.device.StreamBytesPerS();
}

struct PassesSeconds {
  double without_transfers_s = 0;
  double with_transfers_s = 0;
};

// All forwards and backwards of a step, first to last. Workers that share cores: a worker that
// waits leaves its core to the others, so the cores are busy until all work is done, or the
// schedule of workers that have a core each is what takes longest.
PassesSeconds SecondsOfPasses(const Question& asked, const std::vector<StageSeconds>& shared) {
  const Layout& layout = asked.layout;
  const auto makespan_s = [&](const std::vector<StageSeconds>& stages, double transfer_s) {
    return PipelineSeconds(layout.schedule, ActionsOf(stages, transfer_s), layout.num_microbatches);
  };
  const double transfer_s = TransferSeconds(asked);
  if (asked.sharing == 1) return {makespan_s(shared, 0), makespan_s(shared, transfer_s)};
  double mean_busy_s = 0;
  for (const StageSeconds& stage : shared) {
    mean_busy_s += static_cast<double>(layout.num_microbatches) * stage.cycle_s() / layout.pp;
  }
  const Question alone = {asked.model, asked.cluster, asked.batch, layout};
  const std::vector<StageSeconds> stages = SecondsOfStages(alone);
  return {std::max(mean_busy_s, makespan_s(stages, 0)),
          std::max(mean_busy_s, makespan_s(stages, transfer_s))};
}

}  // namespace

double StepTime::total_s() const {
  return compute_s + overhead_s + tensor_comm_s + pipeline_comm_s + bubble_s + data_comm_s +
         optimizer_s;
}

std::vector<std::pair<std::string, double>> StepTime::terms() const {
  return {{"compute", compute_s},         {"overhead", overhead_s},
          {"tensor_comm", tensor_comm_s}, {"pipeline_comm", pipeline_comm_s},
          {"bubble", bubble_s},           {"data_comm", data_comm_s},
          {"optimizer", optimizer_s}};
}

StepTime EstimateStepTime(const ModelShape& model, const Cluster& cluster, const BatchShape& batch,
                          const Layout& layout, int optimizer_states) {
  const Question asked = {model, cluster, batch, layout, CoreSharing(cluster, layout.world_size())};
  const std::vector<StageSeconds> stages = SecondsOfStages(asked);
  const auto microbatches = static_cast<double>(layout.num_microbatches);
  size_t slowest = 0;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    if (stages[stage].cycle_s() > stages[slowest].cycle_s()) slowest = stage;
  }
  const StageSeconds& own = stages[slowest];
  StepTime time;
  time.compute_s = microbatches * (own.forward.compute_s + own.backward.compute_s);
  time.overhead_s = microbatches * (own.forward.overhead_s + own.backward.overhead_s);
  time.tensor_comm_s = microbatches * (own.forward.tensor_comm_s + own.backward.tensor_comm_s);
  const PassesSeconds passes = SecondsOfPasses(asked, stages);
  time.bubble_s = std::max(0.0, passes.without_transfers_s - microbatches * own.cycle_s());
  time.pipeline_comm_s = std::max(0.0, passes.with_transfers_s - passes.without_transfers_s);
  const std::vector<StageParameters> parameters = ParametersOfStages(model, layout);
  time.data_comm_s = DataCommSeconds(asked, parameters);
  time.optimizer_s = OptimizerSeconds(asked, parameters, optimizer_states);
  return time;
}

std::vector<ActionSeconds> EstimateActionSeconds(const ModelShape& model, const Cluster& cluster,
                                                 const BatchShape& batch, const Layout& layout) {
  const Question asked = {model, cluster, batch, layout, CoreSharing(cluster, layout.world_size())};
  return ActionsOf(SecondsOfStages(asked), TransferSeconds(asked));
}

}  // namespace weft
