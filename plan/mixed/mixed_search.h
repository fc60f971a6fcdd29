// MixedSearch tries the shapes of mixed plans, the most promising first: a shape's bound is what it
// would take if blocks or microbatches could be cut at will and memory had no end. Used by
// mixed_plan.h; one thread.
#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/estimate/question.h"
#include "plan/mixed/fleet_part.h"
#include "plan/mixed/mixed_plan.h"
#include "plan/mixed/mixed_step.h"

namespace weft {

inline constexpr size_t kMostParts = 4;

class MixedSearch {
 public:
  // `questions`: the job on each part. They are copied.
  MixedSearch(absl::Span<const Question> questions, LayoutSpec asked);

  // Without `alone`.
  absl::StatusOr<MixedAnswer> Find();
  // The pricer keeps what the search knows of a part by itself.
  Pricer& PricerOf(size_t part) { return parts_[part]->pricer(); }

 private:
  // A Shape is common to the layouts that one try looks at.
  struct Shape {
    MixedWay way = MixedWay::kStages;
    std::vector<int> parts = {};   // that work, in the order of stages
    std::vector<int> counts = {};  // kStages: stages on each of them; kReplicas: replicas
    Layout layout = {};            // without its blocks, its recompute, and where its states are
    double bound_s = 0;
  };
  // The ways of one group compete: those of the same kind on the same parts.
  using Group = std::pair<MixedWay, uint32_t>;
  struct Candidate {
    MixedPlan plan;
    std::vector<FleetPart*> part_of_stage;  // kStages
  };
  struct Finds {
    std::vector<Candidate> best;  // by closed forms, the best first
    std::string nearest;          // why the shape that came nearest does not fit
    int64_t nearest_over_bytes = 0;
  };
  // Where states are: the stage of ZeRO, and whether the optimizer is on the host.
  struct Placement {
    int zero_stage = 0;
    OffloadDevice offload = OffloadDevice::kNone;
  };

  // Blocks as stages are fast, wherever states are.
  struct FastestSplit {
    std::vector<int64_t> blocks = {};
    std::optional<double> slowest_s = {};  // a microbatch on the slowest stage; nothing: no split
  };
  // Tries of a shape that differ in where states are share this.
  struct Tries {
    std::vector<FleetPart*> part_of_stage = {};      // kStages
    std::vector<std::vector<Recompute>> modes = {};  // kStages
    std::vector<double> least_s = {};  // by mode: at most a microbatch on the slowest stage
    std::vector<std::optional<FastestSplit>>
        fastest;  // by mode; of replicas one: of the first part
  };

  std::vector<Shape> Shapes();
  void AddStageShapes(const Layout& base, std::vector<Shape>& shapes);
  void AddReplicaShapes(const Layout& base, std::vector<Shape>& shapes);
  void AddReplicaShape(Shape shape, std::vector<Shape>& shapes);
  // Layouts of all tp, cp, schedules and micro_batch_size, with the least dp and pp 1.
  std::vector<Layout> Bases() const;
  bool IsSound(const Layout& base) const;
  void AddCuts(Layout base, std::vector<Layout>& bases) const;
  std::vector<std::vector<int>> Orders() const;
  std::vector<Placement> Placements() const;
  static Group GroupOf(const Shape& shape);

  void Try(const Shape& shape);
  Tries TriesOf(const Shape& shape);
  // False: there was no room.
  bool TryStages(const Shape& shape, const Placement& placement, Tries& tries);
  bool TryReplicas(const Shape& shape, const Placement& placement, Tries& tries);
  // Returns what each of so many parts computes again: all combinations, the least first.
  std::vector<std::vector<Recompute>> Modes(size_t parts) const;
  // False where the blocks have no room, whatever is computed again.
  bool MayFit(const Shape& shape, const std::vector<FleetPart*>& part_of_stage, Layout layout);
  enum class Fit { kNone, kBehind, kFastest, kMoved };
  // Gives the layout blocks as stages are fast or, where a part has no room for that, with those
  // moved that it has no room for.
  Fit FitStages(const Shape& shape, const std::vector<FleetPart*>& part_of_stage,
                std::optional<FastestSplit>& known, Layout& layout);
  // Blocks as stages are fast, within `most`. Returns what a microbatch takes on the slowest stage;
  // nothing if they do not fit.
  std::optional<double> Split(const std::vector<FleetPart*>& part_of_stage,
                              const std::vector<int64_t>& most, Layout& layout);
  // The same without limits, found out once.
  const FastestSplit& Fastest(const std::vector<FleetPart*>& part_of_stage,
                              std::optional<FastestSplit>& known, Layout& layout);
  // Seconds of a step that need not be looked at.
  double LimitOf(const Group& group);
  // The first stage of each of the parts that do not fit.
  std::vector<int> Misfits(const Shape& shape, const std::vector<FleetPart*>& part_of_stage,
                           const Layout& layout);
  void Record(const Shape& shape, Candidate candidate);
  std::optional<std::vector<int64_t>> Microbatches(const Shape& shape,
                                                   absl::Span<const Layout> layouts);
  absl::Status Replay(Candidate& candidate);
  void Describe(Candidate& candidate);
  std::string NameOf(const Group& group) const;

  const std::vector<Question> questions_;
  const LayoutSpec asked_;
  const std::shared_ptr<MemoryTable> memory_;       // of all parts
  std::vector<std::unique_ptr<FleetPart>> parts_;   // each by itself
  std::vector<std::unique_ptr<FleetPart>> joined_;  // with the slowest link between nodes of all
  std::map<Group, Finds> finds_;
  double best_s_ = std::numeric_limits<double>::infinity();  // of all groups
  int64_t priced_ = 0;
};

}  // namespace weft
