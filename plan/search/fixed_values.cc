#include "plan/search/fixed_values.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {
namespace {

std::string TextOf(const std::vector<Recompute>& modes) {
  std::vector<absl::string_view> names;
  for (const Recompute mode : modes) names.push_back(RecomputeName(mode));
  return absl::StrJoin(names, ",");
}

std::string TextOf(const std::vector<int64_t>& blocks) {
  return blocks.empty() ? "even" : absl::StrJoin(blocks, ",");
}

std::string TextOf(int64_t number) {
  return absl::StrCat(number);
}

std::string TextOf(absl::string_view name) {
  return absl::StrCat(name);
}

// Calls visit(key, field, value's text, whether `layout` keeps it) for each that is fixed.
template <typename Visit>
void EachFixed(Constraints& fixed, const BatchShape& batch, const Layout& layout,
               const Visit& visit) {
  const auto number = [&](absl::string_view key, auto& field, auto found) {
    if (field) visit(key, field, TextOf(*field), *field == found);
  };
  number("parallelism.dp", fixed.dp, layout.dp);
  number("parallelism.tp", fixed.tp, layout.tp);
  number("parallelism.pp", fixed.pp, layout.pp);
  number("parallelism.cp", fixed.cp, layout.cp);
  number("parallelism.ep", fixed.ep, layout.ep);
  number("parallelism.zero_stage", fixed.zero_stage, layout.zero_stage);
  number("parallelism.zero_hpz_partition_size", fixed.zero_group, layout.zero_group);
  number("parallelism.virtual_stages", fixed.virtual_stages, layout.virtual_stages);
  number("training.micro_batch_size", fixed.micro_batch_size, layout.micro_batch_size);
  number("training.gradient_accumulation_steps", fixed.num_microbatches, layout.num_microbatches);
  if (fixed.schedule) {
    visit("parallelism.pp_schedule", fixed.schedule, TextOf(ScheduleName(*fixed.schedule)),
          *fixed.schedule == layout.schedule);
  }
  if (fixed.recompute) {
    visit("activation_checkpointing.mode", fixed.recompute, TextOf(RecomputeName(*fixed.recompute)),
          *fixed.recompute == layout.recompute && layout.stage_recompute == fixed.stage_recompute);
  }
  if (fixed.sequence_parallel) {
    // One rank has nothing to share.
    visit("parallelism.sequence_parallel", fixed.sequence_parallel,
          TextOf(*fixed.sequence_parallel ? "true" : "false"),
          layout.tp == 1 || *fixed.sequence_parallel == layout.sequence_parallel);
  }
  if (fixed.offload_optimizer) {
    visit("offload.optimizer", fixed.offload_optimizer,
          TextOf(*fixed.offload_optimizer ? "cpu" : "none"),
          *fixed.offload_optimizer == layout.offload_optimizer);
  }
  number("training.head_chunks", fixed.head_chunks, layout.head_chunks);
  if (fixed.head_chunk_tokens) {
    visit("training.head_chunk_tokens", fixed.head_chunk_tokens, TextOf(*fixed.head_chunk_tokens),
          fixed.head_chunks || layout.head_chunks == HeadChunks(fixed, batch, layout));
  }
  if (fixed.stage_blocks) {
    visit("parallelism.layers_per_stage", fixed.stage_blocks, TextOf(*fixed.stage_blocks),
          *fixed.stage_blocks == layout.stage_blocks);
  }
  if (!fixed.stage_recompute.empty()) {
    visit("activation_checkpointing.per_stage", fixed.stage_recompute,
          TextOf(fixed.stage_recompute), fixed.stage_recompute == layout.stage_recompute);
  }
}

void Clear(std::vector<Recompute>& field) {
  field.clear();
}

template <typename Value>
void Clear(std::optional<Value>& field) {
  field.reset();
}

}  // namespace

std::vector<FixedValue> FixedValuesOf(const Constraints& constraints) {
  Constraints fixed = constraints;
  std::vector<FixedValue> values;
  EachFixed(
      fixed, {.seq_len = 1}, Layout{},
      [&](absl::string_view key, const auto& /*field*/, const std::string& value, bool /*kept*/) {
        values.push_back({absl::StrCat(key), value});
      });
  return values;
}

BrokenValues BrokenBy(const Layout& layout, const Constraints& constraints,
                      const BatchShape& batch) {
  BrokenValues broken{.values = {}, .freed = constraints};
  const auto look_at = [&](absl::string_view key, auto& field, const std::string& value,
                           bool kept) {
    if (kept) return;
    broken.values.push_back({absl::StrCat(key), value});
    Clear(field);
  };
  EachFixed(broken.freed, batch, layout, look_at);
  return broken;
}

std::string FixedValuesText(const std::vector<FixedValue>& values) {
  return absl::StrJoin(values, ", ", [](std::string* text, const FixedValue& fixed) {
    absl::StrAppend(text, fixed.key, " ", fixed.value);
  });
}

}  // namespace weft
