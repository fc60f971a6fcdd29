#include "plan/schedule/schedule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {
namespace {

// Forwards before the first backward (Megatron-LM's warm-up of the interleaved schedule): enough
// that a stage's turn-around is hidden and forwards and backwards then go in pairs.
int InterleavedWarmup(int stage, int stages, int microbatches, int chunks) {
  const auto turn = static_cast<int>(InterleavedTurn(stages, microbatches));
  return std::min(microbatches * chunks, 2 * (stages - 1 - stage) + (chunks - 1) * turn);
}

// The k-th forward or backward pass of the interleaved schedule.
Action InterleavedPass(Op op, int k, int most, int microbatches, int chunks) {
  // Each chunk has a turn of `most` microbatches, then the next; the last turns may be shorter.
  const int round = k / (most * chunks);
  const int turn = std::min(most, microbatches - round * most);
  const int within = k - round * most * chunks;
  const int chunk = within / turn;
  return {.op = op,
          .chunk = op == Op::kForward ? chunk : chunks - 1 - chunk,
          .microbatch = round * most + within % turn};
}

// Returns where a stage may exchange: pauses[i] is the moment before compute[i], pauses.back() the
// end. Every moment is a pause but for two, at which the neighbour is in the middle of a pass:
// - interleaved, past the warm-up: a forward and the backward after it are a pair. In such a pair
//   neither waits for the other stages' current pair, so all pairs run side by side.
// - zb_h1: between an input gradient and a weight gradient that a forward follows. The stage
//   before is busy until this forward can start: it sends the forward's input then.
std::vector<char> Pauses(absl::Span<const Action> compute, int stage, int stages, int chunks) {
  const size_t count = compute.size();
  const auto op = [&](size_t i) { return compute[i].op; };
  const auto forwards = std::count_if(compute.begin(), compute.end(),
                                      [](const Action& a) { return a.op == Op::kForward; });
  const int warmup = InterleavedWarmup(stage, stages, static_cast<int>(forwards) / chunks, chunks);
  std::vector<char> pauses(count + 1, 1);  // of bool is slower to ask
  int done = 0;                            // forwards before compute[i]
  for (size_t i = 1; i < count; ++i) {
    if (op(i - 1) == Op::kForward) ++done;
    const bool in_pair = op(i - 1) == Op::kForward && op(i) == Op::kBackward;
    if (chunks > 1 && in_pair && done > warmup) pauses[i] = 0;
    const bool splits = op(i - 1) == Op::kBackwardInput && op(i) == Op::kBackwardWeight;
    if (splits && i + 1 < count && op(i + 1) == Op::kForward) pauses[i] = 0;
  }
  return pauses;
}

// Turns of unlike lengths have no closed form: the passes are gone through.
int64_t CountLiveBlocks(const Layout& layout, int64_t num_blocks, int stage) {
  int64_t live = 0;
  int64_t peak = 0;
  const auto microbatches = static_cast<int>(layout.gradient_accumulation_steps);
  for (const Action& action : Interleaved(stage, layout.pp, microbatches, layout.virtual_stages)) {
    const int64_t blocks = ChunkBlocks(layout, num_blocks, stage, action.chunk).size();
    live += action.op == Op::kForward ? blocks : -blocks;
    peak = std::max(peak, live);
  }
  return peak;
}

}  // namespace

// Megatron-Core takes what is left of the last turn only if it fills the stages
// (megatron/core/pipeline_parallel/schedules.py, microbatch_group_size_per_vp_stage).
int64_t InterleavedTurn(int64_t stages, int64_t microbatches) {
  int64_t turn = stages;
  while (turn < microbatches && microbatches % turn != 0 && microbatches % turn < stages) ++turn;
  return turn;
}

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
  actions.reserve(2 * static_cast<size_t>(microbatches));
  for (int m = 0; m < microbatches + warmup; ++m) {
    if (m < microbatches) actions.push_back({.op = Op::kForward, .microbatch = m});
    if (m >= warmup) actions.push_back({.op = Op::kBackward, .microbatch = m - warmup});
  }
  return actions;
}

std::vector<Action> Interleaved(int stage, int stages, int microbatches, int chunks) {
  CHECK(microbatches >= 1 && stage >= 0 && stage < stages);
  CHECK(stages >= 2 && chunks >= 2 && microbatches >= stages);
  const int passes = microbatches * chunks;
  const int warmup = InterleavedWarmup(stage, stages, microbatches, chunks);
  const auto turn = static_cast<int>(InterleavedTurn(stages, microbatches));
  std::vector<Action> actions;
  for (int k = 0; k < passes + warmup; ++k) {
    if (k < passes) {
      actions.push_back(InterleavedPass(Op::kForward, k, turn, microbatches, chunks));
    }
    if (k >= warmup) {
      actions.push_back(InterleavedPass(Op::kBackward, k - warmup, turn, microbatches, chunks));
    }
  }
  return actions;
}

