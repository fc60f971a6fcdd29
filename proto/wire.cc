#include "proto/wire.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "plan/errors.h"

namespace weft {
namespace {

absl::Status Missing(absl::string_view field) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": is missing from the message; the sender is not this version of weft"));
}

// Puts the field's path before a parse error.
template <typename T>
absl::StatusOr<T> Named(absl::string_view field, absl::StatusOr<T> parsed) {
  if (parsed.ok()) return parsed;
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", parsed.status().message()));
}

}  // namespace

proto::RunIdentity ToProto(const RunIdentity& run) {
  proto::RunIdentity message;
  message.set_id(run.id);
  for (const auto& [key, value] : run.mathematics) (*message.mutable_mathematics())[key] = value;
  for (const std::string& change : run.accepted) message.add_accepted(change);
  return message;
}

RunIdentity FromProto(const proto::RunIdentity& message) {
  return {message.id(),
          {message.mathematics().begin(), message.mathematics().end()},
          {message.accepted().begin(), message.accepted().end()}};
}

proto::Layout ToProto(const Layout& layout) {
  proto::Layout message;
  message.set_dp(layout.dp);
  message.set_pp(layout.pp);
  message.set_cp(layout.cp);
  message.set_tp(layout.tp);
  message.set_zero_stage(layout.zero_stage);
  message.set_schedule(absl::StrCat(ScheduleName(layout.schedule)));
  message.set_micro_batch_size(layout.micro_batch_size);
  message.set_num_microbatches(layout.num_microbatches);
  message.set_recompute(absl::StrCat(RecomputeName(layout.recompute)));
  message.set_virtual_stages(layout.virtual_stages);
  message.set_ep(layout.ep);
  message.set_zero_group(layout.zero_group);
  message.set_sequence_parallel(layout.sequence_parallel);
  message.set_offload_optimizer(layout.offload_optimizer);
  message.set_head_chunks(layout.head_chunks);
  for (const int64_t blocks : layout.stage_blocks) message.add_stage_blocks(blocks);
  for (const Recompute recompute : layout.stage_recompute) {
    message.add_stage_recompute(absl::StrCat(RecomputeName(recompute)));
  }
  return message;
}

absl::StatusOr<Layout> FromProto(const proto::Layout& message) {
  Layout layout;
  layout.dp = message.dp();
  layout.pp = message.pp();
  layout.cp = message.cp();
  layout.tp = message.tp();
  layout.zero_stage = message.zero_stage();
  ASSIGN_OR_RETURN(layout.schedule, Named("layout.schedule", ParseSchedule(message.schedule())));
  layout.micro_batch_size = message.micro_batch_size();
  layout.num_microbatches = message.num_microbatches();
  ASSIGN_OR_RETURN(layout.recompute,
                   Named("layout.recompute", ParseRecompute(message.recompute())));
  layout.virtual_stages = message.virtual_stages();
  layout.ep = message.ep();
  layout.zero_group = message.zero_group();
  layout.sequence_parallel = message.sequence_parallel();
  layout.offload_optimizer = message.offload_optimizer();
  layout.head_chunks = message.head_chunks();
  layout.stage_blocks.assign(message.stage_blocks().begin(), message.stage_blocks().end());
  for (const std::string& name : message.stage_recompute()) {
    ASSIGN_OR_RETURN(const Recompute recompute,
                     Named("layout.stage_recompute", ParseRecompute(name)));
    layout.stage_recompute.push_back(recompute);
  }
  if (layout.virtual_stages < 1 || layout.ep < 1 || layout.head_chunks < 1) {
    return Missing("layout.virtual_stages, ep or head_chunks");
  }
  if (layout.dp < 1 || layout.pp < 1 || layout.cp < 1 || layout.tp < 1) {
    return absl::InvalidArgumentError(absl::StrCat("layout: dp ", layout.dp, ", pp ", layout.pp,
                                                   ", cp ", layout.cp, ", tp ", layout.tp,
                                                   ": each degree has to be at least 1"));
  }
  return layout;
}

}  // namespace weft
