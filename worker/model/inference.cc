#include "worker/model/inference.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/documents.h"
#include "plan/block/tensors.h"
#include "plan/errors.h"
#include "worker/model/embedding.h"
#include "worker/model/rotary.h"
#include "worker/state/groups.h"

namespace weft {

Inference::Inference(const ModelShape& model, const InferenceExtents& extents, const DataSpec& data,
                     Device& device)
    : model_(model),
      extents_(extents),
      data_(data),
      device_(device),
      lists_(ListsOf(model.num_blocks, [&](int64_t block) { return OpsOf(model, block); })),
      places_(PassBuffersOf(lists_.of(0))) {
  CHECK(extents.masks_documents == data.reset_attention_mask);
}

absl::StatusOr<std::unique_ptr<Inference>> Inference::Create(const ModelShape& model,
                                                             const InferenceExtents& extents,
                                                             const DataSpec& data, Device& device) {
  RETURN_IF_ERROR(CheckInference(model));
  if (extents.positions() > model.max_positions) {
    return absl::InvalidArgumentError(absl::StrCat("sequences of ", extents.positions(),
                                                   " tokens, the model has ", model.max_positions,
                                                   " positions"));
  }
  auto inference = std::unique_ptr<Inference>(new Inference(model, extents, data, device));
  RETURN_IF_ERROR(inference->Allocate());
  return inference;
}

absl::Status Inference::Allocate() {
  const RankMemory memory = PlanInferenceMemory(model_, extents_);
  absl::StatusOr<std::unique_ptr<Arena>> arena = Arena::Create(memory, device_);
  if (!arena.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("device memory: ", memory.total_bytes(),
                     " bytes are needed, but the device does not have them; use a smaller --batch "
                     "or a shorter prompt"));
  }
  arena_ = *std::move(arena);
  GetWeights();
  GetWork();
  return arena_->CheckAllUsed();
}

void Inference::GetWeights() {
  for (const TensorSpec& tensor : Tensors(model_)) {
    const int64_t rows = tensor.is_matrix() ? tensor.dims[0] : 1;
    weights_[tensor.name] =
        arena_->Get(absl::StrCat("weights/", tensor.name), rows, tensor.dims.back());
  }
  for (int64_t block = 0; block < model_.num_blocks; ++block) {
    blocks_.push_back(MakeSteps(
        lists_.of(block), absl::StrCat("blocks.", block, "."),
        {.norm = [this](const std::string& layer) { return GetNorm(layer); },
         .linear =
             [this](absl::Span<const std::string> layers) { return GetLinear(layers.front()); }}));
  }
  final_norm_ = GetNorm("final_norm");
  table_ = Weight(std::string(kTokenEmbeddingName));
  positions_ = Weight("embed.positions.weight");
  head_ = model_.tied_embeddings ? table_ : Weight("head.weight");
}

void Inference::GetWork() {
  const int64_t n = extents_.rows();
  const int64_t key = model_.num_kv_heads * model_.head_dim;
  const bool caches = extents_.cached_positions > 0;
  const auto get = [&](const std::string& name, int64_t cols) {
    return arena_->Get(absl::StrCat("work/", name), n, cols);
  };
  for (int64_t block = 0; block < (caches ? model_.num_blocks : 1); ++block) {
    const int64_t rows = caches ? extents_.cached_positions : n;
    caches_.push_back({.k = arena_->Get(absl::StrCat("cache/k", block), rows, key),
                       .v = arena_->Get(absl::StrCat("cache/v", block), rows, key)});
  }
  for (const BlockBuffer& buffer : places_.buffers) {
    const int64_t cols = lists_.of(0).values[static_cast<size_t>(buffer.value)].cols.count;
    buffers_.push_back(get(std::string(buffer.name), cols));
  }
  norm_out_ = get("final_norm_out", model_.hidden_size);
  if (model_.has_layer_norms()) statistics_.mean = get("final_norm_mean", 1);
  statistics_.rstd = get("final_norm_rstd", 1);
  scores_ = arena_->Row("work/scores");
  std::vector<int64_t> positions(static_cast<size_t>(extents_.positions()));
  std::iota(positions.begin(), positions.end(), 0);
  for (const Rotation& rotation : model_.rotations()) {
    const absl::string_view name = kRotaryTables[rotary_.size()];
    rotary_.push_back(
        arena_->Get(absl::StrCat("work/", name), extents_.positions(), rotation.width));
    device_.CopyIn(rotary_.back(), RotaryTable(rotation, positions).data());
  }
  logits_ = arena_->Get("work/logits", LogitRows(model_, extents_), model_.vocab_size);
  ids_ = arena_->Get("tokens/ids", n, 1);
  if (positions_.data != nullptr) position_ids_ = arena_->Get("tokens/positions", n, 1);
  if (extents_.masks_documents) first_visible_ = arena_->Get("tokens/first_visible", n, 1);
  if (model_.slides_over(extents_.positions())) {
    first_in_window_ = arena_->Get("tokens/first_in_window", n, 1);
  }
  if (caches) return;
  row_max_ = get("row_max", 1);
  row_sums_ = arena_->Get("work/row_sums", 2, n);
  targets_ = arena_->Get("tokens/targets", n, 1);
  totals_ = arena_->Get("work/totals", 1, 1);
}

