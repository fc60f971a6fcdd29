#include "plan/estimate/memory_estimate.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace weft {
namespace {

TEST(MemoryTerm, HasANameOfItsOwn) {
  std::set<std::string> names;
  for (size_t term = 0; term < kMemoryTerms; ++term) {
    names.emplace(MemoryTermName(static_cast<MemoryTerm>(term)));
  }
  EXPECT_EQ(names.size(), kMemoryTerms);
}

TEST(MemoryEstimate, SumsItsTermsAndNamesTheLargest) {
  MemoryEstimate estimate;
  estimate[MemoryTerm::kWeights] = 3;
  estimate[MemoryTerm::kOptimizer] = 5;
  estimate[MemoryTerm::kContext] = 5;
  EXPECT_EQ(estimate.total_bytes(), 13);
  EXPECT_EQ(estimate.at_rest_bytes(), 8);
  EXPECT_EQ(estimate.largest(), MemoryTerm::kOptimizer);
}

}  // namespace
}  // namespace weft
