// RankGrid: the only rank arithmetic in weft. Ranks are laid out with tp fastest, then cp, dp, and
// pp slowest, so the axis that talks most sits on neighbouring ranks (Narayanan et al., SC'21,
// section 3). Pure; safe from any thread.
#pragma once
#include <vector>

#include "absl/strings/string_view.h"
#include "plan/spec/words.h"

namespace weft {

// An axis of the rank grid (never of a tensor: that is a dim).
enum class Axis { kData, kPipeline, kContext, kTensor };

Words WordsOf(Axis);  // "dp", "pp", "cp", "tp"

struct GridCoordinates {
  int dp = 0;
  int pp = 0;
  int cp = 0;
  int tp = 0;

  friend bool operator==(const GridCoordinates&, const GridCoordinates&) = default;
};

class RankGrid {
 public:
  // REQUIRES: every degree >= 1.
  RankGrid(int dp, int pp, int cp, int tp);

  int world_size() const { return dp_ * pp_ * cp_ * tp_; }
  int Degree(Axis axis) const;

  // REQUIRES: 0 <= rank < world_size().
  GridCoordinates CoordinatesOf(int rank) const;
  int RankOf(const GridCoordinates& coordinates) const;

  // Ranks that differ from `rank` along `axis` only, `rank` included, in axis order.
  std::vector<int> GroupOf(Axis axis, int rank) const;

  // Ranks that differ from `rank` along dp and cp only, which hold the same shards: dp slowest.
  std::vector<int> DataGroupOf(int rank) const;
  // Returns the index of `rank` in its DataGroupOf.
  int DataIndexOf(int rank) const;

  // The `size` neighbours of rank's tp group that `rank` is among. REQUIRES: size divides tp.
  std::vector<int> TensorNeighboursOf(int rank, int size) const;

  // First and last pipeline stage of rank's pipeline: who share a tied embedding. One rank if pp=1.
  std::vector<int> EmbeddingGroupOf(int rank) const;

  // All ranks that hold a part of the same model replica as `rank` (same dp and cp index).
  std::vector<int> ReplicaGroupOf(int rank) const;

 private:
  int dp_, pp_, cp_, tp_;
};

}  // namespace weft
