#include "plan/estimate/kernel_time.h"

#include <algorithm>
#include <cstdint>

namespace weft {
namespace {

// std::ceil is a call where the compiler may not assume SSE 4.1; this is asked a hundred times per
// block. Sizes are far below 2^63.
double RoundUp(double value) {
  const auto whole = static_cast<double>(static_cast<int64_t>(value));
  return whole < value ? whole + 1 : whole;
}

double ModelledSeconds(const Machine& machine, double m, double n, double k) {
  const double bytes = machine.element_bytes * (m * k + k * n + m * n);
  if (machine.units <= 0) return 2 * m * n * k / machine.matmul_flops_per_s;
  // Tiles that libraries cut a product into, each half of the last. A smaller tile reads its inputs
  // more often for the same work, so that its rate is less.
  const double rows_64 = RoundUp(m / 64), rows_128 = RoundUp(rows_64 / 2);
  const double columns_64 = RoundUp(n / 64), columns_128 = RoundUp(columns_64 / 2);
  struct Tiling {
    double tiles, area;
  };
  const Tiling tilings[] = {{RoundUp(rows_128 / 2) * columns_128, 256 * 128},
                            {rows_128 * columns_128, 128 * 128},
                            {rows_128 * columns_64, 128 * 64},
                            {rows_64 * columns_64, 64 * 64}};
  double best = 0;  // tile areas that one unit works off, at the large tile's rate
  double slowdown = 1;
  const double units_share = 1 / machine.units;
  const double slowdown_per_halving = 1 / (1 - machine.small_tile_loss);
  for (const Tiling& tiling : tilings) {
    const double even = tiling.tiles * units_share;
    const double waves = even + machine.wave_loss * (RoundUp(even) - even);
    const double areas = waves * tiling.area * slowdown;
    if (best == 0 || areas < best) best = areas;
    slowdown *= slowdown_per_halving;
  }
  const double waves_s = best * 2 * machine.units / machine.matmul_flops_per_s;
  return std::max(waves_s * (k + machine.half_rate_inner), bytes / machine.memory_bytes_per_s);
}

// Measured over modelled seconds of the nearest shape that was measured, the less the farther it
// is: in full up to a factor of kNear in all dims together, not at all beyond kFar.
double MeasuredCorrection(const Machine& machine, double m, double n, double k) {
  constexpr double kNear = 2;
  constexpr double kFar = 16;
  const MatmulPoint* nearest = nullptr;
  double distance = kFar;
  for (const MatmulPoint& point : *machine.matmuls) {
    if (point.precision != machine.precision || point.flops_per_s <= 0) continue;
    const double own = Apart(m, static_cast<double>(point.m)) *
                       Apart(n, static_cast<double>(point.n)) *
                       Apart(k, static_cast<double>(point.k));
    if (own >= distance) continue;
    nearest = &point;
    distance = own;
  }
  if (nearest == nullptr) return 1;
  const auto point_m = static_cast<double>(nearest->m);
  const auto point_n = static_cast<double>(nearest->n);
  const auto point_k = static_cast<double>(nearest->k);
  const double measured_s = 2 * point_m * point_n * point_k / nearest->flops_per_s;
  const double ratio = measured_s / ModelledSeconds(machine, point_m, point_n, point_k);
  const double weight = std::min(1.0, (kFar - distance) / (kFar - kNear));
  return 1 + weight * (ratio - 1);
}

}  // namespace

double MatmulSeconds(const Machine& machine, double m, double n, double k) {
  if (m <= 0 || n <= 0 || k <= 0) return 0;
  const double modelled_s = ModelledSeconds(machine, m, n, k);
  return machine.matmuls == nullptr ? modelled_s
                                    : modelled_s * MeasuredCorrection(machine, m, n, k);
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
