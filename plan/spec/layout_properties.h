// The table of a layout's properties: a row per property, with its name, its key in job.yaml and
// its members of Layout and LayoutSpec. Text, JSON, --layout and --why, the wire, what is fixed,
// what overrides what and which layout is the simpler one follow from it. A new property is a row
// here, the two members, a row in plan/keys/job_keys.cc, and its use. Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/strings/string_view.h"
#include "plan/spec/layout.h"

namespace weft {

// A LayoutText shows a property always, of more than one stage, or never, and each that has not its
// default.
enum class InText { kAlways, kInPipelines, kUnlessDefault };

// A Complexity says how much a layout does by a property: the less, the simpler it is.
struct Complexity {
  int order;          // Simpler compares properties in this order, each another one, from 0
  bool is_mechanism;  // it is something that a person has to understand, not a mere number
  int64_t (*of)(const Layout&) = nullptr;  // null: the value itself; whether a list has any
};

template <typename T, typename Asked = std::optional<T>>
struct LayoutProperty {
  absl::string_view name;  // the last part of the key, where that says enough
  absl::string_view key;   // of job.yaml
  T Layout::*value;
  Asked LayoutSpec::*asked;
  InText in_text;
  Complexity complexity;
  // Says whether a layout keeps what is asked; null: it has the very value.
  bool (*keeps)(const LayoutSpec&, const Layout&) = nullptr;
};

// 1F1B is the plain schedule; the others are in the order of their words.
inline int64_t ScheduleComplexity(const Layout& layout) {
  const bool is_plain = layout.pp_schedule == ScheduleKind::kOneForwardOneBackward;
  return is_plain ? -1 : static_cast<int64_t>(layout.pp_schedule);
}

// A fixed mode is that of all stages.
inline bool KeepsRecompute(const LayoutSpec& asked, const Layout& layout) {
  return layout.recompute == asked.recompute &&
         layout.recompute_per_stage == asked.recompute_per_stage;
}

// Sharing is the simpler way: it never holds more.
inline int64_t UnsharedSequence(const Layout& layout) {
  return layout.sequence_parallel ? 0 : 1;
}

// One rank has nothing to share.
inline bool KeepsSequence(const LayoutSpec& asked, const Layout& layout) {
  return layout.tp == 1 || layout.sequence_parallel == asked.sequence_parallel;
}

// Fewer tokens make more pieces.
inline int64_t HeadComplexity(const Layout& layout) {
  const int64_t tokens = layout.head_chunk_tokens;
  return tokens == 0 ? 0 : std::numeric_limits<int64_t>::max() - tokens;
}

inline constexpr auto kLayoutProperties = [] {
  using L = Layout;
  using S = LayoutSpec;
  using Modes = std::vector<Recompute>;
  using Blocks = std::vector<int64_t>;
  constexpr InText kAlways = InText::kAlways, kPipes = InText::kInPipelines,
                   kElse = InText::kUnlessDefault;
  // clang-format off
  return std::make_tuple(
      LayoutProperty<int>{"dp", "parallelism.dp", &L::dp, &S::dp, kAlways, {12, false}},
      LayoutProperty<int>{"tp", "parallelism.tp", &L::tp, &S::tp, kAlways, {1, true}},
      LayoutProperty<int>{"pp", "parallelism.pp", &L::pp, &S::pp, kAlways, {8, true}},
      LayoutProperty<int>{"cp", "parallelism.cp", &L::cp, &S::cp, kElse, {2, true}},
      LayoutProperty<int>{"ep", "parallelism.ep", &L::ep, &S::ep, kElse, {3, true}},
      LayoutProperty<int>{"etp", "parallelism.etp", &L::etp, &S::etp, kElse, {17, true}},
      LayoutProperty<int>{"zero_stage", "parallelism.zero_stage",
          &L::zero_stage, &S::zero_stage, kElse, {4, true}},
      LayoutProperty<int>{"zero_hpz_partition_size", "parallelism.zero_hpz_partition_size",
          &L::zero_hpz_partition_size, &S::zero_hpz_partition_size, kElse, {14, false}},
      LayoutProperty<ScheduleKind>{"pp_schedule", "parallelism.pp_schedule",
          &L::pp_schedule, &S::pp_schedule, kPipes, {9, true, ScheduleComplexity}},
      LayoutProperty<int>{"virtual_stages", "parallelism.virtual_stages",
          &L::virtual_stages, &S::virtual_stages, kElse, {7, true}},
      LayoutProperty<int64_t>{"micro_batch_size", "training.micro_batch_size",
          &L::micro_batch_size, &S::micro_batch_size, kAlways, {13, false}},
      LayoutProperty<int64_t>{"gradient_accumulation_steps", "training.gradient_accumulation_steps",
          &L::gradient_accumulation_steps, &S::gradient_accumulation_steps, kAlways, {15, false}},
      LayoutProperty<Recompute>{"recompute", "activation_checkpointing.mode",
          &L::recompute, &S::recompute, kElse, {0, true}, KeepsRecompute},
      LayoutProperty<Modes, Modes>{"recompute_per_stage", "activation_checkpointing.per_stage",
          &L::recompute_per_stage, &S::recompute_per_stage, kElse, {16, true}},
      LayoutProperty<bool>{"sequence_parallel", "parallelism.sequence_parallel",
          &L::sequence_parallel, &S::sequence_parallel, kElse, {11, false, UnsharedSequence},
          KeepsSequence},
      LayoutProperty<OffloadDevice>{"offload_optimizer", "offload.optimizer",
          &L::offload_optimizer, &S::offload_optimizer, kElse, {5, true}},
      LayoutProperty<int64_t>{"head_chunk_tokens", "training.head_chunk_tokens",
          &L::head_chunk_tokens, &S::head_chunk_tokens, kElse, {6, true, HeadComplexity}},
      LayoutProperty<Blocks>{"layers_per_stage", "parallelism.layers_per_stage",
          &L::layers_per_stage, &S::layers_per_stage, kElse, {10, true}});
  // clang-format on
}();
inline constexpr size_t kNumLayoutProperties = std::tuple_size_v<decltype(kLayoutProperties)>;

// Calls visit(row) for each, in the order of the table.
template <typename Visit>
constexpr void EachLayoutProperty(const Visit& visit) {
  std::apply([&](const auto&... row) { (visit(row), ...); }, kLayoutProperties);
}

template <typename T>
bool IsAsked(const std::optional<T>& asked) {
  return asked.has_value();
}
inline bool IsAsked(const std::vector<Recompute>& asked) {
  return !asked.empty();
}

}  // namespace weft
