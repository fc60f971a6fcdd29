#include "plan/schedule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {
namespace {

bool IsCompute(Op op) {
  return op == Op::kForward || op == Op::kBackward;
}

}  // namespace

std::vector<Action> Gpipe(int microbatches) {
  CHECK(microbatches >= 1);
  std::vector<Action> actions;
  for (const Op op : {Op::kForward, Op::kBackward}) {
    for (int m = 0; m < microbatches; ++m) actions.push_back({.op = op, .microbatch = m});
  }
  return actions;
}

std::vector<Action> OneForwardOneBackward(int stage, int stages, int microbatches) {
  CHECK(microbatches >= 1 && stage >= 0 && stage < stages);
  const int warmup = std::min(stages - 1 - stage, microbatches);
  std::vector<Action> actions;
  for (int m = 0; m < microbatches + warmup; ++m) {
    if (m < microbatches) actions.push_back({.op = Op::kForward, .microbatch = m});
    if (m >= warmup) actions.push_back({.op = Op::kBackward, .microbatch = m - warmup});
  }
  return actions;
}

std::vector<Action> ComputeOrder(ScheduleKind kind, int stage, int stages, int microbatches) {
  if (kind == ScheduleKind::kGpipe) return Gpipe(microbatches);
  return OneForwardOneBackward(stage, stages, microbatches);
}

std::vector<Action> WithTransfers(int stage, int stages, absl::Span<const Action> compute) {
  const bool first = stage == 0;
  const bool last = stage == stages - 1;
  std::vector<Action> actions;
  for (const Action& action : compute) {
    CHECK(IsCompute(action.op));
    const bool forward = action.op == Op::kForward;
    const bool needs = forward ? !first : !last;   // input comes from a neighbour
    const bool yields = forward ? !last : !first;  // output goes to a neighbour
    if (needs) {
      Action receive = action;
      receive.op = forward ? Op::kRecvActivation : Op::kRecvGradient;
      actions.push_back(receive);
    }
    actions.push_back(action);
    if (yields) {
      Action send = action;
      send.op = forward ? Op::kSendActivation : Op::kSendGradient;
      actions.push_back(send);
    }
  }
  return actions;
}

std::vector<Action> StepSchedule(const Layout& layout, int stage, bool tied) {
  CHECK(stage >= 0 && stage < layout.pp);
  std::vector<Action> actions = WithTransfers(
      stage, layout.pp,
      ComputeOrder(layout.schedule, stage, layout.pp, static_cast<int>(layout.num_microbatches)));
  // The tied copies are summed inside a replica first: after that both hold the same gradient, and
  // the sum over dp keeps them equal, in the same order on both.
  const bool has_embedding = stage == 0 || stage == layout.pp - 1;
  if (tied && layout.pp > 1 && has_embedding) actions.push_back({.op = Op::kReduceTiedEmbedding});
  if (layout.dp > 1) actions.push_back({.op = Op::kReduceGradients, .bucket = 0});
  // Also on a single rank: it carries the loss and the stop flag besides the norm.
  actions.push_back({.op = Op::kReduceNorm});
  actions.push_back({.op = Op::kUpdate});
  return actions;
}

std::vector<Action> EvaluationSchedule(int stage, int stages, int microbatches) {
  std::vector<Action> forwards;
  forwards.reserve(static_cast<size_t>(microbatches));
  for (int m = 0; m < microbatches; ++m) {
    forwards.push_back({.op = Op::kForward, .microbatch = m});
  }
  return WithTransfers(stage, stages, forwards);
}

bool IsTransfer(Op op) {
  return op == Op::kRecvActivation || op == Op::kSendActivation || op == Op::kRecvGradient ||
         op == Op::kSendGradient;
}

std::vector<absl::Span<const Action>> Groups(absl::Span<const Action> actions) {
  std::vector<absl::Span<const Action>> groups;
  size_t begin = 0;
  while (begin < actions.size()) {
    size_t end = begin + 1;
    if (IsTransfer(actions[begin].op)) {
      while (end < actions.size() && IsTransfer(actions[end].op)) ++end;
    }
    groups.push_back(actions.subspan(begin, end - begin));
    begin = end;
  }
  return groups;
}

int PeakLiveMicrobatches(absl::Span<const Action> actions) {
  int live = 0;
  int peak = 0;
  for (const Action& action : actions) {
    if (action.op == Op::kForward) peak = std::max(peak, ++live);
    if (action.op == Op::kBackward) --live;
  }
  return peak;
}

std::string ActionText(const Action& action) {
  const int m = action.microbatch;
  switch (action.op) {
    case Op::kForward:
      return absl::StrCat("F", m);
    case Op::kBackward:
      return absl::StrCat("B", m);
    case Op::kRecvActivation:
      return absl::StrCat("recv_act", m);
    case Op::kSendActivation:
      return absl::StrCat("send_act", m);
    case Op::kRecvGradient:
      return absl::StrCat("recv_grad", m);
    case Op::kSendGradient:
      return absl::StrCat("send_grad", m);
    case Op::kReduceTiedEmbedding:
      return "reduce_tied";
    case Op::kReduceGradients:
      return absl::StrCat("reduce_grads", action.bucket);
    case Op::kReduceNorm:
      return "reduce_norm";
    case Op::kUpdate:
      return "update";
  }
  return "?";
}

std::string ScheduleText(int stage, absl::Span<const Action> actions) {
  std::string text = absl::StrCat("stage ", stage, " |");
  for (const Action& action : actions) absl::StrAppend(&text, " ", ActionText(action));
  return text;
}

}  // namespace weft
