#include "worker/probe/product.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "worker/backend/loader.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

// Where others take the core for most of the time, one of so many is done in one turn.
constexpr int kLeastProducts = 8;

// REQUIRES: `data` has room for three matrices.
absl::StatusOr<double> BestSeconds(Device& device, char* data, int64_t side, double seconds) {
  const int64_t bytes = side * side * 4;
  const View x{data, side, side, DType::kF32};
  const View w{data + bytes, side, side, DType::kF32};
  const View y{data + 2 * bytes, side, side, DType::kF32};
  std::vector<float> numbers(static_cast<size_t>(side * side));
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (float& number : numbers) number = uniform(random);
  device.CopyIn(x, numbers.data());
  device.CopyIn(w, numbers.data());
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                   std::chrono::duration<double>(seconds));
  double best_s = 0;
  int done = 0;  // the first one warms up
  do {
    const Clock::time_point start = Clock::now();
    device.MatMul(x, Transpose::kNo, w, Transpose::kYes, 0, y);
    RETURN_IF_ERROR(ToStatus(device.Synchronize()));
    const double once_s = std::chrono::duration<double>(Clock::now() - start).count();
    if (done > 0 && (best_s == 0 || once_s < best_s)) best_s = once_s;
    ++done;
  } while (Clock::now() < end || done <= kLeastProducts);
  return std::max(best_s, 1e-9);
}

}  // namespace

absl::StatusOr<double> MeasureProduct(Device& device, int64_t side, double seconds) {
  const int64_t bytes = 3 * side * side * 4;
  void* const data = device.Allocate(bytes);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the device has no ", bytes, " bytes to measure with; free memory"));
  }
  const absl::StatusOr<double> best_s =
      BestSeconds(device, static_cast<char*>(data), side, seconds);
  device.Free(data, bytes);
  RETURN_IF_ERROR(best_s.status());
  const auto n = static_cast<double>(side);
  return 2 * n * n * n / *best_s;
}

}  // namespace weft
