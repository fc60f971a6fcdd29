#include "plan/spec/nearest.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Nearest, FindsWhatWasMeantAndNothingElse) {
  const std::vector<std::string> keys = {"gradient_clipping", "seq_len", "steps", "seed"};
  EXPECT_EQ(Nearest("gradient_clipp1ng", keys), "gradient_clipping");
  EXPECT_EQ(Nearest("step", keys), "steps");
  EXPECT_EQ(Nearest("seqlen", keys), "seq_len");
  EXPECT_EQ(Nearest("learning_rate_decay", keys), std::nullopt);
  EXPECT_EQ(Nearest("", {}), std::nullopt);
  // Two replacements make any word of two letters.
  EXPECT_EQ(Nearest("zz", {"dp", "tp"}), std::nullopt);
  EXPECT_EQ(Nearest("dd", {"tp", "dp"}), "dp");
}

}  // namespace
}  // namespace weft
