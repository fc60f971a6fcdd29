// The space of a search: what the job fixes, and the lattice of all layouts that keep it and every
// rule. The lattice is a product of short lists, so that it can be counted and cut without being
// walked. Pure values.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "plan/estimate/question.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/layout.h"

namespace weft {

// kRun: what weft's own engine can run today. kEstimate: all that can be described.
enum class Purpose { kRun, kEstimate };

// Returns what the job asks of its layout, and that the optimizer stays on the device where the
// host has nothing to offer or cannot hold it.
LayoutSpec AskedLayout(const JobSpec& job);

// The job as the estimates ask about it, by weft's engine.
Question QuestionOf(const JobSpec& job);

// A way to run the pipeline, for one pp.
struct ScheduleChoice {
  ScheduleKind kind = ScheduleKind::kOneForwardOneBackward;
  int virtual_stages = 1;
  bool balanced = false;  // blocks are split by what stages take (balance.h), not evenly
  bool ragged = false;    // interleaved: pp need not divide the microbatches
};

// A way to cut the batch: dp replicas of so many microbatches.
struct BatchCut {
  int64_t micro_batch_size = 1;
  int64_t gradient_accumulation_steps = 1;
};

// Lists in simplest-first order. Every combination with tp * cp * pp * dp <= slots, Pairs, Takes
// and ZeroStages as below keeps every rule of CheckLayout, and runs if that is the purpose.
class Space {
 public:
  // REQUIRES: CheckModel and CheckCluster hold for `question`.
  Space(const Question& question, const LayoutSpec& constraints, Purpose purpose);

  const std::vector<int>& tps() const { return tps_; }
  const std::vector<int>& cps() const { return cps_; }
  const std::vector<int>& eps() const { return eps_; }
  const std::vector<int>& pps() const { return pps_; }
  const std::vector<int>& dps() const { return dps_; }
  const std::vector<Recompute>& recomputes() const { return recomputes_; }
  // Returns the ways to cut the batch for dps()[index].
  const std::vector<BatchCut>& cuts(size_t index) const { return cuts_[index]; }
  // Returns the choices for pps()[index]; Takes says which of them take so many microbatches.
  const std::vector<ScheduleChoice>& schedules(size_t index) const { return schedules_[index]; }
  static bool Takes(const ScheduleChoice& choice, int pp, int64_t gradient_accumulation_steps) {
    return choice.kind != ScheduleKind::kInterleaved || gradient_accumulation_steps % pp == 0 ||
           (choice.ragged && gradient_accumulation_steps > pp);
  }
  // Ascending, at most 4. `data_group`: dp * cp.
  absl::Span<const int> ZeroStages(int64_t data_group) const;
  // Whether the optimizer lives on the host: on the device first, which is never slower.
  absl::Span<const OffloadDevice> offloads() const;
  // Layout::sequence_parallel of layouts of tp and cp: true first, which never holds more (but for
  // what rounding makes of small buffers): a block's four residuals and norms shrink to half or
  // less, and all that comes on top is one whole residual.
  absl::Span<const bool> sequence_parallels(int tp, int cp) const;

  // Whether some layout of the lattice has these two.
  bool Pairs(int tp, int cp) const;
  bool Pairs(int tp, int dp, int cp, int ep) const;

  // A layout with everything that all layouts of tp and cp share, the other degrees 1, and the
  // first of sequence_parallels.
  Layout Base(int tp, int cp) const;
  // Whether the head may be made in any number of pieces. That is no dim of the lattice: more
  // pieces take longer and hold less, so that more than one are a repair.
  bool has_free_head() const { return !fixed_.head_chunk_tokens; }
  // Layout::head_chunk_tokens with which the head holds the least.
  int64_t LeastHeadChunk() const { return fixed_.head_chunk_tokens.value_or(1); }

  int64_t slots() const { return slots_; }
  // Layouts in the lattice.
  int64_t CountPoints() const;
  const LayoutSpec& fixed() const { return fixed_; }
  Purpose purpose() const { return purpose_; }

 private:
  void FillDegrees(const Question& question);
  void FillCuts(int64_t global_batch_size);
  void KeepRunnable(const ModelShape& model);
  std::vector<ScheduleChoice> ChoicesOf(int pp) const;
  // Ways to cut the batch for dps()[dp], to run a pipeline, to recompute, to shard its states and
  // to place them; [i]: of all pipelines before pps()[i].
  std::vector<int64_t> WaysBefore(size_t dp, int64_t data_group) const;

  int64_t slots_ = 1;
  int64_t seq_len_ = 0;
  int64_t num_blocks_ = 0;
  LayoutSpec fixed_;
  Purpose purpose_;
  std::vector<int> tps_, cps_, eps_, pps_, dps_, zeros_;
  std::vector<Recompute> recomputes_;
  bool runs_uneven_ = true;
  bool runs_offload_ = true;
  std::vector<std::vector<BatchCut>> cuts_;
  std::vector<std::vector<ScheduleChoice>> schedules_;
};

// 1 and `number` included, ascending. REQUIRES: number >= 1.
std::vector<int64_t> DivisorsOf(int64_t number);

}  // namespace weft
