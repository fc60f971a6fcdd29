// The ledger of predicted and measured step times. Writes below a folder of its own only.
#include "launcher/run/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/launcher/job_file_for_test.h"

namespace weft {
namespace {

LedgerEntry Entry(const std::string& hardware, double predicted_s, double measured_s) {
  LedgerEntry entry;
  entry.unix_s = 1795000000;
  entry.hardware = hardware;
  entry.weft = "weft 0.1.0";
  entry.job = "job \"one\"";
  entry.model = "gpt2, 842 k parameters";
  entry.layout = "dp=2 tp=1 pp=2";
  entry.workers = 4;
  entry.steps = 40;
  entry.predicted_step_s = predicted_s;
  entry.measured_step_s = measured_s;
  entry.terms_s = {{"bubble", 0.25}, {"matmul", 0.75}};
  entry.parts = {{"forward", 0.25, 0.5}, {"backward", 0.75, 0.5}};
  entry.planned_bytes = 1000;
  entry.peak_bytes = 990;
  return entry;
}

TEST(Ledger, LivesInTheUsersStateFolder) {
  EXPECT_EQ(LedgerPathFrom("/state", "/home/ada"), "/state/weft/ledger.jsonl");
  EXPECT_EQ(LedgerPathFrom("", "/home/ada"), "/home/ada/.local/state/weft/ledger.jsonl");
  EXPECT_EQ(LedgerPathFrom("relative", "/home/ada"), "/home/ada/.local/state/weft/ledger.jsonl");
  EXPECT_EQ(LedgerPathFrom("", ""), "");
}

TEST(Ledger, GivesBackWhatWasAppended) {
  JobFolder folder;
  const std::string path = folder.path() + "/state/weft/ledger.jsonl";
  EXPECT_TRUE(ReadLedger(path).empty());
  const std::vector<LedgerEntry> entries = {Entry("cpu/1", 1, 2), Entry("h100/2", 3, 3)};
  for (const LedgerEntry& entry : entries) ASSERT_TRUE(AppendToLedger(path, entry).ok());
  EXPECT_EQ(ReadLedger(path), entries);
}

TEST(Ledger, SkipsWhatIsNoEntry) {
  JobFolder folder;
  const std::string path = folder.path() + "/ledger.jsonl";
  ASSERT_TRUE(AppendToLedger(path, Entry("cpu/1", 1, 2)).ok());
  std::ofstream(path, std::ios::app) << "half a li\n{\"format_version\": 99}\n[]\n\n";
  ASSERT_TRUE(AppendToLedger(path, Entry("cpu/1", 1, 3)).ok());
  EXPECT_EQ(ReadLedger(path).size(), 2);
}

// Versions before did not measure parts.
TEST(Ledger, ReadsLinesWithoutParts) {
  JobFolder folder;
  const std::string path = folder.path() + "/ledger.jsonl";
  LedgerEntry entry = Entry("cpu/1", 1, 2);
  ASSERT_TRUE(AppendToLedger(path, entry).ok());
  std::ifstream stream(path);
  std::string line;
  std::getline(stream, line);
  const size_t begin = line.find("\"parts\":");
  ASSERT_NE(begin, std::string::npos);
  line.erase(begin, line.find("}},", begin) + 3 - begin);
  std::ofstream(path) << line << "\n";
  entry.parts.clear();
  EXPECT_EQ(ReadLedger(path), std::vector<LedgerEntry>{entry});
}

TEST(Ledger, ReadsOnlyTheNewestOfAVeryLongFile) {
  JobFolder folder;
  const std::string path = folder.path() + "/ledger.jsonl";
  std::ofstream(path) << std::string(3 << 20, 'x') << "\n";
  ASSERT_TRUE(AppendToLedger(path, Entry("cpu/1", 1, 2)).ok());
  EXPECT_EQ(ReadLedger(path).size(), 1);
}

TEST(Ledger, SaysWhenItCannotBeWritten) {
  JobFolder folder;
  folder.Write("file", "");
  const std::string path = folder.path() + "/file/ledger.jsonl";
  EXPECT_EQ(AppendToLedger(path, Entry("cpu/1", 1, 2)),
            absl::UnavailableError(path + ": cannot be written; this run is not recorded there"));
  EXPECT_TRUE(AppendToLedger("", Entry("cpu/1", 1, 2)).ok());
}

TEST(ErrorOn, IsSignedInTheMiddleAndAbsoluteAtTheEnd) {
  std::vector<LedgerEntry> entries = {Entry("other", 9, 1), Entry("cpu", 0.9, 1)};
  for (int i = 0; i < 9; ++i) entries.push_back(Entry("cpu", 1.02, 1));
  entries.push_back(Entry("cpu", 1.5, 1));
  entries.push_back(Entry("cpu", 1, 0));  // nothing was measured
  const auto error = ErrorOn(entries, "cpu");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->runs, 11);
  EXPECT_NEAR(error->median, 0.02, 1e-12);
  EXPECT_NEAR(error->p90, 0.1, 1e-12);
  EXPECT_FALSE(ErrorOn(entries, "nowhere"));
}

TEST(ErrorOn, SaysInWhichPartOfTheStepItIs) {
  LedgerEntry without = Entry("cpu", 1, 1);
  without.parts.clear();
  const auto error = ErrorOn({without, Entry("cpu", 1, 2)}, "cpu");
  ASSERT_TRUE(error);
  // The measured step takes 2 s.
  EXPECT_EQ(error->parts, (std::vector<std::pair<std::string, double>>{{"forward", -0.125},
                                                                       {"backward", 0.125}}));
}

TEST(DifferenceText, NamesThePartThatDiffersMost) {
  EXPECT_EQ(DifferenceText(Entry("cpu", 1, 1.1)), "");
  EXPECT_EQ(
      DifferenceText(Entry("cpu", 1, 1.5)),
      "a step took 1.5 s, 50 % more than the 1 s predicted; the most of it in forward: 0.5 s, "
      "0.25 s predicted");
  EXPECT_EQ(DifferenceText(Entry("cpu", 1, 0.5)),
            "a step took 0.5 s, 50 % less than the 1 s predicted; the most of it in backward: "
            "0.5 s, 0.75 s predicted");
  LedgerEntry without = Entry("cpu", 1, 2);
  without.parts.clear();
  EXPECT_EQ(DifferenceText(without), "a step took 2 s, 100 % more than the 1 s predicted");
  without.measured_step_s = 3.5;
  EXPECT_EQ(DifferenceText(without), "a step took 3.5 s, 3.5 times the 1 s predicted");
  without.measured_step_s = 373.4;
  EXPECT_EQ(DifferenceText(without), "a step took 373.4 s, 373 times the 1 s predicted");
}

TEST(ErrorOn, LooksAtTheLastFiftyRuns) {
  std::vector<LedgerEntry> entries;
  for (int i = 0; i < 100; ++i) entries.push_back(Entry("cpu", i < 50 ? 9 : 1, 1));
  const auto error = ErrorOn(entries, "cpu");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->runs, 50);
  EXPECT_EQ(error->p90, 0);
}

