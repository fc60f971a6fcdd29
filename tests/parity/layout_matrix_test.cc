// Any layout computes the same thing: layouts drawn at random over all axes at once, whose ranks
// are threads, against a single rank. The seed is fixed here; weft_layout_matrix takes any.
// mpi_parity_test shows that ranks that are processes compute the same bits.
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/shards/shard.h"
#include "plan/spec/layout_text.h"
#include "tests/parity/expectations.h"
#include "tests/parity/layout_draw.h"

namespace weft {
namespace {

using ::testing::IsEmpty;

constexpr uint64_t kSeed = 20261121;

std::vector<Layout> LayoutsOf(const DrawnModel& model) {
  std::vector<Layout> layouts = OddLayouts(model);
  for (Layout& layout : DrawLayouts(model, kSeed, model.draws)) {
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

class LayoutMatrix : public testing::TestWithParam<size_t> {};

TEST_P(LayoutMatrix, EveryLayoutTrainsAsASingleRankDoes) {
  const DrawnModel model = ModelsToDrawFor()[GetParam()];
  std::map<std::string, Curve> singles;  // by OneRankLike
  for (const Layout& layout : LayoutsOf(model)) {
    Curve& single = singles[LayoutText(OneRankLike(model.job, layout))];
    if (single.losses.empty()) single = SingleRankLike(model.job, layout);
    ASSERT_EQ(single.losses.size(), 20u);
    ASSERT_LT(single.losses.back(), single.losses.front() - 1) << "so flat a curve proves little";
    EXPECT_THAT(Differences(MustTrain({.job = model.job, .layout = layout, .painted = true}),
                            single, BoundsOf(model.job, layout)),
                IsEmpty())
        << model.name << ": " << LayoutText(layout);
  }
}

INSTANTIATE_TEST_SUITE_P(Parity, LayoutMatrix, testing::Range(size_t{0}, ModelsToDrawFor().size()),
                         [](const auto& tested) { return ModelsToDrawFor()[tested.param].name; });

// A layout that is not among the draws is not proven.
TEST(LayoutMatrix, DrawsSixtyLayoutsAndEveryAxisThatRunsSeveralTimes) {
  std::map<std::string, int> seen, seen_in_16_bits;
  size_t count = 0;
  for (const DrawnModel& model : ModelsToDrawFor()) {
    const bool narrow = model.job.training.mixed_precision != Precision::kFp32;
    for (const Layout& layout : LayoutsOf(model)) {
      ++count;
      for (const std::string& axis : AxesOf(model.job.model, layout)) {
        ++(narrow ? seen_in_16_bits : seen)[axis];
      }
    }
  }
  EXPECT_GE(count, 60u);
  std::set<std::string> axes;  // that any of many draws has
  for (const DrawnModel& model : ModelsToDrawFor()) {
    for (const Layout& layout : DrawLayouts(model, /*seed=*/1, 60)) {
      for (const std::string& axis : AxesOf(model.job.model, layout)) axes.insert(axis);
    }
  }
  for (const std::string& axis : axes) EXPECT_GE(seen[axis], 3) << axis;
  // These axes change what is rounded, or where: the order of passes does not.
  for (const char* axis :
       {"dp", "tp", "pp", "cp", "zero_stage=2", "zero_stage=3", "head_chunk_tokens",
        "sequence_parallel", "recompute=selective", "recompute=full"}) {
    EXPECT_GE(seen_in_16_bits[axis], 2) << axis;
  }
}

TEST(LayoutMatrix, DrawsTheSameLayoutsOfTheSameSeed) {
  const DrawnModel model = ModelsToDrawFor().front();
  EXPECT_EQ(DrawLayouts(model, 7, 20), DrawLayouts(model, 7, 20));
  EXPECT_NE(DrawLayouts(model, 7, 20), DrawLayouts(model, 8, 20));
}

}  // namespace
}  // namespace weft