View Inference::Weight(const std::string& tensor) const {
  const auto found = weights_.find(tensor);
  return found == weights_.end() ? View() : found->second;
}

Linear Inference::GetLinear(const std::string& name) const {
  Linear linear;
  linear.weight = Weight(name + ".weight");
  linear.bias = Weight(name + ".bias");
  return linear;
}

Norm Inference::GetNorm(const std::string& name) const {
  Norm norm;
  norm.weight = Weight(name + ".weight");
  norm.bias = Weight(name + ".bias");
  norm.constants = NormConstantsOf(model_);
  return norm;
}

absl::Status Inference::Load(const WeightsReader& reader, const std::function<void()>& loaded) {
  std::vector<float> values;
  for (const TensorSpec& tensor : Tensors(model_)) {
    values.resize(static_cast<size_t>(tensor.elements()));
    const std::vector<int64_t> begin(tensor.dims.size(), 0);
    RETURN_IF_ERROR(reader.Read(tensor, begin, tensor.dims, absl::MakeSpan(values)));
    device_.CopyIn(Weight(tensor.name), values.data());
    // The values are used again.
    RETURN_IF_ERROR(ToStatus(device_.Synchronize(), "load weights"));
    if (loaded) loaded();
  }
  return absl::OkStatus();
}

NormStatistics Inference::Statistics(int64_t rows) const {
  const bool has_mean = statistics_.mean.data != nullptr;
  return {.mean = has_mean ? statistics_.mean.RowRange(0, rows) : View(),
          .rstd = statistics_.rstd.RowRange(0, rows)};
}

std::vector<View> Inference::ViewsOf(const KeysAndValues& cache, const Passing& pass) const {
  std::vector<View> views;
  for (const int index : places_.of_value) {
    if (index == PassBuffers::kInCache) {
      views.emplace_back();
    } else {
      views.push_back(buffers_[static_cast<size_t>(index)].RowRange(0, pass.rows));
    }
  }
  // Keys and values of the new tokens, under each name that they have on the way.
  const BlockOps& ops = lists_.of(0);
  for (const BlockOp& op : ops.ops) {
    if (op.kind != OpKind::kAttention) continue;
    for (size_t value = 0; value < views.size(); ++value) {
      const int place = ops.PlaceOf(static_cast<int>(value));
      if (place == ops.PlaceOf(op.in[1])) views[value] = cache.k.RowRange(pass.first, pass.rows);
      if (place == ops.PlaceOf(op.in[2])) views[value] = cache.v.RowRange(pass.first, pass.rows);
    }
  }
  return views;
}

