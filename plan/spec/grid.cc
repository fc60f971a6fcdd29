#include "plan/spec/grid.h"

#include "plan/errors.h"

namespace weft {

Words WordsOf(Axis) {
  static constexpr absl::string_view kWords[] = {"dp", "pp", "cp", "tp"};
  return kWords;
}

RankGrid::RankGrid(int dp, int pp, int cp, int tp) : dp_(dp), pp_(pp), cp_(cp), tp_(tp) {
  CHECK(dp >= 1 && pp >= 1 && cp >= 1 && tp >= 1);
}

int RankGrid::Degree(Axis axis) const {
  switch (axis) {
    case Axis::kData:
      return dp_;
    case Axis::kPipeline:
      return pp_;
    case Axis::kContext:
      return cp_;
    case Axis::kTensor:
      return tp_;
  }
  return 1;
}

GridCoordinates RankGrid::CoordinatesOf(int rank) const {
  CHECK(rank >= 0 && rank < world_size());
  GridCoordinates at;
  at.tp = rank % tp_;
  rank /= tp_;
  at.cp = rank % cp_;
  rank /= cp_;
  at.dp = rank % dp_;
  at.pp = rank / dp_;
  return at;
}

int RankGrid::RankOf(const GridCoordinates& coordinates) const {
  const auto& [dp, pp, cp, tp] = coordinates;
  CHECK(dp >= 0 && dp < dp_ && pp >= 0 && pp < pp_);
  CHECK(cp >= 0 && cp < cp_ && tp >= 0 && tp < tp_);
  return ((pp * dp_ + dp) * cp_ + cp) * tp_ + tp;
}

std::vector<int> RankGrid::GroupOf(Axis axis, int rank) const {
  GridCoordinates at = CoordinatesOf(rank);
  std::vector<int> group;
  for (int index = 0; index < Degree(axis); ++index) {
    switch (axis) {
      case Axis::kData:
        at.dp = index;
        break;
      case Axis::kPipeline:
        at.pp = index;
        break;
      case Axis::kContext:
        at.cp = index;
        break;
      case Axis::kTensor:
        at.tp = index;
        break;
    }
    group.push_back(RankOf(at));
  }
  return group;
}

std::vector<int> RankGrid::DataGroupOf(int rank) const {
  GridCoordinates at = CoordinatesOf(rank);
  std::vector<int> group;
  for (at.dp = 0; at.dp < dp_; ++at.dp) {
    for (at.cp = 0; at.cp < cp_; ++at.cp) group.push_back(RankOf(at));
  }
  return group;
}

int RankGrid::DataIndexOf(int rank) const {
  const GridCoordinates at = CoordinatesOf(rank);
  return at.dp * cp_ + at.cp;
}

std::vector<int> RankGrid::TensorNeighboursOf(int rank, int size) const {
  CHECK(size >= 1 && tp_ % size == 0);
  const std::vector<int> group = GroupOf(Axis::kTensor, rank);
  const auto first = group.begin() + CoordinatesOf(rank).tp / size * size;
  return {first, first + size};
}

std::vector<int> RankGrid::EmbeddingGroupOf(int rank) const {
  std::vector<int> pipeline = GroupOf(Axis::kPipeline, rank);
  if (pipeline.size() == 1) return pipeline;
  return {pipeline.front(), pipeline.back()};
}

std::vector<int> RankGrid::ReplicaGroupOf(int rank) const {
  GridCoordinates at = CoordinatesOf(rank);
  std::vector<int> group;
  for (at.pp = 0; at.pp < pp_; ++at.pp) {
    for (at.tp = 0; at.tp < tp_; ++at.tp) group.push_back(RankOf(at));
  }
  return group;
}

}  // namespace weft
