#include "launcher/run/progress.h"

#include <gtest/gtest.h>

#include <limits>

namespace weft {
namespace {

v1::Event Step(int64_t step, double loss, int64_t generation = 1) {
  v1::Event event;
  event.set_generation(generation);
  event.mutable_step()->set_step(step);
  event.mutable_step()->set_loss(loss);
  event.mutable_step()->set_tokens(4096);
  event.mutable_step()->set_step_s(0.5);
  event.mutable_step()->set_peak_bytes(int64_t{1} << 29);
  return event;
}

TEST(Progress, LineShowsWhatAPersonWatches) {
  ProgressState state{.step = 120,
                      .steps = 300,
                      .loss = 2.34561,
                      .valid_loss = 2.4,
                      .valid_step = 120,
                      .tokens_per_s = 35210,
                      .step_s = 0.5,
                      .generation = 2,
                      .peak_bytes = int64_t{1} << 29,
                      .planned_bytes = int64_t{1} << 30};
  EXPECT_EQ(ProgressLine(state, 0),
            "step 120/300  loss 2.3456  valid 2.4000  35.2 k tokens/s  eta 1:30  gen 2  mem "
            "0.50/1.00 GiB");
  state.valid_loss.reset();
  state.peak_bytes = 0;
  EXPECT_EQ(ProgressLine(state, 0), "step 120/300  loss 2.3456  35.2 k tokens/s  eta 1:30  gen 2");
  state.skipped_steps = 2;
  EXPECT_EQ(ProgressLine(state, 0),
            "step 120/300  loss 2.3456  skipped 2  35.2 k tokens/s  eta 1:30  gen 2");
}

TEST(Progress, ALineSaysAtWhichStepAnOlderValidationWas) {
  const ProgressState state{
      .step = 120, .steps = 300, .loss = 2.5, .valid_loss = 2.4, .valid_step = 80, .step_s = 1};
  EXPECT_EQ(ProgressLine(state, 0),
            "step 120/300  loss 2.5000  valid 2.4000 @80  0 tokens/s  eta 3:00  gen 0");
}

TEST(Progress, ALineIsNeverAsLongAsTheTerminalIsWide) {
  const ProgressState state{.step = 120000,
                            .steps = 300000,
                            .loss = 2.34561,
                            .valid_loss = 2.4,
                            .valid_step = 119000,
                            .skipped_steps = 12,
                            .tokens_per_s = 35210,
                            .step_s = 0.5,
                            .generation = 2,
                            .peak_bytes = int64_t{1} << 29,
                            .planned_bytes = int64_t{1} << 30};
  for (int columns = 1; columns < 200; ++columns) {
    EXPECT_LT(ProgressLine(state, columns).size(), columns);
  }
  EXPECT_EQ(ProgressLine(state, 200), ProgressLine(state, 0));
  EXPECT_EQ(ProgressLine(state, 80),
            "step 120000/300000  loss 2.3456  35.2 k tokens/s  eta 25:00:00")
      << "what matters least is left out first";
  EXPECT_EQ(ProgressLine(state, 50), "step 120000/300000  loss 2.3456  eta 25:00:00");
}

TEST(Progress, DurationsReadAsPeopleSayThem) {
  EXPECT_EQ(DurationText(0), "0:00");
  EXPECT_EQ(DurationText(65), "1:05");
  EXPECT_EQ(DurationText(3723), "1:02:03");
  EXPECT_EQ(DurationText(86400 * 3 + 4 * 3600), "3 d 04 h");
}

TEST(Progress, APipeGetsOneLineEveryLogFreqStepsAndTheLast) {
  std::string written;
  Progress progress(
      {.log_freq = 2, .steps = 5, .planned_bytes = 1, .write = [&](const std::string& text) {
         written += text;
       }});
  for (int step = 1; step <= 5; ++step) progress.Take(Step(step, 3.0 - step));
  progress.Finish();
  EXPECT_EQ(std::count(written.begin(), written.end(), '\n'), 3) << written;
  EXPECT_EQ(written.substr(0, 8), "step 2/5");
  EXPECT_NE(written.find("step 5/5"), std::string::npos);
  EXPECT_DOUBLE_EQ(progress.mean_tokens_per_s(), 8192);
}

TEST(Progress, ARunOfOneStepHasASpeedToo) {
  Progress progress({.steps = 1, .write = [](const std::string&) {}});
  EXPECT_EQ(progress.mean_tokens_per_s(), 0);
  progress.Take(Step(1, 3.0));
  EXPECT_DOUBLE_EQ(progress.mean_tokens_per_s(), 8192);
}

TEST(Progress, LinesThatWaitAreSaidOnceAndSoIsTheirEnd) {
  std::string written;
  Progress progress(
      {.log_freq = 100, .steps = 500, .planned_bytes = 1, .write = [&](const std::string& text) {
         written += text;
       }});
  v1::Event event = Step(7, 1);
  event.mutable_step()->set_not_written("/r/metrics.jsonl: cannot append a line: quota");
  progress.Take(event);
  event.mutable_step()->set_step(8);
  progress.Take(event);
  EXPECT_EQ(written, "warning: /r/metrics.jsonl: cannot append a line: quota\n");
  written.clear();
  progress.Take(Step(9, 1));
  EXPECT_EQ(written, "metrics.jsonl has all lines again\n");
}

TEST(Progress, ASkippedStepHasALineOfItsOwnWhateverTheFrequency) {
  std::string written;
  Progress progress(
      {.log_freq = 100, .steps = 500, .planned_bytes = 1, .write = [&](const std::string& text) {
         written += text;
       }});
  v1::Event event = Step(7, std::numeric_limits<double>::quiet_NaN());
  event.mutable_step()->set_grad_norm(1);
  event.mutable_step()->set_skipped(true);
  event.mutable_step()->set_skipped_steps(3);
  progress.Take(event);
  EXPECT_EQ(written, "step 7 skipped: loss nan, gradient norm 1\n");
  EXPECT_EQ(progress.state().skipped_steps, 3);
}

TEST(Progress, ATerminalHasOneLiveLineThatMessagesDoNotTear) {
  std::string written;
  Progress progress({.columns = [] { return 80; },
                     .log_freq = 1,
                     .steps = 5,
                     .planned_bytes = 1,
                     .write = [&](const std::string& text) { written += text; }});
  progress.Take(Step(1, 2));
  EXPECT_EQ(written.find('\n'), std::string::npos);
  v1::Event committed;
  committed.mutable_committed()->set_step(1);
  committed.mutable_committed()->set_folder("step-1");
  progress.Take(committed);
  EXPECT_EQ(written.substr(written.rfind('\r')), "\r\033[Ksaved step-1\n");
  EXPECT_EQ(progress.saved_step(), 1);
  progress.Take(Step(2, 2));
  progress.Finish();
  EXPECT_EQ(written.back(), '\n');
}

TEST(Progress, ALostRankIsShownWithItsLastLinesOnce) {
  std::string written;
  Progress progress(
      {.log_freq = 1, .steps = 5, .planned_bytes = 1, .write = [&](const std::string& text) {
         written += text;
       }});
  v1::Event event;
  event.set_generation(2);
  event.mutable_lost()->set_reason("rank 3 (vm) killed by signal 9 (SIGKILL)\nlast words");
  progress.Take(event);
  event.mutable_phase()->set_phase("RECOVERING");
  event.mutable_phase()->set_reason("rank 3 (vm) killed by signal 9 (SIGKILL)\nlast words");
  progress.Take(event);
  EXPECT_EQ(written,
            "lost rank 3 (vm) killed by signal 9 (SIGKILL)\n  | last words\n"
            "[gen 2] RECOVERING: rank 3 (vm) killed by signal 9 (SIGKILL)\n");
}

}  // namespace
}  // namespace weft
