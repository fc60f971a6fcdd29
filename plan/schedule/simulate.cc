#include "plan/schedule/simulate.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/errors.h"

namespace weft {
namespace {

struct Posted {
  const Action* action = nullptr;
  double at_s = 0;
};

// Messages from a stage to a neighbour: send k meets receive k, as Comm::Exchange pairs them.
struct Channel {
  int sender = 0;
  int receiver = 0;
  std::vector<Posted> waiting;  // in order; the first `met` are done
  size_t met = 0;
  bool sends_wait = false;  // waiting are all sends, or all receives

  bool empty() const { return met == waiting.size(); }
  Posted Take() {
    const Posted first = waiting[met++];
    if (empty()) {
      waiting.clear();
      met = 0;
    }
    return first;
  }
};

// A stage keeps one of these of a microbatch's pass through a chunk.
enum class Kept : char { kNothing, kActivations, kForWeightGradient };

struct StageState {
  absl::Span<const Action> actions;
  size_t next = 0;     // to run; of neighbouring transfers, which are posted together, the first
  size_t posted = 0;   // those transfers, once they are posted
  int unmatched = 0;   // of them: whose partners have not posted yet
  double ready_s = 0;  // when the others of them are done
  std::vector<Kept> kept;  // by microbatch * chunks + chunk
  int live = 0;            // how many of them
  int peak_live = 0;
  double clock_s = 0;
  double busy_s = 0;
  size_t passes = 0;  // done, where their durations are measured
  std::vector<TimedAction> timeline;
};

// Runs every stage until it waits for partners, wakes it when the last of them posts, so the work
// is bounded by the number of actions.
class DryRun {
 public:
  DryRun(absl::Span<const std::vector<Action>> stages, absl::Span<const ActionSeconds> seconds)
      : seconds_(seconds), num_stages_(static_cast<int>(stages.size())), states_(stages.size()) {
    const int count = num_stages_;
    for (int s = 0; s < count; ++s) {
      states_[s].actions = stages[s];
      states_[s].timeline.reserve(stages[s].size());
      for (const Action& action : stages[s]) chunks_ = std::max(chunks_, action.chunk + 1);
      // With two stages the next one is the one before as well: there is one channel each way.
      channels_.push_back({.sender = s, .receiver = (s + 1) % count, .waiting = {}});
      channels_.push_back({.sender = s, .receiver = (s + count - 1) % count, .waiting = {}});
      awake_.push_back(s);
    }
  }

  // Durations of passes, by stage, in the order of its list; borrowed.
  void SetMeasured(absl::Span<const std::vector<double>> pass_s) { measured_ = pass_s; }

  absl::Status Run() {
    while (!awake_.empty()) {
      const int stage = awake_.back();
      awake_.pop_back();
      RETURN_IF_ERROR(Advance(stage));
    }
    return Stuck();
  }

  // Call once: it gives the timelines away.
  Simulation Result() {
    Simulation result;
    double busy_s = 0;
    for (StageState& state : states_) {
      result.makespan_s = std::max(result.makespan_s, state.clock_s);
      result.peak_live.push_back(state.peak_live);
      result.busy_s.push_back(state.busy_s);
      result.timeline.push_back(std::move(state.timeline));
      busy_s += state.busy_s;
    }
    const double stage_seconds = result.makespan_s * static_cast<double>(states_.size());
    if (stage_seconds > 0) result.bubble_fraction = 1 - busy_s / stage_seconds;
    return result;
  }

 private:
  int stages() const { return num_stages_; }

  const ActionSeconds& SecondsOf(int stage, int chunk) const {
    if (seconds_.size() == 1) return seconds_[0];
    const bool by_chunk = seconds_.size() > states_.size();
    const int index = (by_chunk ? chunk : 0) * stages() + stage;
    CHECK(static_cast<size_t>(index) < seconds_.size());
    return seconds_[static_cast<size_t>(index)];
  }

