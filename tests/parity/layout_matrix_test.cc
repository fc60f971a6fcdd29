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

bool IsIn16Bits(const DrawnModel& model) {
  return model.job.training.mixed_precision != Precision::kFp32;
}

// Returns them in the order of ModelsToDrawFor(). There are few draws for each model: what is rare
// in all models so far comes first in the next one.
std::vector<std::vector<Layout>> LayoutsOfTheGate() {
  std::vector<std::vector<Layout>> layouts;
  AxisCounts seen[2];
  for (const DrawnModel& model : ModelsToDrawFor()) {
    const std::vector<Layout> odd =
        model.has_odd_layouts ? OddLayouts(model) : std::vector<Layout>();
    AxisCounts& counts = seen[IsIn16Bits(model) ? 1 : 0];
    for (const Layout& layout : odd) {
      for (const std::string& axis : AxesOf(model.job.model, layout)) ++counts[axis];
    }
    layouts.push_back(DrawLayouts(model, kSeed, model.draws, counts));
    layouts.back().insert(layouts.back().end(), odd.begin(), odd.end());
  }
  return layouts;
}

class LayoutMatrix : public testing::TestWithParam<size_t> {
 protected:
  const DrawnModel model_ = ModelsToDrawFor()[GetParam()];

  void ExpectLikeASingleRank(const std::vector<Layout>& layouts) const {
    std::map<std::string, Curve> singles;  // by OneRankLike
    for (const Layout& layout : layouts) {
      Curve& single = singles[LayoutText(OneRankLike(model_.job, layout))];
      if (single.losses.empty()) single = SingleRankLike(model_.job, layout);
      ASSERT_EQ(single.losses.size(), static_cast<size_t>(model_.job.training.steps));
      ASSERT_LT(single.losses.back(), single.losses.front() - 1) << "so flat a curve proves little";
      EXPECT_THAT(Differences(MustTrain({.job = model_.job, .layout = layout, .painted = true}),
                              single, BoundsOf(model_.job, layout)),
                  IsEmpty())
          << model_.name << ": " << LayoutText(layout);
    }
  }
};

TEST_P(LayoutMatrix, EveryLayoutTrainsAsASingleRankDoes) {
  ExpectLikeASingleRank(LayoutsOfTheGate()[GetParam()]);
}

TEST_P(LayoutMatrix, EveryOneOfManyMoreLayoutsTrainsAsASingleRankDoes) {
  std::vector<Layout> layouts = DrawLayouts(model_, kSeed, 16);
  for (Layout& layout : OddLayouts(model_)) layouts.push_back(std::move(layout));
  ExpectLikeASingleRank(layouts);
}

INSTANTIATE_TEST_SUITE_P(Parity, LayoutMatrix, testing::Range(size_t{0}, ModelsToDrawFor().size()),
                         [](const auto& tested) { return ModelsToDrawFor()[tested.param].name; });

// A layout that is not among the draws is not proven.
TEST(LayoutMatrix, DrawsSixtyLayoutsAndEveryAxisThatRunsSeveralTimes) {
  AxisCounts seen, seen_in_16_bits;
  size_t count = 0;
  const std::vector<DrawnModel> models = ModelsToDrawFor();
  const std::vector<std::vector<Layout>> layouts = LayoutsOfTheGate();
  for (size_t i = 0; i < models.size(); ++i) {
    for (const Layout& layout : layouts[i]) {
      ++count;
      for (const std::string& axis : AxesOf(models[i].job.model, layout)) {
        ++(IsIn16Bits(models[i]) ? seen_in_16_bits : seen)[axis];
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
