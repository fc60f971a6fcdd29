#include "plan/search/cures.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/search/describe.h"
#include "plan/search/lattice.h"
#include "plan/search/pricer.h"
#include "plan/search/repair.h"
#include "plan/spec/layout_key.h"
#include "plan/spec/layout_text.h"

namespace weft {
namespace {

// Doublings of the cluster, and halvings of the sequence, that are tried.
constexpr int kDoublings = 10;
constexpr int64_t kMostSlots = int64_t{1} << 20;
// Numbers of nodes up to this are the least that fits; of more, to within this part of them.
constexpr int64_t kExactTo = 64;
// Layouts of all lattices that are searched for cures, together: three seconds at most. While more
// than half of them are left, the nearest of the values that would fit is looked for.
constexpr int64_t kMostPoints = 90'000'000;

// Values in the order of their distance from `fixed`, which is none of them: of degrees and counts
// by their ratio, else by their difference. Of two that are as near the smaller comes first.
template <typename Value>
std::vector<Value> NearestFirst(std::vector<Value> values, Value fixed, bool by_ratio) {
  const auto place = [by_ratio](Value value) {
    const auto number = static_cast<double>(value);
    return by_ratio ? std::log2(std::max(number, 1.0)) : number;
  };
  const auto distance = [&](Value value) { return std::abs(place(value) - place(fixed)); };
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  values.erase(std::remove(values.begin(), values.end(), fixed), values.end());
  std::stable_sort(values.begin(), values.end(),
                   [&](Value a, Value b) { return distance(a) < distance(b); });
  return values;
}

class CureSearch {
 public:
  CureSearch(const Question& question, const LayoutSpec& constraints, Purpose purpose)
      : question_(question), constraints_(constraints), purpose_(purpose) {}

  // A layout of the changed question that fits, if FindPlan finds one: first any of the lattice,
  // then what repairs make.
  std::optional<Layout> Fitting(const Question& question, const LayoutSpec& constraints) {
    if (!Affords(question, constraints)) return std::nullopt;
    Pricer pricer(question);
    const Space space(question, constraints, purpose_);
    const Finds any = SearchLattice(space, pricer, Cut::kByBounds, Wanted::kWhetherAnyFits);
    if (!any.fitting.empty() && pricer.IsProven(any.fitting.front().layout)) {
      return any.fitting.front().layout;
    }
    const Finds finds = SearchLattice(space, pricer, Cut::kByBounds, Wanted::kFitting);
    std::optional<Layout> repaired = AnyRepair(space, pricer, finds);
    if (repaired && !pricer.IsProven(*repaired)) return std::nullopt;
    return repaired;
  }

  // Frees one value that is fixed; `text` says what it became.
  template <typename Value, typename Text>
  void Free(std::optional<Value> LayoutSpec::*value, const Text& text) {
    if (!(constraints_.*value)) return;
    LayoutSpec freed = constraints_;
    (freed.*value).reset();
    Keep(Fitting(question_, freed), text);
  }

  // The same of a value of which `others` lists what else it may be in a space that leaves it free:
  // the nearest that fits.
  template <typename Value, typename Others, typename Text>
  void FreeToNearest(std::optional<Value> LayoutSpec::*value, bool by_ratio, const Others& others,
                     const Text& text) {
    if (!(constraints_.*value)) return;
    LayoutSpec changed = constraints_;
    (changed.*value).reset();
    const std::optional<Layout> found = Fitting(question_, changed);
    if (!found) return;
    const std::vector<Value> values = others(Space(question_, changed, purpose_));
    for (const Value other : NearestFirst(values, *(constraints_.*value), by_ratio)) {
      if (points_left_ < kMostPoints / 2) break;
      changed.*value = other;
      const std::optional<Layout> nearest = Fitting(question_, changed);
      if (!nearest) continue;
      Keep(nearest, text);
      return;
    }
    Keep(found, text);
  }

  template <typename Text>
  void Keep(const std::optional<Layout>& layout, const Text& text) {
    if (layout) cures_.push_back({text(*layout), *layout});
  }

