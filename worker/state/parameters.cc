#include "worker/state/parameters.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "plan/shards/factored_moments.h"

namespace weft {

namespace {

View Reshaped(View row, const TensorShard& shard) {
  const std::vector<int64_t> dims = shard.dims();
  row.rows = dims.size() == 2 ? dims[0] : 1;
  row.cols = dims.back();
  return row;
}

OwnPiece OwnPieceOf(const TensorShard& shard, const Piece& piece, const BucketViews& bucket) {
  const auto own = [&](View run) { return RangeOf(run, piece.offset, piece.range.size()); };
  OwnPiece owned;
  owned.shard = shard;
  owned.range = piece.range;
  owned.offset = piece.offset;
  owned.weight = own(bucket.own_weights);
  owned.gradient = own(bucket.own_gradients);
  owned.master = own(bucket.own_master);
  for (const OptimizerState& state : bucket.own_states) {
    owned.states.push_back({state.array, RangeOf(state, piece.offset, piece.range.size())});
  }
  return owned;
}

// The bucket's run of a place that has as many elements as its largest bucket.
View ReducedRun(WholePlace place, int64_t largest, int64_t elements, Arena& arena) {
  const View whole = arena.Get(absl::StrCat("whole/reduced/", WordOf(place)), 1, largest);
  return RangeOf(whole, 0, elements);
}

}  // namespace

View RangeOf(View row, int64_t first, int64_t count) {
  const int64_t offset_bytes = first * ElementBytes(row.dtype);
  return {static_cast<char*>(row.data) + offset_bytes, 1, count, row.dtype};
}

View RangeOf(const OptimizerState& state, int64_t first, int64_t count) {
  const StateArray& array = state.array;
  // Tensors start, and parts are cut, where blocks begin.
  CHECK(first % array.parameters_per_element() == 0);
  return RangeOf(state.values, first / array.parameters_per_element(), array.ElementsFor(count));
}

OwnPiece SliceOf(const OwnPiece& piece, int64_t first, int64_t count) {
  OwnPiece slice = piece;
  slice.range = {piece.range.begin + first, piece.range.begin + first + count};
  slice.offset += first;
  slice.weight = RangeOf(piece.weight, first, count);
  slice.gradient = RangeOf(piece.gradient, first, count);
  slice.master = RangeOf(piece.master, first, count);
  for (OptimizerState& state : slice.states) state.values = RangeOf(state, first, count);
  return slice;
}

void Parameters::AddOwn(const Bucket& bucket, absl::Span<const Piece> pieces) {
  for (const Piece& piece : pieces) {
    own_.push_back(OwnPieceOf(bucket.shards[piece.shard], piece, buckets_.back()));
    own_.back().bucket = buckets_.size() - 1;
    own_.back().parameter = parameters_.size() - bucket.shards.size() + piece.shard;
  }
}

Parameters::Parameters(const ModelShape& model, const Layout& layout, int rank,
                       const Numerics& numerics, Arena& arena)
    : norm_constants_(NormConstantsOf(model)) {
  const int part = layout.grid().DataIndexOf(rank) % ShardingOf(layout).parts;
  const int64_t unit = BucketUnit(numerics.optimizer);
  const std::vector<Bucket> buckets = BucketsOf(model, layout, rank, numerics.optimizer);
  const BucketElements elements = BucketElementsOf(buckets);
  const std::vector<WholePlace> places = WholePlacesOf(buckets);
  for (const Bucket& bucket : buckets) {
    const WholePlace place = places[buckets_.size()];
    const Sharding sharding = ShardingAt(place, elements.counts, layout);
    const int64_t largest = PartElements(place == WholePlace::kEnds ? elements.end : elements.block,
                                         sharding.parts, unit);
    const int64_t size = PartElements(bucket.elements, sharding.parts, unit);
    // Own part and whole run of weights or gradients.
    const auto get = [&](absl::string_view prefix, bool in_parts, View* own, View* whole) {
      const std::string name = absl::StrCat(prefix, "/", bucket.name);
      if (in_parts) {
        *own = arena.Get(name, 1, size);
        const std::string at = absl::StrCat("whole/", prefix, "/", WordOf(place));
        *whole = RangeOf(arena.Get(at, 1, largest * sharding.parts), 0, size * sharding.parts);
      } else {
        *whole = arena.Get(name, 1, size * sharding.parts);
        *own = RangeOf(*whole, size * part, size);
      }
    };
    BucketViews& views = buckets_.emplace_back();
    views.sharding = sharding;
    views.place = place;
    get("weights", sharding.weights, &views.own_weights, &views.weights);
    get("gradients", sharding.gradients, &views.own_gradients, &views.gradients);
    if (NarrowsSums(layout, numerics)) {
      views.reduced = ReducedRun(place, largest * sharding.parts, size * sharding.parts, arena);
    }
    views.own_master = numerics.has_master_weights()
                           ? arena.Get(absl::StrCat("master/", bucket.name), 1, size)
                           : views.own_weights;
    for (const StateArray& state : StateArrays(numerics.optimizer)) {
      views.own_states.push_back({state, arena.Get(absl::StrCat(state.name, "/", bucket.name), 1,
                                                   state.ElementsFor(size))});
    }
    for (size_t i = 0; i < bucket.shards.size(); ++i) {
      const TensorShard& shard = bucket.shards[i];
      const auto whole = [&](View run) {
        return Reshaped(RangeOf(run, bucket.offsets[i], shard.elements()), shard);
      };
      parameters_.push_back({.shard = shard,
                             .bucket = static_cast<int>(buckets_.size()) - 1,
                             .weight = whole(views.weights),
                             .gradient = whole(views.gradients)});
    }
    AddOwn(bucket, PiecesOf(bucket, sharding.parts, part, unit));
  }
  runs_ = LinearsOfOneRun(buckets);
  all_gradients_ = arena.Whole(MemoryKind::kGradients);
  if (numerics.optimizer == OptimizerStates::kFactored) FindFactoredMoments(arena);
}

void Parameters::FindFactoredMoments(Arena& arena) {
  int64_t elements = 0;
  for (const Parameter& parameter : parameters_) {
    elements += FactoredMomentsOf(parameter.shard.tensor).elements();
  }
  const View all = arena.Get("exp_avg_sq_factors", 1, elements);
  int64_t at = 0;
  for (Parameter& parameter : parameters_) {
    const FactoredMoments size = FactoredMomentsOf(parameter.shard.tensor);
    if (size.rows > 0) parameter.moments.rows = RangeOf(all, at, size.rows);
    parameter.moments.cols = RangeOf(all, at + size.rows, size.cols);
    at += size.elements();
  }
}

const Parameter* Parameters::Find(absl::string_view tensor) const {
  for (const Parameter& parameter : parameters_) {
    if (parameter.shard.tensor.name == tensor) return &parameter;
  }
  return nullptr;
}

const Parameter& Parameters::Get(absl::string_view tensor) const {
  const Parameter* const parameter = Find(tensor);
  CHECK(parameter != nullptr);
  return *parameter;
}

Linear Parameters::GetLinear(absl::string_view name) const {
  const Parameter& weight = Get(absl::StrCat(name, ".weight"));
  const Parameter* const bias = Find(absl::StrCat(name, ".bias"));
  return {.weight = weight.weight,
          .bias = bias == nullptr ? View() : bias->weight,
          .weight_gradient = weight.gradient,
          .bias_gradient = bias == nullptr ? View() : bias->gradient};
}

Linear Parameters::GetFusedLinear(absl::Span<const std::string> names) const {
  Linear fused = GetLinear(names.front());
  const auto append = [](View next, int64_t View::*along, View* whole) {
    if (whole->data == nullptr) return;
    CHECK(static_cast<char*>(whole->data) + whole->bytes() == next.data);
    whole->*along += next.*along;
  };
  for (const std::string& name : names.subspan(1)) {
    const Linear next = GetLinear(name);
    append(next.weight, &View::rows, &fused.weight);
    append(next.weight_gradient, &View::rows, &fused.weight_gradient);
    append(next.bias, &View::cols, &fused.bias);
    append(next.bias_gradient, &View::cols, &fused.bias_gradient);
  }
  return fused;
}

Norm Parameters::GetNorm(absl::string_view name) const {
  const Linear pair = GetLinear(name);
  return {.weight = pair.weight,
          .bias = pair.bias,
          .weight_gradient = pair.weight_gradient,
          .bias_gradient = pair.bias_gradient,
          .constants = norm_constants_};
}

NormConstants NormConstantsOf(const ModelShape& model) {
  return {.eps = model.norm_eps, .offset = model.norm_offset};
}

void RoundWeight(const OwnPiece& piece, Device& device) {
  if (piece.weight.data != piece.master.data) device.Copy(piece.weight, piece.master);
}

namespace {

// By which some of the layers' products are computed; null: none.
Fp8Linear* Fp8Of(absl::Span<const LinearOutput> layers) {
  for (const LinearOutput& each : layers) {
    if (each.linear.is_fp8()) return each.linear.fp8;
  }
  return nullptr;
}

// `codes`: of x, if the layer is in fp8.
void ForwardOne(const Linear& linear, View x, const Fp8View& codes, View residual, View y,
                Device& device) {
  if (!linear.is_fp8()) return device.Linear(x, linear.weight, linear.bias, residual, y);
  linear.fp8->Forward(linear.fp8_weight, codes, 0, y);
  if (linear.bias.data != nullptr) device.AddBias(linear.bias, y);
  if (residual.data != nullptr) device.Add(residual, y);
}

}  // namespace

void ForwardLinears(View x, absl::Span<const LinearOutput> outputs, Device& device) {
  Fp8Linear* const fp8 = Fp8Of(outputs);
  const Fp8View codes = fp8 == nullptr ? Fp8View() : fp8->Cast(x);
  for (const LinearOutput& each : outputs) {
    ForwardOne(each.linear, x, codes, View(), each.y, device);
  }
}

void ForwardLinear(const Linear& linear, View x, View residual, View y, Device& device) {
  const Fp8View codes = linear.is_fp8() ? linear.fp8->Cast(x) : Fp8View();
  ForwardOne(linear, x, codes, residual, y, device);
}

void ForwardLinear(const Linear& linear, View x, View y, Device& device) {
  ForwardLinear(linear, x, View(), y, device);
}

void ForwardLinearGelu(const Linear& linear, View x, View h, View y, Device& device) {
  if (!linear.is_fp8()) return device.LinearGelu(x, linear.weight, linear.bias, h, y);
  ForwardLinear(linear, x, h, device);
  device.Gelu(h, y);
}

void MultiplyLinear(const Linear& linear, View x, float beta, View y, Device& device) {
  if (linear.is_fp8()) return linear.fp8->Forward(linear.fp8_weight, linear.fp8->Cast(x), beta, y);
  device.MatMul(x, Transpose::kNo, linear.weight, Transpose::kYes, beta, y);
}

void BackwardLinearInputs(absl::Span<const LinearOutput> gradients, View dx, Device& device) {
  float beta = 0;
  for (const auto& [linear, dy] : gradients) {
    if (linear.is_fp8()) {
      linear.fp8->BackwardInput(linear.fp8_weight, dy, beta, dx);
    } else {
      device.MatMul(dy, Transpose::kNo, linear.weight, Transpose::kNo, beta, dx);
    }
    beta = 1;
  }
}

void BackwardLinearWeights(absl::Span<const LinearOutput> gradients, View x, Device& device) {
  Fp8Linear* const fp8 = Fp8Of(gradients);
  const Fp8View x_transposed = fp8 == nullptr ? Fp8View() : fp8->CastTransposed(x);
  for (const auto& [linear, dy] : gradients) {
    if (linear.is_fp8()) {
      if (linear.bias.data != nullptr) device.BiasGradient(dy, linear.bias_gradient);
      linear.fp8->BackwardWeight(dy, x_transposed, linear.weight_gradient);
    } else {
      device.LinearGradient(dy, x, linear.weight_gradient, linear.bias_gradient);
    }
  }
}

void BackwardLinears(absl::Span<const LinearOutput> gradients, View x, View dx, Device& device) {
  Fp8Linear* const fp8 = Fp8Of(gradients);
  const Fp8View x_transposed = fp8 == nullptr ? Fp8View() : fp8->CastTransposed(x);
  float beta = 0;
  for (const auto& [linear, dy] : gradients) {
    if (linear.is_fp8()) {
      if (linear.bias.data != nullptr) device.BiasGradient(dy, linear.bias_gradient);
      linear.fp8->Backward(linear.fp8_weight, dy, x_transposed, beta, dx, linear.weight_gradient);
    } else {
      device.LinearGradient(dy, x, linear.weight_gradient, linear.bias_gradient);
      device.MatMul(dy, Transpose::kNo, linear.weight, Transpose::kNo, beta, dx);
    }
    beta = 1;
  }
}

absl::Status BackwardLinears(absl::Span<const LinearOutput> gradients, View dx,
                             absl::FunctionRef<absl::StatusOr<View>()> at_dx, Device& device) {
  const auto& [linear, dy] = gradients.front();
  const bool casts_once = gradients.size() == 1 && linear.is_fp8();  // one buffer for codes of dy
  if (!casts_once) {
    BackwardLinearInputs(gradients, dx, device);
    ASSIGN_OR_RETURN(const View x, at_dx());
    BackwardLinearWeights(gradients, x, device);
    return absl::OkStatus();
  }
  const Fp8Linear::Gradient codes = linear.fp8->CastGradient(dy);
  linear.fp8->BackwardInput(linear.fp8_weight, codes, 0, dx);
  ASSIGN_OR_RETURN(const View x, at_dx());
  if (linear.bias.data != nullptr) device.BiasGradient(dy, linear.bias_gradient);
  linear.fp8->BackwardWeight(codes, linear.fp8->CastTransposed(x), linear.weight_gradient);
  return absl::OkStatus();
}

void ForwardNorm(const Norm& norm, View x, View y, const NormStatistics& saved, Device& device) {
  if (saved.mean.data == nullptr) {
    device.RmsNorm(x, norm.weight, norm.constants, y, saved.rstd);
  } else {
    device.LayerNorm(x, norm.weight, norm.bias, norm.constants, y, saved.mean, saved.rstd);
  }
}

void BackwardNorm(const Norm& norm, View dy, View x, const NormStatistics& saved, View dx,
                  Device& device) {
  if (saved.mean.data == nullptr) {
    device.RmsNormGradient(dy, x, norm.weight, norm.constants, saved.rstd, dx,
                           norm.weight_gradient);
  } else {
    device.LayerNormGradient(dy, x, norm.weight, norm.constants, saved.mean, saved.rstd, dx,
                             norm.weight_gradient, norm.bias_gradient);
  }
}

}  // namespace weft
