#include "plan/estimate/kernel_time.h"

#include <gtest/gtest.h>

#include <vector>

namespace weft {
namespace {

// 100 units of 1 GFLOP/s each, memory without end.
Machine Device() {
  Machine machine;
  machine.gpu = true;
  machine.matmul_flops_per_s = 100e9;
  machine.memory_bytes_per_s = 1e300;
  machine.element_bytes = 2;
  machine.units = 100;
  machine.wave_loss = 1;
  return machine;
}

double Rate(const Machine& machine, double m, double n, double k) {
  return 2 * m * n * k / MatmulSeconds(machine, m, n, k) / machine.matmul_flops_per_s;
}

TEST(Matmul, FullWavesReachTheSustainedRate) {
  EXPECT_NEAR(Rate(Device(), 256 * 10, 128 * 10, 512), 1, 1e-12);
  EXPECT_NEAR(Rate(Device(), 256 * 20, 128 * 10, 512), 1, 1e-12);
}

// 101 tiles take as long as 200 where nothing fills the last wave.
TEST(Matmul, OneTileTooManyCostsAWave) {
  Machine machine = Device();
  machine.small_tile_loss = 0.9;  // no way out by smaller tiles
  const double full_s = MatmulSeconds(machine, 256 * 100, 128, 512);
  EXPECT_NEAR(MatmulSeconds(machine, 256 * 101, 128, 512) / full_s, 2, 1e-12);
  machine.wave_loss = 0;
  EXPECT_NEAR(MatmulSeconds(machine, 256 * 101, 128, 512) / full_s, 1.01, 1e-12);
}

TEST(Matmul, SmallTilesUseUnitsThatLargeOnesLeaveIdle) {
  Machine machine = Device();
  machine.small_tile_loss = 0.1;
  // Ten large tiles or eighty small ones.
  EXPECT_NEAR(Rate(machine, 2560, 128, 512), 0.8 * 0.9 * 0.9 * 0.9, 1e-12);
}

TEST(Matmul, ShortInnerSizesRunBelowTheRate) {
  Machine machine = Device();
  machine.half_rate_inner = 128;
  EXPECT_NEAR(Rate(machine, 2560, 1280, 128), 0.5, 1e-12);
  EXPECT_NEAR(Rate(machine, 2560, 1280, 128 * 9), 0.9, 1e-12);
}

TEST(Matmul, TakesAtLeastTheTimeToMoveItsMatrices) {
  Machine machine = Device();
  machine.memory_bytes_per_s = 1;
  EXPECT_DOUBLE_EQ(MatmulSeconds(machine, 10, 20, 30), 2 * (10 * 30 + 30 * 20 + 10 * 20));
}

TEST(Matmul, WithoutUnitsEveryShapeHasTheSustainedRate) {
  Machine machine = Device();
  machine.units = 0;
  EXPECT_DOUBLE_EQ(MatmulSeconds(machine, 3, 5, 7), 2 * 3 * 5 * 7 / 100e9);
  EXPECT_EQ(MatmulSeconds(machine, 0, 5, 7), 0);
}

TEST(Matmul, MeasuredShapesCorrectTheirNeighbours) {
  Machine machine = Device();
  const double modelled_s = MatmulSeconds(machine, 512, 512, 512);
  const double far_s = MatmulSeconds(machine, 4096, 4096, 4096);
  const std::vector<MatmulPoint> points = {
      {.m = 512, .n = 512, .k = 512, .precision = Precision::kBf16, .flops_per_s = 1e9},
      {.m = 512, .n = 512, .k = 512, .precision = Precision::kFp32, .flops_per_s = 1}};
  machine.matmuls = &points;
  machine.precision = Precision::kBf16;
  const double measured_s = 2.0 * 512 * 512 * 512 / 1e9;
  EXPECT_DOUBLE_EQ(MatmulSeconds(machine, 512, 512, 512), measured_s);
  EXPECT_DOUBLE_EQ(MatmulSeconds(machine, 4096, 4096, 4096), far_s);
  const double between_s = MatmulSeconds(machine, 512 * 8, 512, 512) /
                           (MatmulSeconds(Device(), 512 * 8, 512, 512) / modelled_s);
  EXPECT_GT(between_s, modelled_s);
  EXPECT_LT(between_s, measured_s);
}

TEST(LinearLayer, GradientsAreProductsOfTheirOwnShape) {
  Machine machine = Device();
  machine.half_rate_inner = 64;
  const LinearSeconds layer = LinearLayer(machine, 4096, 1024, 256);
  EXPECT_EQ(layer.forward_s, MatmulSeconds(machine, 4096, 1024, 256));
  EXPECT_EQ(layer.input_gradient_s, MatmulSeconds(machine, 4096, 256, 1024));
  EXPECT_EQ(layer.weight_gradient_s, MatmulSeconds(machine, 1024, 256, 4096));
}

}  // namespace
}  // namespace weft