TEST(HardwareKey, ChangesWithTheFiguresNotWithHowManyAreUsed) {
  Cluster cluster;
  cluster.name = "cpu";
  cluster.device.peak_flops_per_s.fp32 = 1e11;
  const std::string key = HardwareKey(cluster);
  EXPECT_EQ(key.substr(0, 4), "cpu/");
  EXPECT_EQ(key.size(), 20);
  cluster.nodes = 4;
  cluster.slots_per_node = 8;
  cluster.price_per_device_hour = 2.5;
  EXPECT_EQ(HardwareKey(cluster), key);
  cluster.device.peak_flops_per_s.fp32 = 2e11;
  EXPECT_NE(HardwareKey(cluster), key);
}

TEST(RecordedErrorText, IsASentenceOrNothing) {
  JobFolder folder;
  Cluster cluster;
  cluster.name = "cpu";
  const char* before = std::getenv("XDG_STATE_HOME");
  const std::string restore = before == nullptr ? "" : before;
  setenv("XDG_STATE_HOME", folder.path().c_str(), 1);
  EXPECT_EQ(RecordedErrorText(RecordedErrorOn(cluster)), "");
  ASSERT_TRUE(AppendToLedger(LedgerPath(), Entry(HardwareKey(cluster), 1.031, 1)).ok());
  EXPECT_EQ(RecordedErrorText(RecordedErrorOn(cluster)),
            "recorded: 1 run on this profile, median error +3.1 %, p90 3.1 %\n"
            "  of the step: forward -25.0 %, backward +25.0 %");
  ASSERT_TRUE(AppendToLedger(LedgerPath(), Entry(HardwareKey(cluster), 0.951, 1)).ok());
  EXPECT_THAT(RecordedErrorText(RecordedErrorOn(cluster)),
              testing::HasSubstr("recorded: 2 runs on this profile, median error -0.9 %"));
  setenv("XDG_STATE_HOME", restore.c_str(), 1);
}

