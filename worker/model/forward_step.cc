#include "worker/model/forward_step.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "plan/errors.h"

namespace weft {
namespace {

// Names of an operation's layers, without ".weight".
std::vector<std::string> LayersOf(const BlockOps& ops, const BlockOp& op,
                                  const std::string& prefix) {
  std::vector<std::string> layers;
  for (const int param : op.params) {
    absl::string_view name = ops.params[static_cast<size_t>(param)].name;
    if (absl::ConsumeSuffix(&name, ".weight")) layers.push_back(absl::StrCat(prefix, name));
  }
  return layers;
}

ForwardStep MakeStep(const BlockOps& block, const BlockStep& of, const std::string& prefix,
                     const LayerSource& source) {
  ForwardStep step;
  step.kind = of.kind;
  for (const int index : of.ops) {
    const BlockOp& op = block.ops[static_cast<size_t>(index)];
    step.ops.push_back(&op);
    if (op.params.empty()) continue;
    const std::vector<std::string> layers = LayersOf(block, op, prefix);
    if (op.kind == OpKind::kLinear) {
      step.linears.push_back(source.linear(layers));
      step.term_in.push_back(op.in.front());
    } else {
      step.norm = source.norm(layers.front());
    }
  }
  step.in = step.ops.front()->in.front();
  step.out = step.ops.back()->out.front();
  if (of.kind == StepKind::kHeadNorm || of.kind == StepKind::kTurn) {
    step.head_dim = block.values[static_cast<size_t>(step.in)].cols.unit;
  }
  return step;
}

}  // namespace

std::vector<ForwardStep> MakeSteps(const BlockOps& ops, const std::string& prefix,
                                   const LayerSource& layers) {
  std::vector<ForwardStep> steps;
  for (const BlockStep& step : StepsOf(ops)) steps.push_back(MakeStep(ops, step, prefix, layers));
  return steps;
}

double FactorOf(const ForwardStep& step) {
  double factor = 1;
  for (const BlockOp* const op : step.ops) factor *= op->factor;
  return factor;
}

std::vector<LinearOutput> OutputsOf(const ForwardStep& step, absl::Span<const View> views) {
  std::vector<LinearOutput> outputs;
  for (size_t i = 0; i < step.linears.size(); ++i) {
    outputs.push_back({step.linears[i], ViewOf(step.ops[i]->out.front(), views)});
  }
  return outputs;
}

NormStatistics StatisticsOf(const ForwardStep& step, absl::Span<const View> views) {
  const std::vector<int>& values = step.ops.front()->statistics;
  NormStatistics statistics = {.mean = {}, .rstd = ViewOf(values.back(), views)};
  if (values.size() > 1) statistics.mean = ViewOf(values.front(), views);
  if (step.kind != StepKind::kHeadNorm) return statistics;
  const View& rstd = statistics.rstd;
  statistics.rstd = {rstd.data, rstd.elements(), 1, rstd.dtype};
  return statistics;
}

View ByHead(const ForwardStep& step, View x) {
  CHECK(x.is_contiguous());
  return {x.data, x.elements() / step.head_dim, step.head_dim, x.dtype};
}

void DoNorm(const ForwardStep& step, absl::Span<const View> views, Device& device) {
  View in = ViewOf(step.in, views), out = ViewOf(step.out, views);
  if (step.kind == StepKind::kHeadNorm) {
    in = ByHead(step, in);
    out = ByHead(step, out);
  }
  ForwardNorm(step.norm, in, out, StatisticsOf(step, views), device);
}

void DoActivation(const BlockOp& op, absl::Span<const View> views, Device& device) {
  const View out = ViewOf(op.out.front(), views);
  if (op.in.size() > 1) {
    device.Glu(GateOf(op), ViewOf(op.in[0], views), ViewOf(op.in[1], views), out);
  } else if (op.kind != OpKind::kGelu) {
    device.Activate(PlainActivationOf(op), ViewOf(op.in[0], views), out);
  } else {
    device.Gelu(ViewOf(op.in[0], views), out);
  }
}

Gate GateOf(const BlockOp& op) {
  CHECK(op.kind == OpKind::kSwiGlu || op.kind == OpKind::kGeGlu);
  return op.kind == OpKind::kGeGlu ? Gate::kGelu : Gate::kSilu;
}

PlainActivation PlainActivationOf(const BlockOp& op) {
  CHECK(op.kind == OpKind::kSquaredRelu || op.kind == OpKind::kErfGelu);
  return op.kind == OpKind::kErfGelu ? PlainActivation::kErfGelu : PlainActivation::kSquaredRelu;
}

// Queries and keys that lie beside each other are turned by one call.
void DoTurn(const ForwardStep& step, absl::Span<const View> tables, Turn turn,
            absl::Span<const View> views, Device& device) {
  const BlockOp& first = *step.ops.front();
  const View table = tables[static_cast<size_t>(first.angles)];
  const RotatedHeads heads = {.head_dim = step.head_dim, .are_interleaved = first.are_interleaved};
  View pending;
  for (const BlockOp* const op : step.ops) {
    const View next = ViewOf(op->out.front(), views);
    const bool is_beside = pending.data != nullptr && pending.stride() == next.stride() &&
                           pending.ColRange(pending.cols, next.cols).data == next.data &&
                           !next.is_contiguous();
    if (is_beside) {
      pending = pending.ColRange(0, pending.cols + next.cols);
      continue;
    }
    if (pending.data != nullptr) device.Rotate(table, turn, heads, pending);
    pending = next;
  }
  device.Rotate(table, turn, heads, pending);
}

namespace {

// Adds all products but the first, with their biases.
void AddOtherTerms(const ForwardStep& step, absl::Span<const View> views, View out,
                   Device& device) {
  for (size_t i = 1; i < step.linears.size(); ++i) {
    const Linear& linear = step.linears[i];
    MultiplyLinear(linear, ViewOf(step.term_in[i], views), 1, out, device);
    if (linear.bias.data != nullptr) device.AddBias(linear.bias, out);
  }
}

}  // namespace

void ForwardBranch(const ForwardStep& step, absl::Span<const View> views, View out,
                   Device& device) {
  const View x = ViewOf(step.in, views), residual = ViewOf(step.ops.back()->in.front(), views);
  const double factor = FactorOf(step);
  const Linear& first = step.linears.front();
  if (factor == 1) {
    ForwardLinear(first, x, residual, out, device);
    return AddOtherTerms(step, views, out, device);
  }
  ForwardLinear(first, x, out, device);
  AddOtherTerms(step, views, out, device);
  device.Scale(out, factor);
  device.Add(residual, out);
}

void MultiplyTerms(const ForwardStep& step, absl::Span<const View> views, View out,
                   Device& device) {
  float beta = 0;
  for (size_t i = 0; i < step.linears.size(); ++i) {
    MultiplyLinear(step.linears[i], ViewOf(step.term_in[i], views), beta, out, device);
    beta = 1;
  }
}

void AddTermBiases(const ForwardStep& step, View out, Device& device) {
  for (const Linear& linear : step.linears) {
    if (linear.bias.data != nullptr) device.AddBias(linear.bias, out);
  }
}

void ForwardNormBranch(const ForwardStep& step, absl::Span<const View> views, View out,
                       Device& device) {
  ForwardNorm(step.norm, ViewOf(step.in, views), out, StatisticsOf(step, views), device);
  device.Add(ViewOf(step.ops.back()->in.front(), views), out);
}

}  // namespace weft
