#include "plan/estimate/block_facts.h"

namespace weft {
namespace {

constexpr std::array<Recompute, 3> kModes = {Recompute::kNone, Recompute::kSelective,
                                             Recompute::kFull};

std::array<BlockFootprint, 3> FootprintsOf(const Question& question, const Layout& layout) {
  std::array<BlockFootprint, 3> footprints;
  for (const Recompute mode : kModes) {
    footprints[static_cast<size_t>(mode)] = BlockActivationBytes(question, layout, mode);
  }
  return footprints;
}

}  // namespace

BlockFacts::BlockFacts(const Question& question, const Layout& layout)
    : parameters(question, layout), saved(FootprintsOf(question, layout)) {
  if (question.model.num_dense_blocks == 0) return;
  Question dense = question;
  dense.model = OfDenseBlocks(question.model);
  dense_saved = FootprintsOf(dense, layout);
}

const BlockFacts& BlockFactsTable::Of(const Question& question, const Layout& layout) {
  const Key key(layout);
  if (last_key_ != nullptr && *last_key_ == key) return *last_facts_;
  auto found = entries_.find(key);
  if (found == entries_.end()) {
    if (entries_.size() == kMostEntries) entries_.clear();
    found = entries_.try_emplace(key, question, layout).first;
  }
  last_key_ = &found->first;
  last_facts_ = &found->second;
  return found->second;
}

}  // namespace weft
