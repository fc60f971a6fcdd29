#include "plan/search/plan.h"

#include <algorithm>
#include <array>

#include "plan/errors.h"
#include "plan/spec/layout_properties.h"

namespace weft {

const StageMemory& Plan::fullest() const {
  CHECK(!stages.empty());
  return *std::max_element(stages.begin(), stages.end(),
                           [](const StageMemory& a, const StageMemory& b) {
                             return a.layout_bytes() < b.layout_bytes();
                           });
}

int64_t Plan::peak_bytes() const {
  return stages.empty() ? 0 : fullest().layout_bytes();
}

int64_t Plan::host_bytes() const {
  int64_t most = 0;
  for (const StageMemory& stage : stages) most = std::max(most, stage.memory.host_bytes);
  return most;
}

double Plan::tokens_per_s(const BatchShape& batch) const {
  return static_cast<double>(batch.global_batch_size * batch.seq_len) / time.total_s();
}

namespace {

template <typename T>
int64_t Magnitude(const T& value) {
  return static_cast<int64_t>(value);
}
template <typename T>
int64_t Magnitude(const std::vector<T>& list) {
  return list.empty() ? 0 : 1;
}

template <typename Row>
int64_t ComplexityOf(const Row& row, const Layout& layout) {
  return row.complexity.of != nullptr ? row.complexity.of(layout) : Magnitude(layout.*row.value);
}

// No mechanism more, and one less.
bool HasFewerMechanisms(const Layout& a, const Layout& b) {
  bool has_less = false, has_more = false;
  EachLayoutProperty([&](const auto& row) {
    if (!row.complexity.is_mechanism) return;
    const int64_t ours = ComplexityOf(row, a), theirs = ComplexityOf(row, b);
    has_less |= ours < theirs;
    has_more |= ours > theirs;
  });
  return has_less && !has_more;
}

}  // namespace

bool Simpler(const Layout& a, const Layout& b) {
  const auto key = [](const Layout& layout) {
    std::array<int64_t, kNumLayoutProperties> values = {};
    EachLayoutProperty([&](const auto& row) {
      values[static_cast<size_t>(row.complexity.order)] = ComplexityOf(row, layout);
    });
    return values;
  };
  const auto key_a = key(a);
  const auto key_b = key(b);
  return key_a != key_b ? key_a < key_b : a.layers_per_stage < b.layers_per_stage;
}

const Rejection* SimplerWithin(const Plan& plan, double share) {
  const Rejection* simplest = nullptr;
  const double most_s = (1 + share) * plan.time.total_s() / plan.goodput;
  for (const Rejection& rejection : plan.rejections) {
    if (rejection.cause != RejectionCause::kSlower) continue;
    if (rejection.time.total_s() / rejection.goodput > most_s) continue;
    const Layout& best = simplest != nullptr ? simplest->layout : plan.layout;
    if (HasFewerMechanisms(rejection.layout, best)) simplest = &rejection;
  }
  return simplest;
}

}  // namespace weft
