#include "worker/state/adafactor.h"

#include <cmath>

#include "plan/errors.h"
#include "plan/shards/factored_moments.h"

namespace weft {
namespace {

View Elements(View row, int64_t first, int64_t count) {
  if (count == 0) return {};
  return {static_cast<float*>(row.data) + first, 1, count, row.dtype};
}

}  // namespace

Adafactor::Adafactor(const ModelShape& model, const Parameters& parameters, Arena& arena,
                     Device& device, RankGroups& groups)
    : parameters_(parameters), device_(device), groups_(groups) {
  int64_t elements = 0;
  for (const Parameter& parameter : parameters.all()) {
    elements += FactoredMomentsOf(parameter.shard.tensor).elements();
  }
  const auto count = std::ssize(parameters.all());
  square_sums_ = arena.Get("comm/square_sums", 1, elements);
  norms_ = arena.Get("comm/norms", 1, 2 * count);
  const View row_means = arena.Get("work/row_means", 1, count);
  int64_t at = 0;
  for (const Parameter& parameter : parameters.all()) {
    const FactoredMoments size = FactoredMomentsOf(parameter.shard.tensor);
    const int64_t index = std::ssize(tensors_);
    Tensor& tensor = tensors_.emplace_back();
    tensor.all_sums = Elements(square_sums_, at, size.elements());
    tensor.sums = {.rows = Elements(square_sums_, at, size.rows),
                   .cols = Elements(square_sums_, at + size.rows, size.cols)};
    tensor.moments = parameter.moments;
    tensor.moments.row_mean = Elements(row_means, index, 1);
    tensor.norms = Elements(norms_, 2 * index, 2);
    at += size.elements();
    const bool is_table = parameter.shard.tensor.name == kTokenEmbeddingName;
    if (is_table && model.tied_embeddings && groups.layout().pp > 1) {
      shared_table_ = static_cast<int>(index);
    }
  }
}

absl::Status Adafactor::Update(const OptimizerSpec& optimizer, double lr, View gradient_scale,
                               int64_t step) {
  const double beta = 1 - std::pow(static_cast<double>(step), optimizer.decay_rate);
  const auto of_table = [&](View Tensor::*field) {
    return shared_table_ < 0 ? View() : tensors_[static_cast<size_t>(shared_table_)].*field;
  };
  const auto parameters_of = [&](const OwnPiece& piece) -> AdafactorParameters {
    const TensorSpec& tensor = piece.shard.tensor;
    return {.lr = lr,
            .clip_threshold = optimizer.clip_threshold,
            .scale_parameter = optimizer.scale_parameter,
            .weight_decay = WeightDecayOf(tensor, optimizer.param_groups, optimizer.weight_decay),
            .gradient_scale = gradient_scale,
            .elements = tensor.elements()};
  };
  device_.Zero(square_sums_);
  for (const OwnPiece& piece : parameters_.own()) {
    if (!Counts(piece)) continue;
    device_.adafactor().Squares(gradient_scale, piece.gradient, piece.range.begin,
                                BoxOf(tensors_[piece.parameter].sums, piece));
  }
  RETURN_IF_ERROR(SumOverHolders(square_sums_, of_table(&Tensor::all_sums)));
  for (const Tensor& tensor : tensors_) {
    device_.adafactor().Moments(beta, gradient_scale, tensor.sums, tensor.moments);
  }
  device_.Zero(norms_);
  for (const OwnPiece& piece : parameters_.own()) {
    if (!Counts(piece)) continue;
    const Tensor& tensor = tensors_[piece.parameter];
    device_.adafactor().Norms(parameters_of(piece), piece.gradient, piece.master, piece.range.begin,
                              BoxOf(tensor.moments, piece), tensor.norms);
  }
  RETURN_IF_ERROR(SumOverHolders(norms_, of_table(&Tensor::norms)));
  for (const OwnPiece& piece : parameters_.own()) {
    const Tensor& tensor = tensors_[piece.parameter];
    device_.adafactor().Update(parameters_of(piece), piece.gradient, piece.master,
                               piece.range.begin, BoxOf(tensor.moments, piece), tensor.norms);
    RoundWeight(piece, device_);
  }
  return absl::OkStatus();
}

bool Adafactor::Counts(const OwnPiece& piece) const {
  return piece.shard.primary && groups_.replica_index() == 0;
}

// A rank that counts nothing adds zeros: what it gets has the bits of one that does, whatever the
// order of sums.
absl::Status Adafactor::SumOverHolders(View of_all, View of_shared_table) {
  if (groups_.replica_index() == 0) {
    RETURN_IF_ERROR(groups_.SumOverShards(of_all));
    RETURN_IF_ERROR(groups_.SumOverTensor(of_all));
    if (of_shared_table.data != nullptr) {
      RETURN_IF_ERROR(groups_.SumOverTiedCopies(of_shared_table));
    }
  }
  return groups_.SumOverReplicas(of_all);
}

FactoredView Adafactor::BoxOf(const FactoredView& whole, const OwnPiece& piece) {
  const TensorShard& shard = piece.shard;
  FactoredView box = whole;
  const int64_t cols = shard.end.back() - shard.begin.back();
  box.cols = Elements(whole.cols, shard.begin.back(), cols);
  if (whole.rows.data == nullptr) return box;
  box.rows = Elements(whole.rows, shard.begin.front(), shard.end.front() - shard.begin.front());
  return box;
}

}  // namespace weft
