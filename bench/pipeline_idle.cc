#include "bench/pipeline_idle.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "plan/errors.h"
#include "plan/schedule/simulate.h"

namespace weft {
namespace {

struct Event {
  std::string name;
  double begin_s = 0, end_s = 0;
};

struct Timed {
  absl::Span<const Action> group;
  double begin_s = 0, end_s = 0;
};

absl::StatusOr<std::vector<Event>> ReadEvents(const std::string& path) {
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("traceEvents")) {
    return absl::DataLossError(absl::StrCat(path, ": no trace"));
  }
  std::vector<Event> events;
  for (const auto& each : json.at("traceEvents")) {
    if (each.value("ph", "") != "X") continue;
    const double begin_s = 1e-6 * each.at("ts").get<double>();
    const double end_s = begin_s + 1e-6 * each.at("dur").get<double>();
    events.push_back({each.at("name").get<std::string>(), begin_s, end_s});
  }
  return events;
}

// The schedule's groups with the times of their events, which must be the same, in order.
absl::StatusOr<std::vector<Timed>> Match(const std::string& path,
                                         absl::Span<const Action> schedule) {
  ASSIGN_OR_RETURN(const std::vector<Event> events, ReadEvents(path));
  std::vector<Timed> timed;
  for (const absl::Span<const Action> group : Groups(schedule)) {
    std::string name;
    for (const Action& action : group) {
      if (IsPass(group.front().op) && !name.empty()) break;  // reductions that start inside
      absl::StrAppend(&name, name.empty() ? "" : " ", ActionText(action));
    }
    if (timed.size() >= events.size() || events[timed.size()].name != name) {
      return absl::DataLossError(
          absl::StrCat(path, ": event ", timed.size(), " is not ", name, " of the schedule"));
    }
    const Event& event = events[timed.size()];
    timed.push_back({group, event.begin_s, event.end_s});
  }
  return timed;
}

// Returns what a transfer takes once both ends are there: the median of all transfers between the
// stages.
double MedianTransferSeconds(const std::vector<std::vector<Timed>>& stages) {
  // Sends by (stage, what, microbatch, chunk of the receiver does not matter: one chunk).
  std::map<std::pair<int, std::string>, double> sent_at;
  const int count = static_cast<int>(stages.size());
  for (int stage = 0; stage < count; ++stage) {
    for (const Timed& timed : stages[static_cast<size_t>(stage)]) {
      for (const Action& action : timed.group) {
        if (action.op == Op::kSendActivation || action.op == Op::kSendGradient) {
          sent_at[{PeerStage(action.op, stage, count),
                   ActionText({.op = action.op == Op::kSendActivation ? Op::kRecvActivation
                                                                      : Op::kRecvGradient,
                               .microbatch = action.microbatch})}] = timed.begin_s;
        }
      }
    }
  }
  std::vector<double> seconds;
  for (int stage = 0; stage < count; ++stage) {
    for (const Timed& timed : stages[static_cast<size_t>(stage)]) {
      double begin_s = timed.begin_s;
      bool receives = false;
      for (const Action& action : timed.group) {
        const auto sent = sent_at.find({stage, ActionText(action)});
        if (sent == sent_at.end()) continue;
        begin_s = std::max(begin_s, sent->second);
        receives = true;
      }
      if (receives) seconds.push_back(std::max(0.0, timed.end_s - begin_s));
    }
  }
  if (seconds.empty()) return 0;
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

absl::StatusOr<PipelineIdle> FindPipelineIdle(absl::Span<const std::string> traces,
                                              absl::Span<const std::vector<Action>> schedules) {
  CHECK(traces.size() == schedules.size());
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<Timed>> stages;
  for (size_t stage = 0; stage < traces.size(); ++stage) {
    ASSIGN_OR_RETURN(stages.emplace_back(), Match(traces[stage], schedules[stage]));
  }
  std::vector<std::vector<double>> pass_s;
  std::vector<double> busy_s;
  double first_s = kNever, last_s = -kNever;           // of all passes
  double step_begin_s = kNever, step_end_s = -kNever;  // of everything
  for (const std::vector<Timed>& stage : stages) {
    std::vector<double>& passes = pass_s.emplace_back();
    double& busy = busy_s.emplace_back(0);
    for (const Timed& timed : stage) {
      step_begin_s = std::min(step_begin_s, timed.begin_s);
      step_end_s = std::max(step_end_s, timed.end_s);
      if (!IsPass(timed.group.front().op)) continue;
      passes.push_back(timed.end_s - timed.begin_s);
      busy += passes.back();
      first_s = std::min(first_s, timed.begin_s);
      last_s = std::max(last_s, timed.end_s);
    }
  }
  PipelineIdle idle = {.step_s = step_end_s - step_begin_s,
                       .transfer_s = MedianTransferSeconds(stages),
                       .measured_idle_s = {},
                       .replayed_idle_s = {}};
  ASSIGN_OR_RETURN(const Simulation replayed, Replay(schedules, pass_s, idle.transfer_s));
  // The replay ends with the last pass, as the measurement does: a transfer after it is not waited
  // for.
  double end_s = 0;
  for (const auto& timeline : replayed.timeline) end_s = std::max(end_s, timeline.back().end_s);
  for (const double busy : busy_s) {
    idle.measured_idle_s.push_back(last_s - first_s - busy);
    idle.replayed_idle_s.push_back(end_s - busy);
  }
  return idle;
}

}  // namespace weft