std::vector<Action> ZeroBubbleH1(int stage, int stages, int microbatches) {
  std::vector<Action> actions;
  actions.reserve(3 * static_cast<size_t>(microbatches));
  for (Action action : OneForwardOneBackward(stage, stages, microbatches)) {
    const int m = action.microbatch;
    if (action.op == Op::kBackward) action.op = Op::kBackwardInput;
    actions.push_back(action);
    if (action.op == Op::kBackwardInput && m >= stage) {
      actions.push_back({.op = Op::kBackwardWeight, .microbatch = m - stage});
    }
  }
  for (int m = std::max(0, microbatches - stage); m < microbatches; ++m) {
    actions.push_back({.op = Op::kBackwardWeight, .microbatch = m});
  }
  return actions;
}

std::vector<Action> ComputeOrder(ScheduleKind kind, int stage, int stages, int microbatches,
                                 int chunks) {
  CHECK(chunks == 1 || kind == ScheduleKind::kInterleaved);
  switch (kind) {
    case ScheduleKind::kGpipe:
      return Gpipe(microbatches);
    case ScheduleKind::kOneForwardOneBackward:
      return OneForwardOneBackward(stage, stages, microbatches);
    case ScheduleKind::kInterleaved:
      return Interleaved(stage, stages, microbatches, chunks);
    case ScheduleKind::kZeroBubbleH1:
      return stages == 1 ? OneForwardOneBackward(stage, stages, microbatches)
                         : ZeroBubbleH1(stage, stages, microbatches);
  }
  CHECK(false);
  return {};
}

std::vector<Action> WithTransfers(int stage, int stages, absl::Span<const Action> compute,
                                  int chunks) {
  const std::vector<char> pauses = Pauses(compute, stage, stages, chunks);
  const auto is_first = [&](const Action& pass) { return stage == 0 && pass.chunk == 0; };
  const auto is_last = [&](const Action& pass) {
    return stage == stages - 1 && pass.chunk == chunks - 1;
  };
  std::vector<Action> actions;
  actions.reserve(3 * compute.size());
  std::vector<Action> sends;  // that wait for a pause
  for (size_t i = 0; i <= compute.size(); ++i) {
    if (pauses[i] != 0) {
      for (const Action& send : sends) actions.push_back(send);
      sends.clear();
    }
    // Receive what this pass needs, and those after it up to the next pause.
    for (size_t j = i; pauses[i] != 0 && j < compute.size() && (j == i || pauses[j] == 0); ++j) {
      Action receive = compute[j];
      if (receive.op == Op::kBackwardWeight) continue;
      const bool forward = receive.op == Op::kForward;
      if (forward ? is_first(receive) : is_last(receive)) continue;
      receive.op = forward ? Op::kRecvActivation : Op::kRecvGradient;
      actions.push_back(receive);
    }
    if (i == compute.size()) break;
    CHECK(IsPass(compute[i].op));
    actions.push_back(compute[i]);
    if (compute[i].op == Op::kBackwardWeight) continue;
    const bool forward = compute[i].op == Op::kForward;
    if (forward ? is_last(compute[i]) : is_first(compute[i])) continue;
    sends.push_back(compute[i]);
    sends.back().op = forward ? Op::kSendActivation : Op::kSendGradient;
  }
  return actions;
}

int PeerStage(Op transfer, int stage, int stages) {
  CHECK(IsTransfer(transfer));
  const bool next = transfer == Op::kSendActivation || transfer == Op::kRecvGradient;
  return (stage + (next ? 1 : stages - 1)) % stages;
}

std::vector<Action> EvaluationSchedule(int stage, int stages, int microbatches, int chunks) {
  CHECK(chunks == 1 || microbatches % stages == 0);
  std::vector<Action> forwards;
  forwards.reserve(static_cast<size_t>(microbatches) * static_cast<size_t>(chunks));
  for (int k = 0; k < microbatches * chunks; ++k) {
    forwards.push_back(chunks == 1
                           ? Action{.op = Op::kForward, .microbatch = k}
                           : InterleavedPass(Op::kForward, k, stages, microbatches, chunks));
  }
  return WithTransfers(stage, stages, forwards, chunks);
}

