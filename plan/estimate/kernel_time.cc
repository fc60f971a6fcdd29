#include "plan/estimate/kernel_time.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

// Tiles that libraries cut a product into. A smaller tile reads its inputs more often for the same
// work, so that its rate is less.
struct Tile {
  double rows, columns;
};
constexpr Tile kTiles[] = {{256, 128}, {128, 128}, {128, 64}, {64, 64}};  // each half of the last

}  // namespace

double MatmulSeconds(const Machine& machine, double m, double n, double k) {
  if (m <= 0 || n <= 0 || k <= 0) return 0;
  const double bytes = machine.element_bytes * (m * k + k * n + m * n);
  if (machine.units <= 0) return 2 * m * n * k / machine.matmul_flops_per_s;
  const double unit_flops_per_s = machine.matmul_flops_per_s / machine.units;
  double waves_s = 0;
  double rate = 1;
  for (const Tile& tile : kTiles) {
    const double tiles = std::ceil(m / tile.rows) * std::ceil(n / tile.columns);
    const double even = tiles / machine.units;
    const double waves = even + machine.wave_loss * (std::ceil(even) - even);
    const double tile_s = waves * 2 * tile.rows * tile.columns / (unit_flops_per_s * rate);
    if (waves_s == 0 || tile_s < waves_s) waves_s = tile_s;
    rate *= 1 - machine.small_tile_loss;
  }
  return std::max(waves_s * (k + machine.half_rate_inner), bytes / machine.memory_bytes_per_s);
}

LinearSeconds LinearLayer(const Machine& machine, double m, double n, double k) {
  return {.forward_s = MatmulSeconds(machine, m, n, k),
          .input_gradient_s = MatmulSeconds(machine, m, k, n),
          .weight_gradient_s = MatmulSeconds(machine, n, k, m)};
}

double StreamingSeconds(const Machine& machine, double bytes) {
  return bytes / machine.memory_bytes_per_s;
}

}  // namespace weft
