#include "plan/simulate.h"

#include <algorithm>
#include <deque>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/errors.h"

namespace weft {
namespace {

struct Posted {
  Action action;
  double at_s = 0;
};

// Messages of one kind from a stage to its neighbour: send k meets receive k, as Comm::Exchange
// pairs them.
struct Channel {
  int sender = 0;
  int receiver = 0;
  std::vector<Posted> sends;
  std::vector<Posted> receives;

  bool matched(size_t index) const { return index < std::min(sends.size(), receives.size()); }
};

struct StageState {
  std::vector<absl::Span<const Action>> groups;
  size_t next = 0;  // the group to run
  // Transfers of that group that are posted, as (channel, index in it); empty: not posted yet.
  std::vector<std::pair<Channel*, size_t>> posted;
  std::set<int> live;  // microbatches between forward and backward
  int peak_live = 0;
  double clock_s = 0;
  double busy_s = 0;
  std::vector<TimedAction> timeline;
};

// Runs every stage until it waits for a partner, wakes it when the partner posts. Each post wakes
// one stage, so the work is bounded by the number of actions.
class DryRun {
 public:
  DryRun(absl::Span<const std::vector<Action>> stages, absl::Span<const ActionSeconds> seconds)
      : seconds_(seconds), states_(stages.size()) {
    const int count = static_cast<int>(stages.size());
    for (int s = 0; s < count; ++s) {
      states_[s].groups = Groups(stages[s]);
      activations_.push_back({.sender = s, .receiver = s + 1, .sends = {}, .receives = {}});
      gradients_.push_back({.sender = s + 1, .receiver = s, .sends = {}, .receives = {}});
      awake_.push_back(s);
    }
  }

  absl::Status Run() {
    while (!awake_.empty()) {
      const int stage = awake_.front();
      awake_.pop_front();
      RETURN_IF_ERROR(Advance(stage));
    }
    return Stuck();
  }

  Simulation Result() const {
    Simulation result;
    double busy_s = 0;
    for (const StageState& state : states_) {
      result.makespan_s = std::max(result.makespan_s, state.clock_s);
      result.peak_live.push_back(state.peak_live);
      result.busy_s.push_back(state.busy_s);
      result.timeline.push_back(state.timeline);
      busy_s += state.busy_s;
    }
    const double stage_seconds = result.makespan_s * static_cast<double>(states_.size());
    if (stage_seconds > 0) result.bubble_fraction = 1 - busy_s / stage_seconds;
    return result;
  }

 private:
  const ActionSeconds& SecondsOf(int stage) const {
    return seconds_[seconds_.size() == 1 ? 0 : static_cast<size_t>(stage)];
  }

  absl::Status Advance(int stage) {
    StageState& state = states_[stage];
    while (state.next < state.groups.size()) {
      const absl::Span<const Action> group = state.groups[state.next];
      if (IsTransfer(group.front().op)) {
        if (state.posted.empty()) {
          for (const Action& action : group) RETURN_IF_ERROR(Post(stage, action));
        }
        for (const auto& [channel, index] : state.posted) {
          if (!channel->matched(index)) return absl::OkStatus();
        }
        Finish(state);
      } else {
        RETURN_IF_ERROR(Compute(stage, group.front()));
      }
      ++state.next;
    }
    return absl::OkStatus();
  }

  // All transfers of the group are matched: each takes its time from the later of its two ends.
  void Finish(StageState& state) {
    for (const auto& [channel, index] : state.posted) {
      const double start_s = std::max(channel->sends[index].at_s, channel->receives[index].at_s);
      state.clock_s = std::max(state.clock_s, start_s + SecondsOf(channel->sender).transfer_s);
    }
    state.posted.clear();
  }

  absl::Status Compute(int stage, const Action& action) {
    StageState& state = states_[stage];
    double duration_s = 0;
    const bool is_pass = action.op == Op::kForward || action.op == Op::kBackward;
    if (action.op == Op::kForward) {
      duration_s = SecondsOf(stage).forward_s;
      state.live.insert(action.microbatch);
      state.peak_live = std::max(state.peak_live, static_cast<int>(state.live.size()));
    } else if (action.op == Op::kBackward) {
      duration_s = SecondsOf(stage).backward_s;
      if (state.live.erase(action.microbatch) == 0) {
        return absl::InternalError(absl::StrCat("schedule is broken: stage ", stage, " runs ",
                                                ActionText(action),
                                                " without the activations of its forward pass"));
      }
    }
    if (is_pass) state.timeline.push_back({action, state.clock_s, state.clock_s + duration_s});
    state.clock_s += duration_s;
    state.busy_s += duration_s;
    return absl::OkStatus();
  }

  absl::Status Post(int stage, const Action& action) {
    const int last = static_cast<int>(states_.size()) - 1;
    const bool send = action.op == Op::kSendActivation || action.op == Op::kSendGradient;
    const bool to_next = action.op == Op::kSendActivation || action.op == Op::kRecvGradient;
    if (to_next ? stage == last : stage == 0) {
      return absl::InternalError(absl::StrCat("schedule is broken: stage ", stage, " of ",
                                              states_.size(), " has no neighbour for ",
                                              ActionText(action)));
    }
    const bool activation = action.op == Op::kSendActivation || action.op == Op::kRecvActivation;
    const int lower = to_next ? stage : stage - 1;  // channels are named by the earlier stage
    Channel& channel = activation ? activations_[lower] : gradients_[lower];
    std::vector<Posted>& own = send ? channel.sends : channel.receives;
    own.push_back({action, states_[stage].clock_s});
    states_[stage].posted.emplace_back(&channel, own.size() - 1);
    awake_.push_back(send ? channel.receiver : channel.sender);
    return Agree(channel, own.size() - 1);
  }

