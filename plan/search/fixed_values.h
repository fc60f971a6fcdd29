// Values that a job fixes, by the keys of its file: to be named where they contradict each other,
// and where they alone keep a better layout from being the plan. Pure.
#pragma once
#include <string>
#include <vector>

#include "plan/search/space.h"
#include "plan/spec/layout.h"

namespace weft {

struct FixedValue {
  std::string key;    // "parallelism.pp"
  std::string value;  // "2"
  friend bool operator==(const FixedValue&, const FixedValue&) = default;
};

// All that `constraints` fix, degrees first.
std::vector<FixedValue> FixedValuesOf(const Constraints& constraints);

// Holds the values that `layout` does not keep, and the constraints without them.
struct BrokenValues {
  std::vector<FixedValue> values;
  Constraints freed;
};
BrokenValues BrokenBy(const Layout& layout, const Constraints& constraints,
                      const BatchShape& batch);

// "parallelism.dp 4, training.micro_batch_size 2"
std::string FixedValuesText(const std::vector<FixedValue>& values);

}  // namespace weft
