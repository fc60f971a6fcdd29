#include "worker/model/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "plan/errors.h"
#include "worker/state/initial_weights.h"

namespace weft {
namespace {

// In [0, 1), 53 bits of it.
double Uniform(uint64_t seed, int64_t index) {
  const auto i = static_cast<uint64_t>(index);
  const auto low = [](uint64_t word) { return static_cast<uint32_t>(word); };
  const std::array<uint32_t, 4> words =
      Philox({low(i), low(i >> 32), 0, 0}, {low(seed), low(seed >> 32)});
  const uint64_t bits = uint64_t{words[0]} << 32 | words[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace

int32_t NextToken(absl::Span<const float> logits, const SamplingOptions& options, int64_t index) {
  CHECK(!logits.empty() && options.temperature >= 0 && options.top_p > 0);
  for (const float logit : logits) {
    if (!std::isfinite(logit)) return -1;
  }
  const auto likelier = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  if (options.temperature == 0) return *std::min_element(ids.begin(), ids.end(), likelier);
  const bool cuts = options.top_k > 0 && options.top_k < std::ssize(ids);
  const auto end = cuts ? ids.begin() + options.top_k : ids.end();
  std::partial_sort(ids.begin(), end, ids.end(), likelier);
  ids.erase(end, ids.end());

  const double highest = static_cast<double>(logits[static_cast<size_t>(ids.front())]);
  std::vector<double> weights;  // of ids, up to a common factor
  for (const int32_t id : ids) {
    const double logit = static_cast<double>(logits[static_cast<size_t>(id)]);
    weights.push_back(std::exp((logit - highest) / options.temperature));
  }
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  size_t kept = 0;
  double total = 0;
  while (kept < ids.size() && (kept == 0 || total < options.top_p * all)) total += weights[kept++];
  const double drawn = Uniform(options.seed, index) * total;
  double passed = 0;
  for (size_t i = 0; i + 1 < kept; ++i) {
    passed += weights[i];
    if (drawn < passed) return ids[i];
  }
  return ids[kept - 1];
}

}  // namespace weft