std::vector<absl::Span<const Action>> Groups(absl::Span<const Action> actions) {
  std::vector<absl::Span<const Action>> groups;
  groups.reserve(actions.size());
  size_t begin = 0;
  while (begin < actions.size()) {
    size_t end = begin + 1;
    if (IsTransfer(actions[begin].op)) {
      while (end < actions.size() && IsTransfer(actions[end].op)) ++end;
    } else if (IsPass(actions[begin].op)) {
      while (end < actions.size() && actions[end].op == Op::kReduceGradients) ++end;
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
    if (action.op == Op::kBackward || action.op == Op::kBackwardWeight) --live;
  }
  return peak;
}

int64_t PeakLiveMicrobatches(const Layout& layout, int stage) {
  const int64_t microbatches = layout.gradient_accumulation_steps;
  const int64_t after = layout.pp - 1 - stage;
  switch (layout.pp_schedule) {
    case ScheduleKind::kGpipe:
      return microbatches;
    case ScheduleKind::kOneForwardOneBackward:
      return std::min(microbatches, after + 1);
    case ScheduleKind::kInterleaved:
      return std::min(
          microbatches * layout.virtual_stages,
          2 * after + (layout.virtual_stages - 1) * InterleavedTurn(layout.pp, microbatches) + 1);
    case ScheduleKind::kZeroBubbleH1:  // what 1F1B holds, and `stage` weight gradients put off
      return std::min<int64_t>(microbatches, layout.pp);
  }
  CHECK(false);
  return 0;
}

int64_t PeakLiveBlocks(const Layout& layout, int64_t num_blocks, int stage) {
  const int64_t live = PeakLiveMicrobatches(layout, stage);
  if (layout.virtual_stages == 1) return live * StageBlockCount(layout, num_blocks, stage);
  if (layout.gradient_accumulation_steps % layout.pp != 0) {
    return CountLiveBlocks(layout, num_blocks, stage);
  }
  const int64_t stages = layout.pp;
  const int64_t round = stages * layout.virtual_stages;  // passes until chunks take turns again
  const int64_t each = num_blocks / round;
  // `larger` of a round's chunks have one block more: the first chunks, so the first forwards and
  // the last backwards.
  const int64_t larger = std::max<int64_t>(0, num_blocks % round - stage + stages - 1) / stages;
  const int64_t large = larger * stages;
  if (large == 0) return live * each;
  const int64_t passes = layout.gradient_accumulation_steps * layout.virtual_stages;
  const int64_t warmup = live - 1;  // a forward and the backward `warmup` passes earlier are a pair
  // These return how many of the first `count` passes are large.
  const auto forwards = [&](int64_t count) {
    return count / round * large + std::min(count % round, large);
  };
  const auto backwards = [&](int64_t count) {
    return count / round * large + std::max<int64_t>(0, count % round - (round - large));
  };
  // Before each pair's backward. The number only turns down where the large forwards of a round
  // end, and where its large backwards begin.
  int64_t most = 0;
  const int64_t end_of_forwards = warmup + (large + round - live % round) % round;
  const int64_t start_of_backwards = warmup + round - large;
  for (const int64_t pass : {warmup, end_of_forwards, start_of_backwards, passes - 1}) {
    if (pass >= passes) continue;
    most = std::max(most, forwards(pass + 1) - backwards(pass - warmup));
  }
  return live * each + most;
}

bool SplitsBackward(const Layout& layout) {
  return layout.pp_schedule == ScheduleKind::kZeroBubbleH1 && layout.pp > 1;
}

int64_t PeakPendingMicrobatches(const Layout& layout, int stage) {
  if (!SplitsBackward(layout)) return 0;
  return std::min<int64_t>(layout.gradient_accumulation_steps, stage + 1);
}

std::string ActionText(const Action& action) {
  const std::string m = action.chunk == 0 ? absl::StrCat(action.microbatch)
                                          : absl::StrCat(action.microbatch, ".", action.chunk);
  switch (action.op) {
    case Op::kForward:
      return absl::StrCat("F", m);
    case Op::kBackward:
    case Op::kBackwardInput:
      return absl::StrCat("B", m);
    case Op::kBackwardWeight:
      return absl::StrCat("W", m);
    case Op::kRecvActivation:
      return absl::StrCat("recv_act", m);
    case Op::kSendActivation:
      return absl::StrCat("send_act", m);
    case Op::kRecvGradient:
      return absl::StrCat("recv_grad", m);
    case Op::kSendGradient:
      return absl::StrCat("send_grad", m);
    case Op::kReduceParts:
      return "reduce_parts";
    case Op::kReduceTiedEmbedding:
      return "reduce_tied";
    case Op::kReduceGradients:
      return absl::StrCat("reduce_grads", action.bucket);
    case Op::kAwaitGradients:
      return "await_grads";
    case Op::kGatherParameters:
      return absl::StrCat("gather_params", action.bucket);
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
