#include "worker/stage.h"

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "plan/memory.h"

namespace weft {

Stage::Stage(const ModelShape& model, const BatchShape& batch, const Parameters& parameters,
             Arena& arena, Device& device, RankGroups& groups)
    : layout_(groups.layout()),
      device_(device),
      groups_(groups),
      rows_(layout_.micro_batch_size * batch.seq_len),
      loss_scale_(1.0 / static_cast<double>(batch.global_batch_size * batch.seq_len)) {
  const BlockRange range = ChunkBlocks(layout_, model.num_blocks, groups.at().pp, 0);
  const auto heads = [&](absl::string_view part) {
    const std::string name = absl::StrCat("blocks.", range.begin, ".attn.", part, ".weight");
    return parameters.Get(name).weight.rows / model.head_dim;
  };
  const AttentionShape attention{.batch = layout_.micro_batch_size,
                                 .seq_len = batch.seq_len,
                                 .heads = heads("q"),
                                 .head_dim = model.head_dim,
                                 .kv_heads = heads("k")};
  for (int64_t block = range.begin; block < range.end; ++block) {
    blocks_.emplace_back(model, block, attention, parameters, device, groups);
  }
  work_ = blocks_.front().GetWorkspace(arena);
  slots_.resize(static_cast<size_t>(ActivationSlots(layout_, groups.at().pp)));
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const std::string prefix =
          absl::StrCat("slot", slot, "/blocks.", range.begin + static_cast<int64_t>(i));
      slots_[slot].blocks.push_back(blocks_[i].GetActivations(prefix, arena));
    }
    if (groups.is_last_stage()) {
      slots_[slot].dx = arena.Get(absl::StrCat("slot", slot, "/dx"), rows_, model.hidden_size);
    }
  }
  const int64_t step_rows = layout_.num_microbatches * rows_;
  if (groups.is_first_stage()) {
    embedding_.emplace(parameters, batch.seq_len, device, groups);
    ids_ = arena.Get("tokens/ids", step_rows, 1, DType::kI32);
  }
  if (groups.is_last_stage()) {
    head_.emplace(model, parameters, rows_, work_.dnorm, arena, device, groups);
    targets_ = arena.Get("tokens/targets", step_rows, 1, DType::kI32);
  } else {
    dx_ = arena.Get("work/dx", rows_, model.hidden_size);
    recv_gradient_ = arena.Get("comm/recv_gradient", rows_, model.hidden_size);
    send_activation_ = arena.Get("comm/send_activation", rows_, model.hidden_size);
  }
}

void Stage::Begin(Pass pass, absl::Span<const int32_t> ids, absl::Span<const int32_t> targets) {
  for (const Slot& slot : slots_) CHECK(slot.microbatch == -1);
  CHECK(static_cast<int64_t>(ids.size()) == ids_.elements());
  CHECK(static_cast<int64_t>(targets.size()) == targets_.elements());
  if (!ids.empty()) device_.CopyIn(ids_, ids.data());
  if (!targets.empty()) device_.CopyIn(targets_, targets.data());
  pass_ = pass;
  loss_sum_ = 0;
}

absl::Status Stage::Compute(const Action& action) {
  if (action.op == Op::kForward) return Forward(action.microbatch);
  CHECK(action.op == Op::kBackward);
  return Backward(action.microbatch);
}

absl::Status Stage::Exchange(absl::Span<const Action> transfers) {
  std::vector<Transfer> posted;
  for (const Action& action : transfers) {
    const int m = action.microbatch;
    switch (action.op) {
      case Op::kRecvActivation:
        posted.push_back({.peer = groups_.PreviousStage(), .data = TakeSlot(m).blocks.front().x});
        break;
      case Op::kSendActivation:
        posted.push_back({.send = true, .peer = groups_.NextStage(), .data = send_activation_});
        break;
      case Op::kRecvGradient:
        posted.push_back({.peer = groups_.NextStage(), .data = recv_gradient_});
        break;
      case Op::kSendGradient:
        posted.push_back({.send = true,
                          .peer = groups_.PreviousStage(),
                          .data = groups_.is_last_stage() ? SlotOf(m).dx : dx_});
        break;
      default:
        CHECK(false);
    }
  }
  return groups_.Exchange(posted);
}

absl::Status Stage::Forward(int microbatch) {
  Slot& slot = groups_.is_first_stage() ? TakeSlot(microbatch) : SlotOf(microbatch);
  CHECK(slot.microbatch == microbatch);
  if (embedding_) {
    RETURN_IF_ERROR(embedding_->Forward(MicrobatchOf(ids_, microbatch), slot.blocks.front().x));
  }
  const View output = head_ ? head_->input() : send_activation_;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const View out = i + 1 < blocks_.size() ? slot.blocks[i + 1].x : output;
    RETURN_IF_ERROR(blocks_[i].Forward(slot.blocks[i], work_, out));
  }
  if (head_) {
    const View targets = MicrobatchOf(targets_, microbatch);
    ASSIGN_OR_RETURN(const double loss, head_->Forward(targets));
    loss_sum_ += loss;
    // The head's backward pass runs here, not in Backward: logits are the largest buffer by far,
    // and so they are needed once instead of once per live microbatch.
    if (pass_ == Pass::kTraining) {
      RETURN_IF_ERROR(head_->Backward(targets, loss_scale_, slot.dx));
    }
  }
  if (pass_ == Pass::kEvaluation) slot.microbatch = -1;
  return absl::OkStatus();
}

absl::Status Stage::Backward(int microbatch) {
  Slot& slot = SlotOf(microbatch);
  CHECK(slot.microbatch == microbatch && pass_ == Pass::kTraining);
  // What came from the next stage is copied, because its buffer may receive again while dx_ is
  // still being sent on.
  if (!head_) device_.Copy(dx_, recv_gradient_);
  const View dx = head_ ? slot.dx : dx_;
  for (size_t i = blocks_.size(); i-- > 0;) {
    RETURN_IF_ERROR(blocks_[i].Backward(slot.blocks[i], work_, dx));
  }
  if (embedding_) embedding_->Backward(MicrobatchOf(ids_, microbatch), dx);
  slot.microbatch = -1;
  return absl::OkStatus();
}

Stage::Slot& Stage::SlotOf(int microbatch) {
  if (pass_ == Pass::kEvaluation) return slots_.front();
  return slots_[static_cast<size_t>(microbatch) % slots_.size()];
}

Stage::Slot& Stage::TakeSlot(int microbatch) {
  Slot& slot = SlotOf(microbatch);
  CHECK(slot.microbatch == -1);
  slot.microbatch = microbatch;
  return slot;
}

View Stage::MicrobatchOf(View step_tokens, int microbatch) const {
  step_tokens.data = static_cast<int32_t*>(step_tokens.data) + microbatch * rows_;
  step_tokens.rows = rows_;
  return step_tokens;
}

}  // namespace weft
