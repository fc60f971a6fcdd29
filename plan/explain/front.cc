#include "plan/explain/front.h"

#include <algorithm>

#include "plan/search/pricer.h"
#include "plan/search/search.h"

namespace weft {
namespace {

// Halvings of the number of devices, and quarters of the memory, that are asked about.
constexpr int kHalvings = 6;
constexpr int kMemoryParts = 4;

FrontPoint PointOf(const Layout& layout, const TermSeconds& time, const Peak& peak,
                   Pricer& pricer) {
  return {.layout = layout,
          .time = time,
          .goodput = pricer.Goodput(layout, time.total_s()),
          .peak_bytes = peak.layout_bytes(),
          .ranks = layout.world_size()};
}

void AddBest(Pricer& pricer, const LayoutSpec& constraints, Purpose purpose,
             std::vector<FrontPoint>& points) {
  const absl::StatusOr<Finds> finds = Solve(pricer, constraints, purpose, Wanted::kFitting);
  if (!finds.ok() || finds->fitting.empty()) return;
  const Priced& best = finds->fitting.front();
  points.push_back(PointOf(best.layout, best.time, best.peak, pricer));
}

// At most as good as `other` in everything.
bool IsNoBetter(const FrontPoint& point, const FrontPoint& other) {
  return point.time.total_s() / point.goodput >= other.time.total_s() / other.goodput &&
         point.peak_bytes >= other.peak_bytes && point.ranks >= other.ranks;
}

// The best under each limit; `plan`: nullptr where it is not known.
std::vector<FrontPoint> PointsOf(const Question& question, const LayoutSpec& constraints,
                                 Purpose purpose, const Plan* plan) {
  std::vector<FrontPoint> points;
  Question limited = question;
  Pricer pricer(limited);  // whatever the number of nodes and the memory
  if (plan != nullptr) {
    points.push_back(PointOf(plan->layout, plan->time, pricer.PeakOf(plan->layout), pricer));
  } else {
    AddBest(pricer, constraints, purpose, points);
  }
  int halvings = 0;
  for (; halvings < kHalvings && limited.cluster.nodes > 1; ++halvings) {
    limited.cluster.nodes /= 2;
    AddBest(pricer, constraints, purpose, points);
  }
  for (Question smaller = limited; halvings < kHalvings && smaller.cluster.slots_per_node > 1;
       ++halvings) {
    smaller.cluster.slots_per_node /= 2;
    Pricer of_part(smaller, pricer.memory());
    AddBest(of_part, constraints, purpose, points);
  }
  limited.cluster.nodes = question.cluster.nodes;
  const DeviceProfile& device = question.cluster.device;
  for (int part = 1; part < kMemoryParts; ++part) {
    limited.cluster.device.memory_bytes =
        device.library_bytes + device.usable_bytes() / kMemoryParts * part;
    AddBest(pricer, constraints, purpose, points);
  }
  return points;
}

std::vector<FrontPoint> FrontOf(std::vector<FrontPoint> points) {
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

}  // namespace

std::vector<FrontPoint> ParetoFront(const Question& question, const LayoutSpec& constraints,
                                    Purpose purpose) {
  return FrontOf(PointsOf(question, constraints, purpose, nullptr));
}

std::vector<FrontPoint> ParetoFront(const Question& question, const LayoutSpec& constraints,
                                    Purpose purpose, const Plan& plan) {
  return FrontOf(PointsOf(question, constraints, purpose, &plan));
}

}  // namespace weft