  static absl::Status Agree(const Channel& channel, size_t index) {
    if (!channel.matched(index)) return absl::OkStatus();
    const Action& sent = channel.sends[index].action;
    const Action& expected = channel.receives[index].action;
    if (sent.microbatch == expected.microbatch && sent.chunk == expected.chunk) {
      return absl::OkStatus();
    }
    return absl::InternalError(absl::StrCat("schedules disagree: stage ", channel.sender, " runs ",
                                            ActionText(sent), " where stage ", channel.receiver,
                                            " runs ", ActionText(expected)));
  }

  absl::Status Stuck() const {
    std::vector<std::string> waits;
    for (size_t stage = 0; stage < states_.size(); ++stage) {
      const StageState& state = states_[stage];
      if (state.next == state.groups.size()) continue;
      std::vector<std::string> actions;
      const absl::Span<const Action> group = state.groups[state.next];
      for (size_t i = 0; i < group.size(); ++i) {
        const auto& [channel, index] = state.posted[i];
        if (!channel->matched(index)) actions.push_back(ActionText(group[i]));
      }
      waits.push_back(absl::StrCat("stage ", stage, " waits in ", absl::StrJoin(actions, " and ")));
    }
    if (waits.empty()) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("schedules deadlock: ", absl::StrJoin(waits, ", ")));
  }

  absl::Span<const ActionSeconds> seconds_;
  std::vector<StageState> states_;
  std::vector<Channel> activations_;  // [i]: from stage i to stage i + 1
  std::vector<Channel> gradients_;    // [i]: from stage i + 1 to stage i
  std::deque<int> awake_;
};

// All forwards pass as in a flow shop of equal jobs, then all backwards. Each border is crossed
// once to fill and once to drain, then a stage exchanges once per pass.
double GpipeSeconds(absl::Span<const ActionSeconds> stages, double microbatches) {
  double fill_s = 0;
  double slowest_forward_s = 0;
  double slowest_backward_s = 0;
  for (const ActionSeconds& stage : stages) {
    fill_s += stage.forward_s + stage.backward_s;
    slowest_forward_s = std::max(slowest_forward_s, stage.forward_s);
    slowest_backward_s = std::max(slowest_backward_s, stage.backward_s);
  }
  const auto borders = static_cast<double>(stages.size() - 1);
  const double exchange_s = borders > 0 ? 2 * stages.front().transfer_s : 0;
  return fill_s + borders * exchange_s +
         (microbatches - 1) * (slowest_forward_s + slowest_backward_s + exchange_s);
}

// Every stage bounds the step: the first microbatch has to reach it and the last to leave it, in
// between it is busy, but for what the stages after it need longer than its own warmup forwards
// (and, at the end, its cooldown backwards) to turn a microbatch around. Each pass pays for what it
// receives.
double OneForwardOneBackwardSeconds(absl::Span<const ActionSeconds> stages, double microbatches) {
  const size_t last = stages.size() - 1;
  const auto forward_s = [&](size_t stage) {
    return stages[stage].forward_s + (stage > 0 ? stages[stage].transfer_s : 0);
  };
  const auto backward_s = [&](size_t stage) {
    return stages[stage].backward_s + (stage < last ? stages[stage].transfer_s : 0);
  };
  double after_s = 0;
  for (size_t stage = 0; stage <= last; ++stage) after_s += forward_s(stage) + backward_s(stage);
  double before_s = 0;
  double bound_s = 0;
  for (size_t stage = 0; stage <= last; ++stage) {
    const double cycle_s = forward_s(stage) + backward_s(stage);
    after_s -= cycle_s;
    const auto warmup = static_cast<double>(last - stage);
    const double others = std::min(warmup, microbatches - 1);
    const double at_start_s = std::max(0.0, after_s - others * forward_s(stage));
    const double at_end_s = std::max(0.0, after_s - others * backward_s(stage));
    // With few microbatches the two waits are one and the same.
    const double idle_s =
        microbatches > warmup ? at_start_s + at_end_s : std::max(at_start_s, at_end_s);
    bound_s = std::max(bound_s, before_s + microbatches * cycle_s + idle_s);
    before_s += cycle_s;
  }
  return bound_s;
}

}  // namespace

absl::StatusOr<Simulation> Simulate(absl::Span<const std::vector<Action>> stages,
                                    absl::Span<const ActionSeconds> seconds) {
  CHECK(!stages.empty());
  CHECK(seconds.size() == 1 || seconds.size() == stages.size());
  DryRun run(stages, seconds);
  RETURN_IF_ERROR(run.Run());
  return run.Result();
}

double PipelineSeconds(ScheduleKind kind, absl::Span<const ActionSeconds> stages,
                       int64_t microbatches) {
  CHECK(!stages.empty() && microbatches >= 1);
  const auto count = static_cast<double>(microbatches);
  if (kind == ScheduleKind::kGpipe) return GpipeSeconds(stages, count);
  return OneForwardOneBackwardSeconds(stages, count);
}

}  // namespace weft
