#include "worker/model/block.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "plan/errors.h"
#include "plan/shards/batch_order.h"
#include "worker/backend/part_norms.h"
#include "worker/model/context.h"
#include "worker/model/rotary.h"

namespace weft {
namespace {

View Of(int value, const std::vector<View>& views) {
  return ViewOf(value, views);
}

// By which each rank's sum over its columns becomes a term of the mean over all. Ranks have equally
// many, and copies of a kv head are as many of each: counted like this, they leave the mean as it
// is.
double ShareOfMean(const RankGroups& groups, View x) {
  return 1.0 / (static_cast<double>(groups.layout().tp) * static_cast<double>(x.cols));
}

}  // namespace

BlockActivations BlockActivations::With(const BlockActivations& rest) const {
  BlockActivations whole = *this;
  for (size_t i = 0; i < whole.views.size(); ++i) {
    if (whole.views[i].data == nullptr) whole.views[i] = rest.views[i];
  }
  return whole;
}

Block::Block(const ModelShape& model, const BlockOps& ops, int64_t block,
             const AttentionShape& attention, const Parameters& parameters, Recompute recompute,
             Fp8Linear* fp8, Fp8Codes* codes, TokenCut& tokens, Device& device, RankGroups& groups)
    : ops_(ops),
      device_(device),
      groups_(groups),
      tokens_(tokens),
      recompute_(recompute),
      attention_(attention),
      model_(model) {
  const std::string prefix = absl::StrCat("blocks.", block, ".");
  bucket_ = parameters.Get(prefix + ops.params.front().name).bucket;
  steps_ = MakeSteps(ops, prefix,
                     {.norm = [&](const std::string& layer) { return parameters.GetNorm(layer); },
                      .linear =
                          [&](absl::Span<const std::string> layers) {
                            return layers.size() == 1 ? parameters.GetLinear(layers.front())
                                                      : parameters.GetFusedLinear(layers);
                          }});
  SetStrides();
  if (fp8 != nullptr) UseFp8(*fp8, codes);
}

// Queries, keys and values that are columns of one matrix.
void Block::SetStrides() {
  const Layout& layout = groups_.layout();
  const auto width_of_place = [&](int value) {
    const int place = ops_.PlaceOf(value);
    const int64_t width = LocalColumns(ops_, place, layout, groups_.at().tp);
    return width == LocalColumns(ops_, value, layout, groups_.at().tp) ? 0 : width;
  };
  for (const Step& step : steps_) {
    if (step.kind != StepKind::kAttention) continue;
    const std::vector<int>& in = step.ops.front()->in;
    has_window_ = step.ops.front()->window > 0;
    attention_.query_row_stride = width_of_place(in[0]);
    // Else keys and values are gathered, into matrices of their own.
    if (layout.cp == 1) attention_.key_row_stride = width_of_place(in[1]);
  }
}

bool Block::IsInFp8(const BlockOp& linear, const Fp8Layers& layers) const {
  const absl::string_view name = ops_.params[static_cast<size_t>(linear.params.front())].name;
  if (absl::StartsWith(name, "mlp.")) return layers.mlp;
  return absl::StartsWith(name, "attn.k.") || absl::StartsWith(name, "attn.v.") ? layers.key
                                                                                : layers.query;
}

void Block::UseFp8(Fp8Linear& fp8, Fp8Codes* codes) {
  fp8_ = &fp8;
  for (Step& step : steps_) {
    for (size_t i = 0; i < step.linears.size(); ++i) {
      if (!IsInFp8(*step.ops[i], fp8.layers())) continue;
      Linear& linear = step.linears[i];
      linear.fp8 = &fp8;
      linear.fp8_weight.wide = linear.weight;
      if (codes == nullptr) continue;
      linear.fp8_weight = codes->Take(linear.weight);
      kept_.push_back(linear.fp8_weight);
    }
  }
  CHECK(codes == nullptr || codes->is_used_up());
}

void Block::RenewCodes() {
  if (!std::exchange(are_codes_old_, false)) return;
  for (const Fp8Weight& weight : kept_) fp8_->Renew(weight);
}

int64_t Block::RowsOf(Rows rows) const {
  return rows == Rows::kPart ? tokens_.part_rows() : attention_.batch * attention_.query_len();
}

View Block::GetBuffer(const BlockBuffer& buffer, const std::string& name, Arena& arena) const {
  return arena.Get(name, RowsOf(buffer.rows),
                   LocalColumns(ops_, buffer.value, groups_.layout(), groups_.at().tp));
}

View Block::ColumnsOf(int value, View buffer) const {
  const Layout& layout = groups_.layout();
  const int64_t width = LocalColumns(ops_, value, layout, groups_.at().tp);
  if (width == buffer.cols) return buffer;
  return buffer.ColRange(FirstColumn(ops_, value, layout, groups_.at().tp), width);
}

BlockActivations Block::GetActivations(Share share, const std::string& prefix, Arena& arena) const {
  BlockActivations saved;
  saved.views.resize(ops_.values.size());
  const SavedBuffers buffers = SavedBuffersOf(ops_, recompute_);
  for (const BlockBuffer& buffer : share == Share::kKept ? buffers.kept : buffers.made_again) {
    const View view = GetBuffer(buffer, absl::StrCat(prefix, "/", buffer.name), arena);
    for (size_t value = 0; value < saved.views.size(); ++value) {
      const auto index = static_cast<int>(value);
      if (ops_.PlaceOf(index) == buffer.value) saved.views[value] = ColumnsOf(index, view);
    }
  }
  return saved;
}

BlockWorkspace Block::GetWorkspace(Arena& arena) const {
  BlockWorkspace work;
  work.gradients.resize(ops_.values.size());
  for (const BlockBuffer& buffer : GradientBuffersOf(ops_)) {
    const View view = GetBuffer(buffer, absl::StrCat("work/d", buffer.name), arena);
    for (const int value : buffer.gradients_of) {
      work.gradients[static_cast<size_t>(value)] = ColumnsOf(value, view);
    }
    if (buffer.name == "norm") work.dnorm = view;
  }
  if (groups_.layout().cp > 1) {
    const int64_t rows = attention_.batch * attention_.seq_len;
    const int64_t key = attention_.kv_heads * attention_.head_dim;
    work.keys = arena.Get("work/keys", rows, key);
    work.values = arena.Get("work/values", rows, key);
    work.dkeys = arena.Get("work/dkeys", rows, key);
    work.dvalues = arena.Get("work/dvalues", rows, key);
  }
  work.scores = arena.Row("work/scores");
  if (model_.wide_qk_norms && groups_.layout().tp > 1) {
    work.norm_sums = arena.Get("work/norm_sums", RowsOf(Rows::kTokens), 1);
  }
  const std::vector<int64_t> positions =
      PositionsOf(groups_.layout(), attention_.seq_len, groups_.at().cp);
  for (const Rotation& rotation : model_.rotations()) {
    const absl::string_view name = kRotaryTables[work.rotary.size()];
    work.rotary.push_back(
        arena.Get(absl::StrCat("work/", name), attention_.query_len(), rotation.width));
    device_.CopyIn(work.rotary.back(), RotaryTable(rotation, positions).data());
  }
  return work;
}

AttentionShape Block::AttentionOf(int64_t documents) const {
  AttentionShape shape = attention_;
  shape.documents = documents;
  return shape;
}

// A count of documents says nothing where the first key that a token sees is no document's start.
AttentionShape Block::AttentionOf(const BlockWorkspace& work) const {
  return AttentionOf(Slides(work) ? 0 : work.documents);
}

View Block::FirstVisible(const BlockWorkspace& work) const {
  return Slides(work) ? work.first_in_window : work.first_visible;
}

bool Block::Slides(const BlockWorkspace& work) const {
  return has_window_ && work.first_in_window.data != nullptr;
}

const char* Block::PrepareAttention(const BlockWorkspace& work, bool masks_documents,
                                    int64_t documents) const {
  const DType type = work.dnorm.dtype;
  const bool slides = Slides(work);
  return device_.PrepareAttention(AttentionOf(slides ? 0 : documents), type,
                                  masks_documents || slides, work.scores);
}

absl::Status Block::Forward(const BlockActivations& saved, const BlockWorkspace& work, View out) {
  RETURN_IF_ERROR(FillActivations(saved, work));
  return Do(steps_.back(), saved, work, out);
}

absl::Status Block::FillActivations(const BlockActivations& saved, const BlockWorkspace& work) {
  for (size_t i = 0; i + 1 < steps_.size(); ++i) {
    RETURN_IF_ERROR(Do(steps_[i], saved, work, Of(steps_[i].out, saved.views)));
  }
  return absl::OkStatus();
}

absl::Status Block::Do(const Step& step, const BlockActivations& saved, const BlockWorkspace& work,
                       View out) {
  const View in = Of(step.in, saved.views);
  switch (step.kind) {
    case StepKind::kNorm:
    case StepKind::kHeadNorm:
      DoNorm(step, saved.views, device_);
      return absl::OkStatus();
    case StepKind::kWideNorm:
      return ForwardWideNorm(step, saved);
    case StepKind::kProducts: {
      ASSIGN_OR_RETURN(const View x, tokens_.Gather(in));
      ForwardLinears(x, OutputsOf(step, saved.views), device_);
      return absl::OkStatus();
    }
    case StepKind::kProductThenGelu: {
      ASSIGN_OR_RETURN(const View x, tokens_.Gather(in));
      const View h = Of(step.ops.front()->out.front(), saved.views);
      ForwardLinearGelu(step.linears.front(), x, h, out, device_);
      return absl::OkStatus();
    }
    case StepKind::kActivation:
      DoActivation(*step.ops.back(), saved.views, device_);
      return absl::OkStatus();
    case StepKind::kTurn:
      DoTurn(step, work.rotary, Turn::kForth, saved.views, device_);
      return absl::OkStatus();
    case StepKind::kAttention: {
      const BlockOp& op = *step.ops.front();
      ASSIGN_OR_RETURN(const KeyValues whole, GatherKeys(op, saved, work));
      device_.Attention(AttentionOf(work), in, whole.k, whole.v, FirstVisible(work), out,
                        LogSums(op, saved), work.scores);
      return absl::OkStatus();
    }
    case StepKind::kSummedProduct:
      return SumProduct(step, saved, out);
    case StepKind::kNormBranch:
      ForwardNormBranch(step, saved.views, out, device_);
      return absl::OkStatus();
    case StepKind::kBranch:
      return AddBranch(step, saved, out);
  }
  CHECK(false);
  return absl::OkStatus();
}

View Block::LogSums(const BlockOp& attention, const BlockActivations& saved) const {
  const View sums = Of(attention.statistics.front(), saved.views);
  return {sums.data, attention_.batch * attention_.heads, attention_.query_len(), sums.dtype};
}

absl::Status Block::AddBranch(const Step& branch, const BlockActivations& saved, View out) {
  if (groups_.layout().tp == 1) {
    ForwardBranch(branch, saved.views, out, device_);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(SumProduct(branch, saved, out));
  if (FactorOf(branch) != 1) device_.Scale(out, FactorOf(branch));
  device_.Add(Of(branch.ops.back()->in.front(), saved.views), out);
  return absl::OkStatus();
}

absl::Status Block::SumProduct(const Step& product, const BlockActivations& saved, View out) {
  if (groups_.layout().tp == 1) {
    ForwardLinear(product.linears.front(), Of(product.in, saved.views), out, device_);
    return absl::OkStatus();
  }
  MultiplyTerms(product, saved.views, tokens_.Partial(out), device_);
  RETURN_IF_ERROR(tokens_.Sum(out));
  AddTermBiases(product, out, device_);  // after the sum: once
  return absl::OkStatus();
}

absl::Status Block::ForwardWideNorm(const Step& step, const BlockActivations& saved) {
  if (groups_.layout().tp == 1) {
    DoNorm(step, saved.views, device_);
    return absl::OkStatus();
  }
  const View x = Of(step.in, saved.views);
  const View rstd = StatisticsOf(step, saved.views).rstd;
  device_.part_norms().Squares(x, ShareOfMean(groups_, x), rstd);
  RETURN_IF_ERROR(groups_.SumOverTensor(rstd));
  device_.part_norms().Norm(x, step.norm.weight, step.norm.constants, Of(step.out, saved.views),
                            rstd);
  return absl::OkStatus();
}

// Gathered again for the backward pass: kept, they would take cp times the memory of a rank's own.
absl::StatusOr<Block::KeyValues> Block::GatherKeys(const BlockOp& attention,
                                                   const BlockActivations& saved,
                                                   const BlockWorkspace& work) {
  const View k = Of(attention.in[1], saved.views), v = Of(attention.in[2], saved.views);
  if (groups_.layout().cp == 1) return KeyValues{k, v};
  RETURN_IF_ERROR(GatherSequences(attention_.batch, k, work.dkeys, work.keys, device_, groups_));
  RETURN_IF_ERROR(
      GatherSequences(attention_.batch, v, work.dvalues, work.values, device_, groups_));
  return KeyValues{work.keys, work.values};
}

absl::Status Block::MakeAgain(const BlockActivations& saved, const BlockWorkspace& work) {
  switch (recompute_) {
    case Recompute::kNone:
      return absl::OkStatus();
    case Recompute::kSelective:
      for (const Step& step : steps_) {
        const BlockOp& op = *step.ops.back();
        if (!RuleOf(op.kind).is_cheap) continue;
        if (step.kind == StepKind::kNorm) {
          RETURN_IF_ERROR(Do(step, saved, work, Of(step.out, saved.views)));
        } else {
          DoActivation(op, saved.views, device_);
        }
      }
      return absl::OkStatus();
    case Recompute::kFull:
      RETURN_IF_ERROR(FillActivations(saved, work));
      if (steps_.back().kind == StepKind::kNormBranch) {
        // The gradient reads no more of the last step than its statistics.
        const Step& last = steps_.back();
        const View in = Of(last.in, saved.views);
        ForwardNorm(last.norm, in, work.dnorm.RowRange(0, in.rows), StatisticsOf(last, saved.views),
                    device_);
      }
      return absl::OkStatus();
  }
  CHECK(false);
  return absl::OkStatus();
}

absl::Status Block::Backward(const BlockActivations& saved, const BlockWorkspace& work, View dx) {
  return BackwardSteps(saved, work, dx, Part::kWhole);
}

absl::Status Block::BackwardInput(const BlockActivations& saved, const BlockWorkspace& work,
                                  View dx) {
  return BackwardSteps(saved, work, dx, Part::kInput);
}

absl::Status Block::BackwardSteps(const BlockActivations& saved, const BlockWorkspace& work,
                                  View dx, Part part) {
  RETURN_IF_ERROR(MakeAgain(saved, work));
  Arriving arriving;
  for (size_t i = steps_.size(); i-- > 0;) {
    RETURN_IF_ERROR(Undo(i, saved, work, dx, part, arriving));
  }
  return absl::OkStatus();
}

// A residual passes dx on unchanged; a branch adds its part through its norm.
absl::Status Block::Undo(size_t index, const BlockActivations& saved, const BlockWorkspace& work,
                         View dx, Part part, Arriving& arriving) {
  const Step& step = steps_[index];
  const View in = Of(step.in, saved.views);
  switch (step.kind) {
    case StepKind::kNorm:
      BackwardNorm(step.norm, arriving.dnorm, in, StatisticsOf(step, saved.views), dx, device_);
      return absl::OkStatus();
    case StepKind::kHeadNorm:
      BackwardHeadNorm(step, saved, work);
      return absl::OkStatus();
    case StepKind::kWideNorm:
      return BackwardWideNorm(step, saved, work);
    case StepKind::kProductThenGelu:
      if (!std::exchange(arriving.is_gelu_done, false)) {
        BackwardActivation(*step.ops.back(), saved, work);
      }
      [[fallthrough]];
    case StepKind::kProducts:
      return BackwardProducts(step, saved, work, dx, part, arriving);
    case StepKind::kActivation:
      BackwardActivation(*step.ops.front(), saved, work);
      return absl::OkStatus();
    case StepKind::kTurn:
      DoTurn(step, work.rotary, Turn::kBack, work.gradients, device_);
      return absl::OkStatus();
    case StepKind::kAttention:
      return BackwardAttention(step, saved, work);
    case StepKind::kNormBranch:
      BackwardNormBranch(step, saved, work, dx);
      return absl::OkStatus();
    case StepKind::kSummedProduct: {
      const View gradient = Of(step.out, work.gradients);
      if (part == Part::kInput) device_.Copy(Of(step.out, saved.views), gradient);
      return BackwardSummed(index, saved, work, gradient, part, arriving);
    }
    case StepKind::kBranch:
      if (part == Part::kInput && step.out != ops_.output) {
        device_.Copy(Of(step.out, saved.views), dx);
      }
      return BackwardSummed(index, saved, work, dx, part, arriving);
  }
  CHECK(false);
  return absl::OkStatus();
}

absl::Status Block::BackwardProducts(const Step& step, const BlockActivations& saved,
                                     const BlockWorkspace& work, View dx, Part part,
                                     Arriving& arriving) {
  const View of_input = Of(step.in, work.gradients);
  const bool is_residual = of_input.data == nullptr;
  const std::vector<LinearOutput> gradients = OutputsOf(step, work.gradients);
  ASSIGN_OR_RETURN(arriving.dnorm, BackwardToNorm(gradients, Of(step.in, saved.views),
                                                  is_residual ? work.dnorm : of_input, part));
  if (is_residual) device_.Add(arriving.dnorm, dx);
  if (part == Part::kWhole) return absl::OkStatus();
  const std::vector<LinearOutput> outputs = OutputsOf(step, saved.views);
  for (size_t i = 0; i < outputs.size(); ++i) device_.Copy(outputs[i].y, gradients[i].y);
  return absl::OkStatus();
}

// Through layers that are cut by inputs to their inputs, or to that of the GELU which made this,
// and to its parameters unless that is BackwardWeight's.
absl::Status Block::BackwardSummed(size_t index, const BlockActivations& saved,
                                   const BlockWorkspace& work, View dx, Part part,
                                   Arriving& arriving) {
  const Step& step = steps_[index];
  ASSIGN_OR_RETURN(View dy, tokens_.Gather(dx));
  if (FactorOf(step) != 1) {
    const View scaled = Of(step.ops.front()->out.front(), work.gradients);
    device_.Copy(scaled, dy);
    device_.Scale(scaled, FactorOf(step));
    dy = scaled;
  }
  const Step& before = steps_[index - 1];
  arriving.is_gelu_done =
      before.kind == StepKind::kProductThenGelu && !step.linears.front().is_fp8();
  for (size_t i = 0; i < step.linears.size(); ++i) {
    const Linear& linear = step.linears[i];
    const View in = Of(step.term_in[i], saved.views);
    const View of_input = Of(step.term_in[i], work.gradients);
    if (arriving.is_gelu_done) {
      if (part == Part::kWhole) BackwardLinearWeights({{linear, dy}}, in, device_);
      const int h = before.ops.front()->out.front();
      device_.GeluLinearGradient(dy, linear.weight, Of(h, saved.views), Of(h, work.gradients));
    } else if (part == Part::kWhole) {
      BackwardLinears({{linear, dy}}, in, of_input, device_);
    } else {
      BackwardLinearInputs({{linear, dy}}, of_input, device_);
    }
  }
  return absl::OkStatus();
}

void Block::BackwardActivation(const BlockOp& op, const BlockActivations& saved,
                               const BlockWorkspace& work) {
  const View dy = Of(op.out.front(), work.gradients);
  if (op.in.size() > 1) {
    device_.GluGradient(GateOf(op), dy, Of(op.in[0], saved.views), Of(op.in[1], saved.views),
                        Of(op.in[0], work.gradients), Of(op.in[1], work.gradients));
  } else if (op.kind != OpKind::kGelu) {
    device_.ActivateGradient(PlainActivationOf(op), dy, Of(op.in[0], saved.views),
                             Of(op.in[0], work.gradients));
  } else {
    device_.GeluGradient(dy, Of(op.in[0], saved.views), Of(op.in[0], work.gradients));
  }
}

// A residual's gradient is also that of what is added to it. A norm adds to the gradient of its
// input, which here and of heads has no other part.
void Block::BackwardNormBranch(const Step& step, const BlockActivations& saved,
                               const BlockWorkspace& work, View dx) {
  const View gradient = Of(step.in, work.gradients);
  device_.Zero(gradient);
  BackwardNorm(step.norm, dx, Of(step.in, saved.views), StatisticsOf(step, saved.views), gradient,
               device_);
}

void Block::BackwardHeadNorm(const Step& step, const BlockActivations& saved,
                             const BlockWorkspace& work) {
  const View dx = Of(step.in, work.gradients);
  device_.Zero(dx);
  BackwardNorm(step.norm, ByHead(step, Of(step.out, work.gradients)),
               ByHead(step, Of(step.in, saved.views)), StatisticsOf(step, saved.views),
               ByHead(step, dx), device_);
}

// Queries of other heads add to the same mean, those of copies of a kv head, too: each rank's sum
// is a term, and each takes its share of the mean off.
absl::Status Block::BackwardWideNorm(const Step& step, const BlockActivations& saved,
                                     const BlockWorkspace& work) {
  const Norm& norm = step.norm;
  const View dy = Of(step.out, work.gradients), dx = Of(step.in, work.gradients);
  const View x = Of(step.in, saved.views);
  device_.Zero(dx);
  if (groups_.layout().tp == 1) {
    BackwardNorm(norm, dy, x, StatisticsOf(step, saved.views), dx, device_);
    return absl::OkStatus();
  }
  const View rstd = StatisticsOf(step, saved.views).rstd;
  device_.part_norms().Products(dy, x, norm.weight, norm.constants, rstd, ShareOfMean(groups_, x),
                                work.norm_sums);
  RETURN_IF_ERROR(groups_.SumOverTensor(work.norm_sums));
  device_.part_norms().Gradient(dy, x, norm.weight, norm.constants, rstd, work.norm_sums, dx,
                                norm.weight_gradient);
  return absl::OkStatus();
}

absl::Status Block::BackwardAttention(const Step& step, const BlockActivations& saved,
                                      const BlockWorkspace& work) {
  const BlockOp& op = *step.ops.front();
  ASSIGN_OR_RETURN(const KeyValues whole, GatherKeys(op, saved, work));
  const View dk = Of(op.in[1], work.gradients), dv = Of(op.in[2], work.gradients);
  const bool is_whole = groups_.layout().cp == 1;
  device_.AttentionGradient(AttentionOf(work), Of(op.in[0], saved.views), whole.k, whole.v,
                            FirstVisible(work), Of(step.out, saved.views), LogSums(op, saved),
                            Of(step.out, work.gradients), Of(op.in[0], work.gradients),
                            is_whole ? dk : work.dkeys, is_whole ? dv : work.dvalues, work.scores);
  if (is_whole) return absl::OkStatus();
  RETURN_IF_ERROR(
      SumScatterSequences(attention_.batch, work.dkeys, work.keys, dk, device_, groups_));
  return SumScatterSequences(attention_.batch, work.dvalues, work.values, dv, device_, groups_);
}

absl::StatusOr<View> Block::BackwardToNorm(absl::Span<const LinearOutput> gradients, View norm_out,
                                           View dnorm, Part part) {
  if (part == Part::kInput) {
    BackwardLinearInputs(gradients, dnorm, device_);
    return tokens_.SumOwn(dnorm);
  }
  if (groups_.layout().tp == 1) {
    BackwardLinears(gradients, norm_out, dnorm, device_);
    return dnorm;
  }
  RETURN_IF_ERROR(tokens_.StartGather(norm_out));
  const auto sum = [&]() -> absl::StatusOr<View> {
    ASSIGN_OR_RETURN(const View x, tokens_.EndGather(norm_out));
    RETURN_IF_ERROR(tokens_.StartSumOwn(dnorm));
    return x;
  };
  RETURN_IF_ERROR(BackwardLinears(gradients, dnorm, sum, device_));
  return tokens_.EndSumOwn(dnorm);
}

absl::Status Block::BackwardWeight(const BlockActivations& saved, View dy) {
  for (size_t i = steps_.size(); i-- > 0;) {
    const Step& step = steps_[i];
    const View in = Of(step.in, saved.views);
    if (step.kind == StepKind::kBranch || step.kind == StepKind::kSummedProduct) {
      const View gradient = step.out == ops_.output ? dy : Of(step.out, saved.views);
      // Nobody else reads it any more.
      if (FactorOf(step) != 1) device_.Scale(gradient, FactorOf(step));
      ASSIGN_OR_RETURN(const View gathered, tokens_.Gather(gradient));
      for (size_t term = 0; term < step.linears.size(); ++term) {
        BackwardLinearWeights({{step.linears[term], gathered}}, Of(step.term_in[term], saved.views),
                              device_);
      }
    } else if (!step.linears.empty()) {
      ASSIGN_OR_RETURN(const View x, tokens_.Gather(in));
      BackwardLinearWeights(OutputsOf(step, saved.views), x, device_);
    }
  }
  return absl::OkStatus();
}

}  // namespace weft