  absl::Status Advance(int stage) {
    StageState& state = states_[stage];
    while (state.next < state.actions.size()) {
      const Action& action = state.actions[state.next];
      if (!IsTransfer(action.op)) {
        if (IsPass(action.op)) RETURN_IF_ERROR(Compute(stage, action));
        ++state.next;
        continue;
      }
      if (state.posted == 0) RETURN_IF_ERROR(PostGroup(stage));
      if (state.unmatched > 0) return absl::OkStatus();
      state.clock_s = std::max(state.clock_s, state.ready_s);
      state.next += std::exchange(state.posted, 0);
    }
    return absl::OkStatus();
  }

  absl::Status PostGroup(int stage) {
    StageState& state = states_[stage];
    for (size_t i = state.next; i < state.actions.size() && IsTransfer(state.actions[i].op); ++i) {
      RETURN_IF_ERROR(Post(stage, state.actions[i]));
      ++state.posted;
    }
    return absl::OkStatus();
  }

  absl::Status Compute(int stage, const Action& action) {
    StageState& state = states_[stage];
    RETURN_IF_ERROR(Keep(stage, action));
    const ActionSeconds& seconds = SecondsOf(stage, action.chunk);
    double duration_s = 0;
    if (action.op == Op::kForward) duration_s = seconds.forward_s;
    if (action.op == Op::kBackward) duration_s = seconds.backward_s;
    if (action.op == Op::kBackwardInput)
      duration_s = seconds.backward_s - seconds.weight_gradient_s;
    if (action.op == Op::kBackwardWeight) duration_s = seconds.weight_gradient_s;
    if (!measured_.empty()) {
      const std::vector<double>& own = measured_[static_cast<size_t>(stage)];
      CHECK(state.passes < own.size());
      duration_s = own[state.passes++];
    }
    state.timeline.push_back({action, state.clock_s, state.clock_s + duration_s});
    state.clock_s += duration_s;
    state.busy_s += duration_s;
    return absl::OkStatus();
  }

  absl::Status Keep(int stage, const Action& action) {
    StageState& state = states_[stage];
    const int place = action.microbatch * chunks_ + action.chunk;
    const auto index = static_cast<size_t>(place);
    if (index >= state.kept.size()) state.kept.resize(2 * index + 1, Kept::kNothing);
    Kept& kept = state.kept[index];
    const auto broken = [&](absl::string_view without) {
      return absl::InternalError(
          absl::StrCat("schedule is broken: stage ", stage, " runs ", ActionText(action), without));
    };
    if (action.op == Op::kForward) {
      if (kept != Kept::kNothing) return broken(" twice");
      state.peak_live = std::max(state.peak_live, ++state.live);
      kept = Kept::kActivations;
    } else if (action.op == Op::kBackwardWeight) {
      if (kept != Kept::kForWeightGradient) return broken(" without its input gradient");
      --state.live;
      kept = Kept::kNothing;
    } else {
      if (kept != Kept::kActivations) return broken(" without the activations of its forward pass");
      if (action.op == Op::kBackward) --state.live;
      kept = action.op == Op::kBackward ? Kept::kNothing : Kept::kForWeightGradient;
    }
    return absl::OkStatus();
  }

  static bool IsActivation(Op op) { return op == Op::kSendActivation || op == Op::kRecvActivation; }
  static bool IsSend(Op op) { return op == Op::kSendActivation || op == Op::kSendGradient; }

  static bool IsToNext(const Action& transfer) {
    return transfer.op == Op::kSendActivation || transfer.op == Op::kRecvGradient;
  }

  // Returns the border that a transfer crosses: the lower of the two virtual stages.
  int BorderOf(int stage, const Action& transfer) const {
    return transfer.chunk * stages() + stage - (IsToNext(transfer) ? 0 : 1);
  }

