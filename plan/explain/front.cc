#include "plan/explain/front.h"

#include <algorithm>

#include "plan/search/pricer.h"
#include "plan/search/search.h"

namespace weft {
namespace {

// Halvings of the number of devices, and quarters of the memory, that are asked about.
constexpr int kHalvings = 6;
constexpr int kMemoryParts = 4;

void AddBest(const Question& question, const LayoutSpec& constraints, Purpose purpose,
             std::vector<FrontPoint>& points) {
  Pricer pricer(question);
  const absl::StatusOr<Finds> finds = Solve(pricer, constraints, purpose);
  if (!finds.ok() || finds->fitting.empty()) return;
  const Priced& best = finds->fitting.front();
  points.push_back({.layout = best.layout,
                    .time = best.time,
                    .goodput = pricer.Goodput(best.layout, best.time.total_s()),
                    .peak_bytes = best.peak.layout_bytes(),
                    .ranks = best.layout.world_size()});
}

// At most as good as `other` in everything.
bool IsNoBetter(const FrontPoint& point, const FrontPoint& other) {
  return point.time.total_s() / point.goodput >= other.time.total_s() / other.goodput &&
         point.peak_bytes >= other.peak_bytes && point.ranks >= other.ranks;
}

}  // namespace

std::vector<FrontPoint> ParetoFront(const Question& question, const LayoutSpec& constraints,
                                    Purpose purpose) {
  std::vector<FrontPoint> points;
  Question limited = question;
  for (int i = 0; i <= kHalvings; ++i) {
    AddBest(limited, constraints, purpose, points);
    int& count = limited.cluster.nodes > 1 ? limited.cluster.nodes : limited.cluster.slots_per_node;
    if (count == 1) break;
    count /= 2;
  }
  const int64_t library_bytes = question.cluster.device.library_bytes;
  for (int part = 1; part < kMemoryParts; ++part) {
    limited = question;
    limited.cluster.device.memory_bytes =
        library_bytes + question.cluster.device.usable_bytes() / kMemoryParts * part;
    AddBest(limited, constraints, purpose, points);
  }
  std::stable_sort(points.begin(), points.end(), [](const FrontPoint& a, const FrontPoint& b) {
    return a.time.total_s() / a.goodput < b.time.total_s() / b.goodput;
  });
  std::vector<FrontPoint> front;
  for (const FrontPoint& point : points) {
    const bool beaten = std::any_of(front.begin(), front.end(), [&](const FrontPoint& other) {
      return IsNoBetter(point, other);
    });
    if (!beaten) front.push_back(point);
  }
  return front;
}

}  // namespace weft
