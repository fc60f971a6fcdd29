#include "worker/state/initial_weights.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <numbers>
#include <system_error>
#include <thread>
#include <vector>

#include "checkpoint/safetensors.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

uint32_t Low(uint64_t word) {
  return static_cast<uint32_t>(word);
}
uint32_t High(uint64_t word) {
  return static_cast<uint32_t>(word >> 32);
}

double Normal(std::array<uint32_t, 2> key, int64_t index) {
  const auto i = static_cast<uint64_t>(index);
  const std::array<uint32_t, 4> words = Philox({Low(i), High(i), 0, 0}, key);
  constexpr double kScale = 1.0 / 4294967296.0;  // 2^-32
  const double u1 = (words[0] + 0.5) * kScale;
  const double u2 = (words[1] + 0.5) * kScale;
  return std::sqrt(-2.0 * std::log(u1)) * std::cos(2.0 * std::numbers::pi * u2);
}

// fill(begin, end) for pieces of [0, count), by up to `threads` threads.
template <typename Fill>
void InPieces(int64_t count, int threads, Fill fill) {
  constexpr int64_t kPiece = int64_t{1} << 16;  // some 3 ms
  std::atomic<int64_t> next = 0;
  const auto work = [&] {
    for (int64_t begin = next.fetch_add(kPiece); begin < count; begin = next.fetch_add(kPiece)) {
      fill(begin, std::min(begin + kPiece, count));
    }
  };
  const int64_t most = std::min<int64_t>(threads, (count + kPiece - 1) / kPiece);
  std::vector<std::jthread> others;
  try {
    while (std::ssize(others) + 1 < most) others.emplace_back(work);
  } catch (const std::system_error&) {
    // No more threads for us here: those that there are do it.
  }
  work();
}

}  // namespace

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {High(product1) ^ counter[1] ^ key[0], Low(product1),
               High(product0) ^ counter[3] ^ key[1], Low(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

void FillInitialValues(const TensorShard& shard, uint64_t seed, int threads,
                       absl::Span<float> values) {
  const TensorSpec& tensor = shard.tensor;
  CHECK(static_cast<int64_t>(values.size()) == shard.elements());
  if (tensor.initial != InitialValue::kNormal) {
    std::fill(values.begin(), values.end(), tensor.initial == InitialValue::kOne ? 1.0F : 0.0F);
    return;
  }
  CHECK(tensor.dims.size() == 1 || tensor.dims.size() == 2);
  const uint64_t hash = NameKey(tensor.name);
  const std::array<uint32_t, 2> key = {Low(seed) ^ Low(hash), High(seed) ^ High(hash)};
  const int64_t first_row = tensor.is_matrix() ? shard.begin[0] : 0;
  const int64_t first_col = shard.begin.back();
  const int64_t cols = shard.end.back() - first_col;
  InPieces(static_cast<int64_t>(values.size()), threads, [&](int64_t begin, int64_t end) {
    int64_t row = first_row + begin / cols;
    int64_t col = begin % cols;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t index = row * tensor.dims.back() + first_col + col;
      values[static_cast<size_t>(i)] = static_cast<float>(tensor.initial_std * Normal(key, index));
      if (++col == cols) {
        col = 0;
        ++row;
      }
    }
  });
}

}  // namespace weft
