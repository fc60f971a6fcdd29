#include "plan/search/shape.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/types/span.h"
#include "plan/schedule/schedule.h"

namespace weft {
namespace {

constexpr Recompute kModes[] = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};

// Blocks by which a stage may exceed the mean: what its ends hold besides rarely takes longer.
int64_t MostUneven(int64_t mean) {
  return std::max<int64_t>(3, mean / 4);
}

bool StageFits(Pricer& pricer, const Layout& layout, int stage) {
  return pricer.Fits(pricer.StageOf(layout, stage));
}

// Most blocks of a stage that are tried.
int64_t MostTried(int64_t blocks, int stages) {
  const int64_t mean = blocks / stages;
  return std::min(blocks - (stages - 1), mean + MostUneven(mean));
}

// Most blocks that fit on `stage`, of those that are tried: memory grows with them. `least`: where
// that is no more, it is the answer.
int64_t MostBlocks(Pricer& pricer, Layout& probe, int stage, int64_t least = 0) {
  int64_t& held = probe.layers_per_stage[static_cast<size_t>(stage)];
  const auto fits = [&](int64_t count) {
    held = count;
    const bool does = StageFits(pricer, probe, stage);
    held = 1;
    return does;
  };
  int64_t most = MostTried(pricer.question().model.num_blocks, probe.pp);
  if (least > 0 && (least >= most || !fits(least + 1))) return least;
  if (fits(most)) return most;
  for (--most; least < most;) {
    const int64_t middle = (least + most + 1) / 2;
    fits(middle) ? least = middle : most = middle - 1;
  }
  return most;
}

// StageRoom says which splits of a layout fit by each recompute mode. It looks at few stages first:
// most layouts that are asked about have no split that fits.
class StageRoom {
 public:
  StageRoom(Pricer& pricer, const Layout& layout)
      : pricer_(pricer), probe_(layout), asked_(layout.recompute_per_stage) {
    probe_.recompute_per_stage.clear();
    probe_.layers_per_stage.assign(static_cast<size_t>(layout.pp), 1);
    const int64_t dense = pricer.question().model.num_dense_blocks;
    alike_ = static_cast<int>(std::min<int64_t>(std::max<int64_t>(1, dense), last()));
  }

  // Returns the modes that stages are asked to take, one each; empty: that is free.
  const std::vector<Recompute>& asked() const { return asked_; }

  // Whether some stage has room for the mean, rounded up, as one has to; of few blocks more may
  // hold less (plan/shards/whole_places.h).
  bool MayHold(Recompute mode) {
    probe_.recompute = mode;
    const int64_t mean = (pricer_.question().model.num_blocks + last()) / probe_.pp;
    if (mean < kFewBlocks) return true;
    const auto holds = [&](int stage) {
      int64_t& held = probe_.layers_per_stage[static_cast<size_t>(stage)];
      held = mean;
      const bool fits = StageFits(pricer_, probe_, stage);
      held = 1;
      return fits;
    };
    if (holds(last()) || (alike_ < last() && (holds(last() - 1) || holds(alike_)))) return true;
    for (int stage = 0; stage < alike_; ++stage) {
      if (holds(stage)) return true;
    }
    return false;
  }

