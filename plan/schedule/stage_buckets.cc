#include "plan/schedule/stage_buckets.h"

#include <algorithm>

#include "plan/errors.h"

namespace weft {
namespace {

bool TakesTokens(const Action& pass, const StageBuckets& buckets) {
  return buckets.embedding >= 0 && pass.chunk == 0;
}

bool MakesLoss(const Action& pass, const StageBuckets& buckets) {
  return buckets.head >= 0 && pass.chunk + 1 == static_cast<int>(buckets.chunks.size());
}

// Appends the chunk's blocks, forth or back.
void AddBlocks(const Action& pass, const StageBuckets& buckets, std::vector<int>& to) {
  const BlockRange& blocks = buckets.chunks[static_cast<size_t>(pass.chunk)];
  for (int64_t i = 0; i < blocks.size(); ++i) {
    const bool forward = pass.op == Op::kForward;
    to.push_back(static_cast<int>(forward ? blocks.begin + i : blocks.end - 1 - i));
  }
}

}  // namespace

StageBuckets StageBucketsOf(const Layout& layout, int64_t num_blocks, int stage, bool tied) {
  StageBuckets buckets;
  const bool first = stage == 0;
  const bool last = stage == layout.pp - 1;
  if (first) buckets.embedding = buckets.count++;
  for (int chunk = 0; chunk < layout.virtual_stages; ++chunk) {
    const auto blocks = static_cast<int>(ChunkBlocks(layout, num_blocks, stage, chunk).size());
    buckets.chunks.push_back({buckets.count, buckets.count + blocks});
    buckets.count += blocks;
  }
  const bool share_table = tied && layout.pp == 1;
  if (last) buckets.head = share_table ? buckets.embedding : buckets.count++;
  if (tied && !share_table) buckets.copied_table = first ? buckets.embedding : buckets.head;
  return buckets;
}

BucketCounts StageBuckets::counts() const {
  const int64_t ends = (embedding >= 0 ? 1 : 0) + (head >= 0 && head != embedding ? 1 : 0);
  return {.ends = ends, .blocks = count - ends};
}

WholePlace StageBuckets::PlaceOf(int bucket) const {
  if (bucket == embedding || bucket == head) return WholePlace::kEnds;
  return PlaceOfBlock(bucket - chunks.front().begin);
}

std::vector<int> WeightsOf(const Action& pass, const StageBuckets& buckets) {
  CHECK(IsPass(pass.op));
  std::vector<int> used;
  if (pass.op == Op::kBackwardWeight) return used;
  const bool forward = pass.op == Op::kForward;
  if (forward && TakesTokens(pass, buckets)) used.push_back(buckets.embedding);
  AddBlocks(pass, buckets, used);
  if (forward && MakesLoss(pass, buckets)) used.push_back(buckets.head);
  return used;
}

std::vector<int> WeightsOf(absl::Span<const Action> actions, const StageBuckets& buckets) {
  std::vector<int> used;
  for (const Action& action : actions) {
    if (!IsPass(action.op)) continue;
    const std::vector<int> pass = WeightsOf(action, buckets);
    used.insert(used.end(), pass.begin(), pass.end());
  }
  return used;
}

std::vector<int> GradientsOf(const Action& pass, const StageBuckets& buckets) {
  CHECK(IsPass(pass.op));
  std::vector<int> made;
  if (pass.op == Op::kForward) {
    if (MakesLoss(pass, buckets)) made.push_back(buckets.head);
    return made;
  }
  AddBlocks(pass, buckets, made);
  if (pass.op != Op::kBackwardWeight && TakesTokens(pass, buckets)) {
    made.push_back(buckets.embedding);
  }
  return made;
}

std::vector<Action> WithReductions(absl::Span<const Action> actions, const StageBuckets& buckets,
                                   absl::Span<const int> reduced) {
  std::vector<bool> is_left(static_cast<size_t>(buckets.count));
  for (const int bucket : reduced) is_left[static_cast<size_t>(bucket)] = true;
  auto left = std::ssize(reduced);
  const auto take = [&](int bucket) {
    if (!is_left[static_cast<size_t>(bucket)]) return false;
    is_left[static_cast<size_t>(bucket)] = false;
    --left;
    return true;
  };
  std::vector<Action> reversed;
  reversed.reserve(actions.size() + static_cast<size_t>(buckets.count));
  for (size_t i = actions.size(); i-- > 0;) {
    if (left > 0 && IsPass(actions[i].op)) {
      const std::vector<int> made = GradientsOf(actions[i], buckets);
      for (size_t j = made.size(); j-- > 0;) {
        if (take(made[j])) reversed.push_back({.op = Op::kReduceGradients, .bucket = made[j]});
      }
    }
    reversed.push_back(actions[i]);
  }
  CHECK(left == 0);
  std::reverse(reversed.begin(), reversed.end());
  return reversed;
}

}  // namespace weft
