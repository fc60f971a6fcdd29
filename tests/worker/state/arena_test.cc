#include "worker/state/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/worker/passing_backend.h"
#include "worker/backend/cpu/device_cpu.h"

namespace weft {
namespace {

RankMemory ThreeBuffers() {
  return {{{MemoryKind::kWeights, "weights/a", 3},
           {MemoryKind::kGradients, "gradients/a", 17},
           {MemoryKind::kGradients, "gradients/b", 16}}};
}

TEST(Arena, CutsOneZeroedBlockByTheList) {
  const auto device = MakeCpuDevice({});
  const auto arena = Arena::Create(ThreeBuffers(), *device);
  ASSERT_TRUE(arena.ok()) << arena.status();
  EXPECT_EQ((*arena)->bytes(), ThreeBuffers().total_bytes());
  EXPECT_EQ((*arena)->bytes(), 64 + 128 + 64);
  const View a = (*arena)->Get("weights/a", 3, 1);
  const View b = (*arena)->Get("gradients/b", 4, 4);
  EXPECT_EQ(static_cast<char*>(b.data) - static_cast<char*>(a.data), 64 + 128);
  std::vector<float> values(16, 1);
  device->CopyOut(values.data(), b);
  EXPECT_EQ(values, std::vector<float>(16, 0));
}

TEST(Arena, GivesAllGradientsAsOneRow) {
  const auto device = MakeCpuDevice({});
  const auto arena = Arena::Create(ThreeBuffers(), *device);
  ASSERT_TRUE(arena.ok());
  const View all = (*arena)->Whole(MemoryKind::kGradients);
  EXPECT_EQ(all.data, (*arena)->Get("gradients/a", 1, 17).data);
  EXPECT_EQ(all.bytes(), 128 + 64);
  EXPECT_EQ((*arena)->Whole(MemoryKind::kOptimizer).elements(), 0);
}

TEST(Arena, NamesABufferThatNobodyAskedFor) {
  const auto device = MakeCpuDevice({});
  const auto arena = Arena::Create(ThreeBuffers(), *device);
  ASSERT_TRUE(arena.ok());
  (*arena)->Get("weights/a", 1, 3);
  (*arena)->Get("gradients/a", 17, 1);
  EXPECT_EQ((*arena)->CheckAllUsed(),
            absl::InternalError("arena: gradients/b is planned but never used"));
  (*arena)->Get("gradients/b", 16, 1);
  EXPECT_EQ((*arena)->CheckAllUsed(), absl::OkStatus());
}

TEST(ArenaDeathTest, EndsTheProcessForWhatIsNotPlanned) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto device = MakeCpuDevice({});
  const auto arena = Arena::Create(ThreeBuffers(), *device);
  ASSERT_TRUE(arena.ok());
  EXPECT_DEATH((*arena)->Get("weights/b", 1, 3), "weights/b \\[1, 3\\] is not planned");
  EXPECT_DEATH((*arena)->Get("weights/a", 1, 4), "weights/a \\[1, 4\\] is not planned");
}

class FullDevice : public PassingDevice {
 public:
  using PassingDevice::PassingDevice;
  void* Allocate(int64_t) override { return nullptr; }
};

TEST(Arena, SaysThatTheDeviceHasTooLittle) {
  const auto device = MakeCpuDevice({});
  FullDevice full(*device);
  const auto arena = Arena::Create(ThreeBuffers(), full);
  EXPECT_EQ(arena.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(arena.status().message(), testing::HasSubstr("256 bytes are planned"));
}

}  // namespace
}  // namespace weft