  // Whether stages have room for all blocks, each for at least one, if each computes again what it
  // likes of `modes`. Of those that differ in passes in flight alone the last has room for the most
  // and the first for the least, or, where weight gradients are put off, it may be the other way
  // round: few others have to be asked.
  bool HoldsAll(absl::Span<const Recompute> modes) {
    if (!asked_.empty()) return HoldsAllAsAsked();
    const int64_t blocks = pricer_.question().model.num_blocks;
    const int64_t tried = MostTried(blocks, probe_.pp);
    const auto most_of = [&](int stage) {
      int64_t most = 0;
      for (auto mode = modes.rbegin(); mode != modes.rend(); ++mode) {
        probe_.recompute = *mode;
        most = MostBlocks(pricer_, probe_, stage, most);
      }
      return most;
    };
    const int64_t inner = std::max(0, last() - alike_);
    const int64_t late_most = inner == 0 ? 0 : most_of(last() - 1);
    if (inner > 0 && late_most < 1) return false;
    const bool may_rise = inner > 1 && SplitsBackward(probe_);
    const int64_t early_most = may_rise ? most_of(alike_) : 0;
    const int64_t inner_most = std::max(early_most, late_most);
    int64_t held = inner * inner_most;
    int64_t others = probe_.pp - inner;
    for (int stage = last(); others > 0; stage = stage == last() ? 0 : stage + 1, --others) {
      if (held + others * tried < blocks) return false;
      const int64_t most = most_of(stage);
      if (most < 1) return false;
      held += most;
    }
    if (held < blocks || inner < 2) return held >= blocks;
    std::vector<int64_t> most(static_cast<size_t>(probe_.pp), 0);
    int64_t& first_inner = most[static_cast<size_t>(alike_)];
    first_inner = may_rise ? early_most : most_of(alike_);
    if (first_inner < 1) return false;
    const int64_t inner_least = std::min(first_inner, late_most);
    if (held - inner * (inner_most - inner_least) >= blocks) return true;
    most[static_cast<size_t>(last() - 1)] = late_most;
    const auto ask = [&](int stage) { most[static_cast<size_t>(stage)] = most_of(stage); };
    Fill(alike_, last() - 1, ask, most);
    return std::accumulate(most.begin(), most.end(), held - inner * inner_most) >= blocks;
  }

  // Most blocks by stage. Stages from `alike_` on but for the last one differ in passes in flight
  // alone, whose bytes only fall or only rise: between two that take the same blocks all do.
  const std::vector<int64_t>& MostOf(Recompute mode) {
    std::vector<int64_t>& most = most_[static_cast<size_t>(mode)];
    if (!most.empty()) return most;
    probe_.recompute = mode;
    most.assign(static_cast<size_t>(probe_.pp), 0);
    const auto ask = [&](int stage) {
      most[static_cast<size_t>(stage)] = MostBlocks(pricer_, probe_, stage);
    };
    for (int stage = 0; stage < alike_; ++stage) ask(stage);
    ask(last());
    if (alike_ >= last()) return most;
    ask(alike_);
    if (alike_ == last() - 1) return most;
    ask(last() - 1);
    Fill(alike_, last() - 1, ask, most);
    return most;
  }

 private:
  static constexpr int64_t kFewBlocks = 4;
  int last() const { return probe_.pp - 1; }

  bool HoldsAllAsAsked() {
    int64_t held = 0;
    for (int stage = 0; stage < probe_.pp; ++stage) {
      const auto i = static_cast<size_t>(stage);
      const int64_t most = MostOf(asked_[i])[i];
      if (most < 1) return false;
      held += most;
    }
    return held >= pricer_.question().model.num_blocks;
  }

  // REQUIRES: both ends are known.
  template <typename Ask>
  static void Fill(int first, int end, const Ask& ask, std::vector<int64_t>& most) {
    if (end - first < 2) return;
    const auto begin = most.begin() + first;
    if (*begin == most[static_cast<size_t>(end)]) {
      std::fill(begin, most.begin() + end, *begin);
      return;
    }
    const int middle = first + (end - first) / 2;
    ask(middle);
    Fill(first, middle, ask, most);
    Fill(middle, end, ask, most);
  }

