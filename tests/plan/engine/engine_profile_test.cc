#include "plan/engine/engine_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using ::testing::ElementsAre;

TEST(EngineProfile, IsFoundByEachOfItsNames) {
  EXPECT_THAT(EngineProfileNames(),
              ElementsAre("weft", "megatron", "megatron-lm", "megatron-deepspeed", "pytorch-fsdp",
                          "pytorch-eager"));
  for (const std::string& name : EngineProfileNames()) {
    ASSERT_TRUE(EngineProfileNamed(name).ok()) << name;
    EXPECT_EQ(EngineProfileNamed(name)->name, name);
  }
}

TEST(EngineProfile, AnUnknownNameIsRefusedWithTheNamesThereAre) {
  EXPECT_EQ(EngineProfileNamed("deepspeed").status().message(),
            "\"deepspeed\" is not an engine profile; use weft, megatron, megatron-lm, "
            "megatron-deepspeed, pytorch-fsdp, pytorch-eager");
}

}  // namespace
}  // namespace weft
