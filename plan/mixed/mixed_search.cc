#include "plan/mixed/mixed_search.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/errors.h"
#include "plan/search/space.h"
#include "plan/spec/layout_rules.h"

namespace weft {
namespace {

constexpr size_t kMixedFinalists = 4;  // of each group: dry runs decide among them
constexpr int kMostPipelineStages = 128;
// A dry run exceeds its closed form by so much at most, nearly always.
constexpr double kNear = 1.02;
constexpr double kFar = 1.25;

std::vector<std::unique_ptr<FleetPart>> PartsOf(absl::Span<const Question> questions,
                                                const std::shared_ptr<MemoryTable>& memory,
                                                bool joined) {
  LinkProfile slowest = questions.front().cluster.inter_node;
  for (const Question& each : questions) {
    const LinkProfile& link = each.cluster.inter_node;
    slowest.latency_s = std::max(slowest.latency_s, link.latency_s);
    slowest.bytes_per_s = std::min(slowest.bytes_per_s, link.bytes_per_s);
    slowest.switch_reduces = slowest.switch_reduces && link.switch_reduces;
  }
  std::vector<std::unique_ptr<FleetPart>> parts;
  for (Question question : questions) {
    if (joined) question.cluster.inter_node = slowest;
    parts.push_back(std::make_unique<FleetPart>(std::move(question), memory));
  }
  return parts;
}

uint32_t MaskOf(const std::vector<int>& parts) {
  uint32_t mask = 0;
  for (const int part : parts) mask |= uint32_t{1} << part;
  return mask;
}

}  // namespace

MixedSearch::MixedSearch(absl::Span<const Question> questions, LayoutSpec asked)
    : questions_(questions.begin(), questions.end()),
      asked_(std::move(asked)),
      memory_(std::make_shared<MemoryTable>(questions_.front())),
      parts_(PartsOf(questions_, memory_, /*joined=*/false)),
      joined_(PartsOf(questions_, memory_, /*joined=*/true)) {}

MixedSearch::Group MixedSearch::GroupOf(const Shape& shape) {
  return {shape.way, MaskOf(shape.parts)};
}

std::string MixedSearch::NameOf(const Group& group) const {
  std::vector<std::string> names;
  for (size_t part = 0; part < parts_.size(); ++part) {
    if ((group.second >> part & 1) != 0) names.push_back(parts_[part]->name());
  }
  return absl::StrCat(group.first == MixedWay::kStages ? "stages over " : "replicas on ",
                      absl::StrJoin(names, ", "));
}

// Sets of two parts or more, each in the order of the fleet and with the most memory first: earlier
// stages hold more microbatches.
std::vector<std::vector<int>> MixedSearch::Orders() const {
  std::vector<std::vector<int>> orders;
  for (uint32_t mask = 1; mask < uint32_t{1} << parts_.size(); ++mask) {
    std::vector<int> order;
    for (size_t part = 0; part < parts_.size(); ++part) {
      if ((mask >> part & 1) != 0) order.push_back(static_cast<int>(part));
    }
    if (order.size() < 2) continue;
    orders.push_back(order);
    const auto memory = [&](int part) {
      return parts_[static_cast<size_t>(part)]->cluster().device.usable_bytes();
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return memory(a) > memory(b); });
    if (order != orders.back()) orders.push_back(order);
  }
  return orders;
}

std::vector<MixedSearch::Placement> MixedSearch::Placements() const {
  std::vector<Placement> placements;
  for (const OffloadDevice offload : {OffloadDevice::kNone, OffloadDevice::kCpu}) {
    if (asked_.offload_optimizer.value_or(offload) != offload) continue;
    for (const int zero : {0, 1, 2, 3}) {
      if (asked_.zero_stage.value_or(zero) == zero) placements.push_back({zero, offload});
    }
  }
  return placements;
}