  Pricer& pricer_;
  Layout probe_;  // a block a stage but for that which is looked at
  std::vector<Recompute> asked_;
  int alike_ = 1;
  std::array<std::vector<int64_t>, 3> most_;  // by Recompute; empty: not asked for yet
};

// One of the modes that each stage may take, in the split that is sought.
struct Mode {
  Recompute recompute = Recompute::kNone;
  double block_s = 0;
  std::vector<int64_t> most;  // blocks by stage
};

class SplitSearch {
 public:
  // `room`: of the layout. `modes`: cheapest first.
  SplitSearch(Pricer& pricer, const Layout& layout, StageRoom& room,
              absl::Span<const Recompute> modes)
      : pricer_(pricer), layout_(layout), blocks_(pricer.question().model.num_blocks) {
    const PartPasses parts = pricer.PartsOf(layout, modes.front());
    embedding_s_ = parts.embedding.total_s();
    head_s_ = parts.head.total_s();
    const auto may_hold = [&](Recompute mode) { return room.MayHold(mode); };
    if (std::none_of(modes.begin(), modes.end(), may_hold)) return;
    for (const Recompute recompute : modes) {
      Mode mode{.recompute = recompute,
                .block_s = pricer.BlockOf(layout, recompute).total_s(),
                .most = {}};
      if (mode.block_s <= 0) return;
      modes_.push_back(std::move(mode));
    }
    for (Mode& mode : modes_) {
      mode.most = room.MostOf(mode.recompute);
      // A stage holds nothing by a mode that it is not asked to take.
      for (size_t stage = 0; stage < room.asked().size(); ++stage) {
        if (room.asked()[stage] != mode.recompute) mode.most[stage] = 0;
      }
    }
  }

  // Returns the layout with the fastest slowest stage; nullopt: no split fits.
  std::optional<Layout> Fastest() const {
    if (!HasRoom()) return std::nullopt;
    const std::vector<double> limits = Limits();
    // Stages hold no less where more time is allowed.
    const auto limit = std::partition_point(limits.begin(), limits.end(),
                                            [&](double limit_s) { return !IsEnough(limit_s); });
    if (limit == limits.end()) return std::nullopt;
    std::vector<int64_t> split;
    int64_t sum = 0;
    for (int stage = 0; stage < layout_.pp; ++stage) {
      split.push_back(Within(*limit, stage));
      sum += split.back();
    }
    // Blocks that are too many come off where there are most, from the last stage on.
    for (; sum > blocks_; --sum) {
      auto largest = split.rbegin();
      for (auto stage = split.rbegin(); stage != split.rend(); ++stage) {
        if (*stage > *largest) largest = stage;
      }
      --*largest;
    }
    return LayoutOf(std::move(split));
  }

 private:
  // The slowest stage takes a whole number of blocks and what its place adds: these in order.
  std::vector<double> Limits() const {
    std::vector<double> limits;
    const int64_t mean = blocks_ / layout_.pp;
    for (const Mode& mode : modes_) {
      for (const double extra_s : {0.0, embedding_s_, head_s_}) {
        for (int64_t count = std::max<int64_t>(1, mean - 2); count <= mean + MostUneven(mean);
             ++count) {
          limits.push_back(static_cast<double>(count) * mode.block_s + extra_s);
        }
      }
    }
    std::sort(limits.begin(), limits.end());
    return limits;
  }

  // Whether stages hold all blocks, each at least one, however long they take.
  bool HasRoom() const {
    int64_t sum = 0;
    for (size_t stage = 0; stage < static_cast<size_t>(layout_.pp); ++stage) {
      int64_t most = 0;
      for (const Mode& mode : modes_) most = std::max(most, mode.most[stage]);
      if (most < 1) return false;
      sum += most;
    }
    return sum >= blocks_;
  }

  // Whether stages that take no longer hold all blocks, each at least one.
  bool IsEnough(double limit_s) const {
    int64_t sum = 0;
    for (int stage = 0; stage < layout_.pp; ++stage) {
      const int64_t blocks = Within(limit_s, stage);
      if (blocks < 1) return false;
      sum += blocks;
    }
    return sum >= blocks_;
  }

