#include "worker/train/metrics.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "tests/worker/rank_threads.h"
#include "worker/train/trainer.h"

namespace weft {
namespace {

StepReport Report() {
  return {.step = 12,
          .loss = 2.5,
          .grad_norm = 0.75,
          .lr = 3e-4,
          .tokens = 1024,
          .step_s = 0.5,
          .valid_loss = std::nullopt,
          .stopping = false};
}

TEST(MetricsLine, StatesEveryNumberAndItsBits) {
  EXPECT_EQ(MetricsLine(Report(), 3),
            "{\"step\":12,\"loss\":2.5,\"loss_hex\":\"0x1.4p+1\",\"grad_norm\":0.75,"
            "\"grad_norm_hex\":\"0x1.8p-1\",\"lr\":0.0003,\"tokens\":1024,\"tokens_per_s\":2048,"
            "\"step_s\":0.5,\"generation\":3}");
}

TEST(MetricsLine, HasThePartsOfTheStepWhereTheyWereMeasured) {
  StepReport report = Report();
  report.parts = PartSeconds{{0.125, 0.25, 0.03125, 0.0625, 0.015625}};
  EXPECT_TRUE(MetricsLine(report, 3).ends_with(
      ",\"generation\":3,\"forward_s\":0.125,\"backward_s\":0.25,\"transfers_s\":0.03125,"
      "\"reductions_s\":0.0625,\"update_s\":0.015625}"));
}

TEST(MetricsLine, HasTheHeldOutLossOnlyWhenItWasTaken) {
  StepReport report = Report();
  report.valid_loss = 3;
  EXPECT_TRUE(MetricsLine(report, 3).ends_with(
      ",\"generation\":3,\"valid_loss\":3,\"valid_loss_hex\":\"0x1.8p+1\"}"));
}

// JSON has no word for it; the hexadecimal form has.
TEST(MetricsLine, OfASkippedStepIsStillJson) {
  StepReport report = Report();
  report.loss = std::numeric_limits<double>::quiet_NaN();
  report.grad_norm = std::numeric_limits<double>::infinity();
  report.skipped = true;
  report.skipped_steps = 2;
  const std::string line = MetricsLine(report, 3);
  EXPECT_TRUE(
      line.starts_with("{\"step\":12,\"loss\":null,\"loss_hex\":\"nan\",\"grad_norm\":null,"
                       "\"grad_norm_hex\":\"inf\","))
      << line;
  EXPECT_TRUE(line.ends_with(",\"skipped\":true,\"skipped_steps\":2}")) << line;
  report.valid_loss = report.loss;
  EXPECT_TRUE(MetricsLine(report, 3).ends_with("\"valid_loss\":null,\"valid_loss_hex\":\"nan\"}"));
}

TEST(MetricsFile, KeepsTheLinesOfEarlierGenerations) {
  const TestFolder folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  for (const int64_t generation : {1, 2}) {
    const auto file = MetricsFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->Append(Report(), generation), absl::OkStatus());
  }
  std::ifstream read(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(read, line);) lines.push_back(line);
  EXPECT_EQ(lines, (std::vector<std::string>{MetricsLine(Report(), 1), MetricsLine(Report(), 2)}));
}

TEST(MetricsFile, SaysWhatCannotBeWritten) {
  const auto file = MetricsFile::Open("/nowhere/metrics.jsonl");
  EXPECT_EQ(file.status().message(),
            "/nowhere/metrics.jsonl: cannot be written: No such file or directory");
  const auto full = MetricsFile::Open("/dev/full");
  ASSERT_TRUE(full.ok());
  EXPECT_EQ((*full)->Append(Report(), 1).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ((*full)->Append(Report(), 1), absl::OkStatus()) << "once is enough";
}

// A line that was cut by a full disk is completed once there is room.
TEST(MetricsFile, LosesNoLineToAFullDisk) {
  const TestFolder folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  const auto file = MetricsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const std::string line = MetricsLine(Report(), 1);
  const auto limit_to = [](rlim_t bytes) {
    rlimit limit = {};
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = std::min(bytes, limit.rlim_max);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  };
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  limit_to(line.size() + 10);
  EXPECT_EQ((*file)->Append(Report(), 1), absl::OkStatus());
  EXPECT_EQ((*file)->Append(Report(), 1).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ((*file)->Append(Report(), 1), absl::OkStatus());
  limit_to(RLIM_INFINITY);
  std::signal(SIGXFSZ, before);
  EXPECT_EQ((*file)->Append(Report(), 1), absl::OkStatus());
  std::ifstream read(path);
  int lines = 0;
  for (std::string each; std::getline(read, each); ++lines) EXPECT_EQ(each, line);
  EXPECT_EQ(lines, 4);
}

}  // namespace
}  // namespace weft
