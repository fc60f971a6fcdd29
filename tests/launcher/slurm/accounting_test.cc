#include "launcher/slurm/accounting.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

// The form of Slurm 22.05's sacct with these columns; the manual's figures for those that need a
// plugin (energy).
constexpr char kJob[] =
    "71|3905|05:10:20||1200500\n"
    "71.batch|3905|00:01.046|7456K|0\n"
    "71.extern|3905|00:00.001|0|0\n"
    "71.0|3900|02:35:10.500|1.5G|600000\n"
    "71.1|3900|02:35:10.400|325000K|600500\n"
    "710|1|00:01|9T|9\n";

TEST(Accounting, IsReadFromSacct) {
  const auto figures = ParseAccounting(kJob, "71");
  ASSERT_TRUE(figures);
  EXPECT_EQ(figures->elapsed_s, 3905);
  // The steps' sum is the more exact one.
  EXPECT_DOUBLE_EQ(figures->cpu_s, 2 * (2 * 3600 + 35 * 60 + 10) + 0.9 + 1.046 + 0.001);
  EXPECT_EQ(figures->max_rss_bytes, int64_t{3} << 29);
  EXPECT_EQ(figures->energy_j, 1200500);
  EXPECT_EQ(AccountingText(*figures),
            "1:05:05 elapsed, 5:10:22 of CPU time, 1.50 GiB in the largest task, 1200 kJ");
  EXPECT_EQ(SacctArgv("71_3")[3], "--jobs=71_3");
}

TEST(Accounting, ReadsTasksOfArraysAndDays) {
  const auto figures = ParseAccounting("12_3|90061|1-01:01:01||\n12_3.0|9|00:01|2M|\n", "12_3");
  ASSERT_TRUE(figures);
  EXPECT_DOUBLE_EQ(figures->cpu_s, 90061);
  EXPECT_EQ(figures->max_rss_bytes, 2 << 20);
  EXPECT_EQ(figures->energy_j, 0);
  EXPECT_EQ(AccountingText({.elapsed_s = 5}), "0:05 elapsed");
  EXPECT_EQ(AccountingText({.elapsed_s = 5, .energy_j = 36000000}), "0:05 elapsed, 10.0 kWh");
  EXPECT_EQ(AccountingText({.elapsed_s = 5, .energy_j = 12}), "0:05 elapsed, 12 J");
}

TEST(Accounting, IsSilentWhereThereIsNone) {
  EXPECT_FALSE(ParseAccounting("", "71"));
  EXPECT_FALSE(ParseAccounting("Slurm accounting storage is disabled\n", "71"));
  EXPECT_FALSE(ParseAccounting("72|5|00:01||\n", "71"));
  EXPECT_FALSE(ParseAccounting("71|5|00:01\n", "71"));
}

}  // namespace
}  // namespace weft