TEST(StepsWithoutLine, AreThoseThatWereTrainedAndNotWritten) {
  JobFolder folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  const RunMetrics all(path);
  EXPECT_EQ(StepsWithoutLine(all, 4, 9), 5) << "the file is not there";
  const std::string earlier = "{\"step\":5}\n";
  folder.Write("metrics.jsonl", earlier);
  const RunMetrics later(path);
  folder.Write("metrics.jsonl", earlier + "{\"step\":6}\n{\"step\":6}\n{\"step\":9}\n{\"ste");
  EXPECT_EQ(StepsWithoutLine(later, 4, 9), 3) << "5, 7, 8";
  EXPECT_EQ(StepsWithoutLine(all, 5, 6), 0);
  EXPECT_EQ(StepsWithoutLine(all, 9, 9), 0);
}

// A file that becomes the older one takes the mark of where the run began along.
TEST(StepsWithoutLine, MissesNoneThatTheBoundHasTakenAway) {
  JobFolder folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  const auto line = [](int step) { return absl::StrCat("{\"step\":", step, "}\n"); };
  folder.Write("metrics.jsonl", line(5));
  const RunMetrics metrics(path);
  folder.Write("metrics.jsonl", line(5) + line(6));
  const auto begin_new_file = [&path] { std::filesystem::rename(path, path + ".1"); };
  begin_new_file();
  EXPECT_EQ(StepsWithoutLine(metrics, 4, 6), 1) << "5 is of the run before";
  folder.Write("metrics.jsonl", line(7) + line(9));
  EXPECT_EQ(StepsWithoutLine(metrics, 4, 9), 2) << "5, 8";
  begin_new_file();
  folder.Write("metrics.jsonl", line(10));
  EXPECT_EQ(StepsWithoutLine(metrics, 4, 10), 1) << "8: 5 and 6 may have had lines";
  begin_new_file();
  folder.Write("metrics.jsonl", line(12));
  EXPECT_EQ(StepsWithoutLine(metrics, 4, 12), 1) << "11";
}

// The newest 64 MiB are read: of what is before them nothing is known.
TEST(StepsWithoutLine, MissesNoneBeforeTheLinesThatAreRead) {
  JobFolder folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  const RunMetrics metrics(path);
  std::ofstream file(path);
  const std::string filler(1000000, 'x');
  for (int step = 1; step <= 80; ++step) {
    if (step == 70) continue;
    file << "{\"step\":" << step << ",\"filler\":\"" << filler << "\"}\n";
  }
  file.close();
  EXPECT_EQ(StepsWithoutLine(metrics, 0, 80), 1) << "70";
}

TEST(MeasureSteps, TakesTheMedianWithoutTheFirstStepsOfEachGeneration) {
  JobFolder folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  const auto line = [](int step, double step_s, int generation) {
    return absl::StrCat("{\"step\":", step, ",\"step_s\":", step_s, ",\"generation\":", generation,
                        ",\"update_s\":", step_s / 4, "}\n");
  };
  EXPECT_FALSE(MeasureSteps(RunMetrics(path)));  // no file
  std::string text = line(1, 100, 1);            // of an earlier run
  folder.Write("metrics.jsonl", text);
  const RunMetrics metrics(path);
  for (int step = 1; step <= 4; ++step) text += line(step, step <= 2 ? 9 : 1, 2);
  folder.Write("metrics.jsonl", text);
  EXPECT_FALSE(MeasureSteps(metrics));  // too few
  for (int step = 3; step <= 7; ++step) text += line(step, step <= 4 ? 9 : 3, 3);
  folder.Write("metrics.jsonl", text + "{\"step\":8,\"st");  // being written
  const auto measured = MeasureSteps(metrics);
  ASSERT_TRUE(measured);
  EXPECT_EQ(measured->steps, 5);  // 1 1 3 3 3
  EXPECT_EQ(measured->median_s, 3);
  EXPECT_EQ(measured->parts_s, (std::vector<std::pair<std::string, double>>{{"update", 0.75}}));
}

}  // namespace
}  // namespace weft