  void FreeValues();
  void FreeOthers();
  void FreeDegrees();
  void ChangeHabits();
  void FreeAll();
  void ChangeNodes();
  void ChangeMemory();
  // Offers the least of a kind of memory that is enough, from `guess` up; `set` gives the machine
  // so much of it.
  template <typename Set>
  void KeepEnough(absl::string_view what, int64_t guess, const Set& set);
  void ChangeJob();
  std::vector<Cure> Take() { return std::move(cures_); }

 private:
  bool Affords(const Question& question, const LayoutSpec& constraints) {
    points_left_ -= Space(question, constraints, purpose_).CountPoints();
    return points_left_ >= 0;
  }

  const Question& question_;
  const LayoutSpec& constraints_;
  Purpose purpose_;
  int64_t points_left_ = kMostPoints;
  std::vector<Cure> cures_;
};

// Names one value of a layout as a cure does: "parallelism.tp 2".
template <typename Value>
auto Says(absl::string_view key, const Value& value) {
  return [key, value](const Layout& layout) { return absl::StrCat(key, " ", value(layout)); };
}

// Returns one member of every way to cut the batch.
std::vector<int64_t> CutsOf(const Space& space, int64_t BatchCut::*member) {
  std::vector<int64_t> values;
  for (size_t dp = 0; dp < space.dps().size(); ++dp) {
    for (const BatchCut& cut : space.cuts(dp)) values.push_back(cut.*member);
  }
  return values;
}

void CureSearch::FreeValues() {
  constexpr bool kByRatio = true;
  FreeToNearest(
      &LayoutSpec::micro_batch_size, kByRatio,
      [](const Space& space) { return CutsOf(space, &BatchCut::micro_batch_size); },
      Says("training.micro_batch_size", [](const Layout& l) { return l.micro_batch_size; }));
  FreeToNearest(
      &LayoutSpec::gradient_accumulation_steps, kByRatio,
      [](const Space& space) { return CutsOf(space, &BatchCut::gradient_accumulation_steps); },
      Says("training.gradient_accumulation_steps",
           [](const Layout& l) { return l.gradient_accumulation_steps; }));
  FreeToNearest(
      &LayoutSpec::recompute, !kByRatio, [](const Space& space) { return space.recomputes(); },
      Says("activation_checkpointing.mode", [](const Layout& l) { return WordOf(l.recompute); }));
  FreeToNearest(
      &LayoutSpec::zero_stage, !kByRatio,
      [](const Space&) {
        return std::vector{0, 1, 2, 3};
      },
      Says("parallelism.zero_stage", [](const Layout& l) { return l.zero_stage; }));
  FreeToNearest(
      &LayoutSpec::pp_schedule, !kByRatio,
      [](const Space&) {
        return std::vector{ScheduleKind::kOneForwardOneBackward, ScheduleKind::kGpipe,
                           ScheduleKind::kInterleaved, ScheduleKind::kZeroBubbleH1};
      },
      Says("parallelism.pp_schedule", [](const Layout& l) { return WordOf(l.pp_schedule); }));
  FreeOthers();
  FreeDegrees();
}

// Frees what has no cure of its own here or in ChangeHabits, a list of modes for stages left out.
void CureSearch::FreeOthers() {
  using L = Layout;
  EachPropertyBut<&L::micro_batch_size, &L::gradient_accumulation_steps, &L::recompute,
                  &L::recompute_per_stage, &L::zero_stage, &L::pp_schedule, &L::dp, &L::tp, &L::pp,
                  &L::cp, &L::ep, &L::offload_optimizer, &L::head_chunk_tokens>(
      [this](const auto& row) {
        Free(row.asked, [&row](const Layout&) { return absl::StrCat(row.key, " auto"); });
      });
}

// Where no change of one value is enough.
void CureSearch::FreeAll() {
  if (!cures_.empty()) return;
  LayoutSpec all_free;
  all_free.head_chunk_tokens = constraints_.head_chunk_tokens;
  if (all_free == constraints_) return;
  Keep(Fitting(question_, all_free), [](const Layout& layout) {
    return absl::StrCat("auto for everything that is fixed (", LayoutText(layout), ")");
  });
}

void CureSearch::FreeDegrees() {
  const auto free = [&](std::optional<int> LayoutSpec::*fixed, absl::string_view key,
                        const std::vector<int>& (Space::*list)() const, int Layout::*degree) {
    FreeToNearest(
        fixed, /*by_ratio=*/true, [list](const Space& space) { return (space.*list)(); },
        Says(key, [degree](const Layout& layout) { return layout.*degree; }));
  };
  free(&LayoutSpec::tp, "parallelism.tp", &Space::tps, &Layout::tp);
  free(&LayoutSpec::pp, "parallelism.pp", &Space::pps, &Layout::pp);
  free(&LayoutSpec::cp, "parallelism.cp", &Space::cps, &Layout::cp);
  free(&LayoutSpec::ep, "parallelism.ep", &Space::eps, &Layout::ep);
  free(&LayoutSpec::dp, "parallelism.dp", &Space::dps, &Layout::dp);
}

void CureSearch::ChangeHabits() {
  // `auto` has been tried; factored states are not offloaded.
  if (constraints_.offload_optimizer == OffloadDevice::kNone &&
      question_.numerics.optimizer != OptimizerStates::kFactored) {
    LayoutSpec changed = constraints_;
    changed.offload_optimizer = OffloadDevice::kCpu;
    Keep(Fitting(question_, changed), [](const Layout&) { return "offload.optimizer cpu"; });
  }
  if (constraints_.head_chunk_tokens.value_or(0) == 0) {
    LayoutSpec changed = constraints_;
    changed.head_chunk_tokens = 1024;
    Keep(Fitting(question_, changed),
         [](const Layout&) { return "training.head_chunk_tokens 1024"; });
  }
}

void CureSearch::ChangeNodes() {
  // One machine whose profile describes no network cannot become two.
  if (question_.cluster.inter_node == LinkProfile{}) return;
  const auto with_nodes = [&](int64_t nodes) {
    Question larger = question_;
    larger.cluster.nodes = static_cast<int>(nodes);
    return Fitting(larger, constraints_);
  };
  int64_t least = question_.cluster.nodes;
  int64_t most = least;
  std::optional<Layout> found;
  for (int i = 0; i < kDoublings && !found; ++i) {
    if (most * 2 * question_.cluster.slots_per_node > kMostSlots) break;
    least = most;
    most *= 2;
    found = with_nodes(most);
  }
  while (found && most - least > 1 + most / kExactTo) {
    const int64_t middle = (least + most) / 2;
    const std::optional<Layout> fewer = with_nodes(middle);
    (fewer ? most : least) = middle;
    if (fewer) found = fewer;
  }
  Keep(found, [&](const Layout&) { return absl::StrCat("cluster.nodes ", most); });
}

// Offers devices with as much memory as is really enough, found by asking again, and where only the
// hosts lack room for what would be offloaded, such hosts.
void CureSearch::ChangeMemory() {
  Pricer pricer(question_);
  const Finds finds =
      SearchLattice(Space(question_, constraints_, purpose_), pricer, Cut::kByBounds);
  if (finds.nearest.empty()) return;
  const Priced& nearest = finds.nearest.front();
  const auto host = NodeHostBytes(question_.cluster, nearest.layout, nearest.peak.host_bytes);
  const int64_t there = question_.cluster.host_memory_bytes;
  if (pricer.Fits(nearest.peak.memory) && there > 0 && host > there) {
    KeepEnough("hosts with ", host,
               [](int64_t bytes, Question& larger) { larger.cluster.host_memory_bytes = bytes; });
  }
  const int64_t has = question_.cluster.device.memory_bytes;
  KeepEnough("devices with ", std::max(nearest.peak.total_bytes(), has),
             [](int64_t bytes, Question& larger) { larger.cluster.device.memory_bytes = bytes; });
}

// Memory is sold in whole GiB, little of it in whole MiB or KiB.
int64_t MemoryUnit(int64_t bytes) {
  for (const int shift : {30, 20}) {
    if (bytes >= int64_t{4} << shift) return int64_t{1} << shift;
  }
  return int64_t{1} << 10;
}

std::string WholeText(int64_t bytes) {
  const int64_t unit = MemoryUnit(bytes);
  const absl::string_view name = unit >> 30 > 0 ? "GiB" : unit >> 20 > 0 ? "MiB" : "KiB";
  return absl::StrCat(bytes / unit, " ", name);
}

template <typename Set>
void CureSearch::KeepEnough(absl::string_view what, int64_t guess, const Set& set) {
  const auto whole = [](int64_t bytes) {
    const int64_t unit = MemoryUnit(bytes);
    return (bytes + unit - 1) / unit * unit;
  };
  const auto with = [&](int64_t bytes) {
    Question larger = question_;
    set(bytes, larger);
    return Fitting(larger, constraints_);
  };
  int64_t too_little = 0;
  int64_t enough = whole(guess);
  std::optional<Layout> found = with(enough);
  // More than the nearest needs is needed where its host has no room for what it offloads.
  for (int i = 0; i < kDoublings && !found; ++i) {
    too_little = enough;
    enough = whole(enough + enough / 4);
    found = with(enough);
  }
  while (found && too_little > 0 && enough - too_little > MemoryUnit(enough)) {
    const int64_t middle = whole(too_little + (enough - too_little) / 2);
    if (middle >= enough) break;
    const std::optional<Layout> less = with(middle);
    (less ? enough : too_little) = middle;
    if (less) found = less;
  }
  Keep(found, [&](const Layout&) { return absl::StrCat(what, WholeText(enough)); });
}

// Tries what trains other numbers: the cheapest changes to the job that keep its sequences, then
// shorter ones.
void CureSearch::ChangeJob() {
  if (question_.numerics.optimizer == OptimizerStates::kTwoMoments) {
    Question quantised = question_;
    quantised.numerics.optimizer = OptimizerStates::kTwoMoments8Bit;
    Keep(Fitting(quantised, constraints_),
         [](const Layout&) { return "optimizer.name adamw_8bit"; });
  }
  if (purpose_ == Purpose::kEstimate && !question_.adapters) {
    Question adapted = question_;
    adapted.adapters = LowRankAdapters{.rank = 16, .frozen = FrozenFormat::kNf4};
    const size_t cures = cures_.size();
    Keep(Fitting(adapted, constraints_),
         [](const Layout&) { return "lora {r: 16, quantization: nf4}"; });
    adapted.adapters->frozen = FrozenFormat::kNf4Double;
    if (cures_.size() == cures) {
      Keep(Fitting(adapted, constraints_), [](const Layout&) {
        return "lora {r: 16, quantization: nf4, double_quantization: true}";
      });
    }
  }
  Question shorter = question_;
  std::optional<Layout> found;
  for (int i = 0; i < kDoublings && !found && shorter.batch.seq_len >= 2; ++i) {
    shorter.batch.seq_len /= 2;
    found = Fitting(shorter, constraints_);
  }
  Keep(found,
       [&](const Layout&) { return absl::StrCat("training.seq_len ", shorter.batch.seq_len); });
}

}  // namespace

std::vector<Cure> CuresOf(const Question& question, const LayoutSpec& constraints,
                          Purpose purpose) {
  CureSearch search(question, constraints, purpose);
  search.FreeValues();
  search.ChangeHabits();
  search.FreeAll();
  search.ChangeNodes();
  search.ChangeMemory();
  search.ChangeJob();
  return search.Take();
}

std::string CuresText(const std::vector<Cure>& cures) {
  if (cures.empty()) return "; use a smaller model";
  std::vector<std::string> changes;
  changes.reserve(cures.size());
  for (const Cure& cure : cures) changes.push_back(cure.change);
  return absl::StrCat("; use ", absl::StrJoin(changes, ", or "));
}

}  // namespace weft
