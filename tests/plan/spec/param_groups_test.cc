#include "plan/spec/param_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/block/tensors.h"
#include "tests/plan/sample_jobs.h"

namespace weft {
namespace {

using testing::IsEmpty;

TEST(ParamGroups, TakeAStarForAnyCharactersAndNothingElse) {
  struct Case {
    const char* pattern;
    const char* name;
    bool matches;
  };
  const Case cases[] = {
      {"head.weight", "head.weight", true},
      {"head.weight", "head.weights", false},
      {"head.weight", "ahead.weight", false},
      {"*.bias", "blocks.3.attn.q.bias", true},
      {"*.bias", "blocks.3.attn.q.bias.x", false},
      {"blocks.*.norm1.weight", "blocks.10.norm1.weight", true},
      {"blocks.*.norm1.weight", "blocks.10.norm2.weight", false},
      {"*.attn.*.weight", "blocks.0.attn.o.weight", true},
      {"*attn*q*", "blocks.0.attn.attn.q", true},
      {"*", "anything", true},
      {"a*", "a", true},
      {"**a**", "a", true},
      {"", "a", false},
      {"blocks.1.*", "blocks.11.norm1.bias", false},
      {"blocks.?.norm1.bias", "blocks.1.norm1.bias", false},
  };
  for (const auto& [pattern, name, matches] : cases) {
    EXPECT_EQ(MatchesPattern(pattern, name), matches) << pattern << " of " << name;
  }
}

TEST(ParamGroups, DecayMatricesAloneWhereNoneNamesTheTensor) {
  for (const TensorSpec& tensor : Tensors(SampleJob().model)) {
    EXPECT_EQ(WeightDecayOf(tensor, {}, 0.1), tensor.dims.size() == 2 ? 0.1 : 0) << tensor.name;
  }
}

TEST(ParamGroups, CountFromTheFirstThatNamesTheTensor) {
  const ParamGroup groups[] = {{{"blocks.0.mlp.up.weight", "blocks.1.*"}, 0.5}, {{"*.weight"}, 0}};
  for (const TensorSpec& tensor : Tensors(SampleJob().model)) {
    const bool first = tensor.name == "blocks.0.mlp.up.weight" || tensor.block == 1;
    EXPECT_EQ(WeightDecayOf(tensor, groups, 0.1), first ? 0.5 : 0) << tensor.name;
  }
}

TEST(ParamGroups, RefuseWhatNoTensorIsNamedWithTheNearest) {
  struct Case {
    ParamGroup group;
    const char* message;  // null: none
  };
  const Case cases[] = {
      {{{"*.bias"}, 0}, nullptr},
      {{{"*.biass"}, 0}, "\"*.biass\" matches no tensor of the model; did you mean *.bias?"},
      {{{"blocks.*.norm3.weight"}, 0},
       "\"blocks.*.norm3.weight\" matches no tensor of the model; did you mean "
       "blocks.*.norm1.weight?"},
      {{{"head.weight"}, 0},  // tied
       "\"head.weight\" matches no tensor of the model; use e.g. *.bias or "
       "blocks.*.norm1.weight"},
      {{{"LayerNorm"}, 0},
       "\"LayerNorm\" matches no tensor of the model; use e.g. *.bias or "
       "blocks.*.norm1.weight"},
      {{{}, 0}, "names no params; use e.g. [\"*.bias\"]"},
      {{{"*"}, -1}, "weight_decay -1 is out of range; use 0 (no decay) or more"},
  };
  for (const auto& [group, message] : cases) {
    const std::vector<SpecIssue> issues = ParamGroupIssues(Tensors(SampleJob().model), {&group, 1});
    if (message == nullptr) {
      EXPECT_THAT(issues, IsEmpty());
      continue;
    }
    ASSERT_EQ(issues.size(), 1u) << message;
    EXPECT_EQ(issues[0].key, "optimizer.param_groups");
    EXPECT_EQ(issues[0].message, message);
  }
}

}  // namespace
}  // namespace weft
