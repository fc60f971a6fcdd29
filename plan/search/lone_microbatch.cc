#include "plan/search/lone_microbatch.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "plan/search/balance.h"
#include "plan/search/head_chunks.h"
#include "plan/search/priced.h"
#include "plan/search/shape.h"

namespace weft {
namespace {

// Dry runs may put the best by closed forms behind so many others.
constexpr size_t kMostNear = 4;

class Descent {
 public:
  Descent(const Space& space, Pricer& pricer, const Layout& layout, const LoneBounds& bounds,
          bool free_recompute)
      : space_(space),
        pricer_(pricer),
        layout_(layout),
        bounds_(bounds),
        spread_(pricer.SpreadOf(layout)),
        blocks_(pricer.question().model.num_blocks),
        free_recompute_(free_recompute) {}

  // Along a line blocks move from the first stage to those between, from these to the last, or from
  // the first to the last; the best place of a line is where the next one starts. What stages take
  // grows with their blocks, so that few turns are enough.
  LoneSplits Run() {
    Ends ends{StageBlockCount(layout_, blocks_, 0),
              StageBlockCount(layout_, blocks_, layout_.pp - 1)};
    hopeless_.ends = ends;
    Try(ends);
    constexpr int kMostTurns = 8;
    for (int turn = 0; turn < kMostTurns; ++turn) {
      const double before_s = best_s();
      const double lowest_s = hopeless_.step_s;
      for (const Ends step : {Ends{1, -1}, Ends{1, 0}, Ends{0, 1}}) {
        if (layout_.pp == 2 && step.first + step.last != 0) continue;
        ends = near_.empty() ? hopeless_.ends : near_.front().ends;
        Walk(ends, step);
        Walk(ends, {-step.first, -step.last});
      }
      if (best_s() == before_s && hopeless_.step_s == lowest_s) break;
    }
    LoneSplits splits{.near_best = {}, .lacks = lacks_s_ < best_s()};
    for (Found& found : near_) splits.near_best.push_back(std::move(found.layout));
    return splits;
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  struct Ends {
    int64_t first = 1, last = 1;
  };
  struct Found {
    double step_s = 0;
    Ends ends;
    Layout layout;
  };

  double best_s() const { return near_.empty() ? kNever : near_.front().step_s; }

  // All of a line of a short pipeline; of a longer one as far as what follows does not grow for
  // long.
  void Walk(Ends ends, Ends step) {
    constexpr int kMostInVain = 8;
    int in_vain = 0;
    while (in_vain < kMostInVain) {
      ends = {ends.first + step.first, ends.last + step.last};
      const int64_t inner = blocks_ - ends.first - ends.last;
      if (ends.first < 1 || ends.last < 1 || inner < layout_.pp - 2) break;
      in_vain = Try(ends) ? 0 : in_vain + 1;
    }
  }

  // Returns the step's time at least, from what follows the passes on the stages that differ.
  double LeastOf(const Layout& layout) {
    double end_s = 0;
    const int last = layout.pp - 1;
    for (const int stage : {0, std::min(1, last), std::max(1, last - 1), last}) {
      end_s = std::max(end_s, pricer_.EndOf(layout, stage, bounds_.passes).total_s());
    }
    return spread_ * (bounds_.least_passes_s + end_s);
  }

  // Returns whether the split is the best so far; until one may win, the nearest to that.
  bool Try(Ends ends) {
    Layout layout = layout_;
    layout.layers_per_stage = StageBlocksOf(SplitOf(ends), layout.pp);
    const double before_s = best_s();
    const double least_s = LeastOf(layout);
    if (least_s > std::min(bounds_.limit_s, kDryRuns * before_s)) {
      if (!near_.empty() || least_s >= hopeless_.step_s) return false;
      hopeless_ = {least_s, ends};
      return true;
    }
    if (KeepIfFits(layout, ends)) return best_s() < before_s;
    const double step_s = pricer_.Time(layout).total_s();
    lacks_s_ = std::min(lacks_s_, step_s);
    if (step_s > kDryRuns * before_s) return false;
    KeepIfFits(WithBestHead(space_, pricer_, layout), ends);
    for (const int64_t tokens : {layout.head_chunk_tokens, space_.LeastHeadChunk()}) {
      if (!free_recompute_) break;
      layout.head_chunk_tokens = tokens;
      const auto modes = BestRecompute(pricer_, layout);
      if (!modes) continue;
      Layout shape = layout;
      shape.recompute_per_stage = *modes;
      KeepIfFits(WithBestHead(space_, pricer_, shape), ends);
    }
    return best_s() < before_s;
  }

  // Returns whether it fits, as far as it may be among the best.
  bool KeepIfFits(const Layout& layout, Ends ends) {
    const double step_s = pricer_.Time(layout).total_s();
    if (step_s > kDryRuns * best_s()) return true;
    if (!pricer_.Fits(layout, pricer_.PeakOf(layout))) return false;
    const auto is_same = [&](const Found& found) { return found.layout == layout; };
    if (std::any_of(near_.begin(), near_.end(), is_same)) return true;
    const auto place = std::find_if(near_.begin(), near_.end(),
                                    [&](const Found& found) { return step_s < found.step_s; });
    near_.insert(place, {step_s, ends, layout});
    while (near_.size() > kMostNear || near_.back().step_s > kDryRuns * best_s()) {
      near_.pop_back();
    }
    return true;
  }

  Split SplitOf(Ends ends) const {
    Split split{.first = ends.first, .inner = 0, .last = ends.last, .fewer = 0};
    const int64_t stages = layout_.pp - 2;
    if (stages == 0) return split;
    const int64_t between = blocks_ - ends.first - ends.last;
    split.inner = (between + stages - 1) / stages;
    split.fewer = split.inner * stages - between;
    return split;
  }

  const Space& space_;
  Pricer& pricer_;
  const Layout& layout_;
  const LoneBounds& bounds_;
  double spread_;
  int64_t blocks_;
  bool free_recompute_;
  struct {
    double step_s = kNever;  // at least
    Ends ends;
  } hopeless_;               // the nearest to the limit of those beyond it
  double lacks_s_ = kNever;  // of the fastest that does not fit
  std::vector<Found> near_;  // best first
};

}  // namespace

// Some stage holds the mean, rounded up, or more; the first and the last hold a block or more. The
// bound takes for granted that what follows does not shrink with a stage's blocks. It is not proven
// where more passes hide more (ZeRO 2 and 3): there random questions have shown no loss by it.
double LeastLoneEnd(Pricer& pricer, const Layout& layout, const LazyPasses& passes) {
  const int64_t blocks = pricer.question().model.num_blocks;
  const int64_t fullest = (blocks + layout.pp - 1) / layout.pp;
  Layout even = layout;
  even.layers_per_stage.assign(static_cast<size_t>(layout.pp), fullest);
  double least_s = std::numeric_limits<double>::infinity();
  for (const int stage : {0, 1, layout.pp - 1}) {
    least_s = std::min(least_s, pricer.EndOf(even, stage, passes).total_s());
  }
  even.layers_per_stage.assign(static_cast<size_t>(layout.pp), 1);
  for (const int stage : {0, layout.pp - 1}) {
    least_s = std::max(least_s, pricer.EndOf(even, stage, passes).total_s());
  }
  return least_s;
}

LoneSplits FastestLoneSplits(const Space& space, Pricer& pricer, const Layout& layout,
                             const LoneBounds& bounds, bool free_recompute) {
  return Descent(space, pricer, layout, bounds, free_recompute).Run();
}

}  // namespace weft
