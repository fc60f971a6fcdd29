// Schedules of all kinds on few stages, for tests of what runs or prices them.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/schedule/simulate.h"
#include "plan/schedule/step_schedule.h"
#include "plan/spec/model.h"

namespace weft {

using Pipeline = std::vector<std::vector<Action>>;

inline Pipeline PipelineOf(ScheduleKind kind, int stages, int microbatches, int chunks = 1) {
  Pipeline pipeline;
  const ModelShape model = {.num_blocks = stages * chunks, .num_heads = 1, .num_kv_heads = 1};
  for (int stage = 0; stage < stages; ++stage) {
    const Layout layout = {.pp = stages,
                           .pp_schedule = kind,
                           .gradient_accumulation_steps = microbatches,
                           .virtual_stages = chunks};
    pipeline.push_back(StepSchedule(model, layout, stage));
  }
  return pipeline;
}

struct Shape {
  ScheduleKind kind = ScheduleKind::kGpipe;
  int stages = 1;
  int microbatches = 1;
  int chunks = 1;
};

inline std::string ShapeText(const Shape& shape) {
  return absl::StrCat(WordOf(shape.kind), " ", shape.stages, " stages, ", shape.microbatches,
                      " microbatches, ", shape.chunks, " chunks");
}

// Every small pipeline that CheckLayout allows.
inline std::vector<Shape> SmallPipelines() {
  std::vector<Shape> shapes;
  for (int stages = 1; stages <= 8; ++stages) {
    for (int microbatches = 1; microbatches <= 20; ++microbatches) {
      for (const ScheduleKind kind : {ScheduleKind::kGpipe, ScheduleKind::kOneForwardOneBackward,
                                      ScheduleKind::kZeroBubbleH1}) {
        shapes.push_back({kind, stages, microbatches, 1});
      }
      if (stages == 1 || microbatches % stages != 0) continue;
      for (const int chunks : {2, 3, 4}) {
        shapes.push_back({ScheduleKind::kInterleaved, stages, microbatches, chunks});
      }
    }
  }
  return shapes;
}

// Calls `claim(shape, simulation)` for every small pipeline under `seconds`; that it gets so far
// says that none deadlocks.
template <typename Claim>
void ForSmallPipelines(const ActionSeconds& seconds, Claim claim) {
  for (const Shape& shape : SmallPipelines()) {
    SCOPED_TRACE(absl::StrCat(ShapeText(shape), ", forward ", seconds.forward_s, " s, backward ",
                              seconds.backward_s, " s of which weights ", seconds.weight_gradient_s,
                              " s"));
    const auto simulation =
        Simulate(PipelineOf(shape.kind, shape.stages, shape.microbatches, shape.chunks),
                 absl::MakeConstSpan(&seconds, 1));
    ASSERT_TRUE(simulation.ok()) << simulation.status();
    claim(shape, *simulation);
  }
}

inline constexpr ActionSeconds kRatios[] = {
    {1, 2, 0, 1}, {1, 2, 0, 0.5}, {1, 1, 0, 0}, {3, 1, 0, 0.4}, {0.25, 0.7, 0, 0.25}};

}  // namespace weft
