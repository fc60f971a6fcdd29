// A Layout says how one step is spread over ranks; layout_rules.h has the rules that it keeps,
// layout_spec.h what may be asked of it. Pure values.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/spec/grid.h"
#include "plan/spec/words.h"

namespace weft {

// kInterleaved: 1F1B over virtual_stages chunks per rank (PTD-P, arXiv:2104.04473, 2.2.2).
// kZeroBubbleH1: backward split into input and weight gradient (Qi et al., arXiv:2401.10241, 2.2).
enum class ScheduleKind { kGpipe, kOneForwardOneBackward, kInterleaved, kZeroBubbleH1 };

// Recompute says what backward computes again (arXiv:2205.05198, 5). kSelective: what is wide and
// cheap, without products and communication: norm outputs, activation output (and attention's
// scores, in engines that store them); kFull: everything but a block's input.
enum class Recompute { kNone, kSelective, kFull };

// Where the optimizer's states and the fp32 master weights live; kCpu: in host memory.
enum class OffloadDevice { kNone, kCpu };

// The batch is the same whatever the layout: it is mathematics, not execution.
struct BatchShape {
  int64_t global_batch_size = 0;  // sequences per step
  int64_t seq_len = 0;            // T
  // Attention stays within documents, so that each stage has to know where they start.
  bool masks_documents = false;
  friend bool operator==(const BatchShape&, const BatchShape&) = default;
};

// A Layout has degrees, batch cut and schedule; names are those of job.yaml's keys, by the table of
// plan/spec/layout_properties.h. global_batch_size = dp * micro_batch_size *
// gradient_accumulation_steps. Not everything that can be described and priced can be run:
// EngineIssues says what cannot yet.
struct Layout {
  int dp = 1;
  int pp = 1;
  int cp = 1;
  int tp = 1;
  int zero_stage = 0;
  ScheduleKind pp_schedule = ScheduleKind::kOneForwardOneBackward;
  int64_t micro_batch_size = 1;             // B, sequences per microbatch on one replica
  int64_t gradient_accumulation_steps = 1;  // microbatches per replica and step
  Recompute recompute = Recompute::kNone;   // of stages that recompute_per_stage does not name
  int virtual_stages = 1;                   // chunks of blocks per rank; > 1: kInterleaved only
  int ep = 1;   // expert parallel degree: ranks of dp x cp x (tp / etp) that share the experts
  int etp = 0;  // tensor parallel degree of experts, which divides tp; 0: tp
  // Ranks that a ZeRO shard is spread over; 1: the whole data group, dp * cp (DeepSpeed's default).
  int zero_hpz_partition_size = 1;
  bool sequence_parallel = false;  // norms and residuals sharded over tp (arXiv:2205.05198, 4.2.2)
  OffloadDevice offload_optimizer = OffloadDevice::kNone;
  int64_t head_chunk_tokens = 0;  // tokens of a microbatch whose logits exist at once; 0: all
  std::vector<int64_t> layers_per_stage = {};       // empty: as even as possible
  std::vector<Recompute> recompute_per_stage = {};  // empty: `recompute` everywhere

  int world_size() const { return dp * pp * cp * tp; }
  RankGrid grid() const { return RankGrid(dp, pp, cp, tp); }
  // Parts that the tokens outside of tensor-parallel products are cut into.
  int sequence_ranks() const { return sequence_parallel ? tp : 1; }
  int data_group() const { return dp * cp; }  // ranks that hold the same dense parameters
  int expert_tp() const { return etp == 0 ? tp : etp; }
  // Returns how many of `ranks` of a data group, times tp, hold the same experts.
  double expert_ranks(double ranks) const {
    const double copies = ranks * (tp / expert_tp()) / ep;
    return copies > 1 ? copies : 1;
  }
  bool has_zero_groups() const { return zero_hpz_partition_size > 1; }
  int zero_ranks() const { return has_zero_groups() ? zero_hpz_partition_size : data_group(); }
  bool offloads_optimizer() const { return offload_optimizer == OffloadDevice::kCpu; }
  Recompute recompute_of(int stage) const {
    return recompute_per_stage.empty() ? recompute
                                       : recompute_per_stage[static_cast<size_t>(stage)];
  }
  // Pieces, one after the other, in which the last stage makes the logits of a microbatch.
  int head_chunks(int64_t seq_len) const;
  friend bool operator==(const Layout&, const Layout&) = default;
};

// A LayoutSpec is what is asked of a layout, by a job file or by a person's question; what is not
// asked is the planner's to choose. Its members are those of Layout, one by one.
struct LayoutSpec {
  std::optional<int> dp = {}, tp = {}, pp = {}, cp = {}, ep = {}, etp = {};
  std::optional<int> zero_stage = {};
  std::optional<int> zero_hpz_partition_size = {};
  std::optional<ScheduleKind> pp_schedule = {};
  std::optional<int> virtual_stages = {};
  std::optional<int64_t> micro_batch_size = {};
  std::optional<int64_t> gradient_accumulation_steps = {};
  std::optional<Recompute> recompute = {};
  std::optional<bool> sequence_parallel = {};
  std::optional<OffloadDevice> offload_optimizer = {};
  std::optional<int64_t> head_chunk_tokens = {};
  std::optional<std::vector<int64_t>> layers_per_stage = {};  // an empty list: as even as possible
  std::vector<Recompute> recompute_per_stage = {};            // empty: nothing is asked
  friend bool operator==(const LayoutSpec&, const LayoutSpec&) = default;
};

// Blocks [begin, end) of the model.
struct BlockRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// `extent` in `parts` as even as possible; earlier parts take the remainder.
BlockRange EvenSplit(int64_t extent, int parts, int part);

// Blocks of chunk `chunk` of `stage`: virtual stage chunk * pp + stage of pp * virtual_stages. As
// even as possible (the last stage has the head's work on top), or layers_per_stage.
BlockRange ChunkBlocks(const Layout& layout, int64_t num_blocks, int stage, int chunk);

// Numbers of blocks of all stages of an even split, for those who ask for many: one division.
class EvenBlockCounts {
 public:
  EvenBlockCounts(int64_t num_blocks, int stages, int chunks)
      : stages_(stages),
        each_(chunks * (num_blocks / (int64_t{stages} * chunks))),
        remainder_(num_blocks % (int64_t{stages} * chunks)) {}

  // Earlier chunks are the larger: so many of the stage's are.
  int64_t Of(int stage) const {
    const int64_t larger = remainder_ - stage;
    if (larger <= 0) return each_;
    return each_ + (larger <= stages_ ? 1 : (larger + stages_ - 1) / stages_);
  }

 private:
  int64_t stages_, each_, remainder_;
};

// Number of blocks that `stage` holds, over all its chunks.
int64_t StageBlockCount(const Layout& layout, int64_t num_blocks, int stage);

// Counts those of them that come before block `end` of the model.
int64_t StageBlocksBefore(const Layout& layout, int64_t num_blocks, int stage, int64_t end);

Words WordsOf(ScheduleKind);
Words WordsOf(Recompute);
Words WordsOf(OffloadDevice);

}  // namespace weft
