// PairTable: what two ids together make, by both, in one block of memory (open addressing). A table
// of merges holds (left, right) -> (rank, id), one of a trie (node, byte) -> (0, child). Immutable
// once filled; then calls from any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

class PairTable {
 public:
  struct Entry {
    int32_t left = -1, right = -1;  // left -1: free
    int32_t rank = 0;
    int32_t id = 0;
  };

  explicit PairTable(size_t num_pairs = 0) {
    size_t places = 16;
    while (places < num_pairs * 2) places *= 2;
    entries_.resize(places);
  }

  // A pair that is there already takes the new rank and id. REQUIRES: left >= 0.
  void Put(int32_t left, int32_t right, int32_t rank, int32_t id) {
    if ((size_ + 1) * 2 > entries_.size()) Grow();
    Entry& entry = entries_[PlaceOf(left, right)];
    if (entry.left < 0) ++size_;
    entry = {left, right, rank, id};
  }

  // Null: there is none.
  const Entry* Find(int32_t left, int32_t right) const {
    const Entry& entry = entries_[PlaceOf(left, right)];
    return entry.left < 0 ? nullptr : &entry;
  }

  template <typename Take>
  void ForEach(const Take& take) const {
    for (const Entry& entry : entries_) {
      if (entry.left >= 0) take(entry);
    }
  }

 private:
  size_t PlaceOf(int32_t left, int32_t right) const {
    const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
    const uint64_t hash = key * 0x9E3779B97F4A7C15U;
    const size_t mask = entries_.size() - 1;
    size_t place = (hash >> 32 ^ hash) & mask;
    while (entries_[place].left >= 0 &&
           (entries_[place].left != left || entries_[place].right != right)) {
      place = (place + 1) & mask;
    }
    return place;
  }
  void Grow() {
    std::vector<Entry> old(entries_.size() * 2);
    old.swap(entries_);
    for (const Entry& entry : old) {
      if (entry.left >= 0) entries_[PlaceOf(entry.left, entry.right)] = entry;
    }
  }

  std::vector<Entry> entries_;
  size_t size_ = 0;
};

}  // namespace weft