std::vector<Layout> MixedSearch::Bases() const {
  const Question& question = questions_.front();
  std::vector<Layout> bases;
  int least_slots = std::numeric_limits<int>::max();
  for (const Question& each : questions_) {
    least_slots = std::min(least_slots, each.cluster.slots_per_node);
  }
  for (int tp = 1; tp <= least_slots; ++tp) {
    if (asked_.tp.value_or(tp) != tp) continue;
    for (int cp = 1; tp * cp <= least_slots; ++cp) {
      if (asked_.cp.value_or(cp) != cp) continue;
      if (cp > 1 && question.batch.seq_len % (2 * int64_t{cp}) != 0) continue;
      Layout base{.cp = cp,
                  .tp = tp,
                  .ep = asked_.ep.value_or(1),
                  .etp = asked_.etp.value_or(0),
                  .sequence_parallel = asked_.sequence_parallel.value_or(tp > 1),
                  .head_chunk_tokens = asked_.head_chunk_tokens.value_or(0)};
      base.dp = base.ep;  // the least that keeps the rules of experts
      if (IsSound(base)) AddCuts(base, bases);
    }
  }
  return bases;
}

// A group of tensor and context parallel ranks lies inside a node of any part.
bool MixedSearch::IsSound(const Layout& base) const {
  return std::all_of(questions_.begin(), questions_.end(), [&](const Question& each) {
    return each.cluster.slots_per_node % (base.tp * base.cp) == 0 &&
           DegreeIssues(each.model, each.cluster, base).empty();
  });
}

void MixedSearch::AddCuts(Layout base, std::vector<Layout>& bases) const {
  for (const ScheduleKind schedule :
       {ScheduleKind::kOneForwardOneBackward, ScheduleKind::kZeroBubbleH1, ScheduleKind::kGpipe}) {
    const bool is_usual = schedule != ScheduleKind::kGpipe;
    if (asked_.pp_schedule ? *asked_.pp_schedule != schedule : !is_usual) continue;
    base.pp_schedule = schedule;
    for (const int64_t micro : DivisorsOf(questions_.front().batch.global_batch_size)) {
      if (asked_.micro_batch_size.value_or(micro) != micro) continue;
      base.micro_batch_size = micro;
      bases.push_back(base);
    }
  }
}

std::vector<MixedSearch::Shape> MixedSearch::Shapes() {
  std::vector<Shape> shapes;
  for (const Layout& base : Bases()) {
    AddStageShapes(base, shapes);
    AddReplicaShapes(base, shapes);
  }
  std::stable_sort(shapes.begin(), shapes.end(),
                   [](const Shape& a, const Shape& b) { return a.bound_s < b.bound_s; });
  return shapes;
}

// One pipeline through the parts: as many stages on each as it has room for.
void MixedSearch::AddStageShapes(const Layout& base, std::vector<Shape>& shapes) {
  const Question& question = questions_.front();
  const int64_t microbatches = question.batch.global_batch_size / base.micro_batch_size;
  const auto blocks = static_cast<double>(question.model.num_blocks);
  const Recompute least = asked_.recompute.value_or(Recompute::kNone);
  for (const int64_t dp : DivisorsOf(microbatches)) {
    if (asked_.dp.value_or(static_cast<int>(dp)) != dp || dp % base.ep != 0) continue;
    if (asked_.gradient_accumulation_steps.value_or(microbatches / dp) != microbatches / dp) {
      continue;
    }
    for (const std::vector<int>& order : Orders()) {
      Shape shape{.way = MixedWay::kStages, .parts = order, .layout = base};
      shape.layout.dp = static_cast<int>(dp);
      shape.layout.gradient_accumulation_steps = microbatches / dp;
      int64_t stages = 0;
      for (const int part : order) {
        const int64_t width = dp * base.cp * base.tp;
        shape.counts.push_back(
            static_cast<int>(parts_[static_cast<size_t>(part)]->slots() / width));
        stages += shape.counts.back();
      }
      const bool all_work =
          std::find(shape.counts.begin(), shape.counts.end(), 0) == shape.counts.end();
      if (!all_work || stages > std::min<int64_t>(question.model.num_blocks, kMostPipelineStages) ||
          asked_.pp.value_or(static_cast<int>(stages)) != stages) {
        continue;
      }
      shape.layout.pp = static_cast<int>(stages);
      double rate = 0;  // blocks a second
      double fastest_s = std::numeric_limits<double>::infinity();
      for (size_t i = 0; i < order.size(); ++i) {
        const double block_s =
            parts_[static_cast<size_t>(order[i])]->BlockSeconds(shape.layout, least);
        rate += shape.counts[i] / block_s;
        fastest_s = std::min(fastest_s, block_s);
      }
      shape.bound_s =
          static_cast<double>(microbatches / dp - 1) * blocks / rate + blocks * fastest_s;
      shapes.push_back(std::move(shape));
    }
  }
}

