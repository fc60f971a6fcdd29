#include "plan/explain/front.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "plan/search/pricer.h"
#include "plan/search/search.h"

namespace weft {
namespace {

// Quarters of the memory that are asked about.
constexpr int kMemoryParts = 4;
// Up to so many nodes each number of them is asked about; of more, three quarters and halves in
// turns, so many of them at most.
constexpr int kFewNodes = 8;
constexpr int kMostSteps = 6;

FrontPoint PointOf(const Layout& layout, const TermSeconds& time, const Peak& peak,
                   Pricer& pricer) {
  return {.layout = layout,
          .time = time,
          .goodput = pricer.Goodput(layout, time.total_s()),
          .peak_bytes = peak.layout_bytes(),
          .ranks = layout.world_size()};
}

// The layout with as many replicas fewer as `slots` ask for.
std::optional<Layout> OnFewer(Layout layout, int64_t slots, int64_t global_batch_size) {
  const int64_t replica = layout.world_size() / layout.dp;
  if (replica > slots) return std::nullopt;
  layout.dp = static_cast<int>(std::min<int64_t>(layout.dp, slots / replica));
  const auto divides = [&] {
    return global_batch_size % (layout.dp * layout.micro_batch_size) == 0;
  };
  while (layout.dp > 1 && !divides()) --layout.dp;
  if (!divides()) return std::nullopt;
  layout.gradient_accumulation_steps = global_batch_size / (layout.dp * layout.micro_batch_size);
  return layout;
}

// Adds the best of what the pricer's machine may run; what is known already bounds the search.
// Returns whether anything fits.
bool AddBest(Pricer& pricer, const LayoutSpec& constraints, Purpose purpose,
             std::vector<FrontPoint>& points) {
  const Question& question = pricer.question();
  std::vector<Layout> known;
  for (const FrontPoint& point : points) {
    auto layout = OnFewer(point.layout, question.cluster.slots(), question.batch.global_batch_size);
    if (layout) known.push_back(*std::move(layout));
  }
  const absl::StatusOr<std::optional<Priced>> best = SolveFrom(pricer, constraints, purpose, known);
  if (!best.ok() || !*best) return false;
  points.push_back(PointOf((*best)->layout, (*best)->time, (*best)->peak, pricer));
  return true;
}

// Numbers of nodes below `nodes` that are asked about, the most first.
std::vector<int> FewerNodes(int nodes) {
  std::vector<int> numbers;
  int whole = nodes;
  for (int step = 0; nodes > kFewNodes && step < kMostSteps; ++step) {
    const bool half = step % 2 == 1;
    nodes = std::max(kFewNodes, half ? whole / 2 : 3 * whole / 4);
    if (half) whole = nodes;
    numbers.push_back(nodes);
  }
  if (nodes > kFewNodes) return numbers;
  while (nodes > 1) numbers.push_back(--nodes);
  return numbers;
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
  // A model that does not fit so many devices fits no fewer.
  bool fits = true;
  for (const int nodes : FewerNodes(question.cluster.nodes)) {
    limited.cluster.nodes = nodes;
    if (!(fits = AddBest(pricer, constraints, purpose, points))) break;
  }
  fits = fits && limited.cluster.nodes == 1;
  for (Question smaller = limited; fits && smaller.cluster.slots_per_node > 1;) {
    --smaller.cluster.slots_per_node;
    Pricer of_part(smaller, pricer.memory());
    fits = AddBest(of_part, constraints, purpose, points);
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
