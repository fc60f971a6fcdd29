// A person sees this while a job runs: one live line on a terminal that can redraw it, elsewhere
// one plain line every metrics.log_freq steps, and a line for each change of phase. Text is made by
// pure functions; time comes from the events. Not thread-safe.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "proto/weft/v1/control.pb.h"

namespace weft {

struct ProgressState {
  int64_t step = 0;
  int64_t steps = 0;
  double loss = 0;
  std::optional<double> valid_loss;  // the newest
  int64_t valid_step = 0;            // at which it was measured
  int64_t skipped_steps = 0;         // of the run so far: loss or gradient norm was not finite
  double tokens_per_s = 0;           // smoothed
  double step_s = 0;                 // smoothed
  int64_t generation = 0;
  int64_t peak_bytes = 0;     // largest worker so far
  int64_t planned_bytes = 0;  // of the largest rank, libraries included
};

// "step 120/300  loss 2.3456  valid 2.4012 @80  35.2 k tokens/s  eta 1:23  gen 1  mem 0.31/0.40
// GiB", and "skipped 2" before the speed where steps were. "@80": the validation was at another
// step. Of a terminal of so many columns the line leaves the last one free, and leaves out what
// matters least until it fits; 0: there is room for all.
std::string ProgressLine(const ProgressState& state, int columns);

// "1:05", "2:03:04", "3 d 04 h"
std::string DurationText(double seconds);

// A reason may go on with the last lines of a log: those are indented, at most `max_lines` of them.
std::string ReasonText(const std::string& reason, int max_lines);

class Progress {
 public:
  struct Options {
    // Returns the columns that a terminal has now if it can draw the live line anew; 0: plain
    // lines. Null: always plain.
    std::function<int()> columns = nullptr;
    int64_t log_freq = 10;
    int64_t steps = 0;
    int64_t planned_bytes = 0;
    std::function<void(const std::string&)> write;  // raw text, with its newlines
  };
  explicit Progress(Options options) : options_(std::move(options)) {
    state_.steps = options_.steps;
    state_.planned_bytes = options_.planned_bytes;
  }

  void Take(const v1::Event& event);
  // A line of its own, above the live line.
  void Say(const std::string& line);
  // Ends the live line, if there is one.
  void Finish();

  const ProgressState& state() const { return state_; }
  int64_t saved_step() const { return saved_step_; }
  // Mean over all steps seen, without the first of each generation if there are others. 0: no step
  // was seen.
  double mean_tokens_per_s() const {
    return (later_steps_.seconds > 0 ? later_steps_ : first_steps_).tokens_per_s();
  }

 private:
  struct SpeedSum {
    double tokens = 0;
    double seconds = 0;
    double tokens_per_s() const { return seconds > 0 ? tokens / seconds : 0; }
  };
  void TakeStep(const v1::Step& step);

  Options options_;
  ProgressState state_;
  int64_t saved_step_ = 0;
  SpeedSum first_steps_;  // of generations: slower, as everything is touched for the first time
  SpeedSum later_steps_;
  bool first_of_generation_ = true;
  bool live_line_ = false;
  std::string last_phase_;
  std::string not_written_;  // as the newest step said
};

}  // namespace weft
