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
// Up to so many nodes, and slots of one node, each number of them is asked about; of more, three
// quarters and halves in turns, so many of them at most.
constexpr int kFewNodes = 8;
constexpr int kFewSlots = 64;
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

// Numbers below `number` that are asked about, the most first; each of up to `few`.
std::vector<int> FewerThan(int number, int few) {
  std::vector<int> numbers;
  int whole = number;
  for (int step = 0; number > few && step < kMostSteps; ++step) {
    const bool half = step % 2 == 1;
    number = std::max(few, half ? whole / 2 : 3 * whole / 4);
    if (half) whole = number;
    numbers.push_back(number);
  }
  if (number > few) return numbers;
  while (number > 1) numbers.push_back(--number);
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
  // The best stays the best where what it leaves free is missing.
  const int slots_per_node = question.cluster.slots_per_node;
  const auto used = [&] { return points.empty() ? 0 : points.back().ranks; };
  const int used_nodes = (used() + slots_per_node - 1) / slots_per_node;
  // A model that does not fit so many devices fits no fewer.
  bool fits = !points.empty();
  for (const int nodes : FewerThan(std::min(question.cluster.nodes, used_nodes), kFewNodes)) {
    limited.cluster.nodes = nodes;
    if (!(fits = AddBest(pricer, constraints, purpose, points))) break;
  }
  fits = fits && used() <= slots_per_node;
  limited.cluster.nodes = 1;
  for (const int slots : FewerThan(std::min(slots_per_node, used()), kFewSlots)) {
    if (!fits) break;
    Question smaller = limited;
    smaller.cluster.slots_per_node = slots;
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
