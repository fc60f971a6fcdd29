// Vocabulary: tokens as texts, by id and back, in one block of memory. Immutable once filled; then
// calls from any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft {

inline constexpr int32_t kNoToken = -1;
// U+2581 stands for a space in the tokens of sentencepiece, and in those that are like them.
inline constexpr char kSpaceMark[] = "\xE2\x96\x81";
// A token of a file that lists tokens without merges has at most so many bytes: looking for its
// merges takes the square of it.
inline constexpr size_t kMostTokenBytes = 512;
inline constexpr size_t kMostAddedBytes = 4096;  // of an added token
// All of them together have at most so many: finding them takes some 60 times that.
inline constexpr size_t kMostAddedBytesTogether = size_t{4} << 20;
inline constexpr int32_t kMostTokens = int32_t{1} << 22;  // ids are below it

// Returns a hash of any bytes; the same on each machine of one byte order.
inline uint64_t HashOfBytes(absl::string_view text) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15U;
  uint64_t hash = text.size() * kFactor;
  size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    uint64_t eight = 0;
    std::memcpy(&eight, text.data() + at, 8);
    hash = (hash ^ eight) * kFactor;
    hash ^= hash >> 29;
  }
  uint64_t rest = 0;
  if (at < text.size()) std::memcpy(&rest, text.data() + at, text.size() - at);
  hash = (hash ^ rest) * kFactor;
  return hash ^ hash >> 32;
}

class Vocabulary {
 public:
  // Makes room for so many tokens.
  explicit Vocabulary(size_t num_tokens = 0);

  // Makes `text` the token `id`: the text of the id, and, if `is_found`, what Find returns for the
  // text, in place of an earlier one. REQUIRES: 0 <= id < kMostTokens.
  void Add(absl::string_view text, int32_t id, bool is_found = true);

  int32_t Find(absl::string_view text) const;  // kNoToken: none has it
  // The text of an id; empty for one that has none.
  absl::string_view Text(int32_t id) const {
    if (id < 0 || static_cast<size_t>(id) >= spans_.size()) return "";
    const Span& span = spans_[static_cast<size_t>(id)];
    return absl::string_view(bytes_).substr(span.begin, span.size);
  }
  bool Has(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < spans_.size() &&
           spans_[static_cast<size_t>(id)].is_there;
  }
  int64_t size() const { return static_cast<int64_t>(spans_.size()); }  // largest id + 1

 private:
  struct Span {
    size_t begin = 0;
    uint32_t size = 0;
    bool is_there = false;
  };
  void Grow();

  std::string bytes_;
  std::vector<Span> spans_;  // by id
  // A place of the table, which is open addressing: the hash tells most others apart.
  struct Place {
    int32_t id = kNoToken;
    uint32_t hash = 0;
  };
  Place* PlaceOf(absl::string_view text, uint64_t hash);

  std::vector<Place> places_;  // a power of two
  size_t num_found_ = 0;
};

}  // namespace weft
