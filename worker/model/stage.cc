#include "worker/model/stage.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "plan/shards/batch_order.h"
#include "plan/shards/buckets.h"

namespace weft {

Stage::Stage(const ModelShape& model, const BatchShape& batch, const Numerics& numerics,
             const Parameters& parameters, View loss, Zero& zero, Arena& arena, Device& device,
             RankGroups& groups)
    : layout_(groups.layout()),
      loss_(loss),
      zero_(zero),
      device_(device),
      groups_(groups),
      seq_len_(batch.seq_len),
      rows_(layout_.micro_batch_size * batch.seq_len / layout_.cp),
      tokens_(rows_, model.hidden_size, arena, device, groups),
      token_share_(1.0 / static_cast<double>(batch.global_batch_size * batch.seq_len)),
      document_bounds_(DocumentBoundsOf(model, batch, layout_, numerics)),
      documents_(static_cast<size_t>(layout_.gradient_accumulation_steps)) {
  const bool is_fp8 = numerics.precision == Precision::kFp8;
  const Fp8Layers fp8 = is_fp8 ? Fp8LayersOf(model, batch, layout_) : Fp8Layers();
  fused_ =
      FusedLinearsOf(JointsOf(OpsOf(model, 0)), parameters.runs(), fp8, !document_bounds_.empty());
  lists_ =
      ListsOf(model.num_blocks, [&](int64_t block) { return FusedOpsOf(model, block, fused_); });
  MakeFp8(model, fp8, parameters, arena);
  MakeChunks(model, batch, parameters);
  work_ = chunks_.front().front().GetWorkspace(arena);
  MakeSlots(ActivationSlotsOf(layout_, model.num_blocks, groups.at().pp), model.hidden_size, arena);
  const int64_t step_rows = layout_.gradient_accumulation_steps * rows_;
  if (groups.is_first_stage()) {
    embedding_.emplace(model, parameters, tokens_, device, groups);
    ids_ = arena.Get("tokens/ids", step_rows, 1);
    if (model.learned_positions) {
      positions_ = arena.Get("tokens/positions", step_rows, 1);
    }
  }
  if (groups.is_last_stage()) {
    head_.emplace(model, parameters, rows_, work_.dnorm, tokens_, arena, device, groups);
    targets_ = arena.Get("tokens/targets", step_rows, 1);
  }
  if (batch.masks_documents) first_visible_ = arena.Get("tokens/first_visible", step_rows, 1);
  if (model.slides_over(batch.seq_len)) {
    first_in_window_ = arena.Get("tokens/first_in_window", step_rows, 1);
    work_.first_in_window = first_in_window_;
  }
  if (!groups.is_last_stage() || layout_.virtual_stages > 1) {
    dx_ = arena.Get("work/dx", tokens_.part_rows(), model.hidden_size);
    recv_gradient_ = arena.Get("comm/recv_gradient", tokens_.part_rows(), model.hidden_size);
    send_activation_ = arena.Get("comm/send_activation", tokens_.part_rows(), model.hidden_size);
  }
}

std::string Stage::PrepareAttention() const {
  const Block *full = nullptr, *sliding = nullptr;
  for (const std::vector<Block>& chunk : chunks_) {
    for (const Block& block : chunk) (block.Slides(work_) ? sliding : full) = &block;
  }
  std::string text = full == nullptr ? "" : PrepareFullAttention(*full);
  if (sliding != nullptr) {
    const std::string by = sliding->PrepareAttention(work_, /*masks_documents=*/true, 0);
    absl::StrAppend(&text, text.empty() || by.empty() ? "" : "; within windows, ", by);
  }
  return text;
}

std::string Stage::PrepareFullAttention(const Block& block) const {
  std::vector<int64_t> bounds = document_bounds_;
  bounds.push_back(0);  // of microbatches that have more, or of all
  std::string text;
  std::string last;
  for (size_t i = 0; i < bounds.size(); ++i) {
    std::string by = block.PrepareAttention(work_, first_visible_.data != nullptr, bounds[i]);
    if (i > 0 && by != last) {
      absl::StrAppend(&text, last, " up to ", bounds[i - 1], " documents a microbatch; beyond, ");
    }
    last = std::move(by);
  }
  return absl::StrCat(text, last);
}

// Takes the shapes of the first of the stage's blocks, as PlanRankMemory does: all have the same.
void Stage::MakeFp8(const ModelShape& model, const Fp8Layers& layers, const Parameters& parameters,
                    Arena& arena) {
  if (!layers.any()) return;
  const int64_t first = ChunkBlocks(layout_, model.num_blocks, groups_.at().pp, 0).begin;
  const auto outputs = [&](absl::string_view layer) {
    return parameters.Get(absl::StrCat("blocks.", first, ".", layer, ".weight")).weight.rows;
  };
  const Fp8BlockShape block = {.layers = layers,
                               .tokens = rows_,
                               .hidden = model.hidden_size,
                               .query = outputs("attn.q"),
                               .key = outputs("attn.k"),
                               .ffn = outputs("mlp.up"),
                               .has_gate = model.is_gated(),
                               .is_qkv_one = fused_.qkv,
                               .is_gate_up_one = fused_.gate_up};
  const bool keeps_weights = KeepsFp8Weights(layout_);
  fp8_.emplace(layers, Fp8ScratchOf(block, keeps_weights), arena, device_);
  if (!keeps_weights) return;
  const int64_t blocks = StageBlockCount(layout_, model.num_blocks, groups_.at().pp);
  for (int64_t i = 0; i < blocks; ++i) {
    codes_.emplace_back(Fp8WeightsOf(block), absl::StrCat("block", i), arena);
  }
}

void Stage::MakeChunks(const ModelShape& model, const BatchShape& batch,
                       const Parameters& parameters) {
  size_t next_block = 0;  // of the stage
  for (int chunk = 0; chunk < layout_.virtual_stages; ++chunk) {
    const BlockRange range = ChunkBlocks(layout_, model.num_blocks, groups_.at().pp, chunk);
    const auto heads = [&](absl::string_view part) {
      const std::string name = absl::StrCat("blocks.", range.begin, ".attn.", part, ".weight");
      return parameters.Get(name).weight.rows / model.head_dim;
    };
    AttentionShape attention{.batch = layout_.micro_batch_size,
                             .seq_len = batch.seq_len,
                             .heads = heads("q"),
                             .head_dim = model.head_dim,
                             .kv_heads = heads("k"),
                             .scale = model.attention_scale(),
                             .cap = model.attention_cap};
    const SequencePieces held = SequencePiecesOf(layout_, groups_.at().cp);
    attention.runs = held.runs;
    attention.pieces = std::ssize(held.pieces);
    std::copy(held.pieces.begin(), held.pieces.end(), attention.piece);
    std::vector<Block>& blocks = chunks_.emplace_back();
    for (int64_t block = range.begin; block < range.end; ++block) {
      blocks.emplace_back(model, lists_.of(block), block, attention, parameters,
                          layout_.recompute_of(groups_.at().pp), fp8_ ? &*fp8_ : nullptr,
                          codes_.empty() ? nullptr : &codes_[next_block], tokens_, device_,
                          groups_);
      ++next_block;
    }
  }
}

void Stage::MakeSlots(const ActivationSlots& counts, int64_t hidden, Arena& arena) {
  const Block& any = chunks_.front().front();  // all blocks have the same shapes
  for (int64_t slot = 0; slot < counts.slots; ++slot) {
    slots_.push_back(any.GetActivations(Block::Share::kKept, absl::StrCat("slot", slot), arena));
  }
  for (const BlockActivations& slot : slots_) free_slots_.push(&slot);
  const auto microbatches = static_cast<size_t>(layout_.gradient_accumulation_steps);
  live_.resize(chunks_.size() * microbatches);
  for (size_t pass = 0; pass < live_.size(); ++pass) {
    live_[pass].reserve(chunks_[pass / microbatches].size());
  }
  pending_.resize(microbatches);
  for (int64_t pass = 0; pass < counts.pending; ++pass) {
    const std::string prefix = absl::StrCat("pending", pass);
    Pending& pending = pendings_.emplace_back();
    pending.dy = arena.Get(prefix + "/dy", tokens_.part_rows(), hidden);
    for (int64_t block = 0; block < counts.blocks; ++block) {
      pending.blocks.push_back(any.GetActivations(Block::Share::kMadeAgain,
                                                  absl::StrCat(prefix, "/block", block), arena));
    }
  }
  for (Pending& pending : pendings_) free_pendings_.push(&pending);
  if (pendings_.empty()) {
    recomputed_ = any.GetActivations(Block::Share::kMadeAgain, "work/recomputed", arena);
  }
  for (int64_t head = 0; groups_.is_last_stage() && head < counts.heads; ++head) {
    head_gradients_.push_back(
        arena.Get(absl::StrCat("head", head, "/dx"), tokens_.part_rows(), hidden));
  }
}

void Stage::Begin(Pass pass, const StepTokens& tokens) {
  CHECK(free_slots_.size() == slots_.size() && free_pendings_.size() == pendings_.size());
  const auto copy = [this](absl::Span<const int32_t> from, View to) {
    CHECK(std::ssize(from) == to.elements());
    if (!from.empty()) device_.CopyIn(to, from.data());
  };
  copy(tokens.ids, ids_);
  copy(tokens.targets, targets_);
  copy(tokens.positions, positions_);
  copy(tokens.first_visible, first_visible_);
  copy(tokens.first_in_window, first_in_window_);
  if (!document_bounds_.empty()) CountDocuments(tokens.first_visible);
  pass_ = pass;
  if (!fp8_) return;
  fp8_->SetOn(pass == Pass::kTraining);
  if (pass == Pass::kTraining) OutdateCodes();
}

// Codes of weights that are still being gathered are made where their first pass waits for them;
// all others here, outside of stretches, and before what a stage waits for first.
void Stage::OutdateCodes() {
  for (std::vector<Block>& chunk : chunks_) {
    for (Block& block : chunk) {
      block.OutdateCodes();
      if (!zero_.IsGathering(block.bucket())) block.RenewCodes();
    }
  }
}

// REQUIRES: cp is 1, as where there are bounds: all of a sequence's positions follow each other.
void Stage::CountDocuments(absl::Span<const int32_t> first_visible) {
  for (size_t microbatch = 0; microbatch < documents_.size(); ++microbatch) {
    int64_t count = 0;
    for (int64_t row = 0; row < rows_; ++row) {
      const int64_t at = static_cast<int64_t>(microbatch) * rows_ + row;
      count += first_visible[static_cast<size_t>(at)] == row % seq_len_ ? 1 : 0;
    }
    const auto bound = std::lower_bound(document_bounds_.begin(), document_bounds_.end(), count);
    documents_[microbatch] = bound == document_bounds_.end() ? 0 : *bound;
  }
}

absl::Status Stage::Compute(const Action& action, absl::Span<const Action> reductions) {
  CHECK(action.op == Op::kForward || pass_ == Pass::kTraining);
  reductions_ = reductions;
  work_.first_visible = MicrobatchOf(first_visible_, action.microbatch);
  work_.first_in_window = MicrobatchOf(first_in_window_, action.microbatch);
  work_.documents = documents_[static_cast<size_t>(action.microbatch)];
  switch (action.op) {
    case Op::kForward:
      return Forward(action);
    case Op::kBackward:
      return Backward(action);
    case Op::kBackwardInput:
      return BackwardInput(action);
    case Op::kBackwardWeight:
      return BackwardWeight(action);
    default:
      CHECK(false);
      return absl::OkStatus();
  }
}

absl::Status Stage::Exchange(absl::Span<const Action> transfers) {
  std::vector<Transfer> posted;
  for (const Action& action : transfers) {
    Transfer transfer;
    transfer.peer = groups_.RankOfStage(PeerStage(action.op, groups_.at().pp, layout_.pp));
    switch (action.op) {
      case Op::kRecvActivation:
        transfer.data = TakeSlots(action).front()->x();
        break;
      case Op::kSendActivation:
        transfer.send = true;
        transfer.data = send_activation_;
        break;
      case Op::kRecvGradient:
        transfer.data = recv_gradient_;
        break;
      case Op::kSendGradient:
        transfer.send = true;
        transfer.data = MakesLoss(action) ? HeadGradient(action) : dx_;
        break;
      default:
        CHECK(false);
    }
    posted.push_back(transfer);
  }
  return groups_.Exchange(posted);
}

absl::Status Stage::Forward(const Action& action) {
  const Slots& slots = TakesTokens(action) ? TakeSlots(action) : SlotsOf(action);
  if (TakesTokens(action)) {
    RETURN_IF_ERROR(zero_.OpenWeights(embedding_->bucket()));
    RETURN_IF_ERROR(embedding_->Forward(MicrobatchOf(ids_, action.microbatch),
                                        MicrobatchOf(positions_, action.microbatch),
                                        slots.front()->x()));
  }
  std::vector<Block>& blocks = chunks_[static_cast<size_t>(action.chunk)];
  const View output = MakesLoss(action) ? head_->input() : send_activation_;
  const BlockActivations& scratch = ForwardScratch();
  const bool waits = WaitsForWeights(action);
  const auto pass = [&]() -> absl::Status {
    for (size_t i = 0; i < blocks.size(); ++i) {
      const View out = i + 1 < blocks.size() ? slots[i + 1]->x() : output;
      RETURN_IF_ERROR(zero_.OpenWeights(blocks[i].bucket()));
      if (waits) blocks[i].RenewCodes();
      const auto block = [&] { return blocks[i].Forward(slots[i]->With(scratch), work_, out); };
      RETURN_IF_ERROR(waits ? QueueStretch(action, {&scratch, output.data, &blocks[i]}, block)
                            : block());
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(waits ? pass() : QueueStretch(action, {&scratch, output.data}, pass));
  if (MakesLoss(action)) RETURN_IF_ERROR(ForwardHead(action));
  if (pass_ == Pass::kEvaluation) FreeSlots(action);
  return absl::OkStatus();
}

// The head's backward pass runs here, not in Backward: logits are the largest buffer by far, and so
// they are needed once instead of once per live microbatch.
absl::Status Stage::ForwardHead(const Action& action) {
  const View targets = MicrobatchOf(targets_, action.microbatch);
  RETURN_IF_ERROR(zero_.OpenWeights(head_->bucket()));
  if (pass_ == Pass::kEvaluation) return head_->Loss(targets, loss_);
  RETURN_IF_ERROR(zero_.OpenGradients(head_->bucket()));
  RETURN_IF_ERROR(
      head_->LossAndGradient(targets, loss_scale_ * token_share_, HeadGradient(action), loss_));
  return CloseGradients(head_->bucket());
}

// The gradient of the chunk's output, where it becomes that of its input.
View Stage::StartBackward(const Action& action) {
  if (MakesLoss(action)) return HeadGradient(action);
  // The gradient from the next stage is copied, because its buffer may receive again while dx_ is
  // still being sent on.
  device_.Copy(dx_, recv_gradient_);
  return dx_;
}

absl::Status Stage::Backward(const Action& action) {
  const Slots& slots = SlotsOf(action);
  const View dx = StartBackward(action);
  std::vector<Block>& blocks = chunks_[static_cast<size_t>(action.chunk)];
  const auto pass = [&]() -> absl::Status {
    for (size_t i = blocks.size(); i-- > 0;) {
      RETURN_IF_ERROR(zero_.OpenWeights(blocks[i].bucket()));
      RETURN_IF_ERROR(zero_.OpenGradients(blocks[i].bucket()));
      RETURN_IF_ERROR(blocks[i].Backward(slots[i]->With(recomputed_), work_, dx));
      RETURN_IF_ERROR(CloseGradients(blocks[i].bucket()));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(QueueStretch(action, {dx.data}, pass));
  if (TakesTokens(action)) RETURN_IF_ERROR(BackwardEmbedding(action, dx));
  FreeSlots(action);
  return absl::OkStatus();
}

// Keeps each block's output gradient for its weight gradients: in the place of the next block's
// input, which is of no further use.
absl::Status Stage::BackwardInput(const Action& action) {
  const Slots& slots = SlotsOf(action);
  CHECK(!free_pendings_.empty());
  const Pending& pending = *free_pendings_.top();
  pending_[static_cast<size_t>(action.microbatch)] = free_pendings_.top();
  free_pendings_.pop();
  const View dx = StartBackward(action);
  device_.Copy(pending.dy, dx);
  std::vector<Block>& blocks = chunks_[static_cast<size_t>(action.chunk)];
  const auto pass = [&]() -> absl::Status {
    for (size_t i = blocks.size(); i-- > 0;) {
      RETURN_IF_ERROR(zero_.OpenWeights(blocks[i].bucket()));
      RETURN_IF_ERROR(zero_.OpenGradients(blocks[i].bucket()));
      RETURN_IF_ERROR(blocks[i].BackwardInput(slots[i]->With(pending.blocks[i]), work_, dx));
      RETURN_IF_ERROR(CloseGradients(blocks[i].bucket()));
      // In the place of what only the input pass of the later block has read.
      if (i > 0 && blocks[i - 1].WeightsReadOutputGradient()) device_.Copy(slots[i]->x(), dx);
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(QueueStretch(action, {&pending, dx.data}, pass));
  // All of the embedding's gradient: it takes little time, and its dx would have to be kept.
  if (TakesTokens(action)) RETURN_IF_ERROR(BackwardEmbedding(action, dx));
  return absl::OkStatus();
}

absl::Status Stage::BackwardEmbedding(const Action& action, View dx) {
  RETURN_IF_ERROR(zero_.OpenGradients(embedding_->bucket()));
  RETURN_IF_ERROR(embedding_->Backward(MicrobatchOf(ids_, action.microbatch),
                                       MicrobatchOf(positions_, action.microbatch), dx));
  return CloseGradients(embedding_->bucket());
}

absl::Status Stage::BackwardWeight(const Action& action) {
  const Slots& slots = SlotsOf(action);
  Pending*& pending = pending_[static_cast<size_t>(action.microbatch)];
  CHECK(pending != nullptr);
  std::vector<Block>& blocks = chunks_[static_cast<size_t>(action.chunk)];
  const auto pass = [&]() -> absl::Status {
    for (size_t i = blocks.size(); i-- > 0;) {
      const View dy = i + 1 < blocks.size() ? slots[i + 1]->x() : pending->dy;
      RETURN_IF_ERROR(zero_.OpenGradients(blocks[i].bucket()));
      RETURN_IF_ERROR(blocks[i].BackwardWeight(slots[i]->With(pending->blocks[i]), dy));
      RETURN_IF_ERROR(CloseGradients(blocks[i].bucket()));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(QueueStretch(action, {pending}, pass));
  free_pendings_.push(std::exchange(pending, nullptr));
  FreeSlots(action);
  return absl::OkStatus();
}

// Evaluation comes seldom, and under fp8 it has other products. What moves beside passes is started
// outside of graphs.
bool Stage::IsStretch(const Action& action) const {
  if (pass_ == Pass::kEvaluation || layout_.tp > 1 || layout_.cp > 1) return false;
  const Sharding sharding = ShardingOf(layout_);
  if (sharding.weights || (sharding.gradients && action.op != Op::kForward)) return false;
  const std::vector<Block>& blocks = chunks_[static_cast<size_t>(action.chunk)];
  return std::none_of(blocks.begin(), blocks.end(),
                      [&](const Block& block) { return StartsReduction(block.bucket()); });
}

bool Stage::WaitsForWeights(const Action& action) const {
  const std::vector<Block>& blocks = chunks_[static_cast<size_t>(action.chunk)];
  return std::any_of(blocks.begin(), blocks.end(),
                     [&](const Block& block) { return zero_.IsGathering(block.bucket()); });
}

absl::Status Stage::QueueStretch(const Action& action, std::initializer_list<const void*> operands,
                                 absl::FunctionRef<absl::Status()> blocks) {
  if (!IsStretch(action)) return blocks();
  std::vector<const void*> given = operands;
  given.push_back(work_.first_visible.data);
  given.push_back(work_.first_in_window.data);
  const Slots& slots = SlotsOf(action);
  given.insert(given.end(), slots.begin(), slots.end());
  const auto next = static_cast<int64_t>(stretches_.size());
  const auto [stretch, is_new] =
      stretches_.try_emplace({action.op, action.chunk, work_.documents, std::move(given)}, next);
  struct Call {
    absl::FunctionRef<absl::Status()> blocks;
    absl::Status status;
  } call = {blocks, absl::OkStatus()};
  device_.Replay(
      stretch->second,
      [](void* context) {
        Call& made = *static_cast<Call*>(context);
        made.status = made.blocks();
      },
      &call);
  return call.status;
}

bool Stage::StartsReduction(int bucket) const {
  return std::any_of(reductions_.begin(), reductions_.end(),
                     [&](const Action& reduction) { return reduction.bucket == bucket; });
}

absl::Status Stage::CloseGradients(int bucket) {
  RETURN_IF_ERROR(zero_.CloseGradients(bucket));
  return StartsReduction(bucket) ? zero_.StartReduction(bucket) : absl::OkStatus();
}

bool Stage::TakesTokens(const Action& action) const {
  return groups_.is_first_stage() && action.chunk == 0;
}

bool Stage::MakesLoss(const Action& action) const {
  return groups_.is_last_stage() && action.chunk == layout_.virtual_stages - 1;
}

Stage::Slots& Stage::PassOf(const Action& action) {
  return live_[static_cast<size_t>(action.chunk * layout_.gradient_accumulation_steps +
                                   action.microbatch)];
}

Stage::Slots& Stage::SlotsOf(const Action& action) {
  Slots& slots = PassOf(action);
  CHECK(!slots.empty());
  return slots;
}

Stage::Slots& Stage::TakeSlots(const Action& action) {
  Slots& slots = PassOf(action);
  const size_t count = chunks_[static_cast<size_t>(action.chunk)].size();
  CHECK(slots.empty() && count <= free_slots_.size());
  for (size_t block = 0; block < count; ++block) {
    slots.push_back(free_slots_.top());
    free_slots_.pop();
  }
  return slots;
}

void Stage::FreeSlots(const Action& action) {
  Slots& slots = SlotsOf(action);
  for (const BlockActivations* slot : slots) free_slots_.push(slot);
  slots.clear();
}

// Where a forward pass puts what its blocks do not keep.
const BlockActivations& Stage::ForwardScratch() const {
  if (pendings_.empty()) return recomputed_;
  CHECK(!free_pendings_.empty());
  return free_pendings_.top()->blocks.front();
}

View Stage::HeadGradient(const Action& action) {
  return head_gradients_[static_cast<size_t>(action.microbatch) % head_gradients_.size()];
}

View Stage::MicrobatchOf(View step_tokens, int microbatch) const {
  if (step_tokens.data == nullptr) return {};
  return step_tokens.RowRange(microbatch * rows_, rows_);
}

}  // namespace weft