void Inference::ForwardBlock(const std::vector<ForwardStep>& steps, const KeysAndValues& cache,
                             absl::Span<const View> views, const Passing& pass) {
  const AttentionShape& attention = pass.attention;
  for (const ForwardStep& step : steps) {
    const View in = ViewOf(step.in, views), out = ViewOf(step.out, views);
    switch (step.kind) {
      case StepKind::kNorm:
      case StepKind::kHeadNorm:
      case StepKind::kWideNorm:
        DoNorm(step, views, device_);
        break;
      case StepKind::kProducts:
        for (const LinearOutput& output : OutputsOf(step, views)) {
          ForwardLinear(output.linear, in, output.y, device_);
        }
        break;
      case StepKind::kProductThenGelu:
        ForwardLinearGelu(step.linears.front(), in, ViewOf(step.ops.front()->out.front(), views),
                          out, device_);
        break;
      case StepKind::kActivation:
        DoActivation(*step.ops.back(), views, device_);
        break;
      case StepKind::kTurn:
        DoTurn(step, pass.angles, Turn::kForth, views, device_);
        break;
      case StepKind::kAttention: {
        const int64_t keys = attention.batch * attention.seq_len;
        const BlockOp& op = *step.ops.front();
        const bool slides = op.window > 0 && pass.first_in_window.data != nullptr;
        const View lse = ViewOf(op.statistics.front(), views);
        device_.Attention(
            attention, in, cache.k.RowRange(0, keys), cache.v.RowRange(0, keys),
            slides ? pass.first_in_window : pass.first_visible, out,
            {lse.data, attention.batch * attention.heads, attention.query_len(), lse.dtype},
            scores_);
        break;
      }
      case StepKind::kSummedProduct:
        ForwardLinear(step.linears.front(), in, out, device_);
        break;
      case StepKind::kNormBranch:
        ForwardNormBranch(step, views, out, device_);
        break;
      case StepKind::kBranch:
        ForwardBranch(step, views, out, device_);
        break;
    }
  }
}

void Inference::Forward(absl::Span<const int32_t> ids, int64_t batch, int64_t first) {
  const int64_t length = std::ssize(ids) / batch - first;
  const int64_t rows = batch * length;
  CHECK(rows <= extents_.rows());
  // Queries are all of the positions, or the last one.
  CHECK(first == 0 || rows == 1);
  Passing pass;
  pass.rows = rows;
  pass.first = first;
  pass.attention = {.batch = batch,
                    .seq_len = first + length,
                    .heads = model_.num_heads,
                    .head_dim = model_.head_dim,
                    .kv_heads = model_.num_kv_heads,
                    .runs = first > 0 ? first + 1 : 1,
                    .scale = model_.attention_scale(),
                    .cap = model_.attention_cap};
  pass.attention.piece[0] = pass.attention.runs - 1;
  const auto new_rows = [rows](View x) { return x.data == nullptr ? x : x.RowRange(0, rows); };
  pass.first_visible = new_rows(first_visible_);
  pass.first_in_window = new_rows(first_in_window_);
  for (const View& table : rotary_) pass.angles.push_back(table.RowRange(first, length));
  CopyInTokens(ids, batch, first);
  device_.Embed(new_rows(ids_), table_, 0, positions_, new_rows(position_ids_), new_rows(x()));
  const double factor = EmbeddingFactor(model_, x().dtype);
  if (factor != 1) device_.Scale(new_rows(x()), factor);
  const auto out = static_cast<size_t>(places_.of_value[static_cast<size_t>(lists_.of(0).output)]);
  for (size_t block = 0; block < blocks_.size(); ++block) {
    const KeysAndValues& cache = caches_[std::min(block, caches_.size() - 1)];
    ForwardBlock(blocks_[block], cache, ViewsOf(cache, pass), pass);
    std::swap(buffers_.front(), buffers_[out]);
  }
}

// Logits are scaled by scaling what they are made of.
void Inference::NormLast(View x, View norm_out) {
  ForwardNorm(final_norm_, x, norm_out, Statistics(x.rows), device_);
  const double factor = model_.logit_scale / model_.logits_scaling;
  if (factor != 1) device_.Scale(norm_out, factor);
}