  absl::Status Post(int stage, const Action& action) {
    const int border = BorderOf(stage, action);
    if (border < 0 || border >= chunks_ * stages() - 1) {
      return absl::InternalError(absl::StrCat("schedule is broken: stage ", stage, " of ",
                                              states_.size(), " has no neighbour for ",
                                              ActionText(action)));
    }
    const int peer = IsToNext(action) ? (stage + 1 == stages() ? 0 : stage + 1)
                                      : (stage == 0 ? stages() - 1 : stage - 1);
    const bool sends = IsSend(action.op);
    const int sender = sends ? stage : peer;
    const bool up = IsActivation(action.op) || stages() == 2;
    const int place = 2 * sender + (up ? 0 : 1);
    Channel& channel = channels_[static_cast<size_t>(place)];
    StageState& state = states_[stage];
    const Posted own = {&action, state.clock_s};
    if (channel.empty() || channel.sends_wait == sends) {
      channel.sends_wait = sends;
      channel.waiting.push_back(own);
      ++state.unmatched;
      return absl::OkStatus();
    }
    const Posted other = channel.Take();
    const Action& sent = sends ? action : *other.action;
    const double start_s = std::max(own.at_s, other.at_s);
    const double end_s = start_s + SecondsOf(sender, sent.chunk).transfer_s;
    StageState& partner = states_[peer];
    state.ready_s = std::max(state.ready_s, end_s);
    partner.ready_s = std::max(partner.ready_s, end_s);
    if (--partner.unmatched == 0) awake_.push_back(peer);
    const bool agree = action.microbatch == other.action->microbatch &&
                       IsActivation(action.op) == IsActivation(other.action->op) &&
                       border == BorderOf(peer, *other.action);
    return agree ? absl::OkStatus() : Disagreement(channel, sent, sends ? *other.action : action);
  }

  static absl::Status Disagreement(const Channel& channel, const Action& sent,
                                   const Action& expected) {
    return absl::InternalError(absl::StrCat("schedules disagree: stage ", channel.sender, " runs ",
                                            ActionText(sent), " where stage ", channel.receiver,
                                            " runs ", ActionText(expected)));
  }

  bool Waits(int stage, const Action& action) const {
    for (const Channel& channel : channels_) {
      for (size_t i = channel.met; i < channel.waiting.size(); ++i) {
        const Action& waiting = *channel.waiting[i].action;
        const int owner = IsSend(waiting.op) ? channel.sender : channel.receiver;
        if (owner == stage && waiting == action) return true;
      }
    }
    return false;
  }

  absl::Status Stuck() const {
    std::vector<std::string> waits;
    for (size_t stage = 0; stage < states_.size(); ++stage) {
      const StageState& state = states_[stage];
      if (state.next == state.actions.size()) continue;
      std::vector<std::string> actions;
      for (const Action& action : state.actions.subspan(state.next, state.posted)) {
        if (Waits(static_cast<int>(stage), action)) actions.push_back(ActionText(action));
      }
      waits.push_back(absl::StrCat("stage ", stage, " waits in ", absl::StrJoin(actions, " and ")));
    }
    if (waits.empty()) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("schedules deadlock: ", absl::StrJoin(waits, ", ")));
  }

  absl::Span<const ActionSeconds> seconds_;
  int num_stages_;
  absl::Span<const std::vector<double>> measured_;  // empty: seconds_ say how long passes are
  std::vector<StageState> states_;
  int chunks_ = 1;
  std::vector<Channel> channels_;  // [2 * sender]: to the next stage, then to the one before
  std::vector<int> awake_;
};

}  // namespace

absl::StatusOr<Simulation> Simulate(absl::Span<const std::vector<Action>> stages,
                                    absl::Span<const ActionSeconds> seconds) {
  CHECK(!stages.empty() && !seconds.empty());
  CHECK(seconds.size() == 1 || seconds.size() % stages.size() == 0);
  DryRun run(stages, seconds);
  RETURN_IF_ERROR(run.Run());
  return run.Result();
}

absl::StatusOr<Simulation> Replay(absl::Span<const std::vector<Action>> stages,
                                  absl::Span<const std::vector<double>> pass_s, double transfer_s) {
  CHECK(!stages.empty() && stages.size() == pass_s.size());
  const ActionSeconds seconds = {.transfer_s = transfer_s};
  DryRun run(stages, {&seconds, 1});
  run.SetMeasured(pass_s);
  RETURN_IF_ERROR(run.Run());
  return run.Result();
}

}  // namespace weft
