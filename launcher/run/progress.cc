#include "launcher/run/progress.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace weft {
namespace {

// Weight of the newest step in the smoothed speed.
constexpr double kNewest = 0.1;

std::string GibText(int64_t bytes) {
  return absl::StrFormat("%.2f", static_cast<double>(bytes) / (1 << 30));
}

std::string SpeedText(double tokens_per_s) {
  if (tokens_per_s >= 1e6) return absl::StrFormat("%.2f M tokens/s", tokens_per_s / 1e6);
  if (tokens_per_s >= 1e4) return absl::StrFormat("%.1f k tokens/s", tokens_per_s / 1e3);
  return absl::StrFormat("%.0f tokens/s", tokens_per_s);
}

}  // namespace

std::string DurationText(double seconds) {
  const int64_t whole = std::llround(std::max(0.0, std::min(seconds, 1e9)));
  const int64_t hours = whole / 3600;
  if (hours >= 48) return absl::StrFormat("%d d %02d h", hours / 24, hours % 24);
  if (hours > 0) return absl::StrFormat("%d:%02d:%02d", hours, whole / 60 % 60, whole % 60);
  return absl::StrFormat("%d:%02d", whole / 60, whole % 60);
}

std::string ProgressLine(const ProgressState& state, int columns) {
  // A line that is too long loses the parts with the highest `leaves` first; 0 stays.
  struct Part {
    int leaves;
    std::string text;
  };
  std::vector<Part> parts = {{0, absl::StrFormat("step %d/%d", state.step, state.steps)},
                             {0, absl::StrFormat("loss %.4f", state.loss)}};
  if (state.valid_loss) {
    const std::string at =
        state.valid_step == state.step ? "" : absl::StrCat(" @", state.valid_step);
    parts.push_back({3, absl::StrFormat("valid %.4f%s", *state.valid_loss, at)});
  }
  if (state.skipped_steps > 0) {
    parts.push_back({4, absl::StrCat("skipped ", state.skipped_steps)});
  }
  const double left_s = static_cast<double>(state.steps - state.step) * state.step_s;
  parts.push_back({2, SpeedText(state.tokens_per_s)});
  parts.push_back({1, absl::StrCat("eta ", DurationText(left_s))});
  parts.push_back({5, absl::StrCat("gen ", state.generation)});
  if (state.peak_bytes > 0) {
    parts.push_back({6, absl::StrCat("mem ", GibText(state.peak_bytes), "/",
                                     GibText(state.planned_bytes), " GiB")});
  }
  constexpr int kMostThatLeave = 6;
  std::string line;
  for (int kept = kMostThatLeave; kept >= 0; --kept) {
    line.clear();
    for (const Part& part : parts) {
      if (part.leaves <= kept) absl::StrAppend(&line, line.empty() ? "" : "  ", part.text);
    }
    if (columns == 0 || std::ssize(line) < columns) return line;
  }
  return line.substr(0, static_cast<size_t>(std::max(0, columns - 1)));
}

std::string ReasonText(const std::string& reason, int max_lines) {
  const std::vector<std::string> lines = absl::StrSplit(reason, '\n', absl::SkipWhitespace());
  std::string text = lines.empty() ? "" : lines[0];
  for (size_t i = 1; i < lines.size() && i <= static_cast<size_t>(max_lines); ++i) {
    absl::StrAppend(&text, "\n  | ", lines[i]);
  }
  return text;
}

void Progress::Say(const std::string& line) {
  options_.write(absl::StrCat(live_line_ ? "\r\033[K" : "", line, "\n"));
  live_line_ = false;
}

void Progress::Finish() {
  if (live_line_) options_.write("\n");
  live_line_ = false;
}

void Progress::TakeStep(const v1::Step& step) {
  const double tokens_per_s =
      step.step_s() > 0 ? static_cast<double>(step.tokens()) / step.step_s() : 0;
  const double weight = first_of_generation_ ? 1.0 : kNewest;
  SpeedSum& sum = first_of_generation_ ? first_steps_ : later_steps_;
  sum.tokens += static_cast<double>(step.tokens());
  sum.seconds += step.step_s();
  first_of_generation_ = false;
  state_.step = step.step();
  state_.loss = step.loss();
  state_.skipped_steps = step.skipped_steps();
  if (step.skipped()) {
    const std::string scale =
        step.loss_scale() > 0 ? absl::StrFormat(", loss scale %g", step.loss_scale()) : "";
    Say(absl::StrFormat("step %d skipped: loss %g, gradient norm %g%s", step.step(), step.loss(),
                        step.grad_norm(), scale));
  }
  if (step.not_written() != not_written_) {
    not_written_ = step.not_written();
    Say(not_written_.empty() ? "metrics.jsonl has all lines again"
                             : absl::StrCat("warning: ", not_written_));
  }
  if (step.has_valid_loss()) {
    state_.valid_loss = step.valid_loss();
    state_.valid_step = step.step();
  }
  state_.tokens_per_s += weight * (tokens_per_s - state_.tokens_per_s);
  state_.step_s += weight * (step.step_s() - state_.step_s);
  state_.peak_bytes = std::max(state_.peak_bytes, step.peak_bytes());
  const int columns = options_.columns ? options_.columns() : 0;
  if (columns > 0) {
    options_.write(absl::StrCat("\r\033[K", ProgressLine(state_, columns)));
    live_line_ = true;
  } else if (step.step() % options_.log_freq == 0 || step.step() == state_.steps ||
             step.stopping()) {
    options_.write(ProgressLine(state_, 0) + "\n");
  }
}

void Progress::Take(const v1::Event& event) {
  if (event.generation() > state_.generation) {
    state_.generation = event.generation();
    first_of_generation_ = true;
  }
  switch (event.event_case()) {
    case v1::Event::kStep:
      TakeStep(event.step());
      break;
    case v1::Event::kPhase: {
      // The lost rank's last lines were shown with it.
      const std::string reason = ReasonText(event.phase().reason(), 0);
      const std::string line =
          absl::StrCat(event.phase().phase(), reason.empty() ? "" : ": ", reason);
      if (line != last_phase_) Say(absl::StrCat("[gen ", state_.generation, "] ", line));
      last_phase_ = line;
      break;
    }
    case v1::Event::kCommitted:
      saved_step_ = event.committed().step();
      Say(absl::StrCat("saved ", event.committed().folder()));
      break;
    case v1::Event::kNotSaved: {
      const v1::NotSaved& save = event.not_saved();
      const std::string who = save.rank() < 0 ? "" : absl::StrCat("rank ", save.rank(), ": ");
      Say(absl::StrCat("NOT SAVED: step ", save.step(), ": ", who, save.reason(),
                       "; the last checkpoint is of step ", save.saved_step()));
      break;
    }
    case v1::Event::kLost:
      Say(absl::StrCat("lost ", ReasonText(event.lost().reason(), 8)));
      break;
    default:
      break;
  }
}

}  // namespace weft
