// Which layouts a search may leave out for want of memory, without looking at each: all that share
// their degrees stand or fall with the one of them that holds the least. And where nothing fits:
// what comes nearest. Used by one thread.
#pragma once
#include <array>
#include <cstddef>
#include <vector>

#include "plan/search/priced.h"
#include "plan/search/pricer.h"
#include "plan/search/space.h"

namespace weft {

// Layouts that differ in batch cut, schedule, ZeRO stage, recompute and where the optimizer lives.
struct DegreeGroup {
  int index = 0;  // its own
  size_t dp = 0;  // in Space::dps()
  size_t pp = 0;  // in Space::pps()
};

class Room {
 public:
  static constexpr int kNowhere = 4;  // above all stages of ZeRO
  // Blocks of a stage up to which what full recompute computes again weighs as much as what it
  // saves, and what offloaded states are updated in as much as they do.
  static constexpr int64_t kFewBlocks = 4;

  // Borrows both.
  Room(const Space& space, Pricer& pricer);

  // REQUIRES: indices of groups that are asked for are below `groups`.
  void SetGroups(size_t groups) { least_.resize(groups, {kUnknown, kUnknown}); }

  // The least stage of ZeRO at which a layout of the group may fit with the optimizer there;
  // kNowhere: none does. `layout`: any of the group.
  int LeastZero(const DegreeGroup& group, const Layout& layout, OffloadDevice offload);
  // Whether some layout may fit, wherever the optimizer lives.
  bool MayFit(const DegreeGroup& group, const Layout& layout);

  // ZeRO stages to choose from, without those that are the same as a lower one on these stages.
  absl::Span<const int> ZerosOf(const Layout& layout) const;

  // Returns the bytes of a stage beyond which a layout neither fits nor is kept by KeepNearest.
  int64_t MostBytes() const;
  // Keeps a layout that does not fit, if it is among the nearest so far.
  void KeepNearest(const Layout& layout, const Peak& peak);
  // The layouts that need the least, in groups that were left out as well. Least bytes first.
  std::vector<Priced> TakeNearest(bool nothing_fits);

 private:
  static constexpr int kUnknown = -1;

  template <typename Visit>
  void EachState(Layout& layout, const ScheduleChoice& choice, bool least, int most_zero,
                 const Visit& visit);
  bool OnlyFalls(const Layout& layout) const;
  int SeekLeastZero(const DegreeGroup& group, Layout least);
  bool IsNear(Layout least, const ScheduleChoice& choice);
  bool IsNear(const Peak& peak) const;
  bool HoldsMean(Layout layout);
  void LookIntoTooLarge();

  const Space& space_;
  Pricer& pricer_;
  const ModelShape& model_;
  std::vector<std::array<int, 2>> least_;  // by group, then by whether the optimizer is offloaded
  struct TooLarge {
    DegreeGroup group;
    Layout layout;
    double least_bytes = 0;  // of its even splits
  };
  std::vector<TooLarge> too_large_;
  std::vector<Priced> nearest_;
  double least_bytes_ = 0;  // of what IsNear looked at since it was last set
};

}  // namespace weft