  // Most blocks of `stage` that fit and take no longer.
  int64_t Within(double limit_s, int stage) const {
    const double room_s =
        limit_s - (stage == 0 ? embedding_s_ : 0) - (stage == layout_.pp - 1 ? head_s_ : 0);
    int64_t most = 0;
    for (const Mode& mode : modes_) {
      const auto count = static_cast<int64_t>(room_s / mode.block_s * (1 + 1e-12));
      most = std::max(most, std::min(count, mode.most[static_cast<size_t>(stage)]));
    }
    return most;
  }

  // With the cheapest modes that fit, unless they are asked for.
  Layout LayoutOf(std::vector<int64_t> split) const {
    Layout layout = layout_;
    if (!layout.recompute_per_stage.empty()) {
      layout.layers_per_stage = std::move(split);
      return layout;
    }
    std::vector<Recompute> recompute;
    for (size_t stage = 0; stage < split.size(); ++stage) {
      const auto fits = [&](const Mode& mode) { return split[stage] <= mode.most[stage]; };
      recompute.push_back(std::find_if(modes_.begin(), modes_.end(), fits)->recompute);
    }
    layout.layers_per_stage = std::move(split);
    const bool alike = std::all_of(recompute.begin(), recompute.end(),
                                   [&](Recompute mode) { return mode == recompute.front(); });
    layout.recompute = recompute.front();
    if (!alike) {
      layout.recompute = layout_.recompute;
      layout.recompute_per_stage = std::move(recompute);
    }
    return layout;
  }

  Pricer& pricer_;
  const Layout& layout_;
  int64_t blocks_;
  double embedding_s_ = 0, head_s_ = 0;
  std::vector<Mode> modes_;
};

// Returns each of them once, the cheapest first.
std::vector<Recompute> ModesOf(std::vector<Recompute> per_stage) {
  std::sort(per_stage.begin(), per_stage.end());
  per_stage.erase(std::unique(per_stage.begin(), per_stage.end()), per_stage.end());
  return per_stage;
}

}  // namespace

std::optional<std::vector<Recompute>> BestRecompute(Pricer& pricer, const Layout& layout) {
  std::vector<Recompute> modes;
  Layout probe = layout;
  probe.recompute_per_stage.clear();
  for (int stage = 0; stage < layout.pp; ++stage) {
    const auto fits = [&](Recompute mode) {
      probe.recompute = mode;
      return StageFits(pricer, probe, stage);
    };
    const auto* mode = std::find_if(std::begin(kModes), std::end(kModes), fits);
    if (mode == std::end(kModes)) return std::nullopt;
    modes.push_back(*mode);
  }
  if (std::all_of(modes.begin(), modes.end(), [&](Recompute mode) { return mode == modes[0]; })) {
    return std::nullopt;
  }
  return modes;
}

bool HasRoomForSplit(Pricer& pricer, const Layout& layout, bool free_recompute) {
  const Recompute own[] = {layout.recompute};
  return StageRoom(pricer, layout).HoldsAll(free_recompute ? kModes : absl::MakeConstSpan(own));
}

std::vector<Layout> FittingShapes(Pricer& pricer, const Layout& layout, const FreeShape& free) {
  std::vector<Layout> shapes;
  StageRoom room(pricer, layout);
  if (free.split) {
    const bool asked = !layout.recompute_per_stage.empty();
    const std::vector<Recompute> modes =
        asked ? ModesOf(layout.recompute_per_stage) : std::vector<Recompute>(1, layout.recompute);
    if (auto shape = SplitSearch(pricer, layout, room, modes).Fastest()) {
      shapes.push_back(*std::move(shape));
    }
  }
  if (free.recompute) {
    if (auto modes = BestRecompute(pricer, layout)) {
      shapes.push_back(layout);
      shapes.back().recompute_per_stage = *std::move(modes);
    }
  }
  if (free.split && free.recompute) {
    if (auto shape = SplitSearch(pricer, layout, room, kModes).Fastest()) {
      shapes.push_back(*std::move(shape));
    }
  }
  return shapes;
}

}  // namespace weft
