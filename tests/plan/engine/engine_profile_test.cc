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

TEST(EngineProfile, TakesTheHabitsOfASingleRunBesideItsOwn) {
  const absl::StatusOr<EngineProfile> engine =
      EngineProfileNamed("megatron,states=bf16,loss=fused");
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ(engine->name, "megatron");
  EXPECT_EQ(engine->memory.moment_bytes, 2);
  EXPECT_TRUE(engine->memory.fused_loss);
  for (const std::string& habit : HabitNames()) {
    EXPECT_TRUE(EngineProfileNamed("megatron," + habit).ok()) << habit;
  }
  EXPECT_EQ(EngineProfileNamed("megatron,states=fp4").status().message(),
            "\"states=fp4\" is not a habit; use states=bf16, gradients=bf16, loss=fused, "
            "selective=norms, selective=latents");
  EXPECT_EQ(EngineProfileNamed("weft,states=bf16").status().message(),
            "\"states=bf16\" is no habit of weft, whose workers allocate what they list; leave it "
            "out, or name another engine");
}

}  // namespace
}  // namespace weft
