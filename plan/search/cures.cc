#include "plan/search/cures.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/search/describe.h"
#include "plan/search/lattice.h"
#include "plan/search/pricer.h"

namespace weft {
namespace {

// Doublings of the cluster, and halvings of the sequence, that are tried.
constexpr int kDoublings = 10;
constexpr int64_t kMostSlots = int64_t{1} << 20;
// Numbers of nodes up to this are the least that fits; of more, to within this part of them.
constexpr int64_t kExactTo = 64;
// Layouts of all lattices that are searched for cures, together: three seconds at most.
constexpr int64_t kMostPoints = 50'000'000;

class Search {
 public:
  Search(const Question& question, const Constraints& constraints, Purpose purpose)
      : question_(question), constraints_(constraints), purpose_(purpose) {}

  // The best layout of the changed question, if one fits; or any.
  std::optional<Layout> Solve(const Question& question, const Constraints& constraints,
                              Wanted wanted = Wanted::kFitting) {
    const Space space(question, constraints, purpose_);
    points_left_ -= space.CountPoints();
    if (points_left_ < 0) return std::nullopt;
    Pricer pricer(question);
    const Finds finds = SearchLattice(space, pricer, Cut::kByBounds, wanted);
    if (finds.fitting.empty()) return std::nullopt;
    return finds.fitting.front().layout;
  }

  // Frees one value that is fixed; `text` says what it became.
  template <typename Value, typename Text>
  void Free(std::optional<Value> Constraints::*value, const Text& text) {
    if (!(constraints_.*value)) return;
    Constraints freed = constraints_;
    (freed.*value).reset();
    Keep(Solve(question_, freed), text);
  }

  template <typename Text>
  void Keep(const std::optional<Layout>& layout, const Text& text) {
    if (layout) cures_.push_back({text(*layout), *layout});
  }

  void FreeValues();
  void ChangeHabits();
  void ChangeMachine();
  void ChangeJob();
  std::vector<Cure> Take() { return std::move(cures_); }

 private:
  const Question& question_;
  const Constraints& constraints_;
  Purpose purpose_;
  int64_t points_left_ = kMostPoints;
  std::vector<Cure> cures_;
};

void Search::FreeValues() {
  const auto say = [](absl::string_view key, auto value) {
    return [key, value](const Layout& layout) { return absl::StrCat(key, " ", value(layout)); };
  };
  Free(&Constraints::micro_batch_size,
       say("training.micro_batch_size", [](const Layout& l) { return l.micro_batch_size; }));
  Free(&Constraints::num_microbatches, say("training.gradient_accumulation_steps",
                                           [](const Layout& l) { return l.num_microbatches; }));
  Free(&Constraints::recompute, say("activation_checkpointing.mode",
                                    [](const Layout& l) { return RecomputeName(l.recompute); }));
  Free(&Constraints::zero_stage,
       say("parallelism.zero_stage", [](const Layout& l) { return l.zero_stage; }));
  Free(&Constraints::schedule,
       say("parallelism.pp_schedule", [](const Layout& l) { return ScheduleName(l.schedule); }));
  Free(&Constraints::sequence_parallel,
       [](const Layout&) { return std::string("parallelism.sequence_parallel auto"); });
  Free(&Constraints::offload_optimizer, [](const Layout&) { return std::string("offload auto"); });
  Free(&Constraints::tp, say("parallelism.tp", [](const Layout& l) { return l.tp; }));
  Free(&Constraints::pp, say("parallelism.pp", [](const Layout& l) { return l.pp; }));
  Free(&Constraints::cp, say("parallelism.cp", [](const Layout& l) { return l.cp; }));
  Free(&Constraints::ep, say("parallelism.ep", [](const Layout& l) { return l.ep; }));
  Free(&Constraints::dp, say("parallelism.dp", [](const Layout& l) { return l.dp; }));
  if (!cures_.empty()) return;
  Constraints all_free;
  all_free.head_chunk_tokens = constraints_.head_chunk_tokens;
  all_free.head_chunks = constraints_.head_chunks;
  if (all_free == constraints_) return;
  Keep(Solve(question_, all_free), [](const Layout& layout) {
    return absl::StrCat("auto for everything that is fixed (", LayoutText(layout), ")");
  });
}

void Search::ChangeHabits() {
  // `auto` has been tried; factored states are not offloaded.
  if (!constraints_.offload_optimizer.value_or(true) &&
      question_.optimizer != OptimizerStates::kFactored) {
    Constraints changed = constraints_;
    changed.offload_optimizer = true;
    Keep(Solve(question_, changed), [](const Layout&) { return "offload.optimizer cpu"; });
  }
  if (constraints_.head_chunk_tokens.value_or(0) == 0 && !constraints_.head_chunks) {
    Constraints changed = constraints_;
    changed.head_chunk_tokens = 1024;
    Keep(Solve(question_, changed),
         [](const Layout&) { return "training.head_chunk_tokens 1024"; });
  }
}

void Search::ChangeMachine() {
  const auto with_nodes = [&](int64_t nodes) {
    Question larger = question_;
    larger.cluster.nodes = static_cast<int>(nodes);
    return Solve(larger, constraints_, Wanted::kWhetherAnyFits);
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

  const Space space(question_, constraints_, purpose_);
  Pricer pricer(question_);
  const Finds finds = SearchLattice(space, pricer, Cut::kByBounds);
  if (finds.nearest.empty()) return;
  const Priced& nearest = finds.nearest.front();
  Keep(std::optional<Layout>(nearest.layout), [&](const Layout& layout) {
    if (!pricer.Fits(nearest.peak.memory)) {
      return absl::StrCat("devices with ", BytesText(nearest.peak.total_bytes()));
    }
    return absl::StrCat("hosts with ", BytesText(NodeHostBytes(question_.cluster, layout,
                                                               nearest.peak.host_bytes)));
  });
}

// What trains other numbers: the cheapest changes to the job that keep its sequences, then shorter
// ones.
void Search::ChangeJob() {
  if (question_.optimizer == OptimizerStates::kTwoMoments) {
    Question quantised = question_;
    quantised.optimizer = OptimizerStates::kTwoMoments8Bit;
    Keep(Solve(quantised, constraints_), [](const Layout&) { return "optimizer.name adamw_8bit"; });
  }
  if (purpose_ == Purpose::kEstimate && !question_.adapters) {
    Question adapted = question_;
    adapted.adapters = LowRankAdapters{.frozen = FrozenFormat::kNf4};
    Keep(Solve(adapted, constraints_),
         [](const Layout&) { return "lora {r: 16, quantization: nf4}"; });
  }
  Question shorter = question_;
  std::optional<Layout> found;
  for (int i = 0; i < kDoublings && !found && shorter.batch.seq_len >= 2; ++i) {
    shorter.batch.seq_len /= 2;
    found = Solve(shorter, constraints_);
  }
  Keep(found,
       [&](const Layout&) { return absl::StrCat("training.seq_len ", shorter.batch.seq_len); });
}

}  // namespace

std::vector<Cure> CuresOf(const Question& question, const Constraints& constraints,
                          Purpose purpose) {
  Search search(question, constraints, purpose);
  search.FreeValues();
  search.ChangeHabits();
  search.ChangeMachine();
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
