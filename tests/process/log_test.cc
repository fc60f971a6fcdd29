#include "process/log.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Log, LineHasUtcTimeLevelAndMessage) {
  const absl::Time when = absl::FromUnixMillis(1'700'000'000'123);
  EXPECT_EQ(LogLine(when, LogLevel::kWarning, "rank 2: silent"),
            "2023-11-14T22:13:20.123Z WARNING rank 2: silent\n");
}

TEST(Log, ContinuationLinesAreIndentedSoThatALineStartsWithATime) {
  const std::string line = LogLine(absl::UnixEpoch(), LogLevel::kError, "a\nb");
  EXPECT_EQ(line, "1970-01-01T00:00:00.000Z ERROR a\n    b\n");
}

}  // namespace
}  // namespace weft