// Pipelines of the same depth on each part: as many as it has room for, or the power of two below,
// of which numbers of microbatches make up a batch more often.
void MixedSearch::AddReplicaShapes(const Layout& base, std::vector<Shape>& shapes) {
  if (asked_.gradient_accumulation_steps || base.ep > 1) return;
  const int64_t deepest =
      std::min<int64_t>(questions_.front().model.num_blocks, kMostPipelineStages);
  std::set<std::vector<int>> sets;
  for (std::vector<int> order : Orders()) {
    std::sort(order.begin(), order.end());
    if (!sets.insert(order).second) continue;
    for (int pp = 1; pp <= deepest; pp = pp < 8 ? pp + 1 : pp * 2) {
      if (asked_.pp.value_or(pp) != pp) continue;
      Shape shape{.way = MixedWay::kReplicas, .parts = order, .layout = base};
      shape.layout.pp = pp;
      std::vector<int> rounded;
      for (const int part : order) {
        const int slots = joined_[static_cast<size_t>(part)]->slots();
        shape.counts.push_back(slots / (pp * base.cp * base.tp));
        rounded.push_back(
            static_cast<int>(std::bit_floor(static_cast<uint32_t>(shape.counts.back()))));
      }
      if (*std::min_element(shape.counts.begin(), shape.counts.end()) == 0) break;
      AddReplicaShape(shape, shapes);
      if (rounded == shape.counts) continue;
      shape.counts = std::move(rounded);
      AddReplicaShape(shape, shapes);
    }
  }
}

void MixedSearch::AddReplicaShape(Shape shape, std::vector<Shape>& shapes) {
  const Question& question = questions_.front();
  const int64_t microbatches = question.batch.global_batch_size / shape.layout.micro_batch_size;
  shape.layout.dp = std::accumulate(shape.counts.begin(), shape.counts.end(), 0);
  if (shape.layout.dp > microbatches || asked_.dp.value_or(shape.layout.dp) != shape.layout.dp) {
    return;
  }
  double rate = 0;  // microbatches a second
  double fill = static_cast<double>(microbatches);
  for (size_t i = 0; i < shape.parts.size(); ++i) {
    FleetPart& part = *joined_[static_cast<size_t>(shape.parts[i])];
    const double block_s =
        part.BlockSeconds(shape.layout, asked_.recompute.value_or(Recompute::kNone));
    const double stage_s =
        static_cast<double>(question.model.num_blocks) / shape.layout.pp * block_s;
    rate += shape.counts[i] / stage_s;
    fill += shape.counts[i] * (shape.layout.pp - 1);
  }
  shape.bound_s = fill / rate;
  shapes.push_back(std::move(shape));
}

// Nothing behind the best of its group can win it. A group that has something to show is not
// looked at more closely far behind the best of all.
double MixedSearch::LimitOf(const Group& group) {
  const std::vector<Candidate>& best = finds_[group].best;
  if (best.empty()) return std::numeric_limits<double>::infinity();
  return std::min(kNear * best.front().plan.step_s, kFar * best_s_);
}

