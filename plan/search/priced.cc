#include "plan/search/priced.h"

#include <cmath>

#include "plan/search/plan.h"

namespace weft {
namespace {

double Ticks(double seconds) {
  return std::round(seconds * 1e12);
}

}  // namespace

bool Better(const Priced& a, const Priced& b) {
  const double ticks_a = Ticks(a.objective_s);
  const double ticks_b = Ticks(b.objective_s);
  return ticks_a != ticks_b ? ticks_a < ticks_b : Simpler(a.layout, b.layout);
}

}  // namespace weft