void Inference::CopyInTokens(absl::Span<const int32_t> ids, int64_t batch, int64_t first) {
  const size_t length = ids.size() / static_cast<size_t>(batch);
  std::vector<int32_t> starts(length), new_ids, first_visible, first_in_window, position_ids;
  for (size_t at = 0; at < ids.size(); at += length) {
    FindDocumentStarts(ids.subspan(at, length), data_.bos_token_id, data_.eos_token_id,
                       absl::MakeSpan(starts));
    for (auto t = static_cast<size_t>(first); t < length; ++t) {
      const int32_t origin = data_.reset_position_ids ? starts[t] : 0;
      new_ids.push_back(ids[at + t]);
      first_visible.push_back(starts[t]);
      const int32_t document = extents_.masks_documents ? starts[t] : 0;
      first_in_window.push_back(FirstInWindow(static_cast<int64_t>(t), document, model_.window));
      position_ids.push_back(static_cast<int32_t>(t) - origin);
    }
  }
  const auto copy = [this](View to, const std::vector<int32_t>& from) {
    if (to.data != nullptr) device_.CopyIn(to.RowRange(0, std::ssize(from)), from.data());
  };
  copy(ids_, new_ids);
  copy(first_visible_, first_visible);
  copy(first_in_window_, first_in_window);
  copy(position_ids_, position_ids);
}

absl::StatusOr<double> Inference::LossSum(absl::Span<const int32_t> ids,
                                          absl::Span<const int32_t> targets) {
  CHECK(extents_.cached_positions == 0 && ids.size() == targets.size());
  const int64_t rows = std::ssize(ids);
  CHECK(rows % extents_.seq_len == 0);
  Forward(ids, rows / extents_.seq_len, 0);
  const View all_targets = targets_.RowRange(0, rows);
  device_.CopyIn(all_targets, targets.data());
  const View norm_out = norm_out_.RowRange(0, rows);
  NormLast(x().RowRange(0, rows), norm_out);
  auto* const sums = static_cast<float*>(row_sums_.data);
  const View row_max = row_max_.RowRange(0, rows);
  const View row_sum = {sums, rows, 1, DType::kF32};
  const View target_logit = {sums + rows, rows, 1, DType::kF32};
  for (int64_t first = 0; first < rows; first += logits_.rows) {
    const int64_t count = std::min(logits_.rows, rows - first);
    const View logits = logits_.RowRange(0, count);
    device_.MatMul(norm_out.RowRange(first, count), Transpose::kNo, head_, Transpose::kYes, 0,
                   logits);
    if (model_.logit_cap > 0) device_.Cap(logits, model_.logit_cap);
    device_.RowMax(logits, row_max.RowRange(first, count));
    device_.RowSumExp(logits, row_max.RowRange(first, count), all_targets.RowRange(first, count), 0,
                      {}, row_sum.RowRange(first, count), target_logit.RowRange(first, count));
  }
  device_.Zero(totals_);
  device_.AddLossSum(row_max, row_sum, target_logit, {}, totals_);
  double loss = 0;
  device_.CopyOut(&loss, totals_);
  RETURN_IF_ERROR(ToStatus(device_.Synchronize(), "evaluate"));
  return loss;
}

absl::StatusOr<absl::Span<const float>> Inference::Append(absl::Span<const int32_t> ids) {
  CHECK(!ids.empty() && std::ssize(read_) + std::ssize(ids) <= extents_.cached_positions);
  const int64_t rows = std::ssize(ids);
  const int64_t first = std::ssize(read_);
  read_.insert(read_.end(), ids.begin(), ids.end());
  Forward(read_, 1, first);
  const View norm_out = norm_out_.RowRange(0, 1);
  NormLast(x().RowRange(rows - 1, 1), norm_out);
  device_.MatMul(norm_out, Transpose::kNo, head_, Transpose::kYes, 0, logits_);
  if (model_.logit_cap > 0) device_.Cap(logits_, model_.logit_cap);
  host_logits_.resize(static_cast<size_t>(model_.vocab_size));
  device_.CopyOut(host_logits_.data(), logits_);
  RETURN_IF_ERROR(ToStatus(device_.Synchronize(), "generate"));
  return absl::MakeConstSpan(host_logits_);
}

}  // namespace weft