MixedSearch::Tries MixedSearch::TriesOf(const Shape& shape) {
  Tries tries;
  if (shape.way == MixedWay::kStages) {
    for (size_t i = 0; i < shape.parts.size(); ++i) {
      tries.part_of_stage.insert(tries.part_of_stage.end(), static_cast<size_t>(shape.counts[i]),
                                 parts_[static_cast<size_t>(shape.parts[i])].get());
    }
    tries.modes = Modes(shape.parts.size());
    const auto blocks = static_cast<double>(questions_.front().model.num_blocks);
    for (const std::vector<Recompute>& modes : tries.modes) {
      double rate = 0;  // blocks a second
      for (size_t i = 0; i < modes.size(); ++i) {
        FleetPart& part = *parts_[static_cast<size_t>(shape.parts[i])];
        rate += shape.counts[i] / part.BlockSeconds(shape.layout, modes[i]);
      }
      tries.least_s.push_back(blocks / rate);
    }
  }
  tries.fastest.resize(std::max<size_t>(1, tries.modes.size()));
  return tries;
}

void MixedSearch::Try(const Shape& shape) {
  if (shape.bound_s > LimitOf(GroupOf(shape))) return;
  Tries tries = TriesOf(shape);
  bool fitted = false;
  OffloadDevice offload = OffloadDevice::kNone;
  for (const Placement& placement : Placements()) {
    // The optimizer on the host is slower: for those that have no room else.
    if (placement.offload != offload && fitted) return;
    offload = placement.offload;
    if (shape.bound_s > LimitOf(GroupOf(shape))) return;
    fitted |= shape.way == MixedWay::kStages ? TryStages(shape, placement, tries)
                                             : TryReplicas(shape, placement, tries);
  }
}

void MixedSearch::Record(const Shape& shape, Candidate candidate) {
  ++priced_;
  best_s_ = std::min(best_s_, candidate.plan.step_s);
  std::vector<Candidate>& best = finds_[GroupOf(shape)].best;
  const auto is_before = [](const Candidate& a, const Candidate& b) {
    return a.plan.objective_s() < b.plan.objective_s();
  };
  best.insert(std::upper_bound(best.begin(), best.end(), candidate, is_before),
              std::move(candidate));
  if (best.size() > kMixedFinalists) best.pop_back();
}

absl::StatusOr<MixedAnswer> MixedSearch::Find() {
  const std::vector<Shape> shapes = Shapes();
  for (const Shape& shape : shapes) Try(shape);
  MixedAnswer answer{.priced = priced_};
  for (auto& [group, finds] : finds_) {
    MixedLoser& loser = answer.losers.emplace_back();
    loser.of = NameOf(group);
    loser.why = finds.nearest;
    for (Candidate& candidate : finds.best) {
      RETURN_IF_ERROR(Replay(candidate));
      const bool is_better =
          loser.plan.step_s == 0 || candidate.plan.objective_s() < loser.plan.objective_s();
      if (!is_better) continue;
      Describe(candidate);
      loser.plan = candidate.plan;
      loser.why.clear();
    }
  }
  if (answer.losers.empty()) {
    return absl::InvalidArgumentError(
        "what the job fixes has no layout over two parts or more: parallelism.tp has to divide the "
        "slots of a node of each, and each part has to hold a stage or a replica; leave degrees to "
        "the planner");
  }
  std::stable_sort(answer.losers.begin(), answer.losers.end(),
                   [](const MixedLoser& a, const MixedLoser& b) {
                     const bool a_fits = a.plan.step_s > 0;
                     const bool b_fits = b.plan.step_s > 0;
                     if (a_fits != b_fits) return a_fits;
                     return a_fits && a.plan.objective_s() < b.plan.objective_s();
                   });
  if (answer.losers.front().plan.step_s == 0) {
    std::vector<std::string> reasons;
    for (const MixedLoser& each : answer.losers) {
      reasons.push_back(absl::StrCat(each.of, ": ", each.why));
    }
    return absl::FailedPreconditionError(
        absl::StrCat("nothing fits on several parts together: ", absl::StrJoin(reasons, "; ")));
  }
  answer.plan = answer.losers.front().plan;
  answer.losers.erase(answer.losers.begin());
  return answer;
}

}  // namespace weft
