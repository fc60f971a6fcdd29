#include "plan/explain/schedule_svg.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plan/errors.h"
#include "plan/estimate/step_estimate.h"
#include "plan/schedule/schedule.h"
#include "plan/schedule/step_schedule.h"

namespace weft {
namespace {

constexpr int kShownRounds = 3;  // microbatches shown, times stages
constexpr int kMostStages = 64;  // rows of a picture

ActionSeconds ChunkSeconds(const Question& question, const Layout& layout, int stage, int chunk) {
  NetworkPasses network;
  return NetworkOf(question, layout, network)
      .OfChunk(layout, question.model.num_blocks, stage, chunk);
}

char Mark(const Action& action) {
  const auto digit = static_cast<char>(action.microbatch % 10);
  if (action.op == Op::kForward) return static_cast<char>('0' + digit);
  if (action.op == Op::kBackwardWeight) return '+';
  return static_cast<char>('a' + digit);
}

std::string TitleText(const SchedulePicture& picture) {
  const bool all =
      picture.layout.gradient_accumulation_steps == picture.gradient_accumulation_steps;
  return absl::StrCat(
      WordOf(picture.layout.pp_schedule), ", ",
      all ? "" : absl::StrCat("the first ", picture.layout.gradient_accumulation_steps, " of "),
      picture.gradient_accumulation_steps, " microbatches, ",
      absl::StrFormat("%.1f %% of what is shown idle", 100 * picture.simulation.bubble_fraction));
}

absl::string_view ColourOf(const Action& action) {
  if (action.op == Op::kForward) return action.chunk % 2 == 0 ? "#4c78a8" : "#9ecae9";
  if (action.op == Op::kBackwardWeight) return "#54a24b";
  return action.chunk % 2 == 0 ? "#f58518" : "#ffbf79";
}

}  // namespace

absl::StatusOr<SchedulePicture> DrawSchedule(const Question& question, const Layout& layout) {
  if (layout.virtual_stages > 1 && layout.gradient_accumulation_steps % layout.pp != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no picture of interleaved_1f1b with ", layout.gradient_accumulation_steps,
        " microbatches, which are not a multiple of parallelism.pp ", layout.pp, "; use one"));
  }
  if (layout.pp > kMostStages) {
    return absl::InvalidArgumentError(absl::StrCat("parallelism.pp: ", layout.pp,
                                                   " stages are too many for a picture; at most ",
                                                   kMostStages));
  }
  SchedulePicture picture;
  picture.layout = layout;
  picture.gradient_accumulation_steps = layout.gradient_accumulation_steps;
  const int64_t most = std::max(8, kShownRounds * layout.pp) / layout.pp * layout.pp;
  picture.layout.gradient_accumulation_steps = std::min(layout.gradient_accumulation_steps, most);
  std::vector<std::vector<Action>> actions;
  for (int stage = 0; stage < layout.pp; ++stage) {
    actions.push_back(StepSchedule(question.model, picture.layout, stage));
  }
  std::vector<ActionSeconds> seconds;
  for (int chunk = 0; chunk < layout.virtual_stages; ++chunk) {
    for (int stage = 0; stage < layout.pp; ++stage) {
      seconds.push_back(ChunkSeconds(question, layout, stage, chunk));
      if (layout.pp == 1) continue;
      seconds.back().transfer_s = WaitedBoundarySeconds(question, layout, seconds.back().forward_s);
    }
  }
  ASSIGN_OR_RETURN(picture.simulation, Simulate(actions, seconds));
  return picture;
}

std::string ScheduleLines(const SchedulePicture& picture, int width) {
  std::string text = absl::StrCat("\nschedule: ", TitleText(picture), "\n");
  const int columns = std::max(16, width - 12);
  const double scale = columns / std::max(picture.simulation.makespan_s, 1e-300);
  for (size_t stage = 0; stage < picture.simulation.timeline.size(); ++stage) {
    std::string line(static_cast<size_t>(columns), '.');
    for (const TimedAction& pass : picture.simulation.timeline[stage]) {
      const auto begin = static_cast<int>(std::lround(pass.start_s * scale));
      const auto end = static_cast<int>(std::lround(pass.end_s * scale));
      for (int column = begin; column < std::min(end, columns); ++column) {
        line[static_cast<size_t>(column)] = Mark(pass.action);
      }
    }
    absl::StrAppendFormat(&text, "  stage %2d  %s\n", stage, line);
  }
  absl::StrAppend(&text, "  digits: forward; letters: backward (a is 0)",
                  SplitsBackward(picture.layout) ? "; +: weight gradients" : "", "; dots: idle\n");
  return text;
}

std::string ScheduleSvg(const SchedulePicture& picture) {
  constexpr double kWidth = 1200;
  constexpr int kLeft = 80;
  constexpr int kRow = 28;
  constexpr int kTop = 40;
  const double scale = kWidth / std::max(picture.simulation.makespan_s, 1e-300);
  const auto rows = static_cast<int>(picture.simulation.timeline.size());
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
      "<text x=\"%d\" y=\"22\" font-size=\"14\">%s</text>\n",
      kLeft + static_cast<int>(kWidth) + 20, kTop + rows * kRow + 40, kLeft, TitleText(picture));
  for (int stage = 0; stage < rows; ++stage) {
    const int y = kTop + stage * kRow;
    // Bubble is what shows of this row between the passes.
    absl::StrAppendFormat(
        &svg,
        "<text x=\"8\" y=\"%d\">stage %d</text>\n"
        "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"#e8e8e8\"/>\n",
        y + 17, stage, kLeft, y, kWidth, kRow - 4);
    for (const TimedAction& pass : picture.simulation.timeline[static_cast<size_t>(stage)]) {
      const double x = kLeft + pass.start_s * scale;
      const double width = (pass.end_s - pass.start_s) * scale;
      absl::StrAppendFormat(
          &svg,
          "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\" "
          "stroke=\"white\" stroke-width=\"0.5\"><title>%s chunk %d</title></rect>\n",
          x, y, width, kRow - 4, ColourOf(pass.action), ActionText(pass.action), pass.action.chunk);
      if (width < 12) continue;
      absl::StrAppendFormat(&svg,
                            "<text x=\"%.2f\" y=\"%d\" text-anchor=\"middle\" fill=\"white\">%d"
                            "</text>\n",
                            x + width / 2, y + 16, pass.action.microbatch);
    }
  }
  absl::StrAppendFormat(
      &svg,
      "<text x=\"%d\" y=\"%d\">blue: forward; orange: backward; green: weight "
      "gradients; grey: bubble and transfers; lighter: odd chunks</text>\n</svg>\n",
      kLeft, kTop + rows * kRow + 20);
  return svg;
}

}  // namespace weft
